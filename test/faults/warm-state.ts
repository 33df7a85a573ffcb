import { LAUNCH_FINALIZER, launchName, type StoredLaunch } from "../../src/core/apis/launch.ts"
import { LABELS } from "../../src/core/apis/meta.ts"
import { TAKEOVER_SECONDS, vmLifetimeOf, vmNameOf } from "../../src/core/reuse/reuse.ts"
import { jobOf, launchOf, offerOf } from "../harness/builders.ts"
import { LAUNCH_VERSIONS, tickClock } from "./model-state.ts"

/** Seconds of one tick: shorter than a request to the API server may take, and than a VM waits for another job. */
export const TICK_SECONDS = 50

/** Times of the model's jobs, seconds. A VM may live for several lifetimes of a job. */
export const BOOT_SECONDS = 90
export const LIFETIME_SECONDS = 300
export const VM_LIFETIME_SECONDS = 1200
export const IDLE_SECONDS = 75

/** Shortest time that the cloud bills: longer than a tick, so that a chain of Launches shares it. */
export const MINIMUM_SECONDS = 130

export const { clockAt, dueAfter } = tickClock(TICK_SECONDS)

/** Reconcile of a Launch in progress: its decision, its progress, and the version that it writes to. */
export interface Work {
  decision: number
  step: number
  on: number
  /** Status that the next write has; 0: none yet. */
  status: number
  /** Status to write to the predecessor, in the version that was read. */
  bind: { status: number; on: number } | undefined
}

/** Last report of a cloud's list. */
export type Sight = "unknown" | "running" | "terminating" | "terminated"

export interface LaunchState {
  /** Number of its job, and its number among the job's Launches, from 1. */
  job: number
  number: number
  /** Number of its VM, which other Launches may have too, and of the Launch whose VM it takes over (0: none). */
  vm: number
  takes: number
  /** Versions in the API server and in the operator's cache; 0: none. */
  object: number
  cached: number
  /** True if it waits for a reconcile. */
  dirty: boolean
  /** Tick of the next requeue; 0: none. */
  due: number
  /** True if the cache must show this reconcile's write first. */
  awaits: boolean
  work: Work | undefined
  sight: Sight
  silent: boolean
  /** The leader's knowledge of calls that may give it a VM; see CloudCalls. */
  inherited: boolean
  unanswered: boolean
  /** Tick since which the cloud has rejected this leader's create calls; -1: it has not. */
  failingSince: number
  /** Tick at which this leader requested the VM's termination; -1: never. */
  askedAt: number
  /** Last version whose cost the Statement counts; 0: none. */
  counted: number
  /** Number of containers that were started for it. */
  starts: number
}

export interface VmState {
  /** Number of the Launch that creates it, whose name it has as a tag. */
  root: number
  power: "none" | "up" | "ending" | "gone"
  preempted: boolean
  createdAt: number
  goneAt: number
  /** Number of the Launch that its agent works for. */
  serves: number
  /** `ready`: has its order. `stored`: its finish is stored. `idle`: asks for another job. `leaving`: it has waited enough. */
  stage: "boot" | "ready" | "running" | "ended" | "stored" | "idle" | "leaving"
  finish: "" | "Succeeded" | "Stopped"
  /** True if the agent doesn't reach the gateway; if nothing runs on the VM any more but its dead-man switch. */
  cutOff: boolean
  hung: boolean
  /** True if Berth has asked the agent, or the cloud, to end it. */
  told: boolean
  /** True if a call of a dead leader left it without a Launch. Only garbage collection finds it. */
  late: boolean
}

/** The job controller's part of a job. */
export interface JobState {
  asked: "" | "cancelled" | "deleted"
  /** True if its object does not exist any more. */
  gone: boolean
  end: "" | "finished" | "failed" | "cancelled"
}

/** Write or call of a dead leader that may still arrive, for as long as a request may take. */
export type Straggler = { until: number } & (
  | { of: "launch"; launch: number; work: Work }
  | { of: "job"; job: number; number: number; takes: number }
)

