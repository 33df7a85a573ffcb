import fc from "fast-check"
import { afterAll, describe, expect, it } from "vitest"
import { countTicks, latestTick, nextTick, SCHEDULE_ALIASES, scheduleError } from "../../../src/core/apis/schedule.ts"
import { dateOf, isTick, rulesOf, tickAfter } from "./oracle.ts"

/** Seed of the schedules. Another seed gives others. */
const SEED = 20_261_122

/** Zones in both hemispheres. Their clocks jump by an hour, half an hour, a whole day, at midnight, or never. */
const ZONES = [
  "UTC",
  "Europe/Berlin",
  "America/New_York",
  "America/Sao_Paulo",
  "Australia/Lord_Howe",
  "America/St_Johns",
  "Pacific/Apia",
  "Africa/Cairo",
]

const ownZone = process.env["TZ"]
afterAll(() => inZone(ownZone))

/** Node.js applies a change of TZ at once. */
function inZone(zone: string | undefined): void {
  if (zone === undefined) delete process.env["TZ"]
  else process.env["TZ"] = zone
}

const minuteOf = (time: string): number => Date.parse(time) / 60_000
const dateAt = (minute: number): Date => new Date(minute * 60_000)

/** One item of a field: a number, a range, a step or `*`. */
function item(least: number, most: number, names: readonly string[] = []): fc.Arbitrary<string> {
  const number = fc.integer({ min: least, max: most })
  const word = number.chain((value) => {
    const name = names[value - least]
    return fc.constantFrom(String(value), ...(name === undefined ? [] : [name, name.toLowerCase()]))
  })
  const range = fc.tuple(number, number).map(([a, b]) => `${Math.min(a, b)}-${Math.max(a, b)}`)
  const step = fc.integer({ min: 1, max: most })
  const stepped = fc.tuple(fc.oneof(fc.constant("*"), range, number.map(String)), step).map(([of, by]) => `${of}/${by}`)
  return fc.oneof({ weight: 3, arbitrary: fc.constant("*") }, { weight: 3, arbitrary: word }, range, stepped)
}

function field(...bounds: Parameters<typeof item>): fc.Arbitrary<string> {
  return fc.array(item(...bounds), { minLength: 1, maxLength: 3 }).map((items) => items.join(","))
}

const MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
const DAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]

const schedule = fc.oneof(
  {
    weight: 9,
    arbitrary: fc
      .tuple(field(0, 59), field(0, 23), field(1, 31), field(1, 12, MONTHS), field(0, 7, DAYS))
      .map((fields) => fields.join(" ")),
  },
  { weight: 1, arbitrary: fc.constantFrom(...Object.keys(SCHEDULE_ALIASES)) },
)

/** Any minute of a century, and minutes near special dates. */
const minute = fc.oneof(
  fc.integer({ min: minuteOf("2020-01-01T00:00:00Z"), max: minuteOf("2119-12-31T00:00:00Z") }),
  fc
    .tuple(
      fc.constantFrom(
        "2024-02-28T23:58:00Z",
        "2024-02-29T23:59:00Z",
        "2100-02-28T23:59:00Z",
        "2026-03-29T00:59:00Z",
        "2026-10-25T00:59:00Z",
        "2026-03-08T06:59:00Z",
        "2026-11-01T05:59:00Z",
        "2018-11-04T02:59:00Z",
        "2026-04-04T14:59:00Z",
        "2011-12-30T09:59:00Z",
        "2026-12-31T23:59:00Z",
        "2026-04-23T21:59:00Z",
      ),
      fc.integer({ min: -180, max: 180 }),
    )
    .map(([time, offset]) => minuteOf(time) + offset),
)

describe("the oracle", () => {
  it("knows the calendar like JavaScript does, in UTC", () => {
    for (let day = 0; day < 60_000; day += 17) {
      const date = new Date(day * 86_400_000)
      const expected = { year: date.getUTCFullYear(), month: date.getUTCMonth() + 1, day: date.getUTCDate() }
      expect(dateOf(day)).toEqual(expected)
    }
  })

  it.each([
    ["30 3 * * MON-FRI", "2026-05-01T03:30:00Z", true],
    ["30 3 * * MON-FRI", "2026-05-02T03:30:00Z", false],
    ["0 0 13 * FRI", "2026-05-01T00:00:00Z", true],
    ["0 0 13 * FRI", "2026-05-13T00:00:00Z", true],
    ["0 0 29 2 *", "2100-02-28T00:00:00Z", false],
    ["5/15 * * * *", "2026-05-01T00:50:00Z", true],
    ["0 0 */2 * MON", "2026-05-03T00:00:00Z", true],
    ["0 0 */1 * MON", "2026-05-03T00:00:00Z", false],
    ["0 0 * * 7", "2026-05-03T00:00:00Z", true],
  ])("decides that %s at %s is a tick: %s", (text, time, expected) => {
    expect(isTick(rulesOf(text), minuteOf(time))).toBe(expected)
  })
})

describe.each(ZONES)("the schedule in a process whose time zone is %s", (zone) => {
  it("finds the oracle's next tick from any minute of a century", () => {
    inZone(zone)
    expect(Intl.DateTimeFormat().resolvedOptions().timeZone).toBe(zone)
    fc.assert(
      fc.property(schedule, minute, fc.integer({ min: 0, max: 59_999 }), (text, after, milliseconds) => {
        const expected = tickAfter(rulesOf(text), after)
        const found = nextTick(text, new Date(after * 60_000 + milliseconds))
        // All fields are well-formed, so only dates that never come are rejected.
        expect(scheduleError(text) === undefined).toBe(expected !== undefined)
        expect(found?.toISOString()).toBe(expected === undefined ? undefined : dateAt(expected).toISOString())
      }),
      { numRuns: 150, seed: SEED },
    )
  })

  it("finds the oracle's latest tick of a span, and the same number of ticks", () => {
    inZone(zone)
    const comes = schedule.filter((text) => scheduleError(text) === undefined)
    fc.assert(
      fc.property(comes, minute, fc.integer({ min: 0, max: 5000 }), (text, after, length) => {
        const rules = rulesOf(text)
        const ticks = Array.from({ length }, (_, index) => after + 1 + index).filter((at) => isTick(rules, at))
        const until = new Date((after + length) * 60_000 + 59_999)
        const latest = ticks.at(-1)
        expect(latestTick(text, dateAt(after), until)).toEqual(latest === undefined ? undefined : dateAt(latest))
        const before = dateAt(after + length + 1)
        expect(countTicks(text, dateAt(after), before)).toBe(ticks.length)
      }),
      { numRuns: 50, seed: SEED },
    )
  })

  it.each([
    ["7 */4 * * *", 2],
    ["0 2,3 * * *", 3],
    ["0 0 29 2 *", 20],
    ["59 23 31 12 *", 5],
    ["30 2 * 3,10,11 SUN", 6],
  ])("%s finds every tick of %i years, none twice and none missing", (text, years) => {
    inZone(zone)
    const rules = rulesOf(text)
    const end = minuteOf(`${2026 + years}-01-01T00:00:00Z`)
    let at = minuteOf("2026-01-01T00:00:00Z")
    for (;;) {
      const next = nextTick(text, dateAt(at))
      const expected = tickAfter(rules, at)
      expect(next?.getTime()).toBe(expected === undefined ? undefined : expected * 60_000)
      if (expected === undefined || expected > end) break
      at = expected
    }
  })
})
