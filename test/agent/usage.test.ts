import { readdir } from "node:fs/promises"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { UsageDelivery } from "../../src/agent/usage/delivery.ts"
import type { Launches } from "../../src/api/gateway/launches.ts"
import { type Clock, systemClock, timestamp } from "../../src/core/apis/clock.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import type { UsagePoint } from "../../src/core/apis/usage.ts"
import { bootstrapToken, generateAgentKeys, publicKey, signMessage } from "../../src/core/protocol/messages.ts"
import type { MessageKind, ReportResponse } from "../../src/core/protocol/protocol.ts"
import { eventually } from "../harness/eventually.ts"
import { BOOTSTRAP_KEY, startGateway, type TestGateway } from "../harness/gateway.ts"
import { launchFixture } from "../harness/launches.ts"

const fixture = launchFixture("gateway-usage")
const START = new Date("2026-01-01T00:00:00Z")
let now = START
const clock: Clock = { ...systemClock, now: () => now }
let gateway: TestGateway
/** Calls of the gateway to the API server. */
const calls = { read: 0, write: 0 }

beforeAll(async () => {
  gateway = await startGateway(fixture, {
    launches: counting,
    // As the façade: heartbeats go to Leases.
    parts: { clock, heartbeats: { beat: () => undefined, size: 1 } },
  })
})
afterAll(() => gateway.close())

function counting(all: Launches): Launches {
  const counted = <Args extends unknown[], Result>(kind: keyof typeof calls, call: (...args: Args) => Result) => {
    return (...args: Args): Result => {
      calls[kind]++
      return call(...args)
    }
  }
  return {
    get: all.get,
    read: counted("read", all.read),
    patchAgentStatus: counted("write", all.patchAgentStatus),
    patchBootFailure: counted("write", all.patchBootFailure),
    untilChanged: all.untilChanged,
  }
}

/** Agent of a new Launch that has registered. */
async function startAgent() {
  const launch = await fixture.launch({})
  const { name } = launch.metadata
  const keys = await generateAgentKeys()
  const send = async (kind: MessageKind, message: object) => {
    const answer = await fetch(`${gateway.url}/agent/v1/launches/${name}/${kind}`, {
      method: "POST",
      headers: {
        "Content-Type": "application/jose",
        Authorization: `Bearer ${bootstrapToken(BOOTSTRAP_KEY, name)}`,
      },
      body: await signMessage(kind, { launch: name, ...message }, keys.signing),
    })
    return { status: answer.status, body: (await answer.json()) as ReportResponse }
  }
  const encryptionKey = publicKey(keys.encryption, "X25519")
  const signingKey = publicKey(keys.signing, "Ed25519")
  await send("register", { protocol: 1, version: "1", runtime: "docker", signingKey, encryptionKey, abilities: [] })
  let sequence = 0
  const report = (more: object) => send("report", { sequence: ++sequence, attempt: 1, retryCount: 0, ...more })
  return { launch, report }
}

function minutes(from: number, until: number): UsagePoint[] {
  return Array.from({ length: until - from }, (_, index) => ({
    time: START.getTime() + (from + index) * 60_000,
    seconds: 60,
    cpu: 0.5,
    memoryMib: 100,
  }))
}

/** Sends a report each minute, as an agent does. Returns the beginning of the last point that is stored. */
async function run({ report }: Awaited<ReturnType<typeof startAgent>>, length: number, hasUsage: boolean) {
  let stored = -1
  const meter = {
    points: minutes(0, 0),
    stored: (time: number) => {
      stored = time
    },
  }
  const delivery = new UsageDelivery(meter, { monotonic: () => now.getTime() / 1000 })
  for (let minute = 1; minute <= length; minute++) {
    now = new Date(START.getTime() + minute * 60_000)
    if (hasUsage) meter.points = minutes(0, minute).filter(({ time }) => time > stored)
    const sent = delivery.next(false)
    expect(sent.usage ?? []).toHaveLength(hasUsage ? 1 : 0)
    const { status, body } = await report(sent)
    expect(status).toBe(200)
    delivery.answered(sent, body)
  }
  return stored
}

const jobOf = ({ spec: { job } }: StoredLaunch) => ({ namespace: job.namespace, uid: job.uid })
const usage = { seconds: 60, cpuMean: 0.5, cpuPeak: 0.6, memoryPeakMib: 120 }
const finish = { reason: "Succeeded" as const, exitCode: 0, time: timestamp(START) }

describe("the usage of a VM", () => {
  it("costs the API server no call: only its finish is written, with the summary, as without usage", async () => {
    const counts = []
    const versions = []
    for (const hasUsage of [false, true]) {
      now = START
      const agent = await startAgent()
      await eventually(async () => expect((await agent.report({})).status).toBe(200))
      const { resourceVersion } = (await fixture.read(agent.launch)).metadata
      Object.assign(calls, { read: 0, write: 0 })
      const stored = await run(agent, 64, hasUsage)
      versions.push((await fixture.read(agent.launch)).metadata.resourceVersion === resourceVersion)
      const last = { usage: minutes(0, 65).filter(({ time }) => time > stored) }
      await agent.report({ finish: { ...finish, ...(hasUsage && { usage }) }, ...(hasUsage && last) })
      counts.push({ ...calls })
      const written = (await fixture.agentOf(agent.launch))?.finish
      expect(written).toEqual({ ...finish, ...(hasUsage && { usage }) })
      expect(await gateway.usage.read(jobOf(agent.launch))).toHaveLength(hasUsage ? 65 : 0)
    }
    expect(versions).toEqual([true, true])
    expect(counts[1]).toEqual(counts[0])
    expect(counts[1]?.write).toBe(1)
  })

  it("is acknowledged up to where it is stored, and stored once if the agent did not hear so", async () => {
    now = START
    const agent = await startAgent()
    expect(await run(agent, 29, true)).toBe(-1)
    now = new Date(START.getTime() + 31 * 60_000)
    await agent.report({ usage: minutes(0, 31) })
    const stored = await eventually(async () => {
      const { body } = await agent.report({ usage: minutes(0, 31) })
      expect(body.usageStored).toBe(START.getTime() + 30 * 60_000)
      return gateway.usage.read(jobOf(agent.launch))
    })
    expect(stored).toHaveLength(31)
    await agent.report({ usage: minutes(0, 31), finish })
    expect(await gateway.usage.read(jobOf(agent.launch))).toHaveLength(31)
  })

  it("never rejects a report, whatever it is: the finish is written", async () => {
    now = START
    for (const bad of [
      "all of it",
      [{ time: -1 }],
      Array(65).fill(minutes(0, 1)[0]),
      [{ ...minutes(0, 1)[0], gpu: 101 }],
    ]) {
      const agent = await startAgent()
      const answer = await agent.report({ usage: bad, finish: { ...finish, usage: { ...usage, cpuMean: "much" } } })
      expect(answer.status).toBe(200)
      expect((await fixture.agentOf(agent.launch))?.finish).toEqual(finish)
    }
  })

  it("is no log of any job", async () => {
    const agent = await startAgent()
    await agent.report({ usage: minutes(0, 1), finish })
    expect(await readdir(gateway.folder)).toContain("usage")
    for await (const { uid } of gateway.logs.list()) expect(uid).not.toBe(jobOf(agent.launch).uid)
    const refs = []
    for await (const ref of gateway.usage.list()) refs.push(ref)
    expect(refs).toContainEqual(jobOf(agent.launch))
  })
})
