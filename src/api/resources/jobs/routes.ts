import type { Response } from "express"
import Type from "typebox"
import type { Clock } from "../../../core/apis/clock.ts"
import { JOB_PHASES, PRIORITY, type StoredJob } from "../../../core/apis/job.ts"
import type { StoredLaunch } from "../../../core/apis/launch.ts"
import type { Principal } from "../../../core/identity/principal.ts"
import { JobRecordSchema, type SeenOfJob, toRecord } from "../../../core/records/job.ts"
import { toOwner } from "../../../core/records/owner.ts"
import type { CreationWarnings } from "../../../market/placement/creation-warnings.ts"
import type { Planner } from "../../../market/placement/place.ts"
import { filters, prerequisite } from "../../filters.ts"
import { BODY_LIMIT_BYTES } from "../../http/body.ts"
import { namedSchema, pageSchema } from "../../http/json-schema.ts"
import { filter, flag, paging, type QueryValues, wholeNumber, withinBytes } from "../../http/query.ts"
import type { ConcurrencyLimit } from "../../http/rate-limits.ts"
import { type Answer, checkedBody, declareBody, json, record, routeDeclarer, text } from "../../http/route.ts"
import { orderedJob } from "../../order.ts"
import { sorting } from "../../sorting.ts"
import { DEPENDENTS, type Dependents, WITH_DEPENDENTS } from "../dependents/dependents.ts"
import {
  cancelJobs,
  checkCancellation,
  countNames,
  type JobCancellation,
  JobCancellationSchema,
  type JobCancellations,
  JobCancellationsSchema,
  NAMES_OR_FILTER,
} from "./cancellations.ts"
import { type Creator, JobGroupSchema, type Origin, toGroupRecord } from "./groups.ts"
import type { JobFilter, JobSorting, Jobs, Submitter } from "./jobs.ts"
import { type JobNameOf, LaunchListSchema, TimelineSchema, toLaunchList, toTimeline } from "./launches.ts"
import { type LogStreams, streamLog } from "./logs.ts"
import { JOB_SORT_FIELDS } from "./numbers.ts"
import { type JobPlanRecord, JobPlanSchema, toPlanRecord } from "./plan.ts"
import { type JobCreated, JobCreatedSchema, type JobSubmission, JobSubmissionSchema } from "./schema.ts"
import { checkSubmission, type SubmissionContext, submissionRules } from "./submission.ts"
import { JobUsageSchema, jobUsage, type ReadUsage } from "./usage.ts"

export interface JobServices {
  jobsOf: (principal: Principal) => Jobs
  /** Returns the uid of a cronjob with this id or name. An id may be of a deleted one. @throws Problem 404 */
  cronJobIdOf: (principal: Principal, idOrName: string) => Promise<string>
  /** Returns the uid of an array with this id or name. An id may be of a deleted one. @throws Problem 404 */
  arrayIdOf: (principal: Principal, idOrName: string) => Promise<string>
  /** Returns the array or cronjob that created jobs of the project; undefined if it was deleted. */
  creatorOf: (principal: Principal, origin: Origin) => Creator | undefined
  /** Returns the last heartbeat of a job's VMs, if their records still exist. */
  lastHeartbeatOf: (job: StoredJob) => string | undefined
  /** Returns a function for the jobs of one answer: a job's place in its project's line, from 1; undefined: it is not in it. */
  queuePositionsIn: (namespace: string) => (job: StoredJob) => number | undefined
  /** Returns the Launches of a job that still exist. */
  launchesOf: (job: StoredJob) => StoredLaunch[]
  jobNameOf: JobNameOf
  /** Returns what waits for the jobs and arrays of a project. */
  dependentsIn: (principal: Principal) => Dependents
  submitterOf: (principal: Principal) => Submitter
  /** Returns the check against the current catalogue of a namespace's project. */
  catalogueErrorsIn: (namespace: string) => SubmissionContext["catalogueErrors"]
  plan: Planner
  warningsNow: CreationWarnings
  logStreams: LogStreams
  readUsage: ReadUsage
  /** Limit of the followed logs of a principal. */
  followers: ConcurrencyLimit
  /** Limit of the bulk cancellations of a principal. */
  cancellations: ConcurrencyLimit
  clock: Clock
}

