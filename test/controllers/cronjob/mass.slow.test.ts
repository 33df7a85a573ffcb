import { expect, it } from "vitest"
import { CRON_JOBS } from "../../../src/core/resources.ts"
import { eventually } from "../../harness/eventually.ts"
import { cronHarnesses } from "./harness.ts"

const newHarness = cronHarnesses()

/** `npm run bench -- cron` uses 10,000 CronJobs. */
const COUNT = 200

const nameOf = (n: number): string => `c${String(n).padStart(4, "0")}`

async function inTens(act: (n: number) => Promise<unknown>): Promise<void> {
  for (let n = 0; n < COUNT; n += 10) await Promise.all(Array.from({ length: 10 }, (_, more) => act(n + more)))
}

it(`the operator creates one Job for each of ${COUNT} CronJobs at the same minute, and none for paused ones`, async () => {
  const harness = await newHarness()
  await inTens((n) => harness.create(nameOf(n), { active: n % 3 !== 0 }))
  harness.operator()
  const statuses = async () => {
    const { items } = await harness.client.list(CRON_JOBS, { namespace: harness.namespace })
    return new Map(items.map(({ metadata, status }) => [metadata.name, status]))
  }
  const isPaused = (name: string): boolean => Number(name.slice(1)) % 3 === 0
  const allAt = (next: string) =>
    eventually(async () => {
      for (const [name, status] of await statuses()) {
        expect([name, status?.observedGeneration, status?.nextTriggerTime]).toEqual([
          name,
          1,
          isPaused(name) ? undefined : next,
        ])
      }
    }, 120)
  await allAt("2026-05-01T12:01:00Z")
  const names = [...(await statuses()).keys()].filter((name) => !isPaused(name))
  harness.clock.goTo("2026-05-01T12:01:00Z")
  await allAt("2026-05-01T12:02:00Z")
  harness.clock.goTo("2026-05-01T12:02:00Z")
  await allAt("2026-05-01T12:03:00Z")
  expect(await harness.jobNames()).toEqual(
    names.flatMap((name) => [`${name}-20260501t120100z`, `${name}-20260501t120200z`]),
  )
}, 300_000)
