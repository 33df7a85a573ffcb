import { type NextStep, nextStep } from "../../src/api/gateway/next.ts"
import { desiredState, isCurrent, registered, takeReport } from "../../src/api/gateway/report.ts"
import { secondsBetween, timestamp } from "../../src/core/apis/clock.ts"
import { type AgentStatus, isOver, type StoredLaunch } from "../../src/core/apis/launch.ts"
import type { NextRequest, RegisterRequest, ReportRequest } from "../../src/core/protocol/protocol.ts"
import { idlenessOf } from "../../src/core/reuse/reuse.ts"
import { monthlyCosts } from "../../src/market/placement/statements.ts"
import { owns } from "../../src/operator/launch/garbage-collection.ts"
import { INSTALLATION } from "../harness/builders.ts"
import type { Step } from "./model-explorer.ts"
import { LAUNCH_VERSIONS } from "./model-state.ts"
import { requested } from "./warm-jobs.ts"
import { ending, type WarmOperator } from "./warm-operator.ts"
import {
  clockAt,
  IDLE_SECONDS,
  idOf,
  isAlive,
  type LaunchState,
  launchAt,
  numberOf,
  objectAt,
  put,
  type Straggler,
  TICK_SECONDS,
  tagOf,
  type VmState,
  vmAt,
  type World,
  withJob,
  withLaunch,
  withVm,
} from "./warm-state.ts"

/** Time that a request to the API server may take, seconds (its `--request-timeout`). */
const REQUEST_SECONDS = 60

/** Rules of the gateway and of garbage collection that a test may break. */
export interface EnvironmentRules {
  next: typeof nextStep
  owns: typeof owns
}

export const ENVIRONMENT_RULES: EnvironmentRules = { next: nextStep, owns }

/** Returns the steps that happen by themselves; on a fair path each of them gets its turn. */
export function naturalSteps(world: World, operator: WarmOperator, rules: EnvironmentRules): Step<World>[] {
  const steps = world.straggler === undefined ? [] : [arrival(world, world.straggler, operator)]
  for (let number = 1; number <= world.launches.length; number++) steps.push(...countSteps(world, number))
  for (let number = 1; number <= world.vms.length; number++) {
    steps.push(...agentSteps(world, number, rules), ...vmSteps(world, number, rules))
  }
  return steps
}

function arrival(world: World, straggler: Straggler, operator: WarmOperator): Step<World> {
  const next =
    straggler.of === "job" ? requested(world, straggler) : operator.arrives(world, straggler.launch, straggler.work)
  return { name: "a request of the leader that died comes through", next: { ...next, straggler: undefined } }
}

/** The Statement of the month counts the cost of a Launch that is over. */
function countSteps(world: World, number: number): Step<World>[] {
  const { object, counted } = launchAt(world, number)
  const launch = LAUNCH_VERSIONS.get(object)
  if (launch === undefined || counted !== 0 || monthlyCosts(launch).length === 0) return []
  const next = withLaunch(world, number, { counted: object, dirty: true })
  return [{ name: `the Statement counts Launch ${number}`, next }]
}

function to(world: World, number: number, what: string, change: Partial<VmState>): Step<World> {
  return { name: `VM ${number}: ${what}`, next: withVm(world, number, change) }
}

function off(world: World, number: number, why: string, told = false): Step<World> {
  const change = { power: "gone", goneAt: world.tick, ...(told && { told }) } as const
  return to(world, number, `${why}, and powers off`, change)
}

/** Returns the steps of the agent, and of the program on its VM. */
function agentSteps(world: World, number: number, rules: EnvironmentRules): Step<World>[] {
  const vm = vmAt(world, number)
  if (vm.power !== "up" || vm.hung) return []
  const steps = ownSteps(world, number)
  return vm.cutOff ? steps : [...steps, ...gatewaySteps(world, number, rules)]
}

