import type { JobStatus, StoredJob } from "../../src/core/apis/job.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import { at } from "../harness/builders.ts"

/** Numbers for objects: equal objects have the same number. 0 stands for no object. */
export class Interned<T> {
  readonly #numbers = new Map<string, number>()
  readonly #objects: (T | undefined)[] = [undefined]
  readonly #derived = new Map<string, number>()

  /** Stores the object as JSON, like the API server. */
  of(object: T): number {
    const json = JSON.stringify(object)
    const known = this.#numbers.get(json)
    if (known !== undefined) return known
    const number = this.#objects.length
    this.#objects.push(JSON.parse(json) as T)
    this.#numbers.set(json, number)
    return number
  }

  get(number: number): T | undefined {
    return this.#objects[number]
  }

  /** Returns the number of an object that is a pure function of another; `way` names the function. Returns 0 for 0. */
  derived(from: number, way: string, make: (object: T) => T): number {
    const object = this.get(from)
    if (object === undefined) return 0
    const key = `${from} ${way}`
    const known = this.#derived.get(key)
    if (known !== undefined) return known
    const number = this.of(make(object))
    this.#derived.set(key, number)
    return number
  }
}

/** Versions of the job and of its Launches. Versions with the same content are equal. */
export const JOB_VERSIONS: Interned<StoredJob> = new Interned()
export const LAUNCH_VERSIONS: Interned<StoredLaunch> = new Interned()

/** Seconds of one tick: longer than the boot deadline, so that every deadline has passed after one tick. */
export const TICK_SECONDS = 1000

/** Returns the clock of a model with ticks of so many seconds. */
export function tickClock(tickSeconds: number) {
  return {
    clockAt: (tick: number): Date => at(tick * tickSeconds),
    /** Returns the tick that is this many seconds after another one. */
    dueAfter: (tick: number, seconds: number): number => tick + Math.max(1, Math.ceil(seconds / tickSeconds)),
  }
}

export const { clockAt, dueAfter } = tickClock(TICK_SECONDS)

/** Reconcile in progress: its decision, its progress, and the version that it writes to. */
export interface Work {
  /** Number of the decision. */
  decision: number
  step: number
  /** Version that was decided on, or was written by this reconcile since. */
  on: number
  /** Result of the first half of a step, 0 before it. */
  half: number
}

/** State of a key in the operator's queue. */
export interface Key {
  /** True if the key waits for a reconcile. */
  dirty: boolean
  /** Tick of the next requeue; 0: none. */
  due: number
  /** Caches that must show a write first: `jobs`, `launches`, both or none. */
  awaits: readonly ("jobs" | "launches")[]
  work: Work | undefined
}

/** Last report of a cloud's list. */
export type Sight = "unknown" | "running" | "terminating" | "absent" | "preempted"

export interface VmState {
  power: "none" | "up" | "ending" | "gone"
  preempted: boolean
  createdAt: number
  /** `ready`: the agent has its order. */
  container: "off" | "ready" | "running" | "ended"
  finish: "" | "Succeeded" | "ContainerFailed" | "Stopped"
  /** True if the agent doesn't reach the gateway. */
  cutOff: boolean
  /** True if a call of a dead leader created the VM, or repeated its creation. Only garbage collection finds the VM. */
  late: boolean
  /** Number of VMs that the cloud has made for the Launch. Only the last one exists. */
  lives: number
}

export interface LaunchState extends Key {
  /** Versions in the API server and in the operator's cache; 0: none. */
  object: number
  cached: number
  sight: Sight
  silent: boolean
  /** The leader's knowledge of calls to the cloud; see CloudCalls. */
  inherited: boolean
  unanswered: boolean
  /** Tick since which this leader's attempts have only failed; -1: none. */
  failingSince: number
  /** Tick at which this leader requested the VM's termination; -1: never. */
  askedAt: number
  vm: VmState
}

