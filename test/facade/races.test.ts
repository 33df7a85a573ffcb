import { randomBytes } from "node:crypto"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { systemClock } from "../../src/apis/clock.ts"
import { CreationTimes } from "../../src/apis/creation-times.ts"
import type { StoredJob } from "../../src/apis/job.ts"
import { CACHE_OPTIONS, JOBS } from "../../src/facade/caches.ts"
import { SharedTurns, Turns } from "../../src/facade/idempotency.ts"
import { Jobs, Submitter } from "../../src/facade/jobs/jobs.ts"
import type { CallerClient } from "../../src/identity/principal.ts"
import type { KubeClient } from "../../src/kube/client.ts"
import { IndexedStore } from "../../src/kube/store.ts"
import { createLogger } from "../../src/telemetry/logger.ts"
import { eventually } from "../cloud/eventually.ts"
import {
  applyJob,
  type Caller,
  caller,
  created,
  jobsOf,
  plainClient,
  type Replica,
  setStatus,
  startReplica,
  testWorld,
} from "./harness.ts"
import { clientOf } from "./machine-users.ts"

/** Races that real traffic rarely hits, with the moment in question held open. */
const world = testWorld("facade-races")

beforeEach(async () => {
  for (const { metadata } of await jobsOf(world)) await world.client.delete(JOBS, metadata)
})

function cacheOf(jobs: StoredJob[]): IndexedStore<StoredJob> {
  const store = new IndexedStore(CACHE_OPTIONS.jobs.indexes)
  for (const job of jobs) store.put(job)
  return store
}

/** The real client, with something happening after each read of a job. */
function afterEachRead(happens: (read: number) => Promise<unknown>): CallerClient {
  const { client } = world
  let reads = 0
  return {
    ...plainClient(client),
    get: async (resource, ref, options) => {
      const object = await client.get(resource, ref, options)
      await happens(++reads)
      return object
    },
  }
}

describe("cancel", () => {
  it("does not mark a job that ended between the read and the patch", async () => {
    const job = await applyJob(world, "ends")
    const ends = afterEachRead(() => setStatus(world, "ends", { phase: "succeeded" }))
    const jobs = new Jobs(ends, cacheOf([job]), world.namespace)
    await expect(jobs.cancel("ends")).rejects.toMatchObject({ status: 409 })
    expect((await jobsOf(world))[0]?.spec.cancelled ?? false).toBe(false)
  })

  it("goes on when the job changed but did not end, and gives up with 503 when that never stops", async () => {
    const job = await applyJob(world, "restless")
    const change = (read: number) => setStatus(world, "restless", { phase: "running", message: `change ${read}` })
    const often = new Jobs(afterEachRead(change), cacheOf([job]), world.namespace)
    await expect(often.cancel("restless")).rejects.toMatchObject({ status: 503 })
    const twice = afterEachRead(async (read) => void (read < 3 && (await change(read))))
    expect((await new Jobs(twice, cacheOf([job]), world.namespace).cancel("restless")).spec.cancelled).toBe(true)
  })

  it("does not touch another job that took the name meanwhile", async () => {
    const job = await applyJob(world, "reused")
    const reuse = async (): Promise<void> => {
      await world.client.delete(JOBS, job.metadata)
      await applyJob(world, "reused")
    }
    const reused = afterEachRead(async (read) => void (read === 1 && (await reuse())))
    const jobs = new Jobs(reused, cacheOf([job]), world.namespace)
    await expect(jobs.cancel("reused")).rejects.toMatchObject({ status: 404 })
    await expect(jobs.cancel(job.metadata.uid)).rejects.toMatchObject({ status: 404 })
    expect((await jobsOf(world))[0]?.spec.cancelled ?? false).toBe(false)
  })

  it("by name is of the job that has it now, whatever the cache shows", async () => {
    const job = await applyJob(world, "again")
    await world.client.delete(JOBS, job.metadata)
    const { metadata } = await applyJob(world, "again")
    const cancelled = await new Jobs(world.client, cacheOf([job]), world.namespace).cancel("again")
    expect([cancelled.metadata.uid, cancelled.spec.cancelled]).toEqual([metadata.uid, true])
  })

  it("answers when the cache shows it, so that the next list has it", async () => {
    const job = await applyJob(world, "echoed")
    const store = cacheOf([job])
    let shown = false
    const show = (cancelled: StoredJob): void => {
      shown = true
      store.put(cancelled)
      store.advance(cancelled.metadata.resourceVersion)
    }
    const patch: CallerClient["patch"] = async (resource, ref, change, options) => {
      const cancelled = await world.client.patch(resource, ref, change, options)
      // In the next turn, when who has written it waits already.
      setImmediate(() => show(cancelled as unknown as StoredJob))
      return cancelled
    }
    await new Jobs({ ...plainClient(world.client), patch }, store, world.namespace).cancel("echoed")
    expect(shown).toBe(true)
    expect((await jobsOf(world))[0]?.spec.cancelled).toBe(true)
  })

  it("answers all the same when the watch is broken", async () => {
    const job = await applyJob(world, "deaf")
    const jobs = new Jobs(world.client, cacheOf([job]), world.namespace)
    expect((await jobs.cancel("deaf")).spec.cancelled).toBe(true)
  })
})

