import { randomBytes } from "node:crypto"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { CACHE_OPTIONS } from "../../src/api/caches.ts"
import { KeyedMutex, LeaseMutex, type LeaseMutexOptions, requireHeld } from "../../src/api/idempotency.ts"
import { Jobs, Submitter } from "../../src/api/resources/jobs/jobs.ts"
import { type Clock, systemClock } from "../../src/core/apis/clock.ts"
import { CreationTimes } from "../../src/core/apis/creation-times.ts"
import type { StoredJob } from "../../src/core/apis/job.ts"
import type { CallerClient } from "../../src/core/identity/principal.ts"
import type { KubeClient } from "../../src/core/kube/client.ts"
import { IndexedStore } from "../../src/core/kube/store.ts"
import { JOBS } from "../../src/core/resources.ts"
import { type Caller, caller, created } from "../harness/caller.ts"
import { eventually } from "../harness/eventually.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { applyJob, jobsOf, projectFixture, removeJob, setStatus } from "../harness/facade-project.ts"
import { clientOf } from "../harness/machine-users.ts"
import { silentLogger } from "../harness/silent-logger.ts"
import { plainClient } from "./plain-client.ts"

/** Races that are rare in real traffic. Each test stops the code at the critical moment. */
const fixture = projectFixture("facade-races")

beforeEach(async () => {
  for (const { metadata } of await jobsOf(fixture)) await removeJob(fixture, metadata)
})

function cacheOf(jobs: StoredJob[]): IndexedStore<StoredJob> {
  const store = new IndexedStore(CACHE_OPTIONS.jobs.indexes)
  for (const job of jobs) store.put(job)
  return store
}