const CHANGE = declareBody(
  "JobChange",
  Type.Object({ priority: PRIORITY }, { description: "Change of a job that has not ended." }),
  { what: "The change", example: { priority: 50 } },
)

/** Response to the creation of a job. */
export const JOB_CREATED = namedSchema("JobCreated", JobCreatedSchema, {
  job_id: "5ea07726-efd2-42ec-a095-6d7674666e31",
  name: "train-4kzrd9wb",
  status: "queued",
  warnings: [
    "This job has no timeoutSeconds: it may run for 30 days and cost up to $585.95. Set timeoutSeconds, maxCostUsd or idleLimit.",
  ],
})
/** Plan in examples of the document. */
export const PLAN_EXAMPLE = {
  dry_run: true,
  name: "train-4kzrd9wb",
  verdict: "placeable",
  reason: "Placed",
  message:
    "gcp g2-standard-4 in europe-west4 (on demand, 4 vCPU, 16 GiB, 1 × L4, $0.7787/h): cheapest of 12 " +
    "matching offers on gcp, out of 164,214 in the catalogue; no other is available now; price of 2026-10-01; " +
    "with disk and address $0.8138/h; expected to cost $0.8138",
  estimated_cost: 0.813837,
  placements: [
    {
      provider: "gcp",
      region: "europe-west4",
      zone: null,
      instance_type: "g2-standard-4",
      provisioning: "onDemand",
      connection: null,
      hourly_price_usd: 0.7787,
      price_date: "2026-10-01",
      estimated_cost_usd: 0.813837,
      cost_breakdown: {
        machine_usd_per_hour: 0.7787,
        disk_usd_per_hour: 0.030137,
        address_usd_per_hour: 0.005,
        total_usd_per_hour: 0.813837,
        machine_usd: 0.7787,
        disk_usd: 0.030137,
        address_usd: 0.005,
        total_usd: 0.813837,
        traffic_usd: 0,
      },
      cpu: 4,
      memory: "16Gi",
      architecture: "amd64",
      gpu: { vram: "24Gi", count: 1, model: "L4" },
      why: "gcp g2-standard-4 in europe-west4 (on demand, 4 vCPU, 16 GiB, 1 × L4, $0.7787/h): $0.8138 in total",
    },
  ],
  reuse: null,
  can_reuse: true,
  warnings: [],
} satisfies JobPlanRecord
const PLAN = namedSchema("JobPlan", JobPlanSchema, PLAN_EXAMPLE)
const JOB = namedSchema("JobRecord", JobRecordSchema)
const LIST = pageSchema("JobList", "jobs", JOB)
const GROUPS = pageSchema("JobGroupList", "groups", namedSchema("JobGroup", JobGroupSchema))

function submission(clouds: readonly string[]) {
  return checkedBody<JobSubmission, Principal, JobServices>("JobSubmission", JobSubmissionSchema, {
    what: "The job",
    description: `At most ${BODY_LIMIT_BYTES} bytes.`,
    example: {
      namePrefix: "train",
      image: "ghcr.io/acme/train:1.4",
      command: ["python", "train.py"],
      env: { EPOCHS: "3" },
      resources: { cpu: 4, memory: "16Gi", gpu: { model: "L4", count: 1 } },
      region: "eu",
      maxRetries: 2,
      tags: ["nightly"],
    },
    rules: submissionRules(clouds),
    check: (value, { principal, services }) => {
      const catalogueErrors = services.catalogueErrorsIn(principal.project.namespace)
      const checked = checkSubmission(value, { ...toOwner(principal.project), catalogueErrors })
      return "errors" in checked ? checked : { body: checked.submission }
    },
  })
}

/** Parameters that select jobs. */
const FILTERS = {
  ...filters("Jobs", JOB_PHASES),
  cronjob: filter("Id or name of the cronjob that created the jobs. Empty: any."),
  array: filter("Id or name of the array that created the jobs. Empty: any."),
  after: prerequisite("Jobs"),
}

const JOB_SORTING = sorting(
  JOB_SORT_FIELDS,
  "cost: so far. run_time: from the first start to the end, or until now. Jobs without the value are last. Of groups: the sum, or the latest time.",
)

