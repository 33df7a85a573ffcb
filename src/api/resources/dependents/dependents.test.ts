import { expect, test } from "vitest"
import { jobOf } from "../../../../test/harness/builders.ts"
import { ManualClock } from "../../../../test/harness/manual-clock.ts"
import type { StoredJob } from "../../../core/apis/job.ts"
import type { StoredJobArray } from "../../../core/apis/jobarray.ts"
import { keyOf } from "../../../core/apis/meta.ts"
import { IndexedStore } from "../../../core/kube/store.ts"
import { CACHE_OPTIONS } from "../../caches.ts"
import type { Collection } from "../../collection.ts"
import { notFound, Problem, toProblem, unavailable } from "../../http/problem.ts"
import { orderedJob } from "../../order.ts"
import type { Jobs } from "../jobs/jobs.ts"
import { Dependents } from "./dependents.ts"

const PREPARE = jobOf({ metadata: { name: "prepare", uid: "u0" } })

/** Cancels what waits for `prepare`: 100 jobs, whose cancellation is `cancel`. Returns the rejection. */
async function cancelling(
  cancel: (job: StoredJob, clock: ManualClock) => void,
  allowed: { isClosed?: () => boolean; isStillAuthenticated?: () => Promise<boolean> } = {},
): Promise<{ problem: Problem | undefined; cancelled: number }> {
  const clock = new ManualClock()
  const { indexes, pages } = CACHE_OPTIONS.jobs
  const jobs = new IndexedStore<StoredJob>(indexes, { pages })
  const jobArrays = new IndexedStore<StoredJobArray>(CACHE_OPTIONS.jobArrays.indexes)
  const waiting = Array.from({ length: 100 }, (_, index) =>
    jobOf({ metadata: { name: `j${index}`, uid: `u-${index}` }, spec: { after: [{ job: "prepare" }] } }),
  )
  jobs.replace(new Map([PREPARE, ...waiting].map((job) => [keyOf(job), job])))
  let cancelled = 0
  const ofJobs = {
    caughtUp: async () => undefined,
    waitForCache: async (job: StoredJob) => job,
    cancelFound: async (job: StoredJob) => {
      cancel(job, clock)
      cancelled++
      return job
    },
  } as unknown as Jobs
  const arrays = { caughtUp: async () => undefined } as unknown as Collection<StoredJobArray>
  const dependents = new Dependents({ stores: { jobs, jobArrays }, jobs: ofJobs, arrays })
  const options = { clock, isClosed: () => false, isStillAuthenticated: async () => true, ...allowed }
  const problem = await dependents.cancel(orderedJob(PREPARE), options).then(() => undefined, toProblem)
  return { problem, cancelled }
}

test("a cancellation ends when its time is over, and says how many dependents are cancelled", async () => {
  const { problem, cancelled } = await cancelling((_, clock) => clock.advance(0.5))
  expect(problem).toMatchObject({
    status: 503,
    message: `${cancelled} of the 100 dependents of prepare were cancelled in 25 seconds, and prepare was not: try again.`,
  })
  expect(cancelled).toBeGreaterThan(40)
  expect(cancelled).toBeLessThan(100)
})

test("a cancellation ends when its key is revoked", async () => {
  const isStillAuthenticated = async () => false
  const { problem, cancelled } = await cancelling((_, clock) => clock.advance(0.5), { isStillAuthenticated })
  expect(problem?.status).toBe(401)
  expect(cancelled).toBeLessThan(100)
})

test("a cancellation ends when its client disconnects", async () => {
  expect((await cancelling(() => undefined, { isClosed: () => true })).cancelled).toBe(0)
})

test("a dependent that has just ended or was deleted is no error", async () => {
  const { problem, cancelled } = await cancelling(({ metadata: { name } }) => {
    if (name === "j3") throw notFound("deleted")
    if (name === "j7") throw new Problem({ type: "already-ended", status: 409, detail: "ended" })
  })
  expect([problem, cancelled]).toEqual([undefined, 98])
})

test("an API server that rejects a call ends it, with that problem", async () => {
  const { problem, cancelled } = await cancelling(({ metadata: { name } }) => {
    if (name === "j3") throw unavailable("etcd is full")
  })
  expect(problem?.message).toBe("etcd is full")
  expect(cancelled).toBeLessThan(100)
})
