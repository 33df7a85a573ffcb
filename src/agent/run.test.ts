import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { pino } from "pino"
import { afterEach, beforeEach, describe, expect, it } from "vitest"
import { systemClock } from "../core/apis/clock.ts"
import type { RunOrder } from "../core/protocol/protocol.ts"
import { type AgentState, Disk } from "./disk.ts"
import { type RunOptions, runToEnd, type StopCause } from "./run.ts"
import { type Container, type Ended, RunError, type Runtime } from "./runtimes/runtime.ts"
import { Spool } from "./spool.ts"

const ORDER: RunOrder = {
  run: { image: "busybox", workdir: { sha256: "0".repeat(64) } },
  secretEnv: {},
  gpus: 0,
}

/** Container that has ended. */
const ENDED: Container = {
  startTime: "2026-01-01T00:00:00Z",
  stopSignal: "SIGTERM",
  async *output() {},
  wait: () => Promise.resolve({ exitCode: 0 }),
  signal: () => Promise.resolve(false),
  read: () => Promise.resolve(undefined),
  remove: () => Promise.resolve(),
}

const NO_SESSIONS: RunOptions["sessions"] = { admitTo: () => () => undefined }
const NO_METER: RunOptions["meter"] = { start: () => () => undefined, finish: () => undefined }

interface Options {
  limits: AgentState["limits"]
  ended: Ended
  /** True if a signal reaches the container. */
  isRunning: boolean
  meter: RunOptions["meter"]
}

type Step = "workdir" | "pull" | "mount"

let folder: string

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "berth-run-"))
})
afterEach(() => rm(folder, { recursive: true, force: true }))

const NOTHING: Record<Step, () => Promise<void>> = {
  workdir: () => Promise.resolve(),
  pull: () => Promise.resolve(),
  mount: () => Promise.resolve(),
}

/** Runs with these steps before the start. Returns the finish, the number of starts and the steps that were aborted. */
async function run(
  steps: Record<Step, (signal: AbortSignal) => Promise<void>>,
  stop = new AbortController(),
  { limits, ended = { exitCode: 0 }, isRunning = false, meter = NO_METER }: Partial<Options> = {},
) {
  const aborted: Step[] = []
  let starts = 0
  const step = (name: Step, signal: AbortSignal): Promise<void> => {
    signal.addEventListener("abort", () => aborted.push(name))
    return steps[name](signal)
  }
  const unused = () => Promise.reject(new Error("not expected"))
  const runtime: Runtime = {
    name: "docker",
    prepare: (_, { signal }) => step("pull", signal),
    mount: (_, { signal }) => step("mount", signal),
    start: () => {
      starts++
      const signal = () => Promise.resolve(isRunning)
      return Promise.resolve({ ...ENDED, signal, wait: () => Promise.resolve(ended) })
    },
    find: () => Promise.resolve(undefined),
    flush: () => Promise.resolve(),
    watchGpus: () => Promise.resolve(undefined),
    ...{ renew: unused, deleteCheckpoints: unused, clear: unused, wipe: unused },
  }
  await using spool = await Spool.open(join(folder, "output"), {
    clock: systemClock,
    limit: 1000,
    onAppend: () => undefined,
  })
  const disk = await Disk.open(folder, { launch: "l", since: "2026-01-01T00:00:00Z" }, (error) =>
    expect.unreachable(String(error)),
  )
  if (limits !== undefined) disk.update({ limits })
  const finish = await runToEnd({
    ...{ runtime, spool, stop, disk, clock: systemClock, logger: pino({ enabled: false }) },
    meter,
    sessions: NO_SESSIONS,
    vm: { lifetimeSeconds: 3600 },
    order: Promise.resolve(ORDER),
    reorder: () => Promise.resolve(ORDER),
    fetchWorkdir: (_, signal) => step("workdir", signal),
    onChange: () => undefined,
    stopGraceSeconds: 1,
    hurry: new AbortController().signal,
  })
  return { finish, starts, aborted: aborted.sort() }
}

/** Step that ends only when it is aborted, like a download that hangs. */
const hangs = (signal: AbortSignal): Promise<void> =>
  new Promise((_, reject) => signal.addEventListener("abort", () => reject(new Error("aborted"))))

const fails = (message: string) => () => Promise.reject(new RunError("ImagePullFailed", message))

