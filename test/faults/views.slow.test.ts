import fc from "fast-check"
import { describe, expect, test } from "vitest"
import { inParallel } from "../../src/core/apis/in-parallel.ts"
import { isTerminal } from "../../src/core/apis/job.ts"
import { isOver } from "../../src/core/apis/launch.ts"
import { ifFound, KubeError } from "../../src/core/kube/errors.ts"
import { LAUNCHES } from "../../src/core/resources.ts"
import { type ControllerHarness, controllerHarnesses, type OperatorClients } from "../harness/controllers.ts"
import { eventually } from "../harness/eventually.ts"
import { EVERYTHING, SEED } from "./effort.ts"
import { suiteTally } from "./suite-tally.ts"
import type { Violation } from "./tally.ts"
import { type DelayCounts, withDelayedWatches } from "./views.ts"

const newHarness = controllerHarnesses()
const tally = suiteTally("views", "Late, merged and time-travelled views, and people who change their minds")

const RACES = EVERYTHING ? 400 : 16
/** Number of parallel controllerHarnesses. */
const WIDTH = 4

/** User actions after a number of rounds of the agents. */
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

/** Returns Park and Miller's generator: one seed determines a whole race. */
function drawnBy(seed: number): () => number {
  let state = seed
  return () => {
    state = (state * 48_271) % 2_147_483_647
    return state / 2_147_483_647
  }
}

/** Runs one race to its end and returns its violations. */
async function runRace({ seed, cancelAfter, deleteAfter, ...delays }: Race, counts: DelayCounts): Promise<Violation[]> {
  const harness = await newHarness()
  const client = withDelayedWatches(harness.client, { ...delays, random: drawnBy(seed) }, counts)
  harness.operator({ clients: { client, clouds: harness.cloud, fence: () => undefined } })
  await harness.submit("job")
  let round = 0
  let most = 0
  let isCancelled = false
  const settled = eventually(async () => {
    const job = await ifFound(harness.job("job"))
    if (round === cancelAfter && job !== undefined && !isTerminal(job.status?.phase)) {
      await ifFound(harness.cancel("job"))
      isCancelled = true
    }
    if (round === deleteAfter) await ifFound(harness.delete("job"))
    round++
    await harness.agentsStep()
    most = Math.max(most, harness.cloud.alive.length)
    const isDone = job === undefined || job.status?.cost?.actualUsd !== undefined || job.status?.launches === undefined
    expect(round).toBeGreaterThan(6)
    expect(job === undefined || isTerminal(job.status?.phase)).toBe(true)
    expect(isDone && (await harness.launches()).every(isOver)).toBe(true)
  }, 300)
  const isStuck = await settled.then(
    () => false,
    () => true,
  )
  const job = await ifFound(harness.job("job"))
  const isMistaken = isCancelled && job !== undefined && job.status?.phase === "failed"
  const violations: (Violation | false)[] = [
    isStuck && "stuck",
    most > 1 && "duplicates",
    harness.cloud.alive.length > 0 && "leaks",
    (isMistaken || harness.cloud.breaches.length > 0) && "lost",
  ]
  await harness.close()
  return violations.filter((violation) => violation !== false)
}

describe("a job that is created, cancelled and deleted while the operator's caches are stale", () => {
  test(`finishes ${RACES} races with at most one VM at a time`, async () => {
    const races = fc.sample(race, { seed: SEED, numRuns: RACES })
    const counts: DelayCounts = { events: 0, merged: 0, travelled: 0 }
    const harmed: unknown[] = []
    const runs = races.map((each) => async () => {
      const violations = await runRace(each, counts)
      tally.count({ faults: "late, merged and repeated events; cancel and delete" }, violations)
      if (violations.length > 0) harmed.push({ ...each, violations })
    })
    await inParallel(runs, WIDTH, (task) => task())
    expect(harmed, `seed ${SEED}`).toEqual([])
    expect(counts.merged, JSON.stringify(counts)).toBeGreaterThan(0)
    expect(counts.travelled, JSON.stringify(counts)).toBeGreaterThan(0)
  }, 3_600_000)
})

describe("a rejection whose status write seemed to fail, while the cache is stale", () => {
  test("creates no VM for a terminated Launch after a lost answer to its status write", async () => {
    const harness = await newHarness()
    harness.cloud.faults.push({ fault: "capacity" })
    const late = withDelayedWatches(
      harness.client,
      { random: () => 1, delayMs: 1500, merges: true, travels: 0 },
      { events: 0, merged: 0, travelled: 0 },
    )
    harness.operator({ clients: { client: losingRefusal(late), clouds: harness.cloud, fence: () => undefined } })
    await harness.submit("job")
    await eventually(async () => {
      await harness.agentsStep()
      expect((await harness.job("job")).status?.phase).toBe("succeeded")
    }, 150)
    const [refused] = await harness.launches()
    expect(refused?.status?.phase).toBe("refused")
    tally.count({ faults: "a refusal's answer is lost" }, harness.cloud.vms.length > 1 ? ["leaks"] : [])
    expect(harness.cloud.vms.map(({ vm }) => vm.launch)).not.toContain(refused?.metadata.name)
    await harness.close()
  })
})

/** Loses the answer to the first status write of a rejection. */
function losingRefusal(client: OperatorClients["client"]): OperatorClients["client"] {
  let isLost = false
  const patchStatus: ControllerHarness["client"]["patchStatus"] = async (resource, ref, patch, options) => {
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
