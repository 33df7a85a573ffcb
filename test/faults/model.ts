import { isTerminal } from "../../src/core/apis/job.ts"
import { firstMessageTime, isOver, type StoredLaunch } from "../../src/core/apis/launch.ts"
import { jobOf as aJob } from "../harness/builders.ts"
import { type Containers, faultSteps, naturalSteps, recoverySteps, tickStep, userSteps } from "./model-environment.ts"
import type { Model, Step } from "./model-explorer.ts"
import { idled, operatorSteps } from "./model-operator.ts"
import {
  endOf,
  jobOf,
  LAUNCH_VERSIONS,
  type LaunchState,
  launchOf,
  newWorld,
  type World,
  worldKey,
} from "./model-state.ts"

export interface ModelOptions {
  /** Maximum number of faults on a path. */
  faults: number
  /** Maximum number of ticks on a path. */
  ticks: number
  containers: Containers
  /** True if users may cancel or delete the job. Default: true. */
  people?: boolean
  /** Maximum number of new VMs by a retry rule. Default: the job has no rule. */
  retries?: number
}

/** Ticks after a cancellation or deletion within which everything of the job must have ended. */
const PATIENCE_TICKS = 2

/**
 * Returns the model of one job's life. It contains the real decisions of both controllers, stale caches, lost answers,
 * clouds that reject, agents, users who cancel and delete, and operators that die between any two calls.
 */
export function jobModel({ faults, ticks, containers, people = true, retries = 0 }: ModelOptions): Model<World> {
  const spec = retries === 0 ? {} : { retryRules: [{ action: "newVm" as const, limit: retries }] }
  const job = aJob({ metadata: { uid: "job", finalizers: [], annotations: {} }, spec })
  return {
    initial: newWorld(job, faults),
    keyOf: worldKey,
    steps: (world) =>
      [
        ...operatorSteps(world),
        ...naturalSteps(world, "end"),
        ...recoverySteps(world),
        ...(people ? userSteps(world) : []),
        ...faultSteps(world),
        ...(world.tick < ticks ? [tickStep(world)] : []),
      ].map(({ name, next }) => ({ name, next: idled(next) })),
    fault: (world, before) => errorOf(world) ?? (before && faultOfStep(before, world)),
    calm: (world) => ({ ...world, faults: 0 }),
    fairStep: (world) => fairStep(world, containers),
    endFault,
  }
}

/** Returns the next fair step. Programs are faster than VMs, and VMs faster than the next tick. */
function fairStep(world: World, containers: Containers): (Step<World> & { waits: boolean }) | undefined {
  const [first] = operatorSteps(world)
  const step = first ?? naturalSteps(world, containers)[0]
  if (step !== undefined) return { name: step.name, next: idled(step.next), waits: false }
  if (isSettled(world)) return undefined
  const { name, next } = tickStep(world)
  return { name, next: idled(next), waits: true }
}

/** Returns true if the job has its final cost or is deleted, and its Launches and VMs are terminated. */
function isSettled(world: World): boolean {
  const job = jobOf(world)
  const isOverAndDone = ({ object, vm }: LaunchState) => {
    const launch = LAUNCH_VERSIONS.get(object)
    return (launch === undefined || isOver(launch)) && !isAlive(vm)
  }
  return (
    (job === undefined || job.status?.cost?.actualUsd !== undefined || isUnbilled(world)) &&
    world.launches.every(isOverAndDone)
  )
}

function isUnbilled(world: World): boolean {
  return world.launches.length === 0 && isTerminal(jobOf(world)?.status?.phase)
}

function isAlive({ power }: LaunchState["vm"]): boolean {
  return power === "up" || power === "ending"
}

/** Returns true if the job was cancelled or deleted, or has ended. */
function isUnwanted(world: World): boolean {
  const job = jobOf(world)
  if (job === undefined) return true
  return isTerminal(job.status?.phase) || job.spec.cancelled === true || job.metadata.deletionTimestamp !== undefined
}

