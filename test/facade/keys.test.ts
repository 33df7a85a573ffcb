import { randomBytes } from "node:crypto"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { CACHE_OPTIONS } from "../../src/api/caches.ts"
import { Changes } from "../../src/api/changes.ts"
import { KeyedMutex } from "../../src/api/idempotency.ts"
import { Keys, type KeysOptions } from "../../src/api/resources/keys/keys.ts"
import type { KeyCreated, KeyItem, KeyList, KeyRecord } from "../../src/api/resources/keys/schema.ts"
import { ROLES, roleAllows } from "../../src/core/apis/apikey.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import { CreationTimes } from "../../src/core/apis/creation-times.ts"
import { hashKey } from "../../src/core/identity/apikeys.ts"
import { IDENTITIES_NAMESPACE, SERVICE_ACCOUNTS } from "../../src/core/identity/machine-users.ts"
import { type CallerClient, impersonatingUser } from "../../src/core/identity/principal.ts"
import { hasRights } from "../../src/core/identity/rights.ts"
import { ROLE_BINDINGS } from "../../src/core/identity/role-bindings.ts"
import { CLIENT_REASONS, KubeError } from "../../src/core/kube/errors.ts"
import { IndexedStore } from "../../src/core/kube/store.ts"
import { API_KEYS, PROJECTS } from "../../src/core/resources.ts"
import { testNamespace } from "../control-plane.ts"
import { deleteKey, makeKey } from "../harness/api-keys.ts"
import { BASE_DOMAIN, caller, problemIn } from "../harness/caller.ts"
import { eventually } from "../harness/eventually.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { makeProject, projectFixture } from "../harness/facade-project.ts"
import { plainClient } from "./plain-client.ts"

const fixture = projectFixture("facade-keys")
let replica: Replica
let second: Replica
const call = caller(() => replica, fixture)
const callSecond = caller(() => second, fixture)

beforeAll(async () => {
  replica = await startReplica()
  second = await startReplica()
})
afterAll(async () => {
  await replica.close()
  await second.close()
})
/** Returns all keys except those of the test fixture. */
beforeEach(async () => {
  const { items } = await fixture.client.list(API_KEYS, { namespace: fixture.namespace })
  const made = items.filter(({ metadata }) => !metadata.name.startsWith("key-"))
  await Promise.all(made.map(({ metadata }) => deleteKey(fixture.client, metadata)))
})

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/
const HOUR_MS = 3_600_000

async function made(body: object, headers: Record<string, string> = {}): Promise<KeyCreated> {
  const response = await call("/1/keys", { body, headers })
  if (response.status !== 201) throw new Error(`not made: ${response.status} ${await response.text()}`)
  return (await response.json()) as KeyCreated
}

async function listed(query = ""): Promise<KeyList> {
  const response = await call(`/1/keys${query}`)
  expect(response.status).toBe(200)
  return (await response.json()) as KeyList
}

const stored = async (id: string) => {
  const { items } = await fixture.client.list(API_KEYS, { namespace: fixture.namespace })
  return items.find(({ metadata }) => metadata.uid === id)
}

const statusOf = async (key: string, method = "GET", body?: object): Promise<number> =>
  (await call("/1/jobs", { key, method, ...(body && { body }) })).status