describe("runToEnd after a failed container", () => {
  const OUT_OF_MEMORY: Ended = { exitCode: 137, message: "OOMKilled", cause: "OutOfMemory" }
  const newVm = { action: "newVm" as const }

  it.each<[string, AgentState["limits"], Ended, number]>([
    ["without a rule uses its retries", { maxRetries: 1 }, OUT_OF_MEMORY, 2],
    [
      "with a rule on its cause ends",
      { maxRetries: 1, retryRules: [{ reasons: ["OutOfMemory"], ...newVm }] },
      OUT_OF_MEMORY,
      1,
    ],
    [
      "with a rule on its exit code ends",
      { maxRetries: 1, retryRules: [{ exitCodes: ["70-75"], ...newVm }] },
      { exitCode: 75 },
      1,
    ],
    [
      "with a rule that lets the job fail ends",
      { maxRetries: 1, retryRules: [{ action: "fail" }] },
      { exitCode: 1 },
      1,
    ],
    [
      "killed, but not for its memory, uses its retries",
      { maxRetries: 1, retryRules: [{ reasons: ["OutOfMemory"], ...newVm }] },
      { exitCode: 137 },
      2,
    ],
    [
      "with a rule on another code uses its retries",
      { maxRetries: 1, retryRules: [{ exitCodes: [76], ...newVm }] },
      { exitCode: 75 },
      2,
    ],
  ])("%s", async (_, limits, ended, attempts) => {
    const { finish, starts } = await run(NOTHING, new AbortController(), { limits, ended })
    expect(starts).toBe(attempts)
    const { exitCode, cause } = ended
    expect(finish).toMatchObject({ reason: "ContainerFailed", exitCode })
    expect(finish.cause).toBe(cause)
  })

  it("says that a fault before its start may pass", async () => {
    const busy = () => Promise.reject(new RunError("VolumeMountFailed", "503", undefined, true))
    expect((await run({ ...NOTHING, mount: busy })).finish).toMatchObject({
      reason: "VolumeMountFailed",
      transient: true,
    })
    expect((await run({ ...NOTHING, pull: fails("no such image") })).finish.transient).toBeUndefined()
  })
})

describe("runToEnd with an idle container", () => {
  /** Runs a container that ends with 143 at its stop signal, and is idle from its start. */
  async function idleRun(limits: Partial<NonNullable<AgentState["limits"]>>) {
    const usage = { seconds: 300, cpuMean: 0, cpuPeak: 0, memoryPeakMib: 1 }
    const stop = new AbortController()
    const start = (): (() => void) => {
      stop.abort("idle" satisfies StopCause)
      return () => undefined
    }
    const meter = { start, finish: () => usage }
    const { finish, starts } = await run(NOTHING, stop, {
      ...{ meter, limits: { maxRetries: 3, ...limits }, ended: { exitCode: 143 }, isRunning: true },
    })
    expect(finish.usage).toEqual(usage)
    expect(starts).toBe(1)
    return finish
  }

  it.each([
    ["GPUs", { gpus: 1, idleLimit: { seconds: 600 } }, "no GPU above 5 % for 10 min"],
    ["vCPUs", { gpus: 0, idleLimit: {} }, "CPU at most 5 % for 30 min"],
  ])("ends one that does not use its %s, without a retry, and says what helps", async (_what, limits, why) => {
    const finish = await idleRun(limits)
    expect(finish).toMatchObject({ reason: "DeadlineExceeded", cause: "Idle", exitCode: 143 })
    const helps = "it was stopped. Raise idleLimit.seconds, or remove idleLimit, if it waits on purpose"
    expect(finish.message).toBe(`${why}; ${helps}`)
  })
})

describe("runToEnd before the start of a container", () => {
  it("fetches the workdir, pulls the image and mounts the buckets at the same time", async () => {
    const begun = new Set<Step>()
    const all = Promise.withResolvers<void>()
    const meets = (name: Step) => async (): Promise<void> => {
      if (begun.add(name).size === 3) all.resolve()
      await all.promise
    }
    const { finish, starts } = await run({ workdir: meets("workdir"), pull: meets("pull"), mount: meets("mount") })
    expect(finish.reason).toBe("Succeeded")
    expect(starts).toBe(1)
  })

  it("ends with the first error, and aborts the rest", async () => {
    const { finish, starts, aborted } = await run({ workdir: hangs, pull: fails("no such image"), mount: hangs })
    expect(finish).toMatchObject({ reason: "ImagePullFailed", message: "no such image" })
    expect(starts).toBe(0)
    expect(aborted).toEqual(["mount", "pull", "workdir"])
  })

  it("ends with the image's error if the image and a bucket fail at once", async () => {
    const { finish } = await run({ workdir: hangs, pull: fails("first"), mount: fails("second") })
    expect(finish.message).toBe("first")
  })

  it("stops at once, even if a step ignores its signal", async () => {
    const stop = new AbortController()
    const deaf = () => new Promise<void>(() => stop.abort("stop" satisfies StopCause))
    const { finish, starts } = await run({ workdir: hangs, pull: hangs, mount: deaf }, stop)
    expect(finish.reason).toBe("Stopped")
    expect(starts).toBe(0)
  })
})
