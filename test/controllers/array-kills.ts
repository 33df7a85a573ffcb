import { expect } from "vitest"
import { isTerminal, type StoredJob } from "../../src/core/apis/job.ts"
import type { JobArraySpec, StoredJobArray } from "../../src/core/apis/jobarray.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import { LABELS } from "../../src/core/apis/meta.ts"
import { roundUsd } from "../../src/core/apis/money.ts"
import { Reflector } from "../../src/core/kube/reflector.ts"
import { JOB_ARRAYS, JOBS, LAUNCHES } from "../../src/core/resources.ts"
import type { ControllerHarness, Operator, Work } from "../harness/controllers.ts"
import { silentLogger } from "../harness/silent-logger.ts"
import { Mortal } from "./mortal.ts"

/** Jobs and Launches of an array, as watches saw them. */
export class Seen {
  /** Uids of the jobs of each index. */
  readonly byIndex = new Map<number, Set<string>>()
  /** Final cost of each job by uid, USD. */
  readonly costs = new Map<string, number>()
  mostUnfinished = 0
  mostJobs = 0
  mostLaunches = 0
  readonly #unfinished = new Set<string>()

  constructor(jobs: Reflector<StoredJob>, launches: Reflector<StoredLaunch>) {
    launches.onChange(() => {
      this.mostLaunches = Math.max(this.mostLaunches, launches.store.size)
    })
    jobs.onChange(({ old, current }) => {
      const { uid = "", labels } = (current ?? old)?.metadata ?? {}
      const index = Number(labels?.[LABELS.arrayIndex])
      this.byIndex.set(index, (this.byIndex.get(index) ?? new Set()).add(uid))
      const usd = current?.status?.cost?.actualUsd
      if (usd !== undefined) this.costs.set(uid, usd)
      if (current === undefined || isTerminal(current.status?.phase)) this.#unfinished.delete(uid)
      else this.#unfinished.add(uid)
      this.mostUnfinished = Math.max(this.mostUnfinished, this.#unfinished.size)
      this.mostJobs = Math.max(this.mostJobs, jobs.store.size)
    })
  }
}

export interface ArrayRun {
  spec: Partial<JobArraySpec>
  /** Number of times that the operator dies. */
  kills: number
  work?: Work
  /** Seconds between two lists of the VMs. */
  observeSeconds: number
}

/**
 * Runs an array to its end. The operator dies when another part of the indexes has ended, and another one takes over.
 * Returns the array at its end, and what a watch saw meanwhile.
 */
export async function runWithKills(
  harness: ControllerHarness,
  { spec, kills, work, observeSeconds }: ArrayRun,
): Promise<{ array: StoredJobArray; seen: Seen }> {
  const { client, namespace } = harness
  const ending = new AbortController()
  const jobs = new Reflector<StoredJob>({ client, resource: JOBS, namespace, logger: silentLogger })
  const arrays = new Reflector<StoredJobArray>({ client, resource: JOB_ARRAYS, namespace, logger: silentLogger })
  const launches = new Reflector<StoredLaunch>({ client, resource: LAUNCHES, namespace, logger: silentLogger })
  const seen = new Seen(jobs, launches)
  const watches = [jobs, arrays, launches].map((watch) => watch.run(ending.signal))
  const loops = [...watches, harness.agents(ending.signal, work)]
  const start = (): { mortal: Mortal; operator: Operator } => {
    const mortal = new Mortal(harness)
    const settings = { launchesPerMinute: 1_000_000 }
    return { mortal, operator: harness.operator({ clients: mortal, observeSeconds, settings }) }
  }
  let { mortal, operator } = start()
  const { metadata } = await harness.submitArray("sweep", spec)
  const endedCount = (): number => {
    const { succeeded = 0, failed = 0 } = arrays.store.getByUid(metadata.uid)?.status?.counts ?? {}
    return succeeded + failed
  }
  const size = spec.size ?? 0
  const never = new AbortController().signal
  try {
    for (let kill = 1; kill <= kills; kill++) {
      await arrays.store.waitUntil(() => endedCount() >= (kill * size) / (kills + 1), never)
      mortal.kill()
      await operator.stop()
      ;({ mortal, operator } = start())
    }
    const hasEnded = () => arrays.store.getByUid(metadata.uid)?.status?.completionTime !== undefined
    await arrays.store.waitUntil(hasEnded, never)
    // The last jobs settle, and those beyond the history are deleted.
    await jobs.store.waitUntil(() => jobs.store.list().every(({ status }) => status?.settled === true), never)
  } finally {
    ending.abort()
    await Promise.all(loops)
    await operator.stop()
  }
  return { array: await harness.array("sweep"), seen }
}

/** Expects that each index had one job and one VM, that no more jobs ran than allowed, and that the costs add up. */
export function expectOnce(
  harness: ControllerHarness,
  { array: { spec, status }, seen }: { array: StoredJobArray; seen: Seen },
): void {
  const { size = 0, parallelism = 0 } = spec
  expect(seen.byIndex.size).toBe(size)
  expect([...seen.byIndex].filter(([, uids]) => uids.size !== 1)).toEqual([])
  const byJob = Map.groupBy(harness.cloud.vms, ({ vm }) => vm.launch.slice(0, vm.launch.lastIndexOf("-")))
  expect(byJob.size).toBe(size)
  expect([...byJob].filter(([, vms]) => vms.length !== 1)).toEqual([])
  expect(harness.cloud.alive).toEqual([])
  expect(harness.cloud.breaches).toEqual([])
  expect(seen.mostUnfinished).toBeLessThanOrEqual(parallelism)
  expect(seen.costs.size).toBe(size)
  const costs = [...seen.costs.values()].reduce((sum, usd) => sum + usd, 0)
  expect(status?.costUsd).toBeCloseTo(roundUsd(costs), 4)
  expect(status?.costUsd).toBeGreaterThan(0)
}