function ownSteps(world: World, number: number): Step<World>[] {
  const { stage, serves, cutOff } = vmAt(world, number)
  const { starts } = launchAt(world, serves)
  if (stage === "ready") {
    const next = withLaunch(world, serves, { starts: starts + 1 })
    return [to(next, number, `the container of Launch ${serves} starts`, { stage: "running" })]
  }
  if (stage === "running") return [to(world, number, "the container ends", { stage: "ended", finish: "Succeeded" })]
  // An agent that doesn't reach the gateway can't store its finish. Without one, the end of its time counts.
  const isDue = isIdleDue(world, number)
  if (stage === "idle" && isDue) return [to(world, number, "has waited long enough", { stage: "leaving" })]
  return cutOff && stage === "leaving" ? [off(world, number, "doesn't reach the gateway")] : []
}

function isIdleDue(world: World, number: number): boolean {
  const idleTime = objectAt(world, vmAt(world, number).serves)?.status?.agent?.idleTime
  return idleTime === undefined || secondsBetween(idleTime, clockAt(world.tick)) >= IDLE_SECONDS
}

/** The gateway's own pure functions decide, and write to the live version. */
function gatewaySteps(world: World, number: number, rules: EnvironmentRules): Step<World>[] {
  switch (vmAt(world, number).stage) {
    case "boot":
      return registerSteps(world, number)
    case "ready":
    case "running":
    case "ended":
      return reportSteps(world, number)
    case "stored":
      return [...asks(world, number, rules, {}), ...unfitSteps(world, number, rules)]
    case "idle":
      return isNextNews(world, number) ? asks(world, number, rules, {}) : []
    case "leaving":
      return asks(world, number, rules, { isLeaving: true })
  }
}

function registerSteps(world: World, number: number): Step<World>[] {
  const { serves, root } = vmAt(world, number)
  // A request that a dead leader has sent arrives, or is lost, before a VM has booted.
  if (serves === root && world.straggler !== undefined) return []
  const launch = objectAt(world, serves)
  if (launch === undefined || !isCurrent(launch)) return [off(world, number, "is refused", true)]
  const keys = { signingKey: "{}", encryptionKey: "{}" } as unknown as Pick<
    RegisterRequest,
    "signingKey" | "encryptionKey"
  >
  const request = { protocol: 1, launch: launch.metadata.name, version: "1", runtime: "docker", abilities: [], ...keys }
  const agent = launch.status?.agent ?? registered(request, clockAt(world.tick))
  const told = put(world, serves, { ...launch, status: { ...launch.status, agent } }).world
  const name = `registers for Launch ${serves}`
  const step = to(told, number, name, { stage: "ready" })
  return told === world || world.faults === 0 ? [step] : [step, lost(told, `VM ${number}: ${name}`)]
}

/** Returns the step in which an answer to the agent is lost. */
function lost(world: World, name: string): Step<World> {
  return { name: `${name}: the answer is lost`, next: { ...world, faults: world.faults - 1 } }
}

function reportSteps(world: World, number: number): Step<World>[] {
  const vm = vmAt(world, number)
  const launch = objectAt(world, vm.serves)
  const agent = launch?.status?.agent
  if (launch === undefined || agent === undefined || isOver(launch)) {
    return [off(world, number, "learns that its Launch is over", true)]
  }
  const isEnded = vm.stage === "ended"
  if (isEnded && agent.finish !== undefined) {
    if (agent.finish.reason === "Stopped") return [off(world, number, "has stopped", true)]
    return [to(world, number, "learns that its finish is stored", { stage: "stored" })]
  }
  const isStopped = !isEnded && desiredState(launch) === "stop"
  if (!isStopped && !isEnded && (vm.stage !== "running" || agent.startTime !== undefined)) return []
  const report = reportOf(launch, agent, { vm, tick: world.tick })
  const taken = takeReport(agent, report, clockAt(world.tick)) ?? agent
  const told = put(world, vm.serves, { ...launch, status: { ...launch.status, agent: taken } }).world
  if (isStopped) return [to(told, number, "is ordered to stop", { stage: "ended", finish: "Stopped" })]
  return [{ name: `VM ${number}: reports for Launch ${vm.serves}`, next: told }]
}

