import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import {
  type ConnectionList,
  type ConnectionRecord,
  ConnectionRecordSchema,
} from "../../src/api/resources/connections/schema.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import type { ConnectionSpec, ConnectionType, StoredConnection } from "../../src/core/apis/connection.ts"
import { LIMITS } from "../../src/core/apis/field-limits.ts"
import { fromMetadataName, toMetadataName } from "../../src/core/apis/names.ts"
import { findErrors } from "../../src/core/apis/validate.ts"
import { ensureIdentityKeys, IdentityIssuer } from "../../src/core/identity/identity-tokens.ts"
import { ensureSealingKeys } from "../../src/core/identity/sealing-keys.ts"
import { declareResource } from "../../src/core/kube/resource.ts"
import { CONNECTIONS } from "../../src/core/resources.ts"
import { openCredentials, sealCredentials } from "../../src/core/sealing/credentials.ts"
import { Sealer } from "../../src/core/sealing/envelope.ts"
import { KeyringEncryption } from "../../src/core/sealing/keys.ts"
import { type Call, caller, problemIn } from "../harness/caller.ts"
import { eventually } from "../harness/eventually.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { projectFixture } from "../harness/facade-project.ts"
import { SYSTEM_NAMESPACE } from "../harness/system-namespace.ts"

/** Tests of each rule in the API's document (the "contract"): "Connections", "Connection record" and "Limits". */
const fixture = projectFixture("facade-connections")
let replica: Replica
const call = caller(() => replica, fixture)
const sealer = new Sealer(new KeyringEncryption(() => ensureSealingKeys(fixture.client, SYSTEM_NAMESPACE)))

beforeAll(async () => {
  replica = await startReplica()
})
afterAll(() => replica.close())
beforeEach(async () => {
  for (const { metadata } of await stored()) await fixture.client.delete(CONNECTIONS, metadata)
})

const UUID = "123e4567-e89b-12d3-a456-426614174000"
/** Marker in every secret that is sent. It may appear only in the answer to an admin who asks for it. */
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

const NO_KEY = { access_key_id: undefined, secret_access_key: undefined }
const ROLE = "arn:aws:iam::123456789012:role/berth"
const WORKLOAD = {
  workload_identity_provider: "projects/1/locations/global/workloadIdentityPools/berth/providers/berth",
  service_account: "berth@acme-1.iam.gserviceaccount.com",
}

const KINDS: Record<ConnectionType, Record<string, string>> = {
  aws: { access_key_id: KEY_ID, secret_access_key: SECRET_KEY },
  gcp: { gcp_project_id: "acme-project-1", keyfile_json: keyfile() },
  azure: { tenant_id: UUID, client_id: UUID, client_secret: `${CANARY}~secret`, subscription_id: UUID },
  nebius: {
    service_account_id: "serviceaccount-e00abc",
    projects: "project-e00abc",
    public_key_id: "publickey-e00abc",
    private_key: `-----BEGIN PRIVATE KEY-----\n${CANARY}\n-----END PRIVATE KEY-----\n`,
  },
  cloudflare: { account_id: "0123456789abcdef".repeat(2), access_key_id: "ID-OF-THE-KEY", secret_access_key: CANARY },
  dockerhub: { username: "acme-registry", token: `dckr_pat_${CANARY}` },
  github: { username: "acme-bot", token: `ghp_${CANARY}` },
}
const TYPES = Object.keys(KINDS) as ConnectionType[]
const SECRETS = ["secret_access_key", "keyfile_json", "client_secret", "private_key", "token"]

const aws = (name = "my-aws"): Record<string, unknown> => ({ name, type: "aws", ...KINDS.aws })

async function stored(): Promise<StoredConnection[]> {
  return (await fixture.client.list(CONNECTIONS, { namespace: fixture.namespace })).items
}

/** Creates a Connection like kubectl does. */
function apply(name: string, spec: ConnectionSpec): Promise<StoredConnection> {
  return fixture.client.create(CONNECTIONS, {
    metadata: { name, namespace: fixture.namespace },
    spec,
  } as StoredConnection)
}

