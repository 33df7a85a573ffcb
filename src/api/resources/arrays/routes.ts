import { indexText } from "../../../core/apis/array-indexes.ts"
import type { Clock } from "../../../core/apis/clock.ts"
import type { CreationTimes } from "../../../core/apis/creation-times.ts"
import { quote } from "../../../core/apis/field-error.ts"
import type { StoredJobArray } from "../../../core/apis/jobarray.ts"
import type { Principal } from "../../../core/identity/principal.ts"
import { toOwner } from "../../../core/records/owner.ts"
import type { Planner } from "../../../market/placement/place.ts"
import { isBeingDeleted, JobTerm } from "../../caches.ts"
import type { Collection, Replay } from "../../collection.ts"
import { requireVersion } from "../../http/entity-tags.ts"
import { namedSchema, pageSchema } from "../../http/json-schema.ts"
import { badRequest, notFound, Problem } from "../../http/problem.ts"
import { filter, flag, paging, withinBytes } from "../../http/query.ts"
import {
  type Answer,
  type Call,
  checkedBody,
  created,
  declareBody,
  json,
  noContent,
  record,
  routeDeclarer,
} from "../../http/route.ts"
import { replay, requestHash } from "../../idempotency.ts"
import { orderedArray } from "../../order.ts"
import { requireRepetition } from "../../repetition.ts"
import { SORTING, sorted } from "../../sorting.ts"
import { DEPENDENTS, WITH_DEPENDENTS } from "../dependents/dependents.ts"
import type { Jobs } from "../jobs/jobs.ts"
import { holdCancellation, type JobServices, PLAN_EXAMPLE } from "../jobs/routes.ts"
import type { SubmissionContext } from "../jobs/submission.ts"
import type { Uploads } from "../uploads/uploads.ts"
import { ARRAY_FILTERS, isSelected } from "./filters.ts"
import { ArrayIndexSchema, arrayIndexes, INDEX_QUERY } from "./index-table.ts"
import {
  type ArrayChange,
  ArrayChangeSchema,
  type ArrayCreation,
  ArrayCreationSchema,
  type ArrayPlanRecord,
  ArrayPlanSchema,
  type ArrayRecord,
  ArrayRecordSchema,
  type ArrayRetry,
  ArrayRetrySchema,
} from "./schema.ts"
import {
  arrayRules,
  arrayStatus,
  checkChange,
  checkCreation,
  hasEnded,
  notRetriable,
  retryError,
  toArray,
  toArrayPlanRecord,
  toArrayRecord,
  withCancel,
  withChange,
  withRetry,
} from "./translate.ts"

export interface ArrayServices {
  arraysOf: (principal: Principal) => Collection<StoredJobArray>
  jobsOf: (principal: Principal) => Pick<Jobs, "all">
  lastHeartbeatOf: JobServices["lastHeartbeatOf"]
  dependentsIn: JobServices["dependentsIn"]
  cancellations: JobServices["cancellations"]
  clock: Clock
  creationTimes: CreationTimes
  /** Returns the check against the current catalogue of a namespace's project. */
  catalogueErrorsIn: (namespace: string) => SubmissionContext["catalogueErrors"]
  plan: Planner
  uploads: Pick<Uploads, "require">
}

const CREATION = {
  name: "lr-sweep",
  job_definition: { image: "ghcr.io/acme/train:1.4", command: ["python", "train.py"], region: "eu" },
  matrix: { LEARNING_RATE: ["0.1", "0.01"], SEED: ["1", "2", "3"] },
  parallelism: 4,
  max_failed: 2,
  after: [{ job: "prepare" }],
}

const ARRAY = namedSchema("ArrayRecord", ArrayRecordSchema, {
  id: "5ea07726-efd2-42ec-a095-6d7674666e31",
  organization_id: "acme-x1",
  project_id: "reports-x2",
  ...CREATION,
  job_definition: { ...CREATION.job_definition, maxRetries: 0, provisioning: "onDemand" },
  size: 6,
  successful_jobs_history_limit: 100,
  failed_jobs_history_limit: 100,
  ttl_seconds_after_finished: null,
  status: "running",
  reason: "Running",
  message: "at most 4 jobs at the same time",
  counts: { pending: 1, queued: 0, booting: 1, running: 2, succeeded: 1, failed: 1, cancelled: 0 },
  active_indexes: "2-4",
  succeeded_indexes: "0",
  failed_indexes: "1",
  cancelled_indexes: "",
  attempts: [],
  actual_cost: 0.42,
  created_at: "2026-01-02T10:00:00Z",
  updated_at: "2026-01-02T10:12:01Z",
  ended_at: null,
  after: [{ job: "prepare", array: null, outcome: "succeeded" }],
  waits_for: null,
})
const LIST = pageSchema("ArrayList", "arrays", ARRAY)
const INDEXES = pageSchema("ArrayIndexList", "indexes", namedSchema("ArrayIndex", ArrayIndexSchema))
const PLAN = namedSchema("ArrayPlan", ArrayPlanSchema, {
  dry_run: true,
  name: CREATION.name,
  size: 6,
  parallelism: 4,
  estimated_cost: 4.883022,
  max_cost_usd: null,
  hourly_usd: 3.255348,
  job: { ...PLAN_EXAMPLE, name: "lr-sweep-0" },
} satisfies ArrayPlanRecord)