describe("POST /1/keys", () => {
  it("returns 201 with Location and the record with the value, once; stores only its hash (contract, API key record)", async () => {
    const response = await call("/1/keys", { body: { name: "build", role: "developer" } })
    expect(response.status).toBe(201)
    expect(response.headers.get("cache-control")).toBe("no-store")
    const key = (await response.json()) as KeyCreated
    expect(response.headers.get("location")).toBe(`/1/keys/${key.id}`)
    expect(key).toEqual({
      id: expect.stringMatching(UUID),
      name: "build",
      role: "developer",
      created_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.]\d{6}Z$/),
      expires_at: null,
      oidc: null,
      value: expect.stringMatching(/^berth_[a-z0-9]{12}_[\w-]{43}$/),
    })
    expect((await stored(key.id))?.spec).toEqual({
      role: "developer",
      keyId: key.value.split("_")[1],
      tokenHash: hashKey(key.value),
    })
    const { value: _, ...record } = key
    expect(await (await call(`/1/keys/${key.id}`)).json()).toEqual(record)
    expect(JSON.stringify(await listed())).not.toContain(key.value)
    expect(replica.logged()).not.toContain(key.value)
  })

  it("answers after the machine user has its rights: the key works at once, on every replica", async () => {
    for (const role of ROLES) {
      const { id, value } = await made({ name: `as-${role}`, role })
      const user = `apikey-${id}`
      await fixture.client.get(SERVICE_ACCOUNTS, { namespace: IDENTITIES_NAMESPACE, name: user })
      const binding = { namespace: fixture.namespace, name: `berth-${user}-${role}` }
      expect((await fixture.client.get(ROLE_BINDINGS, binding)).roleRef.name).toBe(`berth-${role}`)
      const expected = role === "viewer" ? 403 : 201
      expect((await callSecond("/1/jobs", { key: value, body: { image: "a" } })).status).toBe(expected)
    }
  })

  it("accepts YAML, and an expiry with any offset, which it returns in UTC (design, section 8)", async () => {
    const inAnHour = Math.ceil(Date.now() / 1000) * 1000 + HOUR_MS
    const local = `${new Date(inAnHour + 5.5 * HOUR_MS).toISOString().slice(0, 19)}+05:30`
    const body = `name: My_Key-\nrole: viewer\nexpires_at: "${local}"\n`
    const response = await call("/1/keys", { body, type: "application/yaml" })
    expect(response.status).toBe(201)
    const key = (await response.json()) as KeyCreated
    expect(key).toMatchObject({ name: "My_Key-", expires_at: `${new Date(inAnHour).toISOString().slice(0, 19)}Z` })
    expect((await listed("?name=My_Key-")).keys).toMatchObject([{ id: key.id, name: "My_Key-" }])
  })

  it("treats null fields of a key as omitted", async () => {
    expect(await made({ name: "forever", role: "viewer", expires_at: null })).toMatchObject({ expires_at: null })
  })

  it("rejects key names that are taken with 409, also if only Kubernetes would distinguish them (contract: names unique)", async () => {
    await made({ name: "Taken_1", role: "viewer" })
    const response = await call("/1/keys", { body: { name: "Taken_1", role: "viewer" } })
    expect(response.status).toBe(409)
    expect((await problemIn(response)).errors).toMatchObject([{ pointer: "/name" }])
    await made({ name: "taken_1", role: "viewer" })
    await made({ name: "taken-1", role: "viewer" })
    expect((await listed()).keys.map(({ name }) => name)).toEqual(
      expect.arrayContaining(["Taken_1", "taken_1", "taken-1"]),
    )
  })

  const past = "2020-01-01T00:00:00Z"
  it.each<[string, unknown, string[]]>([
    ["an empty object", {}, ["/name", "/role"]],
    ["null fields", { name: null, role: null }, ["/name", "/role"]],
    ["a name that is too short", { name: "ab", role: "viewer" }, ["/name"]],
    ["a name that is too long", { name: "a".repeat(51), role: "viewer" }, ["/name"]],
    ["a name that starts with a dash", { name: "-abc", role: "viewer" }, ["/name"]],
    ["a name with a dot", { name: "my.key", role: "viewer" }, ["/name"]],
    ["a name with a newline", { name: "abc\n", role: "viewer" }, ["/name"]],
    ["a name in the form of a UUID", { name: "01234567-89AB-cdef-0123-456789abcdef", role: "viewer" }, ["/name"]],
    ["an unknown role", { name: "abc", role: "owner" }, ["/role"]],
    ["an expiry in the past", { name: "abc", role: "viewer", expires_at: past }, ["/expires_at"]],
    ["an expiry that is a date", { name: "abc", role: "viewer", expires_at: "2099-01-01" }, ["/expires_at"]],
    [
      "an expiry without an offset",
      { name: "abc", role: "viewer", expires_at: "2099-01-01T00:00:00" },
      ["/expires_at"],
    ],
    [
      "an expiry on a day that doesn't exist",
      { name: "abc", role: "viewer", expires_at: "2099-02-30T00:00:00Z" },
      ["/expires_at"],
    ],
    ["an expiry that is a number", { name: "abc", role: "viewer", expires_at: 4102444800 }, ["/expires_at"]],
    [
      "an expiry in the year 10000",
      { name: "abc", role: "viewer", expires_at: "9999-12-31T23:59:59-01:00" },
      ["/expires_at"],
    ],
    ["an unknown field", { name: "abc", role: "viewer", value: "mine" }, ["/value"]],
    ["a list", [], [""]],
  ])("rejects %s with 400 and creates no key", async (_what, body, pointers) => {
    const before = (await listed()).total
    const response = await call("/1/keys", { body })
    expect(response.status).toBe(400)
    const { errors } = await problemIn(response)
    expect([...new Set(errors.map(({ pointer }) => pointer))].toSorted()).toEqual(pointers)
    expect((await listed()).total).toBe(before)
  })

  it("returns 409 for a repeated Idempotency-Key, on every replica, and creates one key (design, section 8)", async () => {
    const headers = { "Idempotency-Key": "once" }
    await made({ name: "once-1", role: "viewer" }, headers)
    for (const name of ["once-1", "once-2"]) {
      const response = await callSecond("/1/keys", { body: { name, role: "viewer" }, headers })
      expect(response.status).toBe(409)
      expect((await problemIn(response)).type).toContain("value-shown-once")
    }
    expect((await listed()).keys.filter(({ name }) => name.startsWith("once"))).toHaveLength(1)
    // Also for an expired key, although another key of that name would be possible.
    const late = { body: { name: "once-1", role: "viewer", expires_at: past } }
    expect((await callSecond("/1/keys", { ...late, headers })).status).toBe(409)
    expect((await callSecond("/1/keys", { ...late, headers: { "Idempotency-Key": "another" } })).status).toBe(400)
  })

  it("creates one key for concurrent requests with one name", async () => {
    const body = { name: "contested", role: "viewer" }
    const answers = await Promise.all([0, 1, 2, 3].map((n) => (n % 2 ? call : callSecond)("/1/keys", { body })))
    expect(answers.map(({ status }) => status).toSorted()).toEqual([201, 409, 409, 409])
  })
})

