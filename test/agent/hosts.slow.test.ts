import { afterAll, beforeAll, describe, expect, it } from "vitest"
import type { Machines } from "../../src/api/gateway/machines.ts"
import type { MachineSpec, StoredMachine } from "../../src/core/apis/machine.ts"
import { API_VERSION } from "../../src/core/apis/meta.ts"
import { type BeatRequest, joinToken, machineToken } from "../../src/core/protocol/machines.ts"
import {
  type AgentKeys,
  bootstrapToken,
  generateAgentKeys,
  openBootConfig,
  openOrder,
  publicKey,
  signMessage,
} from "../../src/core/protocol/messages.ts"
import { MACHINES } from "../../src/core/resources.ts"
import { BOOTSTRAP_KEY, startGateway, type TestGateway } from "../harness/gateway.ts"
import { launchFixture } from "../harness/launches.ts"
import { ManualClock } from "../harness/manual-clock.ts"

const fixture = launchFixture("hosts")
const { namespace } = fixture
const FACTS = { cpu: 8, memoryGib: 32, diskGib: 100, architecture: "amd64" } as const
let gateway: TestGateway
/** Another replica. The two share only the API server. */
let other: TestGateway
/** Its clock is the test's, and begins now. */
let timed: TestGateway
const manual = new ManualClock()
/** Names of the Machines for whose change a replica waits. */
const waits: string[] = []
/** Machines as the replicas' caches have them still. */
const stale = new Map<string, StoredMachine>()

function noting(all: Machines): Machines {
  return {
    ...all,
    get: (ref) => stale.get(ref.name) ?? all.get(ref),
    untilChanged: (machine, signal) => {
      waits.push(machine.metadata.name)
      return all.untilChanged(machine, signal)
    },
  }
}

beforeAll(async () => {
  gateway = await startGateway(fixture, { machines: noting })
  other = await startGateway(fixture, { machines: noting })
  timed = await startGateway(fixture, { machines: noting, parts: { clock: manual } })
})
afterAll(() => Promise.all([gateway, other, timed].map((each) => each.close())))

let machines = 0

async function create(spec: MachineSpec = {}): Promise<StoredMachine> {
  const object = {
    ...{ apiVersion: API_VERSION, kind: "Machine" },
    metadata: { name: `gpu-${++machines}`, namespace },
    spec: { joinNumber: 1, ...spec },
  }
  return await fixture.client.create(MACHINES, object as StoredMachine)
}

function read({ metadata: { name } }: StoredMachine): Promise<StoredMachine> {
  return fixture.client.get(MACHINES, { namespace, name })
}

interface Answer {
  status: number
  retryAfter: string | null
  body: {
    next?: string
    stop?: string
    leaseSeconds?: number
    machineToken?: string
    type?: string
    detail?: string
  }
}

interface Sent {
  token: string
  body: string
  at?: TestGateway | undefined
}

async function post(path: string, { token, body, at = gateway }: Sent): Promise<Answer> {
  const answer = await fetch(`${at.url}/agent/v1/machines/${path}`, {
    method: "POST",
    headers: { "Content-Type": "application/jose", Authorization: `Bearer ${token}` },
    body,
  })
  const retryAfter = answer.headers.get("Retry-After")
  return { status: answer.status, retryAfter, body: (await answer.json()) as Answer["body"] }
}

/** Returns a join token of the machine. */
function tokenOf({ metadata: { name, uid } }: StoredMachine, number = 1): string {
  const expires = Math.floor(Date.now() / 1000) + 3600
  return joinToken(BOOTSTRAP_KEY, { namespace, name, uid, number, expires })
}

/** Host of a machine. */
async function hostOf({ metadata: { name, uid } }: StoredMachine, number = 1) {
  const keys: AgentKeys = await generateAgentKeys()
  let sequence = 0
  const join = async (token: string, at?: TestGateway) => {
    const request = {
      ...{ protocol: 1, version: "test", facts: FACTS },
      signingKey: publicKey(keys.signing, "Ed25519"),
      encryptionKey: publicKey(keys.encryption, "X25519"),
    }
    return await post(`${namespace}/${name}/join`, {
      token,
      body: await signMessage("join", request, keys.signing),
      at,
    })
  }
  const beat = async (request: Partial<BeatRequest> = {}, at?: TestGateway) => {
    const body = await signMessage("beat", { sequence: ++sequence, ...request }, keys.signing)
    return await post(`${namespace}/${name}/beat`, { token: machineToken(BOOTSTRAP_KEY, uid, number), body, at })
  }
  return {
    keys,
    join,
    beat,
    order: async ({ body }: Answer) => await openBootConfig(String(body.next), keys.encryption),
  }
}

