import { isOver, type StoredLaunch } from "../../src/core/apis/launch.ts"
import type { Model, Step } from "./model-explorer.ts"
import { LAUNCH_VERSIONS } from "./model-state.ts"
import { billFault } from "./warm-bill.ts"
import {
  ENVIRONMENT_RULES,
  type EnvironmentRules,
  faultSteps,
  naturalSteps,
  recoverySteps,
  tickStep,
  userSteps,
} from "./warm-environment.ts"
import { jobSteps } from "./warm-jobs.ts"
import { OPERATOR_RULES, type OperatorRules, WarmOperator } from "./warm-operator.ts"
import {
  idOf,
  isAlive,
  type LaunchState,
  launchAt,
  newWorld,
  numberOf,
  objectAt,
  type VmState,
  type World,
  withJobs,
  worldKey,
} from "./warm-state.ts"

export interface WarmOptions {
  /** Number of jobs that want a VM where paths begin. */
  jobs: number
  faults: number
  ticks: number
  /** Beginning of the paths. Default: `nothing`. */
  from?: keyof typeof BEGINNINGS
  /** True if users may cancel or delete jobs. Default: true. */
  people?: boolean
  /** Rules that are broken on purpose. */
  rules?: Partial<OperatorRules & EnvironmentRules>
}

/** Beginnings of paths: the jobs before, and what has become of them. */
const BEGINNINGS = {
  nothing: { jobs: 0, has: () => true },
  /** The VM of an ended job waits. */
  idleVm: { jobs: 1, has: ({ vms, jobs }: World) => vms[0]?.stage === "idle" && jobs[0]?.end !== "" },
  /** Another job has asked for that VM. */
  request: { jobs: 2, has: ({ launches }: World) => (launches[1]?.cached ?? 0) !== 0 },
  /** A Launch has handed over its VM, and no one has recorded whose it is now. */
  handover: {
    jobs: 2,
    has: (world: World) => world.launches[0] !== undefined && objectAt(world, 1)?.status?.handedTo !== undefined,
  },
  /** The VM waits after its second job. */
  secondIdleVm: {
    jobs: 2,
    has: ({ vms, jobs }: World) => vms[0]?.stage === "idle" && vms[0].serves === 2 && jobs[1]?.end !== "",
  },
} as const

/** Ticks after which everything has ended: by itself, or by the dead-man switch of a VM that no one can end. */
const PATIENCE_TICKS = 24
const DEAD_MAN_TICKS = 40

/**
 * Returns the model of a chain: jobs of a project take over each other's VMs. It contains the real decisions on Launches,
 * takeovers and idle VMs, stale caches, lost answers, agents, users, and operators that die between any two requests.
 */
export function warmModel({
  jobs,
  faults,
  ticks,
  from = "nothing",
  people = true,
  rules = {},
}: WarmOptions): Model<World> {
  const operator = new WarmOperator({ ...OPERATOR_RULES, ...rules })
  const around = { ...ENVIRONMENT_RULES, ...rules }
  const idled = ({ name, next }: Step<World>): Step<World> => ({ name, next: operator.idled(next) })
  const fairStep = (world: World) => fair(world, operator, around)
  const begin = withJobs(beginning(from, fairStep), jobs)
  return {
    initial: { ...begin, faults },
    keyOf: worldKey,
    steps: (world) =>
      [
        ...operator.steps(world),
        ...jobSteps(world),
        ...naturalSteps(world, operator, around),
        ...recoverySteps(world),
        ...(people ? userSteps(world) : []),
        ...faultSteps(world, operator),
        ...(world.tick < ticks ? [tickStep(world)] : []),
      ].map(idled),
    fault: (world, before) => errorOf(world) ?? (before && faultOfStep(before, world)),
    calm: (world) => ({ ...world, faults: 0 }),
    fairStep,
    endFault,
  }
}

/** Returns the world where paths begin, after fair steps of the jobs before. */
function beginning(from: keyof typeof BEGINNINGS, fairStep: Model<World>["fairStep"]): World {
  const { jobs, has } = BEGINNINGS[from]
  let world = newWorld(Math.min(jobs, 1), 0)
  for (let isWhole = jobs < 2; !has(world) || !isWhole; ) {
    // The second job comes when the VM of the first one is idle.
    if (!isWhole && BEGINNINGS.idleVm.has(world)) {
      world = withJobs(world, 1)
      isWhole = true
      continue
    }
    const step = fairStep(world)
    if (step === undefined) throw new Error(`no fair path leads to ${from}`)
    world = step.next
  }
  return world
}

/** Returns the next fair step. Programs are faster than VMs, and VMs faster than the next tick. */
function fair(
  world: World,
  operator: WarmOperator,
  rules: EnvironmentRules,
): (Step<World> & { waits: boolean }) | undefined {
  const step = first(operator.steps(world)) ?? jobSteps(world)[0] ?? naturalSteps(world, operator, rules)[0]
  if (step !== undefined) return { name: step.name, next: operator.idled(step.next), waits: false }
  if (isSettled(world)) return undefined
  const { name, next } = tickStep(world)
  return { name, next: operator.idled(next), waits: true }
}

function first<T>(all: Iterable<T>): T | undefined {
  for (const one of all) return one
  return undefined
}

function isSettled(world: World): boolean {
  const hasEnded = world.jobs.every(({ asked, gone, end }) => gone || (end !== "" && asked !== "deleted"))
  const isClosed = ({ object }: LaunchState) => object === 0 || isOver(LAUNCH_VERSIONS.get(object) as StoredLaunch)
  return hasEnded && world.launches.every(isClosed) && !world.vms.some(isAlive)
}