async function filterOf(
  query: QueryValues<typeof FILTERS>,
  principal: Principal,
  { cronJobIdOf, arrayIdOf }: JobServices,
): Promise<JobFilter> {
  const { cronjob, array, after } = query
  return {
    status: query.status,
    tags: query.tag,
    labels: query.label,
    namePrefix: query.name_prefix,
    namePart: query.name_contains,
    createdAfter: query.created_after,
    createdBefore: query.created_before,
    endedAfter: query.ended_after,
    endedBefore: query.ended_before,
    cronJob: cronjob && (await cronJobIdOf(principal, cronjob)),
    array: array && (await arrayIdOf(principal, array)),
    after,
  }
}

function sortingOf({ sort_by, sort_order }: QueryValues<typeof JOB_SORTING>, { clock }: JobServices): JobSorting {
  return { sort_by, sort_order, now: clock.now().getTime() * 1000 }
}

const TAIL = wholeNumber(
  { minimum: 0, maximum: Number.MAX_SAFE_INTEGER },
  { description: "Number of last lines. Default: all." },
)

const LAST = wholeNumber(
  { minimum: 1, maximum: Number.MAX_SAFE_INTEGER },
  { description: "Number of last points. Default: all." },
)

const route = routeDeclarer<Principal, JobServices>({ tag: "jobs" })

/** Bulk cancellations of one caller at the same time. */
export const MOST_CANCELLATIONS = 4

/** Counts a request that cancels many objects. @throws Problem 429 */
export function holdCancellation(limit: ConcurrencyLimit, { id }: Principal, res: Response): void {
  const detail = `${MOST_CANCELLATIONS} of your bulk cancellations are running; retry when one has finished.`
  limit.hold(id, res, { detail, retryAfterSeconds: 5 })
}

const cancelMany = route("POST /jobs/cancellations", {
  id: "cancelJobs",
  summary: "Cancel many jobs: by names, or by a filter.",
  role: "developer",
  query: { dry_run: flag("true: only count the jobs; cancel none.", false) },
  body: checkedBody<JobCancellation, Principal, JobServices>("JobCancellation", JobCancellationSchema, {
    what: "The cancellation",
    example: { labels: { experiment: "lr-sweep" } },
    rules: [NAMES_OR_FILTER],
    check: checkCancellation,
  }),
  responses: {
    200: json(
      namedSchema("JobCancellations", JobCancellationsSchema, {
        dry_run: false,
        matched: 120,
        cancelled: 119,
        remaining: 0,
        failed: [
          {
            name: "train-4kzrd9wb",
            status: 409,
            detail: "The job train-4kzrd9wb has already succeeded: it cannot be cancelled.",
          },
        ],
      } satisfies JobCancellations),
      "The number of jobs, and those that could not be cancelled.",
    ),
  },
  handle: async (
    { body, query, principal, res, countMore, isStillAuthenticated },
    { jobsOf, arrayIdOf, cancellations, clock },
  ) => {
    await countNames(body, { countMore })
    holdCancellation(cancellations, principal, res)
    const isClosed = () => res.closed
    const array = body.array === undefined ? undefined : await arrayIdOf(principal, body.array)
    const options = { jobs: jobsOf(principal), array, clock, dryRun: query.dry_run, isClosed, isStillAuthenticated }
    return { body: await cancelJobs(body, options) }
  },
})

const createJob = (clouds: readonly string[]) =>
  route("POST /jobs", {
    id: "createJob",
    summary: "Submit a job.",
    role: "developer",
    query: {
      dry_run: flag("true: validate the job and return its plan; create nothing.", false),
    },
    body: submission(clouds),
    idempotent: true,
    responses: {
      200: json(PLAN, "With dry_run=true: the plan. Nothing was created."),
      201: json(JOB_CREATED, "Registered.", {
        hasLocation: true,
        links: {
          getJob: { id: "$response.body#/job_id" },
          cancelJob: { id: "$response.body#/name" },
          getJobLogs: { id: "$response.body#/job_id" },
        },
      }),
    },
    creates: true,
    handle: async ({ body, query, idempotencyKey, principal }, { submitterOf, plan, warningsNow }) => {
      const job = await submitterOf(principal).submit(body, idempotencyKey, { dryRun: query.dry_run })
      return query.dry_run ? planOf(job, principal, plan) : jobCreatedAnswer(job, warningsNow)
    },
    replay: async ({ body, query, idempotencyKey = "", principal }, { submitterOf, plan, warningsNow }) => {
      const job = await submitterOf(principal).earlier(body, idempotencyKey)
      if (job === undefined) return undefined
      return query.dry_run ? planOf(job, principal, plan) : jobCreatedAnswer(job, warningsNow)
    },
  })

