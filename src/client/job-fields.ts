import { JOB_RECORD_FIELDS } from "../core/apis/rest-names.ts"
import type { JobRecord, JobSubmission } from "./client.ts"
import {
  AFTER,
  DEBUG,
  DURATION,
  GPU,
  type Gpu,
  GROUP,
  type Grammar,
  IDLE_LIMIT,
  NUMBER,
  PAIR,
  type Prerequisite,
  RETRY_ON,
  REUSE,
  type Reading,
  type RetryRule,
  readText,
  SECRET,
  TEXT,
  VARIABLE,
  VOLUME,
  VOLUME_FORM,
  type Volume,
} from "./job-grammar.ts"
import { JOB_CLOUDS } from "./providers.ts"
import { joinWithOr } from "./words.ts"

/** The fields of a job, and the flags of `berth run` that set them: read by the command, printed by the console. */

/** Field of a submission that describes the job. */
export type JobField = Exclude<keyof JobSubmission, "project_id" | "organization_id">

/** Flag of `berth run`, with the field that it sets. */
export interface JobFlag<Field extends JobField = JobField> {
  field: Field
  /** Flags as the help has them, such as `-e, --env <name=value>`. */
  flags: string
  /** The flag alone, such as `--env`. */
  name: string
  help: string
  isRepeated: boolean
  /**
   * Returns the value of the field after the flag's texts. Absent: the command reads the files that the flag names.
   * @param former value, of a file or an earlier job
   * @throws what `reading.refuse` makes, for a text that can't be read
   */
  read?: (texts: readonly string[], former: unknown, reading: Reading) => unknown
  /** Returns the text of each flag that this value needs, undefined for a flag without one; undefined if flags can't say it. */
  print: (value: unknown) => readonly (string | undefined)[] | undefined
}

/** Values that a flag has in a field, each of which is one text. */
interface Place<Field extends JobField, Value> {
  get: (field: NonNullable<JobSubmission[Field]>) => readonly Value[]
  set: (former: JobSubmission[Field], values: readonly Value[]) => JobSubmission[Field]
}

interface Words {
  flags: string
  help: string
  isRepeated?: boolean
}

function flag<Field extends JobField, Value>(
  { flags, help, isRepeated = false }: Words,
  field: Field,
  grammar: Grammar<Value>,
  { get, set }: Place<Field, Value>,
): JobFlag<Field> {
  const name = nameOf(flags)
  const read = (texts: readonly string[], former: unknown, reading: Reading) =>
    set(
      former as JobSubmission[Field],
      texts.map((text) => readText(grammar, [name, text], reading)),
    )
  return {
    ...{ field, flags, name, help, isRepeated, read },
    print: (value) => {
      const values = value == null ? [] : get(value as NonNullable<JobSubmission[Field]>)
      const texts = values.map(grammar.print)
      const again = texts.map((text) => grammar.parse(text, {}))
      return sameText(values) === sameText(again) && (isRepeated || texts.length < 2) ? texts : undefined
    },
  }
}

function nameOf(flags: string): string {
  return /--[a-z-]+/.exec(flags)?.[0] ?? flags
}

/** Returns the same text for the same value. A null is the same as no field. */
export function sameText(value: unknown): string {
  return JSON.stringify(value, (_, part: unknown) =>
    typeof part === "object" && part !== null && !Array.isArray(part)
      ? Object.fromEntries(
          Object.entries(part)
            .filter(([, field]) => field != null)
            .sort(([a], [b]) => (a < b ? -1 : 1)),
        )
      : part,
  )
}

type FieldOf<Value> = { [F in JobField]: Value extends JobSubmission[F] ? F : never }[JobField]

/** Declares a flag whose value is the field. */
function one<Field extends FieldOf<Value>, Value>(
  flags: string,
  field: Field,
  grammar: Grammar<Value>,
  help: string,
): JobFlag<Field> {
  return flag({ flags, help }, field, grammar, {
    get: (value) => [value as Value],
    set: (_, [value]) => value as JobSubmission[Field],
  })
}

