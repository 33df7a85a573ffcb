import { JOB_NAME_PATTERN, type JobPhase, type StoredJob } from "../apis/job.ts"
import { findOrCatchUp, NAMESPACE_INDEX } from "../identity/catch-up.ts"
import type { CallerClient } from "../identity/principal.ts"
import { isConflict, isNotFound } from "../kube/errors.ts"
import type { Store } from "../kube/store.ts"
import { IDEMPOTENCY_KEY_INDEX, inNamespace, JOBS, JobIndex } from "./caches.ts"
import { newest } from "./created-at.ts"
import { notFound, Problem, unavailable } from "./problem.ts"
import type { Page } from "./query.ts"
import { statusOf } from "./translate/record.ts"
import { UUID } from "./translate/submission.ts"

export interface JobFilter {
  status?: JobPhase | undefined
  /** All of them. */
  tags: string[]
  /** All of them. */
  labels: { key: string; value: string }[]
}

/** How often a cancel is tried against a job that changes at the same time. */
const CANCEL_ATTEMPTS = 8

/** How long an answer to a write waits for the cache to show it; a broken watch must not hold it up longer. */
const ECHO_MS = 1000

const NAME = new RegExp(JOB_NAME_PATTERN)

/** Reads from the cache and changes the Jobs of one project on a caller's behalf. */
export class Jobs {
  readonly #client: CallerClient
  readonly #store: Store<StoredJob>
  readonly #namespace: string

  constructor(client: CallerClient, store: Store<StoredJob>, namespace: string) {
    this.#client = client
    this.#store = store
    this.#namespace = namespace
  }

  /** A page of the jobs that pass the filter, newest first, and how many there are. */
  list(filter: JobFilter, { limit, offset }: Page): { jobs: StoredJob[]; total: number } {
    const jobs = this.#candidates(filter).filter((job) => passes(job, filter))
    return { jobs: newest(jobs, offset + limit).slice(offset), total: jobs.length }
  }

  /** The jobs that the most selective index of the filter gives. */
  #candidates({ status, tags, labels }: JobFilter): StoredJob[] {
    const [label] = labels
    if (label !== undefined) return this.#indexed(JobIndex.label, label.key, label.value)
    if (tags[0] !== undefined) return this.#indexed(JobIndex.tag, tags[0])
    if (status !== undefined) return this.#indexed(JobIndex.status, status)
    return this.#store.byIndex(NAMESPACE_INDEX, this.#namespace)
  }

  #indexed(index: string, ...parts: string[]): StoredJob[] {
    return this.#store.byIndex(index, inNamespace(this.#namespace, ...parts))
  }

  /** The job of this id or, when there is none, of this name. Throws Problem 404. */
  async find(idOrName: string): Promise<StoredJob> {
    const job = await (UUID.test(idOrName.toLowerCase()) ? this.#byId(idOrName.toLowerCase()) : this.#byName(idOrName))
    if (job === undefined) throw notFound(`There is no job with the id or name ${JSON.stringify(idOrName)}.`)
    return job
  }

  #byId(uid: string): Promise<StoredJob | undefined> {
    const cached = { client: this.#client, resource: JOBS, store: this.#store }
    return findOrCatchUp(cached, this.#namespace, () => {
      const job = this.#store.getByUid(uid)
      return job?.metadata.namespace === this.#namespace ? job : undefined
    })
  }

  async #byName(name: string): Promise<StoredJob | undefined> {
    // What can't be a name must not become a part of the API server's URL.
    if (!NAME.test(name)) return undefined
    return this.#store.get({ namespace: this.#namespace, name }) ?? (await this.read(name))
  }

  /** The job as the API server has it now. */
  async read(name: string): Promise<StoredJob | undefined> {
    try {
      return await this.#client.get(JOBS, { namespace: this.#namespace, name })
    } catch (error) {
      if (isNotFound(error)) return undefined
      throw error
    }
  }

  /** The job that a request with this Idempotency-Key made before. */
  madeBy(idempotencyKey: string): Promise<StoredJob | undefined> {
    const cached = { client: this.#client, resource: JOBS, store: this.#store }
    return findOrCatchUp(cached, this.#namespace, () => this.#indexed(IDEMPOTENCY_KEY_INDEX, idempotencyKey)[0])
  }

  /**
   * Cancels; a cancelled job stays so. The patch holds only for the very state in which the job was seen not to have
   * ended, so that a job that has ended is never marked as cancelled. Throws Problem 404, and 409 when it has ended.
   */
  async cancel(idOrName: string): Promise<StoredJob> {
    const { name, uid } = (await this.find(idOrName)).metadata
    for (let attempt = 0; attempt < CANCEL_ATTEMPTS; attempt++) {
      const job = await this.read(name)
      if (job?.metadata.uid !== uid) throw notFound(`The job ${JSON.stringify(idOrName)} was deleted just now.`)
      const status = statusOf(job)
      if (status === "cancelled") return job
      if (status === "succeeded" || status === "failed") throw alreadyEnded(name, status)
      const cancelled = await this.#tryToCancel(job)
      if (cancelled !== undefined) return this.#echoed(cancelled)
    }
    throw unavailable(`The job ${name} changes too fast to be cancelled right now.`)
  }

  /** The cancelled job; undefined when it has changed since it was read. */
  async #tryToCancel({ metadata }: StoredJob): Promise<StoredJob | undefined> {
    const { resourceVersion, uid } = metadata
    const merge = { metadata: { resourceVersion, uid }, spec: { cancelled: true } }
    try {
      return await this.#client.patch(JOBS, metadata, { merge })
    } catch (error) {
      if (isConflict(error) || isNotFound(error)) return undefined
      throw error
    }
  }

  /** Waits until the cache shows a write, so that its caller finds it in the next list. */
  async #echoed(job: StoredJob): Promise<StoredJob> {
    await this.awaitEcho(job)
    return job
  }

  /** Resolves when the cache shows the job's version, or after a second. */
  async awaitEcho({ metadata }: StoredJob): Promise<void> {
    const patience = AbortSignal.timeout(ECHO_MS)
    await this.#store.waitFor(metadata.resourceVersion, patience).catch((error: unknown) => {
      if (!patience.aborted) throw error
    })
  }
}

function passes(job: StoredJob, { status, tags, labels }: JobFilter): boolean {
  if (status !== undefined && statusOf(job) !== status) return false
  if (!tags.every((tag) => job.spec.tags?.includes(tag))) return false
  return labels.every(({ key, value }) => {
    const own = job.spec.labels ?? {}
    return Object.hasOwn(own, key) && own[key] === value
  })
}

function alreadyEnded(name: string, status: JobPhase): Problem {
  const detail = `The job ${name} has ${status} already: there is nothing to cancel.`
  return new Problem({ type: "already-ended", status: 409, detail })
}
