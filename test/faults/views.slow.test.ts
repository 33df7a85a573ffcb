import fc from "fast-check"
import { afterAll, describe, expect, test } from "vitest"
import { isTerminal } from "../../src/apis/job.ts"
import { isOver } from "../../src/apis/launch.ts"
import { ifFound, KubeError } from "../../src/kube/errors.ts"
import { eventually } from "../cloud/eventually.ts"
import { LAUNCHES, type Membrane, type Stage, stages } from "../controllers/harness.ts"
import { inParallel } from "../in-parallel.ts"
import { EVERYTHING, SEED } from "./effort.ts"
import { type Harm, Tally } from "./tally.ts"
import { type BlurCounts, blurred } from "./views.ts"

const newStage = stages()
const tally = new Tally("views", "Late, merged and time-travelled views, and people who change their minds")
afterAll(() => tally.close())

const RACES = EVERYTHING ? 400 : 16
/** Stages at a time. */
const WIDTH = 4

/** What somebody does after so many rounds of the agents. */
interface Race {
  seed: number
  delayMs: number
  merges: boolean
  travels: number
  cancelAfter: number | undefined
  deleteAfter: number | undefined
}

const race: fc.Arbitrary<Race> = fc.record({
  seed: fc.integer({ min: 1, max: 2 ** 31 - 1 }),
  delayMs: fc.constantFrom(20, 150, 400),
  merges: fc.boolean(),
  travels: fc.constantFrom(0, 0.1, 0.3),
  cancelAfter: fc.option(fc.nat(5), { nil: undefined }),
  deleteAfter: fc.option(fc.nat(6), { nil: undefined }),
})

/** Park and Miller's generator: a whole race is drawn by one seed. */
function drawnBy(seed: number): () => number {
  let state = seed
  return () => {
    state = (state * 48_271) % 2_147_483_647
    return state / 2_147_483_647
  }
}

/** Plays one race to its end and returns what harm was done. */
async function play({ seed, cancelAfter, deleteAfter, ...blur }: Race, counts: BlurCounts): Promise<Harm[]> {
  const stage = await newStage()
  const client = blurred(stage.client, { ...blur, random: drawnBy(seed) }, counts)
  stage.operator({ membrane: { client, clouds: stage.cloud, fence: () => undefined } })
  await stage.submit("job")
  let round = 0
  let most = 0
  let isCancelled = false
  const settled = eventually(async () => {
    const job = await ifFound(stage.job("job"))
    if (round === cancelAfter && job !== undefined && !isTerminal(job.status?.phase)) {
      await ifFound(stage.cancel("job"))
      isCancelled = true
    }
    if (round === deleteAfter) await ifFound(stage.delete("job"))
    round++
    await stage.agentsStep()
    most = Math.max(most, stage.cloud.alive.length)
    const isDone = job === undefined || job.status?.cost?.actualUsd !== undefined || job.status?.launches === undefined
    expect(round).toBeGreaterThan(6)
    expect(job === undefined || isTerminal(job.status?.phase)).toBe(true)
    expect(isDone && (await stage.launches()).every(isOver)).toBe(true)
  }, 300)
  const isStuck = await settled.then(
    () => false,
    () => true,
  )
  const job = await ifFound(stage.job("job"))
  const isMistaken = isCancelled && job !== undefined && job.status?.phase === "failed"
  const harms: (Harm | false)[] = [
    isStuck && "stuck",
    most > 1 && "duplicates",
    stage.cloud.alive.length > 0 && "leaks",
    (isMistaken || stage.cloud.breaches.length > 0) && "lost",
  ]
  await stage.close()
  return harms.filter((harm) => harm !== false)
}

describe("a job that is created, cancelled and deleted while the operator sees it late", () => {
  test(`${RACES} races come to an end, by one VM at a time`, async () => {
    const races = fc.sample(race, { seed: SEED, numRuns: RACES })
    const counts: BlurCounts = { events: 0, merged: 0, travelled: 0 }
    const harmed: unknown[] = []
    const plays = races.map((each) => async () => {
      const harms = await play(each, counts)
      tally.count({ faults: "late, merged and repeated events; cancel and delete" }, harms)
      if (harms.length > 0) harmed.push({ ...each, harms })
    })
    await inParallel(plays, WIDTH)
    expect(harmed, `seed ${SEED}`).toEqual([])
    expect(counts.merged, JSON.stringify(counts)).toBeGreaterThan(0)
    expect(counts.travelled, JSON.stringify(counts)).toBeGreaterThan(0)
  }, 3_600_000)
})

describe("a refusal whose write seemed to fail, while the cache is late", () => {
  test("is not asked for again: no VM is made for a Launch that is over", async () => {
    const stage = await newStage()
    stage.cloud.faults.push({ fault: "capacity" })
    const late = blurred(
      stage.client,
      { random: () => 1, delayMs: 1500, merges: true, travels: 0 },
      { events: 0, merged: 0, travelled: 0 },
    )
    stage.operator({ membrane: { client: losingRefusal(late), clouds: stage.cloud, fence: () => undefined } })
    await stage.submit("job")
    await eventually(async () => {
      await stage.agentsStep()
      expect((await stage.job("job")).status?.phase).toBe("succeeded")
    }, 150)
    const [refused] = await stage.launches()
    expect(refused?.status?.phase).toBe("refused")
    tally.count({ faults: "a refusal's answer is lost" }, stage.cloud.vms.length > 1 ? ["leaks"] : [])
    expect(stage.cloud.vms.map(({ vm }) => vm.launch)).not.toContain(refused?.metadata.name)
    await stage.close()
  })
})

/** Loses the answer to the first write of a refusal. */
function losingRefusal(client: Membrane["client"]): Membrane["client"] {
  let isLost = false
  const patchStatus: Stage["client"]["patchStatus"] = async (resource, ref, patch, options) => {
    const written = await client.patchStatus(resource, ref, patch, options)
    const isRefusal = resource.plural === LAUNCHES.plural && JSON.stringify(patch).includes('"phase":"refused"')
    if (isLost || !isRefusal) return written
    isLost = true
    throw new KubeError({ code: 0, reason: "NetworkError", message: "the connection broke", outcomeUnknown: true })
  }
  return new Proxy(client, {
    get: (target, property) => {
      if (property === "patchStatus") return patchStatus
      const value: unknown = Reflect.get(target, property)
      return typeof value === "function" ? value.bind(target) : value
    },
  })
}
