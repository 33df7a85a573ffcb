import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest"
import { ManualClock } from "../../../test/harness/manual-clock.ts"
import { silentLogger } from "../../../test/harness/silent-logger.ts"
import { type AgentState, Disk } from "../disk.ts"
import type { Container, Reading, Runtime } from "../runtimes/runtime.ts"
import { Meter } from "./meter.ts"

let folder: string
let clock: ManualClock
let idle: number

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "berth-meter-"))
  clock = new ManualClock()
  idle = 0
})
afterEach(() => rm(folder, { recursive: true, force: true }))

async function openMeter(limits?: Partial<NonNullable<AgentState["limits"]>>): Promise<Meter> {
  const disk = await Disk.open(folder, { launch: "l", since: "2026-01-01T00:00:00Z" }, (error) =>
    expect.unreachable(String(error)),
  )
  if (limits !== undefined) disk.update({ limits: { maxRetries: 0, ...limits } })
  return new Meter({ disk, clock, logger: silentLogger, onIdle: () => idle++ })
}

const RUNTIME = { watchGpus: () => Promise.resolve(undefined) } as Pick<Runtime, "watchGpus"> as Runtime

/** Container with two vCPUs that is measured by this function of the seconds. Counts the calls. */
function containerOf(read: (second: number) => Promise<Partial<Reading> | undefined>) {
  const calls = { count: 0 }
  const container = {
    read: async () => {
      calls.count++
      const reading = await read(clock.monotonic())
      return reading && { cpuSeconds: 0, cpus: 2, memoryMib: 100, ...reading }
    },
  } as Pick<Container, "read"> as Container
  return { container, calls }
}

/** Lets all promises settle that wait for nothing else. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 20; turn++) await Promise.resolve()
}

/** Lets this many seconds pass. A measurement that answers at once is finished in each of them. */
async function pass(seconds: number): Promise<void> {
  await settle()
  for (let second = 0; second < seconds; second++) {
    clock.advance(1)
    await settle()
  }
}

describe("the meter", () => {
  it("counts the processors' time of bursts between two measurements", async () => {
    const meter = await openMeter()
    // A burst of one second on both vCPUs, in each ten.
    const { container } = containerOf((second) => Promise.resolve({ cpuSeconds: Math.floor(second / 10) * 2 }))
    const stop = meter.start(container, RUNTIME)
    await pass(120)
    stop()
    expect(meter.finish()).toMatchObject({ seconds: 120, cpuMean: 0.2, memoryPeakMib: 100 })
  })

  it("has no use of a container that it could not measure", async () => {
    const meter = await openMeter({ gpus: 1, idleLimit: { seconds: 300 } })
    const { container, calls } = containerOf(() => Promise.reject(new Error("the engine restarts")))
    const stop = meter.start(container, RUNTIME)
    await pass(600)
    stop()
    await meter.close()
    expect(meter.finish()).toBeUndefined()
    expect(meter.points).toEqual([])
    expect(idle).toBe(0)
    // One for each 5 seconds, and the first one: failures are no reason for more.
    expect(calls.count).toBeLessThanOrEqual(121)
  })

  it("continues after an engine that did not answer for a while", async () => {
    const meter = await openMeter({ idleLimit: { seconds: 300 } })
    const { container } = containerOf((second) =>
      second > 100 && second < 200 ? Promise.reject(new Error("hangs")) : Promise.resolve({ cpuSeconds: second }),
    )
    const stop = meter.start(container, RUNTIME)
    await pass(300)
    stop()
    expect(meter.finish()).toMatchObject({ seconds: 300, cpuMean: 1, cpuPeak: 1 })
  })

  it("calls once for a container that is idle, from the attempt's start", async () => {
    const meter = await openMeter({ idleLimit: { seconds: 300 } })
    const { container } = containerOf((second) => Promise.resolve({ cpuSeconds: second / 100 }))
    await pass(1000)
    meter.start(container, RUNTIME)
    await pass(299)
    expect(idle).toBe(0)
    await pass(700)
    expect(idle).toBe(1)
  })

  it("does not end a container that works in bursts of 30 s a minute, or of a second in each sample", async () => {
    for (const busy of [30, 1]) {
      const every = busy === 30 ? 60 : 5
      const meter = await openMeter({ idleLimit: { seconds: 300 } })
      const used = (second: number) => Math.floor(second / every) * busy + Math.min(second % every, busy)
      const { container } = containerOf((second) => Promise.resolve({ cpuSeconds: used(second) }))
      const stop = meter.start(container, RUNTIME)
      await pass(1500)
      stop()
    }
    expect(idle).toBe(0)
  })

  it("measures attempts as one run, and continues after a restart of the agent", async () => {
    const meter = await openMeter()
    for (const cpu of [1, 2]) {
      const start = clock.monotonic()
      const { container } = containerOf((second) => Promise.resolve({ cpuSeconds: (second - start) * cpu }))
      const stop = meter.start(container, RUNTIME)
      await pass(60)
      stop()
      await pass(30)
    }
    const later = await openMeter()
    expect(later.points).toHaveLength(2)
    expect(later.finish()).toMatchObject({ seconds: 120, cpuMean: 1.5, cpuPeak: 2 })
    later.stored(later.points.at(-1)?.time ?? 0)
    expect((await openMeter()).points).toEqual([])
  })

  it("ends at once although a measurement never answers", async () => {
    const meter = await openMeter()
    const container = {
      read: (signal: AbortSignal) =>
        new Promise<undefined>((_, reject) => signal.addEventListener("abort", () => reject(new Error("aborted")))),
    } as Pick<Container, "read"> as Container
    meter.start(container, RUNTIME)
    await pass(10)
    await meter.close()
    expect(clock.timers).toBe(0)
  })

  it("has the use of GPUs from a helper, which it ends", async () => {
    const meter = await openMeter({ gpus: 2, idleLimit: { seconds: 300 } })
    let ended = false
    async function* output(signal: AbortSignal): AsyncGenerator<string, void, void> {
      try {
        for (; !signal.aborted; ) {
          yield "0, 50, 1000\n1, 100, 3000\n".repeat(5)
          await new Promise<void>((done) => {
            const cancel = clock.setTimer(5, done)
            signal.addEventListener("abort", () => {
              cancel()
              done()
            })
          })
        }
      } finally {
        ended = true
      }
    }
    const runtime = { watchGpus: (signal: AbortSignal) => Promise.resolve(output(signal)) }
    const { container } = containerOf(() => Promise.resolve({}))
    meter.start(container, runtime as Pick<Runtime, "watchGpus"> as Runtime)
    await pass(90)
    await vi.waitUntil(() => meter.points.length === 1)
    expect(meter.points[0]).toMatchObject({ gpu: 75, vramMib: 4000 })
    await meter.close()
    expect(ended).toBe(true)
    expect(meter.finish()).toMatchObject({ gpuMean: 75, vramPeakMib: 4000 })
  })
})