function reportOf(
  { metadata }: StoredLaunch,
  { sequence }: AgentStatus,
  { vm: { stage, finish }, tick }: { vm: VmState; tick: number },
): ReportRequest {
  const now = timestamp(clockAt(tick))
  const isStarted = stage === "running" || finish === "Succeeded"
  return {
    ...{ launch: metadata.name, sequence: sequence + 1, attempt: isStarted ? 1 : 0, retryCount: 0 },
    ...(isStarted && { startTime: now }),
    ...(finish !== "" && { finish: { reason: finish, time: now } }),
  }
}

/** Returns true if the answer to an idle VM would say something new. */
function isNextNews(world: World, number: number): boolean {
  const launch = objectAt(world, vmAt(world, number).serves)
  return launch === undefined || idlenessOf(launch).is !== "idle" || desiredState(launch) === "stop"
}

type Request = Omit<NextRequest, "launch">

/** Returns the steps in which a VM asks for another job: it is answered, or the answer to a write is lost. */
function asks(world: World, number: number, rules: EnvironmentRules, request: Request): Step<World>[] {
  const told = settled(world, number, rules, request)
  const name = `VM ${number} asks for another job${isPlain(request) ? "" : ` (${Object.keys(request).join()})`}`
  const step = answered(told.world, number, told.step, name)
  return told.world === world || world.faults === 0 ? [step] : [step, lost(told.world, name)]
}

function isPlain(request: Request): boolean {
  return Object.keys(request).length === 0
}

/** The gateway decides and writes, until there is nothing to write. */
function settled(
  world: World,
  number: number,
  rules: EnvironmentRules,
  request: Request,
): { world: World; step: NextStep | undefined } {
  const { serves } = vmAt(world, number)
  const launch = objectAt(world, serves)
  if (launch === undefined) return { world, step: undefined }
  const heir = numberOf(world, launch.status?.handedTo)
  const step = rules.next(launch, request, heir === 0 ? undefined : objectAt(world, heir), clockAt(world.tick))
  if (step.is !== "write") return { world, step }
  const next = { ...launch, status: { ...launch.status, agent: step.agent } }
  return settled(put(world, serves, next).world, number, rules, request)
}

function answered(world: World, number: number, step: NextStep | undefined, name: string): Step<World> {
  if (step?.is === "handOver") {
    const serves = numberOf(world, step.to.metadata.name)
    const change = { stage: "boot", serves, finish: "" } as const
    return { name: `${name}, and gets Launch ${serves}`, next: withVm(world, number, change) }
  }
  if (step?.is === "wait") return { name: `${name}, and waits`, next: withVm(world, number, { stage: "idle" }) }
  const change = { power: "gone", goneAt: world.tick, told: true } as const
  return { name: `${name}, and powers off`, next: withVm(world, number, change) }
}

function unfitSteps(world: World, number: number, rules: EnvironmentRules): Step<World>[] {
  if (world.faults === 0) return []
  return asks({ ...world, faults: world.faults - 1 }, number, rules, { unfit: "the disk is full" })
}

function vmSteps(world: World, number: number, rules: EnvironmentRules): Step<World>[] {
  const vm = vmAt(world, number)
  if (vm.power === "ending") return [to(world, number, "has ended", { power: "gone", goneAt: world.tick })]
  if (vm.power !== "up") return []
  const steps: Step<World>[] = []
  // Garbage collection looks twice, at least one tick apart.
  if (!world.rejected && world.tick > vm.createdAt && isOrphan(world, number, rules)) {
    steps.push({ name: `VM ${number} is swept`, next: ending(world, number) })
  }
  const age = (world.tick - vm.createdAt) * TICK_SECONDS
  const { vmLifetimeSeconds = 0 } = specOf(launchAt(world, vm.root))
  if (age > vmLifetimeSeconds) steps.push(off(world, number, "has outlived its lifetime"))
  else if (!vm.hung && isRunOver(world, number)) steps.push(off(world, number, "has outlived its job's lifetime"))
  return steps
}

