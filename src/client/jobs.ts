import { type BerthClient, type JobRecord, type JobStatus, readBody } from "./client.ts"
import { delay } from "./delay.ts"
import { ApiError } from "./errors.ts"
import { type Deleted, readChanges } from "./events.ts"

const ENDED: readonly JobStatus[] = ["succeeded", "failed", "cancelled"]

/** True if the job's status can't change any more. */
export function isEnded({ status }: Pick<JobRecord, "status">): boolean {
  return ENDED.includes(status)
}

export function readJob(client: BerthClient, id: string, signal?: AbortSignal): Promise<JobRecord> {
  return readBody(client.api.GET("/jobs/{id}", { params: { path: { id } }, ...(signal !== undefined && { signal }) }))
}

/** Shortest and longest time between two reads of a job, where the API has no stream of events, seconds. */
const POLL_SECONDS = { least: 1, most: 5 }

/**
 * Returns the records of different jobs now, and each again after its changes. Uses one stream of events of the API for all. An API
 * without streams left is asked every few seconds. Ends when all jobs have ended.
 * @throws ApiError, such as 404 after a job is deleted
 */
export async function* watchJobs(
  client: BerthClient,
  names: readonly string[],
  signal?: AbortSignal,
): AsyncGenerator<JobRecord, void, void> {
  const unfinished = new Map<string, JobRecord | undefined>()
  for await (const job of recordsOf(client, names, signal)) {
    const shown = unfinished.get(job.id)
    if (job.updated_at !== shown?.updated_at || job.status !== shown.status) yield job
    unfinished.set(job.id, job)
    if ([...unfinished.values()].every((one) => one !== undefined && isEnded(one)) && unfinished.size >= names.length)
      return
  }
}

async function* recordsOf(
  client: BerthClient,
  names: readonly string[],
  signal?: AbortSignal,
): AsyncGenerator<JobRecord, void, void> {
  const read = () => Promise.all(names.map((name) => readJob(client, name, signal)))
  const first = await read()
  yield* first
  const ids = new Set(first.map(({ id }) => id))
  try {
    for await (const change of readChanges(client, signal)) {
      if (change.event === "reset") yield* await read()
      else if (change.event === "job" && ids.has(change.record.id)) yield await present(client, change.record, signal)
    }
  } catch (error) {
    if (!isMissing(error) && !(error instanceof ApiError && error.status === 429)) throw error
  }
  for (let wait = POLL_SECONDS.least; ; wait = Math.min(POLL_SECONDS.most, wait * 1.5)) {
    await delay(wait * 1000, signal)
    yield* await read()
  }
}

/** Returns the record of a change. That of a deleted job has only its name: reading it gives the error for the caller. */
async function present(
  client: BerthClient,
  record: JobRecord | Deleted,
  signal: AbortSignal | undefined,
): Promise<JobRecord> {
  return "deleted" in record ? readJob(client, record.id, signal) : record
}

/** True if the API has no such operation. */
export function isMissing(error: unknown): boolean {
  return error instanceof ApiError && (error.status === 404 || error.status === 405)
}

/** Returns for each job the first record that meets the condition, or the record of its end. */
export async function waitFor(
  client: BerthClient,
  names: readonly string[],
  isMet: (job: JobRecord) => boolean,
  signal?: AbortSignal,
): Promise<JobRecord[]> {
  const found = new Map<string, JobRecord>()
  // A job may be there twice, by its name and by its id.
  const jobs = await Promise.all(names.map((name) => readJob(client, name, signal)))
  const ids = [...new Set(jobs.map(({ id }) => id))]
  for await (const job of watchJobs(client, ids, signal)) {
    if (!found.has(job.id) && (isMet(job) || isEnded(job))) found.set(job.id, job)
    if (found.size >= ids.length) break
  }
  return [...found.values()]
}
