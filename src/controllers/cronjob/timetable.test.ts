import fc from "fast-check"
import { describe, expect, it } from "vitest"
import { ManualClock } from "../../../test/kube/manual-clock.ts"
import { Timetable } from "./timetable.ts"

const at = (seconds: number): Date => new Date(seconds * 1000)

function watched(): { clock: ManualClock; timetable: Timetable; rung: string[]; end: () => void } {
  const clock = new ManualClock()
  const timetable = new Timetable(clock)
  const rung: string[] = []
  const end = timetable.subscribe((key) => rung.push(key))
  return { clock, timetable, rung, end }
}

/** A timetable and what it must do, told by a plain list of times; each step compares the two. */
class Modelled {
  readonly #watched = watched()
  readonly #due = new Map<string, number>()

  set(key: string, dueIn: number | undefined): void {
    const { clock, timetable } = this.#watched
    const time = clock.monotonic() + (dueIn ?? 0)
    timetable.set(key, dueIn === undefined ? undefined : at(time))
    this.#due.delete(key)
    if (dueIn !== undefined) this.#due.set(key, time)
  }

  pass(seconds: number): void {
    const { clock, rung } = this.#watched
    clock.advance(seconds)
    const expected = [...this.#due.keys()].filter((key) => Number(this.#due.get(key)) <= clock.monotonic())
    for (const key of expected) this.#due.delete(key)
    expect(rung.splice(0).sort()).toEqual(expected.sort())
  }

  check(): void {
    const { clock, timetable } = this.#watched
    expect(timetable.size).toBe(this.#due.size)
    expect(clock.timers).toBe(Math.min(1, this.#due.size))
  }
}

describe("a timetable", () => {
  it("rings each key when it is due, as a list of times would", () => {
    const key = fc.constantFrom("a", "b", "c", "d", "e")
    const dueIn = fc.option(fc.integer({ min: 0, max: 100 }), { nil: undefined })
    const set = fc.tuple(key, dueIn).map((to) => (of: Modelled) => of.set(...to))
    const pass = fc.integer({ min: 1, max: 70 }).map((seconds) => (of: Modelled) => of.pass(seconds))
    fc.assert(
      fc.property(fc.array(fc.oneof(set, pass), { maxLength: 200, size: "max" }), (steps) => {
        const modelled = new Modelled()
        for (const step of steps) {
          step(modelled)
          modelled.check()
        }
      }),
    )
  })

  it("has one timer for any number of keys, rings the earliest first, and none for what is never due", () => {
    const { clock, timetable, rung } = watched()
    for (let n = 0; n < 10_000; n++) timetable.set(`idle/${n}`, undefined)
    expect(clock.timers).toBe(0)
    const dueAt = (n: number): number => 1 + ((n * 7919) % 10_000)
    const keys = Array.from({ length: 10_000 }, (_, n) => n)
    for (const n of keys) timetable.set(`k${n}`, at(dueAt(n)))
    expect(clock.timers).toBe(1)
    clock.advance(10_000)
    expect(rung).toEqual(keys.sort((a, b) => dueAt(a) - dueAt(b)).map((n) => `k${n}`))
    expect(clock.timers).toBe(0)
  })

  it("goes by the calendar: one that is set forward rings soon, one that is set back rings later", () => {
    const { clock, timetable, rung } = watched()
    timetable.set("a", at(86_400))
    clock.setCalendar(90_000)
    clock.advance(31)
    expect(rung).toEqual(["a"])
    timetable.set("b", at(90_100))
    clock.setCalendar(-1000)
    clock.advance(900)
    expect(rung).toEqual(["a"])
    clock.advance(200)
    expect(rung).toEqual(["a", "b"])
  })

  it("does not grow by keys that are put off again and again", () => {
    const { clock, timetable, rung } = watched()
    for (let n = 0; n < 100_000; n++) timetable.set("a", at(1000 + n))
    clock.advance(100_998)
    expect(rung).toEqual([])
    clock.advance(1)
    expect(rung).toEqual(["a"])
  })

  it("forgets all when nobody listens any more", () => {
    const { clock, timetable, rung, end } = watched()
    timetable.set("a", at(10))
    end()
    expect(clock.timers).toBe(0)
    expect(timetable.size).toBe(0)
    clock.advance(20)
    expect(rung).toEqual([])
  })
})
