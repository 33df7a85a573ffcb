import type { StoredJob } from "../../apis/job.ts"
import { isOver, type StoredLaunch } from "../../apis/launch.ts"
import { keyOf } from "../../apis/meta.ts"
import type { Change, IndexFunction } from "../../kube/store.ts"
import { Controller, type ReconcileContext, type ReconcileResult, watches } from "../../runtime/controller.ts"
import { askForVm } from "./actions/ask-for-vm.ts"
import { deleteRecord } from "./actions/delete-record.ts"
import { addFinalizer, dropFinalizer } from "./actions/finalizer.ts"
import { terminate } from "./actions/terminate.ts"
import { writeStatus } from "./actions/write-status.ts"
import { CloudCalls } from "./calls.ts"
import { decide, type LaunchAction, type OwnStatus } from "./decide.ts"
import type { LaunchControllerOptions } from "./dependencies.ts"
import { gather, isWokenBy } from "./gather.ts"
import { VmObserver } from "./observer.ts"
import { LAUNCH_DEFAULTS, type LaunchSettings } from "./settings.ts"
import { SILENCE_DEFAULTS } from "./silence.ts"
import { Sweep } from "./sweep.ts"
import { silenceOf } from "./unanswered.ts"

export type { LaunchControllerOptions } from "./dependencies.ts"

/** Indexes that the reflector of Launches must have. */
export const launchIndexes: Record<"jobUid" | "namespace", IndexFunction<StoredLaunch>> = {
  jobUid: (launch) => [launch.spec.job.uid],
  namespace: (launch) => [launch.spec.job.namespace],
}

/** What a manager runs to look after Launches. */
export interface LaunchControl {
  controller: Controller
  /** For `ManagerOptions.leaderTasks`: the observer's and the sweep's loops. */
  leaderTasks: ((signal: AbortSignal) => Promise<void>)[]
  observer: VmObserver
  sweep: Sweep
}

/** Makes the controller that brings Launches to VMs and VMs to their end. */
export function createLaunchController(options: LaunchControllerOptions): LaunchControl {
  const { client, clouds, launches, installation, clock, logger, systemNamespace, fence } = options
  const observer = new VmObserver({
    clouds,
    launches: launches.store,
    installation,
    clock,
    logger,
    intervalSeconds: options.observeSeconds ?? 10,
    silence: { ...SILENCE_DEFAULTS, ...options.silence },
  })
  const sweep = new Sweep({
    client,
    clouds,
    launches: launches.store,
    systemNamespace,
    installation,
    fence,
    clock,
    logger,
    ...options.sweep,
  })
  const calls = new CloudCalls(clock)
  const settings = { ...LAUNCH_DEFAULTS, ...options.settings }
  const reconciler = new LaunchReconciler(options, { calls, observer, settings })
  const controller = new Controller({
    name: "launch",
    reconcile: (key, context) => reconciler.reconcile(key, context),
    sources: [
      watches(launches),
      watches(options.jobs, (change) => launchesOf(change, options)),
      observer.source,
      calls.term(client, systemNamespace),
    ],
    logger,
    clock,
    workers: options.workers ?? 16,
    // All Launches share one namespace: turns go by the jobs' projects.
    groupOf: (key) => launches.store.getByKey(key)?.spec.job.namespace ?? "",
    isUrgent: (key) => hasVmOrShallEnd(launches.store.getByKey(key)),
  })
  const leaderTasks = [(signal: AbortSignal) => observer.run(signal), (signal: AbortSignal) => sweep.run(signal)]
  return { controller, leaderTasks, observer, sweep }
}

/** No VM that is paid for waits to be ended until all that are wanted have been asked for. */
function hasVmOrShallEnd(launch: StoredLaunch | undefined): boolean {
  if (launch === undefined) return false
  const { metadata, spec, status } = launch
  return status?.vm !== undefined || spec.ended === true || metadata.deletionTimestamp !== undefined
}

/** The Launches that a change of their Job concerns. */
function launchesOf({ old, current }: Change<StoredJob>, options: LaunchControllerOptions): string[] {
  const uid = (current ?? old)?.metadata.uid
  const launches = uid === undefined ? [] : options.launches.store.byIndex("jobUid", uid)
  return launches.filter((launch) => isWokenBy(launch, old, current)).map(keyOf)
}

interface Parts {
  calls: CloudCalls
  observer: VmObserver
  settings: LaunchSettings
}

class LaunchReconciler {
  readonly #options: LaunchControllerOptions
  readonly #parts: Parts

  constructor(options: LaunchControllerOptions, parts: Parts) {
    this.#options = options
    this.#parts = parts
  }

  async reconcile(key: string, context: ReconcileContext): Promise<ReconcileResult> {
    const { calls, observer, settings } = this.#parts
    const launch = this.#options.launches.store.getByKey(key)
    if (launch === undefined) {
      calls.forget(key.slice(key.indexOf("/") + 1))
      return {}
    }
    const observed = await gather(launch, this.#options, calls, observer)
    const decision = decide(launch, observed, this.#options.clock.now(), settings)
    let current = launch
    if (decision.status !== undefined) current = await this.#write(launch, decision.status, context)
    for (const note of decision.events) this.#options.recorder.record(launch, note)
    for (const action of decision.actions) await this.#act(current, action, context)
    return decision.requeueAfter === undefined ? {} : { requeueAfter: decision.requeueAfter }
  }

  async #act(launch: StoredLaunch, action: LaunchAction, context: ReconcileContext): Promise<void> {
    const cloudContext = { options: this.#options, ...this.#parts, signal: context.signal }
    switch (action.do) {
      case "addFinalizer":
        return addFinalizer(launch, this.#options, context)
      case "launch": {
        const status = await this.#ask(launch, cloudContext)
        if (status === undefined) return
        await this.#write(launch, status, context)
        if (status.refusal !== undefined) {
          this.#options.recorder.record(launch, { type: "Warning", reason: "Refused", message: status.refusal.message })
        }
        return
      }
      case "terminate": {
        const status = await terminate(launch, action.vmId, cloudContext)
        if (status !== undefined) await this.#write(launch, status, context)
        return
      }
      case "dropFinalizer":
        return dropFinalizer(launch, this.#options, context)
      case "delete":
        return deleteRecord(launch, this.#options, context)
    }
  }

  /** Why there is no answer is kept for the next look at the Launch, which tells it. */
  async #ask(launch: StoredLaunch, context: Parameters<typeof askForVm>[1]): Promise<OwnStatus | undefined> {
    try {
      return await askForVm(launch, context)
    } catch (error) {
      const silence = context.signal.aborted ? undefined : silenceOf(error)
      if (silence !== undefined) this.#parts.calls.failed(launch.metadata.name, silence)
      throw error
    }
  }

  /** A status that is written settles what the cloud was asked, but for one that tells that there is no answer. */
  async #write(launch: StoredLaunch, status: OwnStatus, context: ReconcileContext): Promise<StoredLaunch> {
    // A leader that was replaced unnoticed must not conclude "never asked for" from what it alone knows.
    this.#options.fence()
    const written = await writeStatus(launch, status, this.#options, context)
    const { calls } = this.#parts
    const { name } = launch.metadata
    if (isOver(written)) calls.forget(name)
    else if (status.unanswered !== undefined) calls.told(name)
    else calls.settled(name)
    return written
  }
}
