import { setTimeout as delay } from "node:timers/promises"
import { expect } from "vitest"
import { BerthClient } from "../../src/client/client.ts"
import { readLog } from "../../src/client/logs.ts"
import { eventually } from "../harness/eventually.ts"
import type { CallOptions, RollingBerth } from "./rolling-berth.ts"

/** Expected end of a job. */
export interface Expected {
  status: "succeeded" | "failed" | "cancelled"
  /** Runs of its container, each on which Launch. Default: one, on the first. */
  runs?: number[]
  /** Runs that do not come to the end of their script, because the container is stopped. Default: none. */
  stopped?: number
  exitCode?: number | null
  /** The whole log. Default: what it said by `World.say`. */
  log?: string
}

/** Jobs that are submitted all the time, and what is expected of each job. */
export class Workload {
  readonly berth: RollingBerth
  readonly expected = new Map<string, Expected>()
  #stop = new AbortController()
  #loop: Promise<void> = Promise.resolve()
  #probes = 0
  #rounds = 0

  constructor(berth: RollingBerth) {
    this.berth = berth
  }

  /** Submits a job by REST that has the expected end. */
  async submit(
    name: string,
    body: string,
    {
      expected = { status: "succeeded" },
      more = {},
      via = {},
    }: { expected?: Expected; more?: object; via?: CallOptions } = {},
  ): Promise<string> {
    this.expected.set(name, expected)
    return await this.berth.submit(name, body, more, via)
  }

  /** Submits a short job each `seconds`, in turn by REST and by kubectl. */
  start(seconds: number): void {
    this.#stop = new AbortController()
    this.#loop = this.#run(seconds)
  }

  async stop(): Promise<void> {
    this.#stop.abort()
    await this.#loop
  }

  /** Submits a short job by REST through each façade, twice with the same Idempotency-Key. */
  async probe(key = this.berth.key): Promise<void> {
    for (const { url } of this.berth.facades()) {
      const name = `probe-${++this.#probes}`
      const id = await this.submit(name, this.#line(name), { via: { url, key } })
      for (const other of this.berth.facades())
        expect(await this.berth.submit(name, this.#line(name), {}, { url: other.url, key })).toBe(id)
    }
  }

  #line(name: string): string {
    return this.berth.world.say(name, `from ${name}`)
  }

  async #run(seconds: number): Promise<void> {
    while (!this.#stop.signal.aborted) {
      const count = ++this.#rounds
      const isPosted = count % 2 === 0
      const name = `${isPosted ? "posted" : "applied"}-${count}`
      if (isPosted) await this.submit(name, this.#line(name))
      else {
        this.expected.set(name, { status: "succeeded" })
        await this.berth.apply(name, this.#line(name))
      }
      await delay(seconds * 1000, undefined, { signal: this.#stop.signal }).catch(() => undefined)
    }
  }

  /** Resolves when all expected jobs have ended, and compares them with the world. */
  async verify(...names: string[]): Promise<void> {
    for (const name of names.length > 0 ? names : [...this.expected.keys()]) {
      const expected = this.expected.get(name)
      if (expected === undefined) throw new Error(`nothing is expected of ${name}`)
      await this.berth.until(name, expected.status, 240)
      await this.#compare(name, expected)
    }
  }

  async #compare(name: string, { status, runs = [1], stopped = 0, exitCode, log }: Expected): Promise<void> {
    const { world } = this.berth
    const ran = await world.runs(name)
    expect(
      ran.map(({ launch }) => launch),
      `runs of ${name}\n${await this.berth.situation()}`,
    ).toEqual(runs)
    expect(
      ran.filter(({ ended }) => !ended),
      `stopped runs of ${name}`,
    ).toHaveLength(stopped)
    const code = exitCode === undefined ? { succeeded: 0, failed: 1, cancelled: null }[status] : exitCode
    expect((await this.berth.record(name))["exit_code"] ?? null, name).toBe(code)
    const whole = log ?? (await world.said(name))
    await eventually(async () =>
      expect((await this.berth.rest("GET", `/jobs/${name}/logs`)).text, `log of ${name}`).toBe(whole),
    )
  }
}

/** Follows a job's log through the balancer, as `berth logs -f` does. Resolves with all of it when the job has ended. */
export async function follow(berth: RollingBerth, job: string): Promise<string> {
  const client = new BerthClient({
    baseUrl: `${berth.balancer.url}/1`,
    credential: async () => ({ key: berth.key }),
  })
  const decoder = new TextDecoder()
  let text = ""
  for await (const piece of readLog(client, job, { follow: true })) text += decoder.decode(piece, { stream: true })
  return text
}
