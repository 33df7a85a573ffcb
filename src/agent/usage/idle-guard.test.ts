import { describe, expect, it } from "vitest"
import type { IdleLimit } from "../../core/apis/usage.ts"
import { IdleGuard, idleText } from "./idle-guard.ts"
import type { Sample } from "./sample.ts"

const SAMPLE_SECONDS = 5

/** Use in a sample: percent of the vCPUs, four by default, and the highest reading of a GPU. Undefined: not measured. */
type Use = { cpu?: number; cpus?: number; gpu?: number } | undefined

function sample({ cpu = 0, cpus = 4, gpu }: NonNullable<Use>): Sample {
  return {
    ...{ seconds: SAMPLE_SECONDS, cpu: (cpu / 100) * cpus, cpus, memoryMib: 100 },
    ...(gpu !== undefined && { gpu: { mean: gpu / 2, highest: gpu } }),
  }
}

/** Returns the second at which a run ends that uses this at each second; undefined if it doesn't end in two hours. */
function endOf(limit: IdleLimit, gpus: number, useAt: (second: number) => Use): number | undefined {
  const guard = new IdleGuard(limit, gpus, 1000)
  for (let second = SAMPLE_SECONDS; second <= 7200; second += SAMPLE_SECONDS) {
    const use = useAt(second)
    if (guard.isIdle(use === undefined ? undefined : sample(use), 1000 + second)) return second
  }
  return undefined
}

const SHORT = { seconds: 300 }

describe("the idle guard", () => {
  it.each<[string, IdleLimit, number, (second: number) => Use, number | undefined]>([
    ["ends a VM without GPUs that does nothing", SHORT, 0, () => ({ cpu: 0 }), 300],
    ["ends after half an hour by default", {}, 0, () => ({ cpu: 0 }), 1800],
    ["ends at the percentage itself", SHORT, 0, () => ({ cpu: 5 }), 300],
    ["keeps what is above it", SHORT, 0, () => ({ cpu: 5.1 }), undefined],
    ["takes the job's own percentage", { ...SHORT, cpuPercent: 10 }, 0, () => ({ cpu: 9 }), 300],
    ["begins again after each use", SHORT, 0, (second) => ({ cpu: second === 295 ? 50 : 0 }), 595],
    ["keeps what works 30 s of each minute", SHORT, 0, (second) => ({ cpu: second % 60 < 30 ? 100 : 0 }), undefined],
    ["keeps one burst that a sample shows within the time", SHORT, 0, (s) => ({ cpu: s % 300 ? 0 : 6 }), undefined],
    ["keeps one busy thread of 64", SHORT, 0, () => ({ cpu: 1.5, cpus: 64 }), undefined],
    ["ends less than half a vCPU of 64", SHORT, 0, () => ({ cpu: 0.7, cpus: 64 }), 300],
    ["takes the job's own percentage of 64", { ...SHORT, cpuPercent: 5 }, 0, () => ({ cpu: 1.5, cpus: 64 }), 300],
    ["counts no CPU on a VM with GPUs", SHORT, 1, () => ({ cpu: 100, gpu: 0 }), 300],
    ["counts it if the job says so", { ...SHORT, cpuPercent: 5 }, 1, () => ({ cpu: 100, gpu: 0 }), undefined],
    ["ends if all that counts is unused", { ...SHORT, cpuPercent: 5 }, 1, () => ({ cpu: 1, gpu: 1 }), 300],
    ["keeps a used GPU", SHORT, 1, () => ({ gpu: 6 }), undefined],
    ["takes the highest reading, not the mean", { ...SHORT, gpuPercent: 50 }, 8, () => ({ gpu: 51 }), undefined],
    ["takes no GPU's percentage on a VM without", { ...SHORT, gpuPercent: 0 }, 0, () => ({ cpu: 1 }), 300],
    ["keeps unknown GPUs", SHORT, 1, () => ({ cpu: 0 }), undefined],
    ["begins again after an unknown GPU", SHORT, 1, (second) => (second === 200 ? {} : { gpu: 0 }), 500],
    ["begins again after a missing sample", SHORT, 0, (second) => (second === 200 ? undefined : {}), 500],
    ["keeps what can't be measured", SHORT, 0, () => undefined, undefined],
  ])("%s", (_title, limit, gpus, useAt, end) => {
    expect(endOf(limit, gpus, useAt)).toBe(end)
  })

  it("says what was unused", () => {
    expect(idleText({}, 2)).toBe("no GPU above 5 % for 30 min")
    expect(idleText({ seconds: 3600, cpuPercent: 2.5 }, 0)).toBe("CPU at most 2.5 % for 60 min")
    expect(idleText({ seconds: 310, cpuPercent: 1, gpuPercent: 2 }, 1)).toBe(
      "no GPU above 2 % and CPU at most 1 % for 310 s",
    )
  })
})
