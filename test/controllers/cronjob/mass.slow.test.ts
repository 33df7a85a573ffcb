import { expect, it } from "vitest"
import { CRON_JOBS } from "../../../src/controllers/cronjob/options.ts"
import { eventually } from "../../cloud/eventually.ts"
import { cronStages } from "./stage.ts"

const newStage = cronStages()

/** `npm run bench -- cron` does it with 10,000. */
const COUNT = 200

const nameOf = (n: number): string => `c${String(n).padStart(4, "0")}`

async function inTens(act: (n: number) => Promise<unknown>): Promise<void> {
  for (let n = 0; n < COUNT; n += 10) await Promise.all(Array.from({ length: 10 }, (_, more) => act(n + more)))
}

it(`${COUNT} CronJobs that fire in the same minute: each has its Job, none has two, and paused ones do nothing`, async () => {
  const stage = await newStage()
  await inTens((n) => stage.create(nameOf(n), { active: n % 3 !== 0 }))
  stage.operator()
  const statuses = async () => {
    const { items } = await stage.client.list(CRON_JOBS, { namespace: stage.namespace })
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
  stage.clock.goTo("2026-05-01T12:01:00Z")
  await allAt("2026-05-01T12:02:00Z")
  stage.clock.goTo("2026-05-01T12:02:00Z")
  await allAt("2026-05-01T12:03:00Z")
  expect(await stage.jobNames()).toEqual(
    names.flatMap((name) => [`${name}-20260501t120100z`, `${name}-20260501t120200z`]),
  )
}, 300_000)
