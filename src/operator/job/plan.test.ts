import { describe, expect, it } from "vitest"
import { jobOf, launchOf, offerOf } from "../../../test/harness/builders.ts"
import { systemClock } from "../../core/apis/clock.ts"
import type { JobSpec, StoredJob } from "../../core/apis/job.ts"
import { IndexedStore } from "../../core/kube/store.ts"
import { launchIndexes } from "../../market/caches.ts"
import { fixedOffers } from "../../market/catalogue/offers.ts"
import { type JobPlan, jobPlanner } from "../../market/placement/place.ts"

const NOW = new Date("2026-12-01T12:00:00Z")

describe("the plan of a job under a cap", () => {
  const small = offerOf({ cloud: "aws", instanceType: "small", cpu: 2, hourlyPriceUsd: 1 })
  const large = offerOf({ cloud: "aws", instanceType: "large", cpu: 8, hourlyPriceUsd: 4 })

  /** Plans a job with one vCPU where $2 an hour are left, behind a waiting job that needs $4. */
  async function planBehind(waitsSeconds: number, spec: Partial<JobSpec> = {}, maxHourlyUsd = 5): Promise<JobPlan> {
    const launches = new IndexedStore(launchIndexes)
    const running = jobOf({ metadata: { name: "train-6", namespace: "team", uid: "running" } })
    launches.put(launchOf(running, 1, { spec: { offer: { ...small, hourlyPriceUsd: maxHourlyUsd - 2 } } }))
    const since = new Date(NOW.getTime() - waitsSeconds * 1000).toISOString()
    const waiting = jobOf({
      metadata: { name: "train-7", namespace: "team", creationTimestamp: since },
      spec: { resources: { cpu: 8 }, priority: 50 },
      status: { phase: "queued", reason: "CapReached" },
    })
    const plan = jobPlanner({
      jobs: { store: new IndexedStore<StoredJob>() },
      launches: { store: launches },
      statements: { store: { list: () => [], byIndex: () => [] } },
      offers: fixedOffers([small, large]),
      launchAccounts: { of: () => [{ cloud: "aws" }] },
      caps: () => [{ level: "project", caps: { maxHourlyUsd }, owns: () => true }],
      clock: { ...systemClock, now: () => NOW },
      nextTurn: async () => undefined,
      inLine: () => [waiting],
    })
    return plan("team", { image: "busybox", ...spec })
  }

  it("says that it passes a job that does not fit yet", async () => {
    expect((await planBehind(60)).verdict).toBe("placeable")
  })

  it("says its place behind a job for which room is kept", async () => {
    const { verdict, reason, message } = await planBehind(600)
    expect({ verdict, reason }).toEqual({ verdict: "waits", reason: "CapReached" })
    expect(message).toMatch(/and jobs ahead in the line take \$4\/h.*; 2nd in line, behind train-7 \(priority 50\)$/)
  })

  it("says that it passes a job that needs more than the whole cap", async () => {
    expect((await planBehind(600, {}, 3.9)).verdict).toBe("placeable")
  })

  it("stands before jobs with a lower priority", async () => {
    expect((await planBehind(600, { priority: 51 })).verdict).toBe("placeable")
  })
})
