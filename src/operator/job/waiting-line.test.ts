import { describe, expect, it } from "vitest"
import { jobOf, launchOf, vmStatus } from "../../../test/harness/builders.ts"
import type { SpendCaps } from "../../core/apis/caps.ts"
import { systemClock } from "../../core/apis/clock.ts"
import type { JobSpec } from "../../core/apis/job.ts"
import { IndexedStore } from "../../core/kube/store.ts"
import { launchIndexes } from "../../market/caches.ts"
import type { LevelCaps } from "../../market/placement/caps.ts"
import { LaunchLedger } from "../../market/placement/ledger.ts"
import { cappedLevels, type Market } from "../../market/placement/market.ts"
import { JOB_DEFAULTS } from "../../market/placement/settings.ts"
import { WaitingLine } from "./waiting-line.ts"

const NOW = new Date("2026-12-01T12:00:00Z")

describe("the line of a project under its organization's cap of $50 an hour", () => {
  /**
   * Returns the dollars an hour that another project keeps from it. There a job that needs $40 has waited for ten minutes,
   * while one job of its group runs.
   */
  function keptBy(other: { caps?: SpendCaps; spec?: Partial<JobSpec> }): number | undefined {
    const launches = new IndexedStore(launchIndexes)
    const running = jobOf({ metadata: { name: "export-1", namespace: "lab", uid: "running" } })
    launches.put(launchOf(running, 1, { spec: { concurrencyGroup: "db" }, status: vmStatus() }))
    const organization = { level: "organization", caps: { maxHourlyUsd: 50 }, owns: () => true } as const
    const caps = (namespace: string): LevelCaps[] =>
      namespace === "lab" && other.caps !== undefined
        ? [{ level: "project", caps: other.caps, owns: (of) => of === namespace }, organization]
        : [organization]
    const dependencies = {
      ...{ jobs: { store: { list: () => [] } }, launches: { store: launches }, statements: { store: {} } },
      ...{ caps, clock: { ...systemClock, now: () => NOW } },
    } as unknown as ConstructorParameters<typeof WaitingLine>[0]
    const ledger = new LaunchLedger(launches, systemClock)
    const line = new WaitingLine(dependencies, ledger, JOB_DEFAULTS)
    const since = new Date(NOW.getTime() - 600_000).toISOString()
    const waiting = jobOf({
      metadata: { name: "train-7", namespace: "lab", uid: "waiting", creationTimestamp: since },
      spec: other.spec ?? {},
    })
    line.note(waiting, { vms: 1, gpus: 0, hourlyUsd: 40, expectedUsd: 40, mostUsd: 40 })
    const levels = cappedLevels("team", dependencies, ledger, JOB_DEFAULTS)
    const job = jobOf({ metadata: { name: "mine", namespace: "team", creationTimestamp: NOW.toISOString() } })
    return line.market(job, { levels } as unknown as Market).levels[0]?.taken?.hourlyUsd
  }

  it("leaves room for a job of another project that has waited for the time in which it may be passed", () => {
    expect(keptBy({})).toBe(40)
    expect(keptBy({ caps: { maxHourlyUsd: 45 }, spec: { concurrencyGroup: { name: "db", limit: 2 } } })).toBe(40)
  })

  it("leaves none for one that its own project's cap or group makes wait", () => {
    expect(keptBy({ caps: { maxHourlyUsd: 39 } })).toBeUndefined()
    expect(keptBy({ caps: { maxVms: 1 } })).toBeUndefined()
    expect(keptBy({ spec: { concurrencyGroup: { name: "db", limit: 1 } } })).toBeUndefined()
  })
})
