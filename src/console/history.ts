import type { JobRecord } from "../client/client.ts"

/** Running jobs and their price per hour, at each moment of a period. */
export interface History {
  /** Seconds since 1970. */
  times: number[]
  running: number[]
  usdPerHour: number[]
}

/** Moments of a history. */
const STEPS = 96

/** Returns the history of jobs over a period. The same job may be there twice. */
export function historyOf(jobs: readonly JobRecord[], from: number, to: number): History {
  const unique = [...new Map(jobs.map((job) => [job.id, job])).values()]
  const times = Array.from({ length: STEPS + 1 }, (_, step) => Math.round((from + ((to - from) * step) / STEPS) / 1000))
  const running = times.map(() => 0)
  const usdPerHour = times.map(() => 0)
  for (const { started_at, ended_at, hourly_price_usd } of unique) {
    if (started_at === null) continue
    const [start, end] = [Date.parse(started_at) / 1000, ended_at === null ? Infinity : Date.parse(ended_at) / 1000]
    for (const [index, time] of times.entries()) {
      if (time < start || time >= end) continue
      running[index] = (running[index] ?? 0) + 1
      usdPerHour[index] = (usdPerHour[index] ?? 0) + (hourly_price_usd ?? 0)
    }
  }
  return { times, running, usdPerHour }
}
