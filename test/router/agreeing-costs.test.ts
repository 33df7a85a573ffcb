import { expect, test } from "vitest"
import type { JobStatus } from "../../src/core/apis/job.ts"
import { isOver, type LaunchStatus, type StoredLaunch } from "../../src/core/apis/launch.ts"
import { frozenSettings } from "../../src/core/apis/vm-settings.ts"
import { costFields } from "../../src/core/records/cost.ts"
import { partPrices } from "../../src/market/catalogue/parts.ts"
import { launchHistory } from "../../src/market/placement/ledger.ts"
import { appraise } from "../../src/market/placement/market.ts"
import { place, planJob } from "../../src/market/placement/place.ts"
import { JOB_DEFAULTS } from "../../src/market/placement/settings.ts"
import { createCatalogue } from "../../src/market/router/catalogue.ts"
import { decide } from "../../src/operator/job/decide.ts"
import { decide as decideLaunch } from "../../src/operator/launch/decide.ts"
import { LAUNCH_DEFAULTS } from "../../src/operator/launch/settings.ts"
import { at, jobOf, launchOf, offerOf, seenOf, time, vmStatus } from "../harness/builders.ts"

const settings = { disk: { size: "100Gi", type: "gp2" }, publicAddress: true }
const offer = offerOf({ cloud: "aws", region: "us-east-1", instanceType: "m7i.large", hourlyPriceUsd: 0.1 })
const offers = createCatalogue([offer], undefined, partPrices())
const facts = {
  namespace: "team",
  offers,
  launchAccounts: [{ cloud: "aws", connection: "main", settings }],
  launches: launchHistory([]),
}
const market = appraise(facts, at(0), JOB_DEFAULTS)

test("the plan, the estimate, the Launch, the accrued and the actual cost of a job agree", () => {
  const job = jobOf({ spec: { timeoutSeconds: 3600, resources: { disk: "150Gi" } } })
  const [planned] = planJob(job, market, at(0), JOB_DEFAULTS).placements
  const hourly = { machineUsd: 0.1, diskUsd: 0.020548, addressUsd: 0.005 }
  expect(planned).toMatchObject({ prices: hourly, cost: hourly, trafficUsd: 0, totalUsd: 0.125548 })

  const observed = { launches: [], market: () => market, ...seenOf(job) }
  const { status, actions } = decide(job, observed, at(0), JOB_DEFAULTS)
  const { launch: created } = actions.find((action) => action.do === "createLaunch") ?? {}
  expect(status.cost?.estimatedUsd).toBe(0.125548)
  expect(created?.spec.hourlyPrices).toEqual(hourly)
  // The price is calculated again when the Launch gets the settings of its connection.
  const { disk } = frozenSettings(settings, offer, created?.spec.disk) ?? {}
  expect(offers.pricesOf(offer, { disk, publicAddress: true })).toEqual(hourly)

  const launchIn = (launchStatus: LaunchStatus): StoredLaunch =>
    launchOf(job, 1, { spec: created?.spec ?? {}, status: launchStatus })
  const running = { phase: "running" as const, vm: { state: "running" as const, id: "vm-1", createTime: time(5) } }
  const after = (before: JobStatus, launch: StoredLaunch, seconds: number) =>
    decide(jobOf({ ...job, status: before }), { ...observed, launches: [launch] }, at(seconds), JOB_DEFAULTS).status
  const started = after(status, launchIn(vmStatus(running)), 10)
  expect(costFields(started, time(3605))).toMatchObject({ estimated_cost: 0.125548, accrued_cost: 0.125548 })

  const vm = {
    id: "vm-1",
    launch: "l",
    region: "us-east-1",
    installation: "i",
    createTime: time(5),
    state: "terminated" as const,
  }
  const view = { is: "found" as const, vm: { ...vm, terminationTime: time(3605) } }
  const seen = {
    ...({ instance: view, heartbeatTimedOut: false, job: "active", isCounted: false, inFlight: false } as const),
    consoleRead: "ended",
  } as const
  const ended = launchIn(vmStatus(running))
  const over = decideLaunch(ended, seen, at(3606), LAUNCH_DEFAULTS).status
  const final = launchIn({ ...ended.status, ...over })
  expect(isOver(final)).toBe(true)
  const done = after({ ...started, phase: "succeeded", completionTime: time(3600) }, final, 3610)
  expect(costFields(done, undefined)).toMatchObject({
    actual_cost: 0.125548,
    accrued_cost: 0.125548,
    cost_breakdown: { machine_usd: 0.1, disk_usd: 0.020548, address_usd: 0.005, total_usd: 0.125548 },
  })
})

test.each([
  ["where none is published", "eu-central-2", " (the disk's price in eu-central-2 is not published: estimated)"],
  ["where one is published", "eu-west-3", ""],
])("the reason of a placement marks a disk's price %s", (_, region, mark) => {
  const list = createCatalogue([{ ...offer, region }], () => ["eu"], partPrices())
  const verdict = place(jobOf(), appraise({ ...facts, offers: list }, at(0), JOB_DEFAULTS), at(0), JOB_DEFAULTS)
  expect(verdict).toMatchObject({ why: expect.stringContaining(`/h${mark}; expected to cost`) })
})
