import { desiredState, isCurrent, registered, takeReport } from "../../src/api/gateway/report.ts"
import { timestamp } from "../../src/core/apis/clock.ts"
import type { StoredJob } from "../../src/core/apis/job.ts"
import { type AgentStatus, isOver, type StoredLaunch } from "../../src/core/apis/launch.ts"
import type { RegisterRequest, ReportRequest } from "../../src/core/protocol/protocol.ts"
import type { Step } from "./model-explorer.ts"
import { callUnderWay, comesThrough, deleted, ending, putLaunch } from "./model-operator.ts"
import {
  clockAt,
  type Interned,
  JOB_VERSIONS,
  type Key,
  LAUNCH_VERSIONS,
  type LaunchState,
  launchAt,
  launchOf,
  TICK_SECONDS,
  type VmState,
  type Work,
  type World,
  withJob,
  withLaunch,
  withVm,
} from "./model-state.ts"

/** Behaviour of containers: they succeed, the one on the first VM fails, or they hang forever. */
export type Containers = "end" | "failFirst" | "hang"

/** Returns the steps that happen by themselves; on a fair path each of them gets its turn. */
export function naturalSteps(world: World, containers: Containers): Step<World>[] {
  const steps: Step<World>[] = []
  if (world.straggler !== undefined) steps.push(arrival(world, world.straggler))
  world.launches.forEach((_, index) => {
    steps.push(...agentSteps(world, index + 1, containers), ...vmSteps(world, index + 1))
  })
  return steps
}

function arrival(world: World, { of, work }: { of: "job" | number; work: Work }): Step<World> {
  const next = { ...comesThrough(world, of, work), straggler: undefined }
  return { name: `a call of the leader that died comes through (${of})`, next }
}

/** Returns the agent's steps. The gateway's own pure functions decide, and write to the live version. */
function agentSteps(world: World, number: number, containers: Containers): Step<World>[] {
  const { vm } = launchAt(world, number)
  if (vm.power !== "up") return []
  const to = (name: string, change: Partial<typeof vm>) => ({
    name: `VM ${number}: ${name}`,
    next: withVm(world, number, change),
  })
  const steps = vm.cutOff ? [] : gatewaySteps(world, number)
  if (vm.container === "ready") steps.push(to("the container starts", { container: "running" }))
  if (vm.container !== "running" || containers === "hang") return steps
  if (containers === "failFirst" && number === 1)
    return [...steps, to("the container fails", { container: "ended", finish: "ContainerFailed" })]
  steps.push(to("the container succeeds", { container: "ended", finish: "Succeeded" }))
  return steps
}

function gatewaySteps(world: World, number: number): Step<World>[] {
  const { vm } = launchAt(world, number)
  if (vm.container !== "off") return reportSteps(world, number)
  // A request that a dead leader has sent arrives, or is lost, before a VM has booted.
  if (world.straggler !== undefined) return []
  const launch = launchOf(launchAt(world, number))
  if (launch === undefined || !isCurrent(launch)) return [poweredOff(world, number, "is refused, and powers off")]
  const keys = { signingKey: "{}", encryptionKey: "{}" } as unknown as Pick<
    RegisterRequest,
    "signingKey" | "encryptionKey"
  >
  const request = { protocol: 1, launch: launch.metadata.name, version: "1", runtime: "docker", abilities: [], ...keys }
  const agent = launch.status?.agent ?? registered(request, clockAt(world.tick))
  const bound = putLaunch(world, number, { ...launch, status: { ...launch.status, agent } }).world
  return [{ name: `VM ${number}: the agent registers`, next: withVm(bound, number, { container: "ready" }) }]
}

function poweredOff(world: World, number: number, why: string): Step<World> {
  return { name: `VM ${number}: ${why}`, next: withVm(world, number, { power: "gone" }) }
}

function reportSteps(world: World, number: number): Step<World>[] {
  const { vm } = launchAt(world, number)
  const launch = launchOf(launchAt(world, number))
  const agent = launch?.status?.agent
  if (launch === undefined || agent === undefined || isOver(launch)) {
    return [poweredOff(world, number, "learns that its Launch is terminated, and powers off")]
  }
  if (vm.container === "ended" && agent.finish !== undefined)
    return [poweredOff(world, number, "has done, and powers off")]
  const isStarted = vm.container === "running" || (vm.container === "ended" && vm.finish !== "Stopped")
  const isStopped = vm.container !== "ended" && desiredState(launch) === "stop"
  if (!isStopped && vm.container !== "ended" && (!isStarted || agent.startTime !== undefined)) return []
  const report = reportOf(launch, agent, { isStarted, finish: vm.finish, tick: world.tick })
  const taken = takeReport(agent, report, clockAt(world.tick)) ?? agent
  const told = putLaunch(world, number, { ...launch, status: { ...launch.status, agent: taken } }).world
  const next = isStopped ? withVm(told, number, { container: "ended", finish: "Stopped" }) : told
  return [{ name: `VM ${number}: reports${isStopped ? ", and is ordered to stop" : ""}`, next }]
}

function reportOf(
  { metadata }: StoredLaunch,
  { sequence }: AgentStatus,
  { isStarted, finish, tick }: { isStarted: boolean; finish: VmState["finish"]; tick: number },
): ReportRequest {
  const now = timestamp(clockAt(tick))
  return {
    launch: metadata.name,
    sequence: sequence + 1,
    attempt: isStarted ? 1 : 0,
    retryCount: 0,
    ...(isStarted && { startTime: now }),
    ...(finish !== "" && { finish: { reason: finish, time: now } }),
  }
}

