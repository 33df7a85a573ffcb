import { isOver, type StoredLaunch } from "../../src/core/apis/launch.ts"
import { idlenessOf, isKept, whyNotTakeable } from "../../src/core/reuse/reuse.ts"
import type { Step } from "./model-explorer.ts"
import { LAUNCH_VERSIONS } from "./model-state.ts"
import {
  added,
  clockAt,
  type JobState,
  type LaunchState,
  launchAt,
  launchObject,
  objectAt,
  put,
  type World,
  withJob,
} from "./warm-state.ts"

/** Maximum number of Launches of a job. */
const LAUNCHES_OF_A_JOB = 3

interface Known {
  number: number
  state: LaunchState
  object: StoredLaunch | undefined
}

/**
 * Returns the next steps of the job controller, whose decisions are simple here: a job asks for a Launch until one of
 * them has finished. It sees Launches as the cache does, which may be late. The first step is the fair one.
 */
export function jobSteps(world: World): Step<World>[] {
  return world.jobs.flatMap((job, index) => (job.gone ? [] : stepsOf(world, job, index + 1)))
}

function stepsOf(world: World, job: JobState, number: number): Step<World>[] {
  const own = launchesOf(world, job, number)
  if (own === undefined) return []
  const alive = own.filter(({ object }) => object !== undefined && !isOver(object))
  if (job.asked === "deleted" && alive.length === 0) {
    const next = withJob(world, number, { gone: true, end: job.end || "cancelled" })
    return [{ name: `job ${number} is deleted`, next }]
  }
  const unwanted = job.asked === "deleted" ? alive : alive.filter(({ object }) => object && !isKept(object))
  if (job.asked === "deleted" || job.end !== "") return ends(world, unwanted)
  if (job.asked === "cancelled" && alive.length === 0) return [concluded(world, number, "cancelled")]
  if (job.asked === "cancelled") return ends(world, alive)
  return goesOn(world, number, own)
}

/** Returns a job's Launches, oldest first; undefined while the cache lacks one of them. A deleted job is read live. */
function launchesOf(world: World, { asked }: JobState, number: number): Known[] | undefined {
  const own: Known[] = []
  for (const [index, state] of world.launches.entries()) {
    if (state.job !== number) continue
    if (state.cached === 0 && state.object !== 0) return undefined
    own.push({
      number: index + 1,
      state,
      object: LAUNCH_VERSIONS.get(asked === "deleted" ? state.object : state.cached),
    })
  }
  return own
}

function goesOn(world: World, number: number, own: Known[]): Step<World>[] {
  const newest = own.at(-1)
  if (newest?.object?.status?.agent?.finish !== undefined) return [concluded(world, number, "finished")]
  if (newest?.object !== undefined && !isOver(newest.object))
    return isBootLate(world, newest.object) ? ends(world, [newest]) : []
  if (own.length >= LAUNCHES_OF_A_JOB) return [concluded(world, number, "failed")]
  return requests(world, { job: number, number: own.length + 1 })
}

/** Returns true if the VM of a Launch had the time to boot, and its agent has not registered. */
function isBootLate(world: World, { metadata, spec, status }: StoredLaunch): boolean {
  const since = status?.vm?.createTime ?? metadata.creationTimestamp
  const seconds = (clockAt(world.tick).getTime() - Date.parse(since)) / 1000
  return status?.agent === undefined && seconds >= spec.bootDeadlineSeconds
}

function concluded(world: World, number: number, end: JobState["end"]): Step<World> {
  return { name: `job ${number} has ${end}`, next: withJob(world, number, { end }) }
}

/** Returns the writes that end Launches, in the version that was decided on. */
function ends(world: World, launches: readonly Known[]): Step<World>[] {
  return launches.flatMap(({ number, state, object }) => {
    const version = object && LAUNCH_VERSIONS.of(object)
    if (object === undefined || object.spec.ended === true || version !== state.object) return []
    const generation = object.metadata.generation + 1
    const ended = { ...object, metadata: { ...object.metadata, generation }, spec: { ...object.spec, ended: true } }
    return [{ name: `the job controller ends Launch ${number}`, next: put(world, number, ended).world }]
  })
}

/** Returns the requests of a new Launch: for each VM that is idle in the cache, and for a new VM. */
function requests(world: World, { job, number }: Pick<LaunchState, "job" | "number">): Step<World>[] {
  const idle = world.launches.flatMap((_, index) => (isTakeable(world, index + 1, { job, number }) ? [index + 1] : []))
  const steps = idle.map((takes) => ({
    name: `job ${job} asks for the VM of Launch ${takes}`,
    next: requested(world, { job, number, takes }),
  }))
  return [...steps, { name: `job ${job} asks for a new VM`, next: requested(world, { job, number, takes: 0 }) }]
}

function isTakeable(world: World, holder: number, own: Pick<LaunchState, "job" | "number">): boolean {
  const cached = LAUNCH_VERSIONS.get(launchAt(world, holder).cached)
  if (cached === undefined || idlenessOf(cached).is !== "idle") return false
  return whyNotTakeable(launchObject(world.tick, own, cached), cached, clockAt(world.tick)) === undefined
}

/** Returns the world with the Launch, unless there is one of this name. */
export function requested(world: World, own: Pick<LaunchState, "job" | "number" | "takes">): World {
  const { takes } = own
  if (world.launches.some(({ job, number }) => job === own.job && number === own.number)) return world
  // What the job controller knows of the holder is in the cache. None of it changes later.
  const holder =
    takes === 0 ? undefined : (LAUNCH_VERSIONS.get(launchAt(world, takes).cached) ?? objectAt(world, takes))
  if (takes !== 0 && holder === undefined) return world
  return added(world, launchObject(world.tick, own, holder), own)
}
