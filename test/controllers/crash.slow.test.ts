import { describe, expect, test } from "vitest"
import { isOver } from "../../src/apis/launch.ts"
import type { Cloud } from "../../src/cloud/provider.ts"
import { NotLeaderError } from "../../src/controllers/fence.ts"
import type { KubeClient } from "../../src/kube/client.ts"
import { isNotFound } from "../../src/kube/errors.ts"
import { eventually } from "../cloud/eventually.ts"
import { inParallel } from "../in-parallel.ts"
import { type Membrane, type Stage, stages } from "./harness.ts"

const newStage = stages()

/** `before`: the call is never made. `after`: it is made, and its answer comes to nobody. */
type Moment = "before" | "after"

const WRITES = ["create", "patch", "patchStatus", "replaceStatus", "delete"] as const

/** Lets an operator make so many calls that change anything, and then no call at all: it has crashed. */
class Crash implements Membrane {
  readonly client: KubeClient
  readonly clouds: Membrane["clouds"]
  /** What was called, in order. */
  readonly calls: string[] = []
  dead = false
  readonly #last: number
  readonly #moment: Moment

  constructor(stage: Stage, last: number, moment: Moment) {
    this.#last = last
    this.#moment = moment
    this.client = this.#mortal(stage.client)
    this.clouds = { open: async (account) => this.#mortalCloud(await stage.cloud.open(account)) }
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
        if (!WRITES.includes(property as (typeof WRITES)[number])) return this.#untilDead(method)
        return (...args: [{ kind: string }, ...unknown[]]) => {
          // Events are written in the background, in no order.
          const call = () => method(...args) as Promise<unknown>
          return args[0].kind === "Event" ? call() : this.#call(`${String(property)} ${args[0].kind}`, call)
        }
      },
    })
  }

  #mortalCloud(cloud: Cloud): Cloud {
    return {
      consistencySeconds: cloud.consistencySeconds,
      launch: (spec) => this.#call("launch", () => cloud.launch(spec)),
      terminate: (vm) => this.#call("terminate", () => cloud.terminate(vm)),
      list: this.#untilDead((scope) => cloud.list(scope)),
      verify: () => cloud.verify(),
    }
  }

  #untilDead<Args extends unknown[], Answer>(call: (...args: Args) => Answer): (...args: Args) => Answer {
    return (...args) => {
      if (this.dead) throw new Error("crashed")
      return call(...args)
    }
  }

  async #call<T>(name: string, call: () => Promise<T>): Promise<T> {
    if (this.dead) throw new Error("crashed")
    this.calls.push(name)
    if (this.calls.length < this.#last) return call()
    this.dead = true
    if (this.#moment === "after") await call().catch(() => undefined)
    throw new Error("crashed")
  }
}

interface Scenario {
  /** What goes wrong by itself. */
  prepare?: (stage: Stage) => void
  /** What people do, called again and again. */
  interfere?: (stage: Stage) => Promise<void>
  /** Agents do their work up to this step. */
  agents: "succeed" | "run"
  /** How long a state of a VM lasts that is written down, seconds. Default: a moment. */
  settleSeconds?: number
  /** How it must end, however often the operator crashed. */
  expected: { phase: string | undefined; launches: readonly number[]; vms: number }
}

async function isRunning(stage: Stage): Promise<boolean> {
  const job = await stage.job("job").catch(ignoreNotFound)
  return job?.status?.phase === "running"
}

const SCENARIOS: Record<string, Scenario> = {
  success: { agents: "succeed", expected: { phase: "succeeded", launches: [1], vms: 1 } },
  "capacity failover and a lost answer": {
    // A refusal that was not written down before the crash is asked for again, and may be none then.
    prepare: (stage) => stage.cloud.faults.push({ fault: "capacity" }, { fault: "answerLost" }),
    agents: "succeed",
    expected: { phase: "succeeded", launches: [1, 2], vms: 1 },
  },
  "cancel while running": {
    interfere: async (stage) => ((await isRunning(stage)) ? stage.cancel("job") : undefined),
    agents: "run",
    expected: { phase: "cancelled", launches: [1], vms: 1 },
  },
  "delete while running": {
    interfere: async (stage) => ((await isRunning(stage)) ? stage.delete("job").catch(ignoreNotFound) : undefined),
    agents: "run",
    expected: { phase: undefined, launches: [1], vms: 1 },
  },
}

