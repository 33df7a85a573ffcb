import { JOB_FINALIZER, type StoredJob } from "../../src/core/apis/job.ts"
import { isOver, type StoredLaunch } from "../../src/core/apis/launch.ts"
import { ANNOTATIONS } from "../../src/core/apis/meta.ts"
import { launchHistory } from "../../src/market/placement/ledger.ts"
import { appraise } from "../../src/market/placement/market.ts"
import { JOB_DEFAULTS, type JobSettings } from "../../src/market/placement/settings.ts"
import { monthlyCosts } from "../../src/market/placement/statements.ts"
import { decide as decideJob } from "../../src/operator/job/decide.ts"
import type { JobAction, JobDecision } from "../../src/operator/job/render.ts"
import { createdStatus } from "../../src/operator/launch/create.ts"
import {
  decide as decideLaunch,
  type InstanceView,
  type LaunchAction,
  type LaunchDecision,
  type LaunchObservation,
  type OwnStatus,
} from "../../src/operator/launch/decide.ts"
import { isWokenBy, readJobState } from "../../src/operator/launch/gather.ts"
import { isFollowed } from "../../src/operator/launch/observe.ts"
import { LAUNCH_DEFAULTS } from "../../src/operator/launch/settings.ts"
import { CATALOGUE, INSTALLATION, seenOf } from "../harness/builders.ts"
import type { Step } from "./model-explorer.ts"
import {
  clockAt,
  dueAfter,
  Interned,
  JOB_VERSIONS,
  type Key,
  LAUNCH_VERSIONS,
  type LaunchState,
  launchAt,
  NO_VM,
  newLaunch,
  type Sight,
  TICK_SECONDS,
  type VmState,
  type Work,
  type World,
  withJob,
  withLaunch,
  withVm,
} from "./model-state.ts"

/** Settings with few losses until a job fails, a timeout of two ticks, and no optional looks at the VM. */
const SETTINGS: JobSettings = {
  ...JOB_DEFAULTS,
  ...{ timeoutSeconds: 1800, maxLostVms: 1, maxBootFailures: 2, settleSeconds: 0 },
}

const JOB_DECISIONS: Interned<JobDecision> = new Interned()
const LAUNCH_DECISIONS: Interned<LaunchDecision> = new Interned()
const STATUSES: Interned<OwnStatus> = new Interned()

/** Result of one call to the API server. `again`: the controller decides again from the current state. */
interface Written {
  world: World
  outcome: "done" | "again"
  /** Version that was written. */
  on?: number
  /** Cache that must show the version. */
  awaits?: "jobs" | "launches"
}

/**
 * Yields the operator's possible next steps, with faults while some are left. They are lazy, because a fair path takes
 * only the first.
 */
export function* operatorSteps(world: World): Iterable<Step<World>> {
  yield* deliveries(world)
  yield* jobSteps(world)
  for (let number = 1; number <= world.launches.length; number++) yield* launchSteps(world, number)
}

/** Returns the world after all decisions without actions: these could also be taken later. */
export function idled(world: World): World {
  let next = world
  const job = beginJob(next)
  if (job.job.work === undefined) next = job
  for (let number = 1; number <= world.launches.length; number++) {
    const begun = beginLaunch(next, number)
    if (launchAt(begun, number).work === undefined) next = begun
  }
  return next
}

// Deliveries of watch events to the caches. A late delivery merges all changes since the last one.

function deliveries(world: World): Step<World>[] {
  const steps: Step<World>[] = []
  if (world.job.cached !== world.job.object) steps.push({ name: "the cache of jobs catches up", next: showJobs(world) })
  if (world.launches.some(({ cached, object }) => cached !== object)) {
    steps.push({ name: "the cache of launches catches up", next: showLaunches(world) })
  }
  return steps
}

function shown(key: Key, cache: "jobs" | "launches"): Pick<Key, "awaits"> {
  return { awaits: key.awaits.filter((awaited) => awaited !== cache) }
}

