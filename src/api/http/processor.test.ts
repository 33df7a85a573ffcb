import { beforeEach, expect, onTestFinished, test, vi } from "vitest"
import type { Flow } from "../../core/kube/flow.ts"
import { Processor } from "./processor.ts"

const of = (person: string): Flow => ({ kind: "requests", path: [person, "project", "key"] })

let now = 0
let log: string[] = []
beforeEach(() => {
  now = 0
  log = []
  vi.useFakeTimers({ toFake: ["setTimeout"] })
  onTestFinished(() => void vi.useRealTimers())
})

const processor = () => new Processor(() => now)

/** Does a piece of work of a person, which takes some milliseconds. */
async function work(turns: Processor, person: string, ms: number): Promise<void> {
  await turns.next(of(person))
  // The work may have several steps without waiting for anything else.
  await Promise.resolve()
  now += ms
  log.push(person)
}

/** Lets the event loop go round some times. */
async function rounds(count: number): Promise<void> {
  for (let round = 0; round < count; round++) await new Promise(setImmediate)
}

test("one piece of work is done in a round of the event loop, and persons take turns", async () => {
  const turns = processor()
  for (const person of ["eve", "eve", "eve", "ada"]) void work(turns, person, 0.5)
  await rounds(1)
  const first = log.length
  expect(first).toBeLessThanOrEqual(2)
  await rounds(4)
  expect(log).toEqual(["eve", "ada", "eve", "eve"])
})

test("a person waits after long work as long as it took, and others don't", async () => {
  const turns = processor()
  void work(turns, "eve", 20)
  for (const person of ["eve", "ada", "bob"]) void work(turns, person, 0.5)
  await rounds(9)
  expect(log).toEqual(["eve", "ada", "bob"])
  vi.advanceTimersByTime(19)
  await rounds(3)
  expect(log).toEqual(["eve", "ada", "bob"])
  vi.advanceTimersByTime(1)
  await rounds(3)
  expect(log).toEqual(["eve", "ada", "bob", "eve"])
})

test("a pause ends also for a person whose requests came during it", async () => {
  const turns = processor()
  void work(turns, "eve", 20)
  await rounds(2)
  void work(turns, "eve", 0.5)
  await rounds(3)
  expect(log).toEqual(["eve"])
  vi.advanceTimersByTime(20)
  await rounds(2)
  expect(log).toEqual(["eve", "eve"])
})
