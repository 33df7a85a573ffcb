import fc from "fast-check"
import { describe, expect, test } from "vitest"
import { ManualClock } from "../../../test/harness/manual-clock.ts"
import { KeyQueue } from "./queue.ts"

/** Returns the key that is available without waiting. */
async function takeNow(queue: KeyQueue): Promise<string | undefined> {
  return queue.length === 0 ? undefined : await queue.next()
}

/** A queue and a model of it, which consists of sets. Each step compares the two. */
class Modelled {
  readonly #clock = new ManualClock()
  /** Shift of the groups: a key's group can change while the key waits. */
  #shift = 0
  readonly #queue = new KeyQueue({
    clock: this.#clock,
    groupOf: (key) => `${(key.charCodeAt(2) + this.#shift) % 3}`,
    isUrgent: (key) => (key.charCodeAt(0) + this.#shift) % 2 === 0,
  })
  readonly #waiting = new Set<string>()
  readonly #processing = new Set<string>()
  readonly #again = new Set<string>()
  readonly #due = new Map<string, number>()

  async do({ act, key, seconds }: Step): Promise<void> {
    await this[act](key, seconds)
    expect(this.#queue.length).toBe(this.#waiting.size)
  }

  add(key: string): void {
    this.#queue.add(key)
    this.#added(key)
  }

  addAfter(key: string, seconds: number): void {
    this.#queue.addAfter(key, seconds)
    const dueAt = this.#clock.monotonic() + seconds
    this.#due.set(key, Math.min(this.#due.get(key) ?? dueAt, dueAt))
  }

  regroup(_: string, seconds: number): void {
    this.#shift = seconds
  }

  pass(_: string, seconds: number): void {
    this.#clock.advance(seconds)
    for (const [key, dueAt] of this.#due) {
      if (dueAt > this.#clock.monotonic()) continue
      this.#due.delete(key)
      this.#added(key)
    }
  }

  async take(): Promise<void> {
    const taken = await takeNow(this.#queue)
    if (taken === undefined) {
      expect(this.#waiting.size).toBe(0)
      return
    }
    expect(this.#waiting.delete(taken)).toBe(true)
    expect(this.#processing.has(taken)).toBe(false)
    this.#processing.add(taken)
  }

  done(key: string): void {
    if (!this.#processing.delete(key)) return
    this.#queue.done(key)
    if (this.#again.delete(key)) this.#waiting.add(key)
  }

  #added(key: string): void {
    if (this.#processing.has(key)) this.#again.add(key)
    else this.#waiting.add(key)
  }
}

interface Step {
  act: "add" | "addAfter" | "regroup" | "pass" | "take" | "done"
  key: string
  seconds: number
}

describe("KeyQueue", () => {
  test("behaves like its model: no key is lost, duplicated or given to two workers", async () => {
    const step: fc.Arbitrary<Step> = fc.record({
      act: fc.constantFrom("add", "addAfter", "regroup", "pass", "take", "done"),
      key: fc.constantFrom("a/1", "a/2", "a/3", "b/1", "c/1"),
      seconds: fc.integer({ min: 1, max: 9 }),
    })
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 60, size: "max" }), async (steps) => {
        const modelled = new Modelled()
        for (const next of steps) await modelled.do(next)
      }),
      { numRuns: 500 },
    )
  })

  test("gives each project its turn, even if another one has many keys", async () => {
    const queue = new KeyQueue()
    for (let i = 0; i < 100; i++) queue.add(`big/${i}`)
    queue.add("small/1")
    queue.add("tiny/1")
    const taken = [await queue.next(), await queue.next(), await queue.next(), await queue.next()]
    expect(taken).toEqual(["big/0", "small/1", "tiny/1", "big/1"])
  })

  test("hands out urgent keys of a project first, but every fourth turn one of the others", async () => {
    const queue = new KeyQueue({ isUrgent: (key) => key.startsWith("a/running") })
    for (let i = 0; i < 100; i++) queue.add(`a/new-${i}`)
    for (let i = 0; i < 5; i++) queue.add(`a/running-${i}`)
    const taken: (string | undefined)[] = []
    for (let i = 0; i < 8; i++) taken.push(await queue.next())
    const running = [0, 1, 2, 3, 4].map((i) => `a/running-${i}`)
    expect(taken).toEqual([...running.slice(0, 3), "a/new-0", ...running.slice(3), "a/new-1", "a/new-2"])
  })

  test("an urgent key does not take another project's turn", async () => {
    const queue = new KeyQueue({ isUrgent: (key) => key.startsWith("a/") })
    for (const key of ["a/1", "a/2", "b/1", "b/2"]) queue.add(key)
    expect([await queue.next(), await queue.next(), await queue.next()]).toEqual(["a/1", "b/1", "a/2"])
  })

  test("a waiting key that becomes urgent overtakes the others when it is added again", async () => {
    const urgent = new Set<string>()
    const queue = new KeyQueue({ isUrgent: (key) => urgent.has(key) })
    for (const key of ["a/1", "a/2", "a/3"]) queue.add(key)
    urgent.add("a/3")
    queue.add("a/3")
    expect(queue.length).toBe(3)
    expect([await queue.next(), await queue.next(), await queue.next()]).toEqual(["a/3", "a/1", "a/2"])
    expect(await takeNow(queue)).toBeUndefined()
  })

  test("a key whose group changes while it waits is handed out once", async () => {
    const groups = new Map([["launch", "project"]])
    const queue = new KeyQueue({ groupOf: (key) => groups.get(key) ?? "" })
    queue.add("launch")
    groups.delete("launch")
    queue.add("launch")
    expect(queue.length).toBe(1)
    expect(await queue.next()).toBe("launch")
    expect(await takeNow(queue)).toBeUndefined()
    queue.done("launch")
    queue.add("launch")
    expect(await takeNow(queue)).toBe("launch")
  })

  test("hands a key to a waiting worker", async () => {
    const queue = new KeyQueue()
    const waiting = queue.next()
    queue.add("a/1")
    expect(await waiting).toBe("a/1")
    expect(queue.length).toBe(0)
  })

  test("doubles the delay of a failing key up to the cap, until it is forgotten", async () => {
    const clock = new ManualClock()
    const queue = new KeyQueue({ clock, backoff: { baseSeconds: 1, capSeconds: 5 }, random: () => 1 })
    const delays: number[] = []
    for (let failure = 0; failure < 5; failure++) {
      queue.addRateLimited("a/1")
      const from = clock.monotonic()
      while (queue.length === 0) clock.advance(0.5)
      delays.push(clock.monotonic() - from)
      queue.done((await queue.next()) ?? "")
    }
    expect(delays).toEqual([1, 2, 4, 5, 5])
    queue.forget("a/1")
    expect(queue.failures("a/1")).toBe(0)
  })

  test("spreads retries by jitter, between half and the whole delay", () => {
    const clock = new ManualClock()
    const queue = new KeyQueue({ clock, backoff: { baseSeconds: 4, capSeconds: 60 }, random: () => 0 })
    queue.addRateLimited("a/1")
    clock.advance(1.9)
    expect(queue.length).toBe(0)
    clock.advance(0.2)
    expect(queue.length).toBe(1)
  })

  test("close releases the workers and takes no more keys", async () => {
    const clock = new ManualClock()
    const queue = new KeyQueue({ clock })
    const waiting = queue.next()
    queue.addAfter("a/1", 5)
    queue.close()
    expect(await waiting).toBeUndefined()
    queue.add("a/2")
    clock.advance(10)
    expect(queue.length).toBe(0)
    expect(await queue.next()).toBeUndefined()
    expect(clock.timers).toBe(0)
  })
})