async function joined(spec?: MachineSpec) {
  const machine = await create(spec)
  const host = await hostOf(machine)
  expect(await host.join(tokenOf(machine))).toMatchObject({ status: 200 })
  return { machine, host }
}

/** Resolves once a replica waits for a change of the Machine. */
async function isWaiting({ metadata: { name } }: StoredMachine): Promise<void> {
  await expect.poll(() => waits.includes(name)).toBe(true)
  waits.splice(waits.indexOf(name), 1)
}

/** Gives the machine to a new Launch, as the operator does. */
async function assign(machine: StoredMachine) {
  const { name } = machine.metadata
  const offer = { cloud: "own", region: "own", instanceType: name, architecture: "amd64" as const }
  const price = { provisioning: "onDemand" as const, cpu: 8, memoryGib: 32, hourlyPriceUsd: 0, minimumBilledSeconds: 0 }
  const launch = await fixture.launch({}, { offer: { ...offer, ...price }, job: { ...(await jobOf()), namespace } })
  const assigned = {
    ...{ name: launch.metadata.name, installation: "test", namespace, region: "own", specDigest: "d" },
    createTime: "2026-01-01T00:00:00Z",
  }
  await writeStatus(machine, { launch: { ...assigned, endTime: null } })
  return launch
}

async function jobOf() {
  const { spec } = await fixture.launch({})
  return spec.job
}

async function writeStatus({ metadata: { name } }: StoredMachine, status: object): Promise<void> {
  await fixture.client.patchStatus(MACHINES, { namespace, name }, { merge: { status } })
}

describe("a host that joins", () => {
  it("gets its token, and gets it again if the answer was lost", async () => {
    const machine = await create({ leaseSeconds: 300 })
    const host = await hostOf(machine)
    const token = tokenOf(machine)
    const answers = [await host.join(token), await host.join(token, other)]
    for (const { status, body } of answers) {
      expect([status, body.machineToken]).toEqual([200, machineToken(BOOTSTRAP_KEY, machine.metadata.uid, 1)])
      expect(body.leaseSeconds).toBeGreaterThan(250)
    }
    expect((await read(machine)).status?.host).toMatchObject({
      joinNumber: 1,
      facts: FACTS,
      sequence: 0,
      version: "test",
    })
  })

  it("can't use the token of another machine, a used one, or a former one", async () => {
    const { machine } = await joined()
    const stranger = await hostOf(machine)
    expect(await stranger.join(tokenOf(await create()))).toMatchObject({ status: 401 })
    expect(await stranger.join(machineToken(BOOTSTRAP_KEY, machine.metadata.uid, 1))).toMatchObject({ status: 401 })
    const used = await stranger.join(tokenOf(machine))
    expect([used.status, used.body.type]).toEqual([409, expect.stringMatching(/join-token-used$/)])
    await fixture.client.patch(MACHINES, machine.metadata, { merge: { spec: { joinNumber: 3 } } })
    expect((await stranger.join(tokenOf(machine, 2))).body.type).toMatch(/join-token-used$/)
    expect(await stranger.join(tokenOf(machine, 3))).toMatchObject({ status: 200 })
  })

  it("replaces the former one, which is refused from then on, also in a request that waits", async () => {
    const { machine, host } = await joined({ joinNumber: 1 })
    const waiting = host.beat({}, other)
    await isWaiting(machine)
    await fixture.client.patch(MACHINES, machine.metadata, { merge: { spec: { joinNumber: 2 } } })
    const next = await hostOf(machine, 2)
    expect(await next.join(tokenOf(machine, 2))).toMatchObject({ status: 200 })
    expect(await waiting).toMatchObject({ status: 401 })
    expect(await host.beat()).toMatchObject({ status: 401 })
    expect(await next.beat({ running: "none" })).toMatchObject({ status: 200 })
  })

  it("waits while the former one may run a job, and learns until when", async () => {
    const { machine, host } = await joined({ joinNumber: 1 })
    const { metadata } = await assign(machine)
    await host.beat({ running: metadata.name })
    await fixture.client.patch(MACHINES, machine.metadata, { merge: { spec: { joinNumber: 2 } } })
    const next = await hostOf(machine, 2)
    const held = await next.join(tokenOf(machine, 2))
    expect([held.status, held.body.type]).toEqual([409, expect.stringMatching(/machine-held$/)])
    expect(Number(held.retryAfter)).toBeGreaterThan(900)
    // The operator has seen no heartbeat for the lease.
    await writeStatus(machine, { launch: { lostTime: "2026-01-01T00:00:00Z" } })
    expect(await next.join(tokenOf(machine, 2))).toMatchObject({ status: 200 })
    expect((await read(machine)).status?.host).toMatchObject({ freed: metadata.name, joinNumber: 2 })
  })

  it("learns that the installation forbids machines, unless it has joined before", async () => {
    const { machine, host } = await joined()
    const whyForbidden = "this installation allows no machines"
    const forbidding = await startGateway(fixture, { parts: { whyForbidden } })
    const unjoined = await create()
    try {
      const refused = await (await hostOf(unjoined)).join(tokenOf(unjoined), forbidding)
      expect([refused.status, refused.body.type]).toEqual([403, expect.stringMatching(/machines-forbidden$/)])
      expect(refused.body.detail).toContain(whyForbidden)
      expect((await read(unjoined)).status?.host).toBeUndefined()
      expect(await host.join(tokenOf(machine), forbidding)).toMatchObject({ status: 200 })
      expect(await host.beat({ running: "none" }, forbidding)).toMatchObject({ status: 200 })
    } finally {
      await forbidding.close()
    }
  })

  it("learns that its machine was removed", async () => {
    const { machine, host } = await joined()
    await fixture.client.delete(MACHINES, machine.metadata)
    await expect.poll(async () => (await host.beat({ running: "none" })).status).toBe(401)
    const gone = await (await hostOf(machine)).join(tokenOf(machine))
    expect([gone.status, gone.body.type]).toEqual([404, expect.stringMatching(/unknown-machine$/)])
  })
})

