import type { JobRecord, JobStatus } from "../client/client.ts"
import type { Deleted } from "../client/events.ts"
import { prerequisiteText } from "../client/job-grammar.ts"

/** Selection of jobs, with the words of GET /jobs. */
export interface JobSelection {
  /** Empty: any. */
  statuses: readonly JobStatus[]
  tags: readonly string[]
  labels: readonly (readonly [string, string])[]
  /** Array that created them: its id, or its name in a list. Absent: any, or none. */
  array?: string | undefined
  /** Job or array that the jobs name in `after`: a job's name, or `array/NAME`. Absent: any, or none. */
  after?: string | undefined
  /** Part of the name. Absent: any. */
  namePart?: string | undefined
}

/** True if a list of this selection has the job. */
export function isSelected(selection: JobSelection, job: JobRecord): boolean {
  const { statuses, tags, labels, array, after, namePart } = selection
  return (
    (namePart === undefined || job.name.includes(namePart)) &&
    (array === undefined || job.array_id === array) &&
    (after === undefined || (job.after ?? []).some(({ outcome: _, ...name }) => prerequisiteText(name) === after)) &&
    (statuses.length === 0 || statuses.includes(job.status)) &&
    tags.every((tag) => job.tags.includes(tag)) &&
    labels.every(([name, value]) => job.labels[name] === value)
  )
}

/** The newest jobs of a selection. One list begins it, and events keep it up to date without further lists. */
export class LiveJobs {
  readonly #selection: JobSelection
  readonly #limit: number
  #known = new Map<string, JobRecord>()
  /** Number of jobs that match, and are too old for the list. */
  #older = 0

  constructor(selection: JobSelection, limit: number) {
    this.#selection = selection
    this.#limit = limit
  }

  /** Newest first. */
  get jobs(): JobRecord[] {
    return [...this.#known.values()].sort(newestFirst)
  }

  /** True if older jobs must be read: there are some, and places for them. */
  get isIncomplete(): boolean {
    return this.#older > 0 && this.#known.size < this.#limit
  }

  /** Begins again with a list. */
  replace(jobs: readonly JobRecord[], total: number): void {
    this.#known = new Map(jobs.map((job) => [job.id, job]))
    this.#older = Math.max(0, total - jobs.length)
  }

  /** Takes the record of an event. Returns true if the job was in the list, or is now. */
  apply(record: JobRecord | Deleted): boolean {
    const before = this.#known.get(record.id)
    if ("deleted" in record || !isSelected(this.#selection, record)) return this.#known.delete(record.id)
    // Events may repeat what a list already had.
    if (before !== undefined && before.updated_at > record.updated_at) return false
    this.#known.set(record.id, record)
    this.#dropOldest()
    return before !== undefined || this.#known.has(record.id)
  }

  #dropOldest(): void {
    if (this.#known.size <= this.#limit) return
    const oldest = this.jobs.at(-1)
    if (oldest !== undefined && this.#known.delete(oldest.id)) this.#older++
  }
}

export function newestFirst(a: JobRecord, b: JobRecord): number {
  return b.created_at.localeCompare(a.created_at)
}
