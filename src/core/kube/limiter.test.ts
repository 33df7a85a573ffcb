import fc from "fast-check"
import { describe, expect, it, onTestFinished, vi } from "vitest"
import { FLOW_KINDS, type Flow } from "./flow.ts"
import { Limiter, type Permit } from "./limiter.ts"

const forever = new AbortController().signal
const background: Flow = { kind: "background", path: [] }
const of = (person: string, caller = person): Flow => ({
  kind: "requests",
  path: [person, `project of ${person}`, caller],
})

/** Asks for a permit. `log` gets the name at the moment of the grant. */
function ask(limiter: Limiter, flow: Flow, name: string, log: string[]): Promise<Permit> {
  return Promise.resolve(limiter.acquire(flow, forever)).then((permit) => {
    log.push(name)
    return permit
  })
}

/** Tasks with permits of one limiter. */
class Run {
  readonly #size: number
  readonly #limiter: Limiter
  readonly #held: Permit[] = []
  #asked = 0
  #granted = 0

  constructor(size: number) {
    this.#size = size
    this.#limiter = new Limiter(size)
  }

  ask(flow: Flow): void {
    this.#asked++
    void Promise.resolve(this.#limiter.acquire(flow, forever)).then((permit) => {
      this.#granted++
      this.#held.push(permit)
    })
  }

  release(which: number): void {
    const [permit] = this.#held.splice(which % Math.max(1, this.#held.length), 1)
    if (permit !== undefined) this.#limiter.release(permit)
  }

  check(): void {
    const waiting = FLOW_KINDS.reduce((sum, kind) => sum + this.#limiter.waiting(kind), 0)
    expect(waiting).toBe(this.#asked - this.#granted)
    expect(this.#held.length).toBeLessThanOrEqual(this.#size)
    // While one person waits, at least half of the permits are used.
    const leastUsed = Math.max(1, Math.floor(this.#size / 2))
    if (waiting > 0) expect(this.#held.length).toBeGreaterThanOrEqual(leastUsed)
  }

  /** Ends all tasks. */
  async drain(): Promise<void> {
    while (this.#held.length > 0) {
      this.release(0)
      await settled()
    }
    expect(this.#granted).toBe(this.#asked)
  }
}

/** Lets every grant of before be noted. */
const settled = () => new Promise(setImmediate)

describe("a limiter", () => {
  it("limits the number of running tasks, in the order of their requests", async () => {
    const limiter = new Limiter(2)
    const ran: number[] = []
    let running = 0
    let most = 0
    const task = async (id: number): Promise<void> => {
      const permit = await limiter.acquire(background, forever)
      most = Math.max(most, ++running)
      ran.push(id)
      await settled()
      running--
      limiter.release(permit)
    }
    await Promise.all([1, 2, 3, 4, 5, 6].map(task))
    expect(most).toBe(2)
    expect(ran).toEqual([1, 2, 3, 4, 5, 6])
  })

  it("gives no permit to a task that stopped waiting", async () => {
    const limiter = new Limiter(1)
    const held = await limiter.acquire(background, forever)
    const impatient = new AbortController()
    const given = limiter.acquire(background, impatient.signal)
    const patient = limiter.acquire(background, forever)
    impatient.abort(new Error("too slow"))
    await expect(given).rejects.toThrow("too slow")
    await expect(limiter.acquire(background, AbortSignal.abort(new Error("too late")))).rejects.toThrow("too late")
    expect(limiter.waiting("background")).toBe(1)
    limiter.release(held)
    await patient
    expect(limiter.waiting("background")).toBe(0)
  })

  it("gives the next permit to another person, however many calls and callers one has", async () => {
    const limiter = new Limiter(1)
    const log: string[] = []
    const held = await limiter.acquire(of("eve"), forever)
    const queue = Array.from({ length: 50 }, (_, n) => ask(limiter, of("eve", `key ${n % 5}`), "eve", log))
    queue.push(ask(limiter, of("ada"), "ada", log))
    limiter.release(held)
    await settled()
    expect(log).toEqual(["ada"])
  })

  it("grants a paused person nothing until the pause ends, and others meanwhile", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout"] })
    onTestFinished(() => void vi.useRealTimers())
    const limiter = new Limiter(1)
    const log: string[] = []
    const held = await limiter.acquire(of("eve"))
    const queue = ["eve", "ada", "eve"].map((name) => ask(limiter, of(name), name, log))
    limiter.pause(held, 5)
    limiter.release(held)
    await settled()
    expect(log).toEqual(["ada"])
    limiter.release((await queue[1]) as Permit)
    vi.advanceTimersByTime(4)
    void ask(limiter, of("eve", "key 2"), "key 2", log)
    await settled()
    expect(log).toEqual(["ada"])
    vi.advanceTimersByTime(1)
    await settled()
    // The caller that has had no permit yet comes first.
    expect(log).toEqual(["ada", "key 2"])
  })

  it("shares a person's permits by project, and a project's by caller", async () => {
    const limiter = new Limiter(1)
    const log: string[] = []
    const flow = (project: string, caller: string): Flow => ({ kind: "requests", path: ["ada", project, caller] })
    let permit = await limiter.acquire(flow("busy", "a"), forever)
    const wanted = [
      ...Array.from({ length: 4 }, () => ["busy", "a"] as const),
      ...Array.from({ length: 2 }, () => ["busy", "b"] as const),
      ["calm", "c"] as const,
    ]
    const given = wanted.map(([project, caller]) => ask(limiter, flow(project, caller), `${project} ${caller}`, log))
    for (const _ of wanted) {
      const before = log.length
      limiter.release(permit)
      await settled()
      expect(log.length).toBe(before + 1)
      const index = wanted.findIndex(([project, caller]) => log.at(-1) === `${project} ${caller}`)
      permit = (await given[wanted.indexOf(wanted[index] as never)]) as Permit
    }
    expect(log).toEqual(["calm c", "busy b", "busy a", "busy b", "busy a", "busy a", "busy a"])
  })

  it("keeps permits for the check of credentials and for agents, and for others than one person", async () => {
    const limiter = new Limiter(32)
    const asked = (flow: Flow, times: number) =>
      Array.from({ length: times }, () => limiter.acquire(flow, forever)).filter((one) => !(one instanceof Promise))
        .length
    expect(asked(of("eve"), 100)).toBe(16)
    expect(asked(of("ada"), 100)).toBe(12)
    expect(asked({ kind: "authentication", path: ["192.0.2.1"] }, 2)).toBe(2)
    expect(asked({ kind: "agents", path: ["reports", "launch-1"] }, 100)).toBe(2)
    expect(FLOW_KINDS.map((kind) => limiter.waiting(kind))).toEqual([0, 0, 98, 172])
  })

  it("never exceeds its size, loses no task, and starves none", async () => {
    const flows = fc.constantFrom(of("eve"), of("eve", "second key"), of("ada"), background, {
      kind: "agents",
      path: ["reports", "launch-1"],
    } satisfies Flow)
    const steps = fc.array(fc.oneof(fc.record({ ask: flows }), fc.record({ release: fc.nat() })), { maxLength: 200 })
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 1, max: 12 }), steps, async (size, program) => {
        const run = new Run(size)
        for (const step of program) {
          if ("ask" in step) run.ask(step.ask)
          else run.release(step.release)
          await settled()
          run.check()
        }
        await run.drain()
      }),
      { numRuns: 100 },
    )
  })
})
