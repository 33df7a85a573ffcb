import { findCondition } from "../apis/conditions.ts"
import { JobCondition, type JobPhase, type StoredJob } from "../apis/job.ts"
import { JOB_END_EVENTS, type JobEndEvent, type WebhookEvent, type WebhookSpec } from "../apis/webhook.ts"

/** End of a job, as webhooks see it. */
export interface JobEnd {
  type: JobEndEvent
  /** Time at which the operator wrote the end, RFC 3339. The clock of a VM has no part in it. */
  time: string
}

const TYPES: Partial<Record<JobPhase, JobEndEvent>> = {
  succeeded: "job.succeeded",
  failed: "job.failed",
  cancelled: "job.cancelled",
}

/** Returns the end of a job; undefined before it. */
export function jobEnd({ status }: Pick<StoredJob, "status">): JobEnd | undefined {
  const type = status?.phase && TYPES[status.phase]
  if (type === undefined) return undefined
  const condition = findCondition(status?.conditions, JobCondition.Complete)
  const ended = condition ?? findCondition(status?.conditions, JobCondition.Failed)
  const time = ended?.lastTransitionTime ?? status?.completionTime
  return time === undefined ? undefined : { type, time }
}

/** Returns true if a webhook gets events of this type. */
export function wantsType({ events }: Pick<WebhookSpec, "events">, type: WebhookEvent): boolean {
  return events.includes(type) || (events.includes("job.*") && JOB_END_EVENTS.some((end) => end === type))
}

/** Returns true if a webhook gets ends of this job, whatever they will be. */
export function wantsJob(spec: Pick<WebhookSpec, "events" | "labels" | "tags">, job: Pick<StoredJob, "spec">): boolean {
  if (!JOB_END_EVENTS.some((type) => wantsType(spec, type))) return false
  const { labels = {}, tags = [] } = job.spec
  const hasLabels = Object.entries(spec.labels ?? {}).every(([key, value]) => labels[key] === value)
  return hasLabels && (spec.tags ?? []).every((tag) => tags.includes(tag))
}
