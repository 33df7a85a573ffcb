import type { ArrayRecord } from "../client/arrays.ts"
import type { JobRecord } from "../client/client.ts"
import { prerequisiteText } from "../client/job-grammar.ts"

/** Order of jobs and arrays, as the pages show it. */

/** Name of a job or an array, as records have it. */
export type OrderName = Pick<NonNullable<JobRecord["after"]>[number], "job" | "array">

type Prerequisite = NonNullable<JobRecord["after"]>[number]

/** Outcomes that are waited for, in words. */
export const NEEDS: Record<Prerequisite["outcome"], string> = {
  succeeded: "success needed",
  failed: "failure needed",
  ended: "any end counts",
}

/** Returns a name as people type it: that of a job, or `array/NAME`. */
export function nameText({ job, array }: OrderName): string {
  return prerequisiteText({ job, array })
}

/** Returns the path of the page of a job or an array, within its project. */
export function pathOf({ job, array }: OrderName): string {
  return job === null ? `/arrays/${encodeURIComponent(array ?? "")}` : `/jobs/${encodeURIComponent(job)}`
}

/** Returns true if both name the same object. */
export function isSame(one: OrderName, other: OrderName): boolean {
  return one.job === other.job && one.array === other.array
}

/** Returns names in a sentence, such as `train, array/sweep and 3 more`. @param total number of all names */
export function namesText(names: readonly OrderName[], total: number): string {
  const text = names.map(nameText).join(", ")
  return total > names.length ? `${text} and ${total - names.length} more` : text
}

/** Object that has the name of a prerequisite now. */
export type Found = Pick<JobRecord | ArrayRecord, "id" | "status">

/** State of a prerequisite: a status, a sentence, or both. */
export interface Standing {
  status?: JobRecord["status"]
  note?: string
}

/** Job or array that waits. */
export type Waiting = Pick<JobRecord, "after" | "waits_for" | "status" | "started_at"> | ArrayWaiting
type ArrayWaiting = Pick<ArrayRecord, "after" | "waits_for" | "status" | "counts">

/** Returns the state of a prerequisite, of the object that counts: the first one of its name. @param found null: none now */
export function standingOf(waiting: Waiting, prerequisite: Prerequisite, found: Found | null): Standing {
  const awaited = waiting.waits_for?.find((one) => isSame(one, prerequisite))
  if (awaited !== undefined) {
    if (found !== null && (awaited.id === null || awaited.id === found.id)) return { status: found.status }
    return { note: awaited.id === null ? "doesn't exist yet" : "was deleted before it ended" }
  }
  const { outcome } = prerequisite
  const isKnown = isPast(waiting)
  // The object of this name may be a later one, which doesn't count.
  if (isKnown && outcome !== "ended") return { status: outcome }
  if (found === null) return { note: isKnown ? "ended, and is deleted" : "doesn't exist" }
  return isKnown && !ENDS.includes(found.status) ? { note: "ended" } : { status: found.status }
}

const ENDS: readonly JobRecord["status"][] = ["succeeded", "failed", "cancelled"]

/** Returns true if all that a job or an array no longer waits for ended as it needs. */
function isPast(waiting: Waiting): boolean {
  const { status } = waiting
  if (status !== "failed" && status !== "cancelled") return true
  if (!("counts" in waiting)) return waiting.started_at !== null
  const { queued, booting, running, succeeded, failed } = waiting.counts
  return queued + booting + running + succeeded + failed > 0
}

/** Returns the last name of a text such as `prepare, array/sw`, also if it is not complete. */
export function lastName(text: string): string {
  return /[^\s,:]*(?=(:[^\s,]*)?$)/.exec(text)?.[0] ?? ""
}

/**
 * Returns what the text of `after` may become: each name that it doesn't have yet, and for a complete name its outcomes.
 * @param names as people type them
 */
export function completions(text: string, names: readonly string[]): string[] {
  const [before = ""] = /^.*[\s,]/.exec(text) ?? []
  const chosen = before.split(/[\s,]+/).map((one) => one.replace(/:.*$/, ""))
  const last = lastName(text)
  return names
    .filter((name) => !chosen.includes(name))
    .flatMap((name) => (name === last ? [name, `${name}:ended`, `${name}:failed`] : [name]))
    .map((name) => before + name)
}
