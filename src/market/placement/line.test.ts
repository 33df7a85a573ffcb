import { describe, expect, it } from "vitest"
import { type Amounts, compareWaiters, type LineRoom, type Pool, placeBehind, turns, type Waiter } from "./line.ts"

const NOW = new Date("2026-12-01T12:00:00Z")
const TERMS = { now: NOW, passSeconds: 600 }

function needs(hourlyUsd: number, changes: Partial<Amounts> = {}): Amounts {
  return { vms: 1, gpus: 0, hourlyUsd, expectedUsd: hourlyUsd, mostUsd: hourlyUsd, ...changes }
}

/** Returns a job that was created `age` seconds ago and has waited since then. */
function waiter(name: string, age: number, changes: Partial<Waiter> = {}): Waiter {
  const waitsSince = NOW.getTime() - age * 1000
  const createdAt = new Date(waitsSince).toISOString()
  const key = `team/${name}`
  return {
    key,
    uid: name,
    priority: 0,
    createdAt,
    waitsSince,
    group: undefined,
    needs: needs(1),
    ...changes,
  }
}

function project(left: Pool["left"], live: Record<string, number> = {}): LineRoom {
  return { pools: [{ level: "project", concerns: () => true, left }], liveIn: (group) => live[group] ?? 0 }
}

const names = (waiters: readonly Waiter[]) => waiters.map(({ uid }) => uid)

describe("compareWaiters", () => {
  it("puts the highest priority first, then the oldest", () => {
    const all = [
      waiter("young", 1),
      waiter("old", 9),
      waiter("urgent", 0, { priority: 5 }),
      waiter("low", 99, { priority: -1 }),
    ]
    expect(names(all.toSorted(compareWaiters))).toEqual(["urgent", "old", "young", "low"])
  })
})

describe("turns", () => {
  it("lets jobs pass one that does not fit, until it is due", () => {
    const cheap = waiter("cheap", 1)
    const pools = project({ hourlyUsd: 5 })
    expect(names(turns([waiter("dear", 599, { needs: needs(40) }), cheap], pools, TERMS))).toEqual(["cheap"])
    expect(names(turns([waiter("dear", 600, { needs: needs(40) }), cheap], pools, TERMS))).toEqual([])
  })

  it("keeps only what a due job needs", () => {
    const due = waiter("due", 900, { needs: needs(1, { gpus: 8 }) })
    const pools = project({ hourlyUsd: 10, gpus: 4 })
    expect(
      names(turns([due, waiter("cpu", 1), waiter("gpu", 1, { needs: needs(1, { gpus: 1 }) })], pools, TERMS)),
    ).toEqual(["cpu"])
  })

  it("gives as many jobs their turn as fit together", () => {
    const line = [waiter("a", 4), waiter("b", 3, { needs: needs(3) }), waiter("c", 2), waiter("d", 1)]
    expect(names(turns(line, project({ hourlyUsd: 5 }), TERMS))).toEqual(["a", "b", "c"])
    expect(names(turns(line, project({ vms: 2 }), TERMS))).toEqual(["a", "b"])
  })

  it("keeps all that is left for a job whose needs are unknown", () => {
    expect(
      names(turns([waiter("new", 2, { needs: undefined }), waiter("next", 1)], project({ hourlyUsd: 5 }), TERMS)),
    ).toEqual(["new"])
  })

  it("counts a group's slots only for its jobs, each by the limit of the waiting job", () => {
    const inGroup = (name: string, age: number, limit: number) => waiter(name, age, { group: { name: "db", limit } })
    const line = [inGroup("a", 5, 2), inGroup("b", 4, 2), waiter("c", 3), inGroup("d", 2, 3)]
    expect(names(turns(line, project({ vms: 9 }, { db: 1 }), TERMS))).toEqual(["a", "c", "d"])
  })
})

describe("placeBehind", () => {
  it("says the position, the first job that takes room, and how much is taken", () => {
    const ahead = [
      waiter("dear", 5, { needs: needs(40) }),
      waiter("fits", 4, { needs: needs(2) }),
      waiter("fits too", 3),
    ]
    const { position, behind, taken } = placeBehind(ahead, project({ hourlyUsd: 5 }), TERMS)
    expect({ position, behind: behind?.uid, taken: taken.get("project")?.hourlyUsd }).toEqual({
      position: 4,
      behind: "fits",
      taken: 3,
    })
  })

  it("takes nothing for jobs that are passed", () => {
    const { position, behind, taken } = placeBehind(
      [waiter("dear", 5, { needs: needs(40) })],
      project({ hourlyUsd: 5 }),
      TERMS,
    )
    expect({ position, behind, taken: taken.size }).toEqual({ position: 2, behind: undefined, taken: 0 })
  })
})

