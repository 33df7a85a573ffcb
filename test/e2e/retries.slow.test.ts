import { afterAll, beforeAll, expect, it } from "vitest"
import type { LaunchList } from "../../src/api/resources/jobs/launches.ts"
import { isTerminal, type JobSpec } from "../../src/core/apis/job.ts"
import { missingForContainers } from "../agent/images.ts"
import { kubeconfigPath } from "../control-plane.ts"
import { containerRuntime } from "../harness/container-runtime.ts"
import { Installation } from "../harness/installation.ts"
import { needing } from "../needing.ts"

const containers = needing(await missingForContainers())

containers.describe("a container that runs out of memory", { timeout: 400_000 }, () => {
  let berth: Installation

  beforeAll(async () => {
    const options = { name: "memory", kubeconfig: kubeconfigPath() }
    berth = await Installation.create({ ...options, runtime: await containerRuntime() })
  })
  afterAll(() => berth?.close())

  async function run(name: string, script: string, spec: Partial<JobSpec>): Promise<void> {
    await berth.submit(name, script, spec)
    await berth.untilJobs(`${name} over`, () => isTerminal(berth.job(name).status?.phase))
    await berth.allOver()
  }

  it("dies with 256 MiB, and succeeds with 512 MiB on its second VM", async () => {
    const operator = await berth.startOperator({ memoriesGib: [0.25, 0.5, 1] })
    const spec = { resources: { memory: "256Mi" }, maxMemory: "512Mi", maxRetries: 3 }
    let name = ""
    // On a busy machine the engine misses some kills for memory (https://github.com/containerd/containerd/issues/8893).
    for (let tries = 1; tries <= 3; tries++) {
      name = `grows-${tries}`
      await run(name, "echo began; exec busybox dd if=/dev/zero of=/dev/null bs=300M count=1", spec)
      if (berth.launchesOf(name)[0]?.status?.agent?.finish?.cause !== undefined) break
    }
    const [first, second, ...others] = berth.launchesOf(name)
    expect(others).toEqual([])
    expect(first?.status?.agent).toMatchObject({
      // The rule that maxMemory implies ends the retries in the same VM.
      retryCount: 0,
      finish: { reason: "ContainerFailed", exitCode: 137, cause: "OutOfMemory" },
    })
    expect(second?.status?.agent?.finish).toMatchObject({ reason: "Succeeded" })
    expect([first, second].map((launch) => launch?.spec.offer.memoryGib)).toEqual([0.25, 0.5])
    const { status } = berth.job(name)
    expect(status).toMatchObject({
      phase: "succeeded",
      launches: { count: 2, retried: 1, lost: 0 },
      retries: [{ launch: 1, reason: "OutOfMemory", exitCode: 137, memoryGib: 0.5 }],
    })
    expect(status?.placement?.reason).toMatch(
      /^launch 1 ran out of its 0.25 GiB; the next VM has 0.5 GiB \(attempt 2, \$0.04\/h instead of \$0.02\); local local-2 in local/,
    )
    const { launches } = (await (await berth.fetch(`/jobs/${name}/launches`)).json()) as LaunchList
    expect(launches.map(({ failure }) => failure?.reason)).toEqual(["OutOfMemory", undefined])
    const costs = launches.map(({ cost_usd }) => cost_usd ?? 0)
    expect(Math.min(...costs)).toBeGreaterThan(0)
    expect(status?.cost?.actualUsd).toBeCloseTo(
      costs.reduce((sum, cost) => sum + cost, 0),
      6,
    )
    console.info(`${status?.placement?.reason}; the VMs cost $${costs.join(" and $")}`)
    await operator.stop()
  })
})
