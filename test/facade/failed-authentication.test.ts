import { afterEach, describe, expect, it } from "vitest"
import { systemClock } from "../../src/apis/clock.ts"
import type { FacadeSettings } from "../../src/facade/app.ts"
import { CACHE_OPTIONS } from "../../src/facade/caches.ts"
import { makeApiKey } from "../../src/identity/apikeys.ts"
import { ApiKeyAuthenticator } from "../../src/identity/authenticate.ts"
import { IndexedStore } from "../../src/kube/store.ts"
import { eventually } from "../cloud/eventually.ts"
import { caller, makeKey, problemIn, type Replica, startReplica, testWorld } from "./harness.ts"

/** Failed authentications are limited by client address, and nobody is locked out by somebody else's. */
const world = testWorld("facade-failures")
let replica: Replica
const call = caller(() => replica, world)

afterEach(() => replica.close())

async function start(settings: Partial<FacadeSettings>): Promise<void> {
  replica = await startReplica({ settings: { failuresPerMinute: 3, ...settings } })
}

/** How a request is answered that comes from an address, by way of a proxy on this machine. */
async function statusFrom(address: string, key: string | undefined): Promise<number> {
  const response = await call("/1/jobs", { key, headers: { "X-Forwarded-For": address } })
  await response.arrayBuffer()
  return response.status
}

/** A value of the right form that nobody has. */
const guess = (): string => makeApiKey().value

describe("failed authentications", () => {
  it("get 429 with Retry-After beyond the limit of their address, and other addresses have their own", async () => {
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

  it("count for an IPv6 network as a whole, which one client can have", async () => {
    await start({ trustProxy: "loopback" })
    for (const host of ["1", "2", "3"]) expect(await statusFrom(`2001:db8::${host}`, guess())).toBe(401)
    expect(await statusFrom("2001:db8::4", guess())).toBe(429)
    expect(await statusFrom("2001:db8:1::4", guess())).toBe(401)
  })

  it("lock nobody out who has good credentials, of whatever age, and are still answered so", async () => {
    await start({ trustProxy: "loopback" })
    for (let failure = 0; failure < 5; failure++) await statusFrom("192.0.2.1", guess())
    const answers = await Promise.all(
      [world.keys.viewer, guess(), world.keys.admin, guess()].map((key) => statusFrom("192.0.2.1", key)),
    )
    expect(answers).toEqual([200, 429, 200, 429])
    const made = await makeKey(world.client, world.namespace, "viewer")
    await eventually(async () => expect(await statusFrom("192.0.2.1", made)).toBe(200))
  })

  it("count for the proxy's address where no proxy is trusted: a client can't choose its own", async () => {
    await start({})
    for (const host of [1, 2, 3]) expect(await statusFrom(`192.0.2.${host}`, guess())).toBe(401)
    expect(await statusFrom("192.0.2.4", guess())).toBe(429)
    expect(await statusFrom("192.0.2.4", world.keys.viewer)).toBe(200)
  })

  it("may be any number where the setting is 0", async () => {
    await start({ failuresPerMinute: 0 })
    for (let failure = 0; failure < 100; failure++) expect(await statusFrom("192.0.2.1", "nonsense")).toBe(401)
  })
})

it("asks the API server about no key that the cache does not have, where it shall not", async () => {
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
  const project = { id: world.project, organizationId: world.organization, namespace: world.namespace }
  expect(await authenticator.authenticate(guess(), project, { onlyCached: true })).toBeUndefined()
  await expect(authenticator.authenticate(guess(), project)).rejects.toThrow("the API server was asked")
})
