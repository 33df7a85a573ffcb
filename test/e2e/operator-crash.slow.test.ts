import { setTimeout as delay } from "node:timers/promises"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import type { JobPhase, JobSpec } from "../../src/core/apis/job.ts"
import { JOBS } from "../../src/core/resources.ts"
import { kubeconfigPath } from "../control-plane.ts"
import { containerRuntime } from "../harness/container-runtime.ts"
import { GATE_WAIT, gate, Installation } from "../harness/installation.ts"

let berth: Installation

beforeAll(async () => {
  berth = await Installation.create({ name: "crash", kubeconfig: kubeconfigPath(), runtime: await containerRuntime() })
})
afterAll(() => berth?.close())

/** Returns the only Launch of a job. Throws if there are none or several. */
function onlyLaunchOf(job: string): string {
  const [launch, ...others] = berth.launchesOf(job)
  if (launch === undefined || others.length > 0) throw new Error(`${job} had ${others.length + 1} or no Launches`)
  return launch.metadata.name
}

describe("Berth after SIGKILL of the operator", { timeout: 400_000 }, () => {
  it("ends a job after one run in one VM when the operator is killed while the job is queued or booting", async () => {
    const whileQueued = await berth.startOperator({ withoutOffers: true })
    await berth.submit("booting", "echo began; sleep 1; echo done")
    await berth.reached("queued", "booting")
    await berth.killOperator(whileQueued)
    expect(berth.launchesOf("booting")).toEqual([])

    const beforeLaunch = await berth.startOperator({ hang: "beforeLaunch" })
    await beforeLaunch.printed(/calls launch/)
    await berth.killOperator(beforeLaunch)
    await berth.untilLaunches("launch written", () => berth.launchesOf("booting").length > 0)
    const launch = onlyLaunchOf("booting")
    expect(await berth.vms()).toEqual([])

    const afterLaunch = await berth.startOperator({ hang: "afterLaunch" })
    await berth.untilLaunches("agent registered", () => berth.launchesOf("booting")[0]?.status?.agent !== undefined)
    await berth.killOperator(afterLaunch)
    expect(berth.launchesOf("booting")[0]?.status?.vm?.id).toBeUndefined()

    const last = await berth.startOperator()
    await berth.reached("succeeded", "booting")
    await berth.allOver()
    expect(onlyLaunchOf("booting")).toBe(launch)
    expect(await berth.vms()).toEqual([launch])
    expect(await berth.log("booting")).toBe("began\ndone\n")
    expect(await berth.runningOn()).toEqual([])
    await last.stop()
  })

  it("keeps a container running when the operator is killed, and ends its job", async () => {
    const killed = await berth.startOperator()
    await berth.submit("running", gate("echo began", "echo done"))
    await berth.untilJobs("running started", () => berth.job("running").status?.startTime !== undefined)
    await killed.kill()
    const launch = onlyLaunchOf("running")

    // The container ends while no operator runs.
    await berth.openGate(launch)
    await berth.untilLaunches(
      "finish stored",
      () => berth.launchesOf("running")[0]?.status?.agent?.finish !== undefined,
    )
    expect(berth.job("running").status?.phase).not.toBe("succeeded")

    // This operator waits until the lease of the dead one expires.
    const next = await berth.startOperator()
    await berth.reached("succeeded", "running")
    await berth.allOver()
    expect(onlyLaunchOf("running")).toBe(launch)
    expect(await berth.log("running")).toBe("began\ndone\n")
    expect(await berth.runningOn()).toEqual([])
    await next.stop()
  })

  it("finishes a deletion that a killed operator has begun, the VM first", async () => {
    const killed = await berth.startOperator()
    // The container doesn't end before the operator was killed.
    await berth.submit("deleted", `trap '${GATE_WAIT}; sleep 2; exit 0' TERM; echo began; sleep 600 & wait`)
    await berth.untilJobs("deleted started", () => berth.job("deleted").status?.startTime !== undefined)
    const launch = onlyLaunchOf("deleted")
    const ref = { namespace: berth.namespace, name: "deleted" }
    await berth.client.delete(JOBS, ref)
    await berth.untilLaunches("launch ended", () => berth.launchesOf("deleted")[0]?.spec.ended === true)
    await berth.killOperator(killed)
    await berth.untilJobs("deletion", () => berth.job("deleted").metadata.deletionTimestamp !== undefined)
    await berth.openGate(launch)

    const next = await berth.startOperator()
    await berth.untilJobs("deleted job", () => berth.jobs.store.get(ref) === undefined)
    expect(await berth.runningOn([launch])).toEqual([])
    await next.stop()
  })

  it("ends each job of a batch correctly, in one VM each, when the operator is killed at random moments", async () => {
    const before = await berth.vms()
    for (const [name, { script, spec }] of Object.entries(BATCH)) await berth.submit(name, script, spec)
    const moments: number[] = []
    for (let kills = 0; kills < 3; kills++) {
      const operator = await berth.startOperator()
      await operator.printed(/"leading"/)
      const moment = Math.round(Math.random() * 2500)
      moments.push(moment)
      await delay(moment)
      await berth.killOperator(operator)
    }
    await berth.startOperator()
    await berth.allOver()
    const told = `killed ${moments.join(", ")} ms after it led`
    const launches: string[] = []
    for (const [name, { phase, runs }] of Object.entries(BATCH)) {
      expect(berth.job(name).status?.phase, `${name}, ${told}`).toBe(phase)
      launches.push(onlyLaunchOf(name))
      expect((await berth.log(name)).match(/began/g)?.length, `runs of ${name}, ${told}`).toBe(runs)
    }
    expect(await berth.vms(), told).toEqual([...before, ...launches].sort())
    expect(await berth.runningOn(), told).toEqual([])
  })
})

/** Jobs and their expected results. */
const BATCH: Record<string, { script: string; spec?: Partial<JobSpec>; phase: JobPhase; runs: number }> = {
  quick: { script: "echo began", phase: "succeeded", runs: 1 },
  short: { script: "echo began; sleep 2", phase: "succeeded", runs: 1 },
  long: { script: "echo began; sleep 9", phase: "succeeded", runs: 1 },
  failing: { script: "echo began; exit 3", phase: "failed", runs: 1 },
  retried: { script: "echo began; exit 3", spec: { maxRetries: 1 }, phase: "failed", runs: 2 },
  overdue: {
    script: "trap exit TERM; echo began; sleep 600 & wait",
    spec: { timeoutSeconds: 3 },
    phase: "failed",
    runs: 1,
  },
}
