import { afterAll, beforeAll, describe, test } from "vitest"
import { installBase } from "../../dev/base.ts"
import { inParallel } from "../../src/core/apis/in-parallel.ts"
import { KubeClient } from "../../src/core/kube/client.ts"
import { kubeConfig } from "../control-plane.ts"
import { isNightly } from "../nightly.ts"
import {
  Ec2Clouds,
  type OpenCloudFixture,
  openGoogle,
  openLocal,
  openMicrosoft,
  openNebiusCloud,
  openSim,
} from "./crash-clouds.ts"
import { type Fault, nameOf, type Point } from "./crash-gate.ts"
import { IN_TURN, LOST, OWN_SCENARIOS, openOwn, REMOVED } from "./crash-own.ts"
import {
  type BaselineRun,
  type InjectedFault,
  inject,
  runBaseline,
  type Scenario,
  type ScenarioRun,
} from "./crash-run.ts"
import {
  classOf,
  deathsAt,
  faultsOf,
  firstOfKind,
  isBeginning,
  isTakeover,
  isUnderWay,
  pausesAt,
  sampleOf,
} from "./crash-sample.ts"
import { JOB_SCENARIOS, MONTH_END, OTHER_SCENARIOS, QUICK_LIFE } from "./crash-scenarios.ts"
import { TAKEOVER, TAKEOVER_SCENARIOS } from "./crash-takeover.ts"
import { EVERYTHING, ONLY, SEED, SLICE, SLICE_MINUTES } from "./effort.ts"
import { suiteTally } from "./suite-tally.ts"
import type { Tally } from "./tally.ts"

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

/** Kinds of faults, by what the operator does. */
type Kinds = Readonly<Record<string, Faults>>

const DIES = "dies or hears no answer"
const PAUSES = "stands still while another leads"

/**
 * Sample sizes of deaths. The suites in test/controllers/ let an operator die at each write of a success, a cancellation, a
 * deletion and new VMs. So the slow tier has few of those, and the nightly tier has more.
 */
const DEATHS = isNightly ? { success: 4, cancel: 2, delete: 2, "new VM": 3 } : { success: 2 }

const KINDS: Kinds = {
  [DIES]: { at: deathsAt, sampled: DEATHS, most: 1 },
  [PAUSES]: {
    at: pausesAt,
    sampled: { success: 2, cancel: 1, failover: 1, array: 1, [MONTH_END]: 1, [TAKEOVER]: 1 },
    most: 0,
  },
}

/** The operator acts on own machines by few writes. The sample tries the scenarios that no other cloud has. */
const KINDS_OF_OWN: Kinds = {
  [DIES]: { at: deathsAt, sampled: { success: 2, [LOST]: 1, [REMOVED]: 1, [IN_TURN]: 1 }, most: 0 },
  [PAUSES]: { at: pausesAt, sampled: { success: 1 }, most: 0 },
}

/** Returns true for a write by which a cost comes into a Statement. Each kind of them is tried at the end of a month. */
function isOfStatements({ point }: InjectedFault): boolean {
  return / Statement$|^patch Launch$/.test(point.call) && point.effect === "write"
}

/** Returns true for a fault after which a VM exists whose creation no Launch has recorded. */
function isOfCreation({ point }: InjectedFault): boolean {
  return point.call === "cloud launch" || point.call === "patchStatus Launch"
}

/**
 * Faults that a scenario tries beside the sample: the first of each call and fault, in the nightly tier all. An operator
 * that dies before a call leaves the same objects as one that died after its last write, so only the long run tries both.
 */
const CHIEF: Readonly<Record<string, (injected: InjectedFault) => boolean>> = {
  [MONTH_END]: isOfStatements,
  [QUICK_LIFE]: isOfCreation,
  [TAKEOVER]: isTakeover,
}

/**
 * Runs at the same time. The sample has few faults of each scenario, so its scenarios run side by side. In the long run,
 * the faults of one scenario do.
 */
const SCENARIOS_AT_ONCE = { concurrent: !EVERYTHING }
const FAULTS_AT_ONCE = EVERYTHING ? 5 : 1

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
      // must delete it. A write of a machine's status has a version, so a late one changes nothing.
      const isLate = isUnderWay(each) && scenarioRun.cloud !== "own"
      if (!(isLate && isSwept)) reports.push(report)
    })
  await inParallel(tries, FAULTS_AT_ONCE, (task) => task())
  return reports
}

