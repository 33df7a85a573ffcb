import type { JobSubmission } from "./client.ts"

/** Values of a job as one text: in a flag of `berth run`, and in the form of the console. */

/** Way to write one value as a text. */
export interface Grammar<Value> {
  /** Returns the value; undefined for a text that has none. @param environment variables that a text may refer to */
  parse: (text: string, environment: Environment) => Value | undefined
  print: (value: Value) => string
  /** Returns the sentence about a text that has no value, to follow the flag. */
  refusal: (text: string) => string
}

/** Variables of the shell. */
export type Environment = Readonly<Record<string, string | undefined>>

/** Circumstances in which a flag is read. */
export interface Reading {
  environment: Environment
  /** Makes the error of a text that has no value. */
  refuse: (message: string) => Error
}

/** Returns the value of a flag's text. @throws what `refuse` makes, with the flag's name */
export function readText<Value>(
  { parse, refusal }: Grammar<Value>,
  [flag, text]: readonly [flag: string, text: string],
  { environment, refuse }: Reading,
): Value {
  const value = parse(text, environment)
  if (value === undefined) throw refuse(`${flag} ${refusal(text)}`)
  return value
}

export const TEXT: Grammar<string> = {
  parse: (text) => text,
  print: (value) => value,
  refusal: (text) => `${text} is not a text.`,
}

export const NUMBER: Grammar<number> = {
  parse: (text) => {
    const number = Number(text)
    // JSON has no Infinity: it would be sent as null, which sets nothing.
    return text.trim() === "" || !Number.isFinite(number) ? undefined : number
  },
  print: String,
  refusal: (text) => `${text} is not a number.`,
}

const SECONDS = { d: 86_400, h: 3600, m: 60, s: 1 }

/** Seconds as `90s`, `2h` or `1h30m`. */
export const DURATION: Grammar<number> = {
  parse: (text) => {
    if (!/^(\d+[smhd])+$/.test(text)) return undefined
    return [...text.matchAll(/(\d+)([smhd])/g)].reduce(
      (sum, [, count, unit]) => sum + Number(count) * SECONDS[unit as keyof typeof SECONDS],
      0,
    )
  },
  print: (seconds) => {
    if (seconds === 0) return "0s"
    const [unit = "s", size = 1] = Object.entries(SECONDS).find(([, one]) => seconds % one === 0) ?? []
    return `${seconds / size}${unit}`
  },
  refusal: (text) => `${text} is not a duration: write 90s, 30m, 2h, 1d or 1h30m.`,
}

type IdleLimit = NonNullable<JobSubmission["idleLimit"]>

/** Idle limit as `30m`, `30m:gpu=5` or `30m:gpu=5:cpu=10`: a duration, and percentages that count as no use. */
export const IDLE_LIMIT: Grammar<IdleLimit> = {
  parse: (text) => {
    const [duration = "", ...limits] = text.split(":")
    const seconds = DURATION.parse(duration, {})
    if (seconds === undefined) return undefined
    const percents = limits.map((each) => /^([gc]pu)=(\d+(?:\.\d+)?)$/.exec(each))
    if (percents.includes(null)) return undefined
    return { seconds, ...Object.fromEntries(percents.map((found) => [`${found?.[1]}Percent`, Number(found?.[2])])) }
  },
  print: ({ seconds, gpuPercent, cpuPercent }) =>
    [
      DURATION.print(seconds ?? DEFAULT_IDLE_SECONDS),
      ...(gpuPercent == null ? [] : [`gpu=${gpuPercent}`]),
      ...(cpuPercent == null ? [] : [`cpu=${cpuPercent}`]),
    ].join(":"),
  refusal: (text) => `${text} is no idle limit: write 30m or 30m:gpu=5:cpu=10.`,
}

/** Seconds of an idle limit that names none. */
const DEFAULT_IDLE_SECONDS = 1800

type Reuse = NonNullable<JobSubmission["reuse"]>

