import { beforeAll, describe, expect, test } from "vitest"
import { runInstancesInput } from "../../src/clouds/aws/request.ts"
import { buildMachine } from "../../src/clouds/azure/machine.ts"
import type { LaunchSpec } from "../../src/clouds/cloud.ts"
import { buildInstance } from "../../src/clouds/gcp/machine.ts"
import { buildInstance as buildNebiusInstance } from "../../src/clouds/nebius/request.ts"
import type { JobSpec } from "../../src/core/apis/job.ts"
import type { Launch } from "../../src/core/apis/launch.ts"
import type { Offer } from "../../src/core/apis/offer.ts"
import { sumOfParts } from "../../src/core/apis/price.ts"
import { frozenSettings, type VmSettings } from "../../src/core/apis/vm-settings.ts"
import { buildOffers } from "../../src/market/catalogue/file.ts"
import { partPrices } from "../../src/market/catalogue/parts.ts"
import { readPriceList } from "../../src/market/catalogue/shipped.ts"
import { launchHistory } from "../../src/market/placement/ledger.ts"
import { appraise } from "../../src/market/placement/market.ts"
import { JOB_DEFAULTS } from "../../src/market/placement/settings.ts"
import { Catalogue } from "../../src/market/router/catalogue.ts"
import { decide } from "../../src/operator/job/decide.ts"
import { at, jobOf, seenOf } from "../harness/builders.ts"
import { isNightly } from "../nightly.ts"
import { randomFrom } from "../random.ts"
import { type BilledVm, billOf } from "./bills.ts"
import {
  type ArmRequest,
  type Ec2Request,
  type GceRequest,
  type NebiusRequest,
  type PublicPrices,
  priceOfArm,
  priceOfEc2,
  priceOfGce,
  priceOfNebius,
  type SoldAs,
  sustainedVcpus,
} from "./public-prices.ts"

/** Number of random jobs. A placement among all offers takes some milliseconds. */
const JOBS = isNightly ? 5000 : 400
const SEED = 20_261_127

/** Amounts of three parts are rounded to a millionth, and so are their prices an hour. */
const ROUNDING_USD = 1e-5

/** Longest times that the strict limits leave for boot and end, seconds (docs/costs.md). */
const BOOT_SECONDS = 180
const END_SECONDS = 180
const POWER_OFF_SECONDS = 90

const SETTINGS: Readonly<Record<string, readonly VmSettings[]>> = {
  aws: [{}, { disk: { type: "gp2", size: "30Gi" } }, { publicAddress: false }],
  gcp: [{}, { disk: { type: "pd-ssd", size: "20Gi" } }, { publicAddress: false }],
  azure: [{}, { disk: { type: "Premium_LRS" } }, { disk: { type: "Standard_LRS", size: "100Gi" } }],
  nebius: [{}, { disk: { size: "30Gi" } }, { publicAddress: false }],
}

/** Returns the prices of a VM by its launch request. */
function publicPrices(spec: LaunchSpec, sold: SoldAs): PublicPrices {
  const { offer } = spec
  if (offer.cloud === "aws") {
    const nic = { AssociatePublicIpAddress: spec.network?.publicAddress !== false }
    const request = runInstancesInput({ ...spec, imageId: "ami-1" }, { NetworkInterfaces: [nic] })
    return priceOfEc2(request as Ec2Request, sold)
  }
  if (offer.cloud === "gcp") return priceOfGce(buildInstance(spec, `${offer.region}-a`, {}) as GceRequest, sold)
  if (offer.cloud === "nebius") {
    const place = { projectId: "p", subnetId: "s", securityGroupId: "g", imageId: "i" }
    return priceOfNebius(buildNebiusInstance(spec, place) as unknown as NebiusRequest, sold)
  }
  return priceOfArm(buildMachine(spec, { subnetId: "s", securityGroupId: "g" }, {}) as ArmRequest, sold)
}

function specOf(offer: Offer, changes: Partial<LaunchSpec> = {}): LaunchSpec {
  return {
    name: "9a1b-1",
    installation: "i",
    tags: {},
    offer,
    userData: "#cloud-config\n",
    lifetimeSeconds: 3600,
    ...changes,
  }
}

const hourly = ({ machine, credits, disk, address }: PublicPrices) => machine + credits + disk + address