function showJobs(world: World): World {
  const { object } = world.job
  const [before, after] = [JOB_VERSIONS.get(world.job.cached), JOB_VERSIONS.get(object)]
  return {
    ...world,
    job: { ...world.job, ...shown(world.job, "jobs"), cached: object, dirty: true },
    launches: world.launches.map((launch) => {
      const known = LAUNCH_VERSIONS.get(launch.cached)
      const dirty = launch.dirty || (known !== undefined && isWokenBy(known, before, after))
      return { ...launch, ...shown(launch, "jobs"), dirty }
    }),
  }
}

function showLaunches(world: World): World {
  const launches = world.launches.map((launch): LaunchState => {
    const isNews = launch.cached !== launch.object
    const object = LAUNCH_VERSIONS.get(launch.object)
    return {
      ...launch,
      ...shown(launch, "launches"),
      cached: launch.object,
      dirty: launch.dirty || isNews,
      ...(!(object !== undefined && isFollowed(object)) && { sight: "unknown", silent: false }),
    }
  })
  return { ...world, job: { ...world.job, ...shown(world.job, "launches"), dirty: true }, launches }
}

// The job controller.

function jobSteps(world: World): Step<World>[] {
  const begun = beginJob(world)
  return begun.job.work === undefined ? [] : jobCalls(begun, begun.job.work)
}

/**
 * Lets the job controller decide if its key is dirty. The decision and its first action are one step: an early decision
 * with a late action equals a late decision from stale caches.
 */
function beginJob(world: World): World {
  const { cached, work, dirty, awaits } = world.job
  if (work !== undefined || !dirty || awaits.length > 0) return world
  const job = JOB_VERSIONS.get(cached)
  if (job === undefined) return withJob(world, { dirty: false })
  const decision = decisionOnJob(cached, job, world)
  return afterJobCall(withJob(world, { dirty: false }), { decision, step: -1, on: cached, half: 0 })
}

const JOB_MEMO = new Map<string, number>()

function decisionOnJob(version: number, job: StoredJob, world: World): number {
  const known = knownLaunches(job, world)
  const key = [version, world.tick, ...known].join(",")
  const before = JOB_MEMO.get(key)
  if (before !== undefined) return before
  const launches = known.map((number) => LAUNCH_VERSIONS.get(number) as StoredLaunch)
  const now = clockAt(world.tick)
  const facts = {
    namespace: "team",
    offers: CATALOGUE,
    launchAccounts: [{ cloud: "sim" }],
  }
  const market = () => appraise({ ...facts, launches: launchHistory(launches) }, now, SETTINGS)
  const decision = JOB_DECISIONS.of(decideJob(job, { launches, market, ...seenOf(job) }, now, SETTINGS))
  JOB_MEMO.set(key, decision)
  return decision
}

/**
 * Returns the job's Launches as the job controller gathers them: from the cache, and live where a stale cache could do
 * harm.
 */
function knownLaunches(job: StoredJob, { launches }: World): number[] {
  const isDeleted = job.metadata.deletionTimestamp !== undefined
  if (isDeleted) return launches.map(({ object }) => object).filter(Boolean)
  const current = job.status?.launches?.current
  const isEnded = job.status?.cost?.actualUsd !== undefined
  return launches
    .map(({ cached, object }) => {
      const isCurrent = LAUNCH_VERSIONS.get(object)?.metadata.name === current
      return cached === 0 && isCurrent && !isEnded ? object : cached
    })
    .filter(Boolean)
}

/** Returns the world at the next call of this reconcile, or at its end. */
function afterJobCall(world: World, work: Work): World {
  const decision = JOB_DECISIONS.get(work.decision) as JobDecision
  const step = work.step + 1
  if (step < decision.actions.length) return withJob(world, { work: { ...work, step, half: 0 } })
  return withJob(world, { work: undefined, ...requeued(world.job, decision.requeueAfter, world.tick) })
}

/** Returns the due tick. A later time never replaces an earlier one. */
function requeued({ due }: Key, seconds: number | undefined, tick: number): Pick<Key, "due"> {
  if (seconds === undefined) return { due }
  const next = dueAfter(tick, seconds)
  return { due: due === 0 ? next : Math.min(due, next) }
}

