import { randomUUID } from "node:crypto"
import type { CreationTimes } from "../../apis/creation-times.ts"
import type { JobPhase, StoredJob } from "../../apis/job.ts"
import { type Precondition, requireVersion } from "../../http/entity-tags.ts"
import { invalidRequest, nameConflict, notFound, Problem, unavailable } from "../../http/problem.ts"
import type { Page } from "../../http/query.ts"
import type { CallerClient } from "../../identity/principal.ts"
import { isAlreadyExists, isConflict, isInvalid, isNotFound } from "../../kube/errors.ts"
import type { Store } from "../../kube/store.ts"
import { JOBS, JobTerm } from "../caches.ts"
import { Collection, faultsOfRefusal } from "../collection.ts"
import { type Idempotency, replayed, requestHash, Turns, usedKey } from "../idempotency.ts"
import { statusOf } from "./record.ts"
import type { JobSubmission } from "./schema.ts"
import { generatedName, jobOf } from "./submission.ts"

export interface JobFilter {
  status?: JobPhase | undefined
  /** All of them. */
  tags: string[]
  /** All of them. */
  labels: { key: string; value: string }[]
}

/** How often a cancel is tried against a job that changes at the same time. */
const CANCEL_ATTEMPTS = 8

/** Reads from the cache and changes the Jobs of one project on a caller's behalf. */
export class Jobs {
  readonly #client: CallerClient
  readonly #collection: Collection<StoredJob>

  constructor(client: CallerClient, store: Store<StoredJob>, namespace: string) {
    this.#client = client
    // Creation is the Submitter's, which makes up names; no turns are taken here.
    const kind = { noun: "job", resource: JOBS, store, turns: new Turns() }
    this.#collection = new Collection({ ...kind, namespace, reader: client, writer: client })
  }

  /** A page of the jobs that pass the filter, newest first, and how many there are. */
  list({ status, tags, labels }: JobFilter, page: Page): { jobs: StoredJob[]; total: number } {
    const terms = [
      ...(status === undefined ? [] : [JobTerm.status(status)]),
      ...tags.map(JobTerm.tag),
      ...labels.map(({ key, value }) => JobTerm.label(key, value)),
    ]
    const { objects, total } = this.#collection.page(page, terms)
    return { jobs: objects, total }
  }

  /** The job of this id or, when there is none, of this name. Throws Problem 404. */
  find(idOrName: string): Promise<StoredJob> {
    return this.#collection.find(idOrName)
  }

  /** The job as the API server has it now. */
  read(name: string): Promise<StoredJob | undefined> {
    return this.#collection.read(name)
  }

  /** The job that a request with this Idempotency-Key made before. */
  madeBy(idempotencyKey: string): Promise<StoredJob | undefined> {
    return this.#collection.madeBy(idempotencyKey)
  }

  /** The job, when the cache shows it, or after a second. */
  echoed(job: StoredJob): Promise<StoredJob> {
    return this.#collection.echoed(job)
  }

  /**
   * Cancels; a cancelled job stays so. The patch holds only for the very state in which the job was seen not to have
   * ended, so that a job that has ended is never marked as cancelled. A name is that of the job which has it now; another
   * one that gets it meanwhile is left alone.
   * @throws Problem 404, 409 when it has ended, 412, 503
   */
  async cancel(idOrName: string, precondition?: Precondition): Promise<StoredJob> {
    let job = await this.#collection.present(idOrName)
    const { name, uid } = job.metadata
    for (let attempt = 0; attempt < CANCEL_ATTEMPTS; attempt++) {
      const status = statusOf(job)
      if (status === "succeeded" || status === "failed") throw alreadyEnded(name, status)
      requireVersion("job", job, precondition)
      if (status === "cancelled") return job
      const cancelled = await this.#tryToCancel(job)
      if (cancelled !== undefined) return this.echoed(cancelled)
      const present = await this.read(name)
      if (present?.metadata.uid !== uid) throw notFound(`The job ${JSON.stringify(idOrName)} has just been deleted.`)
      job = present
    }
    throw unavailable(`The job ${name} is changed by many requests at once: try again.`)
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
}

function alreadyEnded(name: string, status: JobPhase): Problem {
  const detail = `The job ${name} has already ${status}: it cannot be cancelled.`
  return new Problem({ type: "already-ended", status: 409, detail })
}

/** How many made-up names may turn out to be taken. */
const NAME_ATTEMPTS = 5

export interface SubmitterOptions {
  client: CallerClient
  jobs: Jobs
  namespace: string
  creationTimes: CreationTimes
  /** Shared by all requests of the process, and with other replicas. */
  turns: Turns
}

/** Whether a Job is submitted only to see what would come of it. */
export interface DryRun {
  /** Default false. */
  dryRun?: boolean | undefined
}

interface CreateOptions extends DryRun {
  idempotency?: Idempotency
}

/** Makes Jobs out of checked submissions, one per Idempotency-Key. */
export class Submitter {
  readonly #options: SubmitterOptions

