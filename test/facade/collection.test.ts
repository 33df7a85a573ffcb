import { afterEach, describe, expect, it } from "vitest"
import type { StoredCronJob } from "../../src/apis/cronjob.ts"
import { CACHE_OPTIONS, CRON_JOBS } from "../../src/facade/caches.ts"
import { Collection } from "../../src/facade/collection.ts"
import { Turns } from "../../src/facade/idempotency.ts"
import { IndexedStore } from "../../src/kube/store.ts"
import { testWorld } from "./harness.ts"

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

function withCache(...objects: StoredCronJob[]) {
  const store = new IndexedStore(CACHE_OPTIONS.cronJobs.indexes)
  for (const object of objects) store.put(object)
  const { client, namespace } = world
  const kind = { noun: "cronjob", resource: CRON_JOBS, store, turns: new Turns() }
  return { store, collection: new Collection({ ...kind, namespace, reader: client, writer: client }) }
}

async function stored(name: string): Promise<StoredCronJob> {
  return world.client.get(CRON_JOBS, { namespace: world.namespace, name })
}

describe("an answer to a write", () => {
  it("comes when the cache shows it, so that the caller's next list has it: create and change", async () => {
    const { store, collection } = withCache()
    let shown = false
    const show = (object: StoredCronJob): void => {
      shown = true
      store.put(object)
      store.advance(object.metadata.resourceVersion)
    }
    const creating = collection.create(cronJob("made"), "made").then(() => shown)
    await expect.poll(() => stored("made").catch(() => undefined)).toBeDefined()
    show(await stored("made"))
    expect(await creating).toBe(true)
    shown = false
    const pause = (present: StoredCronJob) => ({ ...present, spec: { ...present.spec, active: false } })
    const changing = collection.change("made", pause).then(() => shown)
    await expect.poll(async () => (await stored("made")).spec.active).toBe(false)
    show(await stored("made"))
    expect(await changing).toBe(true)
  })

  it("comes when the cache has lost what was deleted", async () => {
    const { store, collection } = withCache(await make("going"))
    let lost = false
    const removing = collection.remove("going").then(() => lost)
    await expect.poll(() => stored("going").catch(() => "gone")).toBe("gone")
    lost = true
    store.remove(`${world.namespace}/going`)
    store.advance("1")
    expect(await removing).toBe(true)
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
