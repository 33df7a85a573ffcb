import { createHash, randomBytes } from "node:crypto"
import { Option } from "commander"
import { ARRAY_SHAPE, type ArrayShape } from "../client/array-grammar.ts"
import type { JobRecord, JobSubmission } from "../client/client.ts"
import { JOB_FLAGS, type JobFlag } from "../client/job-fields.ts"
import { DURATION, GPU, readText } from "../client/job-grammar.ts"
import { toSubmission as resubmissionOf } from "../client/resubmission.ts"
import { LIMITS } from "../core/apis/field-limits.ts"
import { collectOption } from "./command.ts"
import type { Environment } from "./context.ts"
import { usageError } from "./exit.ts"

/** Texts of the flags of `berth run` and `berth plan` that describe the job. */
export type JobFlags = { [Name in keyof typeof JOB_FLAGS]?: string | readonly string[] | boolean }

/** Returns the options that describe a job. */
export function jobOptions(): Option[] {
  return Object.values(JOB_FLAGS).map(({ flags, help, isRepeated }) => {
    const option = new Option(flags, isRepeated ? `${help}; may be repeated` : help).helpGroup("Job options:")
    return isRepeated ? option.argParser(collectOption) : option
  })
}

/** Input of a job: its flags, and what they refer to. */
export interface JobInput {
  flags: JobFlags
  /** Arguments after `--`. */
  args: readonly string[]
  /** Job that the flags change, from `-f`. */
  base?: JobSubmission | undefined
  /** Variables of the files of `--env-file`. */
  fileEnvironment?: Readonly<Record<string, string>>
  environment: Environment
}

/** Returns the body of POST /jobs. Each flag replaces the field of the file. @throws Failure that names the flag */
export function buildSubmission({ flags, args, base, fileEnvironment = {}, environment }: JobInput): JobSubmission {
  if (flags.image === undefined && base?.image === undefined)
    throw usageError(`A job needs an image: give --image ${args[0] ?? "IMAGE"}, or -f FILE.`)
  if (flags.spot === true && flags.spotFirst === true)
    throw usageError("--spot and --spot-first exclude each other: give one.")
  const { name: _name, namePrefix: _prefix, ...unnamed } = base ?? {}
  const job: Record<string, unknown> = {
    ...(flags.name === undefined && flags.prefix === undefined ? base : unnamed),
    ...(args.length > 0 && { args: [...args] }),
    ...(Object.keys(fileEnvironment).length > 0 && { env: { ...base?.env, ...fileEnvironment } }),
  }
  for (const [name, { field, read }] of Object.entries<JobFlag>(JOB_FLAGS)) {
    const given = flags[name as keyof JobFlags]
    if (given === undefined || read === undefined) continue
    job[field] = read([given].flat().map(String), job[field], { environment, refuse: usageError })
  }
  return job as unknown as JobSubmission
}

const READING = { environment: {}, refuse: usageError }

/** Returns the seconds of a duration such as `90s`, `2h` or `1h30m`. @throws Failure that names the flag */
export function parseSeconds(flag: string, text: string): number {
  return readText(DURATION, [flag, text], READING)
}

/**
 * Returns the submission of a job like the one of a record, with another name. It waits for no other job: what the earlier one
 * waited for has ended, or may be deleted.
 */
export function submissionLike(record: JobRecord): JobSubmission {
  const { after: _, ...same } = resubmissionOf(record)
  return { ...same, namePrefix: (record.namePrefix ?? record.name).slice(0, 40) }
}

/**
 * Returns a name of an array, whose length is limited. As Kubernetes does with generateName, a long prefix is cut.
 * @param once Idempotency-Key: the name is the same for the same key, else new
 */
export function arrayName(prefix: string, once?: string): string {
  const bytes = once === undefined ? randomBytes(4) : createHash("sha256").update(once).digest().subarray(0, 4)
  const suffix = bytes.toString("hex")
  return `${prefix.slice(0, LIMITS.jobArrayName - suffix.length - 1).replace(/-+$/, "")}-${suffix}`
}

/** Returns the jobs of an array in the text of `--array`. @throws Failure that says how to write it */
export function parseArrayShape(text: string): ArrayShape {
  return readText(ARRAY_SHAPE, ["--array", text], READING)
}

/** Returns the submission with one field changed. @param setting such as `resources.gpu=L4` @throws Failure */
export function withSetting(job: JobSubmission, setting: string): JobSubmission {
  const [, path, text] = /^([A-Za-z_]+(?:\.[^=]+)?)=(.*)$/s.exec(setting) ?? []
  if (path === undefined || text === undefined)
    throw usageError(`--set ${setting} must be FIELD=VALUE, as in resources.gpu=L4.`)
  const [field = "", ...rest] = path.split(".")
  const key = rest.join(".")
  const isText = field === "env" || field === "labels"
  const value = path === "resources.gpu" ? readText(GPU, ["--gpu", text], READING) : isText ? text : settingOf(text)
  if (key === "") return { ...job, [field]: value }
  return { ...job, [field]: { ...(job as unknown as Record<string, object>)[field], [key]: value } }
}

/** Returns the value of a text: JSON where it is JSON, such as a number or a list, else the text itself. */
function settingOf(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}