/** Returns the immutable spec of a Launch, even after its deletion. */
function specOf({ object, cached, counted }: LaunchState): Partial<StoredLaunch["spec"]> {
  return (LAUNCH_VERSIONS.get(object) ?? LAUNCH_VERSIONS.get(cached) ?? LAUNCH_VERSIONS.get(counted))?.spec ?? {}
}

/** Returns true if the agent ends itself, because its job has had its time and its finish can't be stored. */
function isRunOver(world: World, number: number): boolean {
  const vm = vmAt(world, number)
  const launch = objectAt(world, vm.serves)
  const createTime = launch?.status?.vm?.createTime
  if (vm.stage === "stored" || vm.stage === "idle" || vm.stage === "leaving") return false
  const since = createTime === undefined ? clockAt(vm.createdAt) : new Date(createTime)
  return secondsBetween(since, clockAt(world.tick)) > (launch?.spec.lifetimeSeconds ?? 0)
}

/** Returns true if no Launch owns the VM, by the rule of garbage collection. */
function isOrphan(world: World, number: number, rules: EnvironmentRules): boolean {
  const vm = vmAt(world, number)
  const listed = {
    ...{ id: idOf(number), launch: tagOf(world, vm), createTime: timestamp(clockAt(vm.createdAt)) },
    ...{ installation: INSTALLATION.id, region: "here", state: "running" as const },
  }
  return !world.launches.some(({ object }) => rules.owns(LAUNCH_VERSIONS.get(object), listed))
}

/** Lets time pass, after which due Launches are reconciled. A dead process sends nothing again. */
export function tickStep(world: World): Step<World> {
  const tick = world.tick + 1
  const woken = (launch: LaunchState): LaunchState =>
    launch.due > 0 && launch.due <= tick ? { ...launch, dirty: true, due: 0 } : launch
  const { straggler } = world
  const isLate = straggler !== undefined && tick > straggler.until
  const next = { ...world, tick, launches: world.launches.map(woken), straggler: isLate ? undefined : straggler }
  return { name: "time passes", next }
}

/** Returns the actions of users, each possible once at any time. */
export function userSteps(world: World): Step<World>[] {
  return world.jobs.flatMap(({ asked, gone, end }, index) => {
    if (gone || asked === "deleted") return []
    const number = index + 1
    const steps: Step<World>[] = []
    const asks = (what: "cancelled" | "deleted") => withJob(world, number, { asked: what })
    if (asked === "" && end === "") steps.push({ name: `a user cancels job ${number}`, next: asks("cancelled") })
    return [...steps, { name: `a user deletes job ${number}`, next: asks("deleted") }]
  })
}

/** Returns the faults, as long as `faults` allows more. */
export function faultSteps(world: World, operator: WarmOperator): Step<World>[] {
  if (world.faults === 0) return []
  const spent = { ...world, faults: world.faults - 1 }
  const steps: Step<World>[] = [{ name: "the operator dies, another one leads", next: restarted(spent) }]
  if (world.straggler === undefined) steps.push(...stragglers(spent, operator))
  if (!world.rejected) {
    const jobs = world.jobs.map((job) => ({ ...job, asked: job.gone ? job.asked : ("deleted" as const) }))
    steps.push({ name: "the project and its connection are deleted", next: { ...spent, jobs, rejected: true } })
  }
  world.jobs.forEach(({ gone, end }, index) => {
    if (gone) return
    const next = withJob(spent, index + 1, { gone: true, end: end || "cancelled" })
    steps.push({ name: `job ${index + 1} vanishes`, next })
  })
  for (let number = 1; number <= world.launches.length; number++) steps.push(...deletions(spent, number))
  for (let number = 1; number <= world.vms.length; number++) steps.push(...vmFaults(spent, number))
  return steps
}

