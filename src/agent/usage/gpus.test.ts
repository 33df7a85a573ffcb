import { describe, expect, it, vi } from "vitest"
import { ManualClock } from "../../../test/harness/manual-clock.ts"
import { GpuWatch } from "./gpus.ts"

/** Starts a watch whose helper does this at each start. */
function watching(helper: (start: number) => AsyncIterable<string> | Promise<never> | undefined) {
  const clock = new ManualClock()
  const end = new AbortController()
  let starts = 0
  const runtime = { watchGpus: async () => await helper(++starts) }
  const warnings: string[] = []
  const warn = (_: object, message: string) => void warnings.push(message)
  const logger = { info: () => {}, warn, error: () => {}, debug: () => {} }
  const watch = new GpuWatch({ runtime, gpus: 1, clock, logger })
  const done = watch.run(end.signal)
  return { watch, clock, end, done, warnings, starts: () => starts }
}

async function* lines(text: string): AsyncGenerator<string, void, void> {
  yield text
}

/** Yields a text, and then nothing until the test ends. */
async function* endless(text: string): AsyncGenerator<string, void, void> {
  yield text
  await new Promise(() => {})
}

const FIVE_SECONDS = "0, 7, 10\n".repeat(6)

describe("the watch of GPUs", () => {
  it("starts a helper again that has ended, after a delay, and knows nothing in between", async () => {
    const { watch, clock, starts } = watching((start) => (start === 1 ? lines("0, 7, 10\n") : endless(FIVE_SECONDS)))
    await vi.waitUntil(() => clock.timers === 1)
    expect(starts()).toBe(1)
    expect(watch.take(5)).toBeUndefined()
    clock.advance(5)
    await vi.waitUntil(() => starts() === 2)
    await vi.waitUntil(() => watch.take(5)?.highest === 7)
  })

  it.each([
    ["ends at once", () => lines("")],
    ["can't be started", () => Promise.reject(new Error("could not select device driver"))],
  ])("gives up a helper that %s, after a few starts", async (_what, helper) => {
    const { watch, clock, done, warnings, starts } = watching(helper)
    const ended = done.then(() => true)
    const givesUp = async () => {
      clock.advance(60)
      return await Promise.race([ended, Promise.resolve(false)])
    }
    await vi.waitUntil(givesUp, { interval: 1, timeout: 30_000 })
    expect(starts()).toBe(5)
    expect(warnings.at(-1)).toMatch(/stays unknown/)
    expect(watch.take(5)).toBeUndefined()
  })

  it("begins to count again after a helper that has lived for long", async () => {
    let clock: ManualClock | undefined
    const helper = async function* (): AsyncGenerator<string, void, void> {
      clock?.advance(3601)
      yield ""
    }
    const watched = watching(() => helper())
    clock = watched.clock
    const startsOften = () => {
      watched.clock.advance(60)
      return watched.starts() > 20
    }
    await vi.waitUntil(startsOften, { interval: 1, timeout: 30_000 })
    watched.end.abort()
    await watched.done
    expect(watched.warnings.filter((warning) => warning.includes("stays unknown"))).toEqual([])
  })

  it("says once that no helper can run", async () => {
    const { done, warnings, starts } = watching(() => undefined)
    await done
    expect(starts()).toBe(1)
    expect(warnings).toHaveLength(1)
  })
})