describe("bills by the clouds' public rules, with all vCPUs busy", () => {
  let catalogue: Catalogue
  let onDemandUsd: Map<string, number>
  const keyOf = ({ cloud, region, instanceType }: Offer) => `${cloud}/${region}/${instanceType}`
  const soldAs = (offer: Offer): SoldAs => ({
    region: offer.region,
    hourly: offer.hourlyPriceUsd,
    onDemand: onDemandUsd.get(keyOf(offer)),
  })

  beforeAll(() => {
    catalogue = new Catalogue(buildOffers(readPriceList()), partPrices())
    const bought = [...catalogue.offers()].filter(({ provisioning }) => provisioning === "onDemand")
    onDemandUsd = new Map(bought.map((offer) => [keyOf(offer), offer.hourlyPriceUsd]))
  })

  test("have no VM that costs more an hour than its price, or that sustains less CPU than is counted", () => {
    const checked = new Set<string>()
    const wrong: object[] = []
    for (const offer of catalogue.offers()) {
      const key = `${offer.cloud}/${offer.instanceType}/${offer.provisioning}`
      if (checked.has(key)) continue
      const prices = publicPrices(specOf(offer), soldAs(offer))
      // Each machine is checked until a region has a public price of its disk.
      if (prices.isDiskKnown) checked.add(key)
      const bill = hourly({ ...prices, machine: offer.hourlyPriceUsd, ...(!prices.isDiskKnown && { disk: 0 }) })
      const shown = sumOfParts(catalogue.pricesOf(offer, { publicAddress: true }))
      const sustained = sustainedVcpus(offer.instanceType) ?? offer.cpu
      const isRight = bill <= shown + ROUNDING_USD && offer.cpu <= sustained + 1e-3
      if (!isRight) wrong.push({ ...offer, shown, bill, sustained })
    }
    expect(wrong).toEqual([])
    expect(checked.size).toBeGreaterThan(4000)
  })

  test(`exceed no limit with the VMs of ${JOBS} random jobs`, { timeout: 600_000 }, () => {
    const random = randomFrom(SEED)
    const regions = [...new Set(readPriceList().regions.flatMap(({ name, groups }) => [name, ...groups]))]
    const tally = { placed: 0, spot: 0, burstable: 0, budgets: 0, caps: 0, hourly: 0 }
    const broken: object[] = []
    for (let n = 0; n < JOBS; n++) {
      const asked = ask(random, regions)
      const launch = launchFor(catalogue, asked)
      if (launch === undefined) continue
      const prices = publicPrices(specOf(launch.spec.offer, launch.spec), soldAs(launch.spec.offer))
      const broke = limitsBroken(asked, launch, prices)
      if (broke.length > 0) broken.push({ broke, offer: launch.spec.offer, spec: asked.spec, prices })
      const { offer } = launch.spec
      tally.placed++
      tally.spot += Number(offer.provisioning === "spot")
      tally.burstable += Number(sustainedVcpus(offer.instanceType) !== undefined)
      tally.budgets += Number(asked.spec.maxCostUsd !== undefined)
      tally.caps += Number(asked.capUsd !== undefined)
      tally.hourly += Number(asked.spec.maxHourlyPriceUsd !== undefined)
    }
    expect(broken.slice(0, 3), `${broken.length} of ${tally.placed} placements`).toEqual([])
    // Random jobs prove little if most have no place, or few have limits.
    for (const [what, least] of Object.entries({
      placed: 0.5,
      spot: 0.15,
      burstable: 0.05,
      budgets: 0.1,
      caps: 0.1,
      hourly: 0.05,
    }))
      expect(tally[what as keyof typeof tally], what).toBeGreaterThan(JOBS * least)
  })
})

/** A random job, and what is left of its project's strict cap, USD. */
interface Asked {
  spec: Partial<JobSpec>
  capUsd?: number
  settings: VmSettings
  settingsOf: string
}

function ask(random: () => number, regions: readonly string[]): Asked {
  const pick = <T>(items: readonly T[]) => items[Math.floor(random() * items.length)] as T
  const chance = (part: number) => random() < part
  const cloud = pick(["aws", "gcp", "azure", "nebius"] as const)
  const cpu = pick(["0.1", "0.2", "0.25", "0.4", "400m", "500m", "1", "1", "2", "4", "16", "64"])
  const memory = pick([undefined, "256Mi", "512Mi", "1Gi", "2Gi", "4Gi", "15Gi", "60Gi"])
  const disk = pick([undefined, undefined, "20Gi", "200Gi", "1Ti"])
  const gpu = pick([undefined, undefined, undefined, undefined, { model: "T4" }, { count: 8, model: "H100" }])
  const usd = (most: number) => Math.round(random() ** 3 * most * 1e4) / 1e4 + 0.002
  const spec: Partial<JobSpec> = {
    cloud: chance(0.6) ? [cloud] : ["aws", "gcp", "azure", "nebius"],
    ...(chance(0.5) && { region: [pick(regions)] }),
    provisioning: pick(["onDemand", "spot", "spotFirst"] as const),
    resources: { cpu, ...(memory && { memory }), ...(disk && { disk }), ...(gpu && { gpu }) },
    ...(chance(0.7) && { timeoutSeconds: 1 + Math.floor(random() ** 3 * 3 * 86_400) }),
    ...(chance(0.45) && { maxCostUsd: usd(gpu === undefined ? 20 : 2000) }),
    ...(chance(0.25) && { maxHourlyPriceUsd: usd(gpu === undefined ? 2 : 100) }),
  }
  const settings = pick(SETTINGS[cloud] as readonly VmSettings[])
  return { spec, settings, settingsOf: cloud, ...(chance(0.4) && { capUsd: usd(gpu === undefined ? 200 : 20_000) }) }
}

