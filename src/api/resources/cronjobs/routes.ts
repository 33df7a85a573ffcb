import type { Clock } from "../../../core/apis/clock.ts"
import type { CreationTimes } from "../../../core/apis/creation-times.ts"
import type { StoredCronJob } from "../../../core/apis/cronjob.ts"
import { quote } from "../../../core/apis/field-error.ts"
import type { Principal } from "../../../core/identity/principal.ts"
import { toOwner } from "../../../core/records/owner.ts"
import type { CreationWarnings } from "../../../market/placement/creation-warnings.ts"
import type { Planner } from "../../../market/placement/place.ts"
import type { Collection, Replay } from "../../collection.ts"
import { namedSchema, pageSchema } from "../../http/json-schema.ts"
import { invalidRequest, notFound } from "../../http/problem.ts"
import { filter, flag, paging, withinBytes } from "../../http/query.ts"
import { type Answer, checkedBody, created, json, noContent, record, routeDeclarer } from "../../http/route.ts"
import { replay, requestHash } from "../../idempotency.ts"
import { requireRepetition } from "../../repetition.ts"
import { pageOrder, SORTING } from "../../sorting.ts"
import { JOB_CREATED, jobCreatedAnswer, PLAN_EXAMPLE } from "../jobs/routes.ts"
import type { SubmissionContext } from "../jobs/submission.ts"
import type { Uploads } from "../uploads/uploads.ts"
import { type RunOptions, runNow } from "./runs.ts"
import {
  type CronJobChange,
  CronJobChangeSchema,
  type CronJobCreation,
  CronJobCreationSchema,
  type CronJobPlanRecord,
  CronJobPlanSchema,
  type CronJobRecord,
  CronJobRecordSchema,
} from "./schema.ts"
import {
  changedSpec,
  checkChange,
  checkCreation,
  cronJobRules,
  errorsOfResumption,
  toCronJob,
  toCronJobPlanRecord,
  toCronJobRecord,
  withCascade,
} from "./translate.ts"

export interface CronJobServices {
  warningsNow: CreationWarnings
  cronJobsOf: (principal: Principal) => Collection<StoredCronJob>
  creationTimes: CreationTimes
  /** Returns the check against the current catalogue of a namespace's project. */
  catalogueErrorsIn: (namespace: string) => SubmissionContext["catalogueErrors"]
  plan: Planner
  clock: Clock
  uploads: Pick<Uploads, "require">
  /** Parts that create a job now. */
  runsOf: (principal: Principal) => RunOptions
}

const CREATION = {
  name: "nightly-report",
  cron_spec: "30 3 * * MON-FRI",
  job_definition: { image: "ghcr.io/acme/report:2", cloud: "aws", region: "eu", timeoutSeconds: 3600 },
  concurrency_policy: "Forbid",
  successful_jobs_history_limit: 7,
}

const CRON_JOB = namedSchema("CronJobRecord", CronJobRecordSchema, {
  id: "5ea07726-efd2-42ec-a095-6d7674666e31",
  organization_id: "acme-x1",
  project_id: "reports-x2",
  ...CREATION,
  job_definition: { ...CREATION.job_definition, maxRetries: 0, provisioning: "onDemand" },
  is_active: true,
  starting_deadline_seconds: null,
  failed_jobs_history_limit: null,
  reason: "Scheduled",
  message: 'fires at "30 3 * * MON-FRI", in UTC',
  last_triggered_at: "2026-01-30T03:30:00Z",
  created_at: "2026-01-02T10:00:00Z",
  updated_at: "2026-01-30T03:30:01Z",
})
const LIST = pageSchema("CronJobList", "cronjobs", CRON_JOB)
const PLAN = namedSchema("CronJobPlan", CronJobPlanSchema, {
  dry_run: true,
  name: CREATION.name,
  runs_per_month: 21.75,
  estimated_cost: 0.813837,
  estimated_monthly_cost: 17.700955,
  job: { ...PLAN_EXAMPLE, name: CREATION.name },
} satisfies CronJobPlanRecord)

const creation = (clouds: readonly string[]) =>
  checkedBody<CronJobCreation, Principal, CronJobServices>("CronJobCreation", CronJobCreationSchema, {
    what: "The cronjob",
    example: CREATION,
    rules: cronJobRules(clouds),
    check: (value, { principal, services }) => checkCreation(value, contextOf(principal, services)),
  })

