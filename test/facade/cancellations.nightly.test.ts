import { afterAll, beforeAll, expect, it } from "vitest"
import type { JobCancellations } from "../../src/api/resources/jobs/cancellations.ts"
import { inParallel } from "../../src/core/apis/in-parallel.ts"
import { JOBS } from "../../src/core/resources.ts"
import { caller } from "../harness/caller.ts"
import { eventually } from "../harness/eventually.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { applyJob, projectFixture } from "../harness/facade-project.ts"

const JOB_COUNT = 10_000
/** Largest number of requests: each takes at most 25 s. */
const MOST_REQUESTS = 8

const fixture = projectFixture("facade-many-cancellations")
let replica: Replica
const call = caller(() => replica, fixture)

beforeAll(async () => {
  replica = await startReplica()
  const create = (_: unknown, index: number) => () => applyJob(fixture, `many-${index}`, { labels: { sweep: "lr" } })
  await inParallel(Array.from({ length: JOB_COUNT }, create), 32, (task) => task())
  await eventually(() => expect(own()).toHaveLength(JOB_COUNT), 120)
}, 600_000)
afterAll(() => replica.close())

const own = () => replica.jobs.store.list().filter(({ metadata }) => metadata.namespace === fixture.namespace)

async function cancel(signal?: AbortSignal): Promise<JobCancellations> {
  const response = await call("/1/jobs/cancellations", {
    body: { labels: { sweep: "lr" } },
    key: fixture.keys.developer,
    ...(signal && { signal }),
  })
  expect(response.status).toBe(200)
  return (await response.json()) as JobCancellations
}

const cancelled = () => own().filter(({ spec }) => spec.cancelled).length

it("a bulk cancellation stops when the client disconnects, and a repetition cancels all 10,000 jobs", {
  timeout: 300_000,
}, async () => {
  const disconnect = new AbortController()
  const first = cancel(disconnect.signal).catch(() => undefined)
  await eventually(() => expect(cancelled()).toBeGreaterThan(100), 60)
  disconnect.abort()
  await first
  const started = performance.now()
  let total = 0
  for (let request = 0; request < MOST_REQUESTS; request++) {
    const result = await cancel()
    expect(result).toMatchObject({ dry_run: false, failed: [] })
    total += result.cancelled
    if (result.remaining === 0) break
  }
  console.info(`${total} jobs were cancelled in ${((performance.now() - started) / 1000).toFixed(1)} s`)
  expect(total).toBeLessThan(JOB_COUNT)
  expect(await cancel()).toMatchObject({ matched: 0, cancelled: 0, remaining: 0 })
  const stored = await fixture.client.list(JOBS, { namespace: fixture.namespace })
  expect(stored.items.filter(({ spec }) => spec.cancelled)).toHaveLength(JOB_COUNT)
})
