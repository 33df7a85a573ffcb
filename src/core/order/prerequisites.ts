import { isTerminal, type JobPhase, JobReason } from "../apis/job.ts"
import { type ArrayPhase, hasArrayEnded } from "../apis/jobarray.ts"
import type { ObjectMeta } from "../apis/meta.ts"
import {
  isMet,
  isSamePrerequisite,
  type ObservedPrerequisite,
  type Prerequisite,
  type PrerequisiteName,
  type PrerequisiteOutcome,
  prerequisiteText,
} from "../apis/prerequisites.ts"

/** Decisions on what waits for other jobs and arrays. Pure: the operator and the planner use the same ones. */

/** Job or array, as a prerequisite and as a dependent. */
export interface Orderable {
  metadata: Pick<ObjectMeta, "name" | "namespace"> & { uid?: string; deletionTimestamp?: string }
  spec: { after?: readonly Prerequisite[]; cancelled?: boolean }
  status?: {
    phase?: JobPhase | ArrayPhase
    reason?: string
    after?: readonly ObservedPrerequisite[]
    startTime?: string
    completionTime?: string
  }
}

/** Present knowledge about one prerequisite. */
export interface PrerequisiteState {
  prerequisite: Prerequisite
  /** Uid of the object that had the name first. Absent: there was none so far. */
  uid?: string
  /** Absent: it has not ended. */
  outcome?: PrerequisiteOutcome
  /** Present state of a job or an array that has not ended, for people, such as `running since 2026-01-01T00:00:00Z`. */
  progress?: string
}

/** Returns how a job ended; undefined if it has not. */
function jobOutcome({ status }: Orderable): PrerequisiteOutcome | undefined {
  const phase = status?.phase as JobPhase | undefined
  return isTerminal(phase) ? (phase as PrerequisiteOutcome) : undefined
}

/** Returns how an array ended; undefined if it has not. One that runs again has not. */
function arrayOutcome({ status }: Orderable): PrerequisiteOutcome | undefined {
  return hasArrayEnded({ status: status as never }) ? (status?.phase as PrerequisiteOutcome) : undefined
}

/** Returns how a job or an array ended; undefined if it has not. */
export function outcomeOf(name: PrerequisiteName, object: Orderable): PrerequisiteOutcome | undefined {
  return name.job === undefined ? arrayOutcome(object) : jobOutcome(object)
}

/** Returns what a status knows of a prerequisite. */
export function recordOf(name: PrerequisiteName, { status }: Pick<Orderable, "status">) {
  return status?.after?.find((record) => isSamePrerequisite(record, name))
}

/**
 * Returns the state of a prerequisite.
 * @param record what the dependent's status knows of it
 * @param object the object that has its name now
 */
export function prerequisiteState(
  prerequisite: Prerequisite,
  record: ObservedPrerequisite | undefined,
  object: Orderable | undefined,
): PrerequisiteState {
  if (record?.outcome !== undefined) return { prerequisite, uid: record.uid, outcome: record.outcome }
  const uid = object?.metadata.uid
  if (record !== undefined && record.uid !== uid) return { prerequisite, uid: record.uid, outcome: "deleted" }
  if (object === undefined || uid === undefined) return { prerequisite }
  const outcome = outcomeOf(prerequisite, object)
  if (outcome !== undefined) return { prerequisite, uid, outcome }
  // One that is being deleted is not the one that was meant, unless it was there before.
  const isGoing = object.metadata.deletionTimestamp !== undefined
  if (isGoing && record === undefined) return { prerequisite }
  return { prerequisite, uid, progress: isGoing ? "being deleted" : progressOf(prerequisite, object) }
}

function progressOf({ job }: PrerequisiteName, { status = {} }: Orderable): string {
  const { phase = "queued", reason, startTime } = status
  if (job !== undefined && phase === "running" && startTime !== undefined) return `running since ${startTime}`
  const isExplained = phase === "queued" && reason !== undefined && reason !== JobReason.Queued
  return isExplained ? `queued: ${reason}` : phase
}

/** Reason why a dependent doesn't start. */
export interface Obstacle {
  reason: "WaitsForJob" | "JobMissing" | "DependencyFailed" | "DependencyCycle"
  message: string
}

