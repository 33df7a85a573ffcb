import type { Report } from "./controlplane/programs.ts"

interface Part {
  name: string
  /** @param seconds maximum time that the caller waits */
  stop: (seconds: number) => Promise<unknown>
  /** Maximum time that the caller waits for its stop. */
  seconds: number
}

/** Time reserved for the part that stops last, seconds. It is the control plane, and nothing may outlive it. */
const LAST_PART_SECONDS = 2.5

/** The running parts of a stack. They stop in the reverse order of their start, even if some of them fail. */
export class Parts {
  readonly #report: Report
  readonly #parts: Part[] = []
  readonly #seconds: number
  #stopped: Promise<void> | undefined

  /** @param seconds time limit for stopping all parts */
  constructor(report: Report, seconds: number) {
    this.#report = report
    this.#seconds = seconds
  }

  /** Adds a part that has started. */
  add(name: string, seconds: number, stop: Part["stop"]): void {
    this.#parts.push({ name, stop, seconds })
  }

  /**
   * Stops all parts, the last one first. Never rejects: a part that does not stop is reported, and the others follow.
   */
  stop(): Promise<void> {
    this.#stopped ??= this.#stop()
    return this.#stopped
  }

  async #stop(): Promise<void> {
    const deadline = performance.now() + this.#seconds * 1000
    for (let part = this.#parts.pop(); part !== undefined; part = this.#parts.pop()) {
      const reserved = this.#parts.length === 0 ? 0 : LAST_PART_SECONDS * 1000
      const left = Math.max(0, deadline - reserved - performance.now())
      const failure = await stopWithin(part, Math.min(part.seconds * 1000, left))
      if (failure !== undefined) this.#report(`${part.name}: ${failure}; the stop continues`)
    }
  }
}

/** Returns why the part may still run; undefined if it has stopped. */
async function stopWithin({ stop }: Part, milliseconds: number): Promise<string | undefined> {
  const late = Promise.withResolvers<string>()
  const timer = setTimeout(() => late.resolve(`not stopped after ${(milliseconds / 1000).toFixed(1)} s`), milliseconds)
  const stopped = async (): Promise<string | undefined> => {
    try {
      await stop(milliseconds / 1000)
      return undefined
    } catch (error) {
      return `stopping failed: ${error instanceof Error ? error.message : String(error)}`
    }
  }
  try {
    return await Promise.race([stopped(), late.promise])
  } finally {
    clearTimeout(timer)
  }
}
