import { createHmac } from "node:crypto"
import { once } from "node:events"
import { request } from "node:http"
import express from "express"
import { CompactSign, importJWK } from "jose"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { GatewayClient } from "../../src/agent/gateway-client.ts"
import type { Cached } from "../../src/api/gateway/answered.ts"
import { AwaitedGateway } from "../../src/api/gateway/awaited.ts"
import { kubeLaunches } from "../../src/api/gateway/launches.ts"
import { kubeMachines } from "../../src/api/gateway/machines.ts"
import { kubeSecretEnv } from "../../src/api/gateway/secrets.ts"
import { type Clock, systemClock } from "../../src/core/apis/clock.ts"
import type { StoredJob } from "../../src/core/apis/job.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import { SECRETS } from "../../src/core/kube/core.ts"
import { compareResourceVersions } from "../../src/core/kube/resource-version.ts"
import {
  type AgentKeys,
  bootConfig,
  bootstrapToken,
  generateAgentKeys,
  openOrder,
  publicKey,
  signMessage,
} from "../../src/core/protocol/messages.ts"
import { OUTPUT_PATH, outputToken } from "../../src/core/protocol/output.ts"
import { GATEWAY_PATH, type MessageKind, type ReportRequest } from "../../src/core/protocol/protocol.ts"
import { LAUNCHES } from "../../src/core/resources.ts"
import { gatewayOutput } from "../../src/operator/webhook/output.ts"
import { kubeConfig } from "../control-plane.ts"
import { BOOTSTRAP_KEY, startGateway, type TestGateway } from "../harness/gateway.ts"
import { launchFixture } from "../harness/launches.ts"
import { silentLogger } from "../harness/silent-logger.ts"

const fixture = launchFixture("gateway")
let gateway: TestGateway
/** Another replica. The two share only the API server. */
let other: TestGateway
/** Time of the gateway's clock, unless a test sets another one. */
const START = new Date("2026-01-01T00:00:00Z")
let now = START

/** Timeout for polls that wait for the gateway's cache. Vitest's default is one second. */
const PATIENCE = { timeout: 60_000 }

const clock: Clock = { ...systemClock, now: () => now }

const EMPTY_CACHE: Cached<never> = { get: () => undefined, reached: () => true, waitUntil: async () => undefined }

beforeAll(async () => {
  gateway = await startGateway(fixture, { parts: { clock } })
  other = await startGateway(fixture, { parts: { clock } })
})
afterAll(() => Promise.all([gateway.close(), other.close()]))

interface Answer {
  status: number
  headers: Headers
  body: Record<string, unknown>
}

/** Sends a message with the bootstrap token of the Launch in the URL, with another one, or with none (null). */
async function send(url: string, init: { token?: string | null; type?: string; body: string }): Promise<Answer> {
  const [, launch = ""] = /\/launches\/([^/]+)\//.exec(url) ?? []
  const { token = bootstrapToken(BOOTSTRAP_KEY, decodeURIComponent(launch)) } = init
  const headers = {
    "Content-Type": init.type ?? "application/jose",
    ...(token !== null && { Authorization: `Bearer ${token}` }),
  }
  const answer = await fetch(url, { method: "POST", headers, body: init.body })
  return { status: answer.status, headers: answer.headers, body: (await answer.json()) as Answer["body"] }
}

function urlOf(kind: string, launch: string, at = gateway): string {
  return `${at.url}/agent/v1/launches/${launch}/${kind}`
}

/** Returns the client of an agent of this Launch: it sends what an agent sends. */
async function agentFor(launch: StoredLaunch, keys?: AgentKeys, abilities: readonly string[] = []) {
  const held = keys ?? (await generateAgentKeys())
  const { name } = launch.metadata
  const sign = (kind: MessageKind, message: object) => signMessage(kind, { launch: name, ...message }, held.signing)
  const registration = {
    protocol: 1,
    version: "test",
    runtime: "docker",
    signingKey: publicKey(held.signing, "Ed25519"),
    encryptionKey: publicKey(held.encryption, "X25519"),
    abilities,
  }
  return {
    keys: held,
    sign,
    register: async (token?: string, at = gateway) =>
      await send(urlOf("register", name, at), {
        ...(token !== undefined && { token }),
        body: await sign("register", registration),
      }),
    report: async (report: Partial<ReportRequest>, at = gateway) =>
      await send(urlOf("report", name, at), {
        body: await sign("report", { sequence: 1, attempt: 1, retryCount: 0, ...report }),
      }),
    logs: async (offset: number, data: string | Buffer, at = gateway) =>
      await send(urlOf("logs", name, at), {
        body: await sign("logs", { offset, data: Buffer.from(data).toString("base64") }),
      }),
  }
}

const finish = { reason: "Succeeded" as const, exitCode: 0, time: "2026-01-01T00:00:00Z" }

function typeOf(answer: Answer): string {
  return String(answer.body["type"]).replace("https://berth.dev/problems/", "")
}

