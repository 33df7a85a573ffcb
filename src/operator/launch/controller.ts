import type { StoredJob } from "../../core/apis/job.ts"
import { isOver, LAUNCH_FINALIZER, type StoredLaunch, withHeartbeat } from "../../core/apis/launch.ts"
import { keyOf } from "../../core/apis/meta.ts"
import type { StoredStatement } from "../../core/apis/statement.ts"
import type { Change } from "../../core/kube/store.ts"
import { Controller, type ReconcileContext, type ReconcileResult, watchSource } from "../../core/runtime/controller.ts"
import { ElapsedTimes } from "../elapsed.ts"
import { addFinalizer, remove } from "../writes.ts"
import { launchWriter, readConsole, release, takeOver, terminate, writeOwnStatus } from "./actions.ts"
import { CloudCalls, createInstance, findInstance, recordInstance } from "./create.ts"
import { decide, type LaunchAction, type OwnStatus } from "./decide.ts"
import type { LaunchControllerDependencies } from "./dependencies.ts"
import { GarbageCollector } from "./garbage-collection.ts"
import { type GatherParts, gather, isWokenBy, keysWokenBy } from "./gather.ts"
import { VmObserver } from "./observe.ts"
import { deleteRecords } from "./records.ts"
import { HEARTBEAT_DEFAULTS, LAUNCH_DEFAULTS, type LaunchSettings } from "./settings.ts"

/** Everything that a manager runs for Launches. */
export interface LaunchControl {
  controller: Controller
  /** Loops of the observer and the garbage collector, for `ManagerOptions.leaderTasks`. */
  leaderTasks: ((signal: AbortSignal) => Promise<void>)[]
  garbageCollector: GarbageCollector
}

/** Creates the controller that creates, observes and terminates the VMs of Launches. */
export function createLaunchController(options: LaunchControllerDependencies): LaunchControl {
  const { client, clouds, launches, installation, clock, logger, systemNamespace, fence } = options
  const observer = new VmObserver({
    clouds,
    launches: launches.store,
    heartbeatTimes: options.heartbeatTimes,
    installation,
    clock,
    logger,
    intervalSeconds: options.observeSeconds ?? 10,
    heartbeats: { ...HEARTBEAT_DEFAULTS, ...options.heartbeats },
  })
  const garbageCollector = new GarbageCollector({
    client,
    clouds,
    launches: launches.store,
    systemNamespace,
    installation,
    fence,
    clock,
    logger,
    ...options.garbageCollection,
  })
  const calls = new CloudCalls(clock)
  const settings = { ...LAUNCH_DEFAULTS, ...options.settings }
  const reconciler = new LaunchReconciler(options, { calls, observer, ages: new ElapsedTimes(clock), settings })
  const controller = new Controller({
    name: "launch",
    reconcile: (key, context) => reconciler.reconcile(key, context),
    sources: [
      watchSource(launches, keysWokenBy),
      watchSource(options.jobs, (change) => launchesOf(change, options)),
      watchSource(options.statements, newlyCounted),
      observer.source,
      calls.term(client, systemNamespace),
    ],
    logger,
    clock,
    workers: options.workers ?? 16,
    // All Launches share one namespace: workers are shared fairly between the namespaces of their Jobs.
    groupOf: (key) => launches.store.getByKey(key)?.spec.job.namespace ?? "",
    isUrgent: (key) => hasVmOrIsEnding(launches.store.getByKey(key)),
  })
  const leaderTasks = [
    (signal: AbortSignal) => observer.run(signal),
    (signal: AbortSignal) => garbageCollector.run(signal),
    (signal: AbortSignal) => garbageCollector.runAfterTakeover(signal),
    (signal: AbortSignal) => deleteRecords(options, settings, signal),
  ]
  return { controller, leaderTasks, garbageCollector }
}

/** Returns true for Launches that overtake new ones. So a burst of creations does not delay the end of billed VMs. */
function hasVmOrIsEnding(launch: StoredLaunch | undefined): boolean {
  if (launch === undefined) return false
  const { metadata, spec, status } = launch
  return status?.vm !== undefined || spec.ended === true || metadata.deletionTimestamp !== undefined
}

/** Returns the keys of the Launches that a Statement counts since this change. */
function newlyCounted({ old, current }: Change<StoredStatement>): string[] {
  const known = new Set(old?.status?.counted)
  const names = current?.status?.counted?.filter((name) => !known.has(name)) ?? []
  return names.map((name) => `${current?.metadata.namespace}/${name}`)
}