async function record(path: string, options: Call = {}, status = 200): Promise<ConnectionRecord> {
  const response = await call(path, options)
  if (response.status !== status) throw new Error(`${response.status}: ${await response.text()}`)
  const found = (await response.json()) as ConnectionRecord
  expect(findErrors(ConnectionRecordSchema, found)).toEqual([])
  return found
}

const create = (body: object = aws()): Promise<ConnectionRecord> => record("/1/connections", { body }, 201)
const get = (name: string, key = fixture.keys.admin): Promise<ConnectionRecord> =>
  record(`/1/connections/${name}`, { key })
const patch = (name: string, body: object): Promise<ConnectionRecord> =>
  record(`/1/connections/${name}`, { method: "PATCH", body })

async function list(query = "", key = fixture.keys.admin): Promise<ConnectionList> {
  const response = await call(`/1/connections${query}`, { key })
  expect(response.status).toBe(200)
  return (await response.json()) as ConnectionList
}

async function said(path: string, options: Call, status: number): Promise<string> {
  const response = await call(path, options)
  const problem = await problemIn(response)
  expect(response.status, problem.detail).toBe(status)
  const text = [problem.detail, ...problem.errors.map((error) => `${error.pointer} ${error.detail}`)].join("\n")
  expect(text).not.toContain(CANARY)
  return text
}

function redacted(fields: Record<string, string>): Record<string, string | null> {
  return Object.fromEntries(
    Object.entries(fields).map(([name, value]) => [name, SECRETS.includes(name) ? null : value]),
  )
}

describe("settings of VMs (extension)", () => {
  const same = {
    network: "vpc-0a1b2c3d",
    subnets: { "eu-central-1": ["subnet-0a1b2c3d"] },
    disk: { size: "200Gi", type: "gp3" },
  }
  const settings = { ...same, public_address: false }
  const spec = { ...same, publicAddress: false }

  it("are stored in clear, and shown to admins only", async () => {
    const made = await create({ ...aws(), ...settings })
    expect(made).toMatchObject(settings)
    expect(await get("my-aws")).toMatchObject({ ...settings, ...KINDS.aws })
    expect((await list()).connections).toMatchObject([settings])
    for (const field of Object.keys(settings))
      expect(await get("my-aws", fixture.keys.developer)).not.toHaveProperty(field)
    expect((await stored())[0]?.spec).toMatchObject(spec)
  })

  it("change one by one, end by null, and stay when credentials change", async () => {
    await create({ ...aws(), ...settings })
    const before = (await stored())[0]?.spec.sealedCredentials
    expect(await patch("my-aws", { disk: { size: "1Ti" } })).toMatchObject({ ...settings, disk: { size: "1Ti" } })
    expect((await stored())[0]?.spec.sealedCredentials).toBe(before)
    await patch("my-aws", { secret_access_key: `${CANARY}-2` })
    expect((await stored())[0]?.spec).toMatchObject({ ...spec, disk: { size: "1Ti" } })
    const left = await patch("my-aws", { network: null, subnets: null, disk: null })
    expect(left).toMatchObject({ public_address: false })
    for (const field of ["network", "subnets", "disk"]) expect(left).not.toHaveProperty(field)
    // A record that is sent back changes nothing.
    const version = (await stored())[0]?.metadata.resourceVersion
    await patch("my-aws", await get("my-aws"))
    expect((await stored())[0]?.metadata.resourceVersion).toBe(version)
  })

  it("are checked together with the ones that stay", async () => {
    await create({ ...aws(), ...settings })
    const body = { subnets: null }
    expect(await said("/1/connections/my-aws", { method: "PATCH", body }, 400)).toContain("network requires subnets")
    const wrong = { ...aws("wrong"), ...settings, subnets: { "eu-central-1": ["jobs"] }, disk: { size: "9Gi" } }
    const text = await said("/1/connections", { body: wrong }, 400)
    expect(text).toContain(
      "/subnets/eu-central-1/0 subnets.eu-central-1[0] must be ids of subnets, such as subnet-0a1b2c3d",
    )
    expect(text).toContain("/disk/size disk.size must be a whole number of Gi or Ti from 10Gi to 16Ti, such as 200Gi")
    const hub = { name: "hub", type: "dockerhub", ...KINDS.dockerhub, public_address: false }
    expect(await said("/1/connections", { body: hub }, 400)).toContain("public_address is a setting of VMs")
  })

  it("change in a connection whose credentials are in a Secret", async () => {
    await apply("git-ops", { type: "aws", credentialsSecretRef: { name: "aws" } })
    expect(await patch("git-ops", { public_address: false })).toMatchObject({ public_address: false })
    expect((await stored())[0]?.spec).toEqual({
      type: "aws",
      credentialsSecretRef: { name: "aws" },
      publicAddress: false,
    })
  })
})

