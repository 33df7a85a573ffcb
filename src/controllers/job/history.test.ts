import { describe, expect, test } from "vitest"
import { job, setUp } from "../../../test/limits/usage-fixture.ts"
import { MIB } from "../../limits/project-limits.ts"
import { jobsToPrune } from "./history.ts"

describe("jobsToPrune", () => {
  const names = (found: ReturnType<typeof jobsToPrune>) => found.map(({ job: one }) => one.metadata.name)

  test("takes the oldest ended jobs of a project that is full, and no others", () => {
    const { jobs, quota } = setUp({ projectMib: 1 })
    for (const at of [3, 1, 2]) jobs.put(job(`ended-${at}`, { at, phase: "succeeded", bytes: 0.3 * MIB }))
    expect(jobsToPrune([...jobs.objects.values()], quota)).toEqual([])
    jobs.put(job("live", { bytes: 0.25 * MIB }))
    jobs.put(job("elsewhere", { namespace: "b", phase: "succeeded", bytes: 0.5 * MIB }))
    expect(names(jobsToPrune([...jobs.objects.values()], quota))).toEqual(["ended-1"])
  })

  test("takes from the largest projects when the installation is full", () => {
    const { jobs, quota } = setUp({ installationMib: 2 })
    for (let i = 0; i < 20; i++) jobs.put(job(`big-${i}`, { at: i, phase: "succeeded", bytes: 0.1 * MIB }))
    jobs.put(job("small", { namespace: "b", phase: "succeeded", bytes: 0.3 * MIB }))
    const found = jobsToPrune([...jobs.objects.values()], quota)
    expect(names(found)).toEqual(["big-0", "big-1", "big-2", "big-3", "big-4", "big-5"])
    expect(found.every(({ cause }) => cause === "installationMib")).toBe(true)
  })
})
