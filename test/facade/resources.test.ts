import { afterAll, beforeAll, expect } from "vitest"
import { liveCredentials } from "../../src/accounts/credentials.ts"
import { Discoverer } from "../../src/accounts/discoverer.ts"
import type { Discoverer as DiscoverResources } from "../../src/api/resources/discovery/schema.ts"
import type { ExternalAccount } from "../../src/clouds/account.ts"
import { awsAccounts } from "../../src/clouds/aws/account.ts"
import type { StoredConnection } from "../../src/core/apis/connection.ts"
import { readSealingKeys } from "../../src/core/identity/sealing-keys.ts"
import { SECRETS } from "../../src/core/kube/core.ts"
import { Reflector } from "../../src/core/kube/reflector.ts"
import { CredentialsError } from "../../src/core/outbound/errors.ts"
import { CONNECTIONS, PROJECTS } from "../../src/core/resources.ts"
import { Sealer } from "../../src/core/sealing/envelope.ts"
import { KeyringEncryption } from "../../src/core/sealing/keys.ts"
import { accountWith, bucket, never } from "../discovery/accounts.ts"
import { makeKey } from "../harness/api-keys.ts"
import { caller } from "../harness/caller.ts"
import { eventually, PATIENCE_MS } from "../harness/eventually.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { projectFixture } from "../harness/facade-project.ts"
import { clientOf } from "../harness/machine-users.ts"
import { ManualClock } from "../harness/manual-clock.ts"
import { silentLogger } from "../harness/silent-logger.ts"
import { SYSTEM_NAMESPACE } from "../harness/system-namespace.ts"
import { type Moto, startMoto } from "../moto.ts"
import { missingTool, needing } from "../needing.ts"

const { describe, it } = needing(missingTool("moto"))

const MARKER = "canary-7f3a"
const fixture = projectFixture("resources")

/** Resolves when the slow account has returned its first page and gets the request for the next. */
const hangs = Promise.withResolvers<void>()

/** Accounts by access key. */
const ACCOUNTS: Record<string, ExternalAccount> = {
  AKIAHEALTHY: {
    ...accountWith(["b"], ["a"]),
    async *repositories() {
      yield [{ id: "r", name: "registry/app", platform: "ecr", type: "repository", metadata: { region: "x", size: 7 } }]
    },
    async *virtualMachinePools() {
      yield [{ id: "arn", name: "1234", platform: "aws", type: "account", metadata: {} }]
    },
  },
  AKIASLOW: {
    ...accountWith(),
    async *storages() {
      yield [bucket("first")]
      hangs.resolve()
      await never()
    },
  },
  AKIABROKEN: accountWith(["partly"], new CredentialsError("AccessDenied", `user "ü\\" may not, said ${MARKER}`)),
}

let moto: Moto
let replica: Replica
const call = caller(() => replica, fixture)
const stop = new AbortController()
/** Clock of the time limits and of the cached discoveries; it moves only when a test moves it. */
const clock = new ManualClock()
beforeAll(async () => {
  moto = await startMoto()
  const client = await clientOf("berth-facade")
  const projects = new Reflector({ client, logger: silentLogger, resource: PROJECTS })
  void projects.run(stop.signal)
  await projects.whenSynced(AbortSignal.timeout(PATIENCE_MS))
  const sealer = new Sealer(new KeyringEncryption(() => readSealingKeys(client, SYSTEM_NAMESPACE)))
  const discoverer = new Discoverer({
    openAccount: (_, fields) => ACCOUNTS[fields["access_key_id"] ?? ""] ?? awsAccounts({ endpoint: moto.url })(fields),
    credentialsOf: liveCredentials(client, { projects, sealer }),
    clock,
    logger: silentLogger,
  })
  const discover: DiscoverResources = (sort, connections) => discoverer.discover(sort, connections)
  replica = await startReplica({ discover, settings: { discoveriesPerMinute: 20 } })
})
afterAll(async () => {
  await replica.close()
  await moto.stop()
  stop.abort()
})

