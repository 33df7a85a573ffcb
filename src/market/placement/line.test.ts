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

/** Returns the room of a project, whose whole cap is more than any job needs by default. */
function project(left: Pool["left"], live: Record<string, number> = {}, whole: Pool["whole"] = {}): LineRoom {
  return { pools: [{ level: "project", concerns: () => true, left, whole }], liveIn: (group) => live[group] ?? 0 }
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
    // The third slot is free for "d", but not before "a" has a VM: then that one would have to wait.
    expect(names(turns(line, project({ vms: 9 }, { db: 1 }), TERMS))).toEqual(["a", "c"])
    expect(names(turns(line.slice(1), project({ vms: 9 }, { db: 2 }), TERMS))).toEqual(["c", "d"])
  })

  it("keeps a group's slots for a due job with a smaller limit", () => {
    const inGroup = (name: string, age: number, limit: number) => waiter(name, age, { group: { name: "db", limit } })
    const readers = [inGroup("reader", 1, 5), waiter("other", 1)]
    expect(names(turns([inGroup("writer", 599, 1), ...readers], project({}, { db: 2 }), TERMS))).toEqual([
      "reader",
      "other",
    ])
    expect(names(turns([inGroup("writer", 600, 1), ...readers], project({}, { db: 2 }), TERMS))).toEqual(["other"])
  })

  it("keeps no room for a due job whose group is full", () => {
    const due = waiter("due", 900, { group: { name: "db", limit: 1 } })
    expect(names(turns([due, waiter("next", 1)], project({ vms: 1 }, { db: 1 }), TERMS))).toEqual(["next"])
  })

  it("keeps nothing for a due job that needs more than the whole cap", () => {
    const line = [waiter("too dear", 900, { needs: needs(40), group: { name: "db", limit: 1 } }), waiter("next", 1)]
    const left = { hourlyUsd: 5 }
    expect(names(turns(line, project(left, {}, { hourlyUsd: 39 }), TERMS))).toEqual(["next"])
    expect(names(turns(line, project(left, { db: 1 }, { hourlyUsd: 39 }), TERMS))).toEqual(["next"])
    expect(names(turns(line, project(left, {}, { hourlyUsd: 40 }), TERMS))).toEqual([])
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

describe("a line without end", () => {
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