function endFault(world: World, end: World, waits: number): string | undefined {
  const open = end.jobs.findIndex((job) => !job.gone && job.end === "")
  if (open !== -1) return `job ${open + 1} has no end`
  const most = world.rejected || world.vms.some(({ hung, cutOff }) => hung || cutOff) ? DEAD_MAN_TICKS : PATIENCE_TICKS
  if (waits > most) return `everything ended ${waits} ticks later`
  for (let number = 1; number <= end.vms.length; number++) {
    const fault = billFault(end, number)
    if (fault !== undefined) return `the bill of VM ${number}: ${fault}`
  }
  return undefined
}

// Invariants of states.

function errorOf(world: World): string | undefined {
  for (let number = 1; number <= world.vms.length; number++) {
    const fault = errorOfVm(world, number)
    if (fault !== undefined) return `VM ${number}: ${fault}`
  }
  const again = world.launches.findIndex(({ starts }) => starts > 1)
  if (again !== -1) return `two containers were started for Launch ${again + 1}`
  const jobs = world.vms
    .filter((vm) => isAlive(vm) && vm.stage === "running")
    .map(({ serves }) => launchAt(world, serves).job)
  return new Set(jobs).size < jobs.length ? "two VMs run the container of one job" : undefined
}

function errorOfVm(world: World, number: number): string | undefined {
  const vm = world.vms[number - 1] as VmState
  const holders = world.launches.flatMap((_, index) => (holds(world, index + 1, number) ? [index + 1] : []))
  if (holders.length > 1) return `Launches ${holders.join(" and ")} hold it`
  if (!isAlive(vm) || vm.late) return undefined
  const [holder] = holders
  if (holder === undefined) return "it runs, and no Launch holds it"
  const isBusy = vm.stage === "ready" || vm.stage === "running"
  if (isBusy && vm.serves !== holder) return `it works for Launch ${vm.serves}, and Launch ${holder} holds it`
  return undefined
}

/** Returns true if a Launch that is not over has this VM, creates it, or was given it by its predecessor. */
function holds(world: World, number: number, vm: number): boolean {
  const launch = launchAt(world, number)
  const object = objectAt(world, number)
  if (launch.vm !== vm || object === undefined || isOver(object)) return false
  if (launch.takes === 0 || object.status?.vm?.id === idOf(vm)) return true
  return numberOf(world, objectAt(world, launch.takes)?.status?.handedTo) === number
}

// Invariants of steps.

function faultOfStep(before: World, after: World): string | undefined {
  for (const [index, launch] of before.launches.entries()) {
    const fault = faultOfLaunch(launch, after.launches[index] as LaunchState)
    if (fault !== undefined) return `Launch ${index + 1}: ${fault}`
  }
  for (const [index, vm] of before.vms.entries()) {
    const fault = faultOfVm(before, after, { number: index + 1, vm })
    if (fault !== undefined) return `VM ${index + 1}: ${fault}`
  }
  return undefined
}

function faultOfLaunch(before: LaunchState, after: LaunchState): string | undefined {
  const [from, to] = [LAUNCH_VERSIONS.get(before.object), LAUNCH_VERSIONS.get(after.object)]
  if (from === undefined) return undefined
  if (to !== undefined) return turnedBack(from, to)
  const isUncounted = (from.status?.costUsd ?? 0) > 0 && before.counted === 0
  return isUncounted ? "its record was deleted before its cost was counted" : undefined
}

/** Returns the irreversible change that this write reverts, or undefined. */
function turnedBack(from: StoredLaunch, to: StoredLaunch): string | undefined {
  if (isOver(from) && from.status?.phase !== to.status?.phase) return `it was ${from.status?.phase}, and came back`
  if (from.spec.ended === true && to.spec.ended !== true) return "it is wanted again"
  const [given, now] = [from.status?.handedTo, to.status?.handedTo]
  if (given !== undefined && now !== given) return `it handed its VM over to ${given}, and then to ${now}`
  const isForgotten = from.status?.agent?.finish !== undefined && to.status?.agent?.finish === undefined
  return isForgotten ? "it forgot how it ended" : undefined
}

function faultOfVm(before: World, after: World, { number, vm }: { number: number; vm: VmState }): string | undefined {
  const next = after.vms[number - 1] as VmState
  const [from, to] = [before, after].map((world) =>
    world.launches.filter((_, index) => holds(world, index + 1, number)),
  )
  const isTaken = from?.[0]?.job !== to?.[0]?.job && to?.[0] !== undefined && (to[0].takes ?? 0) !== 0
  if (isTaken && vm.told && !next.late) return "Berth had ended it, and another Launch got it"
  if (vm.power !== "up" || next.power !== "ending" || before.straggler !== undefined) return undefined
  return isWanted(before, number) ? "it was ended, which was wanted" : undefined
}

/** Returns true if the Launch that holds a VM still needs it, and its agent was heard. */
function isWanted(world: World, vm: number): boolean {
  const number = world.launches.findIndex((_, index) => holds(world, index + 1, vm)) + 1
  const object = number === 0 ? undefined : objectAt(world, number)
  if (object === undefined) return false
  const job = world.jobs[launchAt(world, number).job - 1]
  const { loss, agent } = object.status ?? {}
  const isEnding = object.spec.ended === true || object.metadata.deletionTimestamp !== undefined || loss !== undefined
  const isJobOver = job === undefined || job.gone || job.end !== "" || job.asked !== ""
  return !isEnding && !isJobOver && agent?.finish === undefined && !launchAt(world, number).silent
}
