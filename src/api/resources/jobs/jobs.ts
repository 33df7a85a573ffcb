import { randomUUID } from "node:crypto"
import { type CreationTimes, creationBound, parseMicroseconds } from "../../../core/apis/creation-times.ts"
import { quote } from "../../../core/apis/field-error.ts"
import type { Job, JobPhase, JobSpec, StoredJob } from "../../../core/apis/job.ts"
import { ANNOTATIONS } from "../../../core/apis/meta.ts"
import { isSubmissionTimely, submissionId } from "../../../core/apis/origin.ts"
import type { CallerClient } from "../../../core/identity/principal.ts"
import { isAlreadyExists, isConflict, isInvalid, isNotFound } from "../../../core/kube/errors.ts"
import type { Match } from "../../../core/kube/page-index.ts"
import type { Store } from "../../../core/kube/store.ts"
import { recordStatus } from "../../../core/records/job.ts"
import { JOBS } from "../../../core/resources.ts"
import { JobTerm } from "../../caches.ts"
import { Changes } from "../../changes.ts"
import { Collection, errorsOfRefusal, type PageFilter } from "../../collection.ts"
import { type Precondition, requireVersion } from "../../http/entity-tags.ts"
import { invalidRequest, nameConflict, notFound, Problem, unavailable } from "../../http/problem.ts"
import type { Page } from "../../http/query.ts"
import { type Idempotency, KeyedMutex, replay, requestHash, requireHeld, usedKey } from "../../idempotency.ts"
import { pageOrder } from "../../sorting.ts"
import { type Creator, groupName, type JobGroup, JobGroups, type Origin, sortedGroups } from "./groups.ts"
import { columnOf, type JobSortField, MEASURED, sortValue } from "./numbers.ts"
import type { JobSubmission } from "./schema.ts"
import { generatedName, type JobIdentity, toJob } from "./submission.ts"

export interface JobFilter {
  status?: JobPhase | undefined
  /** Tags that a job must all have. */
  tags: string[]
  /** Labels that a job must all have. */
  labels: { key: string; value: string }[]
  namePrefix?: string | undefined
  /** Part of the name. */
  namePart?: string | undefined
  /** The job was created at this time or later, RFC 3339. */
  createdAfter?: string | undefined
  /** The job was created earlier, RFC 3339. */
  createdBefore?: string | undefined
  /** The job ended at this time or later, RFC 3339. */
  endedAfter?: string | undefined
  /** The job ended earlier, RFC 3339. */
  endedBefore?: string | undefined
  /** Uid of the CronJob that created the job. */
  cronJob?: string | undefined
  /** Uid of the array that created the job. */
  array?: string | undefined
  /** Name of a prerequisite that `after` has, such as `array/sweep`. */
  after?: string | undefined
}

/** Order of a list of jobs. */
export interface JobSorting {
  sort_by: JobSortField
  sort_order: "asc" | "desc"
  /** Present time, microseconds from 1970: live jobs run and cost until then. */
  now: number
}

function orderOf({ now, ...sorting }: JobSorting): ReturnType<typeof pageOrder> {
  const { sort_by } = sorting
  if (sort_by === "created_at") return pageOrder(sorting)
  return pageOrder(sorting, (match) => sortValue(match, sort_by, now))
}

function pageFilterOf(filter: JobFilter): PageFilter {
  const { status, tags, labels, namePrefix, namePart, createdAfter, createdBefore, endedAfter, endedBefore } = filter
  const { cronJob, array, after } = filter
  const [from, before] = [endedAfter, endedBefore].map((time) =>
    time === undefined ? undefined : parseMicroseconds(time),
  )
  return {
    terms: [
      ...(status === undefined ? [] : [JobTerm.status(status)]),
      ...tags.map(JobTerm.tag),
      ...labels.map(({ key, value }) => JobTerm.label(key, value)),
      ...(cronJob === undefined ? [] : [JobTerm.cronJob(cronJob)]),
      ...(array === undefined ? [] : [JobTerm.array(array)]),
      ...(after === undefined ? [] : [JobTerm.after(after)]),
    ],
    namePrefix,
    namePart,
    from: createdAfter && creationBound(createdAfter),
    before: createdBefore && creationBound(createdBefore),
    numbers: (from ?? before) === undefined ? undefined : { column: columnOf("end"), from, before },
  }
}

/** Attempts to change a job that others change at the same time. */
const CHANGE_ATTEMPTS = 8

/** Jobs of one project. Reads come from the cache, writes have the caller's rights. */
export class Jobs {
  readonly #client: CallerClient
  readonly #collection: Collection<StoredJob>

