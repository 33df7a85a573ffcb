import { afterAll, beforeAll, describe, expect, it } from "vitest"
import type { Launches } from "../../src/api/gateway/launches.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import type { LaunchStatus, StoredLaunch } from "../../src/core/apis/launch.ts"
import { isConflict } from "../../src/core/kube/errors.ts"
import {
  type AgentKeys,
  bootstrapToken,
  generateAgentKeys,
  openBootConfig,
  publicKey,
  signMessage,
} from "../../src/core/protocol/messages.ts"
import type { MessageKind, NextRequest } from "../../src/core/protocol/protocol.ts"
import { LAUNCHES } from "../../src/core/resources.ts"
import { WARM_VM_SECONDS } from "../../src/core/reuse/reuse.ts"
import { takeoverOf } from "../../src/operator/launch/takeover.ts"
import { BOOTSTRAP_KEY, startGateway, type TestGateway } from "../harness/gateway.ts"
import { launchFixture } from "../harness/launches.ts"
import { ManualClock } from "../harness/manual-clock.ts"

const fixture = launchFixture("next")
let gateway: TestGateway
/** Another replica. The two share only the API server. */
let other: TestGateway
const stopping = new AbortController()
let stopped: TestGateway
/** Its waits end when the test moves the clock. */
let impatient: TestGateway
const manual = new ManualClock()
/** Names of the Launches for whose change a replica waits. */
const waits: string[] = []
/** Launches as the replicas' caches have them still. */
const stale = new Map<string, StoredLaunch>()
/** Called before a replica writes what an agent has sent. */
let beforeWrite: ((launch: StoredLaunch) => Promise<void>) | undefined

function noting(all: Launches): Launches {
  return {
    ...all,
    get: (name) => stale.get(name) ?? all.get(name),
    untilChanged: (launch, signal) => {
      waits.push(launch.metadata.name)
      return all.untilChanged(launch, signal)
    },
    patchAgentStatus: async (launch, agent) => {
      await beforeWrite?.(launch)
      return await all.patchAgentStatus(launch, agent)
    },
  }
}

beforeAll(async () => {
  gateway = await startGateway(fixture, { launches: noting })
  other = await startGateway(fixture, { launches: noting })
  stopped = await startGateway(fixture, { launches: noting, parts: { shutdown: stopping.signal } })
  impatient = await startGateway(fixture, { launches: noting, parts: { clock: manual } })
})
afterAll(() => Promise.all([gateway, other, stopped, impatient].map((each) => each.close())))

interface Answer {
  status: number
  body: { next?: string; isAwaited?: boolean; type?: string }
}

async function post(
  name: string,
  kind: MessageKind,
  body: string,
  to: { at?: TestGateway; signal?: AbortSignal } = {},
) {
  const answer = await fetch(`${(to.at ?? gateway).url}/agent/v1/launches/${name}/${kind}`, {
    method: "POST",
    headers: { "Content-Type": "application/jose", Authorization: `Bearer ${bootstrapToken(BOOTSTRAP_KEY, name)}` },
    body,
    ...(to.signal && { signal: to.signal }),
  })
  return { status: answer.status, body: await answer.json() } as Answer
}

/** Agent of a Launch. */
async function agentOf({ metadata: { name } }: StoredLaunch, keys?: AgentKeys) {
  const held = keys ?? (await generateAgentKeys())
  const sign = (kind: MessageKind, message: object) => signMessage(kind, { launch: name, ...message }, held.signing)
  const registration = {
    ...{ protocol: 1, version: "test", runtime: "docker", abilities: [] },
    signingKey: publicKey(held.signing, "Ed25519"),
    encryptionKey: publicKey(held.encryption, "X25519"),
  }
  return {
    keys: held,
    sign,
    register: async () => await post(name, "register", await sign("register", registration)),
    next: async (request: Partial<NextRequest> = {}, to: { at?: TestGateway; signal?: AbortSignal } = {}) =>
      await post(name, "next", await sign("next", request), to),
    finish: async (reason = "Succeeded") => {
      const finish = { reason, exitCode: 0, time: "2026-01-01T00:00:00Z" }
      return await post(name, "report", await sign("report", { sequence: 1, attempt: 1, retryCount: 0, finish }))
    },
    nextJob: async ({ status, body }: Answer) => {
      expect([status, body.isAwaited]).toEqual([200, false])
      return await openBootConfig(String(body.next), held.encryption)
    },
  }
}

const reuse = { idleSeconds: 600 }

/** Returns a Launch whose run has ended and whose agent cleans up. */
async function cleaning() {
  const created = await fixture.launch({ reuse }, { vmLifetimeSeconds: WARM_VM_SECONDS })
  const agent = await agentOf(created)
  expect((await agent.register()).status).toBe(200)
  await writeStatus(await fixture.read(created), {
    phase: "running",
    vm: { id: "vm-1", state: "running", createTime: now() },
  })
  expect((await agent.finish()).status).toBe(200)
  return { launch: created, name: created.metadata.name, agent }
}