const OTHERS = [
  // Before /jobs/{id}, whose pattern it matches.
  cancelMany,
  route("GET /jobs", {
    id: "listJobs",
    summary: "List jobs, newest first.",
    role: "viewer",
    query: { ...FILTERS, ...JOB_SORTING, ...paging() },
    responses: { 200: json(LIST, "A page of jobs.") },
    handle: async ({ query, principal }, services) => {
      const { jobsOf } = services
      const { jobs, total } = jobsOf(principal).list(
        await filterOf(query, principal, services),
        query,
        sortingOf(query, services),
      )
      const owner = toOwner(principal.project)
      const seen = observer(principal, services)
      const fitting = withinBytes(
        jobs.map((job) => toRecord(job, owner, seen(job))),
        query,
      )
      return { body: { jobs: fitting.records, total, ...fitting.page } }
    },
  }),
  route("GET /job-groups", {
    id: "listJobGroups",
    summary: "List jobs by origin, newest first: the jobs of an array or a cronjob together, other jobs by themselves.",
    role: "viewer",
    query: { ...FILTERS, ...JOB_SORTING, ...paging() },
    responses: { 200: json(GROUPS, "A page of groups.") },
    handle: async ({ query, principal }, services) => {
      const { jobsOf, creatorOf } = services
      const filter = await filterOf(query, principal, services)
      const sorting = sortingOf(query, services)
      const creator = (origin: Origin) => creatorOf(principal, origin)
      const { groups, total } = jobsOf(principal).groups(filter, query, sorting, creator)
      const owner = toOwner(principal.project)
      const seen = observer(principal, services)
      const fitting = withinBytes(
        groups.map(({ group, newest, name, creator: by }) =>
          toGroupRecord(group, { name, by, latest: toRecord(newest, owner, seen(newest)), owner }),
        ),
        query,
      )
      return { body: { groups: fitting.records, total, ...fitting.page } }
    },
  }),
  route("GET /jobs/{id}", {
    id: "getJob",
    summary: "Get a job.",
    role: "viewer",
    responses: { 200: record(JOB, "The job.") },
    handle: async ({ path, principal }, services) => {
      const job = await services.jobsOf(principal).find(path.id)
      return jobAnswer(job, principal, services)
    },
  }),
  route("PATCH /jobs/{id}", {
    id: "changeJob",
    summary: "Change the priority of a job in its project's line.",
    role: "developer",
    body: CHANGE,
    ifMatch: true,
    responses: { 200: record(JOB, "The changed job.") },
    problems: ["already-ended"],
    handle: async ({ path, body, precondition, principal }, services) => {
      const job = await services.jobsOf(principal).prioritize(path.id, body.priority, precondition)
      return jobAnswer(job, principal, services)
    },
  }),
  route("POST /jobs/{id}/cancel", {
    id: "cancelJob",
    summary: "Cancel a job.",
    role: "developer",
    query: { dependents: WITH_DEPENDENTS },
    ifMatch: true,
    responses: { 200: record(JOB, "The cancelled job.") },
    problems: ["already-ended"],
    handle: async ({ path, query, precondition, principal, res, isStillAuthenticated }, services) => {
      const { jobsOf, dependentsIn, cancellations, clock } = services
      const before = async (job: StoredJob): Promise<void> => {
        holdCancellation(cancellations, principal, res)
        const options = { clock, isClosed: () => res.closed, isStillAuthenticated }
        await dependentsIn(principal).cancel(orderedJob(job), options)
      }
      const job = await jobsOf(principal).cancel(path.id, precondition, query.dependents ? before : undefined)
      return jobAnswer(job, principal, services)
    },
  }),
  route("GET /jobs/{id}/dependents", {
    id: "listJobDependents",
    summary: "List the jobs and arrays that wait for the job, also through others.",
    role: "viewer",
    query: paging(),
    responses: { 200: json(DEPENDENTS, "A page of dependents, those that wait for the job itself first.") },
    handle: async ({ path, query, principal }, { jobsOf, dependentsIn }) => {
      const job = await jobsOf(principal).find(path.id)
      return { body: dependentsIn(principal).list(orderedJob(job), query) }
    },
  }),
  route("GET /jobs/{id}/launches", {
    id: "listJobLaunches",
    summary: "List the job's VMs: offer, times, cost, rejection and loss.",
    role: "viewer",
    responses: { 200: json(namedSchema("LaunchList", LaunchListSchema), "The job's VMs.") },
    handle: async ({ path, principal }, { jobsOf, launchesOf }) => {
      const job = await jobsOf(principal).find(path.id)
      return { body: toLaunchList(job, launchesOf(job)) }
    },
  }),
  route("GET /jobs/{id}/timeline", {
    id: "getJobTimeline",
    summary: "Get the job's story: what happened, when, and why.",
    role: "viewer",
    responses: { 200: json(namedSchema("Timeline", TimelineSchema), "The story.") },
    handle: async ({ path, principal }, { jobsOf, launchesOf, jobNameOf }) => {
      const job = await jobsOf(principal).find(path.id)
      return { body: toTimeline(job, launchesOf(job), jobNameOf) }
    },
  }),
  route("GET /jobs/{id}/usage", {
    id: "getJobUsage",
    summary: "Get what the job uses: CPU, memory, disk, network and GPUs over time.",
    role: "viewer",
    query: { last: LAST },
    responses: { 200: json(namedSchema("JobUsage", JobUsageSchema), "What the job uses and used.") },
    handle: async ({ path, query, principal }, { jobsOf, readUsage }) => {
      const job = await jobsOf(principal).find(path.id)
      return { body: await jobUsage(job, readUsage, query.last) }
    },
  }),
  route("GET /jobs/{id}/logs", {
    id: "getJobLogs",
    summary: "Get the output of the job's containers.",
    role: "viewer",
    query: {
      follow: flag("true: follow the log until the job has ended.", false),
      tail: TAIL,
      timestamps: flag(
        "true: put the time of its first byte before each line, in UTC with milliseconds, and a space. It is the time at " +
          "which the agent on the VM has read the output, to half a second. It is - if it is not known.",
        false,
      ),
    },
    responses: { 200: text("The log.") },
    handle: async (call, { jobsOf, logStreams, followers }) => {
      const { principal, query, path, res } = call
      const job = await jobsOf(principal).find(path.id)
      const detail = "You follow too many logs at the same time: end one of the requests first."
      if (query.follow) followers.hold(principal.id, res, { detail, retryAfterSeconds: 10 })
      await streamLog(call, job, call.query, logStreams)
    },
  }),
]

