import { describe, expect, test } from "vitest"
import { agentOf, at, jobOf, launchOf, marketOf, seenOf, time, vmStatus } from "../../../test/harness/builders.ts"
import type { JobSpec, JobStatus, StoredJob } from "../../core/apis/job.ts"
import type { AgentStatus, Finish, LaunchSpec, StoredLaunch } from "../../core/apis/launch.ts"
import { idlenessOf, keptVms, mayHandOver } from "../../core/reuse/reuse.ts"
import { JOB_DEFAULTS } from "../../market/placement/settings.ts"
import { decide as decideLaunch } from "../launch/decide.ts"
import { LAUNCH_DEFAULTS } from "../launch/settings.ts"
import { decide } from "./decide.ts"
import type { JobObservation } from "./facts.ts"

const DEBUG = { keepSeconds: 3600 }
const KEPT: Finish = { reason: "ContainerFailed", exitCode: 3, time: time(100), keptUntil: time(3700) }
const running: JobStatus = { phase: "running", reason: "Started", message: "m", startTime: time(30) }
const SETTINGS = { ...JOB_DEFAULTS, allowsSessions: true }

function debugged(status: JobStatus, spec: Partial<JobSpec> = {}): StoredJob {
  const metadata = { name: "train", uid: "train", finalizers: ["berth.dev/job"] }
  return jobOf({ metadata, spec: { debug: DEBUG, ...spec }, status })
}

function launched(
  job: StoredJob,
  finish: Finish = KEPT,
  agent: Partial<AgentStatus> = {},
  spec: Partial<LaunchSpec> = {},
) {
  return launchOf(job, 1, {
    spec: {
      run: { image: "busybox", debug: DEBUG },
      hourlyPrices: { machineUsd: 1, diskUsd: 0.1, addressUsd: 0 },
      ...spec,
    },
    status: vmStatus({ agent: agentOf({ startTime: time(30), finish, ...agent }) }),
  })
}

function decideOn(
  job: StoredJob,
  launches: readonly StoredLaunch[],
  more: Partial<JobObservation> = {},
  allows = true,
) {
  const observed = { launches, market: () => marketOf(), ...seenOf(job), ...more }
  return decide(job, observed, at(200), { ...SETTINGS, allowsSessions: allows })
}

const failed = (launch = launched(debugged(running))) => decideOn(debugged(running), [launch]).status

describe("a job whose VM is kept", () => {
  test("has failed at once, and says until when and for how much", () => {
    const decision = decideOn(debugged(running), [launched(debugged(running))])
    expect(decision.actions.map(({ do: what }) => what)).toEqual(["writeStatus"])
    expect(decision.status).toMatchObject({ phase: "failed", vm: { state: "running" }, keptUntil: time(3700) })
    const kept = `its VM is kept until ${time(3700)} and costs up to $1.10 more: berth debug train`
    expect(decision.status.message).toBe(`the container failed (exit code 3); ${kept}`)
    expect(decideOn(debugged(decision.status), [launched(debugged(running))])).toMatchObject({ actions: [] })
  })

  test.each<[string, Partial<JobSpec>, Partial<JobObservation>]>([
    ["by request", { debugEnded: true }, {}],
    ["for a cap that cancels jobs", {}, { cancel: { message: "the cap is reached" } }],
    ["with its project", {}, { ending: "the project is being deleted" }],
  ])("ends it %s", (_, spec, more) => {
    const job = debugged(failed(), spec)
    const { actions, status } = decideOn(job, [launched(job)], more)
    expect(actions.filter(({ do: what }) => what === "endLaunch")).toHaveLength(1)
    expect(status.settled).toBeUndefined()
  })

  test("looks again at a cap that cancels jobs", () => {
    const job = debugged(failed())
    expect(decideOn(job, [launched(job)], { cancel: { secondsLeft: 20 } })).toMatchObject({ requeueAfter: 20 })
  })

  test("is settled, and no longer kept, once the VM is deleted", () => {
    const job = debugged(failed())
    const { status, ...launch } = launched(job)
    const over = { ...launch, status: { ...status, phase: "terminated", costUsd: 0.2 } } as StoredLaunch
    const decision = decideOn(job, [over])
    expect(decision.status).toMatchObject({ settled: true, phase: "failed" })
    expect(decision.status.keptUntil).toBeUndefined()
  })

  test("gives up the VM if a rule gives the job a new one", () => {
    const job = debugged(running, { retryRules: [{ exitCodes: ["3"], action: "newVm" }] } as Partial<JobSpec>)
    const { actions, status } = decideOn(job, [launched(job)])
    expect(status).toMatchObject({ phase: "queued", reason: "Retrying" })
    expect(actions.map(({ do: what }) => what)).toContain("endLaunch")
  })

  test("says why its VM is not kept where no sessions are allowed", () => {
    const plain = { reason: "ContainerFailed", exitCode: 3, time: time(100) } as const
    const { status } = decideOn(debugged(running), [launched(debugged(running), plain)], {}, false)
    expect(status.message).toContain("its VM is not kept, because this installation allows no sessions")
  })
})

describe("a VM that is kept", () => {
  const observed = {
    instance: { is: "found", vm: { id: "vm-1", launch: "train-1", state: "running", createTime: time(0) } },
    inFlight: false,
    heartbeatTimedOut: false,
    job: "ending",
    isCounted: false,
  } as never
  const decided = (seconds: number, launch: StoredLaunch) =>
    decideLaunch(launch, observed, at(seconds), LAUNCH_DEFAULTS)
  const kept = (agent: Partial<AgentStatus> = {}, spec: Partial<LaunchSpec> = {}) => {
    const launch = launched(debugged(running), KEPT, agent, spec)
    return { ...launch, metadata: { ...launch.metadata, finalizers: ["berth.dev/vm"] } } as StoredLaunch
  }
  const terminates = (seconds: number, launch: StoredLaunch) =>
    decided(seconds, launch).actions.some(({ do: what }) => what === "terminate")

  test("is left alone until its time is over, with a slack to end itself", () => {
    expect(terminates(3700, kept())).toBe(false)
    expect(decided(200, kept()).requeueAfter).toBeLessThanOrEqual(3531)
    expect(terminates(3731, kept())).toBe(true)
    expect(decided(200, kept()).status?.message).toBe(`the VM is kept for sessions until ${time(3700)}`)
  })

  test("ends when the job no longer needs it, or it is not trusted", () => {
    expect(terminates(200, kept({}, { ended: true }))).toBe(true)
    expect(terminates(200, kept({ conflictTime: time(150) }))).toBe(true)
  })

  test("is never another job's, also if its job has `reuse`", () => {
    const reusing = kept({}, { run: { image: "busybox", debug: DEBUG, reuse: { idleSeconds: 300 } } })
    expect(idlenessOf(reusing).is).toBe("debug")
    expect(keptVms([reusing])).toEqual([])
    expect(mayHandOver(reusing)).toBe(false)
    const ended = { ...reusing, spec: { ...reusing.spec, ended: true } }
    expect(idlenessOf(ended)).toMatchObject({ is: "none" })
  })
})
