import {
  type Amounts,
  compareWaiters,
  type LineRoom,
  placeBehind,
  turns,
  type Waiter,
} from "../src/market/placement/line.ts"
import { randomFrom } from "../test/random.ts"
import { type BenchContext, type BenchResult, spreadOf, within } from "./result.ts"

const WAITING = 10_000
const ROUNDS = 5
const DECISIONS = 200

/** Goal of the project. */
const DECISION_MS = 1

const NOW = new Date("2026-12-01T12:00:00Z")
const TERMS = { now: NOW, passSeconds: 600 }

/**
 * Measures the longest decision of a line: no job fits, none is due, and something is left, so that all of them are looked
 * at.
 */
export async function run({ report }: BenchContext): Promise<BenchResult> {
  const random = randomFrom(1)
  const line = Array.from({ length: WAITING }, (_, index) => waiter(index, random)).sort(compareWaiters)
  const room: LineRoom = {
    pools: [
      {
        ...{ level: "project", concerns: () => true },
        left: { hourlyUsd: 0.5, expectedUsd: 100 },
        whole: { hourlyUsd: 100, expectedUsd: 100 },
      },
    ],
    liveIn: () => 0,
  }
  const rounds = Array.from({ length: ROUNDS }, (_, round) => {
    const place = millisecondsFor(() => placeBehind(line, room, TERMS))
    const next = millisecondsFor(() => turns(line, room, TERMS))
    report(`round ${round + 1} of ${ROUNDS}: place ${place.toFixed(3)} ms, turns ${next.toFixed(3)} ms`)
    return { place, next }
  })
  const of = (name: keyof (typeof rounds)[number]) => rounds.map((round) => round[name])
  return {
    name: "line",
    rows: [
      within(`place of the last of ${WAITING} jobs; ms`, of("place"), DECISION_MS),
      within(`jobs of ${WAITING} whose turn it is; ms`, of("next"), DECISION_MS),
    ],
    spread: { place: spreadOf(of("place")), turns: spreadOf(of("next")) },
  }
}

function waiter(index: number, random: () => number): Waiter {
  const needs: Amounts = { vms: 1, gpus: 0, hourlyUsd: 1 + random(), expectedUsd: 1, mostUsd: 1 }
  const createdAt = new Date(NOW.getTime() - index * 10).toISOString()
  const priority = Math.floor(random() * 3)
  return {
    ...{ key: `team/job-${index}`, uid: String(index), priority, createdAt, needs },
    waitsSince: NOW.getTime() - index * 10,
    group: undefined,
  }
}

/** Returns the median of many decisions, milliseconds. */
function millisecondsFor(decide: () => unknown): number {
  const times = Array.from({ length: DECISIONS }, () => {
    const begin = performance.now()
    decide()
    return performance.now() - begin
  })
  return times.sort((a, b) => a - b)[DECISIONS / 2] ?? Number.NaN
}
