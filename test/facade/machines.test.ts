import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import type { MachineJoin, MachineRecord } from "../../src/api/resources/machines/schema.ts"
import { type OfferList, OfferListSchema } from "../../src/api/resources/offers/schema.ts"
import { timestamp } from "../../src/core/apis/clock.ts"
import type { Host, StoredMachine } from "../../src/core/apis/machine.ts"
import { findErrors } from "../../src/core/apis/validate.ts"
import { RBAC_GROUP, ROLE_BINDINGS } from "../../src/core/identity/role-bindings.ts"
import { claimsIn, verifyJoinToken } from "../../src/core/protocol/machines.ts"
import { LAUNCHES, MACHINES } from "../../src/core/resources.ts"
import { jobOf, launchOf } from "../harness/builders.ts"
import { caller, problemIn } from "../harness/caller.ts"
import { eventually } from "../harness/eventually.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { projectFixture } from "../harness/facade-project.ts"
import { BOOTSTRAP_KEY } from "../harness/gateway.ts"
import { SYSTEM_NAMESPACE } from "../harness/system-namespace.ts"

const fixture = projectFixture("facade-machines")
const neighbour = projectFixture("facade-machines-2")
let replica: Replica
const call = caller(() => replica, fixture)
const callOf = caller(() => replica, neighbour)

beforeAll(async () => {
  replica = await startReplica()
})
afterAll(() => replica.close())
beforeEach(async () => {
  for (const { namespace } of [fixture, neighbour]) {
    const { items } = await fixture.client.list(MACHINES, { namespace })
    for (const { metadata } of items) await fixture.client.delete(MACHINES, metadata)
  }
})

type Joining = MachineRecord & { join: MachineJoin }

async function create(changes: object = {}, headers: Record<string, string> = {}): Promise<Joining> {
  const response = await call("/1/machines", { body: { name: "gpu-1", ...changes }, headers })
  expect([response.status, response.headers.get("cache-control")]).toEqual([201, "no-store"])
  return (await response.json()) as Joining
}

function stored(name = "gpu-1"): Promise<StoredMachine> {
  return fixture.client.get(MACHINES, { namespace: fixture.namespace, name })
}

async function read(name = "gpu-1"): Promise<MachineRecord> {
  return (await (await call(`/1/machines/${name}`)).json()) as MachineRecord
}

const TIME = timestamp(new Date())
const HOST: Host = {
  ...{ joinNumber: 1, joinTime: TIME, signingKey: "{}", encryptionKey: "{}", version: "0.2.0", sequence: 1 },
  facts: { cpu: 8, memoryGib: 32, diskGib: 100, architecture: "amd64", gpu: { model: "L4", count: 2, vramGib: 24 } },
  ...{ lastHeartbeatTime: TIME, leaseSeconds: 900 },
}

/** Writes a machine's status as gateway and operator do. */
async function writeStatus(status: object, name = "gpu-1"): Promise<void> {
  await fixture.client.patchStatus(MACHINES, { namespace: fixture.namespace, name }, { merge: { status } })
}

