import fc from "fast-check"
import { describe, expect, it } from "vitest"
import { UsageDelivery } from "../../src/agent/usage/delivery.ts"
import { UsageWindow } from "../../src/agent/usage/window.ts"
import { boundsOf, readUsage } from "../../src/api/gateway/usage.ts"
import { UsageStore } from "../../src/api/usage/store.ts"
import { UsageTails } from "../../src/api/usage/tails.ts"
import { timestamp } from "../../src/core/apis/clock.ts"
import { USAGE_POINTS, type UsagePoint } from "../../src/core/apis/usage.ts"
import { agentOf, jobOf, launchOf, T0, vmStatus } from "../harness/builders.ts"
import { ManualClock } from "../harness/manual-clock.ts"
import { MemoryObjects } from "../harness/memory-objects.ts"
import { silentLogger } from "../harness/silent-logger.ts"

/** Seconds between two reports, as of few VMs. */
const REPORT_SECONDS = 15

interface Step {
  /** Replica of the façade that the report reaches. */
  replica: 0 | 1
  lost?: "report" | "answer" | undefined
  /** Part that restarts before the report. */
  restart?: 0 | 1 | "agent" | undefined
  isStoreDown?: boolean
}

/** An agent that measures, two replicas of the façade, and their store. */
class Run {
  readonly #clock = new ManualClock()
  readonly #objects = new MemoryObjects()
  readonly #launch = launchOf(jobOf(), 1, { status: vmStatus({ agent: agentOf() }) })
  readonly #replicas: [UsageTails, UsageTails]
  #window = new UsageWindow()
  #delivery: UsageDelivery
  #steps = 0
  /** Points that the agent has made. */
  readonly made: UsagePoint[] = []
  /** Numbers of points in the reports that had any. */
  readonly sent: number[] = []
  /** Largest number of points that the agent had to keep. */
  most = 0

  constructor() {
    this.#clock.setCalendar(T0.getTime() / 1000)
    this.#replicas = [this.#replica(), this.#replica()]
    this.#delivery = this.#agent()
  }

  /** Returns what is stored. */
  get stored() {
    return this.#store().read(this.#launch.spec.job)
  }

  /** Lets the time of a report pass, and sends it. */
  async step({ replica, lost, restart, isStoreDown = false }: Step, hasFinish = false): Promise<void> {
    this.#clock.advance(REPORT_SECONDS)
    if (++this.#steps % 4 === 0) this.#measure(60)
    if (restart === "agent") {
      this.#window = new UsageWindow(this.#window.state)
      this.#delivery = this.#agent()
    } else if (restart !== undefined) this.#replicas[restart] = this.#replica()
    this.#objects.fault = isStoreDown ? new Error("EIO: i/o error") : undefined
    const usage = this.#delivery.next(hasFinish)
    if (usage.usage !== undefined) this.sent.push(usage.usage.length)
    const answer = lost === "report" ? undefined : await this.#receive(this.#replicas[replica], usage, hasFinish)
    if (answer !== undefined && lost !== "answer") this.#delivery.answered(usage, answer)
  }

  /** Ends the run within a minute, and sends the finish until it is answered. */
  async finish(steps: readonly Step[]): Promise<void> {
    this.#clock.advance(7)
    this.#measure(7)
    for (const step of steps) await this.step({ ...step, lost: step.lost ?? "answer" }, true)
    await this.step({ replica: 1 }, true)
  }

  #measure(seconds: number): void {
    const monotonic = this.#clock.monotonic()
    const sample = { seconds, cpu: 1, cpus: 2, memoryMib: this.made.length }
    this.#window.add(sample, { time: this.#clock.now().getTime(), monotonic })
    this.#window.close()
    const { points } = this.#window.state
    const last = points.at(-1)
    if (last !== undefined) this.made.push(last)
    this.most = Math.max(this.most, points.length)
  }