function vmSteps(world: World, number: number): Step<World>[] {
  const { vm, ...launch } = launchAt(world, number)
  if (vm.power === "ending") return [poweredOff(world, number, "has ended")]
  if (vm.power !== "up") return []
  const object = launchOf({ ...launch, vm })
  const steps: Step<World>[] = []
  // Garbage collection looks twice, at least one tick apart.
  if ((object === undefined || isOver(object)) && world.tick > vm.createdAt) {
    steps.push({ name: `VM ${number} is swept`, next: ending(world, number) })
  }
  const lifetime = object?.spec.lifetimeSeconds ?? 0
  if ((world.tick - vm.createdAt) * TICK_SECONDS > lifetime && object !== undefined) {
    steps.push(poweredOff(world, number, "has outlived its lifetime, and powers off"))
  }
  return steps
}

/**
 * Lets time pass, after which due keys are reconciled. A tick is longer than any call can take: the API server limits
 * requests to one minute (its `--request-timeout`), and a dead process sends nothing again.
 */
export function tickStep(world: World): Step<World> {
  const tick = world.tick + 1
  const woken = <K extends Key>(key: K): K => (key.due > 0 && key.due <= tick ? { ...key, dirty: true, due: 0 } : key)
  return {
    name: "time passes",
    next: { ...world, tick, job: woken(world.job), launches: world.launches.map(woken), straggler: undefined },
  }
}

/** Returns the actions of users, each possible once at any time. */
export function userSteps(world: World): Step<World>[] {
  const number = world.job.object
  const job = JOB_VERSIONS.get(number)
  if (job === undefined) return []
  const steps: Step<World>[] = []
  if (!world.cancelled) {
    const object = JOB_VERSIONS.derived(number, "cancelled", cancelled)
    steps.push({ name: "a user cancels the job", next: { ...withJob(world, { object }), cancelled: true } })
  }
  if (!world.deleted) {
    const object = deletedVersion(JOB_VERSIONS, number, world.tick)
    steps.push({ name: "a user deletes the job", next: { ...withJob(world, { object }), deleted: true } })
  }
  return steps
}

function cancelled(job: StoredJob): StoredJob {
  const metadata = { ...job.metadata, generation: job.metadata.generation + 1 }
  return { ...job, metadata, spec: { ...job.spec, cancelled: true } }
}

/** Returns the version of an object after its deletion in that tick; 0 without a finalizer. */
function deletedVersion<T extends StoredJob | StoredLaunch>(
  versions: Interned<T>,
  number: number,
  tick: number,
): number {
  if (!versions.get(number)?.metadata.finalizers?.length) return 0
  return versions.derived(number, `deleted ${tick}`, (object) => deleted(object, tick))
}

/** Returns the faults, as long as `faults` allows more. */
export function faultSteps(world: World): Step<World>[] {
  if (world.faults === 0) return []
  const spent = { ...world, faults: world.faults - 1 }
  const steps: Step<World>[] = [{ name: "the operator dies, another one leads", next: restarted(spent) }]
  const keys = ["job" as const, ...world.launches.map((_, index) => index + 1)]
  for (const of of world.straggler === undefined ? keys : []) {
    const work = callUnderWay(world, of)
    if (work === undefined) continue
    const name = `the operator dies, another one leads, and a call is still on its way (${of})`
    steps.push({ name, next: { ...restarted(spent), straggler: { of, work } } })
  }
  return [...steps, ...world.launches.flatMap((launch, index) => vmFaults(spent, index + 1, launch))]
}

function vmFaults(spent: World, number: number, launch: LaunchState): Step<World>[] {
  const { vm } = launch
  const steps: Step<World>[] = []
  const object = launchOf(launch)
  if (object !== undefined && object.metadata.deletionTimestamp === undefined) {
    const next = withLaunch(spent, number, { object: deletedVersion(LAUNCH_VERSIONS, launch.object, spent.tick) })
    steps.push({ name: `a user deletes Launch ${number}`, next })
  }
  if (vm.power !== "up") return steps
  const failed = { container: "ended", finish: "ContainerFailed" } as const
  const faults = [
    ["is taken back by the cloud", { power: "gone", preempted: true }],
    ["dies", { power: "gone" }],
    ["doesn't reach the gateway any more", { cutOff: true }],
    ...(vm.container === "running" ? [["the container fails", failed] as const] : []),
  ] as const
  for (const [what, change] of faults) {
    if (what.startsWith("doesn't") && vm.cutOff) continue
    steps.push({ name: `VM ${number}: ${what}`, next: withVm(spent, number, change) })
  }
  return steps
}

/** Returns the steps in which connections recover, at any time. */
export function recoverySteps(world: World): Step<World>[] {
  return world.launches.flatMap(({ vm }, index) => {
    if (!vm.cutOff || vm.power !== "up") return []
    const number = index + 1
    return [{ name: `VM ${number}: reaches the gateway again`, next: withVm(world, number, { cutOff: false }) }]
  })
}

/** Returns the world with a new leader: its caches are fresh, it knows of no call, and it reconciles everything. */
function restarted(world: World): World {
  const fresh = { due: 0, awaits: [], work: undefined }
  const { object } = world.job
  return {
    ...world,
    job: { ...fresh, object, cached: object, dirty: object !== 0 },
    launches: world.launches.map((launch) => ({
      ...launch,
      ...fresh,
      cached: launch.object,
      dirty: launch.object !== 0,
      sight: "unknown",
      silent: false,
      inherited: launch.object !== 0,
      unanswered: false,
      failingSince: -1,
      askedAt: -1,
    })),
  }
}