function contextOf({ project }: Principal, { catalogueErrorsIn }: ArrayServices): SubmissionContext {
  return { ...toOwner(project), catalogueErrors: catalogueErrorsIn(project.namespace) }
}

const creation = (clouds: readonly string[]) =>
  checkedBody<ArrayCreation, Principal, ArrayServices>("ArrayCreation", ArrayCreationSchema, {
    what: "The array",
    example: CREATION,
    rules: arrayRules(clouds),
    check: (value, { principal, services }) => checkCreation(value, contextOf(principal, services)),
  })

const change = checkedBody<ArrayChange, Principal, ArrayServices>("ArrayChange", ArrayChangeSchema, {
  what: "The change",
  example: { parallelism: 20 },
  rules: [],
  check: (value, { principal, services }) => checkChange(value, contextOf(principal, services)),
})

const route = routeDeclarer<Principal, ArrayServices>({ tag: "arrays" })

const createArray = (clouds: readonly string[]) =>
  route("POST /arrays", {
    id: "createArray",
    summary: "Create an array: one job for each index or combination.",
    role: "developer",
    query: { dry_run: flag("true: validate the array and return its plan; create nothing.", false) },
    body: creation(clouds),
    idempotent: true,
    responses: {
      200: json(PLAN, "With dry_run=true: the plan. Nothing was created."),
      201: created(ARRAY, "Created.", {
        links: {
          getArray: { id: "$response.body#/name" },
          listArrayIndexes: { id: "$response.body#/id" },
          changeArray: { id: "$response.body#/id" },
          cancelArray: { id: "$response.body#/id" },
          retryArray: { id: "$response.body#/id" },
          deleteArray: { id: "$response.body#/id" },
        },
      }),
    },
    creates: true,
    handle: async ({ body, query, idempotencyKey: key, principal }, { arraysOf, creationTimes, plan, uploads }) => {
      const { namespace } = principal.project
      if (query.dry_run) {
        const earlier = key === undefined ? undefined : await arraysOf(principal).earlier(replayOf(body, key))
        const wanted = toArray(body, { namespace, createdAt: creationTimes.next() }) as StoredJobArray
        return planAnswer(earlier ?? (await arraysOf(principal).validated(wanted, body.name)), plan)
      }
      await uploads.require(namespace, body.job_definition.workdir, "/job_definition/workdir")
      const idempotency = key === undefined ? undefined : { key, requestHash: requestHash(body) }
      const wanted = toArray(body, { namespace, createdAt: creationTimes.next(), idempotency }) as StoredJobArray
      const replay = key === undefined ? undefined : replayOf(body, key)
      return createdAnswer(await arraysOf(principal).create(wanted, body.name, replay), principal)
    },
    replay: async ({ body, query, idempotencyKey = "", principal }, { arraysOf, plan }) => {
      const earlier = await arraysOf(principal).earlier(replayOf(body, idempotencyKey))
      if (earlier === undefined) return undefined
      return query.dry_run ? planAnswer(earlier, plan) : createdAnswer(earlier, principal)
    },
  })

const RETRY = declareBody("ArrayRetry", ArrayRetrySchema, {
  what: "The retry",
  isOptional: true,
  description: "Indexes that run again. Without a body, all failed ones do.",
  example: { indexes: [3, 7] },
})