function endFault(world: World, end: World, waits: number): string | undefined {
  const status = jobOf(end)?.status
  if (status !== undefined && !isTerminal(status.phase)) return `the end is no end: ${status.phase}`
  if (isUnwanted(world) && waits > PATIENCE_TICKS)
    return `the job was no longer wanted, and its VM ended ${waits} ticks later`
  return undefined
}

function errorOf(world: World): string | undefined {
  const running = world.launches.filter(({ vm }) => isAlive(vm) && vm.container === "running")
  if (running.length > 1) return "two VMs run the container"
  const launches = world.launches.map((launch) => ({ vm: launch.vm, object: launchOf(launch) }))
  const again = launches.findIndex(({ vm, object }) => vm.lives > 1 && firstMessageTime(object?.status) !== undefined)
  if (again !== -1 && launches[again]?.vm.container === "off") {
    return `VM ${again + 1} was created again, and its first life is not billed`
  }
  const wanted = launches.filter(({ object }) => object !== undefined && !isOver(object))
  if (wanted.length > 1) return "two Launches are not over"
  const leak = launches.findIndex(
    ({ vm, object }) => isAlive(vm) && !vm.late && (object === undefined || isOver(object)),
  )
  return leak === -1 ? undefined : `Launch ${leak + 1} is over, and its VM is not`
}

function faultOfStep(before: World, after: World): string | undefined {
  const [from, to] = [jobOf(before), jobOf(after)]
  const ended = endOf(from?.status)
  if (to !== undefined && ended !== undefined && endOf(to.status) !== ended) {
    return `a job that was ${ended} became ${endOf(to.status) ?? to.status?.phase}`
  }
  const phase = to?.status?.phase
  if (from?.spec.cancelled === true && !isTerminal(from.status?.phase) && phase !== from.status?.phase) {
    if (to !== undefined && phase !== "cancelled") return `a cancelled job became ${phase}`
  }
  if (from?.status?.settled !== true && to?.status?.settled === true && hasCountedVm(after)) {
    return "a job with a VM became settled"
  }
  for (const [index, launch] of before.launches.entries()) {
    const isTold = before.straggler === undefined && from !== undefined && from.status?.cost?.actualUsd === undefined
    const fault = faultOfLaunch(launch, after.launches[index] as LaunchState, isTold)
    if (fault !== undefined) return `Launch ${index + 1}: ${fault}`
  }
  return undefined
}

/**
 * Returns true if a VM is left that the job's status counts. A dead leader's request for another Launch may arrive after
 * the last look at the job. That Launch ends by itself.
 */
function hasCountedVm(world: World): boolean {
  const count = jobOf(world)?.status?.launches?.count ?? 0
  return world.launches.slice(0, count).some(({ vm }) => isAlive(vm) && !vm.late)
}

function faultOfLaunch(before: LaunchState, after: LaunchState, isTold: boolean): string | undefined {
  const [from, to] = [launchOf(before), launchOf(after)]
  if (from === undefined) return undefined
  const isKept = isTold && isWanted(from) && before.vm.power === "up"
  return (to && turnedBack(from, to)) ?? (isKept ? mistake(before, after) : undefined)
}

/** Returns the irreversible change that this write reverts, or undefined. */
function turnedBack(from: StoredLaunch, to: StoredLaunch): string | undefined {
  if (isOver(from) && !isOver(to)) return "came back from its end"
  if (from.spec.ended === true && to.spec.ended !== true) return "is wanted again"
  const isForgotten = from.status?.agent?.finish !== undefined && to.status?.agent?.finish === undefined
  return isForgotten ? "forgot how it ended" : undefined
}

function mistake(before: LaunchState, after: LaunchState): string | undefined {
  if (after.vm.power === "ending") return "its VM was ended, which was wanted"
  const loss = launchOf(after)?.status?.loss
  const isHeard = !before.vm.cutOff && !before.silent
  return isHeard && loss !== undefined ? `its VM was given up (${loss.reason}), which was heard` : undefined
}

function isWanted({ metadata, spec, status }: StoredLaunch): boolean {
  const isEnded =
    spec.ended === true || metadata.deletionTimestamp !== undefined || isOver({ ...(status && { status }) })
  return !isEnded && status?.loss === undefined && status?.agent?.finish === undefined
}
