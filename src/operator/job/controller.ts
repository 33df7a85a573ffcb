import { findCondition } from "../../core/apis/conditions.ts"
import type { StoredConnection } from "../../core/apis/connection.ts"
import { isTerminal, JOB_FINALIZER, JobReason, type StoredJob } from "../../core/apis/job.ts"
import type { StoredLaunch } from "../../core/apis/launch.ts"
import type { StoredMachine } from "../../core/apis/machine.ts"
import { keyOf } from "../../core/apis/meta.ts"
import type { StoredOrganization } from "../../core/apis/organization.ts"
import type { StoredProject } from "../../core/apis/project.ts"
import { endedBy, namespacesUnder } from "../../core/identity/projects.ts"
import type { Change, Store } from "../../core/kube/store.ts"
import { servesNamespace, whyUnavailable } from "../../core/machines/machine.ts"
import { idlenessOf, type ReuseDefault, reuseOf } from "../../core/reuse/reuse.ts"
import {
  Controller,
  type ReconcileContext,
  type ReconcileResult,
  type Source,
  watchSource,
} from "../../core/runtime/controller.ts"
import { LaunchLedger } from "../../market/placement/ledger.ts"
import { lineUp } from "../../market/placement/line.ts"
import { JOB_DEFAULTS, type JobSettings } from "../../market/placement/settings.ts"
import { dropFinalizer, replaceStatus } from "../writes.ts"
import { adopt, createLaunch, endLaunch, jobWriter, release } from "./actions.ts"
import { decide } from "./decide.ts"
import type { JobControllerDependencies } from "./dependencies.ts"
import { gather } from "./gather.ts"
import { JobMarkets } from "./markets.ts"
import type { JobAction, JobDecision } from "./render.ts"
import { JobTimes } from "./times.ts"
import { WaitingLine } from "./waiting-line.ts"

/** Delay before retrying a decision made on a stale cache. Usually the watch event arrives sooner. */
const AGAIN_SECONDS = 0.2

/** Returns the controller of a Job's whole life until it is settled. */
export function createJobController(options: JobControllerDependencies): Controller {
  const reconciler = new JobReconciler(options)
  const sources = [...createSources(options), reconciler.line.source]
  return new Controller({
    name: "job",
    reconcile: (key, context) => reconciler.reconcile(key, context),
    sources,
    logger: options.logger,
    clock: options.clock,
    workers: options.workers ?? 8,
    isUrgent: (key) => hasBegunOrShallEnd(options.jobs.store.getByKey(key), options),
  })
}

/**
 * Returns true for jobs with a Launch, and for jobs that are cancelled or deleted. They overtake new jobs, so a burst
 * delays no completion.
 */
function hasBegunOrShallEnd(job: StoredJob | undefined, { launches }: JobControllerDependencies): boolean {
  if (job === undefined) return false
  const { metadata, spec } = job
  if (spec.cancelled === true || metadata.deletionTimestamp !== undefined) return true
  return launches.store.countByIndex("jobUid", metadata.uid) > 0
}

function createSources(options: JobControllerDependencies): Source[] {
  const { jobs, launches, endReaders = [], prerequisites, connections, machines, envSecrets, tenancy } = options
  const sources = [watchSource(jobs), watchSource(launches, jobOf), ...endReaders.map(({ source }) => source)]
  sources.push(
    ...prerequisites.jobSources(),
    watchSource(launches, (change) => takersOf(change, jobs.store.list(), options.settings)),
  )
  const waiting = (namespace: string | undefined) =>
    jobs.store
      .list()
      .filter((job) => job.metadata.namespace === namespace && job.status?.phase === "queued")
      .map(keyOf)
  if (envSecrets !== undefined) {
    const lacksSecret = (key: string) => jobs.store.getByKey(key)?.status?.reason === JobReason.SecretMissing
    sources.push(watchSource(envSecrets, ({ current }) => waiting(current?.metadata.namespace).filter(lacksSecret)))
  }
  if (tenancy !== undefined) {
    const { projects, organizations } = tenancy
    const concerned = (change: Change<StoredProject | StoredOrganization>) => [
      ...endedBy(change, projects.store).flatMap(waiting),
      ...idleUnder(change, projects.store, launches.store),
    ]
    sources.push(watchSource(projects, concerned), watchSource(organizations, concerned))
  }
  if (machines !== undefined)
    sources.push(watchSource(machines, (change) => machineTakersOf(change, jobs.store.list())))
  if (connections === undefined) return sources
  const woken = ({ old, current }: Change<StoredConnection>) =>
    current === undefined || standing(old) === standing(current) ? [] : waiting(current.metadata.namespace)
  return [...sources, watchSource(connections, woken)]
}

/** Largest number of jobs that one idle VM wakes. The first that fits takes it. */
const MOST_TAKERS = 16

/** Returns the keys of the jobs that may take over a VM since this change, in the order of the line. */
function takersOf(
  { old, current }: Change<StoredLaunch>,
  jobs: readonly StoredJob[],
  settings: ReuseDefault = {},
): string[] {
  const isNews = current !== undefined && idlenessOf(current).is === "idle" && (!old || idlenessOf(old).is !== "idle")
  if (!isNews) return []
  const { namespace } = current.spec.job
  const takers = jobs.filter(
    (job) =>
      job.metadata.namespace === namespace && job.status?.phase === "queued" && reuseOf(job, settings) !== undefined,
  )
  return firstInLine(takers)
}

