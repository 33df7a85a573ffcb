import { randomUUID } from "node:crypto"
import type { StoredJob } from "../../apis/job.ts"
import { invalidRequest, nameConflict, type Problem, unavailable } from "../../http/problem.ts"
import type { CallerClient } from "../../identity/principal.ts"
import { isAlreadyExists, isInvalid, isNotFound } from "../../kube/errors.ts"
import { JOBS } from "../caches.ts"
import type { CreationTimes } from "../created-at.ts"
import { type Idempotency, replayed, requestHash, type Turns, usedKey } from "../idempotency.ts"
import { faultsOfRefusal } from "../refusal.ts"
import { jobOf } from "./job.ts"
import type { Jobs } from "./jobs.ts"
import { generatedName } from "./name.ts"
import type { JobSubmission } from "./schema.ts"

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
    throw unavailable("Every name that was made up is taken: send the request again.")
  }

  /** The Job as stored; undefined when its name is taken. */
  async #tryToCreate(job: StoredJob, dryRun: boolean): Promise<StoredJob | undefined> {
    try {
      return await this.#options.client.create(JOBS, job, { dryRun })
    } catch (error) {
      if (isAlreadyExists(error)) return undefined
      if (isInvalid(error)) throw invalidRequest(faultsOfRefusal(error), "The job")
      if (isNotFound(error)) throw unavailable("The project is not ready to take jobs yet.", 5, error)
      throw error
    }
  }
}

function nameTaken(name: string): Problem {
  return nameConflict(`A job named ${JSON.stringify(name)} exists in this project: choose another name.`, name)
}
