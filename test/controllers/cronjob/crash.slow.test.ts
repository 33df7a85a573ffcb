import { describe, expect, test } from "vitest"
import type { CronJobSpec } from "../../../src/apis/cronjob.ts"
import { JOBS } from "../../../src/controllers/cronjob/options.ts"
import { NotLeaderError } from "../../../src/controllers/fence.ts"
import type { KubeClient } from "../../../src/kube/client.ts"
import { eventually } from "../../cloud/eventually.ts"
import { inParallel } from "../../in-parallel.ts"
import { type CronStage, cronStages } from "./stage.ts"

const newStage = cronStages()

/** `before`: the call is never made. `after`: it is made, and its answer comes to nobody. */
type Moment = "before" | "after"

const WRITES = ["create", "patch", "patchStatus", "replaceStatus", "delete"]

/** Lets an operator make so many calls that change anything, and then no call at all: it has crashed. */
class Crash {
  readonly client: KubeClient
  /** What was called, in order. */
  readonly calls: string[] = []
  dead = false
  readonly #last: number
  readonly #moment: Moment

  constructor(client: KubeClient, last: number, moment: Moment) {
    this.#last = last
    this.#moment = moment
    this.client = this.#mortal(client)
  }

  readonly fence = (): void => {
    if (this.dead) throw new NotLeaderError("crashed")
  }

  #mortal(client: KubeClient): KubeClient {
    return new Proxy(client, {
      get: (target, property) => {
        const value: unknown = Reflect.get(target, property)
        if (typeof value !== "function") return value
        const method = value.bind(target) as (...args: unknown[]) => unknown
        return (...args: [{ kind: string }, ...unknown[]]) => {
          if (this.dead) throw new Error("crashed")
          const isWrite = WRITES.includes(String(property)) && args[0].kind !== "Event"
          return isWrite ? this.#write(`${String(property)} ${args[0].kind}`, () => method(...args)) : method(...args)
        }
      },
    })
  }

  async #write(name: string, write: () => unknown): Promise<unknown> {
    this.calls.push(name)
    if (this.calls.length < this.#last) return write()
    this.dead = true
    if (this.#moment === "after") await write()
    throw new Error("crashed")
  }
}

/** What one replica sees of three ticks, the last of which comes after it crashed. */
const TICKS = ["12:01:00", "12:02:00", "12:03:00"]
const NEXT = "2026-05-01T12:04:00Z"
const NAMES = TICKS.map((time) => `billing-20260501t${time.replaceAll(":", "")}z`)

async function expectSettled(stage: CronStage, next: string): Promise<void> {
  expect((await stage.cronJob("billing")).status?.nextTriggerTime).toBe(next)
}

/**
 * Two replicas and three ticks: the first one leads until its n-th write, at which it crashes, and the other takes over.
 * Returns what the first one wrote.
 */
async function play(spec: Partial<CronJobSpec>, last: number, moment: Moment): Promise<string[]> {
  const stage = await newStage()
  await stage.create("billing", spec)
  const crash = new Crash(stage.client, last, moment)
  const first = stage.operator({ client: crash.client, fence: crash.fence })
  let isTakenOver = false
  const lead = async (settled: () => Promise<void>): Promise<void> => {
    await eventually(async () => {
      if (crash.dead && !isTakenOver) {
        isTakenOver = true
        stage.operator()
      }
      await settled()
    })
  }
  await lead(() => expectSettled(stage, `2026-05-01T${TICKS[0]}Z`))
  for (const [index, time] of TICKS.entries()) {
    stage.clock.goTo(`2026-05-01T${time}.100Z`)
    const next = TICKS[index + 1]
    await lead(async () => {
      await expectSettled(stage, next === undefined ? NEXT : `2026-05-01T${next}Z`)
      expect(await stage.jobNames()).toHaveLength(index + 1)
    })
  }
  const about = `${moment} call ${last} (${crash.calls.at(-1)})`
  const jobs = await stage.jobs()
  expect(
    jobs.map(({ metadata }) => metadata.name),
    about,
  ).toEqual(NAMES)
  const { status } = await stage.cronJob("billing")
  expect(status?.lastTriggeredTime, about).toBe("2026-05-01T12:03:00Z")
  if (spec.concurrencyPolicy === "Replace") {
    expect(
      jobs.map((job) => job.spec.cancelled),
      about,
    ).toEqual([true, true, false])
  }
  await first.stop()
  await stage.close()
  return crash.calls
}

/** A client whose watches of one kind tell nothing from when it is frozen until it is thawed. */
class Frozen {
  readonly client: KubeClient
  /** Kinds that were read one by one, in order. */
  readonly reads: string[] = []
  #thawed = Promise.resolve()
  #thaw = (): void => undefined

