import { afterEach, describe, expect, it } from "vitest"
import type { StoredCronJob } from "../../src/apis/cronjob.ts"
import { CACHE_OPTIONS, CRON_JOBS } from "../../src/facade/caches.ts"
import { Collection } from "../../src/facade/collection.ts"
import { Turns } from "../../src/facade/idempotency.ts"
import type { CallerClient } from "../../src/identity/principal.ts"
import { IndexedStore } from "../../src/kube/store.ts"
import { plainClient, testWorld } from "./harness.ts"

/** What real traffic rarely shows, with the cache held still. */
const world = testWorld("facade-collection")

afterEach(async () => {
  const { items } = await world.client.list(CRON_JOBS, { namespace: world.namespace })
  for (const { metadata } of items) await world.client.delete(CRON_JOBS, metadata)
})

function cronJob(name: string): StoredCronJob {
  const metadata = { name, namespace: world.namespace }
  return { metadata, spec: { schedule: "@daily", jobDefinition: { image: "a" } } } as StoredCronJob
}

function make(name: string): Promise<StoredCronJob> {
  return world.client.create(CRON_JOBS, cronJob(name))
}

/** The real client, with something happening in the turn after each write, when whoever has written waits already. */
function afterEachWrite(happens: (written: StoredCronJob) => void): CallerClient {
  const { client } = world
  const told = <T>(written: T): T => {
    setImmediate(() => happens(written as StoredCronJob))
    return written
  }
  return {
    ...plainClient(client),
    create: async (resource, object, options) => told(await client.create(resource, object, options)),
    replace: async (resource, object, options) => told(await client.replace(resource, object, options)),
    delete: async (resource, ref, options) => told(await client.delete(resource, ref, options)),
  }
}

function withCache(...objects: StoredCronJob[]) {
  return withCacheFor(world.client, ...objects)
}

function withCacheFor(writer: CallerClient, ...objects: StoredCronJob[]) {
  const store = new IndexedStore(CACHE_OPTIONS.cronJobs.indexes)
  for (const object of objects) store.put(object)
  const { client, namespace } = world
  const kind = { noun: "cronjob", resource: CRON_JOBS, store, turns: new Turns() }
  return { store, collection: new Collection({ ...kind, namespace, reader: client, writer }) }
}

async function stored(name: string): Promise<StoredCronJob> {
  return world.client.get(CRON_JOBS, { namespace: world.namespace, name })
}

describe("an answer to a write", () => {
  it("comes when the cache shows it, so that the caller's next list has it: create and change", async () => {
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

  it("comes when the cache has lost what was deleted", async () => {
    let lost = false
    const writer = afterEachWrite(() => {
      lost = true
      store.remove(`${world.namespace}/going`)
      store.advance("1")
    })
    const { store, collection } = withCacheFor(writer, await make("going"))
    await collection.remove("going")
    expect(lost).toBe(true)
    await expect(stored("going")).rejects.toMatchObject({ code: 404 })
  })

  it("comes all the same when the watch is broken", async () => {
    const { collection } = withCache()
    const { metadata } = await collection.create(cronJob("deaf"), "deaf")
    await collection.remove("deaf")
    await expect(stored("deaf")).rejects.toMatchObject({ code: 404 })
    expect(metadata.name).toBe("deaf")
  })
})

describe("a cache that is behind", () => {
  it("does not hide what another replica has just made: by name it is read, by id it is waited for", async () => {
    const { store, collection } = withCache()
    const { metadata } = await make("new")
    expect((await collection.find("new")).metadata.uid).toBe(metadata.uid)
    const finding = collection.find(metadata.uid)
    store.put(await stored("new"))
    store.advance(metadata.resourceVersion)
    expect((await finding).metadata.name).toBe("new")
  })

  it("does not let a change or deletion by id hit another one that has the name by now", async () => {
    const old = await make("reused")
    await world.client.delete(CRON_JOBS, old.metadata)
    const { metadata } = await make("reused")
    const { collection } = withCache(old)
    await expect(collection.change(old.metadata.uid, (present) => present)).rejects.toMatchObject({ status: 404 })
    await expect(collection.remove(old.metadata.uid)).rejects.toMatchObject({ status: 404 })
    expect((await stored("reused")).metadata).toEqual(metadata)
    const pause = (present: StoredCronJob) => ({ ...present, spec: { ...present.spec, active: false } })
    expect((await collection.change("reused", pause)).metadata.uid).toBe(metadata.uid)
  })
})

it("a cache that was not read yet makes no list: that there is nothing is not known", async () => {
  const { store, collection } = withCache()
  for (const list of [() => collection.all(), () => collection.page({ limit: 1, offset: 0 })])
    expect(list).toThrow(expect.objectContaining({ status: 503, headers: { "Retry-After": "1" } }))
  store.advance("1")
  expect(collection.all()).toEqual([])
})

it("a change that never comes to rest is given up with 503, and one that asks for nothing writes nothing", async () => {
  const { resourceVersion } = (await make("restless")).metadata
  const { collection } = withCache()
  expect((await collection.change("restless", () => undefined)).metadata.resourceVersion).toBe(resourceVersion)
  let count = 0
  const race = async (present: StoredCronJob): Promise<StoredCronJob> => {
    const merge = { metadata: { annotations: { "example.com/count": String(++count) } } }
    await world.client.patch(CRON_JOBS, present.metadata, { merge })
    return { ...present, spec: { ...present.spec, active: false } }
  }
  await expect(collection.change("restless", race)).rejects.toMatchObject({ status: 503 })
  expect((await stored("restless")).spec.active).toBe(true)
})
