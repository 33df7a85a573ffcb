import fc from "fast-check"
import { describe, expect, it } from "vitest"
import { nextTick, SCHEDULE_ALIASES, SCHEDULE_PATTERN, scheduleError } from "./schedule.ts"

describe("a schedule", () => {
  it.each([
    "* * * * *",
    "0 3 * * *",
    "*/5 * * * *",
    "5/15 * * * *",
    "0-59/7 1,2,3-5 * * *",
    "00 03 01 01 07",
    "0 0 1 JAN *",
    "0 0 1 jan-Mar,dec sun",
    "30 3 * * MON-FRI",
    "0 0 * JUL WED",
    "0 0 29 2 *",
    "0 0 31 2 MON",
    "0 0 1,31 2 *",
    "0 0 * * 0-7",
    "0 0 * * 0,7",
    "5,0-10/5 1,1 23,7-25,*/2 JUN-AUG,JUL MON-FRI,1",
    "*/90 * * * *",
    "  0\t3  * * *  ",
    ...Object.keys(SCHEDULE_ALIASES),
  ])("may be %j", (schedule) => {
    expect(scheduleError(schedule)).toBeUndefined()
  })

  it.each<[string, RegExp]>([
    ["", /five fields.*has none/],
    ["   ", /has none/],
    ["* * * *", /five fields.*has 4/],
    ["0 * * * * *", /has 6: seconds and years are not supported/],
    ["0 0 12 1 1 ? 2030", /has 7/],
    ["@reboot", /"@reboot" is an unknown alias; use @yearly.*@hourly/],
    ["@every 1h", /unknown alias/],
    ["@Hourly", /unknown alias/],
    ["@minutely", /unknown alias/],
    ["toString", /has 1/],
    ["@toString", /unknown alias/],
    ["CRON_TZ=Europe/Berlin 0 3 * * *", /UTC/],
    ["TZ=UTC 0 3 * * *", /UTC/],
    ["60 * * * *", /"60" as minute: it takes 0 to 59/],
    ["* 24 * * *", /hour: it takes 0 to 23/],
    ["* * 0 * *", /day of month: it takes 1 to 31/],
    ["* * * 13 *", /month: it takes 1 to 12 or JAN to DEC/],
    ["* * * * 8", /day of week: it takes 0 to 7 or SUN to SAT/],
    ["* * MON * *", /day of month/],
    ["* * * MONDAY *", /month/],
    ["-1 * * * *", /minute/],
    ["1.5 * * * *", /minute/],
    ["1e1 * * * *", /minute/],
    ["+1 * * * *", /minute/],
    ["1,,2 * * * *", /"" as minute/],
    [", * * * *", /"" as minute/],
    ["1- * * * *", /minute/],
    ["1-2-3 * * * *", /minute/],
    ["*/0 * * * *", /step.*from 1/],
    ["*/ * * * *", /step/],
    ["*/x * * * *", /step/],
    ["*/5/5 * * * *", /more than one/],
    ["** * * * *", /minute/],
    ["H * * * *", /Jenkins/],
    ["H/15 * * * *", /Jenkins/],
    ["H(0-29)/10 * * * *", /Jenkins/],
    ["0 0 ? * MON", /no \?, L, W and #/],
    ["0 0 L * *", /no \?, L, W and #/],
    ["0 0 15W * *", /no \?, L, W and #/],
    ["0 0 * * MON#1", /no \?, L, W and #/],
    ["0 0 * * FRI-MON", /backwards.*FRI-7,0-MON/],
    ["0 17-9 * * *", /backwards.*17-23,0-9/],
    ["0 0 31 2 *", /never occurs/],
    ["0 0 30,31 FEB *", /never occurs/],
    ["0 0 31 4,6,9,11 *", /never occurs/],
    ["0 3 * * *\n0 4 * * *", /one line/],
    ["0 3 * * ＊", /ASCII/],
    ["0\u00a03 * * *", /ASCII/],
  ])("may not be %j", (schedule, error) => {
    expect(scheduleError(schedule)).toMatch(error)
  })

  it("is refused for its dates exactly when no day of 28 years has one of them", () => {
    const day = fc.integer({ min: 28, max: 31 })
    const months = fc.uniqueArray(fc.integer({ min: 1, max: 12 }), { minLength: 1, maxLength: 3 })
    const weekday = fc.constantFrom("*", "0", "MON", "1-3")
    fc.assert(
      fc.property(fc.uniqueArray(day, { minLength: 1, maxLength: 2 }), months, weekday, (days, months, weekdays) => {
        const comes = weekdays !== "*" || days.some((dom) => months.some((month) => hasDate(month, dom)))
        const error = scheduleError(`0 0 ${days.join(",")} ${months.join(",")} ${weekdays}`)
        expect(error === undefined).toBe(comes)
      }),
    )
  })

  it("has the form of the kind's pattern if it has no error, so that kubectl accepts it too", () => {
    const pattern = new RegExp(SCHEDULE_PATTERN, "u")
    const value = fc.oneof(
      fc.integer({ min: 0, max: 60 }).map(String),
      fc.constantFrom("00", "07", "*", "jan", "SUN", "L"),
    )
    const item = fc.oneof(
      value,
      fc.tuple(value, value).map((ends) => ends.join("-")),
      fc.tuple(value, fc.integer({ min: 0, max: 99 })).map((parts) => parts.join("/")),
    )
    const field = fc.array(item, { minLength: 1, maxLength: 2 }).map((items) => items.join(","))
    const fields = fc.array(field, { minLength: 4, maxLength: 6 }).map((all) => all.join(" "))
    let valid = 0
    fc.assert(
      fc.property(fc.oneof(fields, fc.constantFrom(...Object.keys(SCHEDULE_ALIASES))), (schedule) => {
        const error = scheduleError(schedule)
        if (error === undefined) valid++
        if (error === undefined || /never occurs/.test(error)) expect(schedule).toMatch(pattern)
        else if (!/runs backwards/.test(error)) expect(schedule).not.toMatch(pattern)
      }),
      { numRuns: 2000 },
    )
    expect(valid).toBeGreaterThan(10)
  })

  it.each([
    ["0 0 * * 1/2", ["MON", "WED", "FRI"]],
    ["0 0 * * 4/3", ["THU"]],
    ["0 0 * * 5/2", ["FRI"]],
    ["0 0 * * 7/2", ["SUN"]],
    ["0 0 * * MON/3", ["MON", "THU"]],
    ["0 0 * * 1/2,2", ["MON", "TUE", "WED", "FRI"]],
    ["0 0 * * */2", ["SUN", "TUE", "THU", "SAT"]],
    ["0 0 * * 1-7/2", ["SUN", "MON", "WED", "FRI"]],
  ])("%s ticks on %j: a step ends with Saturday", (schedule, days) => {
    const names = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
    // 4 January 2026 is a Sunday.
    const ticks = names.filter((_, day) => {
      const midnight = Date.UTC(2026, 0, 4 + day)
      return nextTick(schedule, new Date(midnight - 1))?.getTime() === midnight
    })
    expect(ticks).toEqual(days)
  })

  it("ticks in UTC, strictly later than the moment asked for", () => {
    const tick = (schedule: string, after: string) => nextTick(schedule, new Date(after))?.toISOString()
    expect(tick("30 3 * * *", "2026-03-29T01:59:00+01:00")).toBe("2026-03-29T03:30:00.000Z")
    expect(tick("0 * * * *", "2026-01-01T00:00:00Z")).toBe("2026-01-01T01:00:00.000Z")
    expect(tick("@midnight", "2026-01-01T00:00:00Z")).toBe("2026-01-02T00:00:00.000Z")
    expect(tick("0 0 29 2 *", "2026-01-01T00:00:00Z")).toBe("2028-02-29T00:00:00.000Z")
    expect(tick("0 0 31 2 *", "2026-01-01T00:00:00Z")).toBeUndefined()
    // What several items of a list name is named once.
    expect(tick("0 12 5-7,6 1,JAN *", "2026-01-06T12:00:00Z")).toBe("2026-01-07T12:00:00.000Z")
    expect(tick("0 0 * * 7,0,6-7", "2026-01-04T00:00:00Z")).toBe("2026-01-10T00:00:00.000Z")
  })

  it("never makes the check throw, or last", () => {
    const part = fc.constantFrom(
      "*",
      "*/7",
      "0",
      "31",
      "2",
      "1-5",
      "FEB",
      "MON",
      "L",
      "H",
      "?",
      "#",
      "/",
      "-",
      ",",
      "@",
    )
    const noise = fc.array(part, { maxLength: 4 }).map((parts) => parts.join(""))
    const answered = (schedule: string): void => {
      expect(["string", "undefined"]).toContain(typeof scheduleError(schedule))
    }
    fc.assert(fc.property(fc.array(noise, { maxLength: 7 }), (fields) => answered(fields.join(" "))))
    fc.assert(fc.property(fc.string({ unit: "binary" }), answered))
  })
})

/** Returns true if any year has this date; 2000 is a leap year. */
function hasDate(month: number, day: number): boolean {
  return new Date(Date.UTC(2000, month - 1, day)).getUTCMonth() === month - 1
}
