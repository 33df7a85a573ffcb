import { afterAll, beforeAll, describe, expect, it } from "vitest"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import { kubeconfigPath } from "../control-plane.ts"
import { containerRuntime } from "../harness/container-runtime.ts"
import { gate, Installation } from "../harness/installation.ts"

let berth: Installation

beforeAll(async () => {
  const runtime = await containerRuntime()
  berth = await Installation.create({ name: "lost", kubeconfig: kubeconfigPath(), runtime })
  await berth.startOperator()
})
afterAll(() => berth?.close())

function hasStarted(launch: StoredLaunch | undefined): boolean {
  return launch?.status?.agent?.startTime !== undefined
}

/** Kills the agent of a job's n-th VM while the container runs, as when a VM's host fails. */
async function loseVm(job: string, number: number): Promise<void> {
  const launch = () => berth.launchesOf(job)[number - 1]
  await berth.untilLaunches(`container ${number} of ${job}`, () => hasStarted(launch()))
  process.kill(await berth.agentPid(launch()?.metadata.name ?? ""), "SIGKILL")
}

describe("Berth after SIGKILL of an agent", { timeout: 200_000 }, () => {
  it("queues the job of a lost VM again, and finishes it in another VM", async () => {
    await berth.submit("lost-once", gate("echo began", "echo done"))
    await loseVm("lost-once", 1)
    await berth.untilLaunches("second container", () => hasStarted(berth.launchesOf("lost-once")[1]))
    await berth.openGate(berth.launchesOf("lost-once")[1]?.metadata.name ?? "")
    await berth.reached("succeeded", "lost-once")
    await berth.allOver()
    const [first, second, ...others] = berth.launchesOf("lost-once")
    expect(first?.status?.loss?.reason).toBe("VMLost")
    expect(second?.status).toMatchObject({ phase: "terminated", agent: { finish: { reason: "Succeeded" } } })
    expect(others).toEqual([])
    // The second VM is requested only after the cloud has confirmed the termination of the first.
    const gone = Date.parse(first?.status?.vm?.terminationTime ?? "")
    expect(gone).toBeLessThanOrEqual(Date.parse(second?.metadata.creationTimestamp ?? "") + 1000)
    expect(berth.job("lost-once").status).toMatchObject({ launches: { count: 2, lost: 1 }, exitCode: 0 })
    expect(await berth.log("lost-once")).toMatch(/done\n$/)
    expect(await berth.runningOn()).toEqual([])
  })

  it("fails a job with VMLost after three lost VMs", async () => {
    await berth.submit("unlucky", "exec sleep 600")
    for (const number of [1, 2, 3]) await loseVm("unlucky", number)
    await berth.reached("failed", "unlucky")
    await berth.allOver()
    expect(berth.job("unlucky").status).toMatchObject({ reason: "VMLost", launches: { count: 3, lost: 3 } })
    expect(berth.launchesOf("unlucky")).toHaveLength(3)
    expect(await berth.runningOn()).toEqual([])
  })
})
