import type { JobRecord, JobSubmission } from "./client.ts"

/** Timeout of a job that names none. Sent as a timeout, it would count as the expected run time. */
const DEFAULT_TIMEOUT_SECONDS = 2_592_000

/** Fields that a job does not take from an earlier one. */
type Own = "name" | "project_id" | "organization_id"

/** Returns the submission that makes the same job again. Its name is left out, since it is taken. */
export function submissionOf(job: JobRecord): JobSubmission {
  const { cpu, memory, disk, gpu } = job.resources
  // The type requires each field, so that none is forgotten when the API gets a new one.
  const fields: { [Field in Exclude<keyof JobSubmission, Own>]-?: unknown } = {
    namePrefix: job.namePrefix,
    image: job.image,
    command: job.command,
    args: job.args,
    env: job.env,
    secretEnv: job.secretEnv,
    volumes: Object.fromEntries(
      job.volumes.map(({ name, checkpoint, ...volume }) => [
        name,
        filled({ ...volume, checkpoint: checkpoint === true ? true : null }),
      ]),
    ),
    workdir: job.workdir,
    resources: filled({ cpu, memory, disk, gpu: gpu === null ? null : filled(gpu) }),
    region: job.region,
    cloud: job.cloud,
    provisioning: job.provisioning === "onDemand" ? null : job.provisioning,
    maxPreemptions: job.max_preemptions,
    fallbackAfter: job.fallback_after,
    maxHourlyPriceUsd: job.maxHourlyPriceUsd,
    maxCostUsd: job.max_cost_usd,
    maxQueueSeconds: job.max_queue_seconds,
    maxRetries: job.max_retries === 0 ? null : job.max_retries,
    timeoutSeconds: job.timeout_seconds === DEFAULT_TIMEOUT_SECONDS ? null : job.timeout_seconds,
    terminationGraceSeconds: job.termination_grace_seconds,
    ttlSecondsAfterFinished: job.ttlSecondsAfterFinished,
    labels: job.labels,
    tags: job.tags,
  }
  return filled(fields) as unknown as JobSubmission
}

/** Returns the fields that are set: no null, and no empty list, map or text. */
export function filled(fields: object): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(fields).filter(([, value]) => {
      if (value === null || value === undefined || value === "") return false
      return typeof value !== "object" || Object.keys(value).length > 0
    }),
  )
}