describe("gateway: register", () => {
  it("gives an older agent no order with a read-only volume, which it would mount writable", async () => {
    const volumes = { data: { bucket: "b", mountPath: "/data", readOnly: true } }
    const launch = await fixture.launch({ volumes })
    const answer = await (await agentFor(launch, undefined, ["workdir"])).register()
    expect([answer.status, typeOf(answer)]).toEqual([422, "nothing-to-run"])
    expect((await fixture.agentOf(launch))?.finish).toMatchObject({
      reason: "VolumeMountFailed",
      message: expect.stringMatching(/^volume data is readOnly: the agent of the VM \(version test\) is older/),
    })
    const next = await fixture.launch({ volumes })
    await (await agentFor(next, undefined, ["readOnly"])).register()
    expect((await fixture.agentOf(next))?.finish?.message).toMatch(/opens no buckets/)
  })

  it("binds the Launch to the agent's keys and encrypts the order for this agent", async () => {
    const launch = await fixture.launch({ image: "busybox", env: { A: "1" }, maxRetries: 2 })
    const agent = await agentFor(launch)
    const answer = await agent.register()
    expect(answer.status).toBe(200)
    expect(answer.headers.get("cache-control")).toBe("no-store")
    const jwe = String(answer.body["order"])
    expect(jwe).not.toContain("busybox")
    const order = await openOrder(jwe, agent.keys.encryption)
    expect(order).toEqual({
      sharedHost: { memoryMib: 1024 },
      run: { image: "busybox", env: { A: "1" }, maxRetries: 2 },
      secretEnv: {},
      gpus: 0,
    })
    await expect(openOrder(jwe, (await generateAgentKeys()).encryption)).rejects.toThrow()
    const status = await fixture.agentOf(launch)
    expect(status?.signingKey).toBe(publicKey(agent.keys.signing, "Ed25519"))
    expect(status).toMatchObject({ runtime: "docker", version: "test", sequence: 0, retryCount: 0 })
  })

  it("answers the same key again on any replica, and changes nothing", async () => {
    const launch = await fixture.launch({ image: "busybox" })
    const agent = await agentFor(launch)
    expect((await agent.register()).status).toBe(200)
    const before = await fixture.read(launch)
    const again = await agent.register(undefined, other)
    expect(again.status).toBe(200)
    expect((await openOrder(String(again.body["order"]), agent.keys.encryption)).run.image).toBe("busybox")
    expect((await fixture.read(launch)).metadata.resourceVersion).toBe(before.metadata.resourceVersion)
  })

  it("rejects an encryption key that nothing can be encrypted to, and binds no key", async () => {
    const launch = await fixture.launch({})
    const agent = await agentFor(launch)
    const x = Buffer.alloc(32).toString("base64url")
    const zero = await agentFor(launch, { ...agent.keys, encryption: { ...agent.keys.encryption, x } })
    const answer = await zero.register()
    expect([answer.status, typeOf(answer)]).toEqual([400, "invalid-request"])
    expect(await fixture.agentOf(launch)).toBeUndefined()
    expect((await agent.register()).status).toBe(200)
  })

  it("rejects a second key pair and records the time of the conflict", async () => {
    const launch = await fixture.launch({})
    const agent = await agentFor(launch)
    await agent.register()
    const thief = await agentFor(launch)
    const answer = await thief.register(undefined, other)
    expect([answer.status, typeOf(answer)]).toEqual([409, "launch-key-conflict"])
    const status = await fixture.agentOf(launch)
    expect(status?.signingKey).toBe(publicKey(agent.keys.signing, "Ed25519"))
    expect(Date.parse(status?.conflictTime ?? "")).toBe(START.getTime())
    // The same signing key with another encryption key is another key pair: its holder could read the secrets.
    const half = await agentFor(launch, { ...thief.keys, signing: agent.keys.signing })
    expect((await half.register()).status).toBe(409)
  })

  it("accepts exactly one of six keys that register at once on two replicas", async () => {
    const launch = await fixture.launch({})
    const agents = await Promise.all(Array.from({ length: 6 }, () => agentFor(launch)))
    const answers = await Promise.all(
      agents.map((agent, index) => agent.register(undefined, index % 2 === 0 ? gateway : other)),
    )
    const winners = agents.filter((_, index) => answers[index]?.status === 200)
    expect(winners.length).toBe(1)
    const status = await fixture.agentOf(launch)
    expect(winners.map(({ keys }) => publicKey(keys.signing, "Ed25519"))).toEqual([status?.signingKey])
    expect(answers.filter(({ status }) => status !== 200).map(({ status }) => status)).toEqual(Array(5).fill(409))
  })

  it("rejects a wrong or missing token and does not reveal which Launches exist", async () => {
    const launch = await fixture.launch({})
    const agent = await agentFor(launch)
    const unknown = await agentFor({ ...launch, metadata: { ...launch.metadata, name: "unknown-1" } })
    const answers = [
      await agent.register("x".repeat(43)),
      await agent.register(bootstrapToken(BOOTSTRAP_KEY, "another-1")),
      await unknown.register("x".repeat(43)),
      await send(urlOf("register", launch.metadata.name), { token: null, body: await agent.sign("register", {}) }),
      await send(urlOf("report", launch.metadata.name), { token: null, body: await agent.sign("report", {}) }),
      await send(urlOf("logs", launch.metadata.name), { token: "x".repeat(43), body: await agent.sign("logs", {}) }),
    ]
    for (const answer of answers) {
      expect([answer.status, typeOf(answer)]).toEqual([401, "agent-not-authentic"])
      expect(answer.headers.get("www-authenticate")).toBe("Bearer")
      expect(answer.body["detail"]).toBe(answers[0]?.body["detail"])
    }
    expect(await fixture.agentOf(launch)).toBeUndefined()
  })

  it("rejects a registration for a Launch that is not current or does not exist", async () => {
    const ended = await fixture.launch({})
    await fixture.end(ended)
    const over = await fixture.launch({})
    await setStatus(over, { phase: "terminated" })
    const finished = await fixture.launch({})
    const agent = await agentFor(finished)
    await agent.register()
    await agent.report({ finish })
    for (const answer of [
      await (await agentFor(ended)).register(),
      await (await agentFor(over)).register(),
      await agent.register(),
    ]) {
      expect([answer.status, typeOf(answer)]).toEqual([410, "launch-not-current"])
    }
    const nowhere = await (await agentFor({ ...ended, metadata: { ...ended.metadata, name: "nowhere-1" } })).register()
    expect([nowhere.status, typeOf(nowhere)]).toEqual([404, "unknown-launch"])
    expect(await fixture.agentOf(ended)).toBeUndefined()
  })

  it("registers by the cached Launch without a read, and reads the Launch if the cache is stale", async () => {
    const stale = new Map<string, StoredLaunch>()
    let reads = 0
    const cached = await startGateway(fixture, {
      launches: (all) => ({
        ...all,
        get: (name) => stale.get(name),
        read: (name) => {
          reads++
          return all.read(name)
        },
      }),
    })
    const create = async () => {
      const launch = await fixture.launch({})
      stale.set(launch.metadata.name, launch)
      return { launch, agent: await agentFor(launch) }
    }
    try {
      const fresh = await create()
      expect((await fresh.agent.register(undefined, cached)).status).toBe(200)
      expect(reads).toBe(0)
      const second = await agentFor(fresh.launch)
      expect((await second.register(undefined, cached)).status).toBe(409)
      const ended = await create()
      await fixture.end(ended.launch)
      expect((await ended.agent.register(undefined, cached)).status).toBe(410)
      expect(await fixture.agentOf(ended.launch)).toBeUndefined()
      const deleted = await create()
      await fixture.client.delete(LAUNCHES, { namespace: fixture.namespace, name: deleted.launch.metadata.name })
      expect((await deleted.agent.register(undefined, cached)).status).toBe(404)
    } finally {
      await cached.close()
    }
  })

  it("knows its own writes before its cache does, and then follows the cache again", async () => {
    const launch = await fixture.launch({})
    let [known, version, reads] = [launch, launch.metadata.resourceVersion, 0]
    const writes: string[] = []
    const behind = await startGateway(fixture, {
      cache: {
        get: () => known,
        reached: (wanted) => compareResourceVersions(version, wanted) >= 0,
        waitUntil: async () => undefined,
      },
      launches: (all) => ({
        ...all,
        read: (name) => {
          reads++
          return all.read(name)
        },
        patchAgentStatus: async (from, agent) => {
          writes.push(from.metadata.resourceVersion)
          const written = await all.patchAgentStatus(from, agent)
          writes.push(written.metadata.resourceVersion)
          return written
        },
      }),
    })
    try {
      const agent = await agentFor(launch)
      expect((await agent.register(undefined, behind)).status).toBe(200)
      expect((await agent.report({ sequence: 1, startTime: "2026-01-01T00:00:00Z" }, behind)).status).toBe(200)
      const [first, registered, second, started] = writes
      expect([first, second, writes.length, reads]).toEqual([launch.metadata.resourceVersion, registered, 4, 0])
      await fixture.end(launch)
      known = await fixture.client.get(LAUNCHES, launch.metadata)
      version = known.metadata.resourceVersion
      expect(compareResourceVersions(version, started ?? "")).toBeGreaterThan(0)
      expect((await agent.report({ sequence: 2 }, behind)).body).toMatchObject({ desired: "stop" })
      expect(reads).toBe(0)
    } finally {
      await behind.close()
    }
  })

  it("resolves secretEnv from Secrets of type berth.dev/env and encrypts the values", async () => {
    await makeSecret("env-ok", "berth.dev/env", { token: "s3cret-ü" })
    const launch = await fixture.launch({ secretEnv: { TOKEN: { secret: "env-ok", key: "token" } } })
    const agent = await agentFor(launch)
    const answer = await agent.register()
    const order = await openOrder(String(answer.body["order"]), agent.keys.encryption)
    expect(order.secretEnv).toEqual({ TOKEN: "s3cret-ü" })
    expect(JSON.stringify(answer.body)).not.toContain("s3cret")
  })

  it("finishes a Launch whose secret is missing, of another type or invalid, and returns no order", async () => {
    await makeSecret("other-type", "Opaque", { token: "internal-password" })
    await makeSecret("binary", "berth.dev/env", { nul: "a\0b" })
    for (const [secret, key, why] of [
      ["absent", "token", /Secret absent of type berth.dev\/env is not in the job's namespace/],
      ["other-type", "token", /Secret other-type of type berth.dev\/env is not in the job's namespace/],
      ["binary", "token", /has no key token/],
      ["binary", "nul", /can't be a variable/],
      ["binary", "constructor", /has no key constructor/],
      ["binary", "__proto__", /has no key __proto__/],
    ] as const) {
      const launch = await fixture.launch({ secretEnv: { TOKEN: { secret, key } } })
      const answer = await (await agentFor(launch)).register()
      expect([answer.status, typeOf(answer)]).toEqual([422, "nothing-to-run"])
      const status = await fixture.agentOf(launch)
      expect(status?.finish?.reason).toBe("SecretMissing")
      expect(status?.finish?.message).toMatch(why)
      expect(JSON.stringify([answer.body, status])).not.toContain("internal-password")
    }
  })
})

describe("gateway: messages", () => {
  it("rejects messages that are not signed with EdDSA, by the Launch's key, for their own type", async () => {
    const launch = await fixture.launch({})
    const agent = await agentFor(launch)
    await agent.register()
    const stranger = await agentFor(launch)
    const body = { launch: launch.metadata.name, sequence: 7, attempt: 1, retryCount: 3, finish }
    const reply = (jws: string) => send(urlOf("report", launch.metadata.name), { body: jws })
    const signed = await agent.sign("report", body)
    const [header = "", payload = "", signature = ""] = signed.split(".")
    const encode = (value: object): string => Buffer.from(JSON.stringify(value)).toString("base64url")
    const unsigned = `${encode({ alg: "none", typ: "berth-report" })}.${payload}.`
    const symmetric = encode({ alg: "HS256", typ: "berth-report" })
    const secret = publicKey(agent.keys.signing, "Ed25519")
    const mac = createHmac("sha256", secret).update(`${symmetric}.${payload}`).digest("base64url")
    const withoutType = await new CompactSign(Buffer.from(JSON.stringify(body)))
      .setProtectedHeader({ alg: "EdDSA" })
      .sign(await importJWK(agent.keys.signing, "EdDSA"))
    const wrong: [string, number][] = [
      [await stranger.sign("report", body), 401],
      [`${header}.${encode({ ...body, retryCount: 99 })}.${signature}`, 401],
      [unsigned, 400],
      [`${symmetric}.${payload}.${mac}`, 400],
      [await agent.sign("logs", body), 400],
      [withoutType, 400],
      [await agent.sign("report", { ...body, launch: "another-1" }), 401],
      [await agent.sign("report", { ...body, sequence: "7" }), 400],
      [await agent.sign("report", { ...body, finish: { reason: "Fine", time: finish.time } }), 400],
      ["", 400],
      ["a.b", 400],
      ["not a jws", 400],
    ]
    for (const [jws, status] of wrong) expect((await reply(jws)).status, jws.slice(0, 60)).toBe(status)
    expect(await fixture.agentOf(launch)).toMatchObject({ sequence: 0, retryCount: 0 })
    expect((await reply(signed)).status).toBe(200)
    expect(await fixture.agentOf(launch)).toMatchObject({ sequence: 7, retryCount: 3, finish })
  })

  it("rejects messages of a wrong media type or size before it parses them", async () => {
    const launch = await fixture.launch({})
    const url = urlOf("report", launch.metadata.name)
    expect((await send(url, { body: "{}", type: "application/json" })).status).toBe(415)
    expect((await send(url, { body: "x".repeat(33 * 1024) })).status).toBe(413)
    expect((await send(urlOf("logs", launch.metadata.name), { body: "x".repeat(5 * 1024 * 1024) })).status).toBe(413)
    expect((await send(urlOf("report", "..%2f..%2fapi"), { body: "x" })).status).toBe(404)
    expect((await send(urlOf("nonsense", launch.metadata.name), { body: "x" })).status).toBe(404)
  })

  it("rejects messages of a Launch without a registered agent", async () => {
    const launch = await fixture.launch({})
    const answer = await (await agentFor(launch)).report({})
    expect([answer.status, typeOf(answer)]).toEqual([401, "agent-not-authentic"])
  })
})

describe("gateway: reports", () => {
  it("writes changed reports at once, and heartbeats once a minute", async () => {
    const launch = await fixture.launch({})
    const agent = await agentFor(launch)
    const at = (seconds: number): void => {
      now = new Date(START.getTime() + seconds * 1000)
    }
    const version = async (): Promise<string> => (await fixture.read(launch)).metadata.resourceVersion
    at(0)
    await agent.register()
    let last = await version()
    const steps: [seconds: number, report: Partial<ReportRequest>, written: boolean][] = [
      [15, { attempt: 0 }, false],
      [16, { startTime: "2026-01-01T00:00:00Z" }, true],
      [30, { startTime: "2026-01-01T00:00:00Z" }, false],
      [75, { startTime: "2026-01-01T00:00:00Z" }, false],
      [77, { startTime: "2026-01-01T00:00:00Z" }, true],
      [80, { retryCount: 1, lastExitCode: 3 }, true],
      [85, { retryCount: 1, lastExitCode: 3 }, false],
      [86, { retryCount: 1, lastExitCode: 3, preemptionNotice: "2026-01-01T00:00:09Z" }, true],
      [87, { retryCount: 1, lastExitCode: 3, finish }, true],
      [300, { retryCount: 2, finish: { ...finish, reason: "ContainerFailed" } }, false],
    ]
    for (const [index, [seconds, report, written]] of steps.entries()) {
      at(seconds)
      expect((await agent.report({ sequence: index + 1, ...report })).body).toEqual({
        desired: "run",
        heartbeatSeconds: 1,
      })
      // A heartbeat is written after its agent has been answered.
      if (written) await expect.poll(version, PATIENCE).not.toBe(last)
      else expect(await version(), `step ${index}`).toBe(last)
      last = await version()
    }
    now = START
    expect(await fixture.agentOf(launch)).toMatchObject({
      sequence: 9,
      startTime: "2026-01-01T00:00:00Z",
      retryCount: 1,
      lastExitCode: 3,
      preemptionNotice: "2026-01-01T00:00:09Z",
      finish,
    })
  })

  it("writes heartbeats into shared Leases, and into a Launch whose own time would hide them", async () => {
    const beats: [string, number][] = []
    let ahead = 0
    const shared = await startGateway(fixture, {
      parts: {
        clock: { ...systemClock, now: () => new Date(Date.now() + ahead * 1000) },
        heartbeats: {
          beat: (launch, sequence) => beats.push([launch, sequence]),
          size: 1,
        },
      },
    })
    try {
      const launch = await fixture.launch({})
      const { name } = launch.metadata
      const agent = await agentFor(launch)
      await agent.register(undefined, shared)
      const versionOf = async () => (await fixture.read(launch)).metadata.resourceVersion
      const registered = await versionOf()
      ahead = 3600
      await agent.report({ sequence: 1 }, shared)
      await agent.report({ sequence: 2 }, shared)
      expect(beats).toEqual([
        [name, 1],
        [name, 2],
      ])
      expect(await versionOf()).toBe(registered)
      await agent.report({ sequence: 3, startTime: "2026-01-01T00:00:00Z" }, shared)
      expect((await fixture.agentOf(launch))?.sequence).toBe(3)
      await agent.report({ sequence: 3 }, shared)
      expect(beats.length).toBe(2)
      // The clock is set back: the time in the Launch would hide all others.
      ahead = 0
      await agent.report({ sequence: 4 }, shared)
      await expect.poll(async () => (await fixture.agentOf(launch))?.sequence, PATIENCE).toBe(4)
      expect(beats.map(([, sequence]) => sequence)).toEqual([1, 2, 4])
    } finally {
      await shared.close()
    }
  })

  it("answers a VM's report with and without Express in the same way", async () => {
    const plain = await startGateway(fixture, { before: (_req, _res, next) => next() })
    try {
      const launch = await fixture.launch({})
      const { name } = launch.metadata
      const agent = await agentFor(launch)
      await agent.register()
      const token = bootstrapToken(BOOTSTRAP_KEY, name)
      const other = await agentFor(await fixture.launch({}))
      const bodies = {
        valid: await agent.sign("report", { sequence: 5, attempt: 1, retryCount: 0 }),
        unsigned: "x.y.z",
        invalid: await agent.sign("report", { sequence: 0, attempt: 1, retryCount: 0 }),
        foreign: await other.sign("report", { sequence: 5, attempt: 1, retryCount: 0 }),
        large: "x".repeat(40_000),
        empty: "",
      }
      const headersOf = ({ headers }: Answer) =>
        ["content-type", "cache-control", "www-authenticate", "retry-after"].map((header) => headers.get(header))
      const answersAt = async (at: TestGateway) => {
        const answers: unknown[] = []
        for (const body of Object.values(bodies)) {
          const answer = await send(urlOf("report", name, at), { token, body })
          const { instance: _, ...shown } = answer.body
          expect(answer.headers.get("x-request-id")).toMatch(/^[0-9a-f-]{36}$/)
          answers.push([answer.status, headersOf(answer), shown])
        }
        return answers
      }
      const answers = await answersAt(gateway)
      expect(answers).toEqual(await answersAt(plain))
      expect(answers.map((answer) => (answer as number[])[0])).toEqual([200, 400, 400, 401, 413, 400])
    } finally {
      await plain.close()
    }
  })

  it("ignores reports that are late, duplicated or replayed", async () => {
    const launch = await fixture.launch({})
    const agent = await agentFor(launch)
    await agent.register()
    const old = await agent.sign("report", { sequence: 3, attempt: 1, retryCount: 0 })
    const url = urlOf("report", launch.metadata.name)
    await send(url, { body: old })
    await agent.report({ sequence: 4, attempt: 2, retryCount: 1, lastExitCode: 1 })
    await agent.report({ sequence: 5, attempt: 2, retryCount: 1, lastExitCode: 1, finish })
    const before = await fixture.read(launch)
    for (const at of [gateway, other]) {
      expect((await send(urlOf("report", launch.metadata.name, at), { body: old })).status).toBe(200)
      expect((await agent.report({ sequence: 6, attempt: 2, retryCount: 1 }, at)).status).toBe(200)
      const second = { ...finish, reason: "ContainerFailed" as const, exitCode: 1 }
      expect((await agent.report({ sequence: 7, finish: second }, at)).status).toBe(200)
    }
    expect(await fixture.read(launch)).toEqual(before)
    expect(before.status?.agent?.finish).toEqual(finish)
  })

  it("corrects times in reports that are before the registration or in the future", async () => {
    const launch = await fixture.launch({})
    const agent = await agentFor(launch)
    await agent.register()
    const times = { startTime: "0000-01-01T00:00:00Z", preemptionNotice: "2026-01-01T23:59:60Z" }
    expect((await agent.report({ sequence: 1, ...times })).status).toBe(200)
    const far = { reason: "Preempted" as const, time: "9999-12-31T23:59:59-23:00" }
    expect((await agent.report({ sequence: 2, ...times, finish: far })).status).toBe(200)
    const at = "2026-01-01T00:00:00Z"
    const stored = { startTime: at, preemptionNotice: at, finish: { reason: "Preempted", time: at } }
    expect(await fixture.agentOf(launch)).toMatchObject(stored)
  })

  it("rejects reports with invalid numbers", async () => {
    const launch = await fixture.launch({})
    const agent = await agentFor(launch)
    await agent.register()
    const wrong: object[] = [1e300, -1e300, 2 ** 31, 1.5, "3", null].flatMap((lastExitCode) => [
      { lastExitCode },
      { finish: { ...finish, exitCode: lastExitCode } },
    ])
    for (const field of ["sequence", "attempt", "retryCount"]) {
      wrong.push(...[1e300, 2 ** 53, -1, 0.5, "1", null].map((value) => ({ [field]: value })))
    }
    for (const report of wrong) {
      const answer = await agent.report({ sequence: 1, ...report })
      expect([answer.status, typeOf(answer)], JSON.stringify(report)).toEqual([400, "invalid-request"])
    }
    for (const offset of [1e300, -1, 0.5]) expect((await agent.logs(offset, "x")).status).toBe(400)
    expect(await fixture.agentOf(launch)).toMatchObject({ sequence: 0, retryCount: 0 })
  })

  it("records a finish although a later report arrived first", async () => {
    const launch = await fixture.launch({})
    const agent = await agentFor(launch)
    await agent.register()
    await agent.report({ sequence: 9, retryCount: 1, lastExitCode: 2 })
    await agent.report({ sequence: 8, retryCount: 0, finish })
    expect(await fixture.agentOf(launch)).toMatchObject({ sequence: 9, retryCount: 1, finish })
  })

  it("takes reports on every replica at once, with one finish for all", async () => {
    const launch = await fixture.launch({})
    const agent = await agentFor(launch)
    await agent.register()
    const answers = await Promise.all(
      Array.from({ length: 12 }, (_, index) =>
        agent.report(
          {
            sequence: index + 1,
            retryCount: index,
            ...(index % 3 === 2 && { finish: { ...finish, exitCode: index } }),
          },
          index % 2 === 0 ? gateway : other,
        ),
      ),
    )
    // A 503 is fine where the Launch changed meanwhile: the agent sends the report again.
    for (const { status } of answers) expect([200, 503]).toContain(status)
    const stored = (await fixture.agentOf(launch))?.finish
    expect(stored?.reason).toBe("Succeeded")
    const again = await agent.report({ sequence: 99, finish: { ...finish, exitCode: 98 } })
    expect(again.status).toBe(200)
    expect((await fixture.agentOf(launch))?.finish).toEqual(stored)
  })

  it("orders a stop after the Launch has ended and still takes reports, then rejects them once the Launch is over", async () => {
    const launch = await fixture.launch({})
    const agent = await agentFor(launch)
    expect((await agent.register()).status).toBe(200)
    expect((await agent.report({ sequence: 1 })).body).toEqual({ desired: "run", heartbeatSeconds: 1 })
    await fixture.end(launch)
    const stopped = { ...finish, reason: "Stopped" as const }
    const told = async () => (await agent.report({ sequence: 2 })).body
    await expect.poll(told, PATIENCE).toEqual({ desired: "stop", heartbeatSeconds: 1 })
    expect((await agent.report({ sequence: 3, finish: stopped })).body).toEqual({
      desired: "stop",
      heartbeatSeconds: 1,
    })
    expect((await fixture.agentOf(launch))?.finish?.reason).toBe("Stopped")
    await setStatus(launch, { phase: "terminated" })
    await expect.poll(async () => (await agent.report({ sequence: 4 })).status, PATIENCE).toBe(410)
  })

  it("answers reports with 503 and Retry-After during an outage of the API server, and takes them afterwards", async () => {
    const launch = await fixture.launch({})
    const agent = await agentFor(launch)
    await agent.register()
    // No process listens on the discard port.
    const nowhere = kubeConfig()
    nowhere.clusters = nowhere.clusters.map((cluster) => ({ ...cluster, server: "https://127.0.0.1:9" }))
    const cutOff = await startGateway(fixture, { kubeConfig: nowhere })
    try {
      for (const answer of [await agent.report({ finish }, cutOff), await agent.register(undefined, cutOff)]) {
        expect([answer.status, typeOf(answer)]).toEqual([503, "unavailable"])
        expect(Number(answer.headers.get("retry-after"))).toBeGreaterThan(0)
      }
    } finally {
      await cutOff.close()
    }
    expect((await fixture.agentOf(launch))?.finish).toBeUndefined()
    expect((await agent.report({ finish })).status).toBe(200)
    expect((await fixture.agentOf(launch))?.finish).toEqual(finish)
  })
})

describe("gateway: logs", () => {
  it("stores logs once, by offset, under the Job of the Launch", async () => {
    const launch = await fixture.launch({})
    const agent = await agentFor(launch)
    await agent.register()
    expect((await agent.logs(0, "hello ")).body).toMatchObject({ length: 6 })
    expect((await agent.logs(0, "hello ")).body).toMatchObject({ length: 6 })
    expect((await agent.logs(99, "gap")).body).toMatchObject({ length: 6 })
    expect((await agent.logs(4, "o world")).body).toMatchObject({ length: 11 })
    expect((await gateway.logOf(launch)).toString()).toBe("hello world")
  })

  it("gives the tail of a log to the installation's operator only", async () => {
    const launch = await fixture.launch({})
    const agent = await agentFor(launch)
    await agent.register()
    const lines = Array.from({ length: 100 }, (_, index) => `\x1b[32mline ${index}\x1b[0m`)
    await agent.logs(0, lines.join("\n"))
    const { namespace, uid } = launch.spec.job
    const job = { metadata: { namespace, uid } } as StoredJob
    const { signal } = new AbortController()
    const tail = Array.from({ length: 20 }, (_, index) => `line ${index + 80}`).join("\n")
    expect(await gatewayOutput(gateway.url, BOOTSTRAP_KEY)(job, signal)).toBe(tail)
    const without = { metadata: { namespace, uid: "none" } } as StoredJob
    expect(await gatewayOutput(gateway.url, BOOTSTRAP_KEY)(without, signal)).toBe("")
    await expect(gatewayOutput(gateway.url, new Uint8Array(32).fill(6))(job, signal)).rejects.toThrow("answered 401")
    const url = `${gateway.url}${GATEWAY_PATH}${OUTPUT_PATH}?${new URLSearchParams({ namespace, uid })}`
    const tokens = [
      undefined,
      outputToken(BOOTSTRAP_KEY, { namespace, uid: "none" }),
      bootstrapToken(BOOTSTRAP_KEY, launch.metadata.name),
    ]
    for (const token of tokens) {
      const answer = await fetch(url, { headers: token === undefined ? {} : { authorization: `Bearer ${token}` } })
      expect(answer.status).toBe(401)
    }
  })

  it("stores the times of an agent that was offline, by its own clock however wrong, within the life of the Launch", async () => {
    const launch = await fixture.launch({})
    const keys = await generateAgentKeys()
    const createdAt = Date.parse(launch.metadata.creationTimestamp)
    const started = createdAt + 3_600_000
    let monotonic = 7
    /** Seconds by which the gateway's clock, or that of another replica, was changed. */
    let changed = 0
    const late = await startGateway(fixture, {
      parts: { clock: { ...systemClock, now: () => new Date(started + (monotonic + changed - 7) * 1000) } },
    })
    try {
      const config = bootConfig({ ...launch, spec: { ...launch.spec, gatewayUrl: late.url } }, BOOTSTRAP_KEY)
      const agent = new GatewayClient(config, keys, { monotonic: () => monotonic })
      await agent.register({ version: "test", runtime: "docker" })
      // The answers of ten minutes are lost.
      monotonic += 600
      const times = [
        { at: 0, seconds: 8 },
        { at: 2, seconds: 127 },
        { at: 4, seconds: -999_999 },
        { at: 6, seconds: 999_999 },
      ]
      await agent.sendLog(0, Buffer.from("a\nb\nc\nd\n"), times)
      const iso = (ms: number) => new Date(ms).toISOString()
      const stamped = `${iso(started + 1000)} a\n${iso(started + 120_000)} b\n${iso(createdAt)} c\n${iso(started + 600_000)} d\n`
      expect((await late.logOf(launch, { timestamps: true })).toString()).toBe(stamped)
      // An agent that has started again asks for the time first. A piece without times gets that of the message.
      const again = new GatewayClient(config, keys, { monotonic: () => monotonic - 1000 })
      await again.sendLog(8, Buffer.from("e\n"), [{ at: 0, seconds: monotonic - 1000 - 30 }])
      await again.sendLog(10, Buffer.from("f\n"))
      expect((await late.logOf(launch, { timestamps: true })).toString()).toBe(
        `${stamped}${iso(started + 570_000)} e\n${iso(started + 600_000)} f\n`,
      )
      // What an agent sends again has the same times, whatever the gateway's clock says now.
      changed = 5
      await again.sendLog(12, Buffer.from("g\n"), [{ at: 0, seconds: monotonic - 1000 }])
      await again.sendLog(14, Buffer.from("h\n"), [{ at: 0, seconds: monotonic - 1000 }])
      expect((await late.logOf(launch, { timestamps: true, tail: 2 })).toString()).toBe(
        `${iso(started + 600_000)} g\n${iso(started + 600_000)} h\n`,
      )
      await Promise.all([agent.close(), again.close()])
    } finally {
      await late.close()
    }
  })

  it("rejects logs that are too large, not base64, or from another agent", async () => {
    const launch = await fixture.launch({})
    const agent = await agentFor(launch)
    await agent.register()
    expect((await agent.logs(0, Buffer.alloc(262_144, "x"))).body).toMatchObject({ length: 262_144 })
    expect((await agent.logs(262_144, Buffer.alloc(262_145))).status).toBe(400)
    expect((await agent.logs(262_144, Buffer.alloc(300_000))).status).toBe(413)
    const url = urlOf("logs", launch.metadata.name)
    expect((await send(url, { body: await agent.sign("logs", { offset: 262_144, data: "!!" }) })).status).toBe(400)
    expect((await (await agentFor(launch)).logs(0, "stranger")).status).toBe(401)
    expect((await gateway.logOf(launch)).byteLength).toBe(262_144)
  })
})

describe("a façade that has just started", () => {
  it("answers agents with 503 until its cache of Launches is synced", async () => {
    let isSynced = false
    const awaited = new AwaitedGateway({
      readInstallation: async () => ({ id: "installation", bootstrapKey: BOOTSTRAP_KEY }),
      isSynced: () => isSynced,
      readLeader: async () => "",
      launches: kubeLaunches(fixture.client, EMPTY_CACHE, fixture.namespace),
      machines: kubeMachines(fixture.client, EMPTY_CACHE),
      ...{
        secretEnv: kubeSecretEnv(fixture.client),
        logs: gateway.logs,
        uploads: gateway.uploads,
        clock,
        logger: silentLogger,
      },
    })
    await awaited.run(new AbortController().signal)
    const started = await startGateway(fixture, { before: express.Router().use(GATEWAY_PATH, awaited.handle) })
    try {
      const agent = await agentFor(await fixture.launch({}))
      const early = await agent.register(undefined, started)
      expect([early.status, early.headers.get("retry-after")]).toEqual([503, "2"])
      isSynced = true
      expect((await agent.register(undefined, started)).status).toBe(200)
    } finally {
      await started.close()
    }
  })
})

describe("gateway: limits", () => {
  it("answers 429 with Retry-After to an address that keeps guessing tokens", async () => {
    const guessed = await startGateway(fixture)
    try {
      const launch = await fixture.launch({})
      const agent = await agentFor(launch)
      expect((await agent.register(undefined, guessed)).status).toBe(200)
      const url = urlOf("report", "guess-1", guessed)
      const statuses = new Set<number>()
      for (let round = 0; round < 16; round++) {
        const answers = await Promise.all(
          Array.from({ length: 20 }, () => send(url, { token: "wrong", body: "x.y.z" })),
        )
        for (const { status } of answers) statuses.add(status)
      }
      expect([...statuses].sort()).toEqual([401, 429])
      const last = await send(url, { token: "wrong", body: "x.y.z" })
      expect([last.status, typeOf(last)]).toEqual([429, "rate-limited"])
      expect(Number(last.headers.get("retry-after"))).toBeGreaterThan(0)
      // All VMs of a network may share the address.
      await expect.poll(async () => (await agent.report({ sequence: 1 }, guessed)).status, PATIENCE).toBe(200)
      const another = await agentFor(await fixture.launch({}))
      expect((await another.register(undefined, guessed)).status).toBe(200)
      expect((await another.register("wrong", guessed)).status).toBe(429)
    } finally {
      await guessed.close()
    }
  })

  it("accepts a VM's messages after many forgeries without its token from its address", async () => {
    const flooded = await startGateway(fixture)
    try {
      const launch = await fixture.launch({})
      const { name } = launch.metadata
      const [agent, stranger] = await Promise.all([agentFor(launch), agentFor(launch)])
      expect((await agent.register(undefined, flooded)).status).toBe(200)
      const forged = await stranger.sign("report", { sequence: 9, attempt: 1, retryCount: 0, finish })
      const statuses = new Set<number>()
      for (let round = 0; round < 20; round++) {
        const url = urlOf("report", name, flooded)
        const answers = await Promise.all(Array.from({ length: 50 }, () => send(url, { token: null, body: forged })))
        for (const { status } of answers) statuses.add(status)
      }
      expect([...statuses].sort()).toEqual([401, 429])
      const config = bootConfig({ ...launch, spec: { ...launch.spec, gatewayUrl: flooded.url } }, BOOTSTRAP_KEY)
      const client = new GatewayClient(config, agent.keys, systemClock)
      expect(await client.report({ sequence: 3, attempt: 1, retryCount: 1 })).toEqual({
        desired: "run",
        heartbeatSeconds: 1,
      })
      expect(await client.sendLog(0, Buffer.from("hello"))).toMatchObject({ length: 5 })
      await client.volumes()
      await client.close()
      expect(await fixture.agentOf(launch)).toMatchObject({ sequence: 3, retryCount: 1 })
      expect((await fixture.agentOf(launch))?.finish).toBeUndefined()
      // The answer that ends an agent also reaches it.
      const last = await send(urlOf("report", "missing-1", flooded), { body: forged })
      expect([last.status, typeOf(last)]).toEqual([404, "unknown-launch"])
    } finally {
      await flooded.close()
    }
  })

  it("limits a Launch's reports and its log separately", async () => {
    const launch = await fixture.launch({})
    const agent = await agentFor(launch)
    const token = bootstrapToken(BOOTSTRAP_KEY, launch.metadata.name)
    await agent.register()
    const url = urlOf("logs", launch.metadata.name)
    const body = await agent.sign("logs", { offset: 0, data: "" })
    const statuses = new Set<number>()
    for (let round = 0; round < 13; round++) {
      const answers = await Promise.all(Array.from({ length: 50 }, () => send(url, { token, body })))
      for (const { status } of answers) statuses.add(status)
    }
    expect([...statuses].sort()).toEqual([200, 429])
    expect((await agent.report({ sequence: 1 })).status).toBe(200)
  })

  it("accepts a valid message while 400 requests of the same address are pending", async () => {
    const agent = await agentFor(await fixture.launch({}))
    await agent.register()
    const headers = { "Content-Type": "application/jose", "Content-Length": 9, Expect: "100-continue" }
    const url = urlOf("report", "slow", gateway)
    const slow = Array.from({ length: 400 }, () => request(url, { method: "POST", headers }))
    for (const each of slow) each.on("error", () => undefined).flushHeaders()
    await Promise.all(slow.map((each) => once(each, "continue")))
    expect((await agent.report({ sequence: 1 })).status).toBe(200)
    for (const each of slow) each.destroy()
  })
})

async function setStatus(launch: StoredLaunch, status: object): Promise<void> {
  const { name } = launch.metadata
  await fixture.client.patchStatus(LAUNCHES, { namespace: fixture.namespace, name }, { merge: { status } })
}

async function makeSecret(name: string, type: string, values: Record<string, string>): Promise<void> {
  const data = Object.fromEntries(
    Object.entries(values).map(([key, value]) => [key, Buffer.from(value).toString("base64")]),
  )
  await fixture.client.create(SECRETS, { metadata: { name, namespace: fixture.namespace }, type, data } as never)
}

describe("gateway: boot failures of a VM that can't run an agent", () => {
  // Uses a gateway of its own: on the others this address has already used up its budget for wrong messages.
  let fresh: TestGateway
  beforeAll(async () => {
    fresh = await startGateway(fixture, { parts: { clock } })
  })
  afterAll(() => fresh.close())
  const failure = { reason: "EngineUnavailable", message: "no Docker engine answered" }
  const tell = (launch: StoredLaunch, { body = failure as object, token = tokenOf(launch), at = fresh } = {}) =>
    send(urlOf("boot-failure", launch.metadata.name, at), {
      token,
      type: "application/json",
      body: JSON.stringify(body),
    })
  const tokenOf = ({ metadata }: StoredLaunch) => bootstrapToken(BOOTSTRAP_KEY, metadata.name)

  it("stores the first boot failure and rejects later registrations", PATIENCE, async () => {
    const launch = await fixture.launch({})
    expect((await tell(launch)).status).toBe(200)
    expect((await tell(launch, { body: { ...failure, message: "another" }, at: other })).status).toBe(200)
    expect((await fixture.read(launch)).status?.bootFailure).toMatchObject(failure)
    expect(await (await agentFor(launch)).register(undefined, fresh)).toMatchObject({
      status: 410,
      body: { type: expect.any(String) },
    })
    expect(await fixture.agentOf(launch)).toBeUndefined()
  })

  it(
    "accepts a boot failure by the token of its own Launch only, until an agent has registered",
    PATIENCE,
    async () => {
      const [launch, another] = [await fixture.launch({}), await fixture.launch({})]
      expect((await tell(launch, { token: tokenOf(another) })).status).toBe(401)
      expect((await tell(launch, { body: { reason: "Bored", message: "" } })).status).toBe(400)
      expect((await tell(launch, { body: { ...failure, message: "x".repeat(5000) } })).status).toBe(413)
      await (await agentFor(launch)).register(undefined, fresh)
      expect((await tell(launch)).status).toBe(409)
      await fixture.end(another)
      expect((await tell(another)).status).toBe(410)
      for (const each of [launch, another]) expect((await fixture.read(each)).status?.bootFailure).toBeUndefined()
    },
  )
})
