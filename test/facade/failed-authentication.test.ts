import { afterEach, describe, expect, it } from "vitest"
import type { FacadeSettings } from "../../src/api/app.ts"
import { CACHE_OPTIONS } from "../../src/api/caches.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import { makeApiKey } from "../../src/core/identity/apikeys.ts"
import { ApiKeyAuthenticator } from "../../src/core/identity/authenticate.ts"
import { IndexedStore } from "../../src/core/kube/store.ts"
import { makeKey } from "../harness/api-keys.ts"
import { caller, problemIn } from "../harness/caller.ts"
import { eventually } from "../harness/eventually.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { projectFixture } from "../harness/facade-project.ts"

/** Failed authentications are limited by client address. One client's failures never lock out another client. */
const fixture = projectFixture("facade-failures")
let replica: Replica
const call = caller(() => replica, fixture)

afterEach(() => replica.close())

async function start(settings: Partial<FacadeSettings>): Promise<void> {
  replica = await startReplica({ settings: { failuresPerMinute: 3, ...settings } })
}

/** Returns the status for a request that comes from an address through a proxy on this machine. */
async function statusFrom(address: string, key: string | undefined): Promise<number> {
  const response = await call("/1/jobs", { key, headers: { "X-Forwarded-For": address } })
  await response.arrayBuffer()
  return response.status
}

/** Returns a well-formed value that belongs to no key. */
const guess = (): string => makeApiKey().value

describe("the limit of failed authentications", () => {
  it("returns 429 with Retry-After for failed authentications above an address' limit, and 401 for other addresses", async () => {
    await start({ trustProxy: "loopback" })
    for (const key of [guess(), "nonsense", ""]) expect(await statusFrom("192.0.2.1", key)).toBe(401)
    const refused = await call("/1/jobs", { key: guess(), headers: { "X-Forwarded-For": "192.0.2.1" } })
    expect(refused.status).toBe(429)
    const wait = Number(refused.headers.get("retry-after"))
    expect(wait >= 1 && wait <= 60).toBe(true)
    expect(refused.headers.get("ratelimit")).toBe(`"failures"; r=0; t=${wait}`)
    expect(refused.headers.get("ratelimit-policy")).toBe('"failures"; q=3; w=60')
    expect(await problemIn(refused)).toMatchObject({ type: "https://berth.dev/problems/rate-limited", status: 429 })
    expect(await statusFrom("192.0.2.2", guess())).toBe(401)
  })

  it("counts failed authentications for a whole IPv6 network, because one client can own it", async () => {
    await start({ trustProxy: "loopback" })
    for (const host of ["1", "2", "3"]) expect(await statusFrom(`2001:db8::${host}`, guess())).toBe(401)
    expect(await statusFrom("2001:db8::4", guess())).toBe(429)
    expect(await statusFrom("2001:db8:1::4", guess())).toBe(401)
  })

  it("accepts valid credentials, old and new, from an address above the limit of failed authentications", async () => {
    await start({ trustProxy: "loopback" })
    for (let failure = 0; failure < 5; failure++) await statusFrom("192.0.2.1", guess())
    const answers = await Promise.all(
      [fixture.keys.viewer, guess(), fixture.keys.admin, guess()].map((key) => statusFrom("192.0.2.1", key)),
    )
    expect(answers).toEqual([200, 429, 200, 429])
    const made = await makeKey(fixture.client, fixture.namespace, "viewer")
    await eventually(async () => expect(await statusFrom("192.0.2.1", made)).toBe(200))
  })

  it("counts failed authentications for the proxy's address if no proxy is trusted: a client could forge its own", async () => {
    await start({})
    for (const host of [1, 2, 3]) expect(await statusFrom(`192.0.2.${host}`, guess())).toBe(401)
    expect(await statusFrom("192.0.2.4", guess())).toBe(429)
    expect(await statusFrom("192.0.2.4", fixture.keys.viewer)).toBe(200)
  })

  it("allows unlimited failed authentications if failuresPerMinute is 0", async () => {
    await start({ failuresPerMinute: 0 })
    for (let failure = 0; failure < 100; failure++) expect(await statusFrom("192.0.2.1", "nonsense")).toBe(401)
  })
})

it("the façade sends no request to the API server for a key outside the cache with onlyCached", async () => {
  replica = await startReplica()
  const asked = (): never => {
    throw new Error("the API server was asked")
  }
  const client = { get: asked, list: asked }
  const authenticator = new ApiKeyAuthenticator({
    client,
    store: new IndexedStore(CACHE_OPTIONS.apiKeys.indexes),
    clock: systemClock,
  })
  const project = { id: fixture.project, organizationId: fixture.organization, namespace: fixture.namespace }
  expect(await authenticator.authenticate(guess(), project, { onlyCached: true })).toBeUndefined()
  await expect(authenticator.authenticate(guess(), project)).rejects.toThrow("the API server was asked")
})