/** Returns the deaths of an operator whose request is on its way. */
function stragglers(spent: World, operator: WarmOperator): Step<World>[] {
  const until = spent.tick + Math.floor(REQUEST_SECONDS / TICK_SECONDS)
  const name = "the operator dies, another one leads, and a request is on its way"
  const steps = spent.launches.flatMap((_, index) => {
    const launch = index + 1
    const work = operator.requestUnderWay(spent, launch)
    if (work === undefined) return []
    return [
      {
        name: `${name} (Launch ${launch})`,
        next: { ...restarted(spent), straggler: { of: "launch" as const, launch, work, until } },
      },
    ]
  })
  return [...steps, ...lateRequests(spent, until, name)]
}

/** Returns the deaths of an operator that has asked for another Launch of a job. */
function lateRequests(spent: World, until: number, name: string): Step<World>[] {
  return spent.jobs.flatMap(({ end, gone, asked }, index) => {
    const job = index + 1
    const own = spent.launches.filter((launch) => launch.job === job)
    const isWaiting = own.every(({ object }) => object === 0 || isOver(LAUNCH_VERSIONS.get(object) as StoredLaunch))
    if (end !== "" || gone || asked !== "" || !isWaiting) return []
    const idle = spent.launches.flatMap(({ cached }, other) => {
      const launch = LAUNCH_VERSIONS.get(cached)
      return launch !== undefined && idlenessOf(launch).is === "idle" ? [other + 1] : []
    })
    return [0, ...idle].map((takes) => ({
      name: `${name} (job ${job})`,
      next: { ...restarted(spent), straggler: { of: "job" as const, job, number: own.length + 1, takes, until } },
    }))
  })
}

function deletions(spent: World, number: number): Step<World>[] {
  const launch = objectAt(spent, number)
  if (launch === undefined || launch.metadata.deletionTimestamp !== undefined) return []
  const name = `a user deletes Launch ${number}`
  if (!launch.metadata.finalizers?.length) return [{ name, next: withLaunch(spent, number, { object: 0 }) }]
  const generation = launch.metadata.generation + 1
  const deletionTimestamp = clockAt(spent.tick).toISOString()
  const metadata = { ...launch.metadata, generation, deletionTimestamp }
  return [{ name, next: put(spent, number, { ...launch, metadata }).world }]
}

function vmFaults(spent: World, number: number): Step<World>[] {
  const vm = vmAt(spent, number)
  if (vm.power !== "up") return []
  const goneAt = spent.tick
  const steps = [
    to(spent, number, "is taken back by the cloud", { power: "gone", goneAt, preempted: true }),
    to(spent, number, "dies", { power: "gone", goneAt }),
  ]
  if (!vm.cutOff) steps.push(to(spent, number, "doesn't reach the gateway any more", { cutOff: true }))
  if (!vm.hung) steps.push(to(spent, number, "hangs for ever", { hung: true }))
  if (vm.stage === "idle") steps.push(to(spent, number, "stops to wait", { stage: "leaving" }))
  return steps
}

/** Returns the steps in which connections recover, at any time. */
export function recoverySteps(world: World): Step<World>[] {
  return world.vms.flatMap((vm, index) =>
    vm.cutOff && isAlive(vm) ? [to(world, index + 1, "reaches the gateway again", { cutOff: false })] : [],
  )
}

/** Returns the world with a new leader: its cache is fresh, it knows of no call, and it reconciles everything. */
function restarted(world: World): World {
  const fresh = { due: 0, awaits: false, work: undefined, sight: "unknown", silent: false } as const
  return {
    ...world,
    launches: world.launches.map((launch) => ({
      ...launch,
      ...fresh,
      ...{ cached: launch.object, dirty: launch.object !== 0, inherited: launch.object !== 0 },
      ...{ unanswered: false, failingSince: -1, askedAt: -1 },
    })),
  }
}
