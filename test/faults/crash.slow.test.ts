import { afterAll, beforeAll, describe, expect, test } from "vitest"
import { installBase } from "../../dev/base.ts"
import { KubeClient } from "../../src/kube/client.ts"
import { kubeConfig } from "../control-plane.ts"
import { inParallel } from "../in-parallel.ts"
import { Ec2Stage, type OpenTheatre, openGoogle, openLocal, openMicrosoft, openSim } from "./crash-clouds.ts"
import { type Fault, nameOf, type Point } from "./crash-gate.ts"
import { type Play, type Rehearsal, rehearse, type Scenario, type Strike, strike } from "./crash-play.ts"
import { classOf, deathsAt, isBeginning, isUnderWay, pausesAt, sampleOf } from "./crash-sample.ts"
import { JOB_STORIES, OTHER_STORIES } from "./crash-scenarios.ts"
import { EVERYTHING, ONLY, SEED } from "./effort.ts"
import { Tally } from "./tally.ts"

const client = new KubeClient(kubeConfig())

beforeAll(() => installBase(client, AbortSignal.timeout(60_000)))
afterAll(() => client.close())

/** What may happen at a point, and how many such faults of a story `npm test` tries. */
interface Faults {
  at: (point: Point) => Fault[]
  sampled: Readonly<Record<string, number>>
  /** Of a story that `sampled` doesn't name. */
  most: number
}

const DEATHS: Faults = { at: deathsAt, sampled: { success: 8, cancel: 3, delete: 3, "cron tick": 3 }, most: 2 }
const PAUSES: Faults = { at: pausesAt, sampled: { success: 3 }, most: 1 }

/** Tries faults of one story, and tells of those that did harm. */
async function playAll(
  play: Play,
  { rehearsal, strikes, tally }: { rehearsal: Rehearsal; strikes: readonly Strike[]; tally: Tally },
): Promise<string[]> {
  const reports: string[] = []
  if (EVERYTHING) console.log(`${play.title}: ${strikes.length} faults`)
  const tries = strikes
    .filter(({ point, fault }) => ONLY?.test(`${play.title}: ${fault} ${nameOf(point)}`) ?? true)
    .map((each) => async () => {
      const { struck, harms, isSwept, report } = await strike(play, rehearsal, each)
      if (!struck) return
      tally.count({ faults: classOf(each), on: play.cloud }, harms)
      if (harms.length === 0) return
      // At once, as the long run is long.
      console.log(report)
      // No fence reaches a request that is under way; where the cloud then makes a VM anew, the sweep is what ends it.
      if (!(isUnderWay(each) && isSwept)) reports.push(report)
    })
  await inParallel(tries, 5)
  return reports
}

function stories(cloud: string, open: OpenTheatre, scenarios: Readonly<Record<string, Scenario>>): void {
  // One for each cloud, as the long run takes hours and may be made of one cloud after the other.
  const tally = new Tally(`crash-${cloud}`, `Crash points: ${cloud}`)
  afterAll(() => tally.close())

  describe.each(Object.entries(scenarios))(`${cloud}: %s`, (story, scenario) => {
    const play = { title: `${cloud}, ${story}`, cloud, scenario, client, open }
    let rehearsal: Rehearsal
    beforeAll(async () => {
      rehearsal = await rehearse(play)
    }, 900_000)

    test.each([
      ["dies or hears no answer", DEATHS],
      ["stands still while another leads", PAUSES],
    ])(
      "the operator %s at a call: the same end as without",
      async (_, { at, sampled, most }) => {
        // What every operator begins with is tried in one story of each cloud.
        const points = rehearsal.points.filter(({ call }) => story === "success" || !isBeginning(call))
        const all = points.flatMap((point) => at(point).map((fault): Strike => ({ point, fault })))
        const chosen = EVERYTHING ? all : sampleOf(all, sampled[story] ?? most, `${SEED} ${play.title}`)
        expect(await playAll(play, { rehearsal, strikes: chosen, tally })).toEqual([])
      },
      EVERYTHING ? 3_600_000 : 1_800_000,
    )
  })
}

stories("sim", openSim, { ...JOB_STORIES, ...OTHER_STORIES })

const onRealClouds = (): void => {
  const { failover: _, ...localStories } = JOB_STORIES
  stories("local", openLocal, localStories)
  stories("gcp", openGoogle, JOB_STORIES)
  stories("azure", openMicrosoft, JOB_STORIES)

  describe("EC2", () => {
    let ec2: Ec2Stage
    beforeAll(async () => {
      ec2 = await Ec2Stage.start()
    })
    afterAll(() => ec2.close())
    stories("aws", (clock) => ec2.open(clock), JOB_STORIES)
  })
}
if (EVERYTHING) describe("on clouds that are further away", onRealClouds)