/** Returns the Launch that the job controller creates for a job; undefined if the job waits or fails. */
function launchFor(catalogue: Catalogue, { spec, capUsd, settings, settingsOf }: Asked): Launch | undefined {
  const launchAccounts = ["aws", "gcp", "azure", "nebius"].map((cloud) => ({
    cloud,
    connection: cloud,
    settings: cloud === settingsOf ? settings : {},
  }))
  const spending = { vms: 0, gpus: 0, idleVms: 0, hourlyUsd: 0, endedUsd: 0, liveUsd: 0, expectedUsd: 0, mostUsd: 0 }
  const caps = { maxMonthlyUsd: capUsd ?? 0, reserve: "strict" as const }
  const levels = capUsd === undefined ? [] : [{ level: "project" as const, caps, owns: () => true, spending }]
  const facts = { namespace: "team", offers: catalogue, launchAccounts, launches: launchHistory([]), levels }
  const market = appraise(facts, at(0), JOB_DEFAULTS)
  const job = jobOf({ spec })
  const observed = { launches: [], market: () => market, ...seenOf(job) }
  const { actions } = decide(job, observed, at(0), JOB_DEFAULTS)
  const [action] = actions.filter((each) => each.do === "createLaunch")
  const { launch, isStrict = false } = action ?? {}
  const own = launchAccounts.find(({ cloud }) => cloud === launch?.spec.offer.cloud)?.settings
  if (launch === undefined || own === undefined) return undefined
  const frozen = { ...launch.spec, ...frozenSettings(own, launch.spec.offer, launch.spec.disk) }
  // The controller calculates the prices again, with the settings that the Launch keeps.
  const vm = { disk: frozen.disk, publicAddress: frozen.network?.publicAddress ?? true, isStrict }
  expect(catalogue.pricesOf(frozen.offer, vm)).toEqual(frozen.hourlyPrices)
  return { ...launch, spec: frozen }
}

/** Returns the limits that the bill of a VM breaks if the VM lives for as long as it can, at its highest price. */
function limitsBroken({ spec, capUsd }: Asked, { spec: launch }: Launch, prices: PublicPrices): string[] {
  const { offer, lifetimeSeconds, budgetSeconds = Number.POSITIVE_INFINITY } = launch
  const end = BOOT_SECONDS + Math.min(lifetimeSeconds + POWER_OFF_SECONDS, budgetSeconds + END_SECONDS)
  const vm: BilledVm = {
    cloud: offer.cloud as BilledVm["cloud"],
    isSpot: offer.provisioning === "spot",
    begin: 0,
    end,
    isInterrupted: false,
    machinePrices: [{ from: 0, hourly: prices.machine + prices.credits }],
    diskHourly: prices.disk,
    addressHourly: prices.address,
  }
  const usd = [...billOf(vm).values()].reduce((sum, month) => sum + month, 0)
  // Prices an hour are rounded to a millionth, too.
  const allowed = (limit = Number.POSITIVE_INFINITY) => limit + ROUNDING_USD + (end / 3600) * 2e-6
  const { maxCostUsd, maxHourlyPriceUsd = Number.POSITIVE_INFINITY } = spec
  const hasCeiling = !["gcp", "nebius"].includes(offer.cloud) || offer.provisioning === "onDemand"
  const isPriced = prices.isDiskKnown && offer.provisioning === "onDemand"
  const shownUsd = launch.hourlyPrices === undefined ? 0 : sumOfParts(launch.hourlyPrices)
  if (!Number.isFinite(usd)) return ["the prices are not known"]
  return [
    usd > allowed(maxCostUsd) && `maxCostUsd ${maxCostUsd}: ${usd}`,
    usd > allowed(capUsd) && `cap ${capUsd}: ${usd}`,
    hasCeiling && prices.machine > maxHourlyPriceUsd + 1e-5 && `maxHourlyPriceUsd ${maxHourlyPriceUsd}`,
    isPriced && hourly(prices) > shownUsd + ROUNDING_USD && `the price ${hourly(prices)}`,
  ].filter((text) => text !== false)
}
