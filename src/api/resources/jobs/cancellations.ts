import Type, { type Static } from "typebox"
import type { StoredJob } from "../../../core/apis/job.ts"
import { COMPONENT, MapOf, StringEnum } from "../../../core/apis/schema.ts"
import { UNFINISHED } from "../../../core/records/job.ts"
import { checked, type Rule } from "../../http/checked.ts"
import type { Json } from "../../http/json-schema.ts"
import { toProblem, unauthorized } from "../../http/problem.ts"
import type { AuthenticatedRequest } from "../../http/route.ts"
import { Allowance, type AllowanceOptions, BUDGET_SECONDS, onEach } from "./allowance.ts"
import type { Jobs } from "./jobs.ts"

/** Cancels many jobs by one request. */

/** Largest number of names in one request. */
const MAX_NAMES = 1000
/** Names that count as one more request under the caller's limit. */
const NAMES_PER_REQUEST = 10

/** Keywords of an object that has these fields, none of them null. */
function requireFields(...fields: string[]): Json {
  return { required: fields, properties: Object.fromEntries(fields.map((field) => [field, { not: { type: "null" } }])) }
}

const FILTERS = ["status", "labels", "tags", "array"] as const

/** Body of POST /jobs/cancellations. */
export const JobCancellationSchema = Type.Object(
  {
    names: Type.Optional(
      Type.Array(Type.String({ minLength: 1, maxLength: 253 }), {
        minItems: 1,
        maxItems: MAX_NAMES,
        description: `Ids or names of jobs. Excludes the other fields. Each ${NAMES_PER_REQUEST} count as one more request under the limit.`,
      }),
    ),
    status: Type.Optional(StringEnum(UNFINISHED, { description: "Only jobs with this status." })),
    labels: Type.Optional(
      MapOf(Type.String(), {
        minProperties: 1,
        maxProperties: 64,
        description: "Labels that a job must all have.",
      }),
    ),
    tags: Type.Optional(
      Type.Array(Type.String(), { minItems: 1, maxItems: 64, description: "Tags that a job must all have." }),
    ),
    array: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 253,
        description: "Id or name of the array that created the jobs. It creates others; to end it, cancel the array.",
      }),
    ),
  },
  { description: "Jobs to cancel: names, or a filter of one or more fields." },
)
export type JobCancellation = Static<typeof JobCancellationSchema>

/** Rule that a body has names or a filter, and not both. */
export const NAMES_OR_FILTER: Rule = {
  keywords: {
    "": {
      not: {
        anyOf: [
          { properties: Object.fromEntries(["names", ...FILTERS].map((field) => [field, { type: "null" }])) },
          ...FILTERS.map((field) => requireFields("names", field)),
        ],
      },
    },
  },
  errors: (body) => {
    const filters = FILTERS.filter((field) => body[field] !== undefined)
    if (body["names"] === undefined && filters.length === 0)
      return [{ pointer: "", detail: "send names, or one or more of status, labels, tags and array" }]
    if (body["names"] === undefined) return []
    return filters.map((field) => ({ pointer: `/${field}`, detail: `${field} and names exclude each other` }))
  },
}

export function checkCancellation(value: unknown) {
  return checked<JobCancellation>(value, {
    schema: JobCancellationSchema,
    rules: [NAMES_OR_FILTER],
    context: undefined,
  })
}

/** Counts the names of a body under the caller's limit of requests. @throws Problem 429 */
export function countNames(
  { names = [] }: JobCancellation,
  { countMore }: Pick<AuthenticatedRequest<unknown>, "countMore">,
): Promise<void> {
  const rule = `each ${NAMES_PER_REQUEST} names of jobs to cancel count as one more`
  return countMore(Math.floor(names.length / NAMES_PER_REQUEST), rule)
}

