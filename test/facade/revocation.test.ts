import { describe, expect, it } from "vitest"
import { systemClock } from "../../src/core/apis/clock.ts"
import { parseKeyId } from "../../src/core/identity/apikeys.ts"
import { API_KEY_INDEXES, ApiKeyAuthenticator } from "../../src/core/identity/authenticate.ts"
import { IndexedStore } from "../../src/core/kube/store.ts"
import { API_KEYS } from "../../src/core/resources.ts"
import { deleteKey, makeKey } from "../harness/api-keys.ts"
import { projectFixture } from "../harness/facade-project.ts"

const fixture = projectFixture("facade-revoke")

describe("an accepted key (design, section 8: confirmed by a live read at most a second old)", () => {
  it("rejects a revoked key at most one second after its revocation, with a cache that never sees it", async () => {
    let seconds = 0
    const store = new IndexedStore(API_KEY_INDEXES)
    const clock = { ...systemClock, monotonic: () => seconds }
    const authenticator = new ApiKeyAuthenticator({ client: fixture.client, store, clock })
    const project = { id: fixture.project, organizationId: fixture.organization, namespace: fixture.namespace }
    const value = await makeKey(fixture.client, fixture.namespace, "developer", { name: "doomed" })
    const ref = { namespace: fixture.namespace, name: "doomed" }
    store.put(await fixture.client.get(API_KEYS, ref))

    const principal = await authenticator.authenticate(value, project)
    expect(principal).toMatchObject({ kind: "apiKey", role: "developer", project })
    expect(principal?.id).not.toContain(parseKeyId(value))
    await deleteKey(fixture.client, ref)
    seconds = 0.999
    expect(await authenticator.authenticate(value, project)).toBeDefined()
    seconds = 1
    expect(await authenticator.authenticate(value, project)).toBeUndefined()
    expect(store.get(ref)).toBeDefined()
  })

  it("rejects a deleted key and accepts its successor of the same name, whatever was read before", async () => {
    const store = new IndexedStore(API_KEY_INDEXES)
    const authenticator = new ApiKeyAuthenticator({ client: fixture.client, store, clock: systemClock })
    const project = { id: fixture.project, organizationId: fixture.organization, namespace: fixture.namespace }
    const ref = { namespace: fixture.namespace, name: "heir" }
    const first = await makeKey(fixture.client, fixture.namespace, "viewer", { name: "heir" })
    store.put(await fixture.client.get(API_KEYS, ref))
    expect(await authenticator.authenticate(first, project)).toBeDefined()
    await deleteKey(fixture.client, ref)
    const second = await makeKey(fixture.client, fixture.namespace, "viewer", { name: "heir" })
    store.put(await fixture.client.get(API_KEYS, ref))
    // The cache is up to date, so a missing key does not exist.
    store.advance(String(Number.MAX_SAFE_INTEGER))
    expect(await authenticator.authenticate(first, project)).toBeUndefined()
    expect(await authenticator.authenticate(second, project)).toBeDefined()
  })

  it("applies a key's deletion or new role as soon as the cache shows it, whatever an earlier read returned", async () => {
    const store = new IndexedStore(API_KEY_INDEXES)
    const clock = { ...systemClock, monotonic: () => 0 }
    const authenticator = new ApiKeyAuthenticator({ client: fixture.client, store, clock })
    const project = { id: fixture.project, organizationId: fixture.organization, namespace: fixture.namespace }
    const ref = { namespace: fixture.namespace, name: "known" }
    const value = await makeKey(fixture.client, fixture.namespace, "admin", { name: "known" })
    store.put(await fixture.client.get(API_KEYS, ref))
    expect(await authenticator.authenticate(value, project)).toMatchObject({ role: "admin", isBound: true })
    store.put(await fixture.client.patch(API_KEYS, ref, { merge: { spec: { role: "viewer" } } }))
    expect(await authenticator.authenticate(value, project)).toMatchObject({ role: "viewer", isBound: false })

    const held = { merge: { metadata: { finalizers: ["example.com/hold"] } } }
    await fixture.client.patch(API_KEYS, ref, held)
    await fixture.client.delete(API_KEYS, ref)
    const going = await fixture.client.get(API_KEYS, ref)
    expect(going.metadata.deletionTimestamp).toBeDefined()
    store.put(going)
    expect(await authenticator.authenticate(value, project)).toBeUndefined()
    await fixture.client.patch(API_KEYS, ref, { merge: { metadata: { finalizers: null } } })
  })

  it("rejects a deleted key while a finalizer holds its object, with a cache that never sees the deletion", async () => {
    let seconds = 0
    const store = new IndexedStore(API_KEY_INDEXES)
    const clock = { ...systemClock, monotonic: () => seconds }
    const authenticator = new ApiKeyAuthenticator({ client: fixture.client, store, clock })
    const project = { id: fixture.project, organizationId: fixture.organization, namespace: fixture.namespace }
    const ref = { namespace: fixture.namespace, name: "held" }
    const value = await makeKey(fixture.client, fixture.namespace, "admin", { name: "held" })
    const hold = { merge: { metadata: { finalizers: ["example.com/hold"] } } }
    store.put(await fixture.client.patch(API_KEYS, ref, hold))
    expect(await authenticator.authenticate(value, project)).toBeDefined()
    await fixture.client.delete(API_KEYS, ref)
    seconds = 1
    expect(await authenticator.authenticate(value, project)).toBeUndefined()
    await fixture.client.patch(API_KEYS, ref, { merge: { metadata: { finalizers: null } } })
  })

  it("rejects a key from the exact second of its expiry", async () => {
    const expiresAt = "2099-01-01T02:00:00+02:00"
    let now = new Date("2098-12-31T23:59:59.999Z")
    const store = new IndexedStore(API_KEY_INDEXES)
    const authenticator = new ApiKeyAuthenticator({
      client: fixture.client,
      store,
      clock: { ...systemClock, now: () => now },
    })
    const project = { id: fixture.project, organizationId: fixture.organization, namespace: fixture.namespace }
    const value = await makeKey(fixture.client, fixture.namespace, "viewer", { name: "ephemeral", expiresAt })
    store.put(await fixture.client.get(API_KEYS, { namespace: fixture.namespace, name: "ephemeral" }))
    expect(await authenticator.authenticate(value, project)).toBeDefined()
    now = new Date("2099-01-01T00:00:00Z")
    expect(await authenticator.authenticate(value, project)).toBeUndefined()
  })
})