function jobCalls(world: World, work: Work): Step<World>[] {
  const action = (JOB_DECISIONS.get(work.decision) as JobDecision).actions[work.step] as JobAction
  const name = `job controller: ${action.do}`
  if (action.do === "createLaunch" && work.half === 0) {
    const isCurrent = world.job.object === work.on
    const next = isCurrent ? { work: { ...work, half: 1 } } : { work: undefined, dirty: true }
    return [{ name: `${name}: is the job still the same? ${isCurrent ? "yes" : "no"}`, next: withJob(world, next) }]
  }
  const written = writeForJob(world, action, work)
  const steps = [{ name: `${name}: ${written.outcome}`, next: jobAfter(written, work) }]
  if (world.faults > 0) {
    const lost = withJob(written.world, { work: undefined, dirty: true })
    steps.push({ name: `${name}: the answer is lost`, next: { ...lost, faults: world.faults - 1 } })
  }
  return steps
}

function jobAfter({ world, outcome, on, awaits }: Written, work: Work): World {
  const waiting = isBehind(world, awaits) ? withJob(world, awaiting(world.job, awaits)) : world
  if (outcome === "again") return withJob(waiting, { work: undefined, dirty: true })
  return afterJobCall(waiting, { ...work, on: on ?? work.on })
}

function isBehind(world: World, cache: "jobs" | "launches" | undefined): boolean {
  if (cache === "jobs") return world.job.cached !== world.job.object
  return cache === "launches" && world.launches.some(({ cached, object }) => cached !== object)
}

function awaiting({ awaits }: Key, cache: "jobs" | "launches" | undefined): Pick<Key, "awaits"> {
  return { awaits: [...new Set([...awaits, ...(cache === undefined ? [] : [cache])])].sort() }
}

/** Returns the API server's result of a call of the job controller. */
export function writeForJob(world: World, action: JobAction, work: Work): Written {
  if (action.do === "createLaunch") return createLaunch(world, action)
  if (action.do === "endLaunch") return endLaunch(world, action.launch.spec.number)
  const { object } = world.job
  if (action.do === "dropFinalizer" && object === 0) return { world, outcome: "done" }
  const job = JOB_VERSIONS.get(object)
  const again: Written = { world, outcome: "again" }
  if (action.do === "release" && world.launches[action.next - 1]?.object) return { ...again, awaits: "launches" }
  return object === work.on && job !== undefined ? changeJob(world, job, action) : again
}

/** Returns the result of a write to the version of the Job that was decided on. */
function changeJob(
  world: World,
  job: StoredJob,
  action: Exclude<JobAction, { do: "createLaunch" | "endLaunch" }>,
): Written {
  const removed: Written = { world: withJob(world, { object: 0 }), outcome: "done" }
  switch (action.do) {
    case "dropFinalizer":
      return removed
    case "release":
      return putJob(world, freed(job, action.labels))
    case "adopt":
      return putJob(world, adopted(job, action.labels))
    case "writeStatus":
      return putJob(world, { ...job, status: action.status })
  }
}

/** Returns a Job without its finalizer, recorded if labels are given. */
function freed(job: StoredJob, labels: Record<string, string> | undefined): StoredJob {
  const { finalizers: _, ...metadata } = (labels === undefined ? job : adopted(job, labels)).metadata
  return { ...job, metadata }
}

function putJob(world: World, job: StoredJob): Written {
  const on = JOB_VERSIONS.of(job)
  return { world: withJob(world, { object: on }), outcome: "done", on, awaits: "jobs" }
}

function adopted(job: StoredJob, labels: Record<string, string>): StoredJob {
  const { uid } = job.metadata
  const metadata = {
    ...job.metadata,
    labels,
    finalizers: [JOB_FINALIZER],
    annotations: { [ANNOTATIONS.recordedUid]: uid },
  }
  return { ...job, metadata }
}

/** Returns a deleted object that its finalizer keeps. */
export function deleted<T extends StoredJob | StoredLaunch>(object: T, tick: number): T {
  const { metadata } = object
  if (metadata.deletionTimestamp !== undefined) return object
  const deletionTimestamp = clockAt(tick).toISOString()
  return { ...object, metadata: { ...metadata, deletionTimestamp, generation: metadata.generation + 1 } }
}

