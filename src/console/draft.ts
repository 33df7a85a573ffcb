import { ARRAY_SHAPE } from "../client/array-grammar.ts"
import { definitionOf } from "../client/arrays.ts"
import type { JobSubmission } from "../client/client.ts"
import { JOB_FLAGS, type JobFlag, sameText } from "../client/job-fields.ts"
import { DURATION, type Grammar, NUMBER, PAIR, readText, TEXT, VOLUME, type Volume } from "../client/job-grammar.ts"
import { withoutEmpty } from "../client/resubmission.ts"
import { shellWord } from "./spec.ts"

/** The form of a new job, array or cronjob: texts of its controls, and the bodies that they mean. */

/** Object that the form makes: one job, one for each combination of values, or one at each tick of a schedule. */
export type Shape = "job" | "array" | "cronjob"

type Fields = Readonly<Record<string, unknown>>

/** Control of the form: one text that stands for a part of the body. */
interface Control {
  /** Paths of the part in the API. */
  paths: readonly string[]
  /** Returns the text of the part, empty if it is not set; undefined if the form can't show it. */
  print: (body: Fields) => string | undefined
  /** Returns the body with the part. @throws Error about a text that can't be read */
  set: (body: Fields, text: string) => Fields
}

/** Way in which a control shows the texts of a flag, of which some may be repeated. */
interface Layout {
  split: (text: string) => readonly string[]
  join: (texts: readonly string[]) => string
}

/** One text, in which people may write a number or a time more freely than in a flag. */
function line(tidy: (text: string) => string = (text) => text): Layout {
  return { split: (text) => [tidy(text.trim())], join: ([text = ""]) => text }
}

const WORDS: Layout = { split: parseList, join: (texts) => texts.join(" ") }

const LINES: Layout = {
  split: (text) =>
    text
      .split("\n")
      .filter((one) => one.trim() !== "")
      .map((one) => one.replace(/^\s*([^=\s]+)\s*=/, "$1=")),
  join: (texts) => texts.join("\n"),
}

const UNSPACED = line((text) => text.replace(/\s+/g, ""))
const AMOUNT = line((text) => text.replace(",", "."))
const TIME = line((text) => (/^\d+$/.test(text) ? `${text}s` : text.replace(/(?<=[smhd])\s+/g, "")))

/** Returns what makes the error of a text. The message of a flag begins with its name, which the control's label replaces. */
function readingOf(name: string) {
  return { environment: {}, refuse: (message: string) => new Error(message.slice(name.length + 1)) }
}

const READING = { environment: {}, refuse: (message: string) => new Error(message) }

type Flag = Pick<JobFlag, "field" | "name" | "read" | "print">

/** Declares the control of a flag. @param part of the resources */
function flagControl({ field, name, read, print }: Flag, { split, join }: Layout, part?: string): Control {
  return {
    paths: [part === undefined ? field : `${field}.${part}`],
    print: (body) => {
      const texts = print(body[field])
      if (texts === undefined || texts.length === 0) return texts && ""
      const text = join(texts.map(String))
      return isSame(split(text), texts) ? text : undefined
    },
    set: (body, text) => ({ ...body, [field]: read?.(split(text), body[field], readingOf(name)) }),
  }
}

/** Declares the control of a field whose value is one text of a grammar. */
function fieldControl<Value>(field: string, grammar: Grammar<Value>, { split }: Layout = line()): Control {
  const parse = (text: string) => readText(grammar, ["", split(text)[0] ?? ""], readingOf(""))
  return {
    paths: [field],
    print: (body) => {
      if (body[field] == null) return ""
      const text = grammar.print(body[field] as Value)
      return grammar.parse(split(text)[0] ?? "", {}) === body[field] ? text : undefined
    },
    set: (body, text) => ({ ...body, [field]: parse(text) }),
  }
}

/** Declares the control of a choice. An empty text is the default. */
function choiceControl(field: string, byDefault: string): Control {
  const control = fieldControl(field, TEXT)
  return { ...control, print: (body) => (body[field] === byDefault ? "" : control.print(body)) }
}