type Resources = NonNullable<JobSubmission["resources"]>

/** Declares a flag for a part of the resources. */
function resource<Part extends keyof Resources>(
  flags: string,
  part: Part,
  grammar: Grammar<NonNullable<Resources[Part]>>,
  help: string,
): JobFlag<"resources"> {
  return flag({ flags, help }, "resources", grammar, {
    get: ({ [part]: value }) => (value == null ? [] : [value]),
    set: (former, [value]) => ({ ...former, [part]: value }),
  })
}

/** Declares a flag for each item of a list. It replaces the former list, or is added to it. */
function list<Field extends "cloud" | "region" | "tags">(
  flags: string,
  field: Field,
  help: string,
  isAdded = false,
): JobFlag<Field> {
  return flag({ flags, help, isRepeated: true }, field, TEXT, {
    get: (value) => (typeof value === "string" ? [value] : (value as readonly string[])),
    set: (former, values) => [...(isAdded ? (former ?? []) : []), ...values] as JobSubmission[Field],
  })
}

/** Declares a flag for each entry of a map. It replaces the former entry of that name. */
function map<Field extends "env" | "labels" | "secretEnv", Value>(
  flags: string,
  field: Field,
  grammar: Grammar<[string, Value]>,
  help: string,
): JobFlag<Field> {
  return flag({ flags, help, isRepeated: true }, field, grammar, {
    get: (value) => Object.entries(value) as [string, Value][],
    set: (former, values) => ({ ...former, ...Object.fromEntries(values) }) as JobSubmission[Field],
  })
}

/** Declares a flag for volumes. It gives them names that are free: a flag replaces no volume of the file. */
function volume(words: Words, isCheckpoint: boolean): JobFlag<"volumes"> {
  const mark = isCheckpoint ? { checkpoint: true } : {}
  return flag<"volumes", Volume>(words, "volumes", VOLUME, {
    get: (volumes) =>
      Object.values(volumes)
        .filter(({ checkpoint }) => (checkpoint === true) === isCheckpoint)
        .map(({ checkpoint: _, ...bucket }) => bucket),
    set: (former, volumes) => {
      const all = { ...former }
      for (const one of volumes) {
        const isFree = isCheckpoint && !Object.hasOwn(all, "checkpoint")
        const name = isFree ? "checkpoint" : freeName(isCheckpoint ? "checkpoint" : "volume", all)
        all[name] = { ...one, ...mark }
      }
      return all
    },
  })
}

function freeName(prefix: string, taken: object): string {
  let number = 1
  while (Object.hasOwn(taken, `${prefix}-${number}`)) number++
  return `${prefix}-${number}`
}

/** Declares a flag without a value. */
function option(
  flags: string,
  value: NonNullable<JobSubmission["provisioning"]>,
  help: string,
): JobFlag<"provisioning"> {
  return {
    ...{ field: "provisioning", flags, name: nameOf(flags), help, isRepeated: false },
    read: () => value,
    print: (given) => (given === value ? [undefined] : []),
  }
}

/** Declares a flag that names files of this machine. @param print what it prints for a value that is set */
function files<Field extends JobField>(
  { flags, help, isRepeated = false }: Words,
  field: Field,
  print: undefined | [],
): JobFlag<Field> {
  return {
    ...{ field, flags, name: nameOf(flags), help, isRepeated },
    print: (value) => (value == null ? [] : print),
  }
}

/** GPUs of the flag: a model alone is one card. */
const GPUS: Place<"resources", Gpu> = {
  get: ({ gpu }) => {
    if (gpu == null) return []
    const isModel = typeof gpu === "object" && "model" in gpu && gpu.model != null && gpu.vram == null
    return [isModel ? ({ ...gpu, count: gpu.count ?? 1 } as Gpu) : gpu]
  },
  set: (former, [gpu]) => ({ ...former, gpu }) as Resources,
}

