import { expect, test } from "vitest"
import { isOver, type StoredLaunch } from "../../src/core/apis/launch.ts"
import type { Offer } from "../../src/core/apis/offer.ts"
import { Reflector } from "../../src/core/kube/reflector.ts"
import { LAUNCHES } from "../../src/core/resources.ts"
import { OFFERS } from "../harness/builders.ts"
import { controllerHarnesses } from "../harness/controllers.ts"
import { eventually } from "../harness/eventually.ts"
import { silentLogger } from "../harness/silent-logger.ts"
import { randomFrom } from "../random.ts"

const newHarness = controllerHarnesses()

const JOBS = 120
const CAP_USD = 24
/** Dollars an hour of a machine, and vCPUs. */
const SIZES = [1, 2, 4]
const WINDOW_SECONDS = 600
const GOAL = 0.95

test(`a cap lets at least ${GOAL * 100} % of the possible runs take place, although the operator never looks by itself`, async () => {
  const harness = await newHarness()
  const { client, namespace } = harness
  const random = randomFrom(7)
  const jobs = new Map<string, { usd: number; runSeconds: number }>(
    Array.from({ length: JOBS }, (_, index) => {
      const usd = SIZES[Math.floor(random() * SIZES.length)] ?? 1
      return [`job-${index}`, { usd, runSeconds: 60 + Math.floor(random() * 120) }] as const
    }),
  )
  const launches = new Reflector<StoredLaunch>({ client, resource: LAUNCHES, namespace, logger: silentLogger })
  const ending = new AbortController()
  const watching = launches.run(ending.signal)
  const live = () => launches.store.list().filter((launch) => !isOver(launch))
  const sizeOf = ({ spec }: StoredLaunch) => jobs.get(spec.job.name)?.usd ?? 0
  const usedUsd = () => live().reduce((sum, launch) => sum + sizeOf(launch), 0)
  /** True if no job that has no VM yet would fit under what is left. */
  const isFull = () => {
    const begun = new Set(launches.store.list().map(({ spec }) => spec.job.name))
    const left = CAP_USD - usedUsd()
    return [...jobs].every(([name, { usd }]) => begun.has(name) || usd > left)
  }
  /** Starts the containers of all VMs. */
  const startAll = () =>
    eventually(async () => {
      await harness.agentsStep("run")
      expect(live().every(({ status }) => status?.agent?.startTime !== undefined)).toBe(true)
    })

  for (const [name, { usd }] of jobs) await harness.submit(name, { resources: { cpu: usd } })
  const offers = SIZES.map((usd) => ({
    ...(OFFERS[0] as Offer),
    ...{ cpu: usd, hourlyPriceUsd: usd, instanceType: `machine-${usd}` },
  }))
  harness.operator({
    caps: { maxHourlyUsd: CAP_USD },
    market: { offers, account: { cloud: "sim", region: "here" } },
    // Room is kept for none. The clock also runs while the test works.
    settings: { capRetrySeconds: 86_400, passSeconds: 86_400 },
  })

  let now = 0
  let used = 0
  let ended = 0
  const gaps: number[] = []
  const endsAt = new Map<string, number>()
  try {
    for (let endedAt = performance.now(); now < WINDOW_SECONDS; endedAt = performance.now()) {
      await launches.store.waitUntil(isFull, AbortSignal.timeout(60_000))
      gaps.push(performance.now() - endedAt)
      expect(usedUsd()).toBeLessThanOrEqual(CAP_USD)
      await startAll()
      for (const { metadata, spec } of live()) {
        if (!endsAt.has(metadata.name)) endsAt.set(metadata.name, now + (jobs.get(spec.job.name)?.runSeconds ?? 0))
      }
      const next = live().toSorted((a, b) => (endsAt.get(a.metadata.name) ?? 0) - (endsAt.get(b.metadata.name) ?? 0))[0]
      const name = next?.metadata.name ?? ""
      const until = Math.min(WINDOW_SECONDS, endsAt.get(name) ?? WINDOW_SECONDS)
      used += usedUsd() * (until - now)
      harness.clock.advance(until - now)
      now = until
      if (now === WINDOW_SECONDS) break
      await harness.finish(name, "Succeeded")
      ended++
      await launches.store.waitUntil(
        () => !live().some(({ metadata }) => metadata.name === name),
        AbortSignal.timeout(60_000),
      )
    }
  } finally {
    ending.abort()
    await watching
  }

  // Runs can't take more of the cap than there is: dollars an hour times seconds.
  const meanUsdSeconds = [...jobs.values()].reduce((sum, { usd, runSeconds }) => sum + usd * runSeconds, 0) / JOBS
  const possible = (CAP_USD * WINDOW_SECONDS) / meanUsdSeconds
  const took = used / meanUsdSeconds
  const median = gaps.slice(1).sort((a, b) => a - b)[Math.floor((gaps.length - 1) / 2)] ?? 0
  console.info(
    `${took.toFixed(1)} of ${possible.toFixed(1)} possible runs in ${WINDOW_SECONDS} s under $${CAP_USD} an hour (${((100 * took) / possible).toFixed(1)} %), ` +
      `${ended} of them ended; the median time from a VM's end until the cap was used again: ${median.toFixed(0)} ms`,
  )
  expect(took / possible).toBeGreaterThan(GOAL)
}, 1_800_000)