  constructor(client: KubeClient, kinds: readonly string[]) {
    const thawed = (): Promise<void> => this.#thawed
    const late = async function* (events: AsyncIterable<unknown>): AsyncGenerator<unknown> {
      for await (const event of events) {
        await thawed()
        yield event
      }
    }
    this.client = new Proxy(client, {
      get: (target, property) => {
        const value: unknown = Reflect.get(target, property)
        if (typeof value !== "function") return value
        const method = value.bind(target) as (...args: unknown[]) => unknown
        return (...args: [{ kind: string }, ...unknown[]]) => {
          const { kind } = args[0]
          if (property === "get") this.reads.push(kind)
          const answer = method(...args)
          return property === "watch" && kinds.includes(kind) ? late(answer as AsyncIterable<unknown>) : answer
        }
      },
    })
  }

  freeze(): void {
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#thawed = promise
    this.#thaw = resolve
  }

  thaw(): void {
    this.#thaw()
  }
}

/** A replica that waits for its turn with its caches full, until they are frozen. */
async function standby(stage: CronStage, kinds: readonly string[]): Promise<{ frozen: Frozen; lead: () => void }> {
  const frozen = new Frozen(stage.client, kinds)
  const { promise, resolve } = Promise.withResolvers<void>()
  await stage.operator({ client: frozen.client, leads: promise }).synced()
  return { frozen, lead: resolve }
}

describe("a replica that takes over with late caches", () => {
  test("does not fire again what was fired, though the Job is gone already", async () => {
    const stage = await newStage()
    const first = stage.operator()
    await stage.create("billing")
    await stage.waitsFor("billing", "2026-05-01T12:01:00Z")
    const { frozen, lead } = await standby(stage, ["CronJob", "Job"])
    frozen.freeze()
    stage.clock.goTo("2026-05-01T12:01:00Z")
    await stage.waitsFor("billing", "2026-05-01T12:02:00Z")
    await first.stop()
    await stage.client.delete(JOBS, { namespace: stage.namespace, name: NAMES[0] ?? "" })
    lead()
    // It wants to fire, and looks whether it may; and again.
    await eventually(() => expect(frozen.reads.filter((kind) => kind === "CronJob").length).toBeGreaterThan(1))
    expect(await stage.jobs()).toEqual([])
    frozen.thaw()
    stage.clock.goTo("2026-05-01T12:02:00Z")
    await stage.waitsFor("billing", "2026-05-01T12:03:00Z")
    expect(await stage.jobNames()).toEqual([NAMES[1]])
  })

  test("does not fire what was paused meanwhile", async () => {
    const stage = await newStage()
    const first = stage.operator()
    await stage.create("billing")
    await stage.waitsFor("billing", "2026-05-01T12:01:00Z")
    const { frozen, lead } = await standby(stage, ["CronJob"])
    frozen.freeze()
    await stage.change("billing", { active: false })
    await first.stop()
    stage.clock.goTo("2026-05-01T12:01:00Z")
    lead()
    await eventually(() => expect(frozen.reads).toContain("CronJob"))
    frozen.thaw()
    await stage.waitsFor("billing", undefined)
    expect(await stage.jobs()).toEqual([])
  })

  test("Forbid: lets nothing run beside a Job that its cache does not know yet", async () => {
    const stage = await newStage()
    const first = stage.operator()
    await stage.create("billing", { concurrencyPolicy: "Forbid" })
    await stage.waitsFor("billing", "2026-05-01T12:01:00Z")
    const { frozen, lead } = await standby(stage, ["Job"])
    frozen.freeze()
    stage.clock.goTo("2026-05-01T12:01:00Z")
    await stage.waitsFor("billing", "2026-05-01T12:02:00Z")
    await first.stop()
    lead()
    stage.clock.goTo("2026-05-01T12:02:00Z")
    await stage.waitsFor("billing", "2026-05-01T12:03:00Z")
    expect(await stage.jobNames()).toEqual([NAMES[0]])
    frozen.thaw()
  })
})

test("three replicas that all take themselves for the leader make one Job for each tick", async () => {
  const stage = await newStage()
  for (let replica = 0; replica < 3; replica++) stage.operator()
  await stage.create("billing")
  await stage.waitsFor("billing", "2026-05-01T12:01:00Z")
  for (const [index, time] of TICKS.entries()) {
    stage.clock.goTo(`2026-05-01T${time}Z`)
    await stage.waitsFor("billing", `2026-05-01T12:0${index + 2}:00Z`)
  }
  expect(await stage.jobNames()).toEqual(NAMES)
})

describe("a replica that crashes at any write of a tick, and one that takes over", () => {
  test.each(["Allow", "Replace"] as const)(
    "%s: exactly one Job for each tick",
    async (concurrencyPolicy) => {
      const calls = await play({ concurrencyPolicy }, Number.POSITIVE_INFINITY, "before")
      const cancels = concurrencyPolicy === "Replace" ? 2 : 0
      expect(calls.filter((call) => call === "create Job")).toHaveLength(3)
      expect(calls.filter((call) => call === "replaceStatus CronJob")).toHaveLength(4)
      expect(calls).toHaveLength(7 + cancels)
      const moments: Moment[] = ["before", "after"]
      const plays = calls.flatMap((_, index) =>
        moments.map((moment) => () => play({ concurrencyPolicy }, index + 1, moment)),
      )
      await inParallel(plays, 6)
    },
    900_000,
  )
})
