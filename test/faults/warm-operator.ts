import { isOver, type StoredLaunch } from "../../src/core/apis/launch.ts"
import { ANNOTATIONS } from "../../src/core/apis/meta.ts"
import { monthlyCosts } from "../../src/market/placement/statements.ts"
import { createdStatus } from "../../src/operator/launch/create.ts"
import {
  abandonedStatus,
  decide,
  type InstanceView,
  type LaunchAction,
  type LaunchDecision,
  type LaunchObservation,
  type OwnStatus,
} from "../../src/operator/launch/decide.ts"
import { needsPredecessor } from "../../src/operator/launch/gather.ts"
import { isFollowed } from "../../src/operator/launch/observe.ts"
import { LAUNCH_DEFAULTS } from "../../src/operator/launch/settings.ts"
import { takeoverOf } from "../../src/operator/launch/takeover.ts"
import { INSTALLATION } from "../harness/builders.ts"
import type { Step } from "./model-explorer.ts"
import { Interned, LAUNCH_VERSIONS } from "./model-state.ts"
import {
  clockAt,
  dueAfter,
  idOf,
  type LaunchState,
  launchAt,
  numberOf,
  objectAt,
  put,
  type Sight,
  TICK_SECONDS,
  tagOf,
  type VmState,
  vmAt,
  type Work,
  type World,
  withLaunch,
  withVm,
} from "./warm-state.ts"

/** Rules of the launch controller that a test may break, to prove that the model notices it. */
export interface OperatorRules {
  abandonedStatus: typeof abandonedStatus
  decide: typeof decide
  takeoverOf: typeof takeoverOf
  /** True if a predecessor is written in the version that was read only. */
  bindsInVersion: boolean
}

export const OPERATOR_RULES: OperatorRules = { abandonedStatus, decide, takeoverOf, bindsInVersion: true }

const STATUSES: Interned<OwnStatus> = new Interned()
/** Number of an action that needs no further status. */
const NONE = 0

type Call = LaunchAction | { do: "writeStatus"; status: OwnStatus }

interface Written {
  world: World
  outcome: "done" | "again"
  on?: number
}

const ANSWERED: Partial<LaunchState> = { inherited: false, unanswered: false, failingSince: -1 }
const FORGOTTEN: Partial<LaunchState> = { ...ANSWERED, askedAt: -1 }

/** The launch controller, with its observer and its caches. It makes the real decisions. */
export class WarmOperator {
  readonly #rules: OperatorRules
  readonly #decisions: Interned<LaunchDecision> = new Interned()
  readonly #memo = new Map<string, number>()

  constructor(rules: OperatorRules) {
    this.#rules = rules
  }

  *steps(world: World): Iterable<Step<World>> {
    if (world.launches.some(({ cached, object }) => cached !== object)) {
      yield { name: "the cache catches up", next: showLaunches(world) }
    }
    for (let number = 1; number <= world.launches.length; number++) {
      yield* lookSteps(world, number)
      const begun = this.#begin(world, number)
      const { work } = launchAt(begun, number)
      if (work !== undefined) yield* this.#calls(begun, number, work)
    }
  }

  /** Returns the world after all decisions without actions: these could also be taken later. */
  idled(world: World): World {
    let next = world
    for (let number = 1; number <= world.launches.length; number++) {
      const begun = this.#begin(next, number)
      if (launchAt(begun, number).work === undefined) next = begun
    }
    return next
  }

  /** Returns the request of a dead operator that may still arrive; undefined if it died between two. */
  requestUnderWay(world: World, number: number): Work | undefined {
    const { work } = launchAt(this.#begin(world, number), number)
    if (work === undefined) return undefined
    const isRead = this.#callOf(work).do === "takeOver" && work.bind === undefined && work.status === NONE
    return isRead ? undefined : work
  }

  /** Lets a request of a dead leader arrive. Its answer is lost. */
  arrives(world: World, number: number, work: Work): World {
    const call = this.#callOf(work)
    const { vm } = launchAt(world, number)
    if (call.do === "terminate") return ending(world, vm)
    if (call.do === "createInstance" && work.status === NONE) {
      if (vmAt(world, vm).power !== "none" || world.rejected) return world
      return withVm(world, vm, { power: "up", createdAt: world.tick, late: true })
    }
    if (work.bind !== undefined) {
      const bound = this.#bind(world, number, work)
      const isLate = bound.outcome === "done" && isOverSoon(world, number)
      return isLate ? withVm(bound.world, vm, { late: true }) : bound.world
    }
    const { world: written, on } = this.#write(world, number, { call, work })
    const object = LAUNCH_VERSIONS.get(on ?? 0)
    return object !== undefined && isOver(object) ? withVm(written, vm, { late: true }) : written
  }

  #callOf({ decision, step }: Work): Call {
    return this.#callsOf(decision)[step] as Call
  }

