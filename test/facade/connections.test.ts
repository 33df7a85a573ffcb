import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import type { ConnectionSpec, ConnectionType, StoredConnection } from "../../src/apis/connection.ts"
import { LIMITS } from "../../src/apis/limits.ts"
import { fromMetadataName, toMetadataName } from "../../src/apis/names.ts"
import { faultsOf } from "../../src/apis/validate.ts"
import { CONNECTIONS } from "../../src/facade/caches.ts"
import {
  type ConnectionList,
  type ConnectionRecord,
  ConnectionRecordSchema,
} from "../../src/facade/connections/schema.ts"
import { ensureSealingKeys } from "../../src/identity/sealing-keys.ts"
import { resourceOf } from "../../src/kube/resource.ts"
import { openCredentials, sealCredentials } from "../../src/sealing/credentials.ts"
import { Sealer } from "../../src/sealing/envelope.ts"
import { KeyringEncryption } from "../../src/sealing/keys.ts"
import { eventually } from "../cloud/eventually.ts"
import { type Call, caller, problemIn, type Replica, SYSTEM_NAMESPACE, startReplica, testWorld } from "./harness.ts"

/** "contract" is the API's document; each rule of its "Connections", "Connection record" and "Limits" is here. */
const world = testWorld("facade-connections")
let replica: Replica
const call = caller(() => replica, world)
const sealer = new Sealer(new KeyringEncryption(() => ensureSealingKeys(world.client, SYSTEM_NAMESPACE)))

beforeAll(async () => {
  replica = await startReplica()
})
afterAll(() => replica.close())
beforeEach(async () => {
  for (const { metadata } of await stored()) await world.client.delete(CONNECTIONS, metadata)
})

const UUID = "123e4567-e89b-12d3-a456-426614174000"
/** Is in every secret that is sent, and must be nowhere but where an admin asks for it. */
const CANARY = "cAnArY"

function keyfile(change: object = {}): string {
  return JSON.stringify({
    type: "service_account",
    project_id: "acme-1",
    private_key_id: "0123",
    private_key: `-----BEGIN PRIVATE KEY-----\n${CANARY}\n-----END PRIVATE KEY-----\n`,
    client_email: "berth@acme-1.iam.gserviceaccount.com",
    client_id: "1",
    token_uri: "https://oauth2.googleapis.com/token",
    universe_domain: "googleapis.com",
    ...change,
  })
}

const KEY_ID = "AKIAIOSFODNN7EXAMPLE"
const SECRET_KEY = `${CANARY}/K7MDENG+bPxRfiCYEXAMPLEKEY`

const KINDS: Record<ConnectionType, Record<string, string>> = {
  aws: { access_key_id: KEY_ID, secret_access_key: SECRET_KEY },
  gcp: { gcp_project_id: "acme-project-1", keyfile_json: keyfile() },
  azure: { tenant_id: UUID, client_id: UUID, client_secret: `${CANARY}~secret`, subscription_id: UUID },
  cloudflare: { account_id: "0123456789abcdef".repeat(2), access_key_id: "ID-OF-THE-KEY", secret_access_key: CANARY },
  dockerhub: { username: "acme-registry", token: `dckr_pat_${CANARY}` },
  github: { username: "acme-bot", token: `ghp_${CANARY}` },
}
const TYPES = Object.keys(KINDS) as ConnectionType[]
const SECRETS = ["secret_access_key", "keyfile_json", "client_secret", "token"]

const aws = (name = "my-aws"): Record<string, unknown> => ({ name, type: "aws", ...KINDS.aws })

async function stored(): Promise<StoredConnection[]> {
  return (await world.client.list(CONNECTIONS, { namespace: world.namespace })).items
}

/** A Connection as kubectl would make it. */
function apply(name: string, spec: ConnectionSpec): Promise<StoredConnection> {
  return world.client.create(CONNECTIONS, { metadata: { name, namespace: world.namespace }, spec } as StoredConnection)
}

async function record(path: string, options: Call = {}, status = 200): Promise<ConnectionRecord> {
  const response = await call(path, options)
  if (response.status !== status) throw new Error(`${response.status}: ${await response.text()}`)
  const found = (await response.json()) as ConnectionRecord
  expect(faultsOf(ConnectionRecordSchema, found)).toEqual([])
  return found
}