const OTHERS = [
  route("GET /arrays", {
    id: "listArrays",
    summary: "List arrays, newest first.",
    role: "viewer",
    query: { ...ARRAY_FILTERS, ...SORTING, ...paging() },
    responses: { 200: json(LIST, "A page of arrays.") },
    handle: ({ query, principal }, { arraysOf }) => {
      const all = sorted(
        named(arraysOf(principal), query.after).filter((array) => !isBeingDeleted(array) && isSelected(array, query)),
        query,
      )
      const owner = toOwner(principal.project)
      const { offset, limit } = query
      const shown = withinBytes(
        all.slice(offset, offset + limit).map((one) => toArrayRecord(one, owner)),
        query,
      )
      return { body: { arrays: shown.records, total: all.length, ...shown.page } }
    },
  }),
  route("GET /arrays/{id}", {
    id: "getArray",
    summary: "Get an array.",
    role: "viewer",
    responses: { 200: record(ARRAY, "The array.") },
    handle: async ({ path, principal }, { arraysOf }) =>
      answerOf(there(await arraysOf(principal).find(path.id), path.id), principal),
  }),
  route("DELETE /arrays/{id}", {
    id: "deleteArray",
    summary: "Delete an array. Its unfinished jobs are cancelled, the others are kept.",
    role: "developer",
    ifMatch: true,
    responses: { 204: noContent("Deleted.") },
    handle: ({ path, precondition, principal }, { arraysOf }) => arraysOf(principal).remove(path.id, precondition),
  }),
  route("GET /arrays/{id}/indexes", {
    id: "listArrayIndexes",
    summary: "List the indexes of an array, with their values and the results of their last jobs.",
    role: "viewer",
    query: { ...INDEX_QUERY, ...paging() },
    responses: { 200: json(INDEXES, "A page of indexes.") },
    handle: async ({ path, query, principal }, { arraysOf, jobsOf, lastHeartbeatOf, clock }) => {
      const array = there(await arraysOf(principal).find(path.id), path.id)
      const jobs = jobsOf(principal).all({ tags: [], labels: [], array: array.metadata.uid })
      const all = arrayIndexes(array, { jobs, lastHeartbeatOf, now: clock.now() }, query)
      const { offset, limit } = query
      const shown = withinBytes(all.slice(offset, offset + limit), query)
      return { body: { indexes: shown.records, total: all.length, ...shown.page } }
    },
  }),
  route("PATCH /arrays/{id}", {
    id: "changeArray",
    summary: "Change an array's parallelism, its limits and its TTL.",
    role: "developer",
    body: change,
    ifMatch: true,
    responses: { 200: record(ARRAY, "The changed array.") },
    handle: async ({ path, body, precondition, principal }, { arraysOf }) => {
      const changed = (present: StoredJobArray): StoredJobArray | undefined => {
        const { id, name, created_at } = toArrayRecord(there(present, path.id), toOwner(principal.project))
        requireRepetition("array", body, { id, name, created_at })
        return withChange(present, body)
      }
      return answerOf(await arraysOf(principal).change(path.id, changed, precondition), principal)
    },
  }),
  route("POST /arrays/{id}/cancel", {
    id: "cancelArray",
    summary: "Cancel an array and its jobs.",
    role: "developer",
    query: { dependents: WITH_DEPENDENTS },
    ifMatch: true,
    responses: { 200: record(ARRAY, "The cancelled array.") },
    problems: ["already-ended"],
    handle: async (call, services) => {
      const { path, query, precondition, principal } = call
      const { arraysOf } = services
      if (query.dependents) await cancelDependents(call, services)
      const cancelled = (present: StoredJobArray) => {
        requireUnended(there(present, path.id))
        return withCancel(present)
      }
      return answerOf(await arraysOf(principal).change(path.id, cancelled, precondition), principal)
    },
  }),
  route("GET /arrays/{id}/dependents", {
    id: "listArrayDependents",
    summary: "List the jobs and arrays that wait for the array, also through others.",
    role: "viewer",
    query: paging(),
    responses: { 200: json(DEPENDENTS, "A page of dependents, those that wait for the array itself first.") },
    handle: async ({ path, query, principal }, { arraysOf, dependentsIn }) => {
      const array = there(await arraysOf(principal).find(path.id), path.id)
      return { body: dependentsIn(principal).list(orderedArray(array), query) }
    },
  }),
  route("POST /arrays/{id}/retry-failed", {
    id: "retryArray",
    summary: "Run failed indexes of an array again, as new jobs.",
    role: "developer",
    query: {
      indexes: filter("Same as the field indexes of the body, as text such as 0-41,44. Empty: all failed."),
    },
    body: RETRY,
    ifMatch: true,
    responses: {
      200: record(ARRAY, "The array. The indexes run again when the VMs of their former jobs are deleted."),
    },
    problems: ["already-ended", "not-failed"],
    handle: async ({ path, query, body, precondition, principal }, { arraysOf }) => {
      const indexes = namedIndexes(query.indexes, body)
      const retried = (present: StoredJobArray) => {
        requireUncancelled(there(present, path.id))
        if (indexes !== undefined) requireRetriable(present, indexes)
        return withRetry(present, indexes)
      }
      return answerOf(await arraysOf(principal).change(path.id, retried, precondition), principal)
    },
  }),
]