describe("the rights of a new key", () => {
  const { client } = fixture
  const wanted = { name: "New", metadataName: "new.u1", role: "developer", expiresAt: undefined } as const

  /** Returns keys whose API server denies each right at first, so many times. */
  function keysWith(denials: number): { keys: Keys; asked: { user: string; spec: unknown; isAllowed: boolean }[] } {
    const asked: { user: string; spec: unknown; isAllowed: boolean }[] = []
    const asUser = (user: string): Pick<CallerClient, "create"> => ({
      create: async (resource, object) => {
        const isAllowed = asked.length >= denials
        asked.push({ user, spec: (object as { spec?: unknown }).spec, isAllowed })
        if (isAllowed) return impersonatingUser(client, user).create(resource, object)
        return { ...object, status: { allowed: false } } as never
      },
    })
    const { namespace } = fixture
    const store = replica.apiKeys.store
    const creationTimes = new CreationTimes(systemClock)
    const options = {
      store,
      namespace,
      reader: client,
      writer: client,
      creationTimes,
      mutexes: { creations: new KeyedMutex(), changes: new Changes() },
    }
    return { keys: new Keys({ ...options, asUser, clock: systemClock }), asked }
  }

  it("are in force at the API server when POST /1/keys answers", async () => {
    const { keys, asked } = keysWith(3)
    const { key } = await keys.create(wanted)
    const right = { namespace: fixture.namespace, group: "berth.dev", resource: "jobs", verb: "create" }
    const ask = { user: `apikey-${key.metadata.uid}`, spec: { resourceAttributes: right } }
    expect(asked).toMatchObject([ask, ask, ask, { ...ask, isAllowed: true }])
    await keys.update(key.metadata.uid, { role: "admin" }, undefined)
    expect(asked.at(-1)).toMatchObject({ spec: { resourceAttributes: { resource: "apikeys", verb: "create" } } })
  })

  it("are waited for 2 seconds at most", async () => {
    const { keys, asked } = keysWith(Number.POSITIVE_INFINITY)
    expect((await keys.create(wanted)).value).toMatch(/^berth_/)
    expect(asked.length).toBeGreaterThan(3)
  })

  it.each(ROLES)("are asked for by a right that the role %s has and no lower role", async (role) => {
    const { id } = await made({ name: `as-${role}`, role })
    const user = impersonatingUser(client, `apikey-${id}`)
    const has = await Promise.all(ROLES.map(async (one) => hasRights(one, fixture.namespace, user)))
    expect(has).toEqual(ROLES.map((one) => roleAllows(role, one)))
  })
})