/** A command line, in the words of a shell. */
const COMMAND_LINE: Grammar<string[]> = {
  parse: parseWords,
  print: (words) => words.map(shellWord).join(" "),
  refusal: () => "A quotation mark is not closed.",
}

/** Declares the control of a command line. An input has one line. */
function commandControl(field: "command" | "args"): Control {
  return {
    ...fieldControl(field, COMMAND_LINE),
    print: (body) => {
      const text = COMMAND_LINE.print((body[field] ?? []) as string[])
      return text.includes("\n") ? undefined : text
    },
  }
}

const CHECKPOINT = /\s+checkpoint$/

/** Volumes with their names, such as `data=acme/corpus:/data`. Flags have no names. */
const VOLUMES: Flag = {
  field: "volumes",
  name: "",
  print: (value) => {
    const volumes = Object.entries((value ?? {}) as Record<string, Volume>)
    const texts = volumes.map(
      ([name, volume]) => `${name}=${VOLUME.print(volume)}${volume.checkpoint === true ? " checkpoint" : ""}`,
    )
    return isReadAs(texts, volumes) ? texts : undefined
  },
  read: (texts, former, reading) => ({
    ...(former as object | undefined),
    ...Object.fromEntries(texts.map((text) => volumeOf(text, reading))),
  }),
}

function isReadAs(texts: readonly string[], volumes: readonly unknown[]): boolean {
  try {
    return sameText(texts.map((text) => volumeOf(text, READING))) === sameText(volumes)
  } catch {
    return false
  }
}

function volumeOf(text: string, reading: Parameters<typeof readText>[2]): [name: string, volume: Volume] {
  const [name, bucket] = readText(PAIR, ["", text], reading)
  const volume = readText(VOLUME, ["", bucket.replace(CHECKPOINT, "")], reading)
  return [name, { ...volume, ...(CHECKPOINT.test(bucket) && { checkpoint: true }) }]
}

/** Controls of a job. */
const JOB = {
  name: flagControl(JOB_FLAGS.name, line()),
  image: flagControl(JOB_FLAGS.image, line()),
  command: commandControl("command"),
  args: commandControl("args"),
  cpu: flagControl(JOB_FLAGS.cpu, AMOUNT, "cpu"),
  memory: flagControl(JOB_FLAGS.memory, line(), "memory"),
  disk: flagControl(JOB_FLAGS.disk, line(), "disk"),
  gpu: flagControl(JOB_FLAGS.gpu, line(), "gpu"),
  region: flagControl(JOB_FLAGS.region, WORDS),
  cloud: flagControl(JOB_FLAGS.cloud, WORDS),
  provisioning: choiceControl("provisioning", "onDemand"),
  maxHourlyPriceUsd: flagControl(JOB_FLAGS.maxPrice, AMOUNT),
  maxCostUsd: flagControl(JOB_FLAGS.maxCost, AMOUNT),
  timeout: flagControl(JOB_FLAGS.timeout, TIME),
  idleLimit: flagControl(JOB_FLAGS.idleLimit, UNSPACED),
  reuse: flagControl(JOB_FLAGS.reuse, UNSPACED),
  debugKeep: flagControl(JOB_FLAGS.debugKeep, UNSPACED),
  maxQueue: flagControl(JOB_FLAGS.maxQueue, TIME),
  maxRetries: flagControl(JOB_FLAGS.retries, AMOUNT),
  priority: flagControl(JOB_FLAGS.priority, AMOUNT),
  group: flagControl(JOB_FLAGS.group, line()),
  retryOn: flagControl(JOB_FLAGS.retryOn, UNSPACED),
  maxMemory: flagControl(JOB_FLAGS.growMemoryTo, line()),
  maxLostVms: flagControl(JOB_FLAGS.maxLostVms, AMOUNT),
  env: flagControl(JOB_FLAGS.env, LINES),
  secretEnv: flagControl(JOB_FLAGS.secret, LINES),
  volumes: flagControl(VOLUMES, LINES),
  labels: flagControl(JOB_FLAGS.label, LINES),
  tags: flagControl(JOB_FLAGS.tag, WORDS),
} as const satisfies Record<string, Control>