export interface World {
  tick: number
  faults: number
  /** True if the cloud rejects the credentials for ever: the connection is deleted. */
  rejected: boolean
  jobs: readonly JobState[]
  launches: readonly LaunchState[]
  vms: readonly VmState[]
  straggler: Straggler | undefined
}

const NEW_JOB: JobState = { asked: "", gone: false, end: "" }

/** Returns a world with jobs that have no Launch yet. */
export function newWorld(jobs: number, faults: number): World {
  return {
    ...{ tick: 0, faults, rejected: false, launches: [], vms: [], straggler: undefined },
    jobs: Array.from({ length: jobs }, () => NEW_JOB),
  }
}

/** Returns the world with so many more jobs. */
export function withJobs(world: World, jobs: number): World {
  const more = Array.from({ length: jobs }, () => NEW_JOB)
  return { ...world, jobs: [...world.jobs, ...more] }
}

const PROJECT = "team"

/** Returns the name of a job's Launch. */
function nameOf(job: number, number: number): string {
  return launchName(`job${job}`, number)
}

/** Returns a new Launch of a job, which creates a VM or takes over that of another one. */
export function launchObject(
  tick: number,
  { job, number }: Pick<LaunchState, "job" | "number">,
  holder: StoredLaunch | undefined,
): StoredLaunch {
  const owner = jobOf({ metadata: { uid: `job${job}`, namespace: PROJECT } })
  const root = holder && vmNameOf(holder)
  const own = launchOf(owner, number, {
    spec: {
      offer: offerOf({ minimumBilledSeconds: MINIMUM_SECONDS }),
      run: { image: "busybox", timeoutSeconds: 200, reuse: { idleSeconds: IDLE_SECONDS } },
      bootDeadlineSeconds: holder === undefined ? BOOT_SECONDS : TAKEOVER_SECONDS,
      lifetimeSeconds: LIFETIME_SECONDS,
      vmLifetimeSeconds: holder === undefined ? VM_LIFETIME_SECONDS : vmLifetimeOf(holder.spec),
      ...(holder !== undefined && root !== undefined && { takesOver: holder.metadata.name, root }),
    },
    metadata: { ...(root !== undefined && { labels: { [LABELS.rootLaunch]: root } }) },
  })
  const creationTimestamp = clockAt(tick).toISOString()
  return {
    ...own,
    metadata: { ...own.metadata, name: nameOf(job, number), creationTimestamp, finalizers: [LAUNCH_FINALIZER] },
  }
}

/** Returns the world with another Launch, and with a VM to be created if it takes over none. */
export function added(
  world: World,
  launch: StoredLaunch,
  { job, number, takes }: Pick<LaunchState, "job" | "number" | "takes">,
): World {
  const own = world.launches.length + 1
  const vm = takes === 0 ? world.vms.length + 1 : launchAt(world, takes).vm
  const made: LaunchState = {
    ...{ job, number, vm, takes, object: LAUNCH_VERSIONS.of(launch), cached: 0, dirty: false, due: 0, awaits: false },
    ...{ work: undefined, sight: "unknown", silent: false, inherited: false, unanswered: false, failingSince: -1 },
    ...{ askedAt: -1, counted: 0, starts: 0 },
  }
  const none: VmState = {
    ...{ root: own, power: "none", preempted: false, createdAt: 0, goneAt: 0, serves: own, stage: "boot", finish: "" },
    ...{ cutOff: false, hung: false, told: false, late: false },
  }
  return { ...world, launches: [...world.launches, made], vms: takes === 0 ? [...world.vms, none] : world.vms }
}

function workKey({ decision, step, on, status, bind }: Work): string {
  return `${decision}.${step}.${on}.${status}${bind === undefined ? "" : `.${bind.status}.${bind.on}`}`
}