describe("POST /machines", () => {
  it("gives a token for one host, with the commands, and never shows it again", async () => {
    const made = await create({ hourly_price_usd: 0.2, region: "office", lease_seconds: 300 })
    const { join, ...record } = made
    const { metadata, spec } = await stored()
    expect(verifyJoinToken(BOOTSTRAP_KEY, join.token)).toEqual({
      ...{ namespace: fixture.namespace, name: "gpu-1", uid: metadata.uid, number: 1 },
      expires: Date.parse(join.expires_at) / 1000,
    })
    expect(Date.parse(join.expires_at) - Date.now()).toBeGreaterThan(3_500_000)
    expect([join.docker, join.systemd]).toEqual([
      expect.stringContaining(join.token),
      expect.stringContaining(join.token),
    ])
    expect(spec).toMatchObject({
      hourlyPriceUsd: 0.2,
      region: "office",
      leaseSeconds: 300,
      joinNumber: 1,
      shared: false,
    })
    expect(record).toMatchObject({
      ...{ name: "gpu-1", status: "pending", job: null, facts: null, hourly_price_usd: 0.2, region: "office" },
      ...{ lease_seconds: 300, shared: false, unschedulable: false, joined_at: null },
    })
    expect(await read()).toEqual(record)
    const list = await (await call("/1/machines")).json()
    expect(list).toEqual({ machines: [record], total: 1, offset: 0, limit: 50 })
    expect(replica.logged()).not.toContain(join.token)
  })

  it("creates one machine for a repeated request", async () => {
    const headers = { "Idempotency-Key": "machine-once" }
    const [first, again] = [await create({}, headers), await create({}, headers)]
    expect([again.id, claimsIn(again.join.token).number]).toEqual([first.id, 1])
    const other = await call("/1/machines", { body: { name: "gpu-2" }, headers })
    expect((await problemIn(other)).type).toMatch(/idempotency-key-reused$/)
  })

  it.each([
    [{ lease_seconds: 60 }, "/lease_seconds"],
    [{ hourly_price_usd: -1 }, "/hourly_price_usd"],
    [{ region: "Berlin Mitte" }, "/region"],
    [{ name: "a" }, "/name"],
    [{ host: "10.0.0.1" }, "/host"],
  ])("refuses %j", async (changes, pointer) => {
    const response = await call("/1/machines", { body: { name: "gpu-1", ...changes } })
    const { status, errors } = await problemIn(response)
    expect([status, errors.map((error) => error.pointer)]).toEqual([400, [pointer]])
  })

  it("refuses to share a machine with all projects: only an administrator of the cluster may", async () => {
    await eventually(async () => {
      const response = await call("/1/machines", { body: { name: "gpu-9", shared: true } })
      expect([response.status, (await problemIn(response)).detail]).toEqual([403, expect.stringContaining("share")])
    })
    await create()
    expect((await call("/1/machines/gpu-1", { method: "PATCH", body: { shared: true } })).status).toBe(403)
    await fixture.client.patch(
      MACHINES,
      { namespace: fixture.namespace, name: "gpu-1" },
      { merge: { spec: { shared: true } } },
    )
    // It may still be drained, and un-shared.
    for (const change of [{ unschedulable: true }, { shared: false }]) {
      expect((await call("/1/machines/gpu-1", { method: "PATCH", body: change })).status).toBe(200)
    }
    expect((await stored()).spec).toMatchObject({ shared: false, unschedulable: true })
  })
})

describe("an installation that forbids machines", () => {
  let forbidding: Replica
  const callThere = caller(() => forbidding, fixture)

  beforeAll(async () => {
    forbidding = await startReplica({ settings: { projectLimits: { machines: 0 } } })
  })
  afterAll(() => forbidding.close())

  it("gives no token: for a new machine, for one that exists, or again for a repeated request", async () => {
    const headers = { "Idempotency-Key": "before-the-limit" }
    const body = { name: "gpu-1" }
    await create(body, headers)
    for (const answer of [
      await callThere("/1/machines", { body: { name: "gpu-2" } }),
      await callThere("/1/machines", { body, headers }),
      await callThere("/1/machines/gpu-1/token", { method: "POST" }),
    ]) {
      const { status, type, detail } = await problemIn(answer)
      expect([status, type]).toEqual([403, "https://berth.dev/problems/project-limit"])
      expect(detail).toContain("allows projects no machines of their own")
    }
    expect((await stored()).spec.joinNumber).toBe(1)
  })

  it("still drains and removes one that exists", async () => {
    await create()
    const drained = await callThere("/1/machines/gpu-1", { method: "PATCH", body: { unschedulable: true } })
    expect(drained.status).toBe(200)
    expect((await callThere("/1/machines/gpu-1", { method: "DELETE" })).status).toBe(204)
  })
})