/** Number of jobs, or the values of each variable. */
const VALUES: Control = {
  paths: ["size", "matrix"],
  print: ({ size, matrix }) => {
    if (size == null && matrix == null) return ""
    return ARRAY_SHAPE.print((matrix == null ? { size } : { matrix }) as Parameters<typeof ARRAY_SHAPE.print>[0])
  },
  set: (body, text) => ({ ...body, ...readText(ARRAY_SHAPE, ["It", text], READING) }),
}

/** Controls of what a job, or an array as a whole, waits for. */
const ORDER = {
  after: flagControl(
    JOB_FLAGS.after,
    line((text) => text.replace(/[\s,]+/g, ",").replace(/^,|,$/g, "")),
  ),
} as const satisfies Record<string, Control>

const ARRAY = {
  ...ORDER,
  values: VALUES,
  parallelism: fieldControl("parallelism", NUMBER, AMOUNT),
  maxFailed: fieldControl("max_failed", NUMBER, AMOUNT),
} as const satisfies Record<string, Control>

const CRONJOB = {
  schedule: fieldControl("cron_spec", TEXT),
  concurrency: choiceControl("concurrency_policy", "Allow"),
  deadline: fieldControl("starting_deadline_seconds", DURATION, TIME),
  keepSucceeded: fieldControl("successful_jobs_history_limit", NUMBER, AMOUNT),
  keepFailed: fieldControl("failed_jobs_history_limit", NUMBER, AMOUNT),
} as const satisfies Record<string, Control>

/** Name of a control of the form. */
export type Name = keyof typeof ORDER | keyof typeof JOB | keyof typeof ARRAY | keyof typeof CRONJOB

/** Controls that describe an object besides the definition of its jobs. */
const SETTINGS: Record<Shape, Record<string, Control>> = { job: ORDER, array: ARRAY, cronjob: CRONJOB }

function controlsOf(shape: Shape): [Name, Control][] {
  return Object.entries({ ...SETTINGS[shape], ...JOB }) as [Name, Control][]
}

/** Texts of the form. Those of other shapes stay while one is shown. */
export type Draft = Record<Name, string>

/** Parts of bodies that the form doesn't show. They are kept. */
export type Rest = Record<Shape, Fields>

/** State of the form. */
export interface Form {
  draft: Draft
  rest: Rest
}

const EMPTY = Object.fromEntries(
  Object.keys({ ...ORDER, ...JOB, ...ARRAY, ...CRONJOB }).map((name) => [name, ""]),
) as Draft

const NO_REST: Rest = { job: {}, array: {}, cronjob: {} }

/** Returns the form that shows a body. The texts and the rest of other shapes stay as they are. */
export function fillForm(shape: Shape, body: Fields, { draft, rest }: Form = { draft: EMPTY, rest: NO_REST }): Form {
  const { name, job_definition: definition, ...own } = body
  if (shape === "job") {
    const controls = { ...JOB, ...SETTINGS.job }
    return { draft: { ...draft, ...textsOf(controls, body) }, rest: { ...rest, job: unshown(controls, body) } }
  }
  const job = { ...(definition as Fields), name }
  return {
    draft: { ...draft, ...textsOf(JOB, job), ...textsOf(SETTINGS[shape], own) },
    rest: { ...rest, job: unshown(JOB, job), [shape]: unshown(SETTINGS[shape], own) },
  }
}

function textsOf(controls: Record<string, Control>, body: Fields): Partial<Draft> {
  return Object.fromEntries(Object.entries(controls).map(([name, { print }]) => [name, print(body) ?? ""]))
}

function unshown(controls: Record<string, Control>, body: Fields): Fields {
  const shown = Object.values(controls).filter(({ print }) => print(body) !== undefined)
  return withoutEmpty(shown.flatMap(({ paths }) => paths).reduce(without, body))
}

function without(body: Fields, path: string): Fields {
  const [first = "", ...rest] = path.split(".")
  const { [first]: value, ...others } = body
  if (rest.length === 0 || value == null) return others
  return { ...others, [first]: withoutEmpty(without(value as Fields, rest.join("."))) }
}

