import { describe, expect, test } from "vitest"
import { job, setUp } from "../../../test/harness/usage.ts"
import { MIB } from "../../core/quota/project-limits.ts"
import { jobsToPrune } from "./history.ts"

describe("jobsToPrune", () => {
  const all = ({ jobs, quota }: ReturnType<typeof setUp>) =>
    [...jobs.objects.values()].map((one) => ({ ...one, bytes: quota.usage.bytesOf("jobs", one) }))
  const names = (found: ReturnType<typeof jobsToPrune>) => found.map(({ job: one }) => one.metadata.name)

  test("takes the oldest ended jobs of a project that is full, and no others", () => {
    const fixture = setUp({ projectMib: 1 })
    const { jobs, quota } = fixture
    for (const at of [3, 1, 2]) jobs.put(job(`ended-${at}`, { at, phase: "succeeded", bytes: 0.3 * MIB }))
    expect(jobsToPrune(all(fixture), quota)).toEqual([])
    jobs.put(job("live", { bytes: 0.25 * MIB }))
    jobs.put(job("elsewhere", { namespace: "b", phase: "succeeded", bytes: 0.5 * MIB }))
    expect(names(jobsToPrune(all(fixture), quota))).toEqual(["ended-1"])
  })

  test("takes from the largest projects when the installation is full", () => {
    const fixture = setUp({ installationMib: 2 })
    const { jobs, quota } = fixture
    for (let i = 0; i < 20; i++) jobs.put(job(`big-${i}`, { at: i, phase: "succeeded", bytes: 0.1 * MIB }))
    jobs.put(job("small", { namespace: "b", phase: "succeeded", bytes: 0.3 * MIB }))
    const found = jobsToPrune(all(fixture), quota)
    expect(names(found)).toEqual(["big-0", "big-1", "big-2", "big-3", "big-4", "big-5"])
    expect(found.every(({ cause }) => cause === "installationMib")).toBe(true)
  })
})