/** Reuse of a machine as `5m` or `5m:KEY`: the time that it waits for another job, and the key of the jobs that share it. */
export const REUSE: Grammar<Reuse> = {
  parse: (text) => {
    const [duration = "", ...keys] = text.split(":")
    const idleSeconds = DURATION.parse(duration, {})
    if (idleSeconds === undefined) return undefined
    return keys.length === 0 ? { idleSeconds } : { idleSeconds, key: keys.join(":") }
  },
  print: ({ idleSeconds, key }) => [DURATION.print(idleSeconds), ...(key == null ? [] : [key])].join(":"),
  refusal: (text) => `${text} is no reuse: write 5m or 5m:KEY.`,
}

type Debug = NonNullable<JobSubmission["debug"]>

/** Time for which a failed job's machine is kept, as `1h`. */
export const DEBUG: Grammar<Debug> = {
  parse: (text) => {
    const keepSeconds = DURATION.parse(text, {})
    return keepSeconds === undefined ? undefined : { keepSeconds }
  },
  print: ({ keepSeconds }) => DURATION.print(keepSeconds),
  refusal: DURATION.refusal,
}

export type Gpu = NonNullable<NonNullable<JobSubmission["resources"]>["gpu"]>

const SIZE = /^[0-9.]+([KMGT]i|[kMGT])$/

/** GPUs as `24Gi` (memory in total), `L4`, `L4:2` (model and number of cards) or `A100:80Gi` (model and memory). */
export const GPU: Grammar<Gpu> = {
  parse: (text) => {
    if (SIZE.test(text)) return text
    const [, model = "", amount = "1"] = /^([A-Za-z][^:]*)(?::([^:]+))?$/.exec(text) ?? []
    if (model !== "" && SIZE.test(amount)) return { model, vram: amount } as Gpu
    if (model !== "" && /^[1-9][0-9]*$/.test(amount)) return { model, count: Number(amount) } as Gpu
    return undefined
  },
  print: (gpu) => {
    if (typeof gpu === "string") return gpu
    const { model, count, vram } = gpu as { model?: string | null; count?: number | null; vram?: string | null }
    const amount = vram ?? (count == null || count === 1 ? undefined : String(count))
    return [model, amount].filter((part) => part != null).join(":")
  },
  refusal: (text) =>
    `${text} is no GPU: write a model (L4), model and number (L4:2), model and memory (A100:80Gi) or memory (24Gi).`,
}

type ConcurrencyGroup = NonNullable<JobSubmission["concurrencyGroup"]>

/** Concurrency group as `NAME:LIMIT`. */
export const GROUP: Grammar<ConcurrencyGroup> = {
  parse: (text) => {
    const [, name, limit] = /^([^:]+):([1-9][0-9]*)$/.exec(text) ?? []
    return name === undefined ? undefined : { name, limit: Number(limit) }
  },
  print: ({ name, limit }) => `${name}:${limit}`,
  refusal: (text) => `${text} is no concurrency group: write NAME:LIMIT, such as db:1.`,
}

/** A pair as `NAME=VALUE`. */
export const PAIR: Grammar<[name: string, value: string]> = {
  parse: (text) => {
    const at = text.indexOf("=")
    return at > 0 ? [text.slice(0, at), text.slice(at + 1)] : undefined
  },
  print: ([name, value]) => `${name}=${value}`,
  refusal: (text) => `${text} has no value: write NAME=VALUE.`,
}

/** A variable as `NAME=VALUE`. A name alone takes its value from the environment, as Docker does. */
export const VARIABLE: Grammar<[name: string, value: string]> = {
  ...PAIR,
  parse: (text, environment) => {
    const value = environment[text]
    return text.includes("=") || value === undefined ? PAIR.parse(text, environment) : [text, value]
  },
}

type SecretKey = NonNullable<JobSubmission["secretEnv"]>[string]

