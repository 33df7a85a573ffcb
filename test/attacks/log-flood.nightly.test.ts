import { afterAll, beforeAll, expect, it } from "vitest"
import { GatewayClient } from "../../src/agent/gateway-client.ts"
import { GatewayError } from "../../src/agent/gateway-connection.ts"
import { DEFAULT_LOG_CAP_BYTES } from "../../src/api/logs/store.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import { bootConfig, generateAgentKeys } from "../../src/core/protocol/messages.ts"
import { BOOTSTRAP_KEY, startGateway, type TestGateway } from "../harness/gateway.ts"
import { launchFixture } from "../harness/launches.ts"

const fixture = launchFixture("log-flood")
let gateway: TestGateway

beforeAll(async () => {
  gateway = await startGateway(fixture)
})
afterAll(() => gateway?.close())

async function vm(): Promise<{ launch: StoredLaunch; client: GatewayClient }> {
  const launch = await fixture.launch({})
  const config = bootConfig({ ...launch, spec: { ...launch.spec, gatewayUrl: gateway.url } }, BOOTSTRAP_KEY)
  const client = new GatewayClient(config, await generateAgentKeys(), systemClock)
  await client.register({ version: "test", runtime: "process" })
  return { launch, client }
}

/** Piece of log of the flood. */
const PIECE = Buffer.alloc(192 * 1024, "flood\n")

/** Sends log as fast as the gateway takes it, until it is refused. Returns the pieces that were taken. */
async function flood(client: GatewayClient): Promise<number> {
  for (let taken = 0; ; taken++) {
    try {
      await client.sendLog(taken * PIECE.length, PIECE)
    } catch (error) {
      expect(error).toBeInstanceOf(GatewayError)
      expect(error).toMatchObject({ status: 429 })
      return taken
    }
  }
}

it("the gateway refuses the log of a VM that sends as fast as it can, and takes the reports and logs of all others", async () => {
  const [loud, quiet] = [await vm(), await vm()]
  const flooded = flood(loud.client)
  let isOver = false
  void flooded.finally(() => {
    isOver = true
  })
  // Far fewer than one VM may send in a minute.
  let sent = ""
  for (let beat = 0; beat < 20 || (!isOver && beat < 500); beat++) {
    await quiet.client.report({ sequence: beat + 1, attempt: 1, retryCount: 0 })
    const line = `line ${beat}\n`
    await quiet.client.sendLog(sent.length, Buffer.from(line))
    sent += line
  }
  // Messages of one kind in a minute. A minute may end in the middle.
  const taken = await flooded
  expect(taken).toBeGreaterThanOrEqual(600)
  expect(taken).toBeLessThanOrEqual(1200)
  await loud.client.report({ sequence: 1, attempt: 1, retryCount: 0 })
  expect((await gateway.logOf(quiet.launch)).toString()).toBe(sent)
  expect((await gateway.logOf(loud.launch)).length).toBeLessThanOrEqual(DEFAULT_LOG_CAP_BYTES)
  await Promise.all([loud.client.close(), quiet.client.close()])
})