/**
 * Returns why a dependent doesn't start; undefined: all its prerequisites ended as it needs.
 * @param circle names of the objects that wait for each other, the dependent first; undefined: there is none
 */
export function obstacleOf(
  states: readonly PrerequisiteState[],
  circle: readonly string[] | undefined,
): Obstacle | undefined {
  const unmet = states.find(({ prerequisite, outcome }) => outcome !== undefined && !isMet(prerequisite, outcome))
  if (unmet !== undefined) return { reason: "DependencyFailed", message: failureText(unmet) }
  if (circle !== undefined) {
    const message = `each of these waits for the next one: ${circle.join(" → ")}. Cancel one of them`
    return { reason: "DependencyCycle", message }
  }
  const open = states.filter(({ outcome }) => outcome === undefined)
  const missing = open.filter(({ uid }) => uid === undefined)
  if (missing.length > 0) {
    const message = `${listOf(missing.map(nameText))} not there yet. Create ${missing.length === 1 ? "it" : "them"}, or cancel this one`
    return { reason: "JobMissing", message }
  }
  if (open.length === 0) return undefined
  const parts = open.map((state) => `${nameText(state)} (${state.progress ?? "queued"})`)
  return { reason: "WaitsForJob", message: `waits for ${cutList(parts)}` }
}

function nameText({ prerequisite }: PrerequisiteState): string {
  return prerequisiteText(prerequisite)
}

/** Number of prerequisites that a message names. */
const NAMED = 5

function cutList(parts: readonly string[]): string {
  const rest = parts.length - NAMED
  return rest > 0 ? `${parts.slice(0, NAMED).join(", ")} and ${rest} more` : parts.join(", ")
}

function listOf(names: readonly string[]): string {
  return `${cutList(names)} ${names.length === 1 ? "is" : "are"}`
}

function failureText({ prerequisite, outcome }: PrerequisiteState): string {
  const { outcome: awaited = "succeeded" } = prerequisite
  const name = prerequisiteText(prerequisite)
  if (outcome === "deleted") return `${name} was deleted before it ended`
  const what = outcome === "cancelled" ? "was cancelled" : `has ${outcome}`
  return `${name} ${what}, and this one runs only after it has ${awaited}`
}

/** Returns what the next status knows of the prerequisites; undefined: nothing. */
export function observedAfter(states: readonly PrerequisiteState[]): ObservedPrerequisite[] | undefined {
  const known = states.flatMap(({ prerequisite: { job, array }, uid, outcome }) =>
    uid === undefined
      ? []
      : [{ ...(job === undefined ? { array } : { job }), uid, ...(outcome !== undefined && { outcome }) }],
  )
  return known.length === 0 ? undefined : (known as ObservedPrerequisite[])
}

/** Returns the prerequisites whose outcome a dependent's status doesn't have. */
export function openPrerequisites(dependent: Orderable): readonly Prerequisite[] {
  const { after = [] } = dependent.spec
  return after.filter((prerequisite) => recordOf(prerequisite, dependent)?.outcome === undefined)
}

/** Returns true if a job or an array has not ended and lacks the outcome of one of its prerequisites. */
export function isWaiting(name: PrerequisiteName, object: Orderable): boolean {
  return outcomeOf(name, object) === undefined && openPrerequisites(object).length > 0
}

/**
 * Returns the names on a circle of waiting objects, from the dependent to the dependent; undefined: it is on none. Only
 * objects that exist and wait are on one.
 * @param find returns the object with a name
 */
export function findCircle(
  start: PrerequisiteName,
  dependent: Orderable,
  find: (name: PrerequisiteName) => Orderable | undefined,
): string[] | undefined {
  const first = prerequisiteText(start)
  const seen = new Set<string>()
  const path = [{ name: first, left: [...openPrerequisites(dependent)] }]
  for (let last = path.at(-1); last !== undefined; last = path.at(-1)) {
    const next = last.left.shift()
    if (next === undefined) {
      path.pop()
      continue
    }
    const name = prerequisiteText(next)
    if (name === first) return [...path.map((one) => one.name), first]
    if (seen.has(name)) continue
    seen.add(name)
    const object = find(next)
    if (object !== undefined && isWaiting(next, object)) path.push({ name, left: [...openPrerequisites(object)] })
  }
  return undefined
}