const change = (clouds: readonly string[]) =>
  checkedBody<CronJobChange, Principal, CronJobServices>("CronJobChange", CronJobChangeSchema, {
    what: "The change",
    example: { is_active: false },
    rules: cronJobRules(clouds),
    check: (value, { principal, services }) => checkChange(value, contextOf(principal, services)),
  })

function contextOf({ project }: Principal, { catalogueErrorsIn }: CronJobServices): SubmissionContext {
  return { ...toOwner(project), catalogueErrors: catalogueErrorsIn(project.namespace) }
}

/** Pointer to the working directory of a cronjob's jobs. */
const DEFINED_WORKDIR = "/job_definition/workdir"

const route = routeDeclarer<Principal, CronJobServices>({ tag: "cronjobs" })

const createCronJob = (clouds: readonly string[]) =>
  route("POST /cronjobs", {
    id: "createCronJob",
    summary: "Create a cronjob.",
    role: "developer",
    query: { dry_run: flag("true: validate the cronjob and return its plan; create nothing.", false) },
    body: creation(clouds),
    idempotent: true,
    responses: {
      200: json(PLAN, "With dry_run=true: the plan. Nothing was created."),
      201: created(CRON_JOB, "Created.", {
        links: {
          getCronJob: { name: "$response.body#/name" },
          changeCronJob: { name: "$response.body#/id" },
          runCronJob: { name: "$response.body#/id" },
          deleteCronJob: { name: "$response.body#/id" },
        },
      }),
    },
    creates: true,
    handle: async ({ body, query, idempotencyKey: key, principal }, services) => {
      const { clock, cronJobsOf, creationTimes, plan, uploads } = services
      const { namespace } = principal.project
      const replay = key === undefined ? undefined : replayOf(body, key)
      if (query.dry_run) {
        const earlier = replay && (await cronJobsOf(principal).earlier(replay))
        const wanted = toCronJob(body, { namespace, createdAt: creationTimes.next() }) as StoredCronJob
        return planAnswer(earlier ?? (await cronJobsOf(principal).validated(wanted, body.name)), plan, clock.now())
      }
      await uploads.require(namespace, body.job_definition.workdir, DEFINED_WORKDIR)
      const idempotency = key === undefined ? undefined : { key, requestHash: requestHash(body) }
      const wanted = toCronJob(body, { namespace, createdAt: creationTimes.next(), idempotency }) as StoredCronJob
      return createdAnswer(await cronJobsOf(principal).create(wanted, body.name, replay), principal)
    },
    replay: async ({ body, query, idempotencyKey = "", principal }, { clock, cronJobsOf, plan }) => {
      const earlier = await cronJobsOf(principal).earlier(replayOf(body, idempotencyKey))
      if (earlier === undefined) return undefined
      return query.dry_run ? planAnswer(earlier, plan, clock.now()) : createdAnswer(earlier, principal)
    },
  })

const changeCronJob = (clouds: readonly string[]) =>
  route("PATCH /cronjobs/{name}", {
    id: "changeCronJob",
    summary: "Change a cronjob. A job_definition replaces all of the earlier one.",
    role: "developer",
    body: change(clouds),
    ifMatch: true,
    responses: { 200: record(CRON_JOB, "The changed cronjob.") },
    handle: async ({ path, body, precondition, principal }, { cronJobsOf, uploads }) => {
      await uploads.require(principal.project.namespace, body.job_definition?.workdir, DEFINED_WORKDIR)
      const changed = (present: StoredCronJob): StoredCronJob | undefined => {
        there(present, path.name)
        const { id, name, created_at } = toCronJobRecord(present, toOwner(principal.project))
        requireRepetition("cronjob", body, { id, name, created_at })
        const errors = errorsOfResumption(present.spec, body)
        if (errors.length > 0) throw invalidRequest(errors, "The change")
        const spec = changedSpec(present.spec, body)
        return spec && { ...present, spec }
      }
      return answerOf(await cronJobsOf(principal).change(path.name, changed, precondition), principal)
    },
  })