/** Returns the keys of the Launches that a change of their Job affects. */
function launchesOf({ old, current }: Change<StoredJob>, options: LaunchControllerDependencies): string[] {
  const uid = (current ?? old)?.metadata.uid
  const launches = uid === undefined ? [] : options.launches.store.byIndex("jobUid", uid)
  return launches.filter((launch) => isWokenBy(launch, old, current)).map(keyOf)
}

interface Parts extends GatherParts {
  settings: LaunchSettings
}

class LaunchReconciler {
  readonly #options: LaunchControllerDependencies
  readonly #parts: Parts

  constructor(options: LaunchControllerDependencies, parts: Parts) {
    this.#options = options
    this.#parts = parts
  }

  async reconcile(key: string, context: ReconcileContext): Promise<ReconcileResult> {
    const { calls, ages, settings } = this.#parts
    const cached = this.#options.launches.store.getByKey(key)
    const launch = cached && withHeartbeat(cached, this.#options.heartbeatTimes)
    const name = key.slice(key.indexOf("/") + 1)
    if (launch === undefined || isOver(launch)) ages.forget(name)
    if (launch === undefined) {
      calls.forget(name)
      return {}
    }
    const observed = await gather(launch, this.#options, this.#parts)
    const decision = decide(launch, observed, this.#options.clock.now(), settings)
    let current = launch
    if (decision.status !== undefined) current = await this.#writeStatus(launch, decision.status, context)
    for (const note of decision.events) this.#options.recorder.record(launch, note)
    for (const action of decision.actions) await this.#act(current, action, context)
    return decision.requeueAfter === undefined ? {} : { requeueAfter: decision.requeueAfter }
  }

  async #act(launch: StoredLaunch, action: LaunchAction, context: ReconcileContext): Promise<void> {
    const options = this.#options
    const cloudContext = { options, ...this.#parts, signal: context.signal }
    switch (action.do) {
      case "addFinalizer":
        return addFinalizer(launch, LAUNCH_FINALIZER, launchWriter(options), context)
      case "createInstance": {
        const status = await createInstance(launch, cloudContext)
        if (status === undefined) return
        await this.#writeStatus(launch, status, context)
        if (status.refusal === undefined) return
        options.recorder.record(launch, { type: "Warning", reason: "Refused", message: status.refusal.message })
        return
      }
      case "takeOver":
        return this.#takeOver(launch, context)
      case "recordInstance": {
        await this.#writeStatus(launch, await recordInstance(launch, action.vm, cloudContext), context)
        return
      }
      case "findInstance": {
        const status = await findInstance(launch, cloudContext)
        if (status !== undefined) await this.#writeStatus(launch, status, context)
        return
      }
      case "terminate": {
        const status = await terminate(launch, action.vmId, cloudContext)
        if (status !== undefined) await this.#writeStatus(launch, status, context)
        return
      }
      case "readConsole": {
        const status = await readConsole(launch, action, cloudContext)
        if (status !== undefined) await this.#writeStatus(launch, status, context)
        return
      }
      case "release":
        return release(launch, action, options, context)
      case "delete":
        return remove(launch, launchWriter(options), context)
    }
  }

  /** Takes over the VM of the predecessor, and writes what became of that. */
  async #takeOver(launch: StoredLaunch, context: ReconcileContext): Promise<void> {
    const { calls } = this.#parts
    const step = await takeOver(launch, { options: this.#options, calls }, context)
    if (step.is === "possible") return
    await this.#writeStatus(launch, step.own, context)
    if (step.is !== "lost") return
    const message = step.own.message ?? ""
    this.#options.recorder.record(launch, { type: "Normal", reason: "TakeoverLost", message })
  }

  /** Writes the status. It settles the outcome of earlier create calls, unless it reports a launch error. */
  async #writeStatus(launch: StoredLaunch, status: OwnStatus, context: ReconcileContext): Promise<StoredLaunch> {
    // A leader that lost its lease unnoticed must not conclude "no VM was requested" from its own calls alone.
    this.#options.fence()
    const written = await writeOwnStatus(launch, status, this.#options, context)
    const { calls } = this.#parts
    const { name } = launch.metadata
    if (isOver(written)) calls.forget(name)
    else if (status.unanswered !== undefined) calls.reported(name)
    else calls.settled(name)
    return written
  }
}