/** Returns the real client. It awaits `happens` after each read of a job. */
function afterEachRead(happens: (read: number) => Promise<unknown>): CallerClient {
  const { client } = fixture
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

describe("a cancel of a job", () => {
  it("does not cancel a job that ended between the read and the patch", async () => {
    const job = await applyJob(fixture, "ends")
    const ends = afterEachRead(() => setStatus(fixture, "ends", { phase: "succeeded" }))
    const jobs = new Jobs(ends, cacheOf([job]), fixture.namespace)
    await expect(jobs.cancel("ends")).rejects.toMatchObject({ status: 409 })
    expect((await jobsOf(fixture))[0]?.spec.cancelled ?? false).toBe(false)
  })

  it("cancels a job that changed but did not end, and returns 503 if it changes again and again", async () => {
    const job = await applyJob(fixture, "restless")
    const change = (read: number) => setStatus(fixture, "restless", { phase: "running", message: `change ${read}` })
    const often = new Jobs(afterEachRead(change), cacheOf([job]), fixture.namespace)
    await expect(often.cancel("restless")).rejects.toMatchObject({ status: 503 })
    const twice = afterEachRead(async (read) => void (read < 3 && (await change(read))))
    expect((await new Jobs(twice, cacheOf([job]), fixture.namespace).cancel("restless")).spec.cancelled).toBe(true)
  })

  it("does not cancel another job that has the name now", async () => {
    const job = await applyJob(fixture, "reused")
    const reuse = async (): Promise<void> => {
      await fixture.client.delete(JOBS, job.metadata)
      await applyJob(fixture, "reused")
    }
    const reused = afterEachRead(async (read) => void (read === 1 && (await reuse())))
    const jobs = new Jobs(reused, cacheOf([job]), fixture.namespace)
    await expect(jobs.cancel("reused")).rejects.toMatchObject({ status: 404 })
    await expect(jobs.cancel(job.metadata.uid)).rejects.toMatchObject({ status: 404 })
    expect((await jobsOf(fixture))[0]?.spec.cancelled ?? false).toBe(false)
  })

  it("cancels the job that has the name now, whatever the cache shows", async () => {
    const job = await applyJob(fixture, "again")
    await fixture.client.delete(JOBS, job.metadata)
    const { metadata } = await applyJob(fixture, "again")
    const cancelled = await new Jobs(fixture.client, cacheOf([job]), fixture.namespace).cancel("again")
    expect([cancelled.metadata.uid, cancelled.spec.cancelled]).toEqual([metadata.uid, true])
  })

  it("waits until the cache shows the cancelled job, so that the next list has it", async () => {
    const job = await applyJob(fixture, "echoed")
    const store = cacheOf([job])
    let shown = false
    const show = (cancelled: StoredJob): void => {
      shown = true
      store.put(cancelled)
      store.advance(cancelled.metadata.resourceVersion)
    }
    const patch: CallerClient["patch"] = async (resource, ref, change, options) => {
      const cancelled = await fixture.client.patch(resource, ref, change, options)
      // In the next turn, when the caller waits for the cache already.
      setImmediate(() => show(cancelled as unknown as StoredJob))
      return cancelled
    }
    await new Jobs({ ...plainClient(fixture.client), patch }, store, fixture.namespace).cancel("echoed")
    expect(shown).toBe(true)
    expect((await jobsOf(fixture))[0]?.spec.cancelled).toBe(true)
  })

  it("cancels a job although the watch is broken", async () => {
    const job = await applyJob(fixture, "deaf")
    const jobs = new Jobs(fixture.client, cacheOf([job]), fixture.namespace)
    expect((await jobs.cancel("deaf")).spec.cancelled).toBe(true)
  })
})

describe("one Idempotency-Key on two concurrent replicas", () => {
  /** Returns a replica whose cache shows no jobs. */
  function replica(): Submitter {
    const store = cacheOf([])
    store.advance(String(Number.MAX_SAFE_INTEGER))
    const jobs = new Jobs(fixture.client, store, fixture.namespace)
    const creationTimes = new CreationTimes(systemClock)
    return new Submitter({
      client: fixture.client,
      jobs,
      namespace: fixture.namespace,
      creationTimes,
      installation: () => undefined,
      creations: new KeyedMutex(),
    })
  }

  it("leaves a job to the operator's adoption if the replica's clock is wrong", async () => {
    const anHourAgo = { ...systemClock, now: () => new Date(Date.now() - 3_600_000) }
    const submitted = async (clock: Clock) => {
      const { client, namespace } = fixture
      const jobs = new Jobs(client, cacheOf([]), namespace)
      const creationTimes = new CreationTimes(clock)
      const own = { client, jobs, namespace, creationTimes, creations: new KeyedMutex(), installation: () => "i" }
      return (await new Submitter(own).submit({ image: "a" })).metadata
    }
    expect((await submitted(systemClock)).annotations?.["berth.dev/submission"]).toMatch(/^i\//)
    const { annotations, finalizers } = await submitted(anHourAgo)
    expect(Object.keys(annotations ?? {})).toEqual(["berth.dev/created-at"])
    expect(finalizers).toEqual(["berth.dev/job"])
  })

  it.each([{ image: "a" }, { image: "a", namePrefix: "p" }, { image: "a", name: "n" }])(
    "creates one job from %j on two replicas in a row",
    async (body) => {
      const first = await replica().submit(body, "key")
      const second = await replica().submit(body, "key")
      expect(second.metadata.uid).toBe(first.metadata.uid)
      expect(await jobsOf(fixture)).toHaveLength(1)
    },
  )

  it.each([{ image: "a" }, { image: "a", namePrefix: "p" }])(
    "creates one job from %j on three replicas at once",
    async (body) => {
      for (let round = 0; round < 10; round++) {
        const key = `round-${round}`
        const [first, second, third] = await Promise.all(
          [replica(), replica(), replica()].map((one) => one.submit(body, key)),
        )
        expect(new Set([first?.metadata.uid, second?.metadata.uid, third?.metadata.uid]).size).toBe(1)
      }
      expect(await jobsOf(fixture)).toHaveLength(10)
    },
  )

  describe("one Idempotency-Key over HTTP", () => {
    let replicas: Replica[]
    let callers: Caller[]
    beforeAll(async () => {
      replicas = await Promise.all([startReplica(), startReplica()])
      callers = replicas.map((one) => caller(() => one, fixture))
    })
    afterAll(() => Promise.all(replicas.map((one) => one.close())))

    it("creates one job for a request to two façades at once, and both return the same response", async () => {
      for (let round = 0; round < 10; round++) {
        const headers = { "Idempotency-Key": `both-${round}` }
        const answers = await Promise.all(
          callers.map((call) => call("/1/jobs", { body: { image: "a" }, headers }).then(created)),
        )
        expect(answers[0]).toEqual(answers[1])
      }
      expect(await jobsOf(fixture)).toHaveLength(10)
    })

    it.each<[string, (name: string) => object]>([
      ["jobs", (name) => ({ name, image: "a" })],
      ["cronjobs", (name) => ({ name, cron_spec: "@daily", job_definition: { image: "a" } })],
      ["connections", (name) => ({ name, type: "aws", access_key_id: "AKIA0", secret_access_key: "s" })],
      ["keys", (name) => ({ name, role: "viewer" })],
    ])(
      "creates one of the %s for concurrent requests with different names and one Idempotency-Key",
      async (collection, bodyOf) => {
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
      },
    )
  })

  describe("the turn of a replica that is slow, frozen or dead", () => {
    const job = { made: "by the other" }
    const nothing = async () => undefined
    const LEASE_SECONDS = 1
    let facade: KubeClient
    beforeAll(async () => {
      facade = await clientOf("berth-facade")
    })
    afterAll(() => facade.close())

    function mutex(client: LeaseMutexOptions["client"] = facade): LeaseMutex {
      return new LeaseMutex({ client, clock: systemClock, logger: silentLogger, leaseSeconds: LEASE_SECONDS })
    }
    /** Returns a mutex that never renews its Leases, like that of a process that hangs. */
    function frozen(): LeaseMutex {
      return mutex({ ...plainClient(facade), patch: () => Promise.reject(new Error("frozen")) })
    }
    const newKey = (): string => `crashed-${randomBytes(4).toString("hex")}`

    /** Begins a turn that ends when the test says so. Resolves when the turn has begun. */
    async function begun(of: LeaseMutex, key: string) {
      const { promise: end, resolve } = Promise.withResolvers<object>()
      const started = Promise.withResolvers<() => boolean>()
      const turn = of.runExclusive(
        key,
        (isHeld) => {
          started.resolve(isHeld)
          return end
        },
        nothing,
      )
      turn.catch(started.reject)
      const finish = (): Promise<object> => {
        resolve(job)
        return turn
      }
      return { isHeld: await started.promise, end: finish }
    }

    it("returns the object that a dead replica has created", async () => {
      const key = newKey()
      const { end } = await begun(frozen(), key)
      const never = () => new Promise<never>(() => undefined)
      expect(await mutex().runExclusive<object>(key, never, async () => job)).toBe(job)
      await end()
    })

    it("makes others wait for longer than a lease while a slow replica renews it", async () => {
      const key = newKey()
      const { isHeld, end } = await begun(mutex(), key)
      for (let round = 0; round < 2; round++) {
        await expect(mutex().runExclusive(key, async () => job, nothing)).rejects.toMatchObject({ status: 503 })
      }
      expect(isHeld()).toBe(true)
      await end()
      expect(await mutex().runExclusive(key, async () => job, nothing)).toBe(job)
    })

    it("passes from a dead replica to a waiting request, within that request", async () => {
      const key = newKey()
      const { isHeld, end } = await begun(frozen(), key)
      expect(await mutex().runExclusive(key, async () => job, nothing)).toBe(job)
      expect(isHeld()).toBe(false)
      expect(() => requireHeld(isHeld)).toThrow(expect.objectContaining({ status: 503 }))
      await end()
    })

    it("does not end the turn of the replica that has taken over", async () => {
      const key = newKey()
      const dead = await begun(frozen(), key)
      const next = await begun(mutex(), key)
      await dead.end()
      await expect(mutex().runExclusive(key, async () => job, nothing)).rejects.toMatchObject({ status: 503 })
      expect(next.isHeld()).toBe(true)
      await next.end()
    })
  })

  it("returns 422 for another body with the same Idempotency-Key, and takes another name if its own is taken", async () => {
    const first = await replica().submit({ image: "a" }, "key")
    await expect(replica().submit({ image: "b" }, "key")).rejects.toMatchObject({ status: 422 })
    await removeJob(fixture, first.metadata)
    await applyJob(fixture, first.metadata.name)
    const second = await replica().submit({ image: "a" }, "key")
    const third = await replica().submit({ image: "a" }, "key")
    expect(second.metadata.name).not.toBe(first.metadata.name)
    expect(third.metadata.uid).toBe(second.metadata.uid)
  })
})
