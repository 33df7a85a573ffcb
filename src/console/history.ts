import type { JobRecord } from "../client/client.ts"

/** Jobs that ran, and the price of their machines, in each interval of a period: the most at the same time. */
export interface History {
  running: number[]
  usdPerHour: number[]
}

/** Intervals of a history. */
const INTERVALS = 96

/** Order of what happens at the same time. A job without a duration ends after it has counted. */
const [END, START, END_AT_ONCE] = [0, 1, 2] as const

interface Event {
  time: number
  order: typeof END | typeof START | typeof END_AT_ONCE
  usdPerHour: number
}

/**
 * Returns the history of jobs. A job runs from its first start until before its end, and at least at its start. Its price
 * is that of its last machine. The same job may be there twice. Pure.
 * @param from milliseconds since 1970
 * @param to milliseconds since 1970; the last interval has this moment too
 */
export function historyOf(jobs: readonly JobRecord[], from: number, to: number): History {
  const events = eventsOf(jobs)
  const [running, usdPerHour]: [number[], number[]] = [[], []]
  const width = (to - from) / INTERVALS
  const level = new Level()
  let next = 0
  const take = (isDue: (event: Event) => boolean): void => {
    for (let event = events[next]; event !== undefined && isDue(event); event = events[++next]) level.apply(event)
  }
  for (let interval = 0; interval < INTERVALS; interval++) {
    const start = from + interval * width
    const isLast = interval === INTERVALS - 1
    take(({ time, order }) => time < start || (time === start && order === END))
    level.reset()
    take(({ time }) => time < start + width || (isLast && time <= to))
    running.push(level.mostRunning)
    usdPerHour.push(level.mostUsd)
  }
  return { running, usdPerHour }
}

/** Returns the starts and ends of jobs, by time. */
function eventsOf(jobs: readonly JobRecord[]): Event[] {
  const unique = [...new Map(jobs.map((job) => [job.id, job])).values()]
  const events = unique.flatMap((job): Event[] => {
    if (job.started_at === null) return []
    const start = Date.parse(job.started_at)
    const end = job.ended_at === null ? Number.POSITIVE_INFINITY : Date.parse(job.ended_at)
    const usdPerHour = hourlyUsd(job)
    return [
      { time: start, order: START, usdPerHour },
      { time: Math.max(start, end), order: end > start ? END : END_AT_ONCE, usdPerHour },
    ]
  })
  return events.sort((a, b) => a.time - b.time || a.order - b.order)
}

/** Present sums of a history, and the highest ones since the last reset. */
class Level {
  #running = 0
  #usd = 0
  mostRunning = 0
  mostUsd = 0

  apply({ order, usdPerHour }: Event): void {
    const sign = order === START ? 1 : -1
    this.#running += sign
    // Rounding errors end with the last job.
    this.#usd = this.#running === 0 ? 0 : this.#usd + sign * usdPerHour
    this.mostRunning = Math.max(this.mostRunning, this.#running)
    this.mostUsd = Math.max(this.mostUsd, this.#usd)
  }

  reset(): void {
    this.mostRunning = this.#running
    this.mostUsd = this.#usd
  }
}

/** Returns the price of a job's present or last machine with its disk and address, USD per hour; 0 without a machine. */
export function hourlyUsd({ cost_breakdown, hourly_price_usd }: JobRecord): number {
  return cost_breakdown?.total_usd_per_hour ?? hourly_price_usd ?? 0
}