describe("a host that waits for a job", () => {
  it("gets it within the same request, from any replica, sealed to its key, and again if the answer was lost", async () => {
    const { machine, host } = await joined()
    const waiting = [host.beat(), host.beat({}, other)]
    await isWaiting(machine)
    await isWaiting(machine)
    const launch = await assign(machine)
    const token = bootstrapToken(BOOTSTRAP_KEY, launch.metadata.name)
    for (const answer of [...(await Promise.all(waiting)), await host.beat()]) {
      expect(JSON.stringify(answer.body)).not.toContain(token)
      expect(await host.order(answer)).toMatchObject({ launch: launch.metadata.name, bootstrapToken: token })
    }
  })

  it("frees the machine of a job that ended before it began", async () => {
    const { machine, host } = await joined()
    const launch = await assign(machine)
    await fixture.end(launch)
    const waiting = host.beat()
    await isWaiting(machine)
    expect((await read(machine)).status?.host?.freed).toBe(launch.metadata.name)
    const next = await assign(machine)
    expect(await host.order(await waiting)).toMatchObject({ launch: next.metadata.name })
  })

  it("gets no order again once the agent of its job has registered, and may use the memory that is offered", async () => {
    const { machine, host } = await joined()
    const launch = await assign(machine)
    const { launch: name, bootstrapToken: token } = await host.order(await host.beat())
    const keys = await generateAgentKeys()
    const registration = {
      ...{ protocol: 1, launch: name, version: "test", runtime: "docker", abilities: [] },
      signingKey: publicKey(keys.signing, "Ed25519"),
      encryptionKey: publicKey(keys.encryption, "X25519"),
    }
    const path = `${gateway.url}/agent/v1/launches/${name}/register`
    const registered = await fetch(path, {
      method: "POST",
      headers: { "Content-Type": "application/jose", Authorization: `Bearer ${token}` },
      body: await signMessage("register", registration, keys.signing),
    })
    const { order } = (await registered.json()) as { order: string }
    expect((await openOrder(order, keys.encryption)).sharedHost).toEqual({ memoryMib: 31.5 * 1024 })
    const waiting = host.beat({}, other)
    await isWaiting(machine)
    await fixture.end(launch)
    expect(await host.beat({ running: name })).toMatchObject({
      status: 200,
      body: { leaseSeconds: expect.any(Number) },
    })
    // Its heartbeat is older than the one that said what it runs.
    expect((await waiting).body).toEqual({ leaseSeconds: expect.any(Number) })
    expect((await read(machine)).status?.host?.freed).toBeUndefined()
  })

  it("is answered after 25 s without a job, and is written every 45 s", async () => {
    const machine = await create()
    const host = await hostOf(machine)
    const started = manual.now()
    expect(await host.join(tokenOf(machine), timed)).toMatchObject({ body: { leaseSeconds: 900 } })
    const leases: unknown[] = []
    const versions = new Set<string>()
    for (let beats = 0; beats < 3; beats++) {
      const waiting = host.beat({}, timed)
      await isWaiting(machine)
      versions.add((await read(machine)).metadata.resourceVersion)
      manual.advance(25)
      leases.push((await waiting).body.leaseSeconds)
    }
    expect([leases, versions.size]).toEqual([[875, 850, 875], 2])
    expect((await read(machine)).status?.host?.lastHeartbeatTime).toBe(
      new Date(started.getTime() + 50_000).toISOString().replace(".000Z", "Z"),
    )
    expect(manual.timers).toBe(0)
  })
})