  async #receive(tails: UsageTails, usage: object, hasFinish: boolean) {
    const { agent } = this.#launch.status ?? {}
    if (agent === undefined) throw new Error("no agent has registered")
    const finish = { reason: "Succeeded" as const, time: timestamp(this.#clock.now()) }
    const report = { launch: "l", sequence: 1, attempt: 1, retryCount: 0, ...usage, ...(hasFinish && { finish }) }
    const { reported } = readUsage(JSON.parse(JSON.stringify(report)), boundsOf(agent, this.#clock.now()))
    const answer = reported && (await tails.take(this.#launch, reported, hasFinish))
    // What the answer did not wait for.
    for (let turn = 0; turn < 20; turn++) await Promise.resolve()
    return { desired: "run" as const, heartbeatSeconds: REPORT_SECONDS, ...answer }
  }

  #agent(): UsageDelivery {
    const meter = {
      points: () => this.#window.state.points,
      stored: (time: number) => this.#window.stored(time),
    }
    return new UsageDelivery(
      {
        get points() {
          return meter.points()
        },
        stored: meter.stored,
      },
      this.#clock,
    )
  }

  #replica(): UsageTails {
    const launches = { get: () => this.#launch }
    return new UsageTails({ store: this.#store(), launches, clock: this.#clock, logger: silentLogger })
  }

  #store(): UsageStore {
    return new UsageStore(this.#objects)
  }
}

const seldom = <Value>(value: fc.Arbitrary<Value>) => fc.option(value, { nil: undefined, freq: 10 })

const anyReplica = fc.constantFrom(0 as const, 1 as const)

const anyStep: fc.Arbitrary<Step> = fc.record({
  replica: anyReplica,
  lost: seldom(fc.constantFrom("report" as const, "answer" as const)),
  restart: seldom(fc.constantFrom(0 as const, 1 as const, "agent" as const)),
  isStoreDown: fc.boolean(),
})

/** Reports of some minutes that reach the same replica. */
const anyQuietTime = fc
  .tuple(anyReplica, fc.integer({ min: 1, max: 160 }))
  .map(([replica, reports]): Step[] => Array.from({ length: reports }, () => ({ replica })))

const anySteps = fc
  .array(fc.oneof(fc.array(anyStep, { maxLength: 40 }), anyQuietTime), { maxLength: 10 })
  .map((parts) => parts.flat())

describe("the delivery of a run's usage", () => {
  it("stores each point once, whatever replicas, the store and the network do, and whenever the run ends", async () => {
    await fc.assert(
      fc.asyncProperty(anySteps, fc.array(anyStep, { maxLength: 4 }), async (steps, attempts) => {
        const run = new Run()
        for (const step of steps) await run.step(step)
        await run.finish(attempts)
        // With more, the agent merges neighbours.
        fc.pre(run.most < USAGE_POINTS)
        expect(await run.stored).toEqual(run.made.map((point) => ({ ...point, launch: 1 })))
      }),
      { numRuns: 300 },
    )
  })

  it("sends each point once to a replica that continues, and all again to one that has restarted", async () => {
    const run = new Run()
    for (let report = 0; report < 400; report++) await run.step({ replica: 0 })
    expect(Math.max(...run.sent)).toBe(1)
    expect(run.sent).toHaveLength(run.made.length)
    await run.step({ replica: 0, restart: 0 })
    for (let report = 0; report < 8; report++) await run.step({ replica: 0 })
    // 30, 60 and 90 points are stored. The first of these reports is without the points that the replica lacks.
    expect(run.sent.slice(-3)).toEqual([1, 11, 1])
  })

  it("loses no time of a run whose store was down for hours", async () => {
    for (let minutes = USAGE_POINTS - 2; minutes < USAGE_POINTS * 4; minutes += 7) {
      const run = new Run()
      for (let report = 0; report < minutes * 4; report++) await run.step({ replica: 0, isStoreDown: true })
      for (let report = 0; report < 80; report++) await run.step({ replica: 0 })
      await run.finish([])
      const stored = await run.stored
      const sum = (points: UsagePoint[]) => points.reduce((all, { seconds }) => all + seconds, 0)
      expect(sum(stored)).toBe(sum(run.made))
      expect(stored.at(-1)?.memoryMib).toBe(run.made.length - 1)
    }
  })
})