const get = (path: string, role: "viewer" | "developer" | "admin" = "admin") =>
  call(`/1/resources/${path}`, { key: fixture.keys[role] })

async function connect(name: string, access_key_id: string): Promise<StoredConnection> {
  const body = { name, type: "aws", access_key_id, secret_access_key: MARKER }
  const made = await call("/1/connections", { body })
  expect(made.status).toBe(201)
  return await fixture.client.get(CONNECTIONS, { namespace: fixture.namespace, name })
}

/**
 * Resolves when the façade's cache has these connections. Asking for discoveries until then would exceed their rate
 * limit.
 */
async function shown(...names: string[]): Promise<void> {
  await eventually(async () => {
    const response = await call("/1/connections")
    const { connections } = (await response.json()) as { connections: { name: string }[] }
    expect(connections.map(({ name }) => name)).toEqual(expect.arrayContaining(names))
  })
}

describe("discovery over REST", () => {
  it("returns no resources without connections", async () => {
    const none = await get("storages", "viewer")
    expect(none.status).toBe(200)
    expect(await none.json()).toEqual({ storages: [] })
    expect(none.headers.get("Berth-Partial-Result")).toBeNull()
  })

  it("returns the resources of all connections to a viewer, and names the failed connections", async () => {
    const healthy = await connect("healthy", "AKIAHEALTHY")
    const broken = await connect("broken", "AKIABROKEN")
    await shown("healthy", "broken")
    const response = await get("storages", "viewer")
    const { storages } = (await response.json()) as { storages: { name: string; connection_id: string }[] }
    const item = { platform: "s3", type: "bucket", metadata: {}, connection_type: "aws" }
    expect(storages).toEqual([
      { ...item, id: "id-of-a", name: "a", connection_id: healthy.metadata.uid },
      { ...item, id: "id-of-b", name: "b", connection_id: healthy.metadata.uid },
      { ...item, id: "id-of-partly", name: "partly", connection_id: broken.metadata.uid },
    ])
    expect(response.headers.get("Berth-Partial-Result")).toBe(
      '"broken";reason="AccessDenied";message="user \\"?\\\\\\" may not, said [redacted]"',
    )
    const logged = replica
      .logged()
      .split("\n")
      .filter((line) => line.includes("discovery by a connection failed"))
    expect(JSON.parse(logged.at(-1) ?? "{}")).toMatchObject({ connection: "broken", reason: "AccessDenied" })
    expect(replica.logged()).not.toContain(MARKER)
  })

  it("finds repositories and pools under the contract's names, of one connection on request", async () => {
    const healthy = await fixture.client.get(CONNECTIONS, { namespace: fixture.namespace, name: "healthy" })
    const repositories = await get(`repositories?connection_id=${healthy.metadata.uid}`)
    const found = { connection_id: healthy.metadata.uid, connection_type: "aws" }
    const app = {
      ...found,
      id: "r",
      name: "registry/app",
      platform: "ecr",
      type: "repository",
      metadata: { region: "x", size: 7 },
    }
    expect(await repositories.json()).toEqual({ repositories: [app] })
    const pool = { ...found, id: "arn", name: "1234", platform: "aws", type: "account", metadata: {} }
    for (const none of ["", "null"]) {
      const pools = await get(`virtual-machine-pools?connection_id=${none}`)
      expect(await pools.json()).toEqual({ virtual_machine_pools: [pool] })
    }
    const other = await get("storages?connection_id=broken")
    expect(((await other.json()) as { storages: unknown[] }).storages).toHaveLength(1)
  })

  it("returns 404, 400 and 405 for an unknown connection, an invalid query and another method", async () => {
    expect((await get("storages?connection_id=unknown")).status).toBe(404)
    expect((await get("storages?connection_id=a&connection_id=b")).status).toBe(400)
    expect((await get("storages?bucket=a")).status).toBe(400)
    const posted = await call("/1/resources/storages", { body: {} })
    expect([posted.status, posted.headers.get("Allow")]).toEqual([405, "GET, HEAD, OPTIONS"])
  })

  it("reads a connection's Secret only if it has the right type, and never returns its values", async () => {
    const { namespace } = fixture
    const stringData = { access_key_id: "AKIAHEALTHY", secret_access_key: MARKER }
    for (const [name, type] of [
      ["keys", "berth.dev/connection"],
      ["other", "Opaque"],
    ] as const) {
      await fixture.client.create(SECRETS, { metadata: { namespace, name }, type, stringData } as never)
      const spec = { type: "aws" as const, credentialsSecretRef: { name } }
      await fixture.client.create(CONNECTIONS, {
        metadata: { namespace, name: `by-${name}` },
        spec,
      } as StoredConnection)
    }
    await shown("by-keys", "by-other")
    const response = await get("storages?connection_id=by-keys", "developer")
    expect(response.status).toBe(200)
    expect(((await response.json()) as { storages: unknown[] }).storages).toHaveLength(2)
    const refused = await get("storages?connection_id=by-other", "developer")
    expect(await refused.json()).toEqual({ storages: [] })
    expect(refused.headers.get("Berth-Partial-Result")).toContain('"by-other";reason="SecretNotFound"')
  })

  it("returns the healthy connections' resources within the time limit if one connection fails and one hangs", async () => {
    await connect("slow", "AKIASLOW")
    await shown("slow")
    const answer = call("/1/resources/storages")
    let isAnswered = false
    void answer.then(() => {
      isAnswered = true
    })
    // The other accounts have finished, and the slow one has returned its only page.
    await hangs.promise
    await eventually(() => expect(clock.timers).toBe(1))
    clock.advance(14)
    await new Promise(setImmediate)
    expect(isAnswered).toBe(false)
    clock.advance(1)
    const response = await answer
    expect(response.status).toBe(200)
    const { storages } = (await response.json()) as { storages: { name: string }[] }
    expect(storages.map(({ name }) => name).sort()).toEqual(["a", "a", "b", "b", "first", "partly"])
    const names = (response.headers.get("Berth-Partial-Result") ?? "").match(/"[a-z-]+";reason="[A-Za-z]+"/g)
    expect(names?.sort()).toEqual([
      '"broken";reason="AccessDenied"',
      '"by-other";reason="SecretNotFound"',
      '"slow";reason="TimedOut"',
    ])
    await fixture.client.delete(CONNECTIONS, { namespace: fixture.namespace, name: "slow" })
  })

  it("discovers AWS buckets with the credentials that REST sealed", async () => {
    const authorization = "AWS4-HMAC-SHA256 Credential=root/20260101/us-east-1/s3/aws4_request, Signature=none"
    const made = await fetch(`${moto.url}/cargo`, { method: "PUT", headers: { authorization } })
    expect(made.status).toBe(200)
    const { metadata } = await connect("real", "AKIAREAL000000000000")
    const response = await get(`storages?connection_id=${metadata.uid}`, "viewer")
    expect(await response.json()).toMatchObject({
      storages: [{ id: "arn:aws:s3:::cargo", name: "cargo", connection_id: metadata.uid, platform: "s3" }],
    })
    expect(response.headers.get("Berth-Partial-Result")).toBeNull()
  })

  it("has a rate limit of its own for discovery", async () => {
    // A key of its own: the minute of another key's limit may end during the test.
    const key = await makeKey(fixture.client, fixture.namespace, "viewer")
    const ask = () => call("/1/resources/storages?connection_id=unknown", { key })
    const statuses: number[] = []
    for (let n = 0; n < 21; n++) statuses.push((await ask()).status)
    expect(statuses.slice(-2)).toEqual([404, 429])
    const limited = await ask()
    expect(limited.headers.get("Retry-After")).toMatch(/^[0-9]+$/)
    expect(limited.headers.get("RateLimit-Policy")).toMatch(/^"discovery"; q=20; w=60/)
    expect((await call("/1/connections", { key })).status).toBe(200)
  })
})
