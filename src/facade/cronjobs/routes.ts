import type { Router } from "express"
import type { StoredCronJob } from "../../apis/cronjob.ts"
import { parseBody } from "../../http/body.ts"
import { preconditionOf } from "../../http/entity-tags.ts"
import { invalidRequest, notFound } from "../../http/problem.ts"
import { Query } from "../../http/query.ts"
import type { Principal, ProjectScope } from "../../identity/principal.ts"
import type { Collection, Replay } from "../collection.ts"
import type { CreationTimes } from "../created-at.ts"
import { type Admission, type Call, endpoint, pathParameter, sendRecord } from "../endpoint.ts"
import { idempotencyKeyOf, madeBefore, replayed } from "../idempotency.ts"
import { requestHash } from "../jobs/job.ts"
import { ownerOf } from "../jobs/record.ts"
import type { SubmissionContext } from "../jobs/submission.ts"
import type { CronJobCreation, CronJobList } from "./schema.ts"
import { changedSpec, checkChange, checkCreation, cronJobOf, cronJobRecordOf, withCascade } from "./translate.ts"

export interface CronJobRouteOptions {
  admission: Admission
  cronJobsOf: (principal: Principal) => Collection<StoredCronJob>
  creationTimes: CreationTimes
  /** By the catalogue as it is now. */
  catalogueFaults: SubmissionContext["catalogueFaults"]
}

/** The contract's cronjob endpoints. */
export function cronJobRoutes(router: Router, options: CronJobRouteOptions): void {
  const { admission, cronJobsOf } = options
  endpoint(
    router,
    "/cronjobs",
    {
      GET: { role: "viewer", handle: (call) => listCronJobs(call, cronJobsOf(call.principal)) },
      POST: { role: "developer", handle: (call) => createCronJob(call, options) },
    },
    admission,
  )
  endpoint(
    router,
    "/cronjobs/:name",
    {
      GET: { role: "viewer", handle: (call) => getCronJob(call, cronJobsOf(call.principal)) },
      PATCH: { role: "developer", handle: (call) => changeCronJob(call, options) },
      DELETE: { role: "developer", handle: (call) => deleteCronJob(call, cronJobsOf(call.principal)) },
    },
    admission,
  )
}

async function createCronJob(call: Call, options: CronJobRouteOptions): Promise<void> {
  const { req, res, principal } = call
  new Query(req).check()
  const key = idempotencyKeyOf(req)
  const checked = checkCreation(parseBody(req), contextOf(principal.project, options))
  const cronJobs = options.cronJobsOf(principal)
  const made =
    "faults" in checked
      ? await madeBefore(checked, "The cronjob", key, (body, used) => cronJobs.earlier(replayOf(body, used)))
      : await makeCronJob(checked.body, cronJobs, { key, namespace: principal.project.namespace, ...options })
  res.location(`/1/cronjobs/${made.metadata.uid}`)
  sendCronJob(call, made, 201)
}

function makeCronJob(
  body: CronJobCreation,
  cronJobs: Collection<StoredCronJob>,
  { key, namespace, creationTimes }: { key: string | undefined; namespace: string; creationTimes: CreationTimes },
): Promise<StoredCronJob> {
  const idempotency = key === undefined ? undefined : { key, requestHash: requestHash(body) }
  const cronJob = cronJobOf(body, { namespace, createdAt: creationTimes.next(), idempotency }) as StoredCronJob
  return cronJobs.create(cronJob, body.name, key === undefined ? undefined : replayOf(body, key))
}

function replayOf(body: CronJobCreation, key: string): Replay<StoredCronJob> {
  const idempotency = { key, requestHash: requestHash(body) }
  return { key, accept: (earlier) => replayed(earlier, idempotency) }
}

function listCronJobs({ req, res, principal }: Call, cronJobs: Collection<StoredCronJob>): void {
  const query = new Query(req)
  const page = query.page()
  query.check()
  const { objects, total } = cronJobs.page(page)
  const owner = ownerOf(principal.project)
  const list: CronJobList = { cronjobs: objects.map((one) => cronJobRecordOf(one, owner)), total, ...page }
  res.json(list)
}

async function getCronJob(call: Call, cronJobs: Collection<StoredCronJob>): Promise<void> {
  new Query(call.req).check()
  const id = pathParameter(call.req, "name")
  sendCronJob(call, there(await cronJobs.find(id), id))
}

async function changeCronJob(call: Call, options: CronJobRouteOptions): Promise<void> {
  const { req, principal } = call
  new Query(req).check()
  const precondition = preconditionOf(req)
  const checked = checkChange(parseBody(req), contextOf(principal.project, options))
  if ("faults" in checked) throw invalidRequest(checked.faults, "The change")
  const id = pathParameter(req, "name")
  const change = (present: StoredCronJob): StoredCronJob | undefined => {
    there(present, id)
    const spec = changedSpec(present.spec, checked.body)
    return spec && { ...present, spec }
  }
  const cronJobs = options.cronJobsOf(principal)
  sendCronJob(call, await cronJobs.change(id, change, precondition))
}

/** Its jobs stay as they are, or, by `cascade` or as its manifest asks, those that have not ended are cancelled. */
async function deleteCronJob({ req, res }: Call, cronJobs: Collection<StoredCronJob>): Promise<void> {
  const query = new Query(req)
  const cascade = query.boolean("cascade")
  query.check()
  const cronJob = pathParameter(req, "name")
  const precondition = preconditionOf(req)
  if (cascade === undefined) await cronJobs.remove(cronJob, precondition)
  else {
    const { metadata } = await cronJobs.change(cronJob, (present) => withCascade(present, cascade), precondition)
    await cronJobs.remove(metadata.uid)
  }
  res.status(204).end()
}

/** One that was deleted is none any more, though it stays for as long as its jobs are being cancelled. */
function there(cronJob: StoredCronJob, id: string): StoredCronJob {
  if (cronJob.metadata.deletionTimestamp === undefined) return cronJob
  throw notFound(`There is no cronjob with the id or name ${JSON.stringify(id)}.`)
}

function sendCronJob(call: Call, cronJob: StoredCronJob, status = 200): void {
  sendRecord(call, cronJob, { record: cronJobRecordOf(cronJob, ownerOf(call.principal.project)), status })
}

function contextOf(project: ProjectScope, { catalogueFaults }: CronJobRouteOptions): SubmissionContext {
  return { ...ownerOf(project), catalogueFaults }
}
