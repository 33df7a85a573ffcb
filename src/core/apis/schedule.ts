import { type CronExpression, CronExpressionParser } from "cron-parser"

/** Aliases of schedules, and the five fields that each stands for. */
export const SCHEDULE_ALIASES: Readonly<Record<string, string>> = {
  "@yearly": "0 0 1 1 *",
  "@annually": "0 0 1 1 *",
  "@monthly": "0 0 1 * *",
  "@weekly": "0 0 * * 0",
  "@daily": "0 0 * * *",
  "@midnight": "0 0 * * *",
  "@hourly": "0 * * * *",
}

interface Field {
  name: string
  minimum: number
  maximum: number
  /** Names of the values, beginning with the least. */
  names?: readonly string[]
}

const MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
const DAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]

const SATURDAY = 6

const WEEKDAY: Field = { name: "day of week", minimum: 0, maximum: 7, names: DAYS }

const FIELDS: readonly Field[] = [
  { name: "minute", minimum: 0, maximum: 59 },
  { name: "hour", minimum: 0, maximum: 23 },
  { name: "day of month", minimum: 1, maximum: 31 },
  { name: "month", minimum: 1, maximum: 12, names: MONTHS },
  WEEKDAY,
]

/** Patterns of one value of each field, in the order of FIELDS. */
const VALUES = ["[0-5]?[0-9]", "[01]?[0-9]|2[0-3]", "0?[1-9]|[12][0-9]|3[01]", "0?[1-9]|1[0-2]", "0?[0-7]"]

/**
 * Pattern of the form of a schedule. It accepts every schedule without an error. Of the others it accepts ranges that
 * run backwards and dates that never occur, which a regular expression can't find.
 */
export const SCHEDULE_PATTERN = schedulePattern()

function schedulePattern(): string {
  const fields = FIELDS.map(({ names = [] }, index) => {
    const value = `(${[VALUES[index], ...names.map(inAnyCase)].join("|")})`
    const item = `([*]|${value}(-${value})?)(/0*[1-9][0-9]{0,3})?`
    return `${item}(,${item})*`
  })
  const space = "[ \\t\\r\\n\\f\\v]*"
  return `^${space}(${fields.join("[ \\t]+")}|${Object.keys(SCHEDULE_ALIASES).join("|")})${space}$`
}

function inAnyCase(name: string): string {
  return [...name].map((letter) => `[${letter}${letter.toLowerCase()}]`).join("")
}

export const SHAPE = 'five fields (minute, hour, day of month, month, day of week) such as "30 3 * * MON-FRI"'

/** Start of the search for a first tick. Any time will do: every date of a calendar recurs. */
const SOME_TIME = new Date("2000-01-01T00:00:00Z")

/**
 * Returns the error of a schedule as the end of a sentence that begins with the field's name, or undefined.
 * A schedule is standard cron: five fields of numbers, names, ranges, steps and lists, or an alias. cron-parser also
 * accepts the empty text, four fields, seconds, and syntax of Jenkins or Quartz, so this check comes first.
 */
export function scheduleError(schedule: string): string | undefined {
  const text = schedule.trim()
  if (/[^\x20-\x7e\t]/.test(text)) return `must be ${SHAPE}, in plain ASCII and on one line`
  if (text.startsWith("@")) return Object.hasOwn(SCHEDULE_ALIASES, text) ? undefined : unknownAlias(text)
  if (/^(CRON_)?TZ=/i.test(text)) return "must not name a time zone: schedules are in UTC"
  const fields = text.split(/[ \t]+/).filter((field) => field !== "")
  if (fields.length !== FIELDS.length) return wrongCount(fields.length)
  const error = FIELDS.map((field, index) => fieldError(field, fields[index] ?? "")).find(
    (found) => found !== undefined,
  )
  if (error !== undefined) return error
  return nextTick(schedule, SOME_TIME) === undefined
    ? `${showText(text)} names a date that never occurs, such as 31 February`
    : undefined
}

/**
 * Returns the first tick after a time, in UTC, or undefined if the schedule has none.
 * As in every cron, a day matches if day of month or day of week matches, when both are limited. As in Kubernetes, a
 * step is a limit and `*` in a list is not. Needs a schedule in which `scheduleError` finds no other error.
 */
export function nextTick(schedule: string, after: Date): Date | undefined {
  try {
    return expressionOf(schedule, after).next().toDate()
  } catch {
    // All fields are within their bounds, so the only remaining error is a date that no calendar has.
    return undefined
  }
}

/** Returns the last tick after one time and not after another, in UTC, or undefined if there is none. */
export function latestTick(schedule: string, after: Date, until: Date): Date | undefined {
  // Checked first, because a backward search finds a tick of any age, and most schedules have none in this time.
  const first = nextTick(schedule, after)
  if (first === undefined || first > until) return undefined
  // cron-parser finds ticks before the time that it gets.
  return expressionOf(schedule, new Date(until.getTime() + 1))
    .prev()
    .toDate()
}

/**
 * Returns the number of ticks after one time and before another, in UTC. Counts by the day, as there may be millions.
 */