/** Returns the controls whose values the form keeps, but can't show. */
export function keptIn(shape: Shape, { rest }: Form): Name[] {
  const isKept = ({ print }: Control) => print(rest.job) === undefined || print(rest[shape]) === undefined
  return controlsOf(shape).flatMap(([name, control]) => (isKept(control) ? [name] : []))
}

/** Errors of the form, by its controls. */
export type Errors = Partial<Record<Name, string>>

/** Returns the body that the form means, and the texts that can't be read. @param unnamed name of an object without one */
export function readForm(shape: Shape, { draft, rest }: Form, unnamed: string): { body: Fields; errors: Errors } {
  const errors: Errors = {}
  const read = (controls: Record<string, Control>, kept: Fields): Fields =>
    (Object.entries(controls) as [Name, Control][]).reduce((body, [name, control]) => {
      if (draft[name].trim() === "") return body
      try {
        return control.set(body, draft[name])
      } catch (error) {
        errors[name] = (error as Error).message
        return body
      }
    }, kept)
  const { namePrefix, ...unprefixed } = rest.job
  const job = read(JOB, draft.name.trim() === "" ? rest.job : unprefixed) as unknown as JobSubmission
  if (shape === "job") return { body: withoutEmpty(read(SETTINGS.job, job as unknown as Fields)), errors }
  const settings = withoutEmpty(read(SETTINGS[shape], rest[shape]))
  const name = job.name ?? unnamed
  return { body: { name, ...settings, job_definition: withoutEmpty(definitionOf(job)) }, errors }
}

/** Controls without which there is no object. */
const NEEDED: Record<Shape, readonly Name[]> = {
  job: ["image"],
  array: ["values", "image"],
  cronjob: ["schedule", "image"],
}

/** Returns the controls that are empty, and must not be. */
export function neededIn(shape: Shape, draft: Draft): Name[] {
  return NEEDED[shape].filter((name) => draft[name].trim() === "")
}

/** Returns the API's errors by the control that they are about, and the sentences about other parts. */
export function placed(
  shape: Shape,
  errors: readonly { field: string; detail: string }[],
): { errors: Errors; others: string[] } {
  const found: Errors = {}
  const others: string[] = []
  for (const { field, detail } of errors) {
    const path = field.replace(/^job_definition\./, "")
    const isAbout = ({ paths }: Control) => paths.some((one) => path === one || path.startsWith(`${one}.`))
    const [name] = controlsOf(shape).find(([, control]) => isAbout(control)) ?? []
    if (name === undefined) others.push(detail)
    else found[name] = found[name] === undefined ? detail : `${found[name]} · ${detail}`
  }
  return { errors: found, others }
}

/** Returns a name for an object whose jobs run an image. @param end makes the name unique */
export function nameFor(image: string, end: string): string {
  const base = image.replace(/^.*\//, "").replace(/[:@].*$/, "")
  const prefix = base
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "-")
    .slice(0, 40)
    .replace(/^-+|-+$/g, "")
  return `${prefix === "" ? "job" : prefix}-${end}`
}

function isSame(some: readonly unknown[], others: readonly unknown[]): boolean {
  return some.length === others.length && some.every((one, index) => one === others[index])
}

/** Returns the texts of a list, separated by spaces or commas. */
export function parseList(value: string): string[] {
  return value.split(/[\s,]+/).filter((one) => one !== "")
}

/** Returns labels such as `team=vision, run=a17`. @throws Error about one without a value */
export function parseLabels(value: string): Record<string, string> {
  return Object.fromEntries(parseList(value).map((text) => readText(PAIR, ["Labels:", text], READING)))
}

/** Returns the words of a command line, as a POSIX shell reads them; undefined if a quotation mark is not closed. */
export function parseWords(line: string): string[] | undefined {
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
    } else word = (word ?? "") + unquote(found)
  }
  return word === undefined ? words : [...words, word]
}

function unquote(piece: string): string {
  if (piece.startsWith("'")) return piece.slice(1, -1)
  if (piece.startsWith('"')) return piece.slice(1, -1).replace(/\\(["\\$`\n])/g, "$1")
  return piece.startsWith("\\") ? piece.slice(1) : piece
}
