import type { JobSubmission } from "../client/client.ts"
import { filled } from "../client/resubmission.ts"

/** The forms in which a job can be taken elsewhere: YAML, kubectl, curl, `berth run`. */

/** Value of JSON. */
type Value = string | number | boolean | null | undefined | readonly Value[] | { readonly [key: string]: Value }

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
  const isSayable = gpu !== undefined && job.workdir == null && job.ttlSecondsAfterFinished == null
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
    ["--max-cost", job.maxCostUsd],
    ["--timeout", secondsFlag(job.timeoutSeconds)],
    ["--max-queue", secondsFlag(job.maxQueueSeconds)],
    ["--grace", secondsFlag(job.terminationGraceSeconds)],
    ["--retries", job.maxRetries],
    ["--max-preemptions", job.maxPreemptions],
    ["--fallback-after", job.fallbackAfter],
    ...Object.entries(job.env ?? {}).map(([name, value]): Flag => ["--env", `${name}=${value}`]),
    ...Object.entries(job.secretEnv ?? {}).map(
      ([name, { secret, key }]): Flag => ["--secret", `${name}=${secret}:${key}`],
    ),
    ...Object.values(job.volumes ?? {}).map(
      (volume): Flag => [volume.checkpoint === true ? "--checkpoint" : "--volume", volumeFlag(volume)],
    ),
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

function secondsFlag(seconds: number | null | undefined): string | undefined {
  return seconds == null ? undefined : `${seconds}s`
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