function createLaunch(world: World, { launch }: JobAction & { do: "createLaunch" }): Written {
  const { number } = launch.spec
  if (number > world.launches.length + 1) throw new Error(`Launch ${number} leaves out numbers`)
  const before = world.launches[number - 1]
  if (before !== undefined && before.object !== 0) return { world, outcome: "again", awaits: "launches" }
  const metadata = {
    ...launch.metadata,
    uid: `launch-${number}`,
    resourceVersion: "1",
    generation: 1,
    creationTimestamp: clockAt(world.tick).toISOString(),
  }
  const made = newLaunch(LAUNCH_VERSIONS.of({ ...launch, metadata }))
  // A deleted record may be created again: the cloud knows the VM of that name.
  const others = world.launches.filter((_, index) => index !== number - 1)
  const launches = others.toSpliced(number - 1, 0, { ...made, ...(before && { vm: before.vm, cached: before.cached }) })
  return { world: { ...world, launches }, outcome: "done", awaits: "launches" }
}

function endLaunch(world: World, number: number): Written {
  const launch = LAUNCH_VERSIONS.get(launchAt(world, number).object)
  if (launch === undefined) return { world, outcome: "done" }
  const generation = launch.spec.ended === true ? launch.metadata.generation : launch.metadata.generation + 1
  const ended = {
    ...launch,
    metadata: { ...launch.metadata, generation },
    spec: { ...launch.spec, ended: true },
  }
  return {
    world: withLaunch(world, number, { object: LAUNCH_VERSIONS.of(ended) }),
    outcome: "done",
    awaits: "launches",
  }
}

// The launch controller.

function launchSteps(world: World, number: number): Step<World>[] {
  const looks = lookSteps(world, number)
  const begun = beginLaunch(world, number)
  const { work } = launchAt(begun, number)
  return work === undefined ? looks : [...looks, ...launchCalls(begun, number, work)]
}

/** Returns the observer's look at the VM, if it has news. */
function lookSteps(world: World, number: number): Step<World>[] {
  const launch = launchAt(world, number)
  const cached = LAUNCH_VERSIONS.get(launch.cached)
  if (cached === undefined || !isFollowed(cached)) return []
  const steps: Step<World>[] = []
  const sight = sightOf(launch.vm)
  if (sight !== launch.sight) {
    const next = withLaunch(world, number, { sight, dirty: true })
    steps.push({ name: `the observer sees VM ${number}: ${sight}`, next })
  }
  const { agent, loss } = cached.status ?? {}
  const heard = agent?.lastHeartbeatTime ?? agent?.registrationTime
  const isWanted = cached.spec.ended !== true && loss === undefined && agent?.finish === undefined
  if (!launch.silent && launch.vm.cutOff && heard !== undefined && isWanted && new Date(heard) < clockAt(world.tick)) {
    const next = withLaunch(world, number, { silent: true, dirty: true })
    steps.push({ name: `VM ${number} was not heard for too long`, next })
  }
  return steps
}

function sightOf({ power, preempted }: VmState): Sight {
  if (power === "up") return "running"
  if (power === "ending") return "terminating"
  return preempted ? "preempted" : "absent"
}

function beginLaunch(world: World, number: number): World {
  const launch = launchAt(world, number)
  if (launch.work !== undefined || !launch.dirty || launch.awaits.length > 0) return world
  const idle = withLaunch(world, number, { dirty: false })
  const object = LAUNCH_VERSIONS.get(launch.cached)
  if (object === undefined) return withLaunch(idle, number, FORGOTTEN)
  const decision = decisionOnLaunch(launch, object, world)
  return afterLaunchCall(idle, number, { decision, step: -1, on: launch.cached, half: 0 })
}

const LAUNCH_MEMO = new Map<string, number>()