describe("a machine", () => {
  it("shows its host, and the project's job that has it", async () => {
    await create()
    const job = jobOf({ metadata: { namespace: fixture.namespace, name: "train" } })
    const { metadata, spec } = launchOf(job)
    const at = { name: metadata.name, namespace: SYSTEM_NAMESPACE }
    await fixture.client.create(LAUNCHES, { ...launchOf(job), metadata: at, spec } as never)
    const launch = {
      ...{ name: at.name, installation: "i", namespace: fixture.namespace, region: "own", specDigest: "d" },
      createTime: TIME,
    }
    await writeStatus({ host: { ...HOST, running: at.name }, launch })
    const facts = { cpu: 8, memory_gib: 32, disk_gib: 100, architecture: "amd64" }
    await eventually(async () =>
      expect(await read()).toMatchObject({
        ...{ status: "busy", job: "train", agent_version: "0.2.0", joined_at: TIME, last_heartbeat_at: TIME },
        facts: { ...facts, gpu_model: "L4", gpu_count: 2, gpu_vram_gib: 24 },
        lease_ends_at: timestamp(new Date(Date.parse(TIME) + 960_000)),
      }),
    )
    await writeStatus({ launch: { namespace: neighbour.namespace } })
    await eventually(async () => expect(await read()).toMatchObject({ status: "busy", job: null }))
    await fixture.client.delete(LAUNCHES, at)
  })

  it("has a region that the project's jobs may name, and those of no other project", async () => {
    await create({ region: "lab-seven" })
    const body = { image: "a", cloud: ["own"], region: ["lab-seven"] }
    expect((await call("/1/jobs", { body })).status).toBe(400)
    await writeStatus({ host: HOST })
    await eventually(async () => {
      const answer = await call("/1/jobs", { body })
      expect([answer.status, answer.status === 201 ? "" : await answer.text()]).toEqual([201, ""])
    })
    expect((await callOf("/1/jobs", { body })).status).toBe(400)
  })

  it("is changed, and drained, also with the record that was read", async () => {
    await create()
    const record = await read()
    const change = { ...record, hourly_price_usd: 1.5, lease_seconds: 86_400, unschedulable: true }
    const response = await call("/1/machines/gpu-1", { method: "PATCH", body: change })
    expect([response.status, await response.json()]).toMatchObject([
      200,
      { hourly_price_usd: 1.5, lease_seconds: 86_400 },
    ])
    expect((await stored()).spec).toMatchObject({
      hourlyPriceUsd: 1.5,
      leaseSeconds: 86_400,
      unschedulable: true,
      joinNumber: 1,
    })
    const renamed = await call("/1/machines/gpu-1", { method: "PATCH", body: { name: "gpu-2" } })
    expect(renamed.status).toBe(400)
  })

  it("gets another token, which makes the former ones invalid", async () => {
    const { join } = await create()
    const response = await call("/1/machines/gpu-1/token", { method: "POST" })
    const again = (await response.json()) as Joining
    expect([claimsIn(join.token).number, claimsIn(again.join.token).number]).toEqual([1, 2])
    expect((await stored()).spec.joinNumber).toBe(2)
  })

  it("is removed", async () => {
    await create()
    expect((await call("/1/machines/gpu-1", { method: "DELETE" })).status).toBe(204)
    expect((await call("/1/machines/gpu-1")).status).toBe(404)
  })

  it("gets no job of another project, and is not in its offers or plans", async () => {
    await create({ region: "lab-eight" })
    await writeStatus({ host: HOST })
    const plan = { image: "a", cloud: ["own"] }
    await eventually(async () => {
      const planned = await (await call("/1/jobs?dry_run=true", { body: plan })).json()
      expect(planned).toMatchObject({ verdict: "placeable", placements: [{ instance_type: "gpu-1" }] })
    })
    const planned = await (await callOf("/1/jobs?dry_run=true", { body: plan })).json()
    expect(planned).toMatchObject({ verdict: "noOffer", placements: [] })
    for (const path of ["/1/offers", "/1/offers?cloud=own"])
      expect(await (await callOf(path)).text()).not.toMatch(/gpu-1|lab-eight/)
  })

  it("is among the project's offers, with the reason if it gets no job now", async () => {
    await create({ hourly_price_usd: 0.2, region: "lab-nine" })
    await writeStatus({ host: HOST })
    const offers = async (query: string) => {
      const list = (await (await call(`/1/offers?cloud=own&${query}`)).json()) as OfferList
      expect(findErrors(OfferListSchema, list)).toEqual([])
      return list.offers.map((offer) => [offer.instance_type, offer.unavailable])
    }
    await eventually(async () => expect(await offers("gpu=L4:2&region=lab-nine")).toEqual([["gpu-1", null]]))
    const [first] = ((await (await call("/1/offers?cloud=own")).json()) as OfferList).offers
    expect(first).toMatchObject({
      ...{ provider: "own", region: "lab-nine", cpu: 8, memory: "32Gi", price_date: null },
      ...{ hourly_price_usd: 0.2, total_usd_per_hour: 0.2, gpu: { model: "L4", count: 2 } },
    })
    expect(await offers("cpu=9")).toEqual([])
    expect(await offers("disk=200Gi")).toEqual([["gpu-1", "machine gpu-1 has 100 GiB of free disk, the job needs 200"]])
    const launch = { ...{ name: "l-1", installation: "i", namespace: fixture.namespace }, createTime: TIME }
    await writeStatus({ launch: { ...launch, region: "own", specDigest: "d" } })
    await eventually(async () => expect(await offers("")).toEqual([["gpu-1", "machine gpu-1 has another job"]]))
    await call("/1/machines/gpu-1", { method: "PATCH", body: { unschedulable: true } })
    await eventually(async () => expect(await offers("")).toEqual([["gpu-1", "machine gpu-1 is drained"]]))
  })

  it("is invisible to other projects, also if it is shared", async () => {
    const { id } = await create()
    await fixture.client.patch(
      MACHINES,
      { namespace: fixture.namespace, name: "gpu-1" },
      { merge: { spec: { shared: true } } },
    )
    for (const path of [`/1/machines/${id}`, "/1/machines/gpu-1"]) {
      for (const method of ["GET", "DELETE"]) expect((await callOf(path, { method })).status).toBe(404)
      expect((await callOf(path, { method: "PATCH", body: { unschedulable: true } })).status).toBe(404)
      expect((await callOf(`${path}/token`, { method: "POST" })).status).toBe(404)
    }
    expect(await (await callOf("/1/machines")).json()).toMatchObject({ machines: [], total: 0 })
  })
})

