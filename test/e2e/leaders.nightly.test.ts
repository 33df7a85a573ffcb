import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { kubeconfigPath } from "../control-plane.ts"
import { processRuntime } from "../harness/container-runtime.ts"
import { gate, Installation } from "../harness/installation.ts"

let berth: Installation

beforeAll(async () => {
  berth = await Installation.create({ name: "leaders", kubeconfig: kubeconfigPath(), runtime: processRuntime })
})
afterAll(() => berth?.close())

describe("two operators", { timeout: 200_000 }, () => {
  it("lead one after the other: an operator that was frozen past its lease changes nothing afterwards", async () => {
    const first = await berth.startOperator()
    await first.printed(/"leading"/)
    const second = await berth.startOperator()
    // This job needs no action, so the operators print nothing until its gate is opened.
    await berth.submit("before", gate("echo began", "true"))
    await berth.untilJobs("before started", () => berth.job("before").status?.startTime !== undefined)
    expect(second.output).not.toMatch(/"leading"|calls /)

    first.send("SIGSTOP")
    const silence = first.output.length
    try {
      await berth.submit("meanwhile", "echo began; sleep 2")
      await second.printed(/"leading"/)
      await berth.untilLaunches("a VM asked for", () => berth.launchesOf("meanwhile")[0]?.status?.vm?.id !== undefined)
      await berth.openGate(berth.launchesOf("before")[0]?.metadata.name ?? "")
    } finally {
      first.send("SIGCONT")
    }
    await first.printed(/lost the lease/)
    await berth.submit("after", "echo began")
    await berth.reached("succeeded", "before", "meanwhile", "after")
    await berth.allOver()

    expect(first.output.slice(silence)).not.toMatch(/"leading"|calls /)
    const jobs = ["before", "meanwhile", "after"]
    const launches = jobs.flatMap((job) => berth.launchesOf(job).map(({ metadata }) => metadata.name))
    expect(launches).toEqual(jobs.map((job) => `${berth.job(job).metadata.uid}-1`))
    expect(await berth.vms()).toEqual(launches.sort())
    for (const job of jobs) expect(await berth.log(job)).toBe("began\n")

    await second.stop()
    await berth.submit("again", "echo began")
    await berth.reached("succeeded", "again")
    expect(first.output.slice(silence)).toMatch(/"leading"/)
  })
})
