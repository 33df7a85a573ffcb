import type { JobRecord, JobSubmission } from "../client/client.ts"

/** The forms in which a job can be taken elsewhere: YAML, kubectl, curl, `berth run`. */

/** Timeout of a job that names none. Sent as a timeout, it would count as the expected run time. */
const DEFAULT_TIMEOUT_SECONDS = 2_592_000

/** Value of JSON. */
type Value = string | number | boolean | null | undefined | readonly Value[] | { readonly [key: string]: Value }

/** Returns the submission that makes the same job again. Its name is left out, since it is taken. */
export function submissionOf(job: JobRecord): JobSubmission {
  const { cpu, memory, disk, gpu } = job.resources
  return filled({
    namePrefix: job.namePrefix,
    image: job.image,
    command: job.command,
    args: job.args,
    env: job.env,
    secretEnv: job.secretEnv,
    volumes: Object.fromEntries(job.volumes.map(({ name, ...volume }) => [name, filled(volume)])),
    resources: filled({ cpu, memory, disk, gpu: gpu === null ? null : filled(gpu) }),
    region: job.region,
    cloud: job.cloud,
    provisioning: job.provisioning === "onDemand" ? null : job.provisioning,
    maxHourlyPriceUsd: job.maxHourlyPriceUsd,
    maxCostUsd: job.max_cost_usd,
    maxRetries: job.max_retries === 0 ? null : job.max_retries,
    timeoutSeconds: job.timeout_seconds === DEFAULT_TIMEOUT_SECONDS ? null : job.timeout_seconds,
    ttlSecondsAfterFinished: job.ttlSecondsAfterFinished,
    labels: job.labels,
    tags: job.tags,
  }) as unknown as JobSubmission
}

/** Returns the fields that are set: no null, and no empty list, map or text. */
export function filled(fields: object): Record<string, Value> {
  return Object.fromEntries(
    Object.entries(fields).filter(([, value]) => {
      if (value === null || value === undefined || value === "") return false
      return typeof value !== "object" || Object.keys(value).length > 0
    }),
  )
}

/** Returns a value as YAML. Texts that YAML could read as something else are quoted. */
export function yamlOf(value: object): string {
  return `${block(value as Value, "").replace(/^\n/, "")}\n`
}

function block(value: Value, indent: string): string {
  if (Array.isArray(value)) {
    if (value.length === 0) return " []"
    if (value.every((item) => typeof item !== "object")) {
      const flow = value.map((item) => scalar(item, ",[]{}")).join(", ")
      if (flow.length < 80 && !flow.includes("\n")) return ` [${flow}]`
    }
    return value.map((item) => `\n${indent}-${block(item, `${indent}  `).replace(/^\n\s*/, " ")}`).join("")
  }
  if (typeof value === "object" && value !== null) {
    const entries = Object.entries(value).filter(([, item]) => item !== undefined)
    if (entries.length === 0) return " {}"
    return entries.map(([key, item]) => `\n${indent}${scalar(key, "")}:${block(item, `${indent}  `)}`).join("")
  }
  return ` ${scalar(value, "")}`
}

/** Texts that need no quotes. A dot begins a number in YAML, such as .5, but not a path. */
const PLAIN = /^(?:[A-Za-z_/]|\.\.?\/)[-A-Za-z0-9_/.@+=]*(?::[-A-Za-z0-9_/.@+=]+)*$/
const RESERVED = /^(?:true|false|yes|no|on|off|y|n|null)$/i

function scalar(value: Value, flow: string): string {
  if (typeof value !== "string") return String(value)
  const isPlain = PLAIN.test(value) && !RESERVED.test(value) && ![...flow].some((sign) => value.includes(sign))
  return isPlain ? value : JSON.stringify(value)
}

/** Returns the manifest of a Job for kubectl. */
export function manifestOf({ name, namePrefix, ...spec }: JobSubmission): string {
  const metadata = name != null ? { name } : { generateName: `${namePrefix ?? "job"}-` }
  const region = typeof spec.region === "string" ? { region: [spec.region] } : {}
  const cpu = spec.resources?.cpu
  const gpu = spec.resources?.gpu
  const resources = {
    ...spec.resources,
    ...(cpu != null && { cpu: String(cpu) }),
    ...(typeof gpu === "string" && { gpu: { vram: gpu } }),
  }
  const { project_id: _project, organization_id: _organization, ...fields } = spec
  return yamlOf({
    apiVersion: "berth.dev/v1alpha1",
    kind: "Job",
    metadata,
    spec: filled({ ...fields, ...region, resources }),
  })
}

