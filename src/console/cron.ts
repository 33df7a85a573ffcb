/** Ticks of a schedule, for people to see. The API has checked the schedule, and the operator's own ticks count. */

const ALIASES: Record<string, string> = {
  "@yearly": "0 0 1 1 *",
  "@annually": "0 0 1 1 *",
  "@monthly": "0 0 1 * *",
  "@weekly": "0 0 * * 0",
  "@daily": "0 0 * * *",
  "@midnight": "0 0 * * *",
  "@hourly": "0 * * * *",
}

const MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
const DAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]

interface Field {
  least: number
  most: number
  /** End of `first/step`. */
  end: number
  names?: readonly string[]
}

const FIELDS: readonly Field[] = [
  { least: 0, most: 59, end: 59 },
  { least: 0, most: 23, end: 23 },
  { least: 1, most: 31, end: 31 },
  { least: 1, most: 12, end: 12, names: MONTHS },
  { least: 0, most: 7, end: 6, names: DAYS },
]

const DAY_MS = 86_400_000
/** 29 February can be eight years away. */
const MOST_DAYS = 8 * 366

/** Returns the next ticks after a time, in UTC; fewer, or none, for a schedule that can't be read. */
export function nextTicks(schedule: string, after: Date, most: number): Date[] {
  const text = schedule.trim()
  const fields = (ALIASES[text] ?? text).split(/[ \t]+/)
  const sets = FIELDS.map((field, index) => valuesOf(field, fields[index] ?? ""))
  const [minutes, hours, days, months, weekdays] = sets
  if (!(minutes && hours && days && months && weekdays) || fields.length !== FIELDS.length) return []
  const isDay = (date: Date): boolean => {
    const [ofMonth, ofWeek] = [days.values.has(date.getUTCDate()), isWeekday(weekdays, date)]
    const matches = days.isLimit && weekdays.isLimit ? ofMonth || ofWeek : ofMonth && ofWeek
    return matches && months.values.has(date.getUTCMonth() + 1)
  }
  const times = [...hours.values].flatMap((hour) => [...minutes.values].map((minute) => (hour * 60 + minute) * 60_000))
  times.sort((a, b) => a - b)
  const ticks: Date[] = []
  const first = after.getTime() - (after.getTime() % DAY_MS)
  for (let day = 0; day < MOST_DAYS && ticks.length < most; day++) {
    const start = first + day * DAY_MS
    if (!isDay(new Date(start))) continue
    ticks.push(
      ...times
        .map((time) => new Date(start + time))
        .filter((tick) => tick > after)
        .slice(0, most - ticks.length),
    )
  }
  return ticks
}

interface Values {
  values: ReadonlySet<number>
  /** False for `*`. */
  isLimit: boolean
}

/** Sunday is 0 and 7. */
function isWeekday({ values }: Values, date: Date): boolean {
  const day = date.getUTCDay()
  return values.has(day) || (day === 0 && values.has(7))
}

function valuesOf(field: Field, text: string): Values | undefined {
  const values = new Set<number>()
  const items = text.split(",")
  for (const item of items) {
    const [, base, step = "1"] = /^([^/]+)(?:\/0*([1-9][0-9]*))?$/.exec(item) ?? []
    const range = base === undefined ? undefined : rangeOf(field, base, item.includes("/"))
    if (range === undefined) return undefined
    for (let value = range.first; value <= range.last; value += Number(step)) values.add(value)
  }
  return { values, isLimit: !items.some((item) => /^\*(\/0*1)?$/.test(item)) }
}

/** Returns the first and the last value of `*`, `a`, `a-b` or `a/step`. */
function rangeOf(field: Field, base: string, hasStep: boolean): { first: number; last: number } | undefined {
  if (base === "*") return { first: field.least, last: field.most }
  const [from = "", to] = base.split("-")
  const first = numberOf(field, from)
  if (first === undefined) return undefined
  if (to === undefined) return { first, last: hasStep ? Math.max(first, field.end) : first }
  const last = numberOf(field, to)
  return last === undefined ? undefined : { first, last }
}

function numberOf({ least, names = [] }: Field, text: string): number | undefined {
  const place = names.indexOf(text.toUpperCase())
  if (place >= 0) return least + place
  return /^[0-9]{1,2}$/.test(text) ? Number(text) : undefined
}
