import { expect } from "vitest"
import { type Exploration, explore, type Model } from "./model-explorer.ts"
import type { Tally } from "./tally.ts"

export function expectFaultless({ violation }: Exploration): void {
  const { fault, trace } = violation ?? {}
  expect(fault && [fault, ...(trace ?? [])].join("\n"), "the shortest way to it").toBeUndefined()
}

/** Expects no violation in the nearest states of a model, or in all of them if there are fewer. */
export async function expectSearchFaultless<S>(
  model: Model<S>,
  { states, faults }: { states: number; faults: number },
  tally: Tally,
): Promise<void> {
  const found = await explore(model, states, (looked) => console.info(`${looked} of ${states} states looked at`))
  tally.count({ faults: `${faults} faults, nearest states` }, [], found.states)
  expectFaultless(found)
  expect(found.complete || found.states === states).toBe(true)
}