const RESOURCE_FLAGS = {
  cpu: resource("--cpu <number>", "cpu", NUMBER, "minimum number of vCPUs; default: 1"),
  memory: resource("--memory <size>", "memory", TEXT, "minimum memory of the container, such as 16Gi"),
  disk: resource("--disk <size>", "disk", TEXT, "minimum disk of the machine, such as 100Gi"),
  gpu: flag(
    {
      flags: "--gpu <gpu>",
      help: "model (L4), model and number (L4:2) or memory (A100:80Gi), or GPU memory (24Gi)",
    },
    "resources",
    GPU,
    GPUS,
  ),
} satisfies Record<keyof Resources, JobFlag>

/** Flags in the words of docker run and in the order of the help, by the names that the parser of flags gives them. */
export const JOB_FLAGS = {
  image: one("--image <image>", "image", TEXT, "container image"),
  name: one("--name <name>", "name", TEXT, "name of the job; default: generated"),
  prefix: one("--prefix <prefix>", "namePrefix", TEXT, "prefix of a generated name"),
  entrypoint: flag(
    { flags: "--entrypoint <program>", help: "program to start, instead of the image's entrypoint" },
    "command",
    TEXT,
    // The rest of the command comes after --, before the arguments.
    { get: ([program]) => (program === undefined ? [] : [program]), set: (_, [program = ""]) => [program] },
  ),
  ...RESOURCE_FLAGS,
  region: list("--region <region>", "region", "region, or us, eu, asia …"),
  cloud: list("--cloud <cloud>", "cloud", joinWithOr(JOB_CLOUDS)),
  spot: option("--spot", "spot", "only spot machines"),
  spotFirst: option("--spot-first", "spotFirst", "spot machines if there are any, else on demand"),
  fallbackAfter: one(
    "--fallback-after <number>",
    "fallbackAfter",
    NUMBER,
    "preempted spot machines in a row before --spot-first buys on demand; default: 3",
  ),
  priority: one("--priority <number>", "priority", NUMBER, "place in the line while a cap is reached, -100 to 100"),
  group: one(
    "--group <name:limit>",
    "concurrencyGroup",
    GROUP,
    "group of jobs, and how many of them run at the same time, such as db:1",
  ),
  after: flag<"after", readonly Prerequisite[]>(
    {
      flags: "--after <names>",
      help: "jobs and arrays that must succeed first, such as prepare,array/sweep; with :ended or :failed, end so",
      isRepeated: true,
    },
    "after",
    AFTER,
    { get: (after) => (after.length === 0 ? [] : [after]), set: (_, lists) => lists.flat() },
  ),
  maxPreemptions: one(
    "--max-preemptions <number>",
    "maxPreemptions",
    NUMBER,
    "maximum number of preempted machines; default: no limit",
  ),
  maxPrice: one("--max-price <usd>", "maxHourlyPriceUsd", NUMBER, "maximum price of the machine, USD per hour"),
  maxCost: one(
    "--max-cost <usd>",
    "maxCostUsd",
    NUMBER,
    "maximum cost of the job, USD; Berth ends it before it costs more",
  ),
  timeout: one("--timeout <duration>", "timeoutSeconds", DURATION, "maximum run time, such as 90s, 2h or 1d"),
  idleLimit: one(
    "--idle-limit <duration>",
    "idleLimit",
    IDLE_LIMIT,
    "time without use after which the job fails, such as 30m; with percentages: 30m:gpu=5:cpu=10",
  ),
  reuse: one(
    "--reuse <duration>",
    "reuse",
    REUSE,
    "lets the machine wait for another job after this one, such as 5m; with a key: 5m:KEY",
  ),
  debugKeep: one(
    "--debug-keep <duration>",
    "debug",
    DEBUG,
    "keeps the machine after the container failed, such as 1h, for berth debug; at most 4h",
  ),
  maxQueue: one(
    "--max-queue <duration>",
    "maxQueueSeconds",
    DURATION,
    "maximum time until the container starts, boots included; default: no limit",
  ),
  grace: one(
    "--grace <duration>",
    "terminationGraceSeconds",
    DURATION,
    "maximum time from the stop signal to SIGKILL; default: 10s",
  ),
  retries: one("--retries <number>", "maxRetries", NUMBER, "number of times to start a failed container again"),
  // Other rules than one on exit codes have no flag.
  retryOn: flag<"retryRules", RetryRule>(
    { flags: "--retry-on <codes>", help: "exit codes that get a new machine, such as 75,100-119; up to 3 times" },
    "retryRules",
    RETRY_ON,
    { get: (rules) => rules, set: (_, rules) => [...rules] },
  ),
  growMemoryTo: one(
    "--grow-memory-to <size>",
    "maxMemory",
    TEXT,
    "memory up to which it doubles, on a new machine, when the container runs out",
  ),
  maxLostVms: one(
    "--max-lost-vms <number>",
    "maxLostVms",
    NUMBER,
    "maximum number of lost machines; default: 2; 0: never run twice",
  ),
  env: map(
    "-e, --env <name=value>",
    "env",
    VARIABLE,
    "environment variable; a name alone takes the value of this shell",
  ),
  // --env has the variables of the files, too.
  envFile: files(
    { flags: "--env-file <file>", help: "file with a NAME=VALUE in each line", isRepeated: true },
    "env",
    [],
  ),
  secret: map(
    "--secret <name=secret:key>",
    "secretEnv",
    SECRET,
    "environment variable from a key of a Secret in the project",
  ),
  workdir: files(
    {
      flags: "--workdir <dir>",
      help: "folder to upload and to start in: DIR[:/PATH]; without .git and what .gitignore and .berthignore name",
    },
    "workdir",
    undefined,
  ),
  volume: volume({ flags: "--volume <bucket:path>", help: `bucket to mount: ${VOLUME_FORM}`, isRepeated: true }, false),
  checkpoint: volume(
    { flags: "--checkpoint <bucket:path>", help: "bucket for the job's checkpoints, kept until it has succeeded" },
    true,
  ),
  label: map("-l, --label <name=value>", "labels", PAIR, "label"),
  tag: list("--tag <tag>", "tags", "tag", true),
} as const satisfies Record<string, JobFlag>