/** Returns a Launch whose VM waits for another job, in a poll of this replica. */
async function idle(at = gateway) {
  const kept = await cleaning()
  const waiting = kept.agent.next({}, { at })
  // Not every test lets it end.
  waiting.catch(() => undefined)
  await isWaiting(kept.name)
  return { ...kept, waiting }
}

/** Resolves once a replica waits for a change of the Launch. */
async function isWaiting(name: string): Promise<void> {
  await expect.poll(() => waits.includes(name)).toBe(true)
  waits.splice(waits.indexOf(name), 1)
}

/** Creates a Launch that is to take over the VM of another one. */
function successorOf({ metadata: { name } }: StoredLaunch): Promise<StoredLaunch> {
  return fixture.launch({ reuse }, { takesOver: name, root: name })
}

/** Writes the binding of the VM as the launch controller does: on the version that was read. */
async function bind(taker: StoredLaunch, holder: StoredLaunch): Promise<void> {
  const step = takeoverOf(taker, holder, new Date())
  if (step.is !== "possible") throw new Error(`the VM can't be taken over: ${JSON.stringify(step)}`)
  await writeStatus(holder, step.predecessor)
}

async function writeStatus({ metadata: { name, namespace, resourceVersion } }: StoredLaunch, status: LaunchStatus) {
  await fixture.client.patchStatus(LAUNCHES, { namespace, name }, { merge: { metadata: { resourceVersion }, status } })
}

function now(): string {
  return `${new Date().toISOString().slice(0, 19)}Z`
}

const AWAITED: Answer = { status: 200, body: { isAwaited: true } }
const POWER_OFF: Answer = { status: 200, body: { isAwaited: false } }

describe("a VM that asks for its next job", () => {
  it("is idle from its first request on, which is written once", async () => {
    const { launch, agent, waiting } = await idle(impatient)
    manual.advance(25)
    expect(await waiting).toEqual(AWAITED)
    const first = await fixture.read(launch)
    expect(first.status?.agent?.idleTime).toBe("1970-01-01T00:00:00Z")
    for (let polls = 0; polls < 3; polls++) {
      const again = agent.next({}, { at: impatient })
      await isWaiting(launch.metadata.name)
      manual.advance(25)
      expect(await again).toEqual(AWAITED)
    }
    expect((await fixture.read(launch)).metadata.resourceVersion).toBe(first.metadata.resourceVersion)
    expect(manual.timers).toBe(0)
  })

  it("gets the job that takes it over within the same request, from any replica, sealed to its key", async () => {
    const { launch, agent, waiting } = await idle()
    const elsewhere = agent.next({}, { at: other })
    await isWaiting(launch.metadata.name)
    const next = await successorOf(launch)
    await bind(next, await fixture.read(launch))
    for (const answer of await Promise.all([waiting, elsewhere])) {
      expect(JSON.stringify(answer.body)).not.toContain(bootstrapToken(BOOTSTRAP_KEY, next.metadata.name))
      expect(await agent.nextJob(answer)).toMatchObject({
        launch: next.metadata.name,
        bootstrapToken: bootstrapToken(BOOTSTRAP_KEY, next.metadata.name),
        lifetimeSeconds: 3600,
      })
    }
  })

  it("gets the same job again if the answer was lost, and runs it with new keys", async () => {
    const { launch, agent } = await idle()
    const next = await successorOf(launch)
    await bind(next, await fixture.read(launch))
    for (const at of [gateway, other, gateway]) {
      expect(await agent.nextJob(await agent.next({}, { at }))).toMatchObject({ launch: next.metadata.name })
    }
    expect(await agent.nextJob(await agent.next({ isLeaving: true }))).toMatchObject({ launch: next.metadata.name })
    expect((await (await agentOf(next)).register()).status).toBe(200)
    // All else of the VM's first job is over.
    expect(await agent.finish()).toMatchObject({ status: 410 })
  })

  it("ends its wait when the server stops, and when it hangs up", async () => {
    const { waiting } = await idle(stopped)
    stopping.abort()
    expect(await waiting).toEqual(AWAITED)
    const { agent, name } = await cleaning()
    const hangUp = new AbortController()
    const gone = agent.next({}, { at: impatient, signal: hangUp.signal })
    await isWaiting(name)
    expect(manual.timers).toBe(1)
    hangUp.abort()
    await expect(gone).rejects.toThrow()
    await expect.poll(() => manual.timers).toBe(0)
  })

  it("powers off if its Launch is ended while it waits", async () => {
    const { launch, waiting } = await idle()
    await fixture.end(launch)
    expect(await waiting).toEqual(POWER_OFF)
  })

  it.each([
    ["ended", { spec: { ended: true } }, undefined],
    ["over", {}, { phase: "terminated" as const }],
  ])("powers off if the job that took it over is %s", async (_what, merge, status) => {
    const { launch, agent } = await idle()
    const next = await successorOf(launch)
    await bind(next, await fixture.read(launch))
    await fixture.client.patch(LAUNCHES, next.metadata, { merge })
    if (status !== undefined) await writeStatus(await fixture.read(next), status)
    expect(await agent.next()).toEqual(POWER_OFF)
  })

  it("powers off if the job that took it over is deleted", async () => {
    const { launch, agent } = await idle()
    const next = await successorOf(launch)
    await bind(next, await fixture.read(launch))
    await fixture.client.delete(LAUNCHES, next.metadata)
    expect(await agent.next()).toEqual(POWER_OFF)
  })

  it("powers off if it is unfit, for the first reason", async () => {
    const { launch, agent } = await cleaning()
    expect(await agent.next({ unfit: "its disk is 61 % full" })).toEqual(POWER_OFF)
    expect(await agent.next({ unfit: "another reason" })).toEqual(POWER_OFF)
    expect(await agent.next()).toEqual(POWER_OFF)
    const found = await fixture.agentOf(launch)
    expect([found?.unfit, found?.idleTime]).toEqual(["its disk is 61 % full", undefined])
  })

  it("powers off after a job without reuse, or whose end doesn't allow it", async () => {
    const launch = await fixture.launch({})
    const agent = await agentOf(launch)
    await agent.register()
    await agent.finish()
    expect(await agent.next()).toEqual(POWER_OFF)
    const failed = await fixture.launch({ reuse })
    const second = await agentOf(failed)
    await second.register()
    await second.finish("SecretMissing")
    expect(await second.next()).toEqual(POWER_OFF)
    expect((await fixture.agentOf(failed))?.idleTime).toBeUndefined()
  })

  it("is refused before its finish is stored, which may be later than in the cache", async () => {
    const launch = await fixture.launch({ reuse })
    const agent = await agentOf(launch)
    await agent.register()
    expect((await agent.next()).status).toBe(400)
    stale.set(launch.metadata.name, await fixture.read(launch))
    await agent.finish()
    expect(await agent.next({ isLeaving: true })).toEqual(POWER_OFF)
  })
})