/** Response of POST /jobs/cancellations. */
export const JobCancellationsSchema = Type.Object({
  dry_run: Type.Boolean({ description: "True: the jobs were only counted." }),
  matched: Type.Integer({ description: "Number of jobs that match and had not ended." }),
  cancelled: Type.Integer({ description: "Number of jobs that are now cancelled." }),
  remaining: Type.Integer({
    description: `Number of jobs that this request did not reach in ${BUDGET_SECONDS} seconds. Send it again until it is 0.`,
  }),
  failed: Type.Array(
    Type.Object(
      {
        name: Type.String({ description: "Name of the job, or the name or id of the request." }),
        status: Type.Integer({ description: "HTTP status that cancelling this job alone would have." }),
        detail: Type.String(),
      },
      { [COMPONENT]: "FailedCancellation" },
    ),
    { description: "Jobs that could not be cancelled." },
  ),
})
export type JobCancellations = Static<typeof JobCancellationsSchema>

export interface CancellationOptions extends AllowanceOptions {
  jobs: Jobs
  /** Uid of the array of the body. */
  array?: string | undefined
  dryRun: boolean
}

/** A job to cancel, or what is wrong with a name that no job has. */
interface Target {
  name: string
  found: StoredJob | string
}

/**
 * Cancels the jobs that a body names. Ends early when the client disconnects, when the credentials become invalid, or
 * when the time is over. A repetition continues.
 * @throws Problem 401, or that of the first job if the API server rejects every call
 */
export async function cancelJobs(body: JobCancellation, options: CancellationOptions): Promise<JobCancellations> {
  const targets = await targetsOf(body, options)
  const run = new CancellationRun(options)
  await onEach(
    targets,
    () => run.isOver(),
    (target) => run.cancel(target),
  )
  return run.outcome(targets.length)
}

async function targetsOf(
  { names, status, labels = {}, tags = [] }: JobCancellation,
  { jobs, array }: Pick<CancellationOptions, "jobs" | "array">,
): Promise<Target[]> {
  if (names !== undefined) return jobs.findMany([...new Set(names)])
  const filter = { tags, labels: Object.entries(labels).map(([key, value]) => ({ key, value })), array }
  const statuses = status === undefined ? UNFINISHED : [status]
  const found = statuses.flatMap((one) => jobs.all({ ...filter, status: one }))
  return found.map((job) => ({ name: job.metadata.name, found: job }))
}

/** State of one request. */
class CancellationRun {
  readonly #options: CancellationOptions
  readonly #allowance: Allowance
  #fault: unknown
  #attempted = 0
  #cancelled = 0
  #cancellable = 0
  #newest: StoredJob | undefined
  readonly #failed: JobCancellations["failed"] = []

  constructor(options: CancellationOptions) {
    this.#options = options
    this.#allowance = new Allowance(options)
  }

  /** Returns true if no further job may be cancelled. */
  async isOver(): Promise<boolean> {
    return (await this.#allowance.isOver()) || this.#fault !== undefined
  }

  async cancel({ name, found }: Target): Promise<void> {
    this.#attempted++
    // Not as an error: a thousand of them would keep the processor for ten milliseconds.
    if (typeof found === "string") return void this.#failed.push({ name, status: 404, detail: found })
    try {
      if (this.#options.dryRun) this.#options.jobs.requireUnfinished(found)
      else this.#note(await this.#options.jobs.cancelFound(found))
      this.#cancellable++
    } catch (error) {
      const { status, message } = toProblem(error)
      this.#failed.push({ name, status, detail: message })
      // Other statuses are about the API server or the caller, and every further job would have them.
      if (![404, 409].includes(status)) this.#fault = error
    }
  }

  #note(job: StoredJob): void {
    this.#cancelled++
    const version = (one: StoredJob | undefined) => Number(one?.metadata.resourceVersion ?? 0)
    if (version(job) > version(this.#newest)) this.#newest = job
  }

  async outcome(targets: number): Promise<JobCancellations> {
    if (this.#allowance.isInvalid) {
      throw unauthorized(`The credentials are no longer valid. ${this.#cancelled} jobs were cancelled before.`)
    }
    if (this.#fault !== undefined && this.#cancelled === 0) throw this.#fault
    // Lists show the cancellations after the response.
    if (this.#newest !== undefined) await this.#options.jobs.waitForCache(this.#newest)
    const unreached = targets - this.#attempted
    const { dryRun } = this.#options
    return {
      dry_run: dryRun,
      matched: this.#cancellable + unreached,
      cancelled: this.#cancelled,
      remaining: dryRun ? this.#cancellable + unreached : unreached,
      failed: this.#failed,
    }
  }
}
