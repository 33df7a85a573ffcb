import { describe, expect, it } from "vitest"
import { isNightly } from "../../../test/nightly.ts"
import { randomFrom } from "../../../test/random.ts"
import { type Amounts, compareWaiters, type LineRoom, type Pool, turns, type Waiter } from "./line.ts"

const PASS_SECONDS = 600
const JOBS = isNightly ? 10_000 : 1000
const SEEDS = Array.from({ length: isNightly ? 10 : 3 }, (_, index) => index + 1)

const CAPPED = ["vms", "gpus", "hourlyUsd"] as const
type Caps = Partial<Record<(typeof CAPPED)[number], number>>

/** A job of the simulation. Times are seconds since its begin. */
interface SimJob {
  waiter: Waiter
  needs: Amounts
  arrivesAt: number
  runSeconds: number
}

interface Run extends SimJob {
  startedAt: number
  endsAt: number
}

interface World {
  /** Caps of the project and of its organization. */
  caps: readonly Caps[]
  jobs: readonly SimJob[]
}

/** Makes jobs of all sizes that come faster than the caps let them run, some of which are in groups of differing limits. */
function worldOf(seed: number): World {
  const random = randomFrom(seed)
  const between = (least: number, most: number) => least + random() * (most - least)
  const whole = (least: number, most: number) => Math.floor(between(least, most + 1))
  const capsOf = (): Caps => ({
    ...(random() < 0.7 && { vms: whole(20, 80) }),
    ...(random() < 0.7 && { gpus: whole(16, 64) }),
    hourlyUsd: between(20, 60),
  })
  const caps = [capsOf(), capsOf()]
  const needsOf = (): Amounts => {
    const gpus = random() < 0.2 ? whole(1, 8) : 0
    const draw = random()
    // Some need more than a whole cap, others a large part of it.
    const hourlyUsd = draw < 0.005 ? 100 : draw < 0.025 ? between(8, 20) : between(0.1, 1 + gpus / 4)
    return { vms: 1, gpus, hourlyUsd, expectedUsd: hourlyUsd, mostUsd: hourlyUsd }
  }
  const limits = Array.from({ length: 6 }, () => whole(1, 5))
  const jobs = Array.from({ length: JOBS }, (_, index) => {
    const needs = needsOf()
    const group = whole(0, 15)
    const limit = random() < 0.8 ? limits[group] : whole(1, 6)
    // Half of them are there from the begin.
    const arrivesAt = index < JOBS / 2 ? 0 : between(0, JOBS * 10)
    const waiter = {
      ...{ key: `team/job-${index}`, uid: `job-${index}`, needs },
      priority: random() < 0.9 ? 0 : whole(-2, 2),
      createdAt: `${String(Math.floor(arrivesAt * 1000)).padStart(12, "0")}-${String(index).padStart(6, "0")}`,
      waitsSince: arrivesAt * 1000,
      group: limits[group] === undefined || limit === undefined ? undefined : { name: `group-${group}`, limit },
    }
    return { waiter, needs, arrivesAt, runSeconds: between(60, 900) }
  })
  return { caps, jobs }
}

/**
 * Runs the line to its end. At each arrival and each end those start whose turn it is, and each start wakes the next ones.
 * Returns the runs in the order of their starts.
 */
function simulate({ caps, jobs }: World): Run[] {
  const byUid = new Map(jobs.map((job) => [job.waiter.uid, job]))
  const arrivals = jobs.toSorted((a, b) => a.arrivesAt - b.arrivesAt)
  const runs: Run[] = []
  let running: Run[] = []
  let line: Waiter[] = []
  for (let now = 0; ; ) {
    const arrived = arrivals.findIndex(({ arrivesAt }) => arrivesAt > now)
    const come = arrivals.splice(0, arrived === -1 ? arrivals.length : arrived)
    if (come.length > 0) line = [...line, ...come.map(({ waiter }) => waiter)].sort(compareWaiters)
    for (;;) {
      const next = turns(line, roomOf(caps, running), { now: new Date(now * 1000), passSeconds: PASS_SECONDS })
      if (next.length === 0) break
      const started = next.map(({ uid }) => {
        const job = byUid.get(uid) as SimJob
        return { ...job, startedAt: now, endsAt: now + job.runSeconds }
      })
      const uids = new Set(next.map(({ uid }) => uid))
      line = line.filter(({ uid }) => !uids.has(uid))
      running.push(...started)
      runs.push(...started)
    }
    now = Math.min(arrivals[0]?.arrivesAt ?? Infinity, ...running.map(({ endsAt }) => endsAt))
    if (now === Infinity) return runs
    running = running.filter(({ endsAt }) => endsAt > now)
  }
}

