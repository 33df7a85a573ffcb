import { once } from "node:events"
import { expect } from "vitest"
import { secondsBetween } from "../../src/core/apis/clock.ts"
import type { Run } from "../../src/core/apis/job.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import { until } from "../harness/eventually.ts"
import { containersOf } from "./images.ts"
import { containers, fixture, kill, newDisk, prepareAgents, shell, start, startProcess } from "./suite.ts"

prepareAgents()

const finishOf = async (launch: StoredLaunch) => (await fixture.agentOf(launch))?.finish

const failing = (keepSeconds: number, more: Partial<Run> = {}) => shell("exit 1", { debug: { keepSeconds }, ...more })

containers.describe("a VM that is kept after a failure", () => {
  containers.it("stays when its agent is restarted, until Berth ends it", async () => {
    const launch = await fixture.launch(failing(3600))
    const disk = await newDisk()
    const first = await startProcess(launch, "docker", disk)
    await until("the VM is kept", async () => (await finishOf(launch))?.keptUntil !== undefined)
    const [container] = await containersOf(launch)
    await kill(first)
    const second = await startProcess(launch, "docker", disk)
    const [beat, exited] = [(await fixture.agentOf(launch))?.sequence, once(second, "exit")]
    // The container stays.
    expect(await finishOf(launch)).toMatchObject({ reason: "ContainerFailed", exitCode: 1 })
    expect(beat).toBeDefined()
    expect((await containersOf(launch)).map(({ Id }) => Id)).toEqual([container?.Id])
    await fixture.end(launch)
    await exited
    expect(await containersOf(launch)).toEqual([])
  })

  containers.it("is kept no longer than its lifetime and its budget", async () => {
    const launch = await fixture.launch(failing(14_400), { budgetSeconds: 600 })
    const { exit, shutDown } = await start(launch, { runtime: "docker" })
    await until("the VM is kept", async () => (await finishOf(launch))?.keptUntil !== undefined)
    const { time = "", keptUntil = "" } = (await finishOf(launch)) ?? {}
    expect(secondsBetween(time, keptUntil)).toBeGreaterThan(400)
    expect(secondsBetween(time, keptUntil)).toBeLessThanOrEqual(571)
    shutDown()
    expect(await exit).toMatchObject({ finish: { reason: "ContainerFailed" } })
    expect(await containersOf(launch)).toEqual([])
  })

  containers.it("is kept after a timeout, and not after a stop or a success", async () => {
    const slow = await fixture.launch(shell("sleep 1000", { timeoutSeconds: 1, debug: { keepSeconds: 2 } }))
    const timedOut = await start(slow, { runtime: "docker", stopGraceSeconds: 1 })
    expect(await timedOut.exit).toMatchObject({
      cause: "finished",
      finish: { reason: "DeadlineExceeded", keptUntil: expect.any(String) },
    })
    const done = await fixture.launch(shell("exit 0", { debug: { keepSeconds: 3600 } }))
    const { exit } = await start(done, { runtime: "docker" })
    expect((await exit).finish).toEqual(expect.not.objectContaining({ keptUntil: expect.anything() }))
  })
})