function ignoreNotFound(error: unknown): undefined {
  if (!isNotFound(error)) throw error
  return undefined
}

/** Whether the operator has written down that there is the job's VM. */
async function hasItsVm(stage: Stage): Promise<boolean> {
  const [launch] = await stage.launches()
  return launch?.status?.vm?.id !== undefined
}

/** Whether all has come to its end: the job ended with its cost final (or is gone), its Launches are over. */
async function isSettled(stage: Stage): Promise<boolean> {
  const job = await stage.job("job").catch(ignoreNotFound)
  const isDone = job === undefined || job.status?.cost?.actualUsd !== undefined
  return isDone && (await stage.launches()).every(isOver)
}

/** Plays the scenario with an operator that crashes at its n-th call and one that takes over; returns the first's calls. */
async function play(scenario: Scenario, last: number, moment: Moment): Promise<string[]> {
  const stage = await newStage()
  scenario.prepare?.(stage)
  await stage.submit("job")
  const crash = new Crash(stage, last, moment)
  const { settleSeconds } = scenario
  const first = stage.operator({ membrane: crash, ...(settleSeconds !== undefined && { settleSeconds }) })
  const live = async (isOverNow: () => Promise<boolean> | boolean) => {
    await eventually(async () => {
      await scenario.interfere?.(stage)
      await stage.agentsStep(scenario.agents)
      expect(await isOverNow()).toBe(true)
    })
  }
  await live(async () => crash.dead || (await isSettled(stage)))
  await first.stop()
  if (crash.dead) {
    stage.operator()
    await live(() => isSettled(stage))
  }
  await check(stage, scenario, `${moment} call ${last} (${crash.calls.at(-1)})`)
  await stage.close()
  return crash.calls
}

async function check(stage: Stage, { expected }: Scenario, about: string): Promise<void> {
  const job = await stage.job("job").catch(ignoreNotFound)
  expect(job?.status?.phase, about).toBe(expected.phase)
  expect(stage.cloud.breaches, about).toEqual([])
  expect(stage.cloud.alive, about).toEqual([])
  expect(stage.cloud.vms.length, about).toBe(expected.vms)
  const launches = await stage.launches()
  expect(expected.launches, about).toContain(launches.length)
  if (job !== undefined) {
    expect(job.status?.launches?.count, about).toBe(launches.length)
    const paid = launches.reduce((total, launch) => total + (launch.status?.costUsd ?? 0), 0)
    expect(job.status?.cost?.actualUsd, about).toBeCloseTo(paid, 6)
  }
}

describe("an operator that crashes at any call that changes anything, and one that takes over", () => {
  test.each(Object.entries(SCENARIOS))(
    "%s: the same end, one VM for each Launch, none left",
    async (_, scenario) => {
      const calls = await play(scenario, Number.POSITIVE_INFINITY, "before")
      expect(calls).toContain("launch")
      const numbers = calls.map((_call, index) => index + 1)
      const moments: Moment[] = ["before", "after"]
      await inParallel(
        numbers.flatMap((last) => moments.map((moment) => () => play(scenario, last, moment))),
        6,
      )
    },
    900_000,
  )

  test("a job that nothing disturbs costs few writes", async () => {
    const scenario: Scenario = {
      // A VM's states that pass quickly are not written: here all of them are quick, however slow the machine is.
      settleSeconds: 3600,
      // A report that crosses a write makes the operator write once more.
      interfere: (stage) => expect(hasItsVm(stage)).resolves.toBe(true),
      agents: "succeed",
      expected: { phase: "succeeded", launches: [1], vms: 1 },
    }
    const calls = await play(scenario, Number.POSITIVE_INFINITY, "before")
    const writes = calls.filter((call) => call.includes(" "))
    expect(writes.length, writes.join(", ")).toBeLessThanOrEqual(8)
  })
})
