import { DEFAULT_IDLE_PERCENT, DEFAULT_IDLE_SECONDS, type IdleLimit } from "../../core/apis/usage.ts"
import type { Sample } from "./sample.ts"

/** Percentages above which a VM is in use. Absent: that part doesn't count. */
interface Thresholds {
  gpu?: number
  cpu?: number
  /** Number of vCPUs above which a VM is in use, whatever part of them that is. */
  cpus?: number
}

/** By default a container that keeps more than half a vCPU busy is in use: one busy thread is 3 % of 32 vCPUs. */
const DEFAULT_IDLE_CPUS = 0.5

function thresholdsOf({ gpuPercent, cpuPercent }: IdleLimit, gpus: number): Thresholds {
  if (gpus === 0)
    return cpuPercent === undefined ? { cpu: DEFAULT_IDLE_PERCENT, cpus: DEFAULT_IDLE_CPUS } : { cpu: cpuPercent }
  return { gpu: gpuPercent ?? DEFAULT_IDLE_PERCENT, ...(cpuPercent !== undefined && { cpu: cpuPercent }) }
}

/**
 * Decides from samples whether a container has used nothing for too long. Whatever is unknown counts as use: a run must
 * not end because its VM could not be measured.
 */
export class IdleGuard {
  readonly #seconds: number
  readonly #thresholds: Thresholds
  /** Monotonic time since which nothing was used, seconds. */
  #idleSince: number

  /** @param start monotonic time of the attempt's start, seconds */
  constructor(limit: IdleLimit, gpus: number, start: number) {
    this.#seconds = limit.seconds ?? DEFAULT_IDLE_SECONDS
    this.#thresholds = thresholdsOf(limit, gpus)
    this.#idleSince = start
  }

  /**
   * Returns true if the container has now been idle for the whole limit.
   * @param sample absent if the container could not be measured
   * @param now monotonic time of the sample's end, seconds
   */
  isIdle(sample: Sample | undefined, now: number): boolean {
    if (sample === undefined || this.#isUse(sample)) this.#idleSince = now
    return now - this.#idleSince >= this.#seconds
  }

  #isUse({ cpu, cpus, gpu }: Sample): boolean {
    const { gpu: gpuPercent, cpu: cpuPercent, cpus: most = Number.POSITIVE_INFINITY } = this.#thresholds
    if (cpu > most) return true
    if (gpuPercent !== undefined && !(gpu?.highest !== undefined && gpu.highest <= gpuPercent)) return true
    return cpuPercent !== undefined && (cpu / cpus) * 100 > cpuPercent
  }
}

/** Returns what an idle container did, such as "no GPU above 5 % for 30 min". */
export function idleText(limit: IdleLimit, gpus: number): string {
  const { gpu, cpu } = thresholdsOf(limit, gpus)
  const said = [
    ...(gpu === undefined ? [] : [`no GPU above ${gpu} %`]),
    ...(cpu === undefined ? [] : [`CPU at most ${cpu} %`]),
  ].join(" and ")
  const seconds = limit.seconds ?? DEFAULT_IDLE_SECONDS
  return `${said} for ${seconds % 60 === 0 ? `${seconds / 60} min` : `${seconds} s`}`
}