/** A variable from a Secret as `NAME=SECRET:KEY`. */
export const SECRET: Grammar<[name: string, from: SecretKey]> = {
  parse: (text) => {
    const [, name, secret, key] = /^([^=]+)=([^:]+):(.+)$/.exec(text) ?? []
    return name === undefined || secret === undefined || key === undefined ? undefined : [name, { secret, key }]
  },
  print: ([name, { secret, key }]) => `${name}=${secret}:${key}`,
  // The text may be the value of a secret.
  refusal: (text) =>
    `${/^[^=]*/.exec(text)?.[0]}=… must name a Secret and its key, as in HUB_TOKEN=hub:token. The value itself stays in the Secret.`,
}

export type Volume = NonNullable<JobSubmission["volumes"]>[string]

/** Form of a volume, in the words of docker run. */
export const VOLUME_FORM = "BUCKET[/PREFIX]:/PATH[:ro][:cache][@CONNECTION]"

const VOLUME_PATTERN = /^([^/:@]+)(?:\/([^:]*))?:(\/[^@]*?)(:ro)?(:cache)?(?:@(.+))?$/

/** A bucket, its place and its use. */
export const VOLUME: Grammar<Volume> = {
  parse: (text) => {
    const [, bucket, prefix, mountPath, readOnly, cache, connection] = VOLUME_PATTERN.exec(text) ?? []
    if (bucket === undefined || mountPath === undefined) return undefined
    return {
      ...{ bucket, mountPath },
      ...(prefix !== undefined && { prefix }),
      ...(readOnly !== undefined && { readOnly: true }),
      ...(cache !== undefined && { cache: "reads" }),
      ...(connection !== undefined && { connection }),
    }
  },
  print: ({ bucket, prefix, mountPath, readOnly, cache, connection }) =>
    [
      ...[bucket, prefix == null ? "" : `/${prefix}`, `:${mountPath}`],
      ...[readOnly === true ? ":ro" : "", cache == null ? "" : ":cache", connection == null ? "" : `@${connection}`],
    ].join(""),
  refusal: (text) => `${text} is not a volume: write ${VOLUME_FORM}.`,
}

export type Prerequisite = NonNullable<JobSubmission["after"]>[number]

const PREREQUISITE = /^(array\/)?([^/:]+)(?::(succeeded|failed|ended))?$/

/** Jobs and arrays that must end first, as `prepare,array/sweep:ended`. */
export const AFTER: Grammar<readonly Prerequisite[]> = {
  parse: (text) => {
    const all = text.split(",").map((part) => prerequisiteIn(part.trim()))
    return all.includes(undefined) ? undefined : (all as Prerequisite[])
  },
  print: (after) => after.map(prerequisiteText).join(","),
  refusal: (text) =>
    `${text} must name jobs or arrays, such as prepare, array/sweep or prepare:ended, with commas between them. ` +
    "After : comes succeeded, failed or ended.",
}

function prerequisiteIn(text: string): Prerequisite | undefined {
  const [, array, name, outcome] = PREREQUISITE.exec(text) ?? []
  if (name === undefined) return undefined
  const named = array === undefined ? { job: name } : { array: name }
  return { ...named, ...(outcome !== undefined && { outcome: outcome as NonNullable<Prerequisite["outcome"]> }) }
}

/** Returns a prerequisite as people type it. */
export function prerequisiteText({ job, array, outcome }: Prerequisite): string {
  return `${job ?? `array/${array}`}${outcome == null ? "" : `:${outcome}`}`
}

export type RetryRule = NonNullable<JobSubmission["retryRules"]>[number]

const EXIT_CODES = /^[0-9]+(-[0-9]+)?$/

/** Exit codes that get a new VM, as `75,100-119`: one rule without reasons and without a limit of its own. */
export const RETRY_ON: Grammar<RetryRule> = {
  parse: (text) => {
    const codes = text.split(",").map((code) => code.trim())
    if (!codes.every((code) => EXIT_CODES.test(code))) return undefined
    return { exitCodes: codes.map((code) => (code.includes("-") ? code : Number(code))), action: "newVm" }
  },
  print: ({ exitCodes }) => (exitCodes ?? []).join(","),
  refusal: (text) => `${text} has no exit codes: write 75 or 75,100-119.`,
}