/** Small generator of numbers, the same in each run. */
function random(seed: number): () => number {
  let state = seed
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return state / 2 ** 32
  }
}

describe("a line of 1,500 jobs under random caps", () => {
  interface Run {
    job: Waiter
    startedAt: number
    endsAt: number
  }

  /**
   * Runs a line to its end, as an oracle: at each end of a job those whose turn it is start. Returns all runs in the order of
   * their starts.
   */
  function simulate(jobs: readonly Waiter[], cap: Amounts, seconds: () => number, passSeconds: number): Run[] {
    const line = jobs.toSorted(compareWaiters)
    let running: Run[] = []
    const runs: Run[] = []
    for (let now = NOW.getTime(); line.length > 0; ) {
      const terms = { now: new Date(now), passSeconds }
      for (const job of turns(line, project(less(cap, running)), terms)) {
        line.splice(line.indexOf(job), 1)
        const run = { job, startedAt: now, endsAt: now + seconds() * 1000 }
        running.push(run)
        runs.push(run)
      }
      const first = Math.min(...running.map(({ endsAt }) => endsAt))
      if (first === Number.POSITIVE_INFINITY) throw new Error(`${line.length} jobs never start`)
      now = first
      running = running.filter(({ endsAt }) => endsAt > now)
    }
    return runs
  }

  function less(cap: Amounts, running: readonly Run[]): Amounts {
    const used = (name: keyof Amounts) => running.reduce((sum, { job }) => sum + (job.needs?.[name] ?? 0), 0)
    const names = Object.keys(cap) as (keyof Amounts)[]
    return Object.fromEntries(names.map((name) => [name, cap[name] - used(name)])) as unknown as Amounts
  }

  it.each([1, 2, 3])(
    "lets no job wait for more than its predecessors' ends and the time in which it may be passed (seed %i)",
    (seed) => {
      const next = random(seed)
      const cap = { vms: 60, gpus: 64, hourlyUsd: 50, expectedUsd: Infinity, mostUsd: Infinity }
      const jobs = Array.from({ length: 1500 }, (_, index) => {
        const isDear = next() < 0.02
        return waiter(`job-${index}`, 0, {
          createdAt: new Date(NOW.getTime() - (1500 - index) * 1000).toISOString(),
          waitsSince: NOW.getTime(),
          priority: Math.floor(next() * 3) - 1,
          needs: needs(isDear ? 40 : 0.2 + next(), { gpus: isDear ? 8 : 0 }),
        })
      })
      const longest = 900
      const runs = simulate(jobs, cap, () => 60 + next() * (longest - 60), 600)
      expect(runs).toHaveLength(1500)
      const order = new Map(jobs.toSorted(compareWaiters).map(({ uid }, index) => [uid, index]))
      for (const { job, startedAt } of runs) {
        // From the time at which it is due and all ahead of it have started, only running jobs are in its way.
        const predecessors = runs.filter((other) => (order.get(other.job.uid) ?? 0) < (order.get(job.uid) ?? 0))
        const allStarted = Math.max(NOW.getTime() + 600_000, ...predecessors.map((other) => other.startedAt))
        expect(startedAt, job.uid).toBeLessThanOrEqual(allStarted + longest * 1000)
      }
    },
  )

  it("starts a job for 40 dollars an hour among 1-dollar jobs that arrive without end", () => {
    const dear = waiter("dear", 0, { needs: needs(40) })
    let hour = 0
    let free = 0
    for (; hour < 100 && free < 40; hour++) {
      const terms = { now: new Date(NOW.getTime() + hour * 600_000), passSeconds: 600 }
      const cheap = Array.from({ length: 50 }, (_, index) => waiter(`cheap-${hour}-${index}`, -1))
      const started = turns([dear, ...cheap], project({ hourlyUsd: free }), terms)
      // Ten of the 50 jobs end before the next look.
      free = Math.min(50, free - started.length + 10)
    }
    expect(hour).toBeLessThanOrEqual(6)
  })
})
