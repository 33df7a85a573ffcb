import { randomBytes } from "node:crypto"
import { LIMITS } from "../apis/limits.ts"
import type { JobRecord, JobSubmission } from "../client/client.ts"
import { submissionOf as resubmissionOf } from "../client/resubmission.ts"
import type { Environment } from "./context.ts"
import { usageError } from "./exit.ts"

/** Flags of `berth run` and `berth plan` that describe the job. */
export interface JobFlags {
  image?: string
  name?: string
  prefix?: string
  entrypoint?: string
  cpu?: string
  memory?: string
  disk?: string
  gpu?: string
  region?: string[]
  cloud?: string[]
  spot?: boolean
  spotFirst?: boolean
  fallbackAfter?: string
  maxPreemptions?: string
  maxPrice?: string
  maxCost?: string
  timeout?: string
  maxQueue?: string
  grace?: string
  retries?: string
  env?: string[]
  secret?: string[]
  volume?: string[]
  checkpoint?: string
  workdir?: string
  label?: string[]
  tag?: string[]
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
export function submissionOf({ flags, args, base, fileEnvironment, environment }: JobInput): JobSubmission {
  const image = flags.image ?? base?.image
  if (image === undefined) throw usageError(`A job needs an image: give --image ${args[0] ?? "IMAGE"}, or -f FILE.`)
  const env = {
    ...base?.env,
    ...fileEnvironment,
    ...pairs(flags.env, environment, "--env"),
  }
  const secretEnv = { ...base?.secretEnv, ...mapped(flags.secret, secretOf) }
  const volumes = volumesOf(base?.volumes ?? {}, flags)
  const labels = { ...base?.labels, ...pairs(flags.label, {}, "--label") }
  const tags = [...(base?.tags ?? []), ...(flags.tag ?? [])]
  const resources = { ...base?.resources, ...resourcesOf(flags) }
  const { name: _name, namePrefix: _prefix, ...rest } = base ?? {}
  return {
    ...(flags.name === undefined && flags.prefix === undefined ? base : rest),
    ...defined({ name: flags.name, namePrefix: flags.prefix }),
    image,
    ...(flags.entrypoint !== undefined && { command: [flags.entrypoint] }),
    ...(args.length > 0 && { args: [...args] }),
    ...filled({ env, secretEnv, volumes, labels, resources }),
    ...(tags.length > 0 && { tags }),
    ...(flags.region !== undefined && { region: flags.region }),
    ...(flags.cloud !== undefined && { cloud: flags.cloud as NonNullable<JobSubmission["cloud"]> }),
    ...provisioningOf(flags),
    ...defined({
      maxHourlyPriceUsd: numberOf("--max-price", flags.maxPrice),
      maxCostUsd: numberOf("--max-cost", flags.maxCost),
      timeoutSeconds: durationOf("--timeout", flags.timeout),
      maxQueueSeconds: durationOf("--max-queue", flags.maxQueue),
      terminationGraceSeconds: durationOf("--grace", flags.grace),
      maxRetries: numberOf("--retries", flags.retries),
      maxPreemptions: numberOf("--max-preemptions", flags.maxPreemptions),
      fallbackAfter: numberOf("--fallback-after", flags.fallbackAfter),
    }),
  }
}

function resourcesOf({ cpu, memory, disk, gpu }: JobFlags): NonNullable<JobSubmission["resources"]> {
  return {
    ...defined({ cpu: numberOf("--cpu", cpu), memory, disk }),
    ...(gpu !== undefined && { gpu: gpuOf(gpu) }),
  }
}

type Gpu = NonNullable<NonNullable<JobSubmission["resources"]>["gpu"]>

const SIZE = /^[0-9.]+([KMGT]i|[kMGT])$/

/** Returns the GPU of `24Gi` (memory in total), `L4`, `L4:2` (model and number of cards) or `A100:80Gi` (model and memory). */
export function gpuOf(text: string): Gpu {
  if (SIZE.test(text)) return text
  const [, model = "", amount = "1"] = /^([A-Za-z][^:]*)(?::([^:]+))?$/.exec(text) ?? []
  if (model !== "" && SIZE.test(amount)) return { model, vram: amount } as Gpu
  if (model !== "" && /^[1-9][0-9]*$/.test(amount)) return { model, count: Number(amount) } as Gpu
  throw usageError(
    `--gpu ${text} is no GPU: write a model (L4), model and number (L4:2), model and memory (A100:80Gi) or memory (24Gi).`,
  )
}

function provisioningOf({ spot, spotFirst }: JobFlags): Pick<JobSubmission, "provisioning"> {
  if (spot === true && spotFirst === true) throw usageError("--spot and --spot-first exclude each other: give one.")
  if (spotFirst === true) return { provisioning: "spotFirst" }
  return spot === true ? { provisioning: "spot" } : {}
}

/** Returns the map of texts such as `K=V`. A name alone takes its value from the environment, as Docker does. */
function pairs(texts: readonly string[] = [], environment: Environment, flag: string): Record<string, string> {
  return mapped(texts, (text) => {
    const at = text.indexOf("=")
    if (at > 0) return [text.slice(0, at), text.slice(at + 1)]
    const value = at < 0 && flag !== "--label" ? environment[text] : undefined
    if (value === undefined) throw usageError(`${flag} ${text} has no value: write NAME=VALUE.`)
    return [text, value]
  })
}

function secretOf(text: string): [string, { secret: string; key: string }] {
  const [, name, secret, key] = /^([^=]+)=([^:]+):(.+)$/.exec(text) ?? []
  if (name === undefined || secret === undefined || key === undefined)
    throw usageError(
      `--secret ${/^[^=]*/.exec(text)?.[0]}=… must name a Secret and its key, as in HUB_TOKEN=hub:token. The value itself stays in the Secret.`,
    )
  return [name, { secret, key }]
}

type Volumes = NonNullable<JobSubmission["volumes"]>

/** Returns the volumes of the file with those of the flags. The names of flags are free ones: they replace no volume. */
function volumesOf(base: Volumes, { volume = [], checkpoint }: JobFlags): Volumes {
  const volumes = { ...base }
  for (const text of volume) volumes[freeName("volume", volumes)] = volumeOf("--volume", text)
  if (checkpoint !== undefined) {
    const name = Object.hasOwn(volumes, "checkpoint") ? freeName("checkpoint", volumes) : "checkpoint"
    volumes[name] = { ...volumeOf("--checkpoint", checkpoint), checkpoint: true }
  }
  return volumes
}

function freeName(prefix: string, taken: Volumes): string {
  let number = 1
  while (Object.hasOwn(taken, `${prefix}-${number}`)) number++
  return `${prefix}-${number}`
}

function volumeOf(flag: string, text: string): Volumes[string] {
  const [, bucket, prefix, mountPath, connection] = /^([^/:@]+)(?:\/([^:]*))?:(\/[^@]*)(?:@(.+))?$/.exec(text) ?? []
  if (bucket === undefined || mountPath === undefined)
    throw usageError(`${flag} ${text} is no volume: write BUCKET[/PREFIX]:/PATH[@CONNECTION].`)
  return { bucket, mountPath, ...defined({ prefix, connection }) }
}

const SECONDS = { s: 1, m: 60, h: 3600, d: 86_400 }

/** Returns the seconds of a duration such as `90s`, `2h` or `1h30m`. @throws Failure that names the flag */
export function secondsOf(flag: string, text: string): number {
  if (!/^(\d+[smhd])+$/.test(text)) throw usageError(`${flag} ${text} is no duration: write 90s, 30m, 2h, 1d or 1h30m.`)
  return [...text.matchAll(/(\d+)([smhd])/g)].reduce(
    (sum, [, count, unit]) => sum + Number(count) * SECONDS[unit as keyof typeof SECONDS],
    0,
  )
}

function durationOf(flag: string, text: string | undefined): number | undefined {
  return text === undefined ? undefined : secondsOf(flag, text)
}

function numberOf(flag: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined
  const number = Number(text)
  if (text.trim() === "" || Number.isNaN(number)) throw usageError(`${flag} ${text} is no number.`)
  return number
}

function mapped<Value>(
  texts: readonly string[] = [],
  entryOf: (text: string) => [string, Value],
): Record<string, Value> {
  return Object.fromEntries(texts.map(entryOf))
}

function defined<T extends Record<string, unknown>>(fields: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as never
}

/** Returns the maps that have an entry. */
function filled<T extends Record<string, object>>(fields: T): Partial<T> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => Object.keys(value).length > 0)) as Partial<T>
}

/** Returns the submission of a job like the one of a record, with another name. */
export function submissionLike(record: JobRecord): JobSubmission {
  return { ...resubmissionOf(record), namePrefix: (record.namePrefix ?? record.name).slice(0, 40) }
}

/** Returns a new name of an array, whose length is limited. As Kubernetes does with generateName, a long prefix is cut. */
export function arrayName(prefix: string): string {
  const suffix = randomBytes(4).toString("hex")
  return `${prefix.slice(0, LIMITS.jobArrayName - suffix.length - 1).replace(/-+$/, "")}-${suffix}`
}

/** Returns the submission with one field changed. @param setting such as `resources.gpu=L4` @throws Failure */
export function withSetting(job: JobSubmission, setting: string): JobSubmission {
  const [, path, text] = /^([A-Za-z_]+(?:\.[^=]+)?)=(.*)$/s.exec(setting) ?? []
  if (path === undefined || text === undefined)
    throw usageError(`--set ${setting} must be FIELD=VALUE, as in resources.gpu=L4.`)
  const [field = "", ...rest] = path.split(".")
  const key = rest.join(".")
  const isText = field === "env" || field === "labels"
  const value = path === "resources.gpu" ? gpuOf(text) : isText ? text : settingOf(text)
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
