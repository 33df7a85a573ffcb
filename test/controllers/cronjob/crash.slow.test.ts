import { describe, expect, test } from "vitest"
import type { CronJobSpec } from "../../../src/core/apis/cronjob.ts"
import { inParallel } from "../../../src/core/apis/in-parallel.ts"
import type { KubeClient } from "../../../src/core/kube/client.ts"
import { JOBS } from "../../../src/core/resources.ts"
import { eventually } from "../../harness/eventually.ts"
import { Crash, type Moment } from "../crash.ts"
import { type CronHarness, cronHarnesses } from "./harness.ts"

const newHarness = cronHarnesses()

/** Three ticks of one replica. The last comes after its crash. */
const TICKS = ["12:01:00", "12:02:00", "12:03:00"]
const NEXT = "2026-05-01T12:04:00Z"
const NAMES = TICKS.map((time) => `billing-20260501t${time.replaceAll(":", "")}z`)

async function expectSettled(harness: CronHarness, next: string): Promise<void> {
  expect((await harness.cronJob("billing")).status?.nextTriggerTime).toBe(next)
}

/**
 * Runs two replicas over three ticks. The first one leads until it crashes at its n-th write; then the other takes
 * over. Returns the first one's writes.
 */
async function runWithCrash(spec: Partial<CronJobSpec>, last: number, moment: Moment): Promise<string[]> {
  const harness = await newHarness()
  await harness.create("billing", spec)
  const crash = new Crash(harness.client, last, moment)
  const first = harness.operator({ client: crash.client, fence: crash.fence })
  let isTakenOver = false
  const lead = async (settled: () => Promise<void>): Promise<void> => {
    await eventually(async () => {
      if (crash.dead && !isTakenOver) {
        isTakenOver = true
        harness.operator()
      }
      await settled()
    })
  }
  await lead(() => expectSettled(harness, `2026-05-01T${TICKS[0]}Z`))
  for (const [index, time] of TICKS.entries()) {
    harness.clock.goTo(`2026-05-01T${time}.100Z`)
    const next = TICKS[index + 1]
    await lead(async () => {
      await expectSettled(harness, next === undefined ? NEXT : `2026-05-01T${next}Z`)
      expect(await harness.jobNames()).toHaveLength(index + 1)
    })
  }
  const about = `${moment} call ${last} (${crash.calls.at(-1)})`
  const jobs = await harness.jobs()
  expect(
    jobs.map(({ metadata }) => metadata.name),
    about,
  ).toEqual(NAMES)
  const { status } = await harness.cronJob("billing")
  expect(status?.lastTriggeredTime, about).toBe("2026-05-01T12:03:00Z")
  if (spec.concurrencyPolicy === "Replace") {
    expect(
      jobs.map((job) => job.spec.cancelled),
      about,
    ).toEqual([true, true, false])
  }
  await first.stop()
  await harness.close()
  return crash.calls
}

/** A client whose watches of some kinds deliver nothing from `freeze` to `thaw`. */
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

/** Starts a replica that waits to lead with full caches, which are then frozen. */
async function standby(harness: CronHarness, kinds: readonly string[]): Promise<{ frozen: Frozen; lead: () => void }> {
  const frozen = new Frozen(harness.client, kinds)
  const { promise, resolve } = Promise.withResolvers<void>()
  await harness.operator({ client: frozen.client, leads: promise }).synced()
  return { frozen, lead: resolve }
}

describe("a replica that takes over with stale caches", () => {
  test("creates no second Job for a tick whose Job is already deleted", async () => {
    const harness = await newHarness()
    const first = harness.operator()
    await harness.create("billing")
    await harness.waitsFor("billing", "2026-05-01T12:01:00Z")
    const { frozen, lead } = await standby(harness, ["CronJob", "Job"])
    frozen.freeze()
    harness.clock.goTo("2026-05-01T12:01:00Z")
    await harness.waitsFor("billing", "2026-05-01T12:02:00Z")
    await first.stop()
    await harness.client.delete(JOBS, { namespace: harness.namespace, name: NAMES[0] ?? "" })
    lead()
    // The replica wants to create the Job, and checks first; then again.
    await eventually(() => expect(frozen.reads.filter((kind) => kind === "CronJob").length).toBeGreaterThan(1))
    expect(await harness.jobs()).toEqual([])
    frozen.thaw()
    harness.clock.goTo("2026-05-01T12:02:00Z")
    await harness.waitsFor("billing", "2026-05-01T12:03:00Z")
    expect(await harness.jobNames()).toEqual([NAMES[1]])
  })

  test("creates no Job of a CronJob that was paused meanwhile", async () => {
    const harness = await newHarness()
    const first = harness.operator()
    await harness.create("billing")
    await harness.waitsFor("billing", "2026-05-01T12:01:00Z")
    const { frozen, lead } = await standby(harness, ["CronJob"])
    frozen.freeze()
    await harness.change("billing", { active: false })
    await first.stop()
    harness.clock.goTo("2026-05-01T12:01:00Z")
    lead()
    await eventually(() => expect(frozen.reads).toContain("CronJob"))
    frozen.thaw()
    await harness.waitsFor("billing", undefined)
    expect(await harness.jobs()).toEqual([])
  })

  test("creates no Job with policy Forbid beside a running Job that its cache lacks", async () => {
    const harness = await newHarness()
    const first = harness.operator()
    await harness.create("billing", { concurrencyPolicy: "Forbid" })
    await harness.waitsFor("billing", "2026-05-01T12:01:00Z")
    const { frozen, lead } = await standby(harness, ["Job"])
    frozen.freeze()
    harness.clock.goTo("2026-05-01T12:01:00Z")
    await harness.waitsFor("billing", "2026-05-01T12:02:00Z")
    await first.stop()
    lead()
    harness.clock.goTo("2026-05-01T12:02:00Z")
    await harness.waitsFor("billing", "2026-05-01T12:03:00Z")
    expect(await harness.jobNames()).toEqual([NAMES[0]])
    frozen.thaw()
  })
})

test("the operators create one Job for each tick although three replicas believe that they lead", async () => {
  const harness = await newHarness()
  for (let replica = 0; replica < 3; replica++) harness.operator()
  await harness.create("billing")
  await harness.waitsFor("billing", "2026-05-01T12:01:00Z")
  for (const [index, time] of TICKS.entries()) {
    harness.clock.goTo(`2026-05-01T${time}Z`)
    await harness.waitsFor("billing", `2026-05-01T12:0${index + 2}:00Z`)
  }
  expect(await harness.jobNames()).toEqual(NAMES)
})

describe("a replica that takes over after a crash at any write of a tick", () => {
  test.each(["Allow", "Replace"] as const)(
    "creates exactly one Job for each tick with policy %s",
    async (concurrencyPolicy) => {
      const calls = await runWithCrash({ concurrencyPolicy }, Number.POSITIVE_INFINITY, "before")
      const cancels = concurrencyPolicy === "Replace" ? 2 : 0
      expect(calls.filter((call) => call === "create Job")).toHaveLength(3)
      expect(calls.filter((call) => call === "replaceStatus CronJob")).toHaveLength(4)
      expect(calls).toHaveLength(7 + cancels)
      const moments: Moment[] = ["before", "after"]
      const runs = calls.flatMap((_, index) =>
        moments.map((moment) => () => runWithCrash({ concurrencyPolicy }, index + 1, moment)),
      )
      await inParallel(runs, 6, (task) => task())
    },
    900_000,
  )
})
