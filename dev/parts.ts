import type { Report } from "./controlplane/programs.ts"

interface Part {
  name: string
  /** @param seconds how long its stop is waited for */
  stop: (seconds: number) => Promise<unknown>
  /** How long its stop is waited for, at most. */
  seconds: number
}

/** What the others leave to the part that is stopped last, seconds. It is the control plane, which nothing may outlive. */
const LAST_PART_SECONDS = 2.5

/** What runs of a stack, to be stopped in the reverse order of its start, whatever fails of it. */
export class Parts {
  readonly #report: Report
  readonly #parts: Part[] = []
  readonly #seconds: number
  #stopped: Promise<void> | undefined

  /** @param seconds how long the stop of all parts may take */
  constructor(report: Report, seconds: number) {
    this.#report = report
    this.#seconds = seconds
  }

  /** A part has started. */
  add(name: string, seconds: number, stop: Part["stop"]): void {
    this.#parts.push({ name, stop, seconds })
  }

  /** Stops all parts, the last one first. Never rejects: what does not stop is reported, and the others follow. */
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
      if (failure !== undefined) this.#report(`${part.name}: ${failure}; the stop goes on`)
    }
  }
}

/** Returns why the part is not known to have stopped; undefined when it has. */
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