describe("the API of keys without an operator", () => {
  const orphaned = testNamespace("facade-keys-orphaned")

  const { client } = fixture
  const wanted = { name: "Abandoned", metadataName: "abandoned.u1", role: "viewer", expiresAt: undefined } as const
  const away = new KubeError({ code: 0, reason: CLIENT_REASONS.network, message: "GET /: no response" })

  function keysBy(clients: Partial<Pick<KeysOptions, "reader" | "writer">> = {}): Keys {
    const store = new IndexedStore(CACHE_OPTIONS.apiKeys.indexes)
    store.advance("1")
    const creationTimes = new CreationTimes(systemClock)
    const mutexes = { creations: new KeyedMutex(), changes: new Changes() }
    const options = {
      store,
      namespace: orphaned,
      reader: client,
      writer: client,
      asUser: () => client,
      creationTimes,
      mutexes,
    }
    return new Keys({ ...options, ...clients, clock: systemClock, patienceSeconds: 0.5 })
  }
  const left = async () => (await client.list(API_KEYS, { namespace: orphaned })).items

  it("returns 503 for POST /1/keys, and leaves no key behind", async () => {
    await expect(keysBy().create(wanted)).rejects.toMatchObject({ status: 503 })
    expect(await left()).toEqual([])
  })

  it("leaves no key behind if the state of its machine user is unknown", async () => {
    const reader = { ...plainClient(client), get: () => Promise.reject(away) }
    await expect(keysBy({ reader }).create(wanted)).rejects.toBe(away)
    expect(await left()).toEqual([])
  })

  it("names the key in its 503 if the key can't be deleted again", async () => {
    const reader = { ...plainClient(client), get: () => Promise.reject(away) }
    const writer = { ...plainClient(client), delete: () => Promise.reject(away) }
    const [failure] = await Promise.allSettled([keysBy({ reader, writer }).create(wanted)])
    const [key] = await left()
    expect(failure).toMatchObject({ status: "rejected", reason: { status: 503 } })
    expect(String((failure as PromiseRejectedResult).reason)).toContain(`"Abandoned" (${key?.metadata.uid})`)
    await client.delete(API_KEYS, { namespace: orphaned, name: "abandoned.u1" })
  })

  it("allows a key from kubectl to read, and returns 503 with Retry-After for writes until its rights exist", async () => {
    const project = `p-${randomBytes(4).toString("hex")}`
    await makeProject(fixture.client, project, orphaned)
    try {
      const key = await makeKey(fixture.client, orphaned, "developer", { name: "early" })
      const host = `${project}.${BASE_DOMAIN}`
      expect((await call("/1/jobs", { key, host })).status).toBe(200)
      const response = await call("/1/jobs", { key, host, body: { image: "a" } })
      expect(response.status).toBe(503)
      expect(response.headers.get("retry-after")).toBe("1")
      expect((await problemIn(response)).detail).toMatch(/permissions here are being set up/)
    } finally {
      await fixture.client.delete(PROJECTS, { name: project })
    }
  })
})