function roomOf(caps: readonly Caps[], running: readonly Run[]): LineRoom {
  const used = usedBy(running)
  const pools: Pool[] = caps.map((whole, index) => {
    const left = Object.fromEntries(Object.entries(whole).map(([name, cap]) => [name, cap - used[name as "vms"]]))
    return { level: index === 0 ? "project" : "organization", concerns: () => true, left, whole }
  })
  return { pools, liveIn: (group) => running.filter(({ waiter }) => waiter.group?.name === group).length }
}

function usedBy(running: readonly Run[]): Record<(typeof CAPPED)[number], number> {
  const used = { vms: 0, gpus: 0, hourlyUsd: 0 }
  for (const { needs } of running) for (const name of CAPPED) used[name] += needs[name]
  return used
}

/** Cents that sums of floating-point numbers differ by. */
const ROUNDING = 1e-6

/** Returns true if a job fits under the caps beside others. */
function fitsBeside(others: readonly Run[], needs: Amounts, caps: readonly Caps[]): boolean {
  const used = usedBy(others)
  return caps.every((cap) => CAPPED.every((name) => used[name] + needs[name] <= (cap[name] ?? Infinity) + ROUNDING))
}

/**
 * Returns the last time at which a job may start by the rule, from the records of the runs alone: when it is due and all
 * jobs ahead of it have started, its group's slot and then its room come free by the ends of those that run already.
 */
function latestStart(job: Run, ahead: readonly Run[], runs: readonly Run[], caps: readonly Caps[]): number {
  const headAt = Math.max(job.arrivesAt + PASS_SECONDS, ...ahead.map(({ startedAt }) => startedAt))
  const inTheWay = (time: number) =>
    runs.filter((other) => other !== job && other.startedAt <= time && other.endsAt > time)
  const { group } = job.waiter
  const members = inTheWay(headAt).filter(({ waiter }) => group !== undefined && waiter.group?.name === group.name)
  const slotAt = firstTime(headAt, members, (live) => live.length < (group?.limit ?? Infinity))
  return firstTime(slotAt, inTheWay(slotAt), (live) => fitsBeside(live, job.needs, caps))
}

/** Returns the first time from which enough of those that run have ended. */
function firstTime(from: number, running: readonly Run[], isEnough: (live: readonly Run[]) => boolean): number {
  const times = [from, ...running.map(({ endsAt }) => endsAt).sort((a, b) => a - b)]
  const found = times.find((time) => isEnough(running.filter(({ endsAt }) => endsAt > time)))
  if (found === undefined) throw new Error("it never fits")
  return found
}

describe(`a line of ${JOBS.toLocaleString("en")} jobs under random caps, in random groups`, () => {
  it.each(SEEDS)(
    "lets no job wait for more than its predecessors' ends and the time in which it may be passed (seed %i)",
    (seed) => {
      const world = worldOf(seed)
      const { caps } = world
      const runs = simulate(world)
      const possible = world.jobs.filter(({ needs }) => fitsBeside([], needs, caps))
      expect(runs).toHaveLength(possible.length)

      const order = new Map(runs.toSorted((a, b) => compare(a, b)).map((run, index) => [run, index]))
      const placeOf = (run: Run) => order.get(run) ?? 0
      let bound = 0
      const late: string[] = []
      for (const run of runs) {
        const ahead = runs.filter((other) => placeOf(other) < placeOf(run) && other.arrivesAt <= run.startedAt)
        const latest = latestStart(run, ahead, runs, caps)
        if (run.startedAt > latest)
          late.push(`${run.waiter.uid} came at ${run.arrivesAt}, started at ${run.startedAt} instead of ${latest}`)
        if (run.startedAt >= run.arrivesAt + PASS_SECONDS) bound++
      }
      expect(late).toEqual([])
      // The rule says when they start: they waited for the whole time in which they may be passed.
      expect(bound).toBeGreaterThan(JOBS / 10)
      if (isNightly) {
        const waits = runs.map(({ arrivesAt, startedAt }) => startedAt - arrivesAt)
        console.info(
          `${runs.length} runs, ${world.jobs.length - runs.length} jobs above a whole cap, ${bound} due, longest wait ${Math.max(...waits).toFixed(0)} s`,
        )
      }
    },
  )

  it.each(SEEDS)("exceeds no cap, and no limit of a group's job when it starts (seed %i)", (seed) => {
    const world = worldOf(seed)
    const runs = simulate(world)
    for (const [index, run] of runs.entries()) {
      const live = runs.slice(0, index).filter(({ endsAt }) => endsAt > run.startedAt)
      expect(fitsBeside(live, run.needs, world.caps)).toBe(true)
      const { group } = run.waiter
      const members = live.filter(({ waiter }) => group !== undefined && waiter.group?.name === group.name)
      expect(members.length).toBeLessThan(group?.limit ?? Infinity)
    }
  })
})

/** Order of the rule: the highest priority first, then the oldest. */
function compare({ waiter: a }: Run, { waiter: b }: Run): number {
  return b.priority - a.priority || (a.createdAt < b.createdAt ? -1 : 1)
}
