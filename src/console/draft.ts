import type { JobSubmission } from "../client/client.ts"
import { DURATION, GPU, VOLUME, type Volume } from "../client/job-grammar.ts"
import { filled } from "../client/resubmission.ts"
import { shellWord } from "./spec.ts"

/** Texts of the form of a new job, by field. */
export interface Draft {
  name: string
  image: string
  command: string
  args: string
  cpu: string
  memory: string
  disk: string
  gpu: string
  region: string
  cloud: string
  provisioning: string
  maxHourlyPriceUsd: string
  maxCostUsd: string
  timeout: string
  maxQueue: string
  maxRetries: string
  env: string
  secretEnv: string
  volumes: string
  labels: string
  tags: string
}

/** Fields whose text can't be read, with what is expected. */
export type DraftErrors = Partial<Record<keyof Draft, string>>

/** Fields of a job that the form shows. */
const SHOWN = [
  "name",
  "image",
  "command",
  "args",
  "resources",
  "region",
  "cloud",
  "provisioning",
  "maxHourlyPriceUsd",
  "maxCostUsd",
  "timeoutSeconds",
  "maxQueueSeconds",
  "maxRetries",
  "env",
  "secretEnv",
  "volumes",
  "labels",
  "tags",
] as const satisfies (keyof JobSubmission)[]

/** Fields of a job that the form doesn't show. They are kept. */
export type Rest = Omit<JobSubmission, (typeof SHOWN)[number]>

export function restOf(job: JobSubmission): Rest {
  const shown: readonly string[] = SHOWN
  return Object.fromEntries(Object.entries(job).filter(([name]) => !shown.includes(name)))
}

/** Returns the texts of a job. */
export function draftOf(job: JobSubmission): Draft {
  return {
    name: job.name ?? "",
    image: job.image ?? "",
    command: (job.command ?? []).map(shellWord).join(" "),
    args: (job.args ?? []).map(shellWord).join(" "),
    cpu: text(job.resources?.cpu),
    memory: text(job.resources?.memory),
    disk: text(job.resources?.disk),
    gpu: job.resources?.gpu == null ? "" : GPU.print(job.resources.gpu),
    region: listText(job.region),
    cloud: listText(job.cloud),
    provisioning: job.provisioning ?? "",
    maxHourlyPriceUsd: text(job.maxHourlyPriceUsd),
    maxCostUsd: text(job.maxCostUsd),
    timeout: job.timeoutSeconds == null ? "" : DURATION.print(job.timeoutSeconds),
    maxQueue: job.maxQueueSeconds == null ? "" : DURATION.print(job.maxQueueSeconds),
    maxRetries: text(job.maxRetries),
    env: lines(job.env, (value) => value),
    secretEnv: lines(job.secretEnv, ({ secret, key }) => `${secret}:${key}`),
    volumes: lines(job.volumes, volumeText),
    labels: lines(job.labels, (value) => value),
    tags: (job.tags ?? []).join(" "),
  }
}

/** Returns the job of the texts, and the fields that can't be read. */
export function jobOf(draft: Draft, rest: Rest): { job: JobSubmission; errors: DraftErrors } {
  const errors: DraftErrors = {}
  const read = <Value>(field: keyof Draft, parse: (value: string) => Value | undefined, expected: string) => {
    const value = draft[field].trim()
    if (value === "") return undefined
    const parsed = parse(value)
    if (parsed === undefined) errors[field] = expected
    return parsed
  }
  const amount = (field: keyof Draft) => read(field, numberOf, "Write a number, such as 1.5.")
  const time = (field: keyof Draft) => read(field, secondsOf, "Write a duration, such as 90s, 30m, 2h or 1h30m.")
  const words = (field: keyof Draft) => read(field, wordsOf, "A quotation mark is not closed.")
  const pairs = <Value>(field: keyof Draft, parse: (value: string) => Value | undefined, expected: string) =>
    read(field, (value) => mapOf(value.split("\n"), parse), expected)
  const job = filled({
    ...(draft.name.trim() === "" ? rest : { ...rest, namePrefix: null, name: draft.name.trim() }),
    image: draft.image.trim(),
    command: words("command"),
    args: words("args"),
    resources: filled({
      cpu: amount("cpu"),
      memory: draft.memory.trim(),
      disk: draft.disk.trim(),
      gpu: read(
        "gpu",
        (value) => GPU.parse(value, {}),
        "Write a model (L4), a model and a number (L4:2) or memory (A100:80Gi), or memory (24Gi).",
      ),
    }),
    region: listOf(draft.region),
    cloud: listOf(draft.cloud),
    provisioning: draft.provisioning,
    maxHourlyPriceUsd: amount("maxHourlyPriceUsd"),
    maxCostUsd: amount("maxCostUsd"),
    timeoutSeconds: time("timeout"),
    maxQueueSeconds: time("maxQueue"),
    maxRetries: amount("maxRetries"),
    env: pairs("env", (value) => value, "Write one NAME=value on each line."),
    secretEnv: pairs("secretEnv", secretOf, "Write one NAME=secret:key on each line."),
    volumes: pairs("volumes", volumeOf, "Write one name=bucket/prefix:/path on each line."),
    labels: pairs("labels", (value) => value, "Write one key=value on each line."),
    tags: listOf(draft.tags),
  })
  return { job: job as unknown as JobSubmission, errors }
}