describe("GET /1/keys", () => {
  it("lists exactly id, name and created_at of each key, newest first, with total, offset and limit (contract, API keys)", async () => {
    const names = ["bravo", "Alpha", "charlie"]
    for (const name of names) await made({ name, role: "viewer" })
    const list = await listed()
    expect(list).toMatchObject({ total: 6, offset: 0, limit: 50 })
    expect(list.keys.slice(0, 3).map(({ name }) => name)).toEqual(names.toReversed())
    for (const key of list.keys) expect(Object.keys(key).toSorted()).toEqual(["created_at", "id", "name"])
  })

  it("sorts keys by name or created_at, in both directions, and returns pages", async () => {
    for (const name of ["bravo", "Alpha", "charlie"]) await made({ name, role: "viewer" })
    const ours = ({ name }: KeyItem): boolean => ["bravo", "Alpha", "charlie"].includes(name)
    const names = async (query: string): Promise<string[]> =>
      (await listed(query)).keys.filter(ours).map(({ name }) => name)
    expect(await names("?sort_by=name&sort_order=asc")).toEqual(["Alpha", "bravo", "charlie"])
    expect(await names("?sort_by=name")).toEqual(["charlie", "bravo", "Alpha"])
    expect(await names("?sort_by=created_at&sort_order=asc")).toEqual(["bravo", "Alpha", "charlie"])
    expect(await names("?sort_order=desc")).toEqual(["charlie", "Alpha", "bravo"])
    const page = await listed("?sort_by=name&sort_order=asc&limit=1&offset=1")
    expect(page).toMatchObject({ keys: [{ name: "bravo" }], total: 6, offset: 1, limit: 1 })
    expect((await listed("?offset=1000")).keys).toEqual([])
  })

  it("filters keys by the exact name", async () => {
    await made({ name: "exactly", role: "viewer" })
    expect(await listed("?name=exactly")).toMatchObject({ keys: [{ name: "exactly" }], total: 1 })
    for (const other of ["exact", "Exactly", "exactly%20"]) {
      expect(await listed(`?name=${other}`)).toMatchObject({ keys: [], total: 0 })
    }
    expect(await listed("?name=")).toEqual(await listed())
  })

  it.each(["limit=0", "limit=201", "limit=x", "offset=-1", "sort_by=role", "sort_order=up", "name=a&name=b", "foo=1"])(
    "rejects a list of keys with ?%s with 400",
    async (query) => {
      const response = await call(`/1/keys?${query}`)
      expect(response.status).toBe(400)
      expect((await problemIn(response)).errors).toHaveLength(1)
    },
  )

  it("lists keys that kubectl created, well formed", async () => {
    await makeKey(fixture.client, fixture.namespace, "viewer", {
      name: "my.key",
      expiresAt: "2099-01-01T01:00:00+01:00",
    })
    const key = (await listed("?name=my.key")).keys[0]
    expect(await (await call(`/1/keys/${key?.id}`)).json()).toMatchObject({
      name: "my.key",
      role: "viewer",
      expires_at: "2099-01-01T00:00:00Z",
    })
  })
})

