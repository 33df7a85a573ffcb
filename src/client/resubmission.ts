import type { JobRecord, JobSubmission } from "./client.ts"
import { JOB_FIELDS, type JobField, recordField } from "./job-fields.ts"

/** Timeout of a job that names none. Sent as a timeout, it would count as the expected run time. */
const DEFAULT_TIMEOUT_SECONDS = 2_592_000

/** Fields whose form in a submission is another than in the record. */
const FORMS: { readonly [Field in JobField]?: (job: JobRecord) => unknown } = {
  volumes: ({ volumes }) =>
    Object.fromEntries(
      Object.entries(submittedVolumes(volumes)).map(([name, { checkpoint, readOnly, ...volume }]) => [
        name,
        withoutEmpty({ ...volume, checkpoint: checkpoint || null, readOnly: readOnly || null }),
      ]),
    ),
  resources: ({ resources: { gpu, ...parts } }) =>
    withoutEmpty({ ...parts, gpu: gpu === null ? null : withoutEmpty(gpu) }),
  after: ({ after }) => submittedAfter(after),
  retryRules: ({ retry_rules: rules }) => submittedRules(rules),
  idleLimit: ({ idle_limit: limit }) => submittedIdleLimit(limit),
  reuse: ({ reuse }) => submittedReuse(reuse),
  debug: ({ debug }) => submittedDebug(debug),
  provisioning: ({ provisioning }) => (provisioning === "onDemand" ? null : provisioning),
  priority: valueBut("priority", 0),
  maxRetries: valueBut("maxRetries", 0),
  timeoutSeconds: valueBut("timeoutSeconds", DEFAULT_TIMEOUT_SECONDS),
}

/** Returns the volumes of a job's record by their names, with the fields of a submission. */
export function submittedVolumes(volumes: JobRecord["volumes"]) {
  return Object.fromEntries(
    volumes.map(({ name, mount_path: mountPath, read_only: readOnly, ...volume }) => [
      name,
      { ...volume, mountPath, readOnly: readOnly ?? false },
    ]),
  )
}

/** Returns the retry rules of a job's record, with the fields of a submission. */
export function submittedRules(rules: JobRecord["retry_rules"]) {
  return rules.map(({ exit_codes: exitCodes, ...rule }) => withoutEmpty({ ...rule, exitCodes }))
}

/** Returns the prerequisites of a job's or an array's record, with the fields of a submission. */
export function submittedAfter(after: JobRecord["after"]) {
  return (after ?? []).map(({ outcome, ...name }) =>
    withoutEmpty({ ...name, ...(outcome !== "succeeded" && { outcome }) }),
  )
}

/** Returns the idle limit of a job's record, with the fields of a submission; null for none, also from an older API. */
export function submittedIdleLimit(limit: JobRecord["idle_limit"] | undefined) {
  if (limit == null) return null
  const { seconds, gpu_percent: gpuPercent, cpu_percent: cpuPercent } = limit
  return withoutEmpty({ seconds, gpuPercent, cpuPercent })
}

/** Returns what a job's record asks for after a failure, with the fields of a submission; null for none, also from an older API. */
export function submittedDebug(debug: JobRecord["debug"] | undefined) {
  return debug == null ? null : { keepSeconds: debug.keep_seconds }
}

/** Returns the reuse of a job's record, with the fields of a submission; null for none, also from an older API. */
export function submittedReuse(reuse: JobRecord["reuse"] | undefined) {
  if (reuse == null) return null
  const { idle_seconds: idleSeconds, key } = reuse
  return { idleSeconds, ...(key !== null && { key }) }
}

/** Returns a function that reads a field, and is null for the field's default. */
function valueBut(field: JobField, byDefault: unknown): (job: JobRecord) => unknown {
  return (job) => (job[recordField(field)] === byDefault ? null : job[recordField(field)])
}

/** Returns the submission that makes the same job again. Its name is left out, since it is taken. */
export function toSubmission(job: JobRecord): JobSubmission {
  const fields = JOB_FIELDS.filter((field) => field !== "name")
  const formOf = (field: JobField) => FORMS[field] ?? ((record: JobRecord) => record[recordField(field)])
  return withoutEmpty(
    Object.fromEntries(fields.map((field) => [field, formOf(field)(job)])),
  ) as unknown as JobSubmission
}

/** Returns the fields that are set: no null, and no empty list, map or text. */
export function withoutEmpty(fields: object): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(fields).filter(([, value]) => {
      if (value === null || value === undefined || value === "") return false
      return typeof value !== "object" || Object.keys(value).length > 0
    }),
  )
}
