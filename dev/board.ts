import Table from "cli-table3"
import { secondsBetween } from "../src/core/apis/clock.ts"
import type { JobPhase, StoredJob } from "../src/core/apis/job.ts"

/** One line of the table of jobs. */
interface Row {
  name: string
  phase: string
  reason: string
  machine: string
  retries: string
  cost: string
  time: string
}

const HEAD: Record<keyof Row, string> = {
  name: "JOB",
  phase: "PHASE",
  reason: "REASON",
  machine: "MACHINE",
  retries: "RETRIES",
  cost: "COST",
  time: "TIME",
}

/** Colours a text by the phase of its job. */
export type PhasePainter = (text: string, phase: JobPhase) => string

/**
 * Returns the jobs as a table, oldest first, without a trailing newline. The table is plain text unless `paint` colours
 * phases.
 */
export function jobTable(jobs: readonly StoredJob[], now: Date, paint: PhasePainter = (text) => text): string {
  const columns = Object.keys(HEAD) as (keyof Row)[]
  const table = new Table({
    head: columns.map((column) => HEAD[column]),
    style: { head: [], border: [], compact: true, "padding-left": 0, "padding-right": 2 },
    chars: NO_LINES,
  })
  for (const job of byAge(jobs)) {
    const row = rowOf(job, now, paint)
    table.push(columns.map((column) => row[column]))
  }
  return table.toString().replaceAll(/ +$/gm, "")
}

/** Returns a job's state in one line. The same text means that nothing relevant has changed. */
export function jobLine(job: StoredJob): string {
  const { phase = "queued", reason, retryCount = 0, placement } = job.status ?? {}
  const parts = [
    job.metadata.name,
    phase,
    reason === undefined || reason.toLowerCase() === phase ? "" : `(${reason})`,
    phase === "booting" && placement ? `on ${placement.offer.cloud}/${placement.offer.instanceType}` : "",
    retryCount > 0 ? `retries ${retryCount}` : "",
  ]
  return parts.filter((part) => part !== "").join(" ")
}

/** Formats US dollars for small sums; returns a dash for undefined. */
export function usd(amount: number | undefined): string {
  if (amount === undefined) return "-"
  return `$${amount.toFixed(amount !== 0 && amount < 0.01 ? 6 : 4)}`
}

function byAge(jobs: readonly StoredJob[]): StoredJob[] {
  return jobs.toSorted(
    (a, b) =>
      a.metadata.creationTimestamp.localeCompare(b.metadata.creationTimestamp) ||
      a.metadata.name.localeCompare(b.metadata.name),
  )
}

function rowOf({ metadata, status = {} }: StoredJob, now: Date, paint: PhasePainter): Row {
  const { phase, placement, completionTime } = status
  const end = completionTime ?? now
  return {
    name: metadata.name,
    phase: phase === undefined ? "" : paint(phase, phase),
    reason: status.reason ?? "",
    machine: placement === undefined ? "" : `${placement.offer.cloud}/${placement.offer.instanceType}`,
    retries: String(status.retryCount ?? 0),
    cost: usd(status.cost?.actualUsd),
    time: `${Math.max(0, Math.round(secondsBetween(metadata.creationTimestamp, end)))}s`,
  }
}

const NO_LINES = Object.fromEntries(
  [
    "top",
    "top-mid",
    "top-left",
    "top-right",
    "bottom",
    "bottom-mid",
    "bottom-left",
    "bottom-right",
    "left",
    "left-mid",
    "mid",
    "mid-mid",
    "right",
    "right-mid",
    "middle",
  ].map((part) => [part, ""]),
)