describe("a VM that leaves", () => {
  it("can't be taken over any more", async () => {
    const { launch, agent } = await idle()
    const read = await fixture.read(launch)
    const next = await successorOf(launch)
    expect(await agent.next({ isLeaving: true })).toEqual(POWER_OFF)
    await expect(bind(next, read)).rejects.toSatisfy(isConflict)
    expect(takeoverOf(next, await fixture.read(launch), systemClock.now())).toMatchObject({ is: "lost" })
    expect(await agent.next()).toEqual(POWER_OFF)
  })

  it("gets the job that takes it over at the same moment", async () => {
    const { launch, agent } = await idle()
    const next = await successorOf(launch)
    beforeWrite = async () => {
      beforeWrite = undefined
      await bind(next, await fixture.read(launch))
    }
    expect(await agent.nextJob(await agent.next({ isLeaving: true }))).toMatchObject({ launch: next.metadata.name })
    expect((await fixture.agentOf(launch))?.leaveTime).toBeUndefined()
  })
})

describe("forged requests for the next job", () => {
  it("are refused with another key, or for another Launch", async () => {
    const { launch, name, agent } = await idle()
    await bind(await successorOf(launch), await fixture.read(launch))
    const thief = await agentOf(launch)
    expect((await thief.next()).status).toBe(401)
    const stranger = await idle()
    expect((await post(name, "next", await stranger.agent.sign("next", {}))).status).toBe(401)
    const signed = await agent.sign("next", { launch: stranger.name })
    expect((await post(name, "next", signed)).status).toBe(401)
    expect((await post(stranger.name, "next", await agent.sign("next", {}))).status).toBe(401)
  })

  it("get nothing once the agent of the next job has registered, not even with the first job's own messages", async () => {
    const { launch, name, agent } = await idle()
    const next = await successorOf(launch)
    await bind(next, await fixture.read(launch))
    const message = await agent.sign("next", {})
    const successor = await agentOf(next)
    await successor.register()
    for (const at of [gateway, other]) {
      const answer = await post(name, "next", message, { at })
      expect([answer.status, answer.body.next]).toEqual([410, undefined])
      expect(answer.body.type).toMatch(/launch-not-current$/)
    }
    expect(await (await agentOf(next, agent.keys)).next()).toMatchObject({ status: 401 })
    expect((await fixture.agentOf(next))?.conflictTime).toBeUndefined()
  })
})
