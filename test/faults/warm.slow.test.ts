import fc from "fast-check"
import { describe, expect, test } from "vitest"
import { EVERYTHING, SEED } from "./effort.ts"
import { walk } from "./model-explorer.ts"
import { expectFaultless, expectSearchFaultless } from "./model-suite.ts"
import { suiteTally } from "./suite-tally.ts"
import { type WarmOptions, warmModel } from "./warm.ts"

const tally = suiteTally(
  "warm",
  "The model of VMs that jobs take over from each other: states and steps, not single faults",
)

/** Searches of the nearest states: around a takeover, and from the submission of jobs. */
const SEARCHES: { options: WarmOptions; states: number }[] = [
  { options: { from: "idleVm", jobs: 2, faults: 1, ticks: 2 }, states: 4000 },
  { options: { from: "idleVm", jobs: 2, faults: 2, ticks: 3, people: false }, states: 3000 },
  { options: { from: "request", jobs: 1, faults: 2, ticks: 2 }, states: 4000 },
  { options: { from: "handover", jobs: 1, faults: 2, ticks: 2 }, states: 5000 },
  { options: { from: "secondIdleVm", jobs: 1, faults: 2, ticks: 2 }, states: 3000 },
  { options: { from: "nothing", jobs: 2, faults: 1, ticks: 2 }, states: 3000 },
].map((search) => (EVERYTHING ? { ...search, states: 200_000 } : search) as { options: WarmOptions; states: number })

/** Number of walks of up to 250 steps. They reach states that are too deep for a search. */
const WALKS = EVERYTHING ? 5000 : 100

describe("VMs that jobs take over, in any order of steps", () => {
  test.each(SEARCHES)(
    "visits the nearest $states states from $options.from with $options.faults faults and finds no violation",
    ({ options, states }) => expectSearchFaultless(warmModel(options), { states, faults: options.faults }, tally),
    3_600_000,
  )

  test(`finds no violation on ${WALKS} long paths`, () => {
    const way = fc.record({
      jobs: fc.integer({ min: 1, max: 3 }),
      faults: fc.nat(4),
      people: fc.boolean(),
      from: fc.constantFrom("nothing", "idleVm", "request", "handover", "secondIdleVm"),
      // The first steps are those of programs: without them, most paths would end before a takeover.
      choices: fc.array(fc.oneof({ weight: 3, arbitrary: fc.nat(3) }, { weight: 1, arbitrary: fc.nat(999) }), {
        minLength: 60,
        maxLength: 250,
        size: "max",
      }),
    })
    const tried = fc.check(
      fc.property(way, ({ choices, ...options }) => {
        const found = walk(warmModel({ ...options, ticks: 8 }), choices)
        tally.count({ faults: "up to 4 faults, long ways" }, [], found.states)
        expectFaultless(found)
      }),
      { seed: SEED, numRuns: WALKS },
    )
    expect(tried.failed && fc.defaultReportMessage(tried)).toBe(false)
  }, 3_600_000)
})