describe("POST /1/connections", () => {
  it.each(TYPES)(
    "creates a connection of type %s, whose secrets only an admin's GET shows (contract, Authentication 8)",
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
        expect(await get(`my-${type}`, fixture.keys[role])).toEqual({ ...contract, ...made, ...nothing })
    },
  )

  it("stores credentials encrypted and bound to their object (contract: encrypted at rest with AES-256)", async () => {
    for (const type of TYPES) await create({ name: `my-${type}`, type, ...KINDS[type] })
    const objects = await stored()
    expect(objects).toHaveLength(TYPES.length)
    for (const { metadata, spec } of objects) {
      const sealed = { type: spec.type, sealedCredentials: spec.sealedCredentials ?? "" }
      const open = (project: string, name: string) => openCredentials(sealer, sealed, { project, name })
      expect((await open(fixture.project, metadata.name)).fields).toEqual(KINDS[spec.type])
      await expect(open("another", metadata.name)).rejects.toMatchObject({ reason: "tampered" })
      await expect(open(fixture.project, "another")).rejects.toMatchObject({ reason: "tampered" })
    }
    const raw = JSON.stringify(objects)
    for (const value of Object.values(KINDS).flatMap((fields) => Object.values(fields)))
      expect(raw).not.toContain(value)
  })

  it.each(["abc", "My_Key-1", "A".repeat(50), "0__", "abc-"])(
    "accepts the connection name %s (contract, Limits)",
    async (name) => {
      const made = await create(aws(name))
      expect(made.name).toBe(name)
      expect((await get(name)).id).toBe(made.id)
      expect((await get(made.id)).name).toBe(name)
      const [connection] = await stored()
      expect(fromMetadataName(connection?.metadata.name ?? "")).toBe(name)
    },
  )

  it.each<[string, object, RegExp]>([
    ["no name", { name: undefined }, /\/name name is required/],
    ["a name of two characters", { name: "ab" }, /\/name .*at least 3/],
    ["a name of 51 characters", { name: "a".repeat(51) }, /\/name .*at most 50/],
    ["a name that starts with a dash", { name: "-abc" }, /\/name .*letter or digit first/],
    ["a name with a dot", { name: "a.bc" }, /\/name/],
    ["a name with a newline", { name: "abc\n" }, /\/name/],
    ["a name in the form of a UUID", { name: UUID }, /\/name .*UUID/],
    ["no type", { type: undefined }, /\/type type is required/],
    ["a null type", { type: null }, /\/type type is required/],
    ["an unknown type", { type: "oracle" }, /\/type .*aws, gcp, azure, cloudflare, dockerhub, github or nebius/],
    ["a type in capitals", { type: "AWS" }, /\/type/],
    [
      "no key id",
      { access_key_id: undefined },
      /\/access_key_id access_key_id is required for a connection of type aws/,
    ],
    ["a null key", { secret_access_key: null }, /secret_access_key is required/],
    ["an empty key", { secret_access_key: "" }, /\/secret_access_key .*not be empty/],
    ["a key with a newline", { secret_access_key: `${CANARY}\n` }, /\/secret_access_key .*without spaces or line ends/],
    ["a key that is a number", { secret_access_key: 1 }, /\/secret_access_key .*string/],
    ["a key that is too long", { secret_access_key: CANARY.repeat(200) }, /\/secret_access_key .*at most 1024/],
    ["another type's field", { keyfile_json: keyfile() }, /\/keyfile_json .*not a field of a connection of type aws/],
    ["another type's field, of the wrong type", { token: 1 }, /\/token/],
    ["an unknown field", { session_token: CANARY }, /session_token is an unknown field/],
    [
      "a field of the custom resource",
      { credentialsSecretRef: { name: "x" } },
      /credentialsSecretRef is an unknown field/,
    ],
    ["another project", { project_id: "elsewhere" }, /\/project_id/],
    ["the credentials of another type", { type: "gcp" }, /\/access_key_id .*type gcp[\s\S]*gcp_project_id is required/],
  ])("rejects %s with 400, and creates no connection", async (_what, change, expected) => {
    expect(await said("/1/connections", { body: { ...aws(), ...change } }, 400)).toMatch(expected)
    expect(await stored()).toEqual([])
  })

  it.each<[ConnectionType, object, RegExp]>([
    ["azure", { client_id: "x" }, /\/client_id .*UUID/],
    ["azure", { subscription_id: `${UUID}/../x` }, /\/subscription_id/],
    ["azure", { tenant_id: "evil.example/path" }, /\/tenant_id/],
    ["azure", { tenant_id: undefined }, /tenant_id is required for a connection of type azure/],
    ["azure", { client_secret: undefined }, /client_secret is required: this installation has no --identity-issuer/],
    ["aws", { ...NO_KEY, role_arn: ROLE }, /access_key_id is required: this installation has no --identity-issuer/],
    ["aws", { role_arn: "arn:aws:iam::1:user/x" }, /\/role_arn/],
    ["gcp", { ...WORKLOAD, keyfile_json: undefined }, /keyfile_json is required: this installation has no/],
    ["gcp", WORKLOAD, /\/keyfile_json/],
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
  ])("rejects a connection of type %s with %j", async (type, change, expected) => {
    const body = { name: "bad", type, ...KINDS[type], ...change }
    expect(await said("/1/connections", { body }, 400)).toMatch(expected)
    expect(await stored()).toEqual([])
  })

  it("accepts YAML, with a key file as it is", async () => {
    const block = JSON.stringify(JSON.parse(keyfile()), null, 2).replaceAll(/^/gm, "  ")
    const body = `name: my-gcp\ntype: gcp\ngcp_project_id: acme-1\nkeyfile_json: |\n${block}\n`
    await record("/1/connections", { body, type: "application/yaml" }, 201)
    expect(await get("my-gcp")).toMatchObject({ keyfile_json: expect.stringContaining(CANARY) })
  })

  it("accepts the longest key file in any escaping: its sealed form fits", async () => {
    // Three bytes for each character. The API rejects half of a surrogate pair, which would have six in JSON.
    const filler = (length: number): string => keyfile({ x: "株".repeat(length) })
    const longest = filler(LIMITS.keyfile - filler(0).length)
    expect(longest).toHaveLength(LIMITS.keyfile)
    await create({ name: "long", type: "gcp", gcp_project_id: "acme-1", keyfile_json: longest })
    expect((await stored())[0]?.spec.sealedCredentials?.length).toBeGreaterThan(30_000)
  })

  it.each<[string, Call, number]>([
    ["text", { body: "name: my-aws", type: "text/plain" }, 415],
    ["a YAML alias", { body: "name: &a my-aws\ntype: *a", type: "application/yaml" }, 400],
    ["broken JSON", { body: "{" }, 400],
    ["a list", { body: [] }, 400],
    ["null", { body: "null" }, 400],
    ["a duplicate key", { body: '{"name":"abc","name":"abd"}' }, 400],
    ["300 kB", { body: { ...aws(), secret_access_key: "x".repeat(300_000) } }, 413],
  ])("rejects a connection as %s", async (_what, options, status) => {
    await said("/1/connections", options, status)
    expect(await stored()).toEqual([])
  })

  it("returns 409 for a connection name that is taken, and changes nothing (contract, Errors)", async () => {
    await create()
    const body = { name: "my-aws", type: "github", ...KINDS.github }
    expect(await said("/1/connections", { body }, 409)).toMatch(/"my-aws" exists/)
    expect(await get("my-aws")).toMatchObject({ secret_access_key: SECRET_KEY })
  })

  it("creates one connection per Idempotency-Key, returns 422 for other credentials, and stores no readable hash of them", async () => {
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
  it("returns pages of connections newest first with a total, always redacted, for every role (contract, Connections)", async () => {
    for (const name of ["one", "two", "Three"]) await create(aws(name))
    const { connections, ...rest } = await list()
    expect(rest).toEqual({ total: 3, offset: 0, limit: 50 })
    expect(connections.map(({ name }) => name)).toEqual(["Three", "two", "one"])
    expect(connections.map(({ secret_access_key }) => secret_access_key)).toEqual([null, null, null])
    expect(connections[0]).toEqual({ ...(await get("Three")), secret_access_key: null })
    const forViewer = await list("", fixture.keys.viewer)
    expect(forViewer.connections[0]).toEqual(await get("Three", fixture.keys.viewer))
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
  ])("sorts and filters connections: %s", async (query, expected) => {
    for (const name of ["one", "two", "Three"]) await create(aws(name))
    const found = await list(query)
    expect(found.connections.map(({ name }) => name)).toEqual(expected)
    expect(found.total).toBe(expected.length)
  })

  it("returns the plain array with view=summary (contract: both forms)", async () => {
    const { id, name, type, created_at } = await create()
    const response = await call("/1/connections?view=summary&name=my-aws", { key: fixture.keys.viewer })
    expect(await response.json()).toEqual([{ id, name, type, created_at }])
  })

  it.each(["limit=0", "limit=201", "offset=-1", "sort_by=type", "sort_order=up", "view=clear", "type=aws"])(
    "rejects a list of connections with ?%s with 400",
    async (query) => {
      expect(await said(`/1/connections?${query}`, {}, 400)).toMatch(query.split("=")[0] ?? "")
    },
  )
})

describe("GET /1/connections/{name}", () => {
  it("forbids caching of a connection with clear values, and gives it another ETag", async () => {
    await create()
    const path = "/1/connections/my-aws"
    const clear = await call(path)
    expect(clear.headers.get("cache-control")).toBe("no-store")
    const closed = await call(path, { key: fixture.keys.viewer })
    expect(closed.headers.get("cache-control")).toBe("private, no-cache")
    const tags = [clear, closed].map((response) => response.headers.get("etag") ?? "")
    expect(new Set(tags).size).toBe(2)
    const statuses = []
    for (const etag of tags) statuses.push((await call(path, { headers: { "If-None-Match": etag } })).status)
    expect(statuses).toEqual([304, 200])
  })

  it.each(["unknown", UUID, "my-aws.ud", "%2e%2e"])("returns 404 for the connection %s", async (path) => {
    await create(aws("my_aws"))
    await said(`/1/connections/${path}`, {}, 404)
  })

  it("shows the type of a connection with a Secret's credentials, redacted for every role", async () => {
    await apply("by-kubectl", { type: "gcp", credentialsSecretRef: { name: "gcp-key" } })
    for (const key of Object.values(fixture.keys))
      expect(await get("by-kubectl", key)).toMatchObject({ type: "gcp", gcp_project_id: null, keyfile_json: null })
    const listed = { connections: [{ name: "by-kubectl", type: "gcp" }] }
    await eventually(async () => expect(await list()).toMatchObject(listed))
  })

  it.each<[string, (sealed: string) => string | Promise<string>, RegExp]>([
    ["changed", (sealed) => `${sealed.slice(0, -4)}AAAA`, /changed, or sealed for another/],
    ["cut", (sealed) => sealed.slice(0, 40), /not a sealed text/],
    [
      "sealed under a key that was deleted",
      (sealed) => sealed.replace(/^berth1\.[^.]+/, "berth1.gone"),
      /key "gone" is not/,
    ],
    ["of a later version", (sealed) => sealed.replace("berth1", "berth2"), /berth2/],
    ["copied from another connection", () => sealedFor(fixture.project, "another", "aws"), /changed, or sealed/],
    ["copied from another project", () => sealedFor("another", "my-aws", "aws"), /changed, or sealed/],
    ["of another type", () => sealedFor(fixture.project, "my-aws", "github"), /type github, not aws/],
  ])(
    "rejects credentials that are %s with a reason; the list and a PATCH of all fields still work",
    async (_what, tamper, expected) => {
      await create()
      const [before] = await stored()
      const sealedCredentials = await tamper(before?.spec.sealedCredentials ?? "")
      const ref = { namespace: fixture.namespace, name: "my-aws" }
      const tampered = await fixture.client.patch(CONNECTIONS, ref, { merge: { spec: { sealedCredentials } } })
      await eventually(async () => expect((await call("/1/connections/my-aws")).status).toBe(409))
      expect(await said("/1/connections/my-aws", {}, 409)).toMatch(expected)
      expect(await list()).toMatchObject({ connections: [{ name: "my-aws", access_key_id: null }], total: 1 })
      await get("my-aws", fixture.keys.viewer)
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
  it("changes one field, keeps the others, and seals the credentials again (contract: re-encrypted when changed)", async () => {
    await create()
    const [before] = await stored()
    const changed = await patch("my-aws", { secret_access_key: "new", access_key_id: null })
    expect(changed).toMatchObject({ access_key_id: KEY_ID, secret_access_key: null })
    expect(await get("my-aws")).toMatchObject({ ...KINDS.aws, secret_access_key: "new" })
    const [after] = await stored()
    const parts = (connection?: StoredConnection) => connection?.spec.sealedCredentials?.split(".") ?? []
    for (const part of [2, 3, 4]) expect(parts(after)[part]).not.toBe(parts(before)[part])
  })

  it("changes the fields of a gcp connection without a type in the body", async () => {
    await create({ name: "my-gcp", type: "gcp", ...KINDS.gcp })
    await patch("my-gcp", { gcp_project_id: "acme-2" })
    expect(await get("my-gcp")).toMatchObject({ type: "gcp", gcp_project_id: "acme-2", keyfile_json: keyfile() })
    const next = keyfile({ private_key_id: "next" })
    await patch("my-gcp", { type: "gcp", keyfile_json: next })
    expect(await get("my-gcp")).toMatchObject({ keyfile_json: next })
  })

  it.each(TYPES)("changes nothing when the record of a %s connection is sent back, redacted or not", async (type) => {
    const made = await create({ name: "same", type, ...KINDS[type] })
    const before = await stored()
    const views = [made, await get("same"), await get("same", fixture.keys.viewer), (await list()).connections[0]]
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
  ])("rejects a change of a connection to %j with 400, and changes nothing", async (body, expected) => {
    await create()
    const before = await stored()
    expect(await said("/1/connections/my-aws", { method: "PATCH", body }, 400)).toMatch(expected)
    expect(await stored()).toEqual(before)
  })

  it("rejects an invalid key file for gcp", async () => {
    await create({ name: "my-gcp", type: "gcp", ...KINDS.gcp })
    const body = { keyfile_json: keyfile({ type: "external_account" }) }
    expect(await said("/1/connections/my-gcp", { method: "PATCH", body }, 400)).toMatch(/external_account/)
  })

  it("returns 409 for a change of credentials in a Secret, and accepts the unchanged record", async () => {
    await apply(toMetadataName("By_Kubectl") ?? "", { type: "aws", credentialsSecretRef: { name: "aws-key" } })
    const body = { secret_access_key: CANARY }
    const refusal = await said("/1/connections/By_Kubectl", { method: "PATCH", body }, 409)
    expect(refusal).toMatch(/of the connection By_Kubectl are in the Secret aws-key/)
    await patch("By_Kubectl", await get("By_Kubectl"))
    expect((await stored())[0]?.spec).toEqual({ type: "aws", credentialsSecretRef: { name: "aws-key" } })
  })

  it("keeps both of two concurrent changes of a connection", async () => {
    await create()
    await Promise.all([patch("my-aws", { access_key_id: "new-id" }), patch("my-aws", { secret_access_key: "new" })])
    expect(await get("my-aws")).toMatchObject({ access_key_id: "new-id", secret_access_key: "new" })
  })

  it("changes a connection only at the version in If-Match, whichever view it came from", async () => {
    await create()
    const etag = (await call("/1/connections/my-aws")).headers.get("etag") ?? ""
    const change = (access_key_id: string) =>
      call("/1/connections/my-aws", { method: "PATCH", body: { access_key_id }, headers: { "If-Match": etag } })
    expect([(await change("one")).status, (await change("two")).status]).toEqual([200, 412])
  })
})

describe("DELETE /1/connections/{name}", () => {
  it("returns 204 for a deleted connection, whose name is free again (contract, Connections)", async () => {
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
])("the API allows the role %s what the contract allows for connections", async (role, expected) => {
  await create()
  const key = fixture.keys[role]
  const statuses = []
  statuses.push((await call("/1/connections", { key })).status)
  statuses.push((await call("/1/connections/my-aws", { key })).status)
  statuses.push((await call("/1/connections", { key, body: aws("another") })).status)
  statuses.push((await call("/1/connections/my-aws", { key, method: "PATCH", body: { access_key_id: "x" } })).status)
  statuses.push((await call("/1/connections/my-aws", { key, method: "DELETE" })).status)
  expect(statuses).toEqual(expected)
})

describe("a secret that every request above has used", () => {
  it("is in no log line at the finest level, in no event and in no metric", async () => {
    await create()
    await get("my-aws")
    expect(replica.logged()).toContain("/1/connections")
    expect(replica.logged()).not.toContain(CANARY)
    const events = declareResource({ group: "", version: "v1", kind: "Event", plural: "events", namespaced: true })
    const { items } = await fixture.client.list(events, { namespace: fixture.namespace })
    expect(JSON.stringify(items)).not.toContain(CANARY)
    expect(await replica.measured()).not.toContain(CANARY)
  })
})

it("the API returns 503 and creates no connection while there are no sealing keys", async () => {
  const early = await startReplica({ sealingNamespace: fixture.namespace })
  try {
    const callEarly = caller(() => early, fixture)
    const response = await callEarly("/1/connections", { body: aws() })
    expect((await problemIn(response)).status).toBe(503)
    expect(response.headers.get("retry-after")).toBe("5")
    expect(await stored()).toEqual([])
    await ensureSealingKeys(fixture.client, fixture.namespace)
    expect((await callEarly("/1/connections", { body: aws() })).status).toBe(201)
  } finally {
    await early.close()
  }
})

describe("connections without a secret, in an installation with an identity issuer", () => {
  let issuing: Replica
  const send = caller(() => issuing, fixture)

  beforeAll(async () => {
    const client = fixture.client
    const issuer = "https://berth.example"
    const identity = new IdentityIssuer({ client, systemNamespace: SYSTEM_NAMESPACE, issuer, clock: systemClock })
    await ensureIdentityKeys(client, SYSTEM_NAMESPACE)
    issuing = await startReplica({ identity })
  })
  afterAll(() => issuing.close())

  it.each<[ConnectionType, Record<string, string>]>([
    ["aws", { role_arn: ROLE }],
    ["aws", { ...KINDS.aws, role_arn: ROLE }],
    ["gcp", { gcp_project_id: "acme-1", ...WORKLOAD }],
    ["azure", { tenant_id: UUID, client_id: UUID, subscription_id: UUID }],
  ])("are created, of type %s, and show their fields to an admin", async (type, fields) => {
    const made = await send("/1/connections", { body: { name: "federated", type, ...fields } })
    expect(made.status).toBe(201)
    expect(await (await send("/1/connections/federated")).json()).toMatchObject(fields)
  })

  it("can be changed into the other form by all of its fields", async () => {
    await send("/1/connections", { body: { name: "federated", type: "gcp", gcp_project_id: "acme-1", ...WORKLOAD } })
    const body = { gcp_project_id: "acme-1", keyfile_json: keyfile() }
    expect((await send("/1/connections/federated", { method: "PATCH", body })).status).toBe(200)
    const shown = (await (await send("/1/connections/federated")).json()) as ConnectionRecord
    expect(shown["keyfile_json"]).toBe(keyfile())
    expect(shown["workload_identity_provider"]).toBeUndefined()
  })

  it("publish the issuer's documents without credentials", async () => {
    const read = (path: string) => fetch(`http://127.0.0.1:${issuing.port}/.well-known/${path}`)
    expect(await (await read("openid-configuration")).json()).toMatchObject({
      issuer: "https://berth.example",
      jwks_uri: "https://berth.example/.well-known/jwks.json",
    })
    const { keys } = (await (await read("jwks.json")).json()) as { keys: { kid: string }[] }
    expect(keys).toHaveLength(1)
    expect((await fetch(`http://127.0.0.1:${replica.port}/.well-known/jwks.json`)).status).toBe(404)
  })
})
