import { afterAll, beforeAll, describe, expect, test } from "vitest"
import { installBase } from "../../dev/base.ts"
import { inParallel } from "../../src/core/apis/in-parallel.ts"
import { KubeClient } from "../../src/core/kube/client.ts"
import { kubeConfig } from "../control-plane.ts"
import { Ec2Clouds, type OpenCloudFixture, openGoogle, openLocal, openMicrosoft, openSim } from "./crash-clouds.ts"
import { type Fault, nameOf, type Point } from "./crash-gate.ts"
import {
  type BaselineRun,
  type InjectedFault,
  inject,
  runBaseline,
  type Scenario,
  type ScenarioRun,
} from "./crash-run.ts"
import { classOf, deathsAt, faultsOf, isBeginning, isTakeover, isUnderWay, pausesAt, sampleOf } from "./crash-sample.ts"
import { JOB_SCENARIOS, MONTH_END, OTHER_SCENARIOS, QUICK_LIFE } from "./crash-scenarios.ts"
import { TAKEOVER, TAKEOVER_SCENARIOS } from "./crash-takeover.ts"
import { EVERYTHING, ONLY, SEED, SLICE, SLICE_MINUTES } from "./effort.ts"
import { Tally } from "./tally.ts"

const client = new KubeClient(kubeConfig())

beforeAll(() => installBase(client, AbortSignal.timeout(60_000)))
afterAll(() => client.close())

/** Faults of a scenario, and the size of the sample for the slow tier. */
interface Faults {
  at: (point: Point) => Fault[]
  sampled: Readonly<Record<string, number>>
  /** Sample size for scenarios that `sampled` doesn't name. With 0, only the long run tries them. */
  most: number
}

const DEATHS: Faults = { at: deathsAt, sampled: { success: 4, cancel: 2, delete: 2, "new VM": 3 }, most: 1 }
const PAUSES: Faults = {
  at: pausesAt,
  sampled: { success: 2, cancel: 1, failover: 1, array: 1, [MONTH_END]: 1, [TAKEOVER]: 1 },
  most: 0,
}

/** Returns true for a write by which a cost comes into a Statement. All of them are tried at the end of a month. */
function isOfStatements({ point }: InjectedFault): boolean {
  return / Statement$|^patch Launch$/.test(point.call) && point.effect === "write"
}

/** Returns true for a fault after which a VM exists whose creation no Launch has recorded. */
function isOfCreation({ point }: InjectedFault): boolean {
  return point.call === "cloud launch" || point.call === "patchStatus Launch"
}

/** Faults of which a scenario tries all, beside the sample. */
const CHIEF: Readonly<Record<string, (injected: InjectedFault) => boolean>> = {
  [MONTH_END]: isOfStatements,
  [QUICK_LIFE]: isOfCreation,
  [TAKEOVER]: isTakeover,
}

/** Injects faults into one scenario, and returns the reports of those that caused a violation. */
async function injectAll(
  scenarioRun: ScenarioRun,
  { baseline, injections, tally }: { baseline: BaselineRun; injections: readonly InjectedFault[]; tally: Tally },
): Promise<string[]> {
  const reports: string[] = []
  if (EVERYTHING) console.log(`${scenarioRun.title}: ${injections.length} faults`)
  const tries = injections
    .filter(({ point, fault }) => ONLY?.test(`${scenarioRun.title}: ${fault} ${nameOf(point)}`) ?? true)
    .map((each) => async () => {
      if (SLICE !== undefined && performance.now() > SLICE_MINUTES * 60_000) return
      tally.tried()
      const { injected, violations, isSwept, report } = await inject(scenarioRun, baseline, each)
      if (!injected) return
      tally.count({ faults: classOf(each), on: scenarioRun.cloud }, violations)
      if (violations.length === 0) return
      // Prints each result at once, because the long run takes hours.
      console.log(report)
      // No fence stops a request that is already under way. If the cloud then creates a VM again, garbage collection
      // must delete it.
      if (!(isUnderWay(each) && isSwept)) reports.push(report)
    })
  await inParallel(tries, 5, (task) => task())
  return reports
}

function declareScenarios(cloud: string, open: OpenCloudFixture, scenarios: Readonly<Record<string, Scenario>>): void {
  // One tally for each cloud, because the long run takes hours and may run one cloud after the other.
  const tally = new Tally(`crash-${cloud}`, `Crash points: ${cloud}`)
  afterAll(() => tally.close())

  describe.each(Object.entries(scenarios))(`${cloud}: %s`, (name, scenario) => {
    const scenarioRun = { title: `${cloud}, ${name}`, cloud, scenario, client, open }
    let baseline: BaselineRun
    beforeAll(async () => {
      baseline = await runBaseline(scenarioRun)
    }, 900_000)

    const kinds: [string, Faults][] = [
      ["dies or hears no answer", DEATHS],
      ["stands still while another leads", PAUSES],
    ]
    test.each(kinds.filter(([, { sampled, most }]) => EVERYTHING || (sampled[name] ?? most) > 0))(
      "the operator %s at a call: each scenario ends as without the fault",
      async (_, { at, sampled, most }) => {
        // Calls of every operator's start are tried in one scenario of each cloud.
        const points = baseline.points.filter(({ call }) => name === "success" || !isBeginning(call))
        const all = points.flatMap((point) => at(point).map((fault): InjectedFault => ({ point, fault })))
        const sample = sampleOf(all, sampled[name] ?? most, `${SEED} ${scenarioRun.title}`)
        const chief = CHIEF[name]
        const counting = chief === undefined ? [] : all.filter(chief)
        const part = SLICE === undefined ? all : faultsOf(SLICE, all, `${SEED} ${scenarioRun.title}`)
        const chosen = EVERYTHING ? part : [...new Set([...sample, ...counting])]
        tally.addPoints(all.length)
        expect(await injectAll(scenarioRun, { baseline, injections: chosen, tally })).toEqual([])
      },
      EVERYTHING ? 3_600_000 : 1_800_000,
    )
  })
}

/** Scenarios that run on each cloud. */
const ON_CLOUDS = { ...JOB_SCENARIOS, ...TAKEOVER_SCENARIOS }

declareScenarios("sim", openSim, { ...ON_CLOUDS, ...OTHER_SCENARIOS })

const onRealClouds = (): void => {
  const { failover: _, ...localScenarios } = ON_CLOUDS
  declareScenarios("local", openLocal, localScenarios)
  declareScenarios("gcp", openGoogle, ON_CLOUDS)
  declareScenarios("azure", openMicrosoft, ON_CLOUDS)

  describe("EC2", () => {
    let ec2: Ec2Clouds
    beforeAll(async () => {
      ec2 = await Ec2Clouds.start()
    })
    afterAll(() => ec2.close())
    declareScenarios("aws", (clock) => ec2.open(clock), ON_CLOUDS)
  })
}
if (EVERYTHING) describe("crash points on Compute Engine, Azure and the local cloud", onRealClouds)