  constructor(client: CallerClient, store: Store<StoredJob>, namespace: string) {
    this.#client = client
    // The Submitter creates Jobs, because it generates names. This collection only reads, so its mutexes are not used.
    const mutexes = { creations: new KeyedMutex(), changes: new Changes() }
    this.#collection = new Collection({
      noun: "job",
      resource: JOBS,
      store,
      mutexes,
      namespace,
      reader: client,
      writer: client,
    })
  }

  /** Returns a page of the jobs that match the filter, and their number. @param sorting default: newest first */
  list(filter: JobFilter, page: Page, sorting?: JobSorting): { jobs: StoredJob[]; total: number } {
    const { objects, total } = this.#collection.page(page, pageFilterOf(filter), sorting && orderOf(sorting))
    return { jobs: objects, total }
  }

  /** Returns a page of the groups of the jobs that match the filter, each with its newest job, and the number of groups. */
  groups(filter: JobFilter, page: Page, sorting: JobSorting, creatorOf: (origin: Origin) => Creator | undefined) {
    const collected = new JobGroups(sorting.now)
    this.#collection.visit(pageFilterOf(filter), (match) => collected.add(match))
    const newestOf = ({ newestKey }: JobGroup) => this.#collection.at(newestKey)
    const creator = ({ origin }: JobGroup) => origin && creatorOf(origin)
    const nameOf = (group: JobGroup): string => groupName(group, creator(group), () => newestOf(group))
    const all = sortedGroups(collected.groups, sorting, nameOf)
    const shown = all.slice(page.offset, page.offset + page.limit).flatMap((group) => {
      const newest = newestOf(group)
      return newest === undefined ? [] : [{ group, newest, name: nameOf(group), creator: creator(group) }]
    })
    return { groups: shown, total: all.length }
  }

  /** Visits what the index knows of succeeded jobs that were measured, newest first. @param by what created them; default: any */
  visitMeasured(by: Pick<JobFilter, "cronJob" | "array">, use: (match: Match) => void): void {
    const filter = pageFilterOf({ tags: [], labels: [], status: "succeeded", ...by })
    this.#collection.visit({ ...filter, numbers: MEASURED }, use)
  }

  /** Returns the job that a visit has found; undefined if it was deleted since. */
  at(key: string): StoredJob | undefined {
    return this.#collection.at(key)
  }

  /** Returns all jobs that match the filter. */
  all(filter: JobFilter): StoredJob[] {
    return this.list(filter, { offset: 0, limit: Number.MAX_SAFE_INTEGER }).jobs
  }

  /** Returns the job with this id or, if the text isn't a UUID, with this name. @throws Problem 404 */
  find(idOrName: string): Promise<StoredJob> {
    return this.#collection.find(idOrName)
  }

  /** Returns the jobs with these ids or names, or what is wrong with one. One read is enough for all. */
  async findMany(idsOrNames: readonly string[]): Promise<{ name: string; found: StoredJob | string }[]> {
    const jobs = await this.#collection.findMany(idsOrNames)
    return [...jobs].map(([name, job]) => ({ name, found: job ?? this.#collection.unknown(name) }))
  }

  /** Reads the job with this metadata.name from the API server. */
  read(name: string): Promise<StoredJob | undefined> {
    return this.#collection.read(name)
  }

  /** Returns the job that a request with this Idempotency-Key created before. */
  madeBy(idempotencyKey: string): Promise<StoredJob | undefined> {
    return this.#collection.madeBy(idempotencyKey)
  }

  /** Waits until the cache shows the jobs that the API server has now. @throws CacheBehind */
  caughtUp(): Promise<void> {
    return this.#collection.caughtUp()
  }

  /** Waits until the cache shows the written job, at most a second. */
  waitForCache(job: StoredJob): Promise<StoredJob> {
    return this.#collection.waitForCache(job)
  }

  /**
   * Cancels a job. A cancelled job stays cancelled. The patch names the resourceVersion at which the job had not ended:
   * a job that has ended is never cancelled. It also names the uid: a new job with the same name is never cancelled.
   * @param before called with the job if it may be cancelled, before it is
   * @throws Problem 404, 409 if the job has ended, 412, 503
   */
  async cancel(
    idOrName: string,
    precondition?: Precondition,
    before?: (present: StoredJob) => Promise<void>,
  ): Promise<StoredJob> {
    const present = await this.#collection.present(idOrName)
    if (before !== undefined) {
      this.requireUnfinished(present)
      requireVersion("job", present, precondition)
      await before(present)
    }
    const cancelled = await this.cancelFound(present, precondition)
    return cancelled === present ? present : this.waitForCache(cancelled)
  }

  /** Ends the VM that is kept for sessions. @throws Problem 404 if the job keeps none, 503 */
  async endDebug(idOrName: string): Promise<void> {
    let job = await this.#collection.present(idOrName)
    for (let attempt = 0; attempt < CHANGE_ATTEMPTS; attempt++) {
      if (job.status?.keptUntil === undefined) throw notFound(`The job ${quote(job.metadata.name)} keeps no VM.`)
      if (job.spec.debugEnded === true) return
      if ((await this.#tryToChange(job, { debugEnded: true })) !== undefined) return
      job = await this.#collection.present(job.metadata.uid)
    }
    throw changesTooFast(job.metadata.name)
  }

  /** Changes a job's priority in the line. @throws Problem 404, 409 if the job has ended, 412, 503 */
  async prioritize(idOrName: string, priority: number, precondition?: Precondition): Promise<StoredJob> {
    const present = await this.#collection.present(idOrName)
    const isDone = ({ spec }: StoredJob) => (spec.priority ?? 0) === priority
    const changed = await this.#change(present, { priority }, isDone, precondition)
    return changed === present ? present : this.waitForCache(changed)
  }

  /**
   * Cancels a job as `cancel` does. Its state may be stale: the patch fails then, and the job is read again. Does not wait
   * for the cache. @throws Problem 404, 409, 412, 503
   */
  cancelFound(found: StoredJob, precondition?: Precondition): Promise<StoredJob> {
    return this.#change(found, { cancelled: true }, (job) => recordStatus(job) === "cancelled", precondition)
  }

  /**
   * Changes fields of a job's spec. The patch names the resourceVersion at which the job had not ended, and the uid.
   * @param isDone true for a job that needs no change
   */
  async #change(
    found: StoredJob,
    spec: Partial<JobSpec>,
    isDone: (job: StoredJob) => boolean,
    precondition: Precondition | undefined,
  ): Promise<StoredJob> {
    let job = found
    const { name, uid } = job.metadata
    for (let attempt = 0; attempt < CHANGE_ATTEMPTS; attempt++) {
      this.requireUnfinished(job)
      requireVersion("job", job, precondition)
      if (isDone(job)) return job
      const changed = await this.#tryToChange(job, spec)
      if (changed !== undefined) return changed
      const present = await this.read(name)
      if (present?.metadata.uid !== uid) throw notFound(`The job ${quote(name)} has just been deleted.`)
      job = present
    }
    throw changesTooFast(name)
  }

  /** @throws Problem 409 if the job has ended; a cancelled job has not */
  requireUnfinished(job: StoredJob): void {
    const status = recordStatus(job)
    if (status === "succeeded" || status === "failed") throw alreadyEnded(job.metadata.name, status)
  }

  /** Returns the changed job, or undefined if the job has changed since it was read. */
  async #tryToChange({ metadata }: StoredJob, spec: Partial<JobSpec>): Promise<StoredJob | undefined> {
    const { resourceVersion, uid } = metadata
    const merge = { metadata: { resourceVersion, uid }, spec }
    try {
      return await this.#client.patch(JOBS, metadata, { merge })
    } catch (error) {
      if (isConflict(error) || isNotFound(error)) return undefined
      throw error
    }
  }
}

function changesTooFast(name: string): Problem {
  return unavailable(`The job ${name} is changed by many requests at once: try again.`)
}

function alreadyEnded(name: string, status: JobPhase): Problem {
  const detail = `The job ${name} has already ${status}: it cannot be cancelled.`
  return new Problem({ type: "already-ended", status: 409, detail })
}

/** Attempts to find a generated name that is not in use. */
const NAME_ATTEMPTS = 5

/** Job that a request creates, before it has a name. */
export interface NewJob extends Pick<JobSubmission, "name" | "namePrefix" | "workdir"> {
  /** Content of the request, which a repetition must have too. */
  request: unknown
  jobOf: (identity: JobIdentity) => Job
}

export interface SubmitterOptions {
  client: CallerClient
  jobs: Jobs
  namespace: string
  creationTimes: CreationTimes
  /** Returns the id of this installation; undefined while it is not known. */
  installation: () => string | undefined
  /** Mutex of all requests with an Idempotency-Key, also those of other replicas. */
  creations: KeyedMutex
  /** Throws the Problem for which the project takes no new job. Absent: it takes any. */
  requireRoom?: () => void
  /** Rejects with a Problem if the project lacks the upload of the job's working directory. */
  requireUpload?: (job: Pick<NewJob, "workdir">) => Promise<void>
}

export interface DryRun {
  /** True to validate the Job and plan it without creating it. Default false. */
  dryRun?: boolean | undefined
}

interface CreateOptions extends DryRun {
  idempotency?: Idempotency
}

/** Creates Jobs from checked submissions, one per Idempotency-Key. */
export class Submitter {
  readonly #options: SubmitterOptions

  constructor(options: SubmitterOptions) {
    this.#options = options
  }

  /**
   * Creates the Job of a submission, or returns the one that the same request created before. In a dry run the API server
   * validates the Job and stores nothing.
   * @throws Problem 409 name in use, 422 key used with another body, 400 rejected by the API server
   */
  submit(submission: JobSubmission, idempotencyKey?: string, options: DryRun = {}): Promise<StoredJob> {
    const { name, namePrefix, workdir } = submission
    const job = {
      request: submission,
      jobOf: (identity: JobIdentity) => toJob(submission, identity),
      ...(name !== undefined && { name }),
      ...(namePrefix !== undefined && { namePrefix }),
      ...(workdir !== undefined && { workdir }),
    }
    return this.create(job, idempotencyKey, options)
  }

  /** Creates a Job as `submit` does. */
  async create(job: NewJob, idempotencyKey?: string, { dryRun }: DryRun = {}): Promise<StoredJob> {
    const { namespace, creations } = this.#options
    if (idempotencyKey === undefined) return this.#create(job, { dryRun })
    const idempotency = { key: idempotencyKey, requestHash: requestHash(job.request) }
    const known = (): Promise<StoredJob | undefined> => this.earlier(job.request, idempotencyKey)
    // The API server only rejects equal names, so requests with one key and different names need a mutex.
    const make = async (isHeld: () => boolean): Promise<StoredJob> => {
      const earlier = await known()
      if (earlier !== undefined) return earlier
      requireHeld(isHeld)
      return this.#create(job, { idempotency, dryRun })
    }
    return creations.runExclusive(`${JOBS.plural}/${namespace}/${idempotencyKey}`, make, known)
  }

  /** Returns the Job that the same request created before. @throws Problem 422 key used with another body */
  async earlier(request: unknown, idempotencyKey: string): Promise<StoredJob | undefined> {
    const earlier = await this.#options.jobs.madeBy(idempotencyKey)
    return earlier && replay(earlier, { key: idempotencyKey, requestHash: requestHash(request) })
  }

  async #create(job: NewJob, { idempotency, dryRun = false }: CreateOptions): Promise<StoredJob> {
    const { jobs, namespace, creationTimes } = this.#options
    await this.#admit(job, dryRun)
    // Concurrent requests with one key try the same names in the same order, also on different replicas.
    const seed = idempotency === undefined ? randomUUID() : `${namespace}/${idempotency.key}`
    for (let attempt = 0; attempt < NAME_ATTEMPTS; attempt++) {
      const name = job.name ?? generatedName(`${seed}/${attempt}`, job.namePrefix)
      const identity = { namespace, name, createdAt: creationTimes.next(), submission: this.#submission(), idempotency }
      const created = await this.#tryToCreate(job.jobOf(identity) as StoredJob, dryRun)
      if (created !== undefined) return dryRun ? created : jobs.waitForCache(await this.#withTimelySubmission(created))
      const existing = idempotency === undefined ? undefined : await jobs.read(name)
      if (idempotency !== undefined && usedKey(existing) === idempotency.key) return replay(existing, idempotency)
      if (job.name !== undefined) throw nameTaken(name)
    }
    throw unavailable("Every generated name is in use: send the request again.")
  }

  async #admit(job: NewJob, dryRun: boolean): Promise<void> {
    const { requireRoom, requireUpload } = this.#options
    requireRoom?.()
    // A plan may come before the upload.
    if (!dryRun) await requireUpload?.(job)
  }

  #submission(): string | undefined {
    const installation = this.#options.installation()
    return installation && submissionId(installation)
  }

  /**
   * Removes the submission's id if this replica's clock is wrong. The operator would take the Job for a copy. Without
   * the id, it adopts the Job.
   */
  async #withTimelySubmission(job: StoredJob): Promise<StoredJob> {
    const { uid, annotations } = job.metadata
    if (annotations?.[ANNOTATIONS.submission] === undefined || isSubmissionTimely(job)) return job
    const merge = { metadata: { uid, annotations: { [ANNOTATIONS.submission]: null } } }
    return await this.#options.client.patch(JOBS, job.metadata, { merge })
  }

  /** Returns the stored Job, or undefined if its name is in use. */
  async #tryToCreate(job: StoredJob, dryRun: boolean): Promise<StoredJob | undefined> {
    try {
      return await this.#options.client.create(JOBS, job, { dryRun })
    } catch (error) {
      if (isAlreadyExists(error)) return undefined
      if (isInvalid(error)) throw invalidRequest(errorsOfRefusal(error), "The job")
      if (isNotFound(error)) throw unavailable("The project is not ready for jobs yet: try again.", 5, error)
      throw error
    }
  }
}

function nameTaken(name: string): Problem {
  return nameConflict(`A job named ${quote(name)} exists in this project: choose another name.`, name)
}