/** Returns the operations on arrays. @param clouds the clouds that a job may name */
export function arrayRoutes(clouds: readonly string[]) {
  return [createArray(clouds), ...OTHERS]
}

/** Returns the arrays of the project whose `after` has this prerequisite. @param after undefined: all arrays */
function named(arrays: Collection<StoredJobArray>, after: string | undefined): StoredJobArray[] {
  if (after === undefined) return arrays.all()
  return arrays.page({ offset: 0, limit: Number.MAX_SAFE_INTEGER }, { terms: [JobTerm.after(after)] }).objects
}

/** Cancels what waits for an array that may be cancelled. */
async function cancelDependents(
  {
    path,
    precondition,
    principal,
    res,
    isStillAuthenticated,
  }: Call<Principal, "/arrays/{id}/cancel", unknown, unknown>,
  { arraysOf, dependentsIn, cancellations, clock }: ArrayServices,
): Promise<void> {
  const array = there(await arraysOf(principal).present(path.id), path.id)
  requireUnended(array)
  requireVersion("array", array, precondition)
  holdCancellation(cancellations, principal, res)
  const options = { clock, isClosed: () => res.closed, isStillAuthenticated }
  await dependentsIn(principal).cancel(orderedArray(array), options)
}

/** @throws Problem 409 if the array has ended; a cancelled one may be cancelled again */
function requireUnended(array: StoredJobArray): void {
  const status = arrayStatus(array)
  if (!hasEnded(array) || status === "cancelled") return
  const detail = `The array ${array.metadata.name} has already ended (${status}): it cannot be cancelled.`
  throw new Problem({ type: "already-ended", status: 409, detail })
}

/** Returns the indexes that a retry names, as text. @throws Problem 400 if query and body both name some */
function namedIndexes(inQuery: string | undefined, { indexes }: ArrayRetry): string | undefined {
  if (indexes === undefined) return inQuery
  if (inQuery !== undefined) throw badRequest("indexes is in the query and in the body: send it once.")
  return typeof indexes === "string" ? indexes : indexText(new Set(indexes))
}

/** @throws Problem 400 if the array has no such index, 409 if one has not failed */
function requireRetriable(array: StoredJobArray, indexes: string): void {
  const error = retryError(array, indexes)
  if (error !== undefined) throw badRequest(`${error}.`)
  const others = notRetriable(array, indexes)
  if (others === "") return
  const detail =
    `These indexes of the array ${array.metadata.name} have not failed or been cancelled: ${others}. ` +
    "Nothing runs again. Name only indexes of failed_indexes and cancelled_indexes."
  throw new Problem({ type: "not-failed", status: 409, detail })
}

/** @throws Problem 409 */
function requireUncancelled({ metadata, spec }: StoredJobArray): void {
  if (spec.cancelled !== true) return
  const detail = `The array ${metadata.name} was cancelled: its indexes can't run again. Create a new array.`
  throw new Problem({ type: "already-ended", status: 409, detail })
}

function answerOf(array: StoredJobArray, { project }: Principal): Answer<ArrayRecord> {
  return { of: array, body: toArrayRecord(array, toOwner(project)) }
}

function createdAnswer(array: StoredJobArray, principal: Principal): Answer<ArrayRecord> {
  return { ...answerOf(array, principal), status: 201, location: `/arrays/${array.metadata.uid}` }
}

async function planAnswer(array: StoredJobArray, plan: Planner): Promise<Answer<ArrayPlanRecord>> {
  const { metadata, spec } = array
  const order = { name: { array: metadata.name }, after: spec.after }
  return {
    status: 200,
    body: toArrayPlanRecord(array, await plan(metadata.namespace ?? "", spec.jobDefinition, order)),
  }
}

function replayOf(body: ArrayCreation, key: string): Replay<StoredJobArray> {
  const idempotency = { key, requestHash: requestHash(body) }
  return { key, accept: (earlier) => replay(earlier, idempotency) }
}

/** Returns the array unless it is being deleted, which lasts until its jobs are cancelled. @throws Problem 404 */
function there(array: StoredJobArray, id: string): StoredJobArray {
  if (array.metadata.deletionTimestamp === undefined) return array
  throw notFound(`No array has the id or name ${quote(id)}.`)
}