describe("GET, PATCH and DELETE /1/keys/{id}", () => {
  it("finds a key by its id, in this project only", async () => {
    const { id } = await made({ name: "findable", role: "viewer" })
    expect((await call(`/1/keys/${id.toUpperCase()}`)).status).toBe(200)
    const unusedId = "01234567-89ab-cdef-0123-456789abcdef"
    for (const method of ["GET", "PATCH", "DELETE"]) {
      for (const unknown of [unusedId, "no-such-key", "..%2F..", "%00"]) {
        const response = await call(`/1/keys/${unknown}`, { method, ...(method === "PATCH" && { body: {} }) })
        expect([method, unknown, response.status]).toEqual([method, unknown, 404])
        await problemIn(response)
      }
    }
  })

  it("changes the role by PATCH; its rights apply from the response on", async () => {
    const { id, value } = await made({ name: "climber", role: "viewer" })
    expect(await statusOf(value, "POST", { image: "a" })).toBe(403)
    const response = await call(`/1/keys/${id}`, { method: "PATCH", body: { role: "developer" } })
    expect(response.status).toBe(200)
    const record = (await response.json()) as KeyRecord
    expect(record).toEqual(await (await call(`/1/keys/${id}`)).json())
    expect(record).toMatchObject({ id, name: "climber", role: "developer" })
    expect(await statusOf(value, "POST", { image: "a" })).toBe(201)
    await call(`/1/keys/${id}`, { method: "PATCH", body: { role: "viewer" } })
    expect(await statusOf(value, "POST", { image: "a" })).toBe(403)
    const bindings = (await fixture.client.list(ROLE_BINDINGS, { namespace: fixture.namespace })).items
    expect(bindings.filter(({ metadata }) => metadata.name.includes(id)).map(({ roleRef }) => roleRef.name)).toEqual([
      "berth-viewer",
    ])
  })

  it.each([{}, { role: null }])("changes no key for PATCH with %j", async (body) => {
    const { id, value: _, ...record } = await made({ name: "steady", role: "developer" })
    const before = await stored(id)
    const response = await call(`/1/keys/${id}`, { method: "PATCH", body })
    expect(response.status).toBe(200)
    expect(await response.json()).toEqual({ id, ...record })
    expect(await stored(id)).toEqual(before)
  })

  it("accepts the record that it has returned, with a changed role", async () => {
    const { value: _, ...record } = await made({ name: "fixed", role: "developer", expires_at: "2031-01-31T11:00:00Z" })
    const response = await call(`/1/keys/${record.id}`, { method: "PATCH", body: { ...record, role: "viewer" } })
    expect(response.status).toBe(200)
    expect(await response.json()).toEqual({ ...record, role: "viewer" })
  })

  it.each([{ role: "owner" }, { role: 1 }, { name: "other" }, { expires_at: null }, [], "x"])(
    "returns 400 for PATCH with %j",
    async (body) => {
      const { id } = await made({ name: "fixed", role: "developer", expires_at: "2031-01-31T11:00:00Z" })
      const response = await call(`/1/keys/${id}`, { method: "PATCH", body: JSON.stringify(body) })
      expect(response.status).toBe(400)
      await problemIn(response)
      expect((await stored(id))?.spec.role).toBe("developer")
    },
  )

  it("answers PATCH of an expired key without waiting for rights", async () => {
    await makeKey(fixture.client, fixture.namespace, "viewer", { name: "expired", expiresAt: "2020-01-01T00:00:00Z" })
    const id = (await listed("?name=expired")).keys[0]?.id
    // Half of the time that the façade would wait.
    const signal = AbortSignal.timeout(5000)
    const response = await call(`/1/keys/${id}`, { method: "PATCH", body: { role: "admin" }, signal })
    expect(response.status).toBe(200)
    expect(await response.json()).toMatchObject({ role: "admin", expires_at: "2020-01-01T00:00:00Z" })
  })

  it("returns 204 for DELETE, revokes the key at once on every replica, and deletes its machine user (contract, Authentication 6)", async () => {
    const { id, value } = await made({ name: "doomed", role: "admin" })
    expect((await callSecond("/1/jobs", { key: value })).status).toBe(200)
    const response = await call(`/1/keys/${id}`, { method: "DELETE" })
    expect(response.status).toBe(204)
    expect(await response.text()).toBe("")
    expect(await statusOf(value)).toBe(401)
    // The latest moment is tested in revocation.test.ts.
    await eventually(async () => expect((await callSecond("/1/jobs", { key: value })).status).toBe(401))
    // The response waits for the deletion of the machine user, with a timeout.
    await eventually(async () => expect(await stored(id)).toBeUndefined())
    expect((await call(`/1/keys/${id}`)).status).toBe(404)
    expect((await call(`/1/keys/${id}`, { method: "DELETE" })).status).toBe(404)
    await eventually(async () => expect((await listed("?name=doomed")).total).toBe(0))
    const user = { namespace: IDENTITIES_NAMESPACE, name: `apikey-${id}` }
    await expect(fixture.client.get(SERVICE_ACCOUNTS, user)).rejects.toMatchObject({ code: 404 })
    const bindings = (await fixture.client.list(ROLE_BINDINGS, { namespace: fixture.namespace })).items
    expect(bindings.filter(({ metadata }) => metadata.name.includes(id))).toEqual([])
    // The name is free again.
    await made({ name: "doomed", role: "viewer" })
  })

  it("allows a key to delete itself", async () => {
    const { id, value } = await made({ name: "hara-kiri", role: "admin" })
    expect((await call(`/1/keys/${id}`, { key: value, method: "DELETE" })).status).toBe(204)
    expect(await statusOf(value)).toBe(401)
  })

  it("returns the key's version as ETag, and changes only the version of If-Match", async () => {
    const { id } = await made({ name: "versioned", role: "viewer" })
    const etag = (await call(`/1/keys/${id}`)).headers.get("etag") ?? ""
    const headers = { "If-Match": etag }
    // fetch would add no-cache to a conditional request. Express returns no 304 for that.
    const known = { "If-None-Match": etag, "Cache-Control": "max-age=0" }
    expect((await call(`/1/keys/${id}`, { headers: known })).status).toBe(304)
    expect((await call(`/1/keys/${id}`, { method: "PATCH", body: { role: "admin" }, headers })).status).toBe(200)
    expect((await call(`/1/keys/${id}`, { method: "PATCH", body: { role: "viewer" }, headers })).status).toBe(412)
    expect((await call(`/1/keys/${id}`, { method: "DELETE", headers })).status).toBe(412)
    expect((await stored(id))?.spec.role).toBe("admin")
  })
})

