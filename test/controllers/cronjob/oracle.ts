/**
 * Cron by brute force, independent of the tested code: every minute is checked. The rules are those of crontab(5) as
 * Kubernetes' CronJob reads them. If both day of month and day of week are limited, a day needs to match only one. A
 * field with `*` limits nothing, except by a step. The calendar is calculated by hand as well, from days since
 * 1970. So no time zone of the process has an effect.
 */

const MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
const DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]

const ALIASES: Readonly<Record<string, string>> = {
  "@yearly": "0 0 1 1 *",
  "@annually": "0 0 1 1 *",
  "@monthly": "0 0 1 * *",
  "@weekly": "0 0 * * 0",
  "@daily": "0 0 * * *",
  "@midnight": "0 0 * * *",
  "@hourly": "0 * * * *",
}

interface Field {
  values: Set<number>
  limits: boolean
}

export interface CronRules {
  minute: Field
  hour: Field
  day: Field
  month: Field
  weekday: Field
}

const MINUTES_A_DAY = 1440

/** Rules of a valid schedule. */
export function rulesOf(schedule: string): CronRules {
  const [minute = "", hour = "", day = "", month = "", weekday = ""] = (ALIASES[schedule] ?? schedule).split(" ")
  const week = fieldOf(weekday, 0, 7, DAYS)
  if (week.values.has(7)) week.values.add(0)
  return {
    minute: fieldOf(minute, 0, 59),
    hour: fieldOf(hour, 0, 23),
    day: fieldOf(day, 1, 31),
    month: fieldOf(month, 1, 12, MONTHS),
    weekday: week,
  }
}

function fieldOf(text: string, least: number, most: number, names: readonly string[] = []): Field {
  const values = new Set<number>()
  let limits = true
  const numberOf = (word: string): number => {
    const place = names.indexOf(word.toLowerCase())
    return place === -1 ? Number(word) : place + least
  }
  // A week ends with Saturday, although 7 is Sunday, too.
  const end = names === DAYS ? 6 : most
  for (const item of text.split(",")) {
    const [range = "", step = "1"] = item.split("/")
    const [from = "", to] = range === "*" ? [String(least), String(most)] : range.split("-")
    const first = numberOf(from)
    // "5/15" is "5-59/15".
    const last = to !== undefined ? numberOf(to) : item.includes("/") ? Math.max(first, end) : first
    for (let value = first; value <= last; value += Number(step)) values.add(value)
    if (range === "*" && Number(step) === 1) limits = false
  }
  return { values, limits }
}

/** True if a minute (since 1970, UTC) is a tick. */
export function isTick(rules: CronRules, minute: number): boolean {
  if (!rules.minute.values.has(minute % 60)) return false
  if (!rules.hour.values.has(Math.floor(minute / 60) % 24)) return false
  return isDay(rules, Math.floor(minute / MINUTES_A_DAY))
}

/** Returns the first tick after a minute, both since 1970; undefined if none comes within so many years. */
export function tickAfter(rules: CronRules, after: number, years = 9): number | undefined {
  for (let minute = after + 1; minute < after + years * 366 * MINUTES_A_DAY; minute++) {
    if (minute % MINUTES_A_DAY === 0 || minute === after + 1) minute = nextDayFrom(rules, minute, years)
    if (isTick(rules, minute)) return minute
  }
  return undefined
}

/** Checks whole days first, because most minutes are on days without a tick. */
function nextDayFrom(rules: CronRules, minute: number, years: number): number {
  const today = Math.floor(minute / MINUTES_A_DAY)
  for (let day = today; day < today + years * 366; day++) {
    if (isDay(rules, day)) return day === today ? minute : day * MINUTES_A_DAY
  }
  return minute
}

function isDay(rules: CronRules, dayNumber: number): boolean {
  const { month, day } = dateOf(dayNumber)
  if (!rules.month.values.has(month)) return false
  // 1 January 1970 was a Thursday.
  const byDay = rules.day.values.has(day)
  const byWeekday = rules.weekday.values.has((dayNumber + 4) % 7)
  if (rules.day.limits && rules.weekday.limits) return byDay || byWeekday
  return byDay && byWeekday
}

/** Returns month and day of a number of days since 1970, counted year by year and month by month. */
export function dateOf(dayNumber: number): { year: number; month: number; day: number } {
  let year = 1970
  let left = dayNumber
  for (; left >= (isLeap(year) ? 366 : 365); year++) left -= isLeap(year) ? 366 : 365
  let month = 1
  for (; left >= daysIn(year, month); month++) left -= daysIn(year, month)
  return { year, month, day: left + 1 }
}

function daysIn(year: number, month: number): number {
  if (month === 2) return isLeap(year) ? 29 : 28
  return [4, 6, 9, 11].includes(month) ? 30 : 31
}

function isLeap(year: number): boolean {
  return (year % 4 === 0 && year % 100 !== 0) || year % 400 === 0
}