function decisionOnLaunch(launch: LaunchState, object: StoredLaunch, { tick, job }: World): number {
  const { cached, sight, silent, inherited, unanswered, failingSince, askedAt } = launch
  const seen = readJobState(JOB_VERSIONS.get(job.cached === 0 ? job.object : job.cached), object)
  const key = [cached, tick, sight, silent, inherited || unanswered, failingSince, askedAt, seen].join(",")
  const known = LAUNCH_MEMO.get(key)
  if (known !== undefined) return known
  const observed: LaunchObservation = {
    instance: viewOf(sight, object),
    heartbeatTimedOut: silent,
    job: seen,
    // The statement controller counts in any case. A late count equals a late reconcile of the Launch.
    isCounted: true,
    // No VM of the model writes on its console. A look at it changes nothing then.
    consoleRead: "ended",
    inFlight: inherited || unanswered,
    ...(askedAt >= 0 && { terminateRequestedSecondsAgo: (tick - askedAt) * TICK_SECONDS }),
    ...(failingSince >= 0 && {
      launchError: { class: "Unavailable", message: "not now", since: clockAt(failingSince) } as const,
    }),
  }
  const decision = LAUNCH_DECISIONS.of(decideLaunch(object, observed, clockAt(tick), LAUNCH_DEFAULTS))
  LAUNCH_MEMO.set(key, decision)
  return decision
}

function viewOf(sight: Sight, { metadata, spec, status }: StoredLaunch): InstanceView {
  if (sight === "unknown") return { is: "unknown" }
  if (sight === "absent") return { is: "notFound" }
  const { id = "", createTime = "" } = status?.vm ?? {}
  const vm = { id, createTime, launch: metadata.name, installation: spec.installation, region: spec.offer.region }
  if (sight === "preempted") return { is: "found", vm: { ...vm, state: "terminated", preempted: true } }
  return { is: "found", vm: { ...vm, state: sight } }
}

type LaunchCall = LaunchAction | { do: "writeStatus"; status: OwnStatus }

function callsOf(decision: number): LaunchCall[] {
  const { status, actions } = LAUNCH_DECISIONS.get(decision) as LaunchDecision
  return status === undefined ? actions : [{ do: "writeStatus", status }, ...actions]
}

function afterLaunchCall(world: World, number: number, work: Work): World {
  const step = work.step + 1
  if (step < callsOf(work.decision).length) return withLaunch(world, number, { work: { ...work, step, half: 0 } })
  const { requeueAfter } = LAUNCH_DECISIONS.get(work.decision) as LaunchDecision
  return withLaunch(world, number, {
    work: undefined,
    ...requeued(launchAt(world, number), requeueAfter, world.tick),
  })
}

function launchCalls(world: World, number: number, work: Work): Step<World>[] {
  const call = callsOf(work.decision)[work.step] as LaunchCall
  if (call.do === "createInstance" && work.half === 0) return cloudLaunch(world, number, work)
  // The model's launches are complete as soon as there is a VM.
  if (call.do === "recordInstance") {
    const status = STATUSES.of(createdStatus(vmOf(world, number)))
    return launchWrites(world, number, { call, work: { ...work, half: status } })
  }
  if (call.do === "terminate") return cloudTerminate(world, number, work)
  return launchWrites(world, number, { call, work })
}

function launchWrites(world: World, number: number, { call, work }: { call: LaunchCall; work: Work }): Step<World>[] {
  const name = `launch controller: ${call.do === "createInstance" ? "writes the cloud's answer for" : call.do} ${number}`
  const written = writeForLaunch(world, number, { call, work })
  const steps = [{ name: `${name}: ${written.outcome}`, next: launchAfter(written, number, work) }]
  if (world.faults > 0) {
    const lost = withLaunch(written.world, number, { work: undefined, dirty: true })
    steps.push({ name: `${name}: the answer is lost`, next: { ...lost, faults: world.faults - 1 } })
  }
  return steps
}

const ANSWERED: Partial<LaunchState> = { inherited: false, unanswered: false, failingSince: -1 }
const FORGOTTEN: Partial<LaunchState> = { ...ANSWERED, askedAt: -1 }

