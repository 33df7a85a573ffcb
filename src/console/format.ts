/** Returns a number in the reader's locale. */
export function count(value: number): string {
  return value.toLocaleString()
}

/** Returns USD in the reader's locale, with as many digits as a small amount needs. */
export function usd(value: number): string {
  const digits = value === 0 || Math.abs(value) >= 1 ? 2 : Math.min(6, 2 - Math.floor(Math.log10(Math.abs(value))))
  return value.toLocaleString(undefined, {
    style: "currency",
    currency: "USD",
    currencyDisplay: "narrowSymbol",
    minimumFractionDigits: 2,
    maximumFractionDigits: digits,
  })
}

const UNITS: readonly [seconds: number, unit: string][] = [
  [86_400, "d"],
  [3600, "h"],
  [60, "min"],
  [1, "s"],
]

/** Returns a duration with its two largest units, such as `2 h 5 min`. */
export function duration(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds))
  const first = UNITS.findIndex(([size]) => whole >= size)
  if (first < 0) return "0 s"
  let rest = whole
  const parts = UNITS.slice(first, first + 2).flatMap(([size, unit]) => {
    const units = Math.floor(rest / size)
    rest -= units * size
    return units === 0 ? [] : [`${units} ${unit}`]
  })
  return parts.join(" ")
}

/** Returns the seconds between two ISO times. */
export function secondsBetween(from: string, to: string): number {
  return (Date.parse(to) - Date.parse(from)) / 1000
}

/** Time zone in which times are shown first. */
export type Zone = "local" | "utc"

/** Returns an ISO time with its date and seconds, in the reader's locale. */
export function timeText(iso: string, zone: Zone): string {
  const shown = new Date(iso).toLocaleString(undefined, {
    dateStyle: "medium",
    timeStyle: "medium",
    ...(zone === "utc" && { timeZone: "UTC" }),
  })
  return zone === "utc" ? `${shown} UTC` : shown
}

/** Returns a time to the minute, with its day of the week and the name of the zone. */
export function zonedText(time: Date, zone: Zone): string {
  return time.toLocaleString(undefined, {
    weekday: "short",
    day: "numeric",
    month: "short",
    hour: "2-digit",
    minute: "2-digit",
    timeZoneName: "short",
    ...(zone === "utc" && { timeZone: "UTC" }),
  })
}

/** Returns an ISO time as the distance from now, such as `5 min ago`. */
export function ago(iso: string, now: number): string {
  const seconds = (now - Date.parse(iso)) / 1000
  if (Math.abs(seconds) < 5) return "now"
  return seconds < 0 ? `in ${coarse(-seconds)}` : `${coarse(seconds)} ago`
}

function coarse(seconds: number): string {
  const [size, unit] = UNITS.find(([least]) => seconds >= least) ?? [1, "s"]
  return `${Math.floor(seconds / size)} ${unit}`
}

/** Returns a size in bytes, such as `1.4 MiB`. */
export function bytes(size: number): string {
  const units = ["B", "KiB", "MiB", "GiB"]
  const power = size < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(size) / 10))
  const shown = (size / 1024 ** power).toLocaleString(undefined, { maximumFractionDigits: power === 0 ? 0 : 1 })
  return `${shown} ${units[power]}`
}

/** Returns a day or month (UTC) such as `2026-11-24` in the reader's locale. */
export function dateText(date: string): string {
  const isMonth = date.length <= 7
  return new Date(date).toLocaleDateString(undefined, {
    timeZone: "UTC",
    month: isMonth ? "long" : "short",
    ...(isMonth ? { year: "numeric" } : { day: "numeric" }),
  })
}

/** Returns a part of a whole, such as `42 %`. */
export function percent(part: number, whole: number): string {
  const share = whole === 0 ? 0 : part / whole
  return share.toLocaleString(undefined, { style: "percent", maximumFractionDigits: share < 0.01 && share > 0 ? 1 : 0 })
}