interface Declared {
  /** Name and title of the tally. */
  suite: [name: string, title: string]
  cloud: string
  open: OpenCloudFixture
  scenarios: Readonly<Record<string, Scenario>>
  /** Default: KINDS. */
  kinds?: Kinds
}

function declareScenarios({ suite: [suite, title], cloud, open, scenarios, kinds = KINDS }: Declared): void {
  describe(title, SCENARIOS_AT_ONCE, () => {
    const tally = suiteTally(suite, title)
    for (const [name, scenario] of Object.entries(scenarios)) {
      const scenarioRun = { title: `${cloud}, ${name}`, cloud, scenario, client, open }
      const tried = Object.entries(kinds).filter(([, { sampled, most }]) => EVERYTHING || (sampled[name] ?? most) > 0)
      if (tried.length === 0) continue
      describe(`${cloud}: ${name}`, SCENARIOS_AT_ONCE, () => declareFaults(name, scenarioRun, { tried, tally }))
    }
  })
}

function declareFaults(
  name: string,
  scenarioRun: ScenarioRun,
  { tried, tally }: { tried: readonly [string, Faults][]; tally: Tally },
): void {
  let baselineRun: Promise<BaselineRun> | undefined
  test.for(tried)(
    "the operator %s at a call: each scenario ends as without the fault",
    { timeout: 3_600_000 },
    async ([_, { at, sampled, most }], { expect }) => {
      baselineRun ??= runBaseline(scenarioRun)
      const baseline = await baselineRun
      // Calls of every operator's start are tried in one scenario of each cloud.
      const points = baseline.points.filter(({ call }) => name === "success" || !isBeginning(call))
      const all = points.flatMap((point) => at(point).map((fault): InjectedFault => ({ point, fault })))
      const sample = sampleOf(all, sampled[name] ?? most, `${SEED} ${scenarioRun.title}`)
      const chief = CHIEF[name]
      const chiefs = chief === undefined ? [] : all.filter((each) => each.fault !== "before" && chief(each))
      const counting = isNightly ? chiefs : firstOfKind(chiefs)
      const part = SLICE === undefined ? all : faultsOf(SLICE, all, `${SEED} ${scenarioRun.title}`)
      const chosen = EVERYTHING ? part : [...new Set([...sample, ...counting])]
      tally.addPoints(all.length)
      expect(await injectAll(scenarioRun, { baseline, injections: chosen, tally })).toEqual([])
    },
  )
}

/**
 * Declares the scenarios of a cloud. Each cloud has a tally of its own, because the long run takes hours and may run one
 * cloud after the other. Its takeovers have another one.
 */
function declareCloud(cloud: string, open: OpenCloudFixture, scenarios: Readonly<Record<string, Scenario>>): void {
  declareScenarios({ suite: [`crash-${cloud}`, `Crash points: ${cloud}`], cloud, open, scenarios })
  const takeovers: [string, string] = [`crash-takeover-${cloud}`, `Crash points of takeovers: ${cloud}`]
  declareScenarios({ suite: takeovers, cloud, open, scenarios: TAKEOVER_SCENARIOS })
}

declareCloud("sim", openSim, { ...JOB_SCENARIOS, ...OTHER_SCENARIOS })
const own: [string, string] = ["crash-own", "Crash points: own machines"]
declareScenarios({ suite: own, cloud: "own", open: openOwn, scenarios: OWN_SCENARIOS, kinds: KINDS_OF_OWN })

const onRealClouds = (): void => {
  const { failover: _, ...localScenarios } = JOB_SCENARIOS
  declareCloud("local", openLocal, localScenarios)
  declareCloud("gcp", openGoogle, JOB_SCENARIOS)
  declareCloud("azure", openMicrosoft, JOB_SCENARIOS)
  declareCloud("nebius", openNebiusCloud, JOB_SCENARIOS)

  describe("EC2", () => {
    let ec2: Ec2Clouds
    beforeAll(async () => {
      ec2 = await Ec2Clouds.start()
    })
    afterAll(() => ec2.close())
    declareCloud("aws", (...installed) => ec2.open(...installed), JOB_SCENARIOS)
  })
}
if (EVERYTHING) describe("crash points on Compute Engine, Azure, Nebius and the local cloud", onRealClouds)