function launchAfter({ world, outcome, on, awaits }: Written, number: number, work: Work): World {
  if (outcome === "again") return withLaunch(world, number, { work: undefined, dirty: true })
  const written = LAUNCH_VERSIONS.get(on ?? 0)
  // A written status ends the call to the cloud, unless it records a missing answer.
  const isAnswered = written?.status?.unanswered === undefined
  const settled = { ...(isAnswered && ANSWERED), ...(written && isOver(written) && FORGOTTEN) }
  const next = withLaunch(world, number, {
    ...(isBehind(world, awaits) && awaiting(launchAt(world, number), awaits)),
    ...(on !== undefined && settled),
  })
  return afterLaunchCall(next, number, { ...work, on: on ?? work.on })
}

/** Returns the API server's result of a call of the launch controller. */
export function writeForLaunch(
  world: World,
  number: number,
  { call, work }: { call: LaunchCall; work: Work },
): Written {
  const { object } = launchAt(world, number)
  const launch = LAUNCH_VERSIONS.get(object)
  const again: Written = { world, outcome: "again" }
  if (launch === undefined || object !== work.on) return again
  switch (call.do) {
    case "writeStatus":
      return putLaunch(world, number, withStatus(launch, call.status))
    case "createInstance":
    case "recordInstance":
      return putLaunch(world, number, withStatus(launch, STATUSES.get(work.half) as OwnStatus))
    case "delete":
      return launch.metadata.finalizers?.length
        ? { ...putLaunch(world, number, deleted(launch, world.tick)), awaits: "launches" }
        : { world: withLaunch(world, number, { object: 0 }), outcome: "done" }
    case "release":
      return launch.metadata.deletionTimestamp === undefined
        ? putLaunch(world, number, released(launch))
        : { world: withLaunch(world, number, { object: 0 }), outcome: "done" }
    default:
      throw new Error(`a Launch that Berth made needs no ${call.do}`)
  }
}

/**
 * Returns a Launch whose cost is counted, without its finalizer. It has no label for the deletion of many records. So each
 * is deleted by itself, which has the same effect.
 */
function released(launch: StoredLaunch): StoredLaunch {
  const months = monthlyCosts(launch).map(({ month }) => month)
  const annotations = { ...launch.metadata.annotations, [ANNOTATIONS.counted]: months.join(",") }
  const { finalizers: _, ...metadata } = launch.metadata
  return { ...launch, metadata: { ...metadata, ...(months.length > 0 && { annotations }) } }
}

function withStatus(launch: StoredLaunch, status: OwnStatus): StoredLaunch {
  const observedGeneration = launch.metadata.generation
  const { unanswered: _, ...kept } = launch.status ?? {}
  return { ...launch, status: { ...kept, ...status, observedGeneration } }
}

/** Writes a version of a Launch for any writer. */
export function putLaunch(world: World, number: number, launch: StoredLaunch): Written {
  const on = LAUNCH_VERSIONS.of(launch)
  return { world: withLaunch(world, number, { object: on }), outcome: "done", on, awaits: "launches" }
}

// Answers of clouds.

function cloudLaunch(world: World, number: number, work: Work): Step<World>[] {
  const { vm, unanswered, inherited, failingSince, object } = launchAt(world, number)
  const mayBeThere = unanswered || inherited
  const name = `the cloud is asked for VM ${number}`
  if (mayBeThere && object !== work.on) {
    return [{ name: `${name}: no, the cache is late`, next: withLaunch(world, number, { work: undefined }) }]
  }
  const asked = withLaunch(world, number, { unanswered: true })
  const answered = (from: World, status: OwnStatus) =>
    withLaunch(from, number, { work: { ...work, half: STATUSES.of(status) } })
  const since = { failingSince: failingSince < 0 ? world.tick : failingSince }
  const failed = (from: World, change: Partial<LaunchState> = {}) => ({
    ...withLaunch(from, number, { work: undefined, dirty: true, ...since, ...change }),
    faults: world.faults - 1,
  })
  const made = vm.power === "none" ? withVm(asked, number, { power: "up", createdAt: world.tick }) : asked
  const steps = [{ name: `${name}: it has it`, next: answered(made, createdStatus(vmOf(world, number))) }]
  if (vm.power === "gone") {
    // Some clouds keep no record of a deleted VM.
    const again = withVm(asked, number, { ...NO_VM, power: "up", createdAt: world.tick, lives: vm.lives + 1 })
    const status = createdStatus({ ...vmOf(world, number), createTime: clockAt(world.tick).toISOString() })
    steps.push({ name: `${name}: it has forgotten it, and makes another`, next: answered(again, status) })
  }
  if (world.faults === 0) return steps
  steps.push({ name: `${name}: it does, and the answer is lost`, next: failed(made) })
  if (vm.power !== "none") return steps
  steps.push({ name: `${name}: it doesn't, and the answer is lost`, next: failed(asked) })
  steps.push({ name: `${name}: not now`, next: failed(asked, { unanswered }) })
  for (const reason of ["Capacity", "Quota"] as const) {
    const next = answered(asked, refusedStatus(reason, world.tick))
    steps.push({ name: `${name}: no ${reason}`, next: { ...next, faults: world.faults - 1 } })
  }
  const denied = mayBeThere ? failed(asked) : answered(asked, refusedStatus("Credentials", world.tick))
  steps.push({ name: `${name}: Berth may not ask`, next: { ...denied, faults: world.faults - 1 } })
  return steps
}