  #callsOf(decision: number): Call[] {
    const { status, actions } = this.#decisions.get(decision) as LaunchDecision
    return status === undefined ? actions : [{ do: "writeStatus", status }, ...actions]
  }

  #begin(world: World, number: number): World {
    const launch = launchAt(world, number)
    if (launch.work !== undefined || !launch.dirty || launch.awaits) return world
    const idle = withLaunch(world, number, { dirty: false })
    const object = LAUNCH_VERSIONS.get(launch.cached)
    if (object === undefined) return withLaunch(idle, number, FORGOTTEN)
    const decision = this.#decisionOn(world, launch, object)
    return this.#after(idle, number, { decision, step: -1, on: launch.cached, status: NONE, bind: undefined })
  }

  #decisionOn(world: World, launch: LaunchState, object: StoredLaunch): number {
    const { tick } = world
    const { cached, vm, sight, silent, failingSince, askedAt } = launch
    const inFlight = launch.inherited || launch.unanswered
    const job = jobStateOf(world, launch)
    const isCounted = launch.counted !== 0 || monthlyCosts(object).length === 0
    const isHandoverOpen = isOpen(world, object)
    const { preempted, createdAt, goneAt } = vmAt(world, vm)
    const facts = [silent, inFlight, isCounted, isHandoverOpen, preempted].map(Number).join("")
    const key = [cached, tick, sight, facts, failingSince, askedAt, job, createdAt, goneAt].join(",")
    const known = this.#memo.get(key)
    if (known !== undefined) return known
    const observed: LaunchObservation = {
      instance: viewOf(sight, { id: idOf(vm), tag: tagOf(world, vmAt(world, vm)), vm: vmAt(world, vm) }),
      heartbeatTimedOut: silent,
      ...{ job, isCounted, isHandoverOpen, inFlight, consoleRead: "ended" },
      ...(askedAt >= 0 && { terminateRequestedSecondsAgo: (tick - askedAt) * TICK_SECONDS }),
      ...(failingSince >= 0 && {
        launchError: { class: "Credentials", message: "no", since: clockAt(failingSince) } as const,
      }),
    }
    const decision = this.#decisions.of(this.#rules.decide(object, observed, clockAt(tick), LAUNCH_DEFAULTS))
    this.#memo.set(key, decision)
    return decision
  }

  #after(world: World, number: number, work: Work): World {
    const step = work.step + 1
    if (step < this.#callsOf(work.decision).length) {
      return withLaunch(world, number, { work: { ...work, step, status: NONE, bind: undefined } })
    }
    const { requeueAfter } = this.#decisions.get(work.decision) as LaunchDecision
    return withLaunch(world, number, { work: undefined, due: dueOf(world, number, requeueAfter) })
  }

  #calls(world: World, number: number, work: Work): Step<World>[] {
    const call = this.#callOf(work)
    if (call.do === "createInstance" && work.status === NONE) return cloudLaunch(world, number, work)
    if (call.do === "terminate") return this.#terminate(world, number, work)
    if (call.do === "findInstance") {
      const name = `the cloud is asked for a list with the VM of Launch ${number}`
      const found = { name, next: this.#after(world, number, work) }
      return [world.rejected ? this.#rejected(world, number, { work, name }) : found]
    }
    if (call.do === "takeOver" && work.bind !== undefined) return this.#binds(world, number, work)
    if (call.do === "takeOver" && work.status === NONE) return [this.#reads(world, number, work)]
    const known =
      call.do === "recordInstance" ? { ...work, status: STATUSES.of(createdStatus(vmOf(world, number))) } : work
    return this.#writes(world, number, { call, work: known })
  }

  /** The takeover reads the predecessor live, and decides. */
  #reads(world: World, number: number, work: Work): Step<World> {
    const { takes } = launchAt(world, number)
    const on = launchAt(world, takes).object
    const launch = LAUNCH_VERSIONS.get(work.on) as StoredLaunch
    const step = this.#rules.takeoverOf(launch, LAUNCH_VERSIONS.get(on), clockAt(world.tick))
    const next: Work =
      step.is === "possible"
        ? { ...work, bind: { status: STATUSES.of(step.predecessor), on } }
        : { ...work, status: STATUSES.of(step.own) }
    return {
      name: `Launch ${number} looks at Launch ${takes}: its takeover is ${step.is}`,
      next: withLaunch(world, number, { work: next }),
    }
  }

  #binds(world: World, number: number, work: Work): Step<World>[] {
    const marked = withLaunch(world, number, { unanswered: true })
    const { outcome, world: bound, on } = this.#bind(marked, number, work)
    const lost = withLaunch(bound, number, { work: undefined, dirty: true })
    const next = outcome === "again" ? lost : withLaunch(bound, number, { work: this.#afterBind(world, work, on) })
    const name = `Launch ${number} writes Launch ${launchAt(world, number).takes}, which hands over its VM: ${outcome}`
    const steps = [{ name, next }]
    if (world.faults > 0)
      steps.push({ name: `${name}, the answer is lost`, next: { ...lost, faults: world.faults - 1 } })
    return steps
  }

  #afterBind(world: World, work: Work, on = 0): Work {
    const launch = LAUNCH_VERSIONS.get(work.on) as StoredLaunch
    const step = this.#rules.takeoverOf(launch, LAUNCH_VERSIONS.get(on), clockAt(world.tick))
    if (step.is === "possible") throw new Error("a VM that was taken over can be taken over again")
    return { ...work, bind: undefined, status: STATUSES.of(step.own) }
  }

  #bind(world: World, number: number, { bind }: Work): Written {
    const { takes } = launchAt(world, number)
    const predecessor = objectAt(world, takes)
    const isSame = launchAt(world, takes).object === bind?.on
    if (predecessor === undefined || bind === undefined) return { world, outcome: "again" }
    if (this.#rules.bindsInVersion && !isSame) return { world, outcome: "again" }
    const written = put(world, takes, withStatus(predecessor, STATUSES.get(bind.status) as OwnStatus))
    return { ...written, outcome: "done" }
  }

  #writes(world: World, number: number, { call, work }: { call: Call; work: Work }): Step<World>[] {
    const what = call.do === "takeOver" ? "writes what became of its takeover" : call.do
    const name = `launch controller: Launch ${number}: ${what}`
    const written = this.#write(world, number, { call, work })
    const steps = [{ name: `${name}: ${written.outcome}`, next: this.#afterWrite(written, number, work) }]
    if (world.faults > 0) {
      const lost = withLaunch(written.world, number, { work: undefined, dirty: true })
      steps.push({ name: `${name}: the answer is lost`, next: { ...lost, faults: world.faults - 1 } })
    }
    return steps
  }

  #afterWrite({ world, outcome, on }: Written, number: number, work: Work): World {
    if (outcome === "again") return withLaunch(world, number, { work: undefined, dirty: true })
    const written = LAUNCH_VERSIONS.get(on ?? 0)
    const isAnswered = written?.status?.unanswered === undefined
    const isBehind = world.launches.some(({ cached, object }) => cached !== object)
    const next = withLaunch(world, number, {
      ...(isBehind && { awaits: true }),
      ...(on !== undefined && { ...(isAnswered && ANSWERED), ...(written && isOver(written) && FORGOTTEN) }),
    })
    return this.#after(next, number, { ...work, on: on ?? work.on })
  }

  /** Returns the API server's result of a write to the Launch itself. */
  #write(world: World, number: number, { call, work }: { call: Call; work: Work }): Written {
    const { object } = launchAt(world, number)
    const launch = LAUNCH_VERSIONS.get(object)
    if (launch === undefined || object !== work.on) return { world, outcome: "again" }
    const done = (status: OwnStatus): Written => ({
      ...put(world, number, withStatus(launch, status)),
      outcome: "done",
    })
    const removed: Written = { world: withLaunch(world, number, { object: 0 }), outcome: "done" }
    switch (call.do) {
      case "writeStatus":
        return done(call.status)
      case "createInstance":
      case "recordInstance":
      case "takeOver":
        return done(STATUSES.get(work.status) as OwnStatus)
      case "release":
        if (launch.metadata.deletionTimestamp !== undefined) return removed
        return { ...put(world, number, released(launch)), outcome: "done" }
      case "delete":
        return removed
      default:
        throw new Error(`a Launch of the model needs no ${call.do}`)
    }
  }

  #terminate(world: World, number: number, work: Work): Step<World>[] {
    const name = `the cloud is asked to end the VM of Launch ${number}`
    const { vm } = launchAt(world, number)
    if (world.rejected) return [this.#rejected(world, number, { work, name })]
    const asked = withLaunch(ending(world, vm), number, { askedAt: world.tick })
    const steps = [{ name, next: this.#after(asked, number, work) }]
    if (world.faults === 0) return steps
    const failed = (from: World) => ({
      ...withLaunch(from, number, { work: undefined, dirty: true }),
      faults: world.faults - 1,
    })
    steps.push({ name: `${name}: not now`, next: failed(world) })
    steps.push({ name: `${name}: the answer is lost`, next: failed(ending(world, vm)) })
    return steps
  }

  /** A call that the cloud rejects ends a Launch whose VM has ended by its lifetime, and is repeated otherwise. */
  #rejected(world: World, number: number, { work, name }: { work: Work; name: string }): Step<World> {
    const launch = LAUNCH_VERSIONS.get(work.on) as StoredLaunch
    const status = this.#rules.abandonedStatus(launch, clockAt(world.tick), LAUNCH_DEFAULTS)
    if (status === undefined) return { name: `${name}: Berth may not ask`, next: retried(world, number) }
    const written = this.#write(world, number, { call: { do: "writeStatus", status }, work })
    return { name: `${name}: Berth may not ask, and the VM has ended`, next: this.#afterWrite(written, number, work) }
  }
}

/** Returns true for a Launch that is over, or about to be: it has found that the time of the VM is over. */
function isOverSoon(world: World, number: number): boolean {
  const { work } = launchAt(world, number)
  const object = objectAt(world, number)
  return object === undefined || isOver(object) || STATUSES.get(work?.status ?? NONE)?.phase === "terminated"
}

/** Returns the due tick. A later time never replaces an earlier one. */
function dueOf(world: World, number: number, seconds: number | undefined): number {
  const { due } = launchAt(world, number)
  if (seconds === undefined) return due
  const next = dueAfter(world.tick, seconds)
  return due === 0 ? next : Math.min(due, next)
}

/** Returns the world in which a call that failed is tried again later. */
function retried(world: World, number: number): World {
  return withLaunch(world, number, { work: undefined, due: dueOf(world, number, 1) })
}

/** Returns true while the Launch that has got a VM needs the record of this one. */
function isOpen(world: World, { status }: StoredLaunch): boolean {
  const heir = numberOf(world, status?.handedTo)
  return heir !== 0 && needsPredecessor(objectAt(world, heir))
}

/** Returns the state of a Launch's job as the launch controller sees it. */
function jobStateOf(world: World, { job }: LaunchState): LaunchObservation["job"] {
  const { gone, end } = world.jobs[job - 1] ?? { gone: true, end: "" }
  if (gone) return "deleted"
  if (end === "") return "active"
  const own = world.launches.filter((launch) => launch.job === job)
  const isOpenStill = own.some(({ object }) => object !== 0 && !isOver(LAUNCH_VERSIONS.get(object) as StoredLaunch))
  return isOpenStill ? "ending" : "settled"
}

function viewOf(sight: Sight, { id, tag, vm }: { id: string; tag: string; vm: VmState }): InstanceView {
  if (sight === "unknown") return { is: "unknown" }
  const createTime = clockAt(vm.createdAt).toISOString()
  const known = { id, launch: tag, createTime, installation: INSTALLATION.id, region: "here" }
  if (sight !== "terminated") return { is: "found", vm: { ...known, state: sight } }
  const terminationTime = clockAt(vm.goneAt).toISOString()
  return { is: "found", vm: { ...known, state: sight, terminationTime, preempted: vm.preempted } }
}

function showLaunches(world: World): World {
  const launches = world.launches.map((launch): LaunchState => {
    const object = LAUNCH_VERSIONS.get(launch.object)
    const isNews = launch.cached !== launch.object
    return {
      ...launch,
      ...{ awaits: false, cached: launch.object, dirty: launch.dirty || isNews },
      ...(!(object !== undefined && isFollowed(object)) && { sight: "unknown", silent: false }),
    }
  })
  // News of a Launch may release its predecessor.
  const woken = launches.map((launch, index) => {
    const isHeir = ({ takes, dirty }: LaunchState) => takes === index + 1 && dirty
    return launches.some(isHeir) ? { ...launch, dirty: true } : launch
  })
  return { ...world, launches: woken }
}

/** Returns the observer's look at the VM of a Launch, if it has news. */
function lookSteps(world: World, number: number): Step<World>[] {
  const launch = launchAt(world, number)
  const vm = vmAt(world, launch.vm)
  const cached = LAUNCH_VERSIONS.get(launch.cached)
  if (cached === undefined || !isFollowed(cached)) return []
  const steps: Step<World>[] = []
  const sight = sightOf(vm)
  if (sight !== launch.sight && !world.rejected) {
    const next = withLaunch(world, number, { sight, dirty: true })
    steps.push({ name: `the observer sees the VM of Launch ${number}: ${sight}`, next })
  }
  const { agent, loss } = cached.status ?? {}
  const heard = agent?.lastHeartbeatTime ?? agent?.registrationTime
  const isWanted = cached.spec.ended !== true && loss === undefined && agent?.finish === undefined
  const isMute = vm.cutOff || vm.hung || vm.power !== "up"
  if (!launch.silent && isMute && heard !== undefined && isWanted && new Date(heard) < clockAt(world.tick)) {
    const next = withLaunch(world, number, { silent: true, dirty: true })
    steps.push({ name: `Launch ${number} was not heard for too long`, next })
  }
  return steps
}

function sightOf({ power }: VmState): Sight {
  if (power === "up") return "running"
  return power === "ending" ? "terminating" : "terminated"
}

function cloudLaunch(world: World, number: number, work: Work): Step<World>[] {
  const { vm, unanswered, inherited, object } = launchAt(world, number)
  const name = `the cloud is asked for the VM of Launch ${number}`
  if ((unanswered || inherited) && object !== work.on) {
    return [{ name: `${name}: no, the cache is late`, next: withLaunch(world, number, { work: undefined }) }]
  }
  if (world.rejected) return [rejectedLaunch(world, number, work)]
  const asked = withLaunch(world, number, { unanswered: true })
  const answered = (from: World, status: OwnStatus) =>
    withLaunch(from, number, { work: { ...work, status: STATUSES.of(status) } })
  const isNew = vmAt(world, vm).power === "none"
  const made = isNew ? withVm(asked, vm, { power: "up", createdAt: world.tick }) : asked
  const steps = [{ name: `${name}: it has it`, next: answered(made, createdStatus(vmOf(made, number))) }]
  if (world.faults === 0) return steps
  const spent = (next: World) => ({ ...next, faults: world.faults - 1 })
  const failed = (from: World) => spent(withLaunch(from, number, { work: undefined, dirty: true }))
  steps.push({ name: `${name}: it does, and the answer is lost`, next: failed(made) })
  if (!isNew) return steps
  steps.push({ name: `${name}: it doesn't, and the answer is lost`, next: failed(asked) })
  steps.push({ name: `${name}: no capacity`, next: spent(answered(asked, refusedStatus("Capacity", world.tick))) })
  return steps
}

function rejectedLaunch(world: World, number: number, work: Work): Step<World> {
  const { unanswered, inherited, failingSince } = launchAt(world, number)
  const name = `the cloud is asked for the VM of Launch ${number}: Berth may not ask`
  const launch = LAUNCH_VERSIONS.get(work.on) as StoredLaunch
  const isOpenStill = unanswered || inherited
  const status = isOpenStill
    ? abandonedStatus(launch, clockAt(world.tick), LAUNCH_DEFAULTS)
    : refusedStatus("Credentials", world.tick)
  if (status !== undefined)
    return { name, next: withLaunch(world, number, { work: { ...work, status: STATUSES.of(status) } }) }
  const since = { failingSince: failingSince < 0 ? world.tick : failingSince }
  return { name, next: withLaunch(retried(world, number), number, since) }
}

function refusedStatus(reason: "Capacity" | "Credentials", tick: number): OwnStatus {
  const refusal = { class: reason, code: "Sim", message: "no", time: clockAt(tick).toISOString() }
  return { phase: "refused", message: `${reason}: no`, refusal, costUsd: 0 }
}

function vmOf(world: World, number: number) {
  const { vm } = launchAt(world, number)
  const { createdAt } = vmAt(world, vm)
  const createTime = clockAt(createdAt).toISOString()
  const known = { id: idOf(vm), launch: tagOf(world, vmAt(world, vm)), createTime }
  return { ...known, installation: INSTALLATION.id, region: "here", state: "running" } as const
}

/** Starts the termination of a VM by Berth: its container may run until the end of it. */
export function ending(world: World, vm: number): World {
  return vmAt(world, vm).power === "up" ? withVm(world, vm, { power: "ending", told: true }) : world
}

/** Returns a Launch whose cost is counted, without its finalizer. */
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
