import { describe, expect, it } from "vitest"
import { agentOf, jobOf, launchOf, offerOf, vmStatus } from "../../../test/harness/builders.ts"
import type { SpendCaps } from "../../core/apis/caps.ts"
import { systemClock } from "../../core/apis/clock.ts"
import type { JobSpec, StoredJob } from "../../core/apis/job.ts"
import type { Offer } from "../../core/apis/offer.ts"
import type { PrerequisiteName } from "../../core/apis/prerequisites.ts"
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

describe("the plan of a job", () => {
  const idle = launchOf(jobOf({ metadata: { name: "earlier", namespace: "team", uid: "earlier" } }), 1, {
    spec: {
      ...{ run: { image: "busybox", reuse: { idleSeconds: 300 } }, lifetimeSeconds: 86_400 },
      offer: offerOf({ cloud: "gcp" }),
    },
    status: vmStatus({
      vm: { state: "running", id: "vm-1", createTime: NOW.toISOString() },
      agent: agentOf({ finish: { reason: "Succeeded", time: NOW.toISOString() }, idleTime: NOW.toISOString() }),
    }),
  })

  async function planOf(
    spec: Partial<JobSpec>,
    { caps = {}, name, offer = {} }: { caps?: SpendCaps; name?: PrerequisiteName; offer?: Partial<Offer> } = {},
  ): Promise<JobPlan> {
    const launches = new IndexedStore(launchIndexes)
    launches.put(idle)
    const { cloud = "gcp" } = offer
    const plan = jobPlanner(
      {
        jobs: { store: new IndexedStore<StoredJob>() },
        launches: { store: launches },
        statements: { store: { list: () => [], byIndex: () => [] } },
        offers: fixedOffers([offerOf({ cloud, ...offer })]),
        launchAccounts: { of: () => [{ cloud }] },
        caps: () => [{ level: "project", caps, owns: () => true }],
        clock: { ...systemClock, now: () => NOW },
        nextTurn: async () => undefined,
      },
      { reuseIdleSeconds: 300 },
    )
    return plan("team", { image: "busybox", timeoutSeconds: 600, ...spec }, name && { name })
  }

  const spot = { provisioning: "spot" } as const
  it.each<[string, Partial<JobSpec>, Parameters<typeof planOf>[1], Pick<JobPlan, "reuse" | "canReuse">]>([
    ["the installation's default", {}, {}, { canReuse: true, reuse: { idleSeconds: 300 } }],
    ["the job's own", { reuse: { idleSeconds: 9 } }, {}, { canReuse: true, reuse: { idleSeconds: 9 } }],
    ["none, though it could", { reuse: { idleSeconds: 0 } }, {}, { canReuse: true }],
    ["none with maxCostUsd", { maxCostUsd: 5 }, {}, {}],
    ["none under a strict cap", {}, { caps: { maxMonthlyUsd: 500, reserve: "strict" } }, {}],
    ["none on a spot VM of AWS", spot, { offer: { cloud: "aws", ...spot } }, {}],
    ["the default of an array", {}, { name: { array: "sweep" } }, { canReuse: true, reuse: { idleSeconds: 300 } }],
  ])("says the reuse of its VM: %s", async (_, spec, market, expected) => {
    const { verdict, reuse, canReuse } = await planOf(spec, market)
    expect({ verdict, reuse, canReuse }).toEqual({ verdict: "placeable", ...expected })
  })

  it("takes over an idle VM, but that of an array doesn't: its jobs share VMs with each other only", async () => {
    expect((await planOf({})).message).toMatch(/takes the idle VM of earlier/)
    expect((await planOf({}, { name: { array: "sweep" } })).message).not.toMatch(/idle VM/)
  })
})
