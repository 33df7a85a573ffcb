import { afterAll, beforeAll, describe, expect, it } from "vitest"
import type { ControlPlane } from "../../dev/controlplane/control-plane.ts"
import { startPrivateControlPlane } from "../control-plane.ts"
import { processRuntime } from "../harness/container-runtime.ts"
import { gate, Installation } from "../harness/installation.ts"

let controlPlane: ControlPlane
let berth: Installation

beforeAll(async () => {
  controlPlane = await startPrivateControlPlane()
  const { kubeconfigPath: kubeconfig } = controlPlane
  berth = await Installation.create({ name: "restart", kubeconfig, runtime: processRuntime })
  await berth.startOperator()
})
afterAll(async () => {
  await berth?.close()
  await controlPlane?.stop()
})

describe("a restart of the API server", { timeout: 200_000 }, () => {
  it("is survived by operator, façade and agents: every job ends after one run", async () => {
    await berth.submit("short", "echo began; sleep 1; echo done")
    await berth.submit("long", gate("echo began", "echo done"))
    const started = (job: string) => berth.job(job).status?.startTime !== undefined
    await berth.untilJobs("jobs started", () => ["short", "long"].every(started))
    await controlPlane.restartApiServer()
    await berth.openGate(berth.launchesOf("long")[0]?.metadata.name ?? "")
    await berth.submit("after", "echo began; echo done")

    await berth.reached("succeeded", "short", "long", "after")
    await berth.allOver()
    for (const job of ["short", "long", "after"]) {
      expect(await berth.log(job)).toBe("began\ndone\n")
      expect(berth.launchesOf(job)).toHaveLength(1)
    }
    expect(await berth.vms()).toHaveLength(3)
    expect(await berth.runningOn()).toEqual([])
    expect(berth.programs.every(({ running }) => running)).toBe(true)
  })
})
