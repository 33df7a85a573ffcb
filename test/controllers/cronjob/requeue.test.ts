import { describe, expect, it } from "vitest"
import { LONGEST_DELAY_SECONDS } from "../../../src/operator/cronjob/schedule.ts"
import { cronHarnesses } from "./harness.ts"

const newHarness = cronHarnesses()

/** CronJobs that are due at one second. */
const COUNT = 20

describe("the delay before the next tick of a CronJob", () => {
  it("requeues all CronJobs that are due at the same second, and each tick gets a Job of its own", async () => {
    const harness = await newHarness()
    harness.operator()
    const names = Array.from({ length: COUNT }, (_, n) => `c${String(n).padStart(2, "0")}`)
    await Promise.all(names.map((name) => harness.create(name)))
    for (const name of names) await harness.waitsFor(name, "2026-05-01T12:01:00Z")
    harness.clock.goTo("2026-05-01T12:00:59.999Z")
    harness.clock.goTo("2026-05-01T12:01:00Z")
    for (const name of names) await harness.waitsFor(name, "2026-05-01T12:02:00Z")
    harness.clock.goTo("2026-05-01T12:02:00Z")
    for (const name of names) await harness.waitsFor(name, "2026-05-01T12:03:00Z")
    expect(await harness.jobNames()).toEqual(
      names.flatMap((name) => [`${name}-20260501t120100z`, `${name}-20260501t120200z`]),
    )
  })

  it("lasts at most LONGEST_DELAY_SECONDS after the calendar jumps two hours ahead, as a suspended machine's does", async () => {
    const harness = await newHarness()
    harness.operator()
    await harness.create("hourly", { schedule: "0 * * * *" })
    await harness.waitsFor("hourly", "2026-05-01T13:00:00Z")
    harness.clock.jump(2 * 3600)
    harness.clock.advance(LONGEST_DELAY_SECONDS)
    await harness.waitsFor("hourly", "2026-05-01T15:00:00Z")
    expect(await harness.jobNames()).toEqual(["hourly-20260501t140000z"])
  })

  it("starts again after the calendar jumps back: the tick gets its Job at its time, and only one", async () => {
    const harness = await newHarness()
    harness.operator()
    await harness.create("back", { schedule: "*/10 * * * *" })
    await harness.waitsFor("back", "2026-05-01T12:10:00Z")
    harness.clock.jump(-3600)
    await harness.create("witness", { schedule: "5 11 * * *" })
    harness.clock.goTo("2026-05-01T11:05:00Z")
    await harness.waitsFor("witness", "2026-05-02T11:05:00Z")
    expect(await harness.jobNames()).toEqual(["witness-20260501t110500z"])
    for (const minute of ["12:09:59", "12:10:00"]) harness.clock.goTo(`2026-05-01T${minute}Z`)
    await harness.waitsFor("back", "2026-05-01T12:20:00Z")
    expect(await harness.jobNames()).toEqual(["back-20260501t121000z", "witness-20260501t110500z"])
  })

  it("ends at the earlier tick of a changed schedule, and the former tick gets no Job", async () => {
    const harness = await newHarness()
    harness.operator()
    await harness.create("changed", { schedule: "2 12 * * *" })
    await harness.waitsFor("changed", "2026-05-01T12:02:00Z")
    await harness.change("changed", { schedule: "1 12 * * *" })
    await harness.waitsFor("changed", "2026-05-01T12:01:00Z")
    harness.clock.goTo("2026-05-01T12:01:00Z")
    await harness.waitsFor("changed", "2026-05-02T12:01:00Z")
    await harness.create("witness")
    await harness.waitsFor("witness", "2026-05-01T12:02:00Z")
    harness.clock.goTo("2026-05-01T12:02:00Z")
    await harness.waitsFor("witness", "2026-05-01T12:03:00Z")
    expect(await harness.jobNames()).toEqual(["changed-20260501t120100z", "witness-20260501t120200z"])
  })

  it("lasts until the later tick of a changed schedule, although the former delay is still pending", async () => {
    const harness = await newHarness()
    harness.operator()
    await harness.create("changed", { schedule: "1 12 * * *" })
    await harness.create("witness", { schedule: "1 12 * * *" })
    for (const name of ["changed", "witness"]) await harness.waitsFor(name, "2026-05-01T12:01:00Z")
    await harness.change("changed", { schedule: "2 12 * * *" })
    await harness.waitsFor("changed", "2026-05-01T12:02:00Z")
    harness.clock.goTo("2026-05-01T12:01:00Z")
    await harness.waitsFor("witness", "2026-05-02T12:01:00Z")
    expect(await harness.jobNames()).toEqual(["witness-20260501t120100z"])
    harness.clock.goTo("2026-05-01T12:02:00Z")
    await harness.waitsFor("changed", "2026-05-02T12:02:00Z")
    expect(await harness.jobNames()).toEqual(["changed-20260501t120200z", "witness-20260501t120100z"])
  })

  it("creates no Job of a CronJob that was deleted meanwhile", async () => {
    const harness = await newHarness()
    harness.operator()
    for (const name of ["deleted", "witness"]) await harness.create(name)
    for (const name of ["deleted", "witness"]) await harness.waitsFor(name, "2026-05-01T12:01:00Z")
    await harness.delete("deleted")
    for (const minute of [1, 2]) {
      harness.clock.goTo(`2026-05-01T12:0${minute}:00Z`)
      await harness.waitsFor("witness", `2026-05-01T12:0${minute + 1}:00Z`)
    }
    expect(await harness.jobNames()).toEqual(["witness-20260501t120100z", "witness-20260501t120200z"])
  })
})