const OTHERS = [
  route("GET /cronjobs", {
    id: "listCronJobs",
    summary: "List cronjobs, newest first.",
    role: "viewer",
    query: { name_contains: filter("Part of the name. Empty: any."), ...SORTING, ...paging() },
    responses: { 200: json(LIST, "A page of cronjobs, active or not.") },
    handle: ({ query, principal }, { cronJobsOf }) => {
      const { objects, total } = cronJobsOf(principal).page(query, { namePart: query.name_contains }, pageOrder(query))
      const owner = toOwner(principal.project)
      const shown = withinBytes(
        objects.map((one) => toCronJobRecord(one, owner)),
        query,
      )
      return { body: { cronjobs: shown.records, total, ...shown.page } }
    },
  }),
  route("GET /cronjobs/{name}", {
    id: "getCronJob",
    summary: "Get a cronjob.",
    role: "viewer",
    responses: { 200: record(CRON_JOB, "The cronjob.") },
    handle: async ({ path, principal }, { cronJobsOf }) =>
      answerOf(there(await cronJobsOf(principal).find(path.name), path.name), principal),
  }),
  route("POST /cronjobs/{name}/run", {
    id: "runCronJob",
    summary: "Create a job of a cronjob now, beside its schedule.",
    role: "developer",
    idempotent: true,
    creates: true,
    responses: { 201: json(JOB_CREATED, "The job is registered. It belongs to the cronjob.", { hasLocation: true }) },
    problems: ["run-in-progress"],
    handle: async ({ path, idempotencyKey, principal }, { cronJobsOf, runsOf, warningsNow }) => {
      const cronJob = there(await cronJobsOf(principal).present(path.name), path.name)
      return jobCreatedAnswer(await runNow(cronJob, idempotencyKey, runsOf(principal)), warningsNow)
    },
  }),
  route("DELETE /cronjobs/{name}", {
    id: "deleteCronJob",
    summary: "Delete a cronjob. Its jobs are kept.",
    role: "developer",
    query: {
      cascade: flag("true: cancel its unfinished jobs. Default: the setting in the cronjob's manifest, else false."),
    },
    ifMatch: true,
    responses: { 204: noContent("Deleted.") },
    handle: async ({ path, query, precondition, principal }, { cronJobsOf }) => {
      const { cascade } = query
      const cronJobs = cronJobsOf(principal)
      if (cascade === undefined) return cronJobs.remove(path.name, precondition)
      const wanted = (present: StoredCronJob) => withCascade(present, cascade)
      const { metadata } = await cronJobs.change(path.name, wanted, precondition)
      await cronJobs.remove(metadata.uid)
    },
  }),
]

/** Returns the operations of the contract on cronjobs. @param clouds the clouds that a job may name */
export function cronJobRoutes(clouds: readonly string[]) {
  return [createCronJob(clouds), changeCronJob(clouds), ...OTHERS]
}

function answerOf(cronJob: StoredCronJob, { project }: Principal): Answer<CronJobRecord> {
  return { of: cronJob, body: toCronJobRecord(cronJob, toOwner(project)) }
}

function createdAnswer(cronJob: StoredCronJob, principal: Principal): Answer<CronJobRecord> {
  return { ...answerOf(cronJob, principal), status: 201, location: `/cronjobs/${cronJob.metadata.uid}` }
}

async function planAnswer(cronJob: StoredCronJob, plan: Planner, now: Date): Promise<Answer<CronJobPlanRecord>> {
  const { metadata, spec } = cronJob
  const planned = await plan(metadata.namespace ?? "", spec.jobDefinition)
  return { status: 200, body: toCronJobPlanRecord(cronJob, planned, now) }
}

function replayOf(body: CronJobCreation, key: string): Replay<StoredCronJob> {
  const idempotency = { key, requestHash: requestHash(body) }
  return { key, accept: (earlier) => replay(earlier, idempotency) }
}

/** Returns the cronjob unless it is being deleted, which lasts until its jobs are cancelled. @throws Problem 404 */
function there(cronJob: StoredCronJob, id: string): StoredCronJob {
  if (cronJob.metadata.deletionTimestamp === undefined) return cronJob
  throw notFound(`No cronjob has the id or name ${quote(id)}.`)
}