const create = (body: object = aws()): Promise<ConnectionRecord> => record("/1/connections", { body }, 201)
const get = (name: string, key = world.keys.admin): Promise<ConnectionRecord> =>
  record(`/1/connections/${name}`, { key })
const patch = (name: string, body: object): Promise<ConnectionRecord> =>
  record(`/1/connections/${name}`, { method: "PATCH", body })

async function list(query = "", key = world.keys.admin): Promise<ConnectionList> {
  const response = await call(`/1/connections${query}`, { key })
  expect(response.status).toBe(200)
  return (await response.json()) as ConnectionList
}

async function said(path: string, options: Call, status: number): Promise<string> {
  const response = await call(path, options)
  const problem = await problemIn(response)
  expect(response.status, problem.detail).toBe(status)
  const text = [problem.detail, ...problem.errors.map((fault) => `${fault.pointer} ${fault.detail}`)].join("\n")
  expect(text).not.toContain(CANARY)
  return text
}

function redacted(fields: Record<string, string>): Record<string, string | null> {
  return Object.fromEntries(
    Object.entries(fields).map(([name, value]) => [name, SECRETS.includes(name) ? null : value]),
  )
}

describe("POST /1/connections", () => {
  it.each(TYPES)(
    "makes one of type %s, whose secrets only an admin's GET shows (contract, Authentication 8)",
    async (type) => {
      const response = await call("/1/connections", { body: { name: `my-${type}`, type, ...KINDS[type] } })
      expect(response.status).toBe(201)
      expect(response.headers.get("location")).toBe(`/1/connections/my-${type}`)
      const made = (await response.json()) as ConnectionRecord
      const contract = { access_key_id: null, secret_access_key: null, gcp_project_id: null, keyfile_json: null }
      const summary = {
        id: expect.stringMatching(/^[0-9a-f-]{36}$/),
        name: `my-${type}`,
        type,
        created_at: expect.stringMatching(/^\d{4}-.*Z$/),
      }
      expect(made).toEqual({ ...contract, ...summary, ...redacted(KINDS[type]) })
      expect(await get(`my-${type}`)).toEqual({ ...contract, ...made, ...KINDS[type] })
      const nothing = Object.fromEntries(Object.keys(KINDS[type]).map((field) => [field, null]))
      for (const role of ["viewer", "developer"] as const)
        expect(await get(`my-${type}`, world.keys[role])).toEqual({ ...contract, ...made, ...nothing })
    },
  )

  it("keeps credentials nowhere in clear, and bound to their place (contract: encrypted at rest with AES-256)", async () => {
    for (const type of TYPES) await create({ name: `my-${type}`, type, ...KINDS[type] })
    const objects = await stored()
    expect(objects).toHaveLength(TYPES.length)
    for (const { metadata, spec } of objects) {
      const sealed = { type: spec.type, sealedCredentials: spec.sealedCredentials ?? "" }
      const open = (project: string, name: string) => openCredentials(sealer, sealed, { project, name })
      expect((await open(world.project, metadata.name)).fields).toEqual(KINDS[spec.type])
      await expect(open("another", metadata.name)).rejects.toMatchObject({ fault: "tampered" })
      await expect(open(world.project, "another")).rejects.toMatchObject({ fault: "tampered" })
    }
    const raw = JSON.stringify(objects)
    for (const value of Object.values(KINDS).flatMap((fields) => Object.values(fields)))
      expect(raw).not.toContain(value)
  })

  it.each(["abc", "My_Key-1", "A".repeat(50), "0__", "abc-"])("takes the name %s (contract, Limits)", async (name) => {
    const made = await create(aws(name))
    expect(made.name).toBe(name)
    expect((await get(name)).id).toBe(made.id)
    expect((await get(made.id)).name).toBe(name)
    const [connection] = await stored()
    expect(fromMetadataName(connection?.metadata.name ?? "")).toBe(name)
  })

  it.each<[string, object, RegExp]>([
    ["no name", { name: undefined }, /\/name name is required/],
    ["a name of two characters", { name: "ab" }, /\/name .*at least 3/],
    ["a name of 51 characters", { name: "a".repeat(51) }, /\/name .*at most 50/],
    ["a name that starts with a dash", { name: "-abc" }, /\/name .*start with/],
    ["a name with a dot", { name: "a.bc" }, /\/name/],
    ["a name with a line end", { name: "abc\n" }, /\/name/],
    ["a name like a UUID", { name: UUID }, /\/name .*UUID/],
    ["no type", { type: undefined }, /\/type type is required/],
    ["a null type", { type: null }, /\/type type is required/],
    ["an unknown type", { type: "oracle" }, /\/type .*aws, gcp, azure, cloudflare, dockerhub or github/],
    ["a type in capitals", { type: "AWS" }, /\/type/],
    [
      "no key id",
      { access_key_id: undefined },
      /\/access_key_id access_key_id is required for a connection of type aws/,
    ],
    ["a null key", { secret_access_key: null }, /secret_access_key is required/],
    ["an empty key", { secret_access_key: "" }, /\/secret_access_key .*not be empty/],
    [
      "a key with a line end",
      { secret_access_key: `${CANARY}\n` },
      /\/secret_access_key .*without spaces or line ends/,
    ],
    ["a key that is a number", { secret_access_key: 1 }, /\/secret_access_key .*string/],
    ["a key that is too long", { secret_access_key: CANARY.repeat(200) }, /\/secret_access_key .*at most 1024/],
    ["another type's field", { keyfile_json: keyfile() }, /\/keyfile_json .*not a field of a connection of type aws/],
    ["another type's field, of the wrong type", { token: 1 }, /\/token/],
    ["an unknown field", { session_token: CANARY }, /session_token is an unknown field/],
    ["a field of the CR", { credentialsSecretRef: { name: "x" } }, /credentialsSecretRef is an unknown field/],
    ["another project", { project_id: "elsewhere" }, /\/project_id/],
    ["the credentials of another type", { type: "gcp" }, /\/access_key_id .*type gcp[\s\S]*gcp_project_id is required/],
  ])("refuses %s with 400, and makes nothing", async (_what, change, expected) => {
    expect(await said("/1/connections", { body: { ...aws(), ...change } }, 400)).toMatch(expected)
    expect(await stored()).toEqual([])
  })

  it.each<[ConnectionType, object, RegExp]>([
    ["azure", { client_id: "x" }, /\/client_id .*UUID/],
    ["azure", { subscription_id: `${UUID}/../x` }, /\/subscription_id/],
    ["azure", { tenant_id: "evil.example/path" }, /\/tenant_id/],
    ["azure", { tenant_id: undefined }, /tenant_id is required for a connection of type azure/],
    ["cloudflare", { account_id: "evil.example#" }, /\/account_id .*32 characters of/],
    ["cloudflare", { account_id: undefined }, /account_id is required/],
    ["dockerhub", { username: "a b" }, /\/username/],
    ["dockerhub", { token: "" }, /\/token/],
    ["github", { username: "a/../b" }, /\/username/],
    ["github", { token: undefined }, /token is required/],
    ["gcp", { gcp_project_id: "a/b" }, /\/gcp_project_id/],
    ["gcp", { keyfile_json: undefined }, /keyfile_json is required/],
    ["gcp", { keyfile_json: JSON.parse(keyfile()) as object }, /\/keyfile_json .*must be a string/],
    ["gcp", { keyfile_json: `{"type": "${CANARY}` }, /JSON object/],
    ["gcp", { keyfile_json: `[${CANARY}]` }, /JSON object/],
    ["gcp", { keyfile_json: "null" }, /JSON object/],
    ["gcp", { keyfile_json: `{"type":"${CANARY}"}` }, /no "type": "service_account"/],
    ["gcp", { keyfile_json: keyfile({ type: "external_account" }) }, /external_account, which is not supported/],
    ["gcp", { keyfile_json: keyfile({ type: "authorized_user" }) }, /authorized_user, which is not supported/],
    [
      "gcp",
      { keyfile_json: keyfile({ private_key: undefined, client_email: "" }) },
      /private_key, client_email are missing/,
    ],
    ["gcp", { keyfile_json: keyfile({ project_id: 1 }) }, /project_id is missing/],
    ["gcp", { keyfile_json: keyfile({ private_key: CANARY }) }, /PEM/],
    ["gcp", { keyfile_json: keyfile({ token_uri: "https://evil.example/token" }) }, /token_uri that is not Google's/],
    ["gcp", { keyfile_json: keyfile({ token_uri: "http://169.254.169.254/" }) }, /token_uri/],
    ["gcp", { keyfile_json: keyfile({ token_uri: null }) }, /token_uri/],
    ["gcp", { keyfile_json: keyfile({ universe_domain: "evil.example" }) }, /universe_domain/],
    ["gcp", { keyfile_json: keyfile({ x: CANARY.repeat(1500) }) }, /at most 8000/],
  ])("refuses %s with %j", async (type, change, expected) => {
    const body = { name: "bad", type, ...KINDS[type], ...change }
    expect(await said("/1/connections", { body }, 400)).toMatch(expected)
    expect(await stored()).toEqual([])
  })

  it("takes YAML, in which a key file may stand as it is", async () => {
    const block = JSON.stringify(JSON.parse(keyfile()), null, 2).replaceAll(/^/gm, "  ")
    const body = `name: my-gcp\ntype: gcp\ngcp_project_id: acme-1\nkeyfile_json: |\n${block}\n`
    await record("/1/connections", { body, type: "application/yaml" }, 201)
    expect(await get("my-gcp")).toMatchObject({ keyfile_json: expect.stringContaining(CANARY) })
  })

  it("takes the longest key file, however it is escaped: its sealed form fits", async () => {
    const filler = (length: number): string => keyfile({ x: "\ud800".repeat(length) }).replaceAll("\\ud800", "\ud800")
    const longest = filler(LIMITS.keyfile - filler(0).length)
    expect(longest).toHaveLength(LIMITS.keyfile)
    await create({ name: "long", type: "gcp", gcp_project_id: "acme-1", keyfile_json: longest })
    expect((await stored())[0]?.spec.sealedCredentials?.length).toBeGreaterThan(60_000)
  })

  it.each<[string, Call, number]>([
    ["text", { body: "name: my-aws", type: "text/plain" }, 415],
    ["a YAML alias", { body: "name: &a my-aws\ntype: *a", type: "application/yaml" }, 400],
    ["broken JSON", { body: "{" }, 400],
    ["a list", { body: [] }, 400],
    ["null", { body: "null" }, 400],
    ["a duplicate key", { body: '{"name":"abc","name":"abd"}' }, 400],
    ["300 kB", { body: { ...aws(), secret_access_key: "x".repeat(300_000) } }, 413],
  ])("refuses %s", async (_what, options, status) => {
    await said("/1/connections", options, status)
    expect(await stored()).toEqual([])
  })

  it("answers 409 to a name that is taken, and leaves that one as it is (contract, Errors)", async () => {
    await create()
    const body = { name: "my-aws", type: "github", ...KINDS.github }
    expect(await said("/1/connections", { body }, 409)).toMatch(/"my-aws" exists/)
    expect(await get("my-aws")).toMatchObject({ secret_access_key: SECRET_KEY })
  })

  it("makes one per Idempotency-Key; other credentials are 422, and no hash of them lies open", async () => {
    const headers = { "Idempotency-Key": "k1" }
    const first = await record("/1/connections", { body: aws(), headers }, 201)
    expect(await record("/1/connections", { body: aws(), headers }, 201)).toEqual(first)
    await said("/1/connections", { body: { ...aws(), secret_access_key: "other" }, headers }, 422)
    await said("/1/connections", { body: aws("other"), headers }, 422)
    expect(Object.keys((await stored())[0]?.metadata.annotations ?? {}).toSorted()).toEqual([
      "berth.dev/created-at",
      "berth.dev/idempotency-key",
    ])
    await patch("my-aws", { access_key_id: "changed" })
    expect(await record("/1/connections", { body: aws(), headers }, 201)).toMatchObject({ access_key_id: "changed" })
  })
})

describe("GET /1/connections", () => {
  it("pages newest first with a total, always redacted, for every role (contract, Connections)", async () => {
    for (const name of ["one", "two", "Three"]) await create(aws(name))
    const { connections, ...rest } = await list()
    expect(rest).toEqual({ total: 3, offset: 0, limit: 50 })
    expect(connections.map(({ name }) => name)).toEqual(["Three", "two", "one"])
    expect(connections.map(({ secret_access_key }) => secret_access_key)).toEqual([null, null, null])
    expect(connections[0]).toEqual({ ...(await get("Three")), secret_access_key: null })
    const forViewer = await list("", world.keys.viewer)
    expect(forViewer.connections[0]).toEqual(await get("Three", world.keys.viewer))
    expect(await list("?limit=1&offset=1")).toMatchObject({ connections: [{ name: "two" }], total: 3, limit: 1 })
  })

  it.each<[string, string[]]>([
    ["?sort_by=name&sort_order=asc", ["Three", "one", "two"]],
    ["?sort_by=name", ["two", "one", "Three"]],
    ["?sort_by=created_at&sort_order=asc", ["one", "two", "Three"]],
    ["?sort_order=desc", ["Three", "two", "one"]],
    ["?name=Three", ["Three"]],
    ["?name=three", []],
    ["?name=o", []],
  ])("sorts and filters: %s", async (query, expected) => {
    for (const name of ["one", "two", "Three"]) await create(aws(name))
    const found = await list(query)
    expect(found.connections.map(({ name }) => name)).toEqual(expected)
    expect(found.total).toBe(expected.length)
  })

  it("gives the plain array with view=summary (contract: both forms)", async () => {
    const { id, name, type, created_at } = await create()
    const response = await call("/1/connections?view=summary&name=my-aws", { key: world.keys.viewer })
    expect(await response.json()).toEqual([{ id, name, type, created_at }])
  })

  it.each(["limit=0", "limit=201", "offset=-1", "sort_by=type", "sort_order=up", "view=clear", "type=aws"])(
    "refuses ?%s with 400",
    async (query) => {
      expect(await said(`/1/connections?${query}`, {}, 400)).toMatch(query.split("=")[0] ?? "")
    },
  )
})

describe("GET /1/connections/{name}", () => {
  it("is not to be kept by anybody when it shows values, and has another tag then", async () => {
    await create()
    const path = "/1/connections/my-aws"
    const clear = await call(path)
    expect(clear.headers.get("cache-control")).toBe("no-store")
    const closed = await call(path, { key: world.keys.viewer })
    expect(closed.headers.get("cache-control")).toBe("private, no-cache")
    const tags = [clear, closed].map((response) => response.headers.get("etag") ?? "")
    expect(new Set(tags).size).toBe(2)
    const statuses = []
    for (const etag of tags) statuses.push((await call(path, { headers: { "If-None-Match": etag } })).status)
    expect(statuses).toEqual([304, 200])
  })

  it.each(["unknown", UUID, "my-aws.ud", "%2e%2e"])("answers 404 to %s", async (path) => {
    await create(aws("my_aws"))
    await said(`/1/connections/${path}`, {}, 404)
  })

  it("shows the type of one whose credentials are a Secret's, redacted for everybody", async () => {
    await apply("by-kubectl", { type: "gcp", credentialsSecretRef: { name: "gcp-key" } })
    for (const key of Object.values(world.keys))
      expect(await get("by-kubectl", key)).toMatchObject({ type: "gcp", gcp_project_id: null, keyfile_json: null })
    const listed = { connections: [{ name: "by-kubectl", type: "gcp" }] }
    await eventually(async () => expect(await list()).toMatchObject(listed))
  })

  it.each<[string, (sealed: string) => string | Promise<string>, RegExp]>([
    ["changed", (sealed) => `${sealed.slice(0, -4)}AAAA`, /changed, or sealed for another/],
    ["cut", (sealed) => sealed.slice(0, 40), /no sealed text/],
    [
      "sealed under a key that is gone",
      (sealed) => sealed.replace(/^berth1\.[^.]+/, "berth1.gone"),
      /key "gone" is not/,
    ],
    ["of a later version", (sealed) => sealed.replace("berth1", "berth2"), /berth2/],
    ["copied from another connection", () => sealedFor(world.project, "another", "aws"), /changed, or sealed/],
    ["copied from another project", () => sealedFor("another", "my-aws", "aws"), /changed, or sealed/],
    ["another type's", () => sealedFor(world.project, "my-aws", "github"), /type github, not aws/],
  ])(
    "refuses credentials that are %s, and says so; the list and a whole PATCH still work",
    async (_what, tamper, expected) => {
      await create()
      const [before] = await stored()
      const sealedCredentials = await tamper(before?.spec.sealedCredentials ?? "")
      const ref = { namespace: world.namespace, name: "my-aws" }
      const tampered = await world.client.patch(CONNECTIONS, ref, { merge: { spec: { sealedCredentials } } })
      await eventually(async () => expect((await call("/1/connections/my-aws")).status).toBe(409))
      expect(await said("/1/connections/my-aws", {}, 409)).toMatch(expected)
      expect(await list()).toMatchObject({ connections: [{ name: "my-aws", access_key_id: null }], total: 1 })
      await get("my-aws", world.keys.viewer)
      await said("/1/connections/my-aws", { method: "PATCH", body: { access_key_id: "new" } }, 409)
      expect((await stored())[0]?.metadata.resourceVersion).toBe(tampered.metadata.resourceVersion)
      await patch("my-aws", { access_key_id: "new", secret_access_key: "new" })
      expect(await get("my-aws")).toMatchObject({ access_key_id: "new", secret_access_key: "new" })
    },
  )
})

function sealedFor(project: string, name: string, type: ConnectionType): Promise<string> {
  return sealCredentials(sealer, { type, fields: KINDS[type] }, { project, name })
}

describe("PATCH /1/connections/{name}", () => {
  it("changes one field, keeps the others, and seals anew (contract: re-encrypted when changed)", async () => {
    await create()
    const [before] = await stored()
    const changed = await patch("my-aws", { secret_access_key: "new", access_key_id: null })
    expect(changed).toMatchObject({ access_key_id: KEY_ID, secret_access_key: null })
    expect(await get("my-aws")).toMatchObject({ ...KINDS.aws, secret_access_key: "new" })
    const [after] = await stored()
    const parts = (connection?: StoredConnection) => connection?.spec.sealedCredentials?.split(".") ?? []
    for (const part of [2, 3, 4]) expect(parts(after)[part]).not.toBe(parts(before)[part])
  })

  it("takes gcp's fields too, without a type", async () => {
    await create({ name: "my-gcp", type: "gcp", ...KINDS.gcp })
    await patch("my-gcp", { gcp_project_id: "acme-2" })
    expect(await get("my-gcp")).toMatchObject({ type: "gcp", gcp_project_id: "acme-2", keyfile_json: keyfile() })
    const next = keyfile({ private_key_id: "next" })
    await patch("my-gcp", { type: "gcp", keyfile_json: next })
    expect(await get("my-gcp")).toMatchObject({ keyfile_json: next })
  })

  it.each(TYPES)("changes nothing when a record of %s is sent back, redacted or not", async (type) => {
    const made = await create({ name: "same", type, ...KINDS[type] })
    const before = await stored()
    const views = [made, await get("same"), await get("same", world.keys.viewer), (await list()).connections[0]]
    for (const view of views) expect(await patch("same", view ?? {})).toEqual(made)
    await patch("same", {})
    expect(await stored()).toEqual(before)
  })

  it.each<[object, RegExp]>([
    [{ type: "gcp" }, /\/type type cannot be changed: it is "aws"/],
    [{ name: "other" }, /\/name name cannot be changed/],
    [{ id: UUID }, /\/id id cannot be changed/],
    [{ created_at: "2026-01-01T00:00:00Z" }, /\/created_at/],
    [{ keyfile_json: keyfile() }, /\/keyfile_json .*not a field of a connection of type aws/],
    [{ token: CANARY }, /\/token .*not a field/],
    [{ secret_access_key: "" }, /\/secret_access_key/],
    [{ secret_access_key: 1 }, /\/secret_access_key/],
    [{ session_token: CANARY }, /session_token is an unknown field/],
    [{ project_id: "elsewhere" }, /\/project_id/],
  ])("refuses %j with 400 and changes nothing", async (body, expected) => {
    await create()
    const before = await stored()
    expect(await said("/1/connections/my-aws", { method: "PATCH", body }, 400)).toMatch(expected)
    expect(await stored()).toEqual(before)
  })

  it("refuses a bad key file for gcp", async () => {
    await create({ name: "my-gcp", type: "gcp", ...KINDS.gcp })
    const body = { keyfile_json: keyfile({ type: "external_account" }) }
    expect(await said("/1/connections/my-gcp", { method: "PATCH", body }, 400)).toMatch(/external_account/)
  })

  it("refuses to change what a Secret holds with 409, and takes its record back", async () => {
    await apply(toMetadataName("By_Kubectl") ?? "", { type: "aws", credentialsSecretRef: { name: "aws-key" } })
    const body = { secret_access_key: CANARY }
    const refusal = await said("/1/connections/By_Kubectl", { method: "PATCH", body }, 409)
    expect(refusal).toMatch(/of the connection By_Kubectl are in the Secret aws-key/)
    await patch("By_Kubectl", await get("By_Kubectl"))
    expect((await stored())[0]?.spec).toEqual({ type: "aws", credentialsSecretRef: { name: "aws-key" } })
  })

  it("loses no change of two at the same moment", async () => {
    await create()
    await Promise.all([patch("my-aws", { access_key_id: "new-id" }), patch("my-aws", { secret_access_key: "new" })])
    expect(await get("my-aws")).toMatchObject({ access_key_id: "new-id", secret_access_key: "new" })
  })

  it("heeds If-Match of either view", async () => {
    await create()
    const etag = (await call("/1/connections/my-aws")).headers.get("etag") ?? ""
    const change = (access_key_id: string) =>
      call("/1/connections/my-aws", { method: "PATCH", body: { access_key_id }, headers: { "If-Match": etag } })
    expect([(await change("one")).status, (await change("two")).status]).toEqual([200, 412])
  })
})

describe("DELETE /1/connections/{name}", () => {
  it("answers 204, and the name is free again (contract, Connections)", async () => {
    const made = await create(aws("My_Key"))
    expect((await call("/1/connections/My_Key", { method: "DELETE" })).status).toBe(204)
    expect(await list()).toMatchObject({ connections: [], total: 0 })
    expect(await stored()).toEqual([])
    await said("/1/connections/My_Key", { method: "DELETE" }, 404)
    expect((await create(aws("My_Key"))).id).not.toBe(made.id)
  })
})

it.each<["viewer" | "developer" | "admin", number[]]>([
  ["viewer", [200, 200, 403, 403, 403]],
  ["developer", [200, 200, 403, 403, 403]],
  ["admin", [200, 200, 201, 200, 204]],
])("%s may do what the contract's roles say", async (role, expected) => {
  await create()
  const key = world.keys[role]
  const statuses = []
  statuses.push((await call("/1/connections", { key })).status)
  statuses.push((await call("/1/connections/my-aws", { key })).status)
  statuses.push((await call("/1/connections", { key, body: aws("another") })).status)
  statuses.push((await call("/1/connections/my-aws", { key, method: "PATCH", body: { access_key_id: "x" } })).status)
  statuses.push((await call("/1/connections/my-aws", { key, method: "DELETE" })).status)
  expect(statuses).toEqual(expected)
})

describe("a secret that went through everything above", () => {
  it("is in no log line at the finest level, in no event and in no metric", async () => {
    await create()
    await get("my-aws")
    expect(replica.logged()).toContain("/1/connections")
    expect(replica.logged()).not.toContain(CANARY)
    const events = resourceOf({ group: "", version: "v1", kind: "Event", plural: "events", namespaced: true })
    const { items } = await world.client.list(events, { namespace: world.namespace })
    expect(JSON.stringify(items)).not.toContain(CANARY)
    expect(await replica.measured()).not.toContain(CANARY)
  })
})

it("answers 503 while the operator has made no keys, and makes nothing", async () => {
  const early = await startReplica({ sealingNamespace: world.namespace })
  try {
    const callEarly = caller(() => early, world)
    const response = await callEarly("/1/connections", { body: aws() })
    expect((await problemIn(response)).status).toBe(503)
    expect(response.headers.get("retry-after")).toBe("5")
    expect(await stored()).toEqual([])
    await ensureSealingKeys(world.client, world.namespace)
    expect((await callEarly("/1/connections", { body: aws() })).status).toBe(201)
  } finally {
    await early.close()
  }
})