export function countTicks(schedule: string, after: Date, before: Date): number {
  const expression = expressionOf(schedule, after)
  const { hour, minute } = expression.fields
  const times = hour.values.flatMap((hours) => minute.values.map((minutes) => (hours * 60 + minutes) * 60_000))
  const isBetween = (time: number): boolean => time > after.getTime() && time < before.getTime()
  let count = 0
  for (let day = after.getTime() - (after.getTime() % DAY_MS); day < before.getTime(); day += DAY_MS) {
    if (!expression.includesDate(new Date(day + (times[0] ?? 0)))) continue
    const isWhole = isBetween(day) && isBetween(day + DAY_MS)
    count += isWhole ? times.length : times.filter((time) => isBetween(day + time)).length
  }
  return count
}

const DAY_MS = 86_400_000

function expressionOf(schedule: string, currentDate: Date): CronExpression {
  const text = schedule.trim()
  const fields = (SCHEDULE_ALIASES[text] ?? text).split(/[ \t]+/).map(asOneList)
  return CronExpressionParser.parse(fields.join(" "), { currentDate, tz: "UTC" })
}

/**
 * Returns a field in a form that cron-parser accepts. A list with `*` becomes `*`, because it doesn't limit the field. Values
 * that several items contain, as in `1-5,3`, are valid in cron but an error in cron-parser, so they are merged.
 */
function asOneList(text: string, index: number): string {
  const items = text.split(",")
  if (items.some((item) => /^\*(\/0*1)?$/.test(item))) return "*"
  const field = FIELDS[index]
  // cron-parser extends `1/2` as day of week to Sunday, its day 7.
  const isOpenStep = field === WEEKDAY && /^[^*-]+\//.test(text)
  if ((items.length === 1 && !isOpenStep) || field === undefined) return text
  // Sunday is 0 and 7.
  const values = items.flatMap((item) => valuesOf(field, item)).map((value) => (field === WEEKDAY ? value % 7 : value))
  return [...new Set(values)].sort((a, b) => a - b).join(",")
}

/**
 * Returns the values of an item of a list. `first/step` extends to the field's end. As in other crons, a week ends with
 * Saturday: `1/2` as day of week is Monday, Wednesday and Friday.
 */
function valuesOf(field: Field, item: string): number[] {
  const [base = "", step] = item.split("/")
  const [first = "", last] = base === "*" ? [String(field.minimum), String(field.maximum)] : base.split("-")
  const start = numberOf(field, first) ?? field.minimum
  const lastOfField = field === WEEKDAY ? Math.max(start, SATURDAY) : field.maximum
  const end = last !== undefined ? numberOf(field, last) : step !== undefined ? lastOfField : start
  const values = Array.from({ length: (end ?? start) - start + 1 }, (_, offset) => start + offset)
  return values.filter((value) => (value - start) % Number(step ?? 1) === 0)
}

function unknownAlias(text: string): string {
  return `${showText(text)} is an unknown alias; use ${Object.keys(SCHEDULE_ALIASES).join(", ")}; or write ${SHAPE}`
}

function wrongCount(count: number): string {
  const hint = count > FIELDS.length ? ": seconds and years are not supported" : ""
  return `must have ${SHAPE}, or be an alias such as @hourly; it has ${count === 0 ? "none" : count}${hint}`
}

function fieldError(field: Field, text: string): string | undefined {
  for (const item of text.split(",")) {
    const error = itemError(field, item)
    if (error !== undefined) return `has ${showText(item)} as ${field.name}: ${error}`
  }
  return undefined
}

function itemError(field: Field, item: string): string | undefined {
  const [base = "", step, ...moreSteps] = item.split("/")
  if (/^H\b/i.test(base)) return "H is Jenkins syntax, write a number"
  if (/^\?$|^L|[LW#]/i.test(base) && !isName(field, base))
    return `standard cron has no ?, L, W and #; ${allowedText(field)}`
  if (moreSteps.length > 0) return 'it has more than one "/"'
  if (step !== undefined && !/^0*[1-9][0-9]{0,3}$/.test(step)) return `the step after "/" must be a number from 1`
  if (base === "*") return undefined
  const [first = "", last, ...moreEnds] = base.split("-")
  const start = numberOf(field, first)
  const end = last === undefined ? start : numberOf(field, last)
  if (start === undefined || end === undefined || moreEnds.length > 0) return allowedText(field)
  if (start > end)
    return `the range runs backwards; write two ranges, such as ${first}-${field.maximum},${field.minimum}-${last}`
  return undefined
}

/** Returns true if the item consists of a field's names: JUL contains an L, WED a W. */
function isName(field: Field, base: string): boolean {
  return base.split("-").every((part) => numberOf(field, part) !== undefined)
}

function numberOf({ minimum, maximum, names = [] }: Field, text: string): number | undefined {
  const place = names.indexOf(text.toUpperCase())
  if (place >= 0) return minimum + place
  if (!/^[0-9]{1,2}$/.test(text)) return undefined
  const value = Number(text)
  return value >= minimum && value <= maximum ? value : undefined
}

function allowedText({ minimum, maximum, names }: Field): string {
  const named = names === undefined ? "" : ` or ${names[0]} to ${names.at(-1)}`
  return `it takes ${minimum} to ${maximum}${named}, *, ranges (a-b), steps (*/n) and lists (a,b)`
}

function showText(text: string): string {
  return JSON.stringify(text.length > 40 ? `${text.slice(0, 40)}…` : text)
}