function flags(...values: boolean[]): number {
  return values.reduce((sum, value, index) => sum + (value ? 2 ** index : 0), 0)
}

function launchKey(launch: LaunchState): string {
  const { job, number, vm, takes, object, cached, dirty, due, awaits, work, sight, silent, inherited, unanswered } =
    launch
  const { failingSince, askedAt, counted, starts } = launch
  const bits = flags(dirty, awaits, silent, inherited, unanswered)
  const parts = [job, number, vm, takes, object, cached, bits, due, sight, failingSince, askedAt, counted, starts]
  return `${parts.join(",")}${work === undefined ? "" : `;${workKey(work)}`}`
}

function vmKey(vm: VmState): string {
  const { root, power, preempted, createdAt, goneAt, serves, stage, finish, cutOff, hung, told, late } = vm
  return [root, power, createdAt, goneAt, serves, stage, finish, flags(preempted, cutOff, hung, told, late)].join(",")
}

function stragglerKey(straggler: Straggler | undefined): string {
  if (straggler === undefined) return ""
  const { until } = straggler
  if (straggler.of === "launch") return `${until}:${straggler.launch}:${workKey(straggler.work)}`
  return `${until}:job${straggler.job}:${straggler.number}:${straggler.takes}`
}

export function worldKey({ tick, faults, rejected, jobs, launches, vms, straggler }: World): string {
  const head = [tick, faults, Number(rejected), stragglerKey(straggler)]
  const ofJobs = jobs.map(({ asked, gone, end }) => `${asked},${Number(gone)},${end}`)
  return [head.join(","), ofJobs.join(";"), ...launches.map(launchKey), "", ...vms.map(vmKey)].join("|")
}

/** Returns the Launch of this number, which counts from 1. @throws Error if there never was one */
export function launchAt(world: World, number: number): LaunchState {
  const launch = world.launches[number - 1]
  if (launch === undefined) throw new Error(`there never was a Launch ${number}`)
  return launch
}

/** @throws Error if there never was such a VM */
export function vmAt(world: World, number: number): VmState {
  const vm = world.vms[number - 1]
  if (vm === undefined) throw new Error(`there never was a VM ${number}`)
  return vm
}

export function objectAt(world: World, number: number): StoredLaunch | undefined {
  return LAUNCH_VERSIONS.get(launchAt(world, number).object)
}

export function withLaunch(world: World, number: number, change: Partial<LaunchState>): World {
  return { ...world, launches: world.launches.with(number - 1, { ...launchAt(world, number), ...change }) }
}

export function withVm(world: World, number: number, change: Partial<VmState>): World {
  return { ...world, vms: world.vms.with(number - 1, { ...vmAt(world, number), ...change }) }
}

export function withJob(world: World, number: number, change: Partial<JobState>): World {
  const before = world.jobs[number - 1]
  if (before === undefined) throw new Error(`there is no job ${number}`)
  const jobs = world.jobs.with(number - 1, { ...before, ...change })
  // The launch controller follows the jobs of its Launches.
  const launches = world.launches.map((launch) => (launch.job === number ? { ...launch, dirty: true } : launch))
  return { ...world, jobs, launches }
}

export function idOf(vm: number): string {
  return `vm-${vm}`
}

/** Returns the number of a Launch by its name. */
export function numberOf(world: World, name: string | undefined): number {
  return world.launches.findIndex(({ job, number }) => nameOf(job, number) === name) + 1
}

/** Returns the tag of a VM: the name of its root. */
export function tagOf(world: World, { root }: VmState): string {
  const { job, number } = launchAt(world, root)
  return nameOf(job, number)
}

export function isAlive({ power }: VmState): boolean {
  return power === "up" || power === "ending"
}

/** Writes a version of a Launch for any writer. Its content is its version. */
export function put(world: World, number: number, launch: StoredLaunch): { world: World; on: number } {
  const on = LAUNCH_VERSIONS.of(launch)
  return { world: withLaunch(world, number, { object: on }), on }
}
