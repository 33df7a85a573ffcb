import { createHash } from "node:crypto"
import { parseMicroseconds } from "../../../core/apis/creation-times.ts"
import { JOB_PHASES, type JobPhase, type StoredJob } from "../../../core/apis/job.ts"
import { sumOfParts } from "../../../core/apis/price.ts"
import type { Match, NumberColumn } from "../../../core/kube/page-index.ts"
import { recordStatus } from "../../../core/records/job.ts"
import type { MeasuredRun } from "../../../market/advice/needs.ts"
import { nameIn } from "../../sorting.ts"

/** Numbers that the pages' index keeps of each job, so that a list is sorted and summed up without reading the jobs. */
const COLUMNS = {
  /** Place in JOB_PHASES. */
  phase: (job) => JOB_PHASES.indexOf(recordStatus(job)),
  /** Times, microseconds from 1970. */
  start: ({ status }) => timeOf(status?.startTime),
  end: ({ status }) => timeOf(status?.completionTime),
  /** Cost of all VMs, or of those before the present one, USD. None: no VM was chosen. */
  cost: ({ status: { cost } = {} }) =>
    cost?.actualUsd ?? (cost?.hourly === undefined ? undefined : cost.spent === undefined ? 0 : sumOfParts(cost.spent)),
  /** Price of the present VM, USD per hour, and the time from which it is billed. */
  hourly: ({ status: { cost } = {} }) =>
    cost?.actualUsd !== undefined || cost?.hourly === undefined ? undefined : sumOfParts(cost.hourly),
  billedSince: ({ status }) => timeOf(status?.cost?.since),
  /** Largest use, and the vCPUs of the machine. None: it was not measured. */
  cpuPeak: ({ status }) => status?.usage?.cpuPeak,
  machineCpu: ({ status }) => (status?.usage === undefined ? undefined : status.placement?.offer.cpu),
  memoryPeakMib: ({ status }) => status?.usage?.memoryPeakMib,
  diskPeakGib: ({ status }) => status?.usage?.diskPeakGib,
  vramPeakMib: ({ status }) => status?.usage?.vramPeakMib,
  /** Digest of the image and the command, of a measured job. */
  program: ({ spec, status }) => (status?.usage === undefined ? undefined : programDigest(spec)),
} satisfies Record<string, NumberColumn<StoredJob>>

/**
 * Returns a whole number that jobs with the same image and command have in common. The arguments count for a job without
 * a command. The probability that any two of a thousand programs share one is 2 in a billion.
 */
function programDigest({ image, command, args }: StoredJob["spec"]): number {
  const text = JSON.stringify([image, command ?? null, command === undefined ? (args ?? []) : null])
  return createHash("sha256").update(text).digest().readUIntBE(0, 6)
}

const NAMES = Object.keys(COLUMNS) as (keyof typeof COLUMNS)[]

/** Columns of a job's numbers, for the index. */
export const JOB_NUMBERS: readonly NumberColumn<StoredJob>[] = NAMES.map((name) => COLUMNS[name])

/** Returns the column of a number. */
export function columnOf(name: keyof typeof COLUMNS): number {
  return NAMES.indexOf(name)
}

const [PHASE, START, END, COST, HOURLY, BILLED_SINCE] = (
  ["phase", "start", "end", "cost", "hourly", "billedSince"] as const
).map(columnOf) as [number, number, number, number, number, number]

function timeOf(time: string | undefined): number | undefined {
  return time === undefined ? undefined : parseMicroseconds(time)
}

const MICROSECONDS_AN_HOUR = 3_600_000_000

/** Returns the status of a job in the index. */
export function phaseIn({ number }: Match): JobPhase {
  return JOB_PHASES[number(PHASE)] ?? "queued"
}

/** Jobs that were measured, by a number that all of these have. */
export const MEASURED = { column: columnOf("cpuPeak"), from: 0 }

const [CPU_PEAK, MACHINE_CPU, MEMORY_PEAK, DISK_PEAK, VRAM_PEAK, PROGRAM] = (
  ["cpuPeak", "machineCpu", "memoryPeakMib", "diskPeakGib", "vramPeakMib", "program"] as const
).map(columnOf) as [number, number, number, number, number, number]

/** Returns the digest of a measured job's image and command. */
export function programIn({ number }: Match): number {
  return number(PROGRAM)
}

/** Returns what a succeeded job used that was measured. */
export function measuredRunIn({ number }: Match): MeasuredRun {
  const known = (column: number) => {
    const value = number(column)
    return Number.isNaN(value) ? undefined : value
  }
  return {
    endedAt: number(END) / 1000,
    seconds: (number(END) - number(START)) / 1e6,
    cpuPeak: number(CPU_PEAK),
    machineCpu: known(MACHINE_CPU),
    memoryPeakMib: number(MEMORY_PEAK),
    diskPeakGib: known(DISK_PEAK),
    vramPeakMib: known(VRAM_PEAK),
  }
}

/** Returns the time of a job's first start, microseconds from 1970; NaN: it has not started. */
export function startIn({ number }: Match): number {
  return number(START)
}

/** Returns the time at which a job ended, microseconds from 1970; NaN: it has not. */
export function endIn({ number }: Match): number {
  return number(END)
}

/**
 * Returns the cost of a job so far, USD; NaN before a VM was chosen. A live VM counts until now, which is a heartbeat more
 * than in the job's record. @param now microseconds from 1970
 */
export function costIn({ number }: Match, now: number): number {
  const billed = Math.max(0, now - number(BILLED_SINCE)) * number(HOURLY)
  return number(COST) + (Number.isNaN(billed) ? 0 : billed / MICROSECONDS_AN_HOUR)
}

/** Returns the seconds from a job's first start to its end, or until now; NaN if it never started. @param now microseconds from 1970 */
export function runSecondsIn({ number }: Match, now: number): number {
  const end = number(END)
  return Math.max(0, (Number.isNaN(end) ? now : end) - number(START)) / 1e6
}

/** Fields by which a list of jobs is sorted. */
export const JOB_SORT_FIELDS = ["created_at", "started_at", "ended_at", "name", "cost", "run_time"] as const
export type JobSortField = (typeof JOB_SORT_FIELDS)[number]

/** Returns the value of a job by which it is sorted. @param now microseconds from 1970 */
export function sortValue(match: Match, field: Exclude<JobSortField, "created_at">, now: number): number | string {
  if (field === "name") return nameIn(match.key)
  if (field === "cost") return costIn(match, now)
  if (field === "run_time") return runSecondsIn(match, now)
  return field === "started_at" ? startIn(match) : endIn(match)
}
