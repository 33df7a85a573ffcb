import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, beforeAll, expect, it } from "vitest"
import { runAgent } from "../../src/agent/main.ts"
import { type Clock, systemClock } from "../../src/core/apis/clock.ts"
import { until } from "../harness/eventually.ts"
import { startGateway, type TestGateway } from "../harness/gateway.ts"
import { launchFixture } from "../harness/launches.ts"
import { silentLogger } from "../harness/silent-logger.ts"

const fixture = launchFixture("agent-timers")
let gateway: TestGateway
let dataDir: string

beforeAll(async () => {
  gateway = await startGateway(fixture)
  dataDir = await mkdtemp(join(tmpdir(), "berth-agent-"))
})
afterAll(async () => {
  await gateway?.close()
  await rm(dataDir, { recursive: true, force: true })
})

/** Returns the system's clock and the seconds of its pending timers. */
function watchedClock(): { clock: Clock; pending: Set<number> } {
  const pending = new Set<number>()
  const setTimer: Clock["setTimer"] = (seconds, callback) => {
    // A unique number for each timer, close to its seconds.
    const name = seconds + Math.random() * 1e-6
    pending.add(name)
    const cancel = systemClock.setTimer(seconds, () => {
      pending.delete(name)
      callback()
    })
    return () => {
      pending.delete(name)
      cancel()
    }
  }
  return { clock: { ...systemClock, setTimer }, pending }
}

it("an agent leaves no timer pending after the VM's shutdown begins: a pending timer would keep the process and the VM alive", async () => {
  const launch = await fixture.launch({ command: ["sleep", "600"] })
  const { clock, pending } = watchedClock()
  const power = new AbortController()
  const userData = gateway.userData(launch)
  const exit = runAgent({ userData, dataDir, runtime: "process", clock, logger: silentLogger, signal: power.signal })
  await until("the container started", async () => (await fixture.agentOf(launch))?.startTime !== undefined)
  power.abort()
  expect(await exit).toMatchObject({ cause: "finished", finish: { reason: "Stopped" } })
  expect([...pending]).toEqual([])
})
