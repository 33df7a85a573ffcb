import fc from "fast-check"
import { describe, expect, test } from "vitest"
import { EVERYTHING, SEED } from "./effort.ts"
import { jobModel, type ModelOptions } from "./model.ts"
import { walk } from "./model-explorer.ts"
import { expectFaultless, expectSearchFaultless } from "./model-suite.ts"
import { suiteTally } from "./suite-tally.ts"

const tally = suiteTally("model", "The model of a job's life: states and steps, not single faults")

/** Searches: all states without a fault, and the nearest ones with faults, as time allows. */
const SEARCHES: { options: ModelOptions; states: number }[] = [
  { options: { faults: 1, ticks: 1, containers: "end" }, states: EVERYTHING ? 2_000_000 : 20_000 },
  { options: { faults: 2, ticks: 2, containers: "hang" }, states: EVERYTHING ? 2_000_000 : 20_000 },
  // A container that fails, and a new VM: without a fault, and with one.
  ...[0, 1].map((faults) => ({
    options: { faults, ticks: 1, containers: "failFirst" as const, people: false, retries: 1 },
    states: EVERYTHING ? 2_000_000 : 6000,
  })),
]

/** Number of walks of up to 400 steps. They reach states that are too deep for a search. */
const WALKS = EVERYTHING ? 20_000 : 60

describe("a job's life in any order of steps", () => {
  test.each(SEARCHES)(
    "visits the nearest $states states with $options.faults faults and finds no violation",
    ({ options, states }) => expectSearchFaultless(jobModel(options), { states, faults: options.faults }, tally),
    3_600_000,
  )

  test(`finds no violation on ${WALKS} long paths`, () => {
    const way = fc.record({
      faults: fc.nat(4),
      people: fc.boolean(),
      retries: fc.nat(2),
      containers: fc.constantFrom("end", "failFirst", "hang"),
      choices: fc.array(fc.nat(999), { minLength: 60, maxLength: 400, size: "max" }),
    })
    const tried = fc.check(
      fc.property(way, ({ choices, ...options }) => {
        const found = walk(jobModel({ ...options, ticks: 4 }), choices)
        tally.count({ faults: `up to 4 faults, long ways` }, [], found.states)
        expectFaultless(found)
      }),
      { seed: SEED, numRuns: WALKS },
    )
    expect(tried.failed && fc.defaultReportMessage(tried)).toBe(false)
  }, 3_600_000)
})