describe("a key that is being deleted", () => {
  it("rejects and no longer lists a deleted key, although a finalizer still holds its object", async () => {
    const value = await makeKey(fixture.client, fixture.namespace, "admin", { name: "held" })
    const ref = { namespace: fixture.namespace, name: "held" }
    const { metadata } = await fixture.client.get(API_KEYS, ref)
    const hold = { metadata: { finalizers: [...(metadata.finalizers ?? []), "example.com/hold"] } }
    await fixture.client.patch(API_KEYS, ref, { merge: hold })
    expect(await statusOf(value)).toBe(200)
    expect((await call(`/1/keys/${metadata.uid}`, { method: "DELETE" })).status).toBe(204)
    try {
      expect(await statusOf(value)).toBe(401)
      expect((await call(`/1/keys/${metadata.uid}`)).status).toBe(404)
      expect((await listed("?name=held")).total).toBe(0)
      expect((await call("/1/keys", { body: { name: "held", role: "viewer" } })).status).toBe(409)
      const user = { namespace: IDENTITIES_NAMESPACE, name: `apikey-${metadata.uid}` }
      await eventually(() => expect(fixture.client.get(SERVICE_ACCOUNTS, user)).rejects.toMatchObject({ code: 404 }))
    } finally {
      await fixture.client.patch(API_KEYS, ref, { merge: { metadata: { finalizers: null } } })
    }
  })
})