export interface World {
  tick: number
  /** Number of faults that may still happen. */
  faults: number
  cancelled: boolean
  deleted: boolean
  job: Key & { object: number; cached: number }
  launches: readonly LaunchState[]
  /** Write or call of a dead leader that may still arrive. */
  straggler: { of: "job" | number; work: Work } | undefined
}

export const NO_VM: VmState = {
  power: "none",
  preempted: false,
  createdAt: 0,
  container: "off",
  finish: "",
  cutOff: false,
  late: false,
  lives: 1,
}

const IDLE: Key = { dirty: false, due: 0, awaits: [], work: undefined }

/** Returns a Launch that this leader has just written. */
export function newLaunch(object: number): LaunchState {
  return {
    ...IDLE,
    ...{
      object,
      cached: 0,
      sight: "unknown",
      silent: false,
      inherited: false,
      unanswered: false,
      failingSince: -1,
      askedAt: -1,
      vm: NO_VM,
    },
  }
}

/** Returns a world with a new job that no controller has reconciled. */
export function newWorld(job: StoredJob, faults: number): World {
  const object = JOB_VERSIONS.of(job)
  const base = { tick: 0, faults, cancelled: false, deleted: false }
  return { ...base, job: { ...IDLE, object, cached: object, dirty: true }, launches: [], straggler: undefined }
}

function workKey(work: Work | undefined): string {
  return work === undefined ? "" : `${work.decision}.${work.step}.${work.on}.${work.half}`
}

function keyKey({ dirty, due, awaits, work }: Key): string {
  return `${Number(dirty)},${due},${awaits.join("")},${workKey(work)}`
}

function launchKey(launch: LaunchState): string {
  const { object, cached, sight, silent, inherited, unanswered, failingSince, askedAt, vm } = launch
  const flags = Number(silent) + 2 * Number(inherited) + 4 * Number(unanswered)
  return `${keyKey(launch)},${object},${cached},${sight},${flags},${failingSince},${askedAt},${vmKey(vm)}`
}

function vmKey({ power, preempted, createdAt, container, finish, cutOff, late, lives }: VmState): string {
  const flags = Number(preempted) + 2 * Number(cutOff) + 4 * Number(late)
  return `${power},${createdAt},${container},${finish},${flags},${lives}`
}

export function worldKey({ tick, faults, cancelled, deleted, job, launches, straggler }: World): string {
  const late = straggler === undefined ? "" : `${straggler.of}:${workKey(straggler.work)}`
  const head = [tick, faults, Number(cancelled), Number(deleted), late, keyKey(job), job.object, job.cached]
  return `${head.join(",")}|${launches.map(launchKey).join("|")}`
}

/** Returns the world with one Launch changed. `number` counts from 1. */
export function withLaunch(world: World, number: number, change: Partial<LaunchState>): World {
  const launches = world.launches.map((launch, index) => (index === number - 1 ? { ...launch, ...change } : launch))
  return { ...world, launches }
}

export function withVm(world: World, number: number, change: Partial<VmState>): World {
  const launch = launchAt(world, number)
  return withLaunch(world, number, { vm: { ...launch.vm, ...change } })
}

export function withJob(world: World, change: Partial<World["job"]>): World {
  return { ...world, job: { ...world.job, ...change } }
}

/** @throws Error if there never was such a Launch */
export function launchAt(world: World, number: number): LaunchState {
  const launch = world.launches[number - 1]
  if (launch === undefined) throw new Error(`there never was a Launch ${number}`)
  return launch
}

export function jobOf(world: World): StoredJob | undefined {
  return JOB_VERSIONS.get(world.job.object)
}

export function launchOf(launch: LaunchState): StoredLaunch | undefined {
  return LAUNCH_VERSIONS.get(launch.object)
}

/** Returns the fields of a status that describe its end; undefined before the end. */
export function endOf(status: JobStatus | undefined): string | undefined {
  return status?.completionTime === undefined ? undefined : `${status.phase} (${status.reason})`
}