function text(value: string | number | null | undefined): string {
  return value == null ? "" : String(value)
}

function listText(value: string | readonly string[] | null | undefined): string {
  return typeof value === "string" ? value : (value ?? []).join(" ")
}

/** Returns the texts of a list, separated by spaces or commas. */
export function listOf(value: string): string[] {
  return value.split(/[\s,]+/).filter((one) => one !== "")
}

function lines<Value>(map: Record<string, Value> | null | undefined, textOf: (value: Value) => string): string {
  return Object.entries(map ?? {})
    .map(([name, value]) => `${name}=${textOf(value)}`)
    .join("\n")
}

/** Returns the map of texts such as `name=value`; undefined if one is not. */
export function mapOf<Value>(
  texts: readonly string[],
  parse: (text: string) => Value | undefined,
): Record<string, Value> | undefined {
  const entries = texts
    .filter((text) => text.trim() !== "")
    .map((text) => {
      const [, name = "", rest = ""] = /^\s*([^=]+)=(.*)$/.exec(text) ?? []
      return [name.trim(), parse(rest)] as const
    })
  if (entries.some(([name, parsed]) => name === "" || parsed === undefined)) return undefined
  return Object.fromEntries(entries) as Record<string, Value>
}

function numberOf(value: string): number | undefined {
  const number = Number(value.replace(",", "."))
  return Number.isFinite(number) ? number : undefined
}

/** Returns the seconds of a duration such as `1h30m`; undefined for another text. A number alone is seconds. */
export function secondsOf(value: string): number | undefined {
  return /^\d+$/.test(value) ? Number(value) : DURATION.parse(value.replace(/(?<=[smhd])\s+/g, ""), {})
}

function secretOf(value: string): { secret: string; key: string } | undefined {
  const [, secret, key] = /^([^:\s]+):(\S+)$/.exec(value) ?? []
  return secret === undefined || key === undefined ? undefined : { secret, key }
}

const CHECKPOINT = /\s+checkpoint$/

function volumeOf(value: string): Volume | undefined {
  const volume = VOLUME.parse(value.replace(CHECKPOINT, ""), {})
  return volume && (filled({ ...volume, checkpoint: CHECKPOINT.test(value) ? true : null }) as unknown as Volume)
}

function volumeText(volume: Volume): string {
  return `${VOLUME.print(volume)}${volume.checkpoint === true ? " checkpoint" : ""}`
}

/** Returns the words of a command line, as a POSIX shell reads them; undefined if a quotation mark is not closed. */
export function wordsOf(line: string): string[] | undefined {
  const words: string[] = []
  let word: string | undefined
  let rest = line
  while (rest !== "") {
    const [found] = /^(?:\s+|'[^']*'|"(?:\\[\s\S]|[^"\\])*"|\\[\s\S]|[^\s'"\\]+)/.exec(rest) ?? []
    if (found === undefined) return undefined
    rest = rest.slice(found.length)
    if (/^\s/.test(found)) {
      if (word !== undefined) words.push(word)
      word = undefined
    } else word = (word ?? "") + unquoted(found)
  }
  return word === undefined ? words : [...words, word]
}

function unquoted(piece: string): string {
  if (piece.startsWith("'")) return piece.slice(1, -1)
  if (piece.startsWith('"')) return piece.slice(1, -1).replace(/\\(["\\$`\n])/g, "$1")
  return piece.startsWith("\\") ? piece.slice(1) : piece
}