/** Returns a text as one word of a POSIX shell. */
export function shellWord(text: string): string {
  return /^[-A-Za-z0-9_/.:=@%+,]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`
}

/** Returns the command that submits a job over REST. */
export function curlOf(job: JobSubmission, baseUrl: string): string {
  return [
    `curl --fail-with-body ${shellWord(`${baseUrl}/jobs`)} \\`,
    '  -H "X-Service-Api-Key: $BERTH_API_KEY" \\',
    '  -H "Content-Type: application/yaml" --data-binary @- <<"EOF"',
    `${yamlOf(job)}EOF`,
  ].join("\n")
}

/** Returns the command of the command line; undefined if its flags can't say all of the job. */
export function berthRunOf(job: JobSubmission): string | undefined {
  const entrypoint = job.command ?? []
  const gpu = gpuFlag(job.resources?.gpu)
  const isSayable = gpu !== undefined && job.maxCostUsd == null && job.ttlSecondsAfterFinished == null
  if (!isSayable) return undefined
  const all: Flag[] = [
    ["--image", job.image],
    ["--name", job.name],
    ["--prefix", job.namePrefix],
    ["--entrypoint", entrypoint[0]],
    ["--cpu", job.resources?.cpu],
    ["--memory", job.resources?.memory],
    ["--disk", job.resources?.disk],
    ["--gpu", gpu],
    ...listOf(job.region).map((region): Flag => ["--region", region]),
    ...listOf(job.cloud).map((cloud): Flag => ["--cloud", cloud]),
    ["--max-price", job.maxHourlyPriceUsd],
    ["--timeout", job.timeoutSeconds == null ? null : `${job.timeoutSeconds}s`],
    ["--retries", job.maxRetries],
    ...Object.entries(job.env ?? {}).map(([name, value]): Flag => ["--env", `${name}=${value}`]),
    ...Object.entries(job.secretEnv ?? {}).map(
      ([name, { secret, key }]): Flag => ["--secret", `${name}=${secret}:${key}`],
    ),
    ...Object.values(job.volumes ?? {}).map((volume): Flag => ["--volume", volumeFlag(volume)]),
    ...Object.entries(job.labels ?? {}).map(([name, value]): Flag => ["--label", `${name}=${value}`]),
    ...(job.tags ?? []).map((tag): Flag => ["--tag", tag]),
  ]
  const flags = all.flatMap(([flag, value]) =>
    value == null || value === "" ? [] : [`${flag} ${shellWord(String(value))}`],
  )
  if (job.provisioning === "spot") flags.push("--spot")
  if (job.provisioning === "spotFirst") flags.push("--spot-first")
  const words = [...entrypoint.slice(1), ...(job.args ?? [])].map(shellWord)
  return [["berth run", ...flags].join(" \\\n  "), ...(words.length === 0 ? [] : [`-- ${words.join(" ")}`])].join(
    " \\\n  ",
  )
}

type Flag = [flag: string, value: string | number | null | undefined]

function listOf(value: string | readonly string[] | null | undefined): readonly string[] {
  return typeof value === "string" ? [value] : (value ?? [])
}

/** Returns the value of `--gpu`: empty for none, undefined for GPUs that the flag can't say. */
function gpuFlag(gpu: NonNullable<JobSubmission["resources"]>["gpu"]): string | undefined {
  if (gpu == null) return ""
  if (typeof gpu === "string") return gpu
  const { model, count, vram } = gpu as { model?: string | null; count?: number | null; vram?: string | null }
  if (model != null && vram == null) return count == null || count === 1 ? model : `${model}:${count}`
  return vram != null && model == null && count == null ? vram : undefined
}

function volumeFlag({ bucket, prefix, mountPath, connection }: NonNullable<JobSubmission["volumes"]>[string]): string {
  return `${bucket}${prefix == null ? "" : `/${prefix}`}:${mountPath}${connection == null ? "" : `@${connection}`}`
}