type Flagged = (typeof JOB_FLAGS)[keyof typeof JOB_FLAGS]["field"]

/** Fields without a flag: the compiler asks for a row above, or here. True: `berth run` has another place for it. */
const FLAGLESS: Readonly<Record<Exclude<JobField, Flagged>, boolean>> = {
  // After --.
  args: true,
  ttlSecondsAfterFinished: false,
}

const ROWS: readonly JobFlag[] = Object.values(JOB_FLAGS)

/** All fields that describe a job. */
export const JOB_FIELDS = [...new Set([...ROWS.map(({ field }) => field), ...Object.keys(FLAGLESS)])] as JobField[]

/** Returns the name of a submission's field in the job's record. */
export function recordField(field: JobField): keyof JobRecord {
  const names: Partial<Record<JobField, keyof JobRecord>> = JOB_RECORD_FIELDS
  return names[field] ?? (field as JobField & keyof JobRecord)
}

/** Returns the flags of a job, each with its text if it has one; undefined if flags can't say all of the job. */
export function toFlags(job: JobSubmission): (readonly [name: string, text: string | undefined])[] | undefined {
  const said = [
    ...ROWS.map(({ field, name, print }) => print(job[field])?.map((text) => [name, text] as const)),
    ...Object.entries(FLAGLESS).map(([field, isSayable]) =>
      isSayable || job[field as JobField] == null ? [] : undefined,
    ),
  ]
  return said.some((flags) => flags === undefined) ? undefined : said.flatMap((flags) => flags ?? [])
}
