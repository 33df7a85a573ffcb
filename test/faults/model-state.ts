import type { JobStatus, StoredJob } from "../../src/apis/job.ts"
import type { StoredLaunch } from "../../src/apis/launch.ts"
import { at } from "../controllers/builders.ts"

/** A number for each different object: equal ones have the same. 0 stands for none. */
export class Interned<T> {
  readonly #numbers = new Map<string, number>()
  readonly #objects: (T | undefined)[] = [undefined]
  readonly #derived = new Map<string, number>()

  /** Keeps the object as the API server would: as JSON. */
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

  /** What is made of an object in a way that depends on nothing else: `way` names it. 0 of none. */
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

/** Versions of the job and of its Launches. What has the same content counts as the same version. */
export const JOB_VERSIONS: Interned<StoredJob> = new Interned()
export const LAUNCH_VERSIONS: Interned<StoredLaunch> = new Interned()

/** One step of time, seconds: longer than the boot deadline, so that whatever is late is late after one. */
export const TICK_SECONDS = 1000

export function clockAt(ticks: number): Date {
  return at(ticks * TICK_SECONDS)
}

/** The tick at which something is due that many seconds after another one. */
export function dueAfter(tick: number, seconds: number): number {
  return tick + Math.max(1, Math.ceil(seconds / TICK_SECONDS))
}

/** A reconcile under way: what was decided, how far it has come, upon which version it writes. */
export interface Work {
  /** Number of the decision. */
  decision: number
  step: number
  /** The version that was decided on, or was written by this reconcile since. */
  on: number
  /** A first half of the step is done: what it brought (0: nothing yet). */
  half: number
}

/** What the operator's queue knows of a key. */
export interface Key {
  /** To be reconciled. */
  dirty: boolean
  /** The tick at which it is to be reconciled again; 0: none. */
  due: number
  /** What its caches must show first: `jobs`, `launches`, both or nothing. */
  awaits: readonly ("jobs" | "launches")[]
  work: Work | undefined
}

/** What a cloud's list told last. */
export type Sight = "unknown" | "running" | "terminating" | "absent" | "preempted"

export interface VmState {
  power: "none" | "up" | "ending" | "gone"
  preempted: boolean
  createdAt: number
  /** `ready`: the agent was told what to run. */
  container: "off" | "ready" | "running" | "ended"
  finish: "" | "Succeeded" | "ContainerFailed" | "Stopped"
  /** The agent doesn't reach the gateway. */
  cutOff: boolean
  /** Made, or called over, by a call of a leader that had gone: only the sweep finds it. */
  late: boolean
}

export interface LaunchState extends Key {
  /** The API server's version, and the operator's cache's; 0: there is none. */
  object: number
  cached: number
  sight: Sight
  silent: boolean
  /** What the leader knows of calls to the cloud; see CloudCalls. */
  inherited: boolean
  unanswered: boolean
  /** Since which tick this leader's attempts have met only faults; -1: they haven't. */
  failingSince: number
  /** The tick at which this leader asked for the VM's end; -1: it didn't. */
  askedAt: number
  vm: VmState
}

export interface World {
  tick: number
  /** Faults that may still happen. */
  faults: number
  cancelled: boolean
  deleted: boolean
  job: Key & { object: number; cached: number }
  launches: readonly LaunchState[]
  /** A write or call of a leader that has died which is still on its way. */
  straggler: { of: "job" | number; work: Work } | undefined
}

const NO_VM: VmState = {
  power: "none",
  preempted: false,
  createdAt: 0,
  container: "off",
  finish: "",
  cutOff: false,
  late: false,
}

const IDLE: Key = { dirty: false, due: 0, awaits: [], work: undefined }

/** A Launch that has just been written by this leader. */
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

/** A job that nobody has looked at yet. */
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

function vmKey({ power, preempted, createdAt, container, finish, cutOff, late }: VmState): string {
  const flags = Number(preempted) + 2 * Number(cutOff) + 4 * Number(late)
  return `${power},${createdAt},${container},${finish},${flags}`
}

export function worldKey({ tick, faults, cancelled, deleted, job, launches, straggler }: World): string {
  const late = straggler === undefined ? "" : `${straggler.of}:${workKey(straggler.work)}`
  const head = [tick, faults, Number(cancelled), Number(deleted), late, keyKey(job), job.object, job.cached]
  return `${head.join(",")}|${launches.map(launchKey).join("|")}`
}

/** The world with one Launch changed. `number` counts from 1. */
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

/** @throws Error when there never was one */
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

/** What of a status tells its end; undefined while there is none. */
export function endOf(status: JobStatus | undefined): string | undefined {
  return status?.completionTime === undefined ? undefined : `${status.phase} (${status.reason})`
}
