import { afterEach, describe, expect, it } from "vitest"
import { CACHE_OPTIONS } from "../../src/api/caches.ts"
import { Changes } from "../../src/api/changes.ts"
import { Collection } from "../../src/api/collection.ts"
import { KeyedMutex } from "../../src/api/idempotency.ts"
import { idempotencyMarks } from "../../src/api/idempotency-marks.ts"
import type { StoredCronJob } from "../../src/core/apis/cronjob.ts"
import type { CallerClient } from "../../src/core/identity/principal.ts"
import { IndexedStore } from "../../src/core/kube/store.ts"
import { CRON_JOBS } from "../../src/core/resources.ts"
import { projectFixture } from "../harness/facade-project.ts"
import { plainClient } from "./plain-client.ts"

/** Tests of cases that are rare in real traffic. The cache changes only when a test changes it. */
const fixture = projectFixture("facade-collection")

afterEach(async () => {
  const { items } = await fixture.client.list(CRON_JOBS, { namespace: fixture.namespace })
  for (const { metadata } of items) await fixture.client.delete(CRON_JOBS, metadata)
})

function cronJob(name: string): StoredCronJob {
  const metadata = { name, namespace: fixture.namespace }
  return { metadata, spec: { schedule: "@daily", jobDefinition: { image: "a" } } } as StoredCronJob
}

/** Returns a CronJob that a request with an Idempotency-Key creates. */
function keyed(name: string): StoredCronJob {
  const { metadata, ...same } = cronJob(name)
  return { ...same, metadata: { ...metadata, ...idempotencyMarks({ key: "a key" }) } } as StoredCronJob
}

function make(name: string): Promise<StoredCronJob> {
  return fixture.client.create(CRON_JOBS, cronJob(name))
}

/**
 * Returns the real client. It calls `happens` in the turn after each write, when the caller waits for the cache
 * already.
 */
function afterEachWrite(happens: (written: StoredCronJob) => void): CallerClient {
  const { client } = fixture
  const notifying = <T>(written: T): T => {
    setImmediate(() => happens(written as StoredCronJob))
    return written
  }
  return {
    ...plainClient(client),
    create: async (resource, object, options) => notifying(await client.create(resource, object, options)),
    replace: async (resource, object, options) => notifying(await client.replace(resource, object, options)),
    delete: async (resource, ref, options) => notifying(await client.delete(resource, ref, options)),
  }
}

function withCache(...objects: StoredCronJob[]) {
  return withCacheFor(fixture.client, ...objects)
}

function withCacheFor(writer: CallerClient, ...objects: StoredCronJob[]) {
  const store = new IndexedStore(CACHE_OPTIONS.cronJobs.indexes)
  for (const object of objects) store.put(object)
  const { client, namespace } = fixture
  const mutexes = { creations: new KeyedMutex(), changes: new Changes() }
  const kind = { noun: "cronjob", resource: CRON_JOBS, store, mutexes }
  return { store, collection: new Collection({ ...kind, namespace, reader: client, writer }) }
}

async function stored(name: string): Promise<StoredCronJob> {
  return fixture.client.get(CRON_JOBS, { namespace: fixture.namespace, name })
}

describe("a response to a write", () => {
  it("waits until the cache shows a created or changed object, so that the caller's next list has it", async () => {
    let shown = false
    const writer = afterEachWrite((written) => {
      shown = true
      store.put(written)
      store.advance(written.metadata.resourceVersion)
    })
    const { store, collection } = withCacheFor(writer)
    await collection.create(cronJob("made"), "made")
    expect(shown).toBe(true)
    shown = false
    const pause = (present: StoredCronJob) => ({ ...present, spec: { ...present.spec, active: false } })
    await collection.change("made", pause)
    expect(shown).toBe(true)
    expect((await stored("made")).spec.active).toBe(false)
  })

  it("waits until the cache has removed a deleted object", async () => {
    let lost = false
    const writer = afterEachWrite(() => {
      lost = true
      store.remove(`${fixture.namespace}/going`)
      store.advance("1")
    })
    const { store, collection } = withCacheFor(writer, await make("going"))
    await collection.remove("going")
    expect(lost).toBe(true)
    await expect(stored("going")).rejects.toMatchObject({ code: 404 })
  })

  it("answers a write after a timeout when the watch is broken", async () => {
    const { collection } = withCache()
    const { metadata } = await collection.create(cronJob("deaf"), "deaf")
    await collection.remove("deaf")
    await expect(stored("deaf")).rejects.toMatchObject({ code: 404 })
    expect(metadata.name).toBe("deaf")
  })
})

describe("a stale cache", () => {
  it("finds an object that another replica has just created: reads it by name, waits for it by id", async () => {
    const { store, collection } = withCache()
    const { metadata } = await make("new")
    expect((await collection.find("new")).metadata.uid).toBe(metadata.uid)
    const finding = collection.find(metadata.uid)
    store.put(await stored("new"))
    store.advance(metadata.resourceVersion)
    expect((await finding).metadata.name).toBe("new")
  })

  it("finds what another replica made with an Idempotency-Key, also with as many objects as the API server", async () => {
    const gone = await make("gone")
    await fixture.client.delete(CRON_JOBS, gone.metadata)
    const { metadata } = await fixture.client.create(CRON_JOBS, keyed("made"))
    // The cache has neither seen the deletion nor the creation.
    const { collection } = withCache(gone)
    const again = collection.create(cronJob("second"), "second", { key: "a key", accept: (earlier) => earlier })
    expect((await again).metadata.uid).toBe(metadata.uid)
    await expect(stored("second")).rejects.toMatchObject({ code: 404 })
  })

  it("returns 404 for a change or deletion by id when another object has the name now", async () => {
    const old = await make("reused")
    await fixture.client.delete(CRON_JOBS, old.metadata)
    const { metadata } = await make("reused")
    const { collection } = withCache(old)
    await expect(collection.change(old.metadata.uid, (present) => present)).rejects.toMatchObject({ status: 404 })
    await expect(collection.remove(old.metadata.uid)).rejects.toMatchObject({ status: 404 })
    expect((await stored("reused")).metadata).toEqual(metadata)
    const pause = (present: StoredCronJob) => ({ ...present, spec: { ...present.spec, active: false } })
    expect((await collection.change("reused", pause)).metadata.uid).toBe(metadata.uid)
  })
})

it("the façade returns 503 for a list while the cache has not been filled", async () => {
  const { store, collection } = withCache()
  for (const list of [() => collection.all(), () => collection.page({ limit: 1, offset: 0 })])
    expect(list).toThrow(expect.objectContaining({ status: 503, headers: { "Retry-After": "1" } }))
  store.advance("1")
  expect(collection.all()).toEqual([])
})

it("the façade returns 503 for a change that conflicts again and again, and writes nothing for an empty change", async () => {
  const { resourceVersion } = (await make("restless")).metadata
  const { collection } = withCache()
  expect((await collection.change("restless", () => undefined)).metadata.resourceVersion).toBe(resourceVersion)
  let count = 0
  const race = async (present: StoredCronJob): Promise<StoredCronJob> => {
    const merge = { metadata: { annotations: { "example.com/count": String(++count) } } }
    await fixture.client.patch(CRON_JOBS, present.metadata, { merge })
    return { ...present, spec: { ...present.spec, active: false } }
  }
  await expect(collection.change("restless", race)).rejects.toMatchObject({ status: 503 })
  expect((await stored("restless")).spec.active).toBe(true)
})
