import { describe, expect, test } from "vitest"
import { job, setUp } from "../../../test/harness/usage.ts"
import type { StoredCronJob } from "../apis/cronjob.ts"
import type { StoredJob } from "../apis/job.ts"
import { LABELS } from "../apis/meta.ts"
import {
  limitForCronJobRun,
  limitForExisting,
  limitForJob,
  limitForObject,
  limitForPlacement,
  MIB,
} from "./project-limits.ts"

describe("Usage", () => {
  test("equals a count of all objects after any changes", () => {
    const { jobs, quota } = setUp()
    for (let i = 0; i < 500; i++) {
      const [name, namespace] = [`j${i % 40}`, i % 3 === 0 ? "a" : "b"]
      const known = jobs.objects.get(`${namespace}/${name}`)
      if (known !== undefined && i % 5 === 0) jobs.remove(known)
      else jobs.put(job(name, { namespace, phase: i % 2 === 0 ? "running" : "succeeded", bytes: i }))
    }
    for (const namespace of ["a", "b"]) {
      const all = [...jobs.objects.values()].filter(({ metadata }) => metadata.namespace === namespace)
      const size = (some: StoredJob[]) => some.reduce((sum, one) => sum + Buffer.byteLength(JSON.stringify(one)), 0)
      const ended = all.filter(({ status }) => status?.phase === "succeeded")
      expect(quota.usage.of(namespace)).toMatchObject({
        unfinishedJobs: all.length - ended.length,
        bytes: size(all),
        endedBytes: size(ended),
      })
    }
    expect(quota.usage.all().bytes).toBe(quota.usage.of("a").bytes + quota.usage.of("b").bytes)
  })

  test("forgets the jobs of CronJobs after a minute", () => {
    const { jobs, quota, clock } = setUp({ cronJobRunsPerMinute: 2 })
    const labels = { [LABELS.cronJobUid]: "c" }
    jobs.put(job("one", { labels }))
    expect(limitForCronJobRun(quota, "a")).toBeUndefined()
    jobs.put(job("two", { labels, at: 1 }))
    expect(limitForCronJobRun(quota, "a")?.message).toContain("created 2 jobs within a minute; the limit is 2")
    expect(limitForCronJobRun(quota, "b")).toBeUndefined()
    clock.advance(61)
    expect(limitForCronJobRun(quota, "a")).toBeUndefined()
  })
})

describe("limits of a project", () => {
  test("reject one more unfinished job, and no job of another project", () => {
    const { jobs, quota } = setUp({ unfinishedJobs: 2 })
    jobs.put(job("one"))
    const two = jobs.put(job("two"))
    expect(limitForJob(quota, "a")).toEqual({
      limit: "unfinishedJobs",
      message: "the project has 2 unfinished jobs; the limit is 2. Wait until jobs end, or cancel some",
    })
    expect(limitForJob(quota, "b")).toBeUndefined()
    jobs.put({ ...two, status: { ...two.status, phase: "cancelled" } } as StoredJob)
    expect(limitForJob(quota, "a")).toBeUndefined()
  })

  test("let the oldest jobs start, however they were created", () => {
    const { jobs, quota, clock } = setUp({ unfinishedJobs: 2 })
    const made = [3, 1, 2].map((at) => jobs.put(job(`at-${at}`, { at })))
    const waiting = () => made.filter((one) => limitForPlacement(quota, one)).map(({ metadata }) => metadata.name)
    expect(waiting()).toEqual(["at-3"])
    jobs.put({ ...made[1], status: { phase: "succeeded" } } as StoredJob)
    clock.advance(6)
    expect(waiting()).toEqual([])
  })

  test("let one job start though the project's other objects fill it", () => {
    const { jobs, quota } = setUp({ projectMib: 1 })
    const made = [1, 2].map((at) => jobs.put(job(`at-${at}`, { at, bytes: 2 * MIB })))
    expect(made.map((one) => limitForPlacement(quota, one)?.limit)).toEqual([undefined, "projectMib"])
  })

  test("count history only while its deletion is behind", () => {
    const { jobs, quota } = setUp({ projectMib: 1 })
    jobs.put(job("old", { phase: "succeeded", bytes: 1.05 * MIB }))
    expect(limitForJob(quota, "a")).toBeUndefined()
    jobs.put(job("older", { phase: "succeeded", bytes: 0.1 * MIB }))
    expect(limitForJob(quota, "a")?.message).toContain("Berth is deleting the oldest ended jobs")
    expect(limitForObject(quota, "a", "apiKeys")?.limit).toBe("projectMib")
    expect(limitForJob(quota, "b")).toBeUndefined()
  })

  test("keep the newest objects of a kind from working, beyond its maximum", () => {
    const { cronJobs, quota } = setUp({ cronJobs: 1 })
    const made = [2, 1].map((at) => cronJobs.put(job(`at-${at}`, { at }) as unknown as StoredCronJob))
    const over = made.map((one) => limitForExisting(quota, "cronJobs", one, { list: () => made })?.message)
    expect(over).toEqual(["the project has 2 cronjobs; the limit is 1. Delete some that you no longer need", undefined])
  })

  test.each([
    [1, undefined],
    [0, "this installation allows projects no cronjobs of their own: its administrator has set limits.cronJobs to 0"],
  ])("leave objects that work as they are, unless the limit is 0: %i", (cronJobs, expected) => {
    const { cronJobs: cache, quota } = setUp({ cronJobs })
    const conditions = [{ type: "Ready", status: "True", reason: "Scheduled" }]
    const made = [1, 2].map((at) => cache.put({ ...job(`at-${at}`, { at }), status: { conditions } } as never))
    const over = made.map((one) => limitForExisting(quota, "cronJobs", one, { list: () => made })?.message)
    expect(over).toEqual([expected, expected])
    if (cronJobs === 0) expect(limitForObject(quota, "b", "cronJobs")?.message).toBe(expected)
  })
})