describe("a host that has a job", () => {
  it("is asked to end it, says that nothing of it is left, and gets the next one", async () => {
    const { machine, host } = await joined()
    const { name } = (await assign(machine)).metadata
    expect((await host.beat({ running: name })).body.stop).toBeUndefined()
    await writeStatus(machine, { launch: { endTime: "2026-01-01T00:01:00Z" } })
    await expect.poll(async () => (await host.beat({ running: name })).body.stop).toBe(name)
    expect(await host.beat({ running: name, unfit: "its disk is full" })).toMatchObject({ status: 200 })
    expect((await read(machine)).status?.host).toMatchObject({ running: name, unfit: "its disk is full" })
    const waiting = host.beat({ freed: name })
    await isWaiting(machine)
    const { host: written } = (await read(machine)).status ?? {}
    expect([written?.freed, written?.running, written?.unfit]).toEqual([name, undefined, undefined])
    const next = await assign(machine)
    expect(await host.order(await waiting)).toMatchObject({ launch: next.metadata.name })
  })

  it("is not asked to end its job by a replica whose cache is behind", async () => {
    const { machine, host } = await joined()
    stale.set(machine.metadata.name, await read(machine))
    const { name } = (await assign(machine)).metadata
    for (let beats = 0; beats < 2; beats++) {
      const { status, body } = await host.beat({ running: name }, other)
      expect([status, body.stop]).toEqual([200, undefined])
    }
    stale.delete(machine.metadata.name)
  })

  it("changes nothing by a late message", async () => {
    const { machine, host } = await joined()
    const { name } = (await assign(machine)).metadata
    await host.beat({ sequence: 50, running: name })
    expect(await host.beat({ sequence: 49, freed: name })).toMatchObject({ status: 200 })
    expect((await read(machine)).status?.host).toMatchObject({ running: name, sequence: 50 })
  })
})

describe("forged messages", () => {
  it("are refused with another key, another token, or another kind", async () => {
    const { machine, host } = await joined()
    const { name, uid } = machine.metadata
    const path = `${namespace}/${name}/beat`
    const token = machineToken(BOOTSTRAP_KEY, uid, 1)
    const thief = await hostOf(machine)
    expect(await thief.beat()).toMatchObject({ status: 401 })
    const body = await signMessage("beat", { sequence: 7 }, host.keys.signing)
    for (const wrong of [
      "",
      bootstrapToken(BOOTSTRAP_KEY, name),
      tokenOf(machine),
      machineToken(BOOTSTRAP_KEY, uid, 2),
    ]) {
      expect(await post(path, { token: wrong, body })).toMatchObject({ status: 401 })
    }
    const next = await signMessage("next", { sequence: 7, launch: "any" }, host.keys.signing)
    expect(await post(path, { token, body: next })).toMatchObject({ status: 400 })
    expect(await post(path, { token, body: "x" })).toMatchObject({ status: 400 })
    expect(await post(path, { token, body: "x".repeat(40_000) })).toMatchObject({ status: 413 })
    // One answer for machines that exist and for others.
    const unknown = await post(`${namespace}/none/beat`, { token, body })
    expect(unknown).toMatchObject({
      status: 401,
      body: { detail: (await post(path, { token: "x", body })).body.detail },
    })
  })
})