  constructor(options: SubmitterOptions) {
    this.#options = options
  }

  /**
   * Creates the Job, or finds the one that the same request made before. In a dry run the API server judges the Job as
   * if, and nothing is made: what is returned was never stored.
   * @throws Problem 409 name taken, 422 key used for another body, 400 what the API server refuses
   */
  async submit(submission: JobSubmission, idempotencyKey?: string, { dryRun }: DryRun = {}): Promise<StoredJob> {
    const { namespace, turns } = this.#options
    if (idempotencyKey === undefined) return this.#create(submission, { dryRun })
    const idempotency = { key: idempotencyKey, requestHash: requestHash(submission) }
    const known = (): Promise<StoredJob | undefined> => this.earlier(submission, idempotencyKey)
    // In turn, because requests with one key and different names would not meet at the API server.
    const make = async (): Promise<StoredJob> =>
      (await known()) ?? (await this.#create(submission, { idempotency, dryRun }))
    return turns.take(`${JOBS.plural}/${namespace}/${idempotencyKey}`, make, known)
  }

  /** The Job that the same request made before. @throws Problem 422 key used for another body */
  async earlier(submission: JobSubmission, idempotencyKey: string): Promise<StoredJob | undefined> {
    const earlier = await this.#options.jobs.madeBy(idempotencyKey)
    return earlier && replayed(earlier, { key: idempotencyKey, requestHash: requestHash(submission) })
  }

  async #create(submission: JobSubmission, { idempotency, dryRun = false }: CreateOptions): Promise<StoredJob> {
    const { jobs, namespace, creationTimes } = this.#options
    // Concurrent requests with one key, on whatever replicas, try the same names in the same order.
    const seed = idempotency === undefined ? randomUUID() : `${namespace}/${idempotency.key}`
    for (let attempt = 0; attempt < NAME_ATTEMPTS; attempt++) {
      const name = submission.name ?? generatedName(`${seed}/${attempt}`, submission.namePrefix)
      const job = jobOf(submission, { namespace, name, createdAt: creationTimes.next(), idempotency })
      const created = await this.#tryToCreate(job as StoredJob, dryRun)
      if (created !== undefined) return dryRun ? created : jobs.echoed(created)
      const existing = idempotency === undefined ? undefined : await jobs.read(name)
      if (idempotency !== undefined && usedKey(existing) === idempotency.key) return replayed(existing, idempotency)
      if (submission.name !== undefined) throw nameTaken(name)
    }
    throw unavailable("Every generated name is in use: send the request again.")
  }

  /** The Job as stored; undefined when its name is taken. */
  async #tryToCreate(job: StoredJob, dryRun: boolean): Promise<StoredJob | undefined> {
    try {
      return await this.#options.client.create(JOBS, job, { dryRun })
    } catch (error) {
      if (isAlreadyExists(error)) return undefined
      if (isInvalid(error)) throw invalidRequest(faultsOfRefusal(error), "The job")
      if (isNotFound(error)) throw unavailable("The project is not ready for jobs yet: try again.", 5, error)
      throw error
    }
  }
}

function nameTaken(name: string): Problem {
  return nameConflict(`A job named ${JSON.stringify(name)} exists in this project: choose another name.`, name)
}