/** Returns the operations of the contract on jobs. @param clouds the clouds that a job may name */
export function jobRoutes(clouds: readonly string[]) {
  return [createJob(clouds), ...OTHERS]
}

async function planOf({ metadata, spec }: StoredJob, principal: Principal, plan: Planner) {
  const { namespace } = principal.project
  const { name } = metadata
  const planned = await plan(namespace, spec, { name: { job: name }, after: spec.after })
  return { status: 200, body: toPlanRecord(name, planned) }
}

/** Returns the answer to the creation of a job. */
export async function jobCreatedAnswer(
  { metadata, spec }: StoredJob,
  warningsNow: CreationWarnings,
): Promise<Answer<JobCreated>> {
  const { uid, name, namespace = "" } = metadata
  const warnings = await warningsNow(namespace, spec)
  return { status: 201, body: { job_id: uid, name, status: "queued", warnings }, location: `/jobs/${uid}` }
}

/** Returns a function for the jobs of one answer: what a job's record has that is not in the Job. */
function observer(
  { project }: Principal,
  { lastHeartbeatOf, queuePositionsIn }: Pick<JobServices, "lastHeartbeatOf" | "queuePositionsIn">,
): (job: StoredJob) => SeenOfJob {
  const queuePositionOf = queuePositionsIn(project.namespace)
  return (job) => ({ lastHeartbeatTime: lastHeartbeatOf(job), queuePosition: queuePositionOf(job) })
}

/** Returns the answer with a job's record. What is not in the Job has a part of the entity tag. */
function jobAnswer(job: StoredJob, principal: Principal, services: JobServices) {
  const others = observer(principal, services)(job)
  const view = [others.lastHeartbeatTime, others.queuePosition].filter((part) => part !== undefined).join(" ")
  return { of: job, body: toRecord(job, toOwner(principal.project), others), ...(view !== "" && { view }) }
}