function refusedStatus(reason: "Capacity" | "Quota" | "Credentials", tick: number): OwnStatus {
  const refusal = { class: reason, code: "Sim", message: "no", time: clockAt(tick).toISOString() }
  return { phase: "refused", message: `${reason}: no`, refusal, costUsd: 0 }
}

function vmOf(world: World, number: number) {
  const { object, vm } = launchAt(world, number)
  const createdAt = vm.power === "none" ? world.tick : vm.createdAt
  const createTime = clockAt(createdAt).toISOString()
  const launch = LAUNCH_VERSIONS.get(object)?.metadata.name ?? ""
  return {
    id: `vm-${number}`,
    launch,
    createTime,
    installation: INSTALLATION.id,
    region: "here",
    state: "running",
  } as const
}

/** Starts the termination of a VM: its container may run until the end of it. */
export function ending(world: World, number: number): World {
  return launchAt(world, number).vm.power === "up" ? withVm(world, number, { power: "ending" }) : world
}

function cloudTerminate(world: World, number: number, work: Work): Step<World>[] {
  const name = `the cloud is asked to end VM ${number}`
  const asked = withLaunch(ending(world, number), number, { askedAt: world.tick })
  const steps = [{ name, next: afterLaunchCall(asked, number, work) }]
  if (world.faults === 0) return steps
  const failed = (from: World) => ({
    ...withLaunch(from, number, { work: undefined, dirty: true }),
    faults: world.faults - 1,
  })
  steps.push({ name: `${name}: not now`, next: failed(world) })
  steps.push({ name: `${name}: the answer is lost`, next: failed(ending(world, number)) })
  return steps
}

// Calls of a leader that has died.

/** Returns the call of a dead operator that may still arrive; undefined if it died between two calls. */
export function callUnderWay(world: World, of: "job" | number): Work | undefined {
  const begun = of === "job" ? beginJob(world) : beginLaunch(world, of)
  const { work } = of === "job" ? begun.job : launchAt(begun, of)
  if (work === undefined) return undefined
  if (of !== "job") return work
  const action = (JOB_DECISIONS.get(work.decision) as JobDecision).actions[work.step]
  return action?.do === "createLaunch" && work.half === 0 ? undefined : work
}

/** Lets a call of a dead leader arrive. Its answer is lost. */
export function comesThrough(world: World, of: "job" | number, work: Work): World {
  if (of === "job") {
    const action = (JOB_DECISIONS.get(work.decision) as JobDecision).actions[work.step] as JobAction
    return writeForJob(world, action, work).world
  }
  const call = callsOf(work.decision)[work.step] as LaunchCall
  if (call.do === "terminate") return ending(world, of)
  if (call.do === "createInstance" && work.half === 0) {
    return launchAt(world, of).vm.power === "none"
      ? withVm(world, of, { power: "up", createdAt: world.tick, late: true })
      : world
  }
  const { world: written, on } = writeForLaunch(world, of, { call, work })
  const launch = LAUNCH_VERSIONS.get(on ?? 0)
  return launch !== undefined && isOver(launch) ? withVm(written, of, { late: true }) : written
}
