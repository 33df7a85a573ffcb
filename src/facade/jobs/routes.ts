import type { Router } from "express"
import { JOB_PHASES } from "../../apis/job.ts"
import { parseBody } from "../../http/body.ts"
import { preconditionOf } from "../../http/entity-tags.ts"
import { Query } from "../../http/query.ts"
import type { Principal } from "../../identity/principal.ts"
import { type Admission, type Call, endpoint, pathParameter, sendRecord } from "../endpoint.ts"
import { idempotencyKeyOf, madeBefore } from "../idempotency.ts"
import type { Planner } from "../planner.ts"
import type { Jobs } from "./jobs.ts"
import { planRecordOf } from "./plan.ts"
import { ownerOf, recordOf } from "./record.ts"
import type { JobCreated, JobList } from "./schema.ts"
import { checkSubmission, type SubmissionContext } from "./submission.ts"
import type { Submitter } from "./submit.ts"

export interface JobRouteOptions {
  admission: Admission
  jobsOf: (principal: Principal) => Jobs
  submitterOf: (principal: Principal) => Submitter
  /** By the catalogue as it is now. */
  catalogueFaults: SubmissionContext["catalogueFaults"]
  plan: Planner
}

/** The contract's job endpoints. */
export function jobRoutes(router: Router, options: JobRouteOptions): void {
  const { admission, jobsOf } = options
  endpoint(
    router,
    "/jobs",
    {
      GET: { role: "viewer", handle: (call) => listJobs(call, jobsOf(call.principal)) },
      POST: { role: "developer", handle: (call) => createJob(call, options) },
    },
    admission,
  )
  endpoint(
    router,
    "/jobs/:id",
    { GET: { role: "viewer", handle: (call) => getJob(call, jobsOf(call.principal)) } },
    admission,
  )
  endpoint(
    router,
    "/jobs/:id/cancel",
    { POST: { role: "developer", handle: (call) => cancelJob(call, jobsOf(call.principal)) } },
    admission,
  )
}

async function createJob({ req, res, principal }: Call, options: JobRouteOptions): Promise<void> {
  const { submitterOf, catalogueFaults, plan } = options
  const query = new Query(req)
  const dryRun = query.boolean("dry_run") ?? false
  query.check()
  const key = idempotencyKeyOf(req)
  const checked = checkSubmission(parseBody(req), { ...ownerOf(principal.project), catalogueFaults })
  const submitter = submitterOf(principal)
  const job =
    "faults" in checked
      ? await madeBefore(checked, "The job", key, (submission, used) => submitter.earlier(submission, used))
      : await submitter.submit(checked.submission, key, { dryRun })
  const { uid, name } = job.metadata
  if (dryRun) {
    res.json(planRecordOf(name, await plan(principal.project.namespace, job.spec)))
    return
  }
  const answer: JobCreated = { job_id: uid, name, status: "queued" }
  res.status(201).location(`/1/jobs/${uid}`).json(answer)
}

function listJobs({ req, res, principal }: Call, jobs: Jobs): void {
  const query = new Query(req)
  const filter = { status: query.choice("status", JOB_PHASES), tags: query.all("tag"), labels: labelParameters(query) }
  const page = query.page()
  query.check()
  const found = jobs.list(filter, page)
  const owner = ownerOf(principal.project)
  const list: JobList = { jobs: found.jobs.map((job) => recordOf(job, owner)), total: found.total, ...page }
  res.json(list)
}

/** `key:value` or `key=value`, split at the first of the two signs. */
function labelParameters(query: Query): { key: string; value: string }[] {
  return query.all("label").flatMap((text) => {
    const separator = text.search(/[:=]/)
    if (separator > 0) return [{ key: text.slice(0, separator), value: text.slice(separator + 1) }]
    query.fault("label", `must be key:value or key=value, not "${text}"`)
    return []
  })
}

async function getJob(call: Call, jobs: Jobs): Promise<void> {
  new Query(call.req).check()
  const job = await jobs.find(pathParameter(call.req, "id"))
  sendRecord(call, job, { record: recordOf(job, ownerOf(call.principal.project)) })
}

async function cancelJob(call: Call, jobs: Jobs): Promise<void> {
  new Query(call.req).check()
  const job = await jobs.cancel(pathParameter(call.req, "id"), preconditionOf(call.req))
  sendRecord(call, job, { record: recordOf(job, ownerOf(call.principal.project)) })
}