describe("one Idempotency-Key on two replicas at the same moment", () => {
  /** A replica that believes that there are no jobs yet. */
  function replica(): Submitter {
    const store = cacheOf([])
    store.advance(String(Number.MAX_SAFE_INTEGER))
    const jobs = new Jobs(world.client, store, world.namespace)
    const creationTimes = new CreationTimes(systemClock)
    return new Submitter({ client: world.client, jobs, namespace: world.namespace, creationTimes, turns: new Turns() })
  }

  it.each([{ image: "a" }, { image: "a", namePrefix: "p" }, { image: "a", name: "n" }])(
    "makes one job of %j",
    async (body) => {
      const first = await replica().submit(body, "key")
      const second = await replica().submit(body, "key")
      expect(second.metadata.uid).toBe(first.metadata.uid)
      expect(await jobsOf(world)).toHaveLength(1)
    },
  )

  it.each([{ image: "a" }, { image: "a", namePrefix: "p" }])(
    "makes one job of %j, sent to both at once",
    async (body) => {
      for (let round = 0; round < 10; round++) {
        const key = `round-${round}`
        const [first, second, third] = await Promise.all(
          [replica(), replica(), replica()].map((one) => one.submit(body, key)),
        )
        expect(new Set([first?.metadata.uid, second?.metadata.uid, third?.metadata.uid]).size).toBe(1)
      }
      expect(await jobsOf(world)).toHaveLength(10)
    },
  )

  describe("over HTTP", () => {
    let replicas: Replica[]
    let callers: Caller[]
    beforeAll(async () => {
      replicas = await Promise.all([startReplica(), startReplica()])
      callers = replicas.map((one) => caller(() => one, world))
    })
    afterAll(() => Promise.all(replicas.map((one) => one.close())))

    it("makes one job of a request that two façades get at once, and gives both the same answer", async () => {
      for (let round = 0; round < 10; round++) {
        const headers = { "Idempotency-Key": `both-${round}` }
        const answers = await Promise.all(
          callers.map((call) => call("/1/jobs", { body: { image: "a" }, headers }).then(created)),
        )
        expect(answers[0]).toEqual(answers[1])
      }
      expect(await jobsOf(world)).toHaveLength(10)
    })

    it.each<[string, (name: string) => object]>([
      ["jobs", (name) => ({ name, image: "a" })],
      ["cronjobs", (name) => ({ name, cron_spec: "@daily", job_definition: { image: "a" } })],
      ["connections", (name) => ({ name, type: "aws", access_key_id: "AKIA0", secret_access_key: "s" })],
      ["keys", (name) => ({ name, role: "viewer" })],
    ])("makes one of the %s that it is used for under different names", async (collection, bodyOf) => {
      for (let round = 0; round < 10; round++) {
        const headers = { "Idempotency-Key": `names-${round}` }
        const answers = await Promise.all(
          callers.map((call, i) => call(`/1/${collection}`, { body: bodyOf(`round-${round}-${i}`), headers })),
        )
        const refused = collection === "keys" ? 409 : 422
        expect(answers.map(({ status }) => status).toSorted()).toEqual([201, refused])
      }
      await eventually(async () => {
        for (const call of callers) {
          const list = (await (await call(`/1/${collection}?limit=200`)).json()) as Record<string, { name: string }[]>
          expect(list[collection]?.filter(({ name }) => name.startsWith("round-"))).toHaveLength(10)
        }
      })
    })
  })

  describe("that crashed in its turn", () => {
    const logger = createLogger({ level: "silent", name: "test" })
    const job = { made: "by the other" }
    const never = () => new Promise<never>(() => undefined)
    const nothing = async () => undefined
    const key = `crashed-${randomBytes(4).toString("hex")}`
    /** A replica whose clock is ahead, so that waiting is over soon. */
    const turnsAt = (seconds: number): SharedTurns => {
      let looks = 0
      const monotonic = (): number => systemClock.monotonic() + looks++
      const now = (): Date => new Date(Date.now() + seconds * 1000)
      return new SharedTurns({ client: facade, clock: { ...systemClock, monotonic, now }, logger })
    }

    let facade: KubeClient
    beforeAll(async () => {
      facade = await clientOf("berth-facade")
      const begun = Promise.withResolvers<void>()
      const crash = (): Promise<never> => {
        begun.resolve()
        return never()
      }
      void turnsAt(0).take(key, crash, nothing)
      await begun.promise
    })
    afterAll(() => facade.close())

    it("leaves what it had made to whoever asks again", async () => {
      expect(await turnsAt(0).take<object>(key, never, async () => job)).toBe(job)
    })

    it("keeps others waiting, as nobody can tell whether it has crashed", async () => {
      await expect(turnsAt(60).take(key, never, nothing)).rejects.toMatchObject({ status: 503 })
    })

    it("is passed by when no request takes so long", async () => {
      expect(await turnsAt(180).take(key, async () => job, nothing)).toBe(job)
      expect(await turnsAt(0).take(key, async () => job, nothing)).toBe(job)
    })
  })

  it("refuses another body, and passes by a name that somebody else has", async () => {
    const first = await replica().submit({ image: "a" }, "key")
    await expect(replica().submit({ image: "b" }, "key")).rejects.toMatchObject({ status: 422 })
    await world.client.delete(JOBS, first.metadata)
    await applyJob(world, first.metadata.name)
    const second = await replica().submit({ image: "a" }, "key")
    const third = await replica().submit({ image: "a" }, "key")
    expect(second.metadata.name).not.toBe(first.metadata.name)
    expect(third.metadata.uid).toBe(second.metadata.uid)
  })
})