describe("an administrator of another project's namespace", () => {
  const as = { user: "admin-of-the-neighbour" }
  const forbidden = { code: 403 }

  beforeAll(async () => {
    const subjects = [{ kind: "User", apiGroup: RBAC_GROUP, name: as.user }]
    const metadata = { name: as.user, namespace: neighbour.namespace }
    const roleRef = { apiGroup: RBAC_GROUP, kind: "ClusterRole", name: "admin" }
    await fixture.client.create(ROLE_BINDINGS, { metadata, roleRef, subjects })
    await eventually(() => fixture.client.list(MACHINES, { namespace: neighbour.namespace, as }))
  })

  it("reaches no machine by Kubernetes' API", async () => {
    await create()
    const { client, namespace } = fixture
    const ref = { namespace, name: "gpu-1" }
    const other = { metadata: { namespace, name: "gpu-2" }, spec: {} } as StoredMachine
    const merge = { spec: { shared: true } }
    for (const attack of [
      () => client.get(MACHINES, ref, { as }),
      () => client.list(MACHINES, { namespace, as }),
      () => client.list(MACHINES, { as }),
      () => client.create(MACHINES, other, { as }),
      () => client.patch(MACHINES, ref, { merge }, { as }),
      () => client.patchStatus(MACHINES, ref, { merge: { status: { host: HOST } } }, { as }),
      () => client.delete(MACHINES, ref, { as }),
    ])
      await expect(attack()).rejects.toMatchObject(forbidden)
    expect((await stored()).status?.host).toBeUndefined()
  })

  it("can neither share an own machine nor write what hosts and Berth report", async () => {
    const { client } = fixture
    const ref = { namespace: neighbour.namespace, name: "theirs" }
    await client.create(MACHINES, { metadata: ref, spec: {} } as StoredMachine, { as })
    await expect(client.patch(MACHINES, ref, { merge: { spec: { shared: true } } }, { as })).rejects.toMatchObject(
      forbidden,
    )
    for (const status of [{ host: HOST }, { launch: { name: "l-1", namespace: fixture.namespace } }]) {
      await expect(client.patchStatus(MACHINES, ref, { merge: { status } }, { as })).rejects.toMatchObject(forbidden)
    }
    const launch = { ...launchOf(jobOf()), metadata: { name: "forged", namespace: SYSTEM_NAMESPACE } }
    await expect(client.create(LAUNCHES, launch as never, { as })).rejects.toMatchObject(forbidden)
  })
})
