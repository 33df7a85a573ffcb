import { describe, expect, test } from "vitest"
import { type FinishReason, isOver, pricesOf, type StoredLaunch } from "../../src/core/apis/launch.ts"
import { sumOfParts } from "../../src/core/apis/price.ts"
import { Reflector } from "../../src/core/kube/reflector.ts"
import { LAUNCHES } from "../../src/core/resources.ts"
import { idlenessOf, vmNameOf } from "../../src/core/reuse/reuse.ts"
import { type ControllerHarness, controllerHarnesses } from "../harness/controllers.ts"
import { silentLogger } from "../harness/silent-logger.ts"

const newHarness = controllerHarnesses()

const TASK_SECONDS = 60
const CLEAN_SECONDS = 1
const PARALLELISM = 20
/** Tasks with reuse, and without it, where each of them costs the same. */
const SIZES = { reused: 1000, alone: 100 }

/** Seconds of boot and end that clouds bill for each VM, and how much sooner an array must end with reuse. */
const CLOUDS = [
  { cloud: "aws", overheadSeconds: 40, sooner: 1.5 },
  { cloud: "gcp", overheadSeconds: 60, sooner: 1.8 },
  { cloud: "azure", overheadSeconds: 130, sooner: 2.5 },
]

/** Largest part of the bill that is no task, idle time included. */
const MOST_OVERHEAD = 0.1

interface Outcome {
  /** Part of the bill that is no task. */
  overhead: number
  secondsPerTask: number
  vms: number
}

describe.each(CLOUDS)(
  "an array of $cloud's VMs, each with $overheadSeconds s of boot and end",
  ({ overheadSeconds, sooner }) => {
    test("pays at most a tenth more than its tasks, and ends sooner", async () => {
      const reused = await runArray(await newHarness(), SIZES.reused, overheadSeconds, { reuse: { idleSeconds: 120 } })
      const alone = await runArray(await newHarness(), SIZES.alone, overheadSeconds, {})
      const gain = alone.secondsPerTask / reused.secondsPerTask
      const [part, other] = [reused.overhead, alone.overhead].map((share) => `${(100 * share).toFixed(1)} %`)
      console.info(
        `${SIZES.reused} tasks of ${TASK_SECONDS} s on ${reused.vms} VMs with ${overheadSeconds} s of boot and end: ${part} overhead, ` +
          `${other} without reuse; ${gain.toFixed(2)} times sooner`,
      )
      expect(reused.overhead).toBeLessThanOrEqual(MOST_OVERHEAD)
      expect(gain).toBeGreaterThanOrEqual(sooner)
    }, 3_600_000)
  },
)

/** Runs an array of tasks to its end. The clock jumps to each event of an agent, and runs on while Berth works. */
async function runArray(
  harness: ControllerHarness,
  size: number,
  overheadSeconds: number,
  definition: object,
): Promise<Outcome> {
  const { client, namespace, clock } = harness
  const launches = new Reflector<StoredLaunch>({ client, resource: LAUNCHES, namespace, logger: silentLogger })
  const ending = new AbortController()
  const watching = launches.run(ending.signal)
  harness.operator({ observeSeconds: 5, settings: { launchesPerMinute: 10_000 } })
  const begunAt = clock.monotonic()
  const jobDefinition = { image: "busybox", timeoutSeconds: 600, ...definition }
  await harness.submitArray("tasks", { size, parallelism: PARALLELISM, jobDefinition })
  const dueAt = new Map<string, number>()
  try {
    for (;;) {
      const live = launches.store.list().filter((launch) => !isOver(launch))
      const due = live.flatMap((launch) => dueOf(launch, overheadSeconds, dueAt, clock.monotonic()))
      const now = clock.monotonic()
      const ready = due.filter(({ at }) => at <= now)
      if (ready.length > 0) {
        await Promise.all(ready.map(({ act }) => act(harness)))
        await pause()
        continue
      }
      const { phase, counts } = (await harness.array("tasks")).status ?? {}
      if (phase === "succeeded" && live.length === 0) break
      const unfinished = size - (counts?.succeeded ?? 0)
      const isWorking = due.length < Math.min(PARALLELISM, unfinished)
      if (isWorking || due.length === 0) await pause()
      else clock.advance(Math.min(...due.map(({ at }) => at)) - now)
    }
  } finally {
    ending.abort()
    await watching
  }
  const seconds = clock.monotonic() - begunAt
  const usd = launches.store.list().reduce((sum, { status }) => sum + (status?.costUsd ?? 0), 0)
  const hourlyUsd = sumOfParts(pricesOf(launches.store.list()[0] as StoredLaunch))
  const tasksUsd = (size * TASK_SECONDS * hourlyUsd) / 3600
  return { overhead: 1 - tasksUsd / usd, secondsPerTask: seconds / size, vms: harness.cloud.vms.length }
}

interface Due {
  /** Monotonic seconds. */
  at: number
  act: (harness: ControllerHarness) => Promise<void>
}

/** Returns the next event of a Launch's agent; none if Berth has to do something first. */
function dueOf(launch: StoredLaunch, overheadSeconds: number, known: Map<string, number>, now: number): Due[] {
  const { name } = launch.metadata
  const { agent, vm } = launch.status ?? {}
  const next = (step: string, after: number, act: Due["act"]): Due[] => {
    const key = `${name} ${step}`
    const at = known.get(key) ?? now + after
    known.set(key, at)
    return [{ at, act }]
  }
  if (vm === undefined || launch.spec.ended === true || vm.state === "terminating") return []
  const isNew = vmNameOf(launch) === name
  if (agent === undefined) return next("register", isNew ? overheadSeconds : 0, (harness) => harness.register(name))
  if (agent.startTime === undefined) return next("start", 0, (harness) => harness.start(name))
  const succeeded: FinishReason = "Succeeded"
  if (agent.finish === undefined) return next("finish", TASK_SECONDS, (harness) => harness.finish(name, succeeded))
  if (idlenessOf(launch).is === "cleaning") return next("idle", CLEAN_SECONDS, (harness) => harness.idle(name))
  return []
}

/** Gives Berth time to work. */
function pause(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 20))
}