/** Returns the keys of the jobs that may get a machine which has become free, in the order of the line. */
function machineTakersOf({ old, current }: Change<StoredMachine>, jobs: readonly StoredJob[]): string[] {
  if (current === undefined || isFree(old) || !isFree(current)) return []
  const takers = jobs.filter(
    ({ metadata, status }) => status?.phase === "queued" && servesNamespace(current, metadata.namespace ?? ""),
  )
  return firstInLine(takers)
}

/** Returns the keys of the first jobs, in the order of the line: so many as one machine wakes. */
function firstInLine(jobs: readonly StoredJob[]): string[] {
  return lineUp(jobs)
    .slice(0, MOST_TAKERS)
    .map(({ key }) => key)
}

function isFree(machine: StoredMachine | undefined): boolean {
  return machine !== undefined && whyUnavailable(machine) === undefined
}

/** Returns the keys of the jobs whose idle VMs may be too many, because a change sets another cap of idle VMs. */
function idleUnder(
  { old, current }: Change<StoredProject | StoredOrganization>,
  projects: Store<StoredProject>,
  launches: Store<StoredLaunch>,
): string[] {
  if (current === undefined || current.spec.caps?.maxIdleVms === old?.spec.caps?.maxIdleVms) return []
  return namespacesUnder(current, projects)
    .flatMap((namespace) => launches.byIndex("unmarked", namespace))
    .filter((launch) => idlenessOf(launch).is === "idle")
    .flatMap((launch) => jobOf({ current: launch }))
}

/** Returns the fields that determine if a connection is usable. Other changes do not requeue jobs. */
function standing(connection: StoredConnection | undefined): string {
  const { account, conditions, verifiedCredentials } = connection?.status ?? {}
  const ready = findCondition(conditions, "Ready")
  const launch = findCondition(conditions, "LaunchPermitted")
  return JSON.stringify([ready?.status, ready?.observedGeneration, launch?.status, account, verifiedCredentials])
}

function jobOf({ old, current }: Pick<Change<StoredLaunch>, "old" | "current">): string[] {
  const job = (current ?? old)?.spec.job
  return job === undefined ? [] : [`${job.namespace}/${job.name}`]
}

class JobReconciler {
  readonly #options: JobControllerDependencies
  readonly #settings: JobSettings
  readonly #ledger: LaunchLedger
  readonly #times: JobTimes
  readonly #markets: JobMarkets
  readonly line: WaitingLine

  constructor(options: JobControllerDependencies) {
    this.#options = options
    this.#settings = { ...JOB_DEFAULTS, ...options.settings }
    this.#ledger = new LaunchLedger(options.launches.store, options.clock)
    this.#times = new JobTimes(options.clock)
    this.line = new WaitingLine(options, this.#ledger, this.#settings)
    this.#markets = new JobMarkets(options, { ledger: this.#ledger, settings: this.#settings, line: this.line })
  }

  async reconcile(key: string, context: ReconcileContext): Promise<ReconcileResult> {
    const job = this.#options.jobs.store.getByKey(key)
    if (job === undefined || isTerminal(job.status?.phase)) this.#times.forget(key)
    if (job === undefined) {
      this.line.forget(key)
      return {}
    }
    const observed = await gather(job, this.#options, { times: this.#times, markets: this.#markets })
    const decision = decide(job, observed, this.#options.clock.now(), this.#settings)
    // Reserved before the first await: the next job that looks for a place must count this one.
    for (const action of decision.actions) if (action.do === "createLaunch") this.#ledger.assume(action.launch)
    this.line.note(job, decision.needs)
    return this.#carryOut(job, decision, context)
  }

  async #carryOut(job: StoredJob, decision: JobDecision, context: ReconcileContext): Promise<ReconcileResult> {
    const left = [...decision.actions]
    let current = job
    try {
      for (let action = left[0]; action !== undefined; action = left[0]) {
        context.signal.throwIfAborted()
        const next = await this.#act(current, action, context)
        if (next === undefined) return { requeueAfter: AGAIN_SECONDS }
        current = next
        left.shift()
        // Emit events right after the status write: a retry after a later failure would not emit them.
        if (action.do === "writeStatus") this.#wroteStatus(current, decision)
      }
    } finally {
      // The first remaining action was attempted and has cleaned up after itself.
      for (const action of left.slice(1)) if (action.do === "createLaunch") this.#ledger.forget(action.launch)
    }
    return decision.requeueAfter === undefined ? {} : { requeueAfter: decision.requeueAfter }
  }

  #wroteStatus(job: StoredJob, { events }: JobDecision): void {
    // It leaves the cache now.
    if (job.status?.settled === true) this.#options.settled.add(job)
    for (const note of events) this.#options.recorder.record(job, note)
  }

  /** Returns the current Job, or undefined if the decision must be made again. */
  async #act(job: StoredJob, action: JobAction, context: ReconcileContext): Promise<StoredJob | undefined> {
    const options = this.#options
    switch (action.do) {
      case "adopt":
        return adopt(job, action.labels, options, context)
      case "createLaunch": {
        const isNew = await createLaunch(job, action, { options, ledger: this.#ledger, context })
        return isNew ? job : undefined
      }
      case "writeStatus":
        // A merge would keep removed fields. On a Conflict, `cancelled` and an earlier end are never overwritten.
        return replaceStatus(job, action.status, jobWriter(options), context)
      case "endLaunch":
        await endLaunch(action.launch, options, context)
        return job
      case "release":
        return release(job, action, options, context)
      case "dropFinalizer":
        await dropFinalizer(job, JOB_FINALIZER, jobWriter(options), context)
        return job
    }
  }
}
