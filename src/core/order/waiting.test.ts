import fc from "fast-check"
import { describe, expect, it } from "vitest"
import type { Prerequisite } from "../apis/prerequisites.ts"
import type { Orderable } from "./prerequisites.ts"
import { awaitedBy, dependentGroups, isDependent, type Ordered, obstacleTo } from "./waiting.ts"

function jobOf(name: string, after: Prerequisite[] = [], status: Orderable["status"] = {}): Ordered {
  return { name: { job: name }, object: { metadata: { name, uid: `uid-${name}` }, spec: { after }, status } }
}

const AFTER: Prerequisite[] = [{ job: "prepare" }, { array: "sweep", outcome: "ended" }]
const SEEN = { job: "prepare", uid: "uid-prepare" } as const

describe("what a queued job waits for", () => {
  it("is each prerequisite without an outcome, with the uid that it has seen", () => {
    const { name, object } = jobOf("train", AFTER, { phase: "queued", after: [SEEN] })
    expect(awaitedBy(name, object)).toEqual([
      { prerequisite: AFTER[0], uid: "uid-prepare" },
      { prerequisite: AFTER[1] },
    ])
    const later = { after: [{ ...SEEN, outcome: "succeeded" as const }] }
    expect(awaitedBy(name, { ...object, status: later })).toEqual([{ prerequisite: AFTER[1] }])
  })

  it.each<[string, Partial<Orderable>]>([
    ["is cancelled", { spec: { after: AFTER, cancelled: true } }],
    ["has failed", { status: { phase: "failed" } }],
    ["runs", { status: { phase: "running" } }],
    ["has no prerequisites", { spec: {} }],
  ])("is nothing once it %s", (_, change) => {
    const { name, object } = jobOf("train", AFTER)
    expect(awaitedBy(name, { ...object, ...change })).toEqual([])
  })
})

describe("a dependent", () => {
  const prepare = jobOf("prepare")
  it.each<[boolean, string, Ordered]>([
    [true, "one that has not seen it yet", jobOf("train", AFTER)],
    [true, "one that has seen it", jobOf("train", AFTER, { after: [SEEN] })],
    [false, "one that waits for an earlier job of the name", jobOf("train", AFTER, { after: [{ ...SEEN, uid: "1" }] })],
    [false, "one that knows its outcome", jobOf("train", AFTER, { after: [{ ...SEEN, outcome: "succeeded" }] })],
    [false, "one that waits for the array of the name", jobOf("train", [{ array: "prepare" }])],
  ])("is (%s) %s", (is, _, other) => {
    expect(isDependent(other, prepare)).toBe(is)
  })
})

describe("the groups of dependents", () => {
  const graphs = fc
    .integer({ min: 1, max: 30 })
    .chain((size) =>
      fc.array(fc.tuple(fc.nat(size - 1), fc.nat(size - 1)), { maxLength: 90 }).map((edges) => ({ size, edges })),
    )
  const groupsOf = (edges: readonly (readonly number[])[]) => {
    const all = new Map<string, Ordered>()
    const named = (number: number) => all.get(`j${number}`) ?? jobOf(`j${number}`)
    const dependents = ({ name }: Ordered) =>
      [...new Set(edges.filter(([from]) => `j${from}` === name.job).map(([, to = 0]) => to))].map(named)
    return dependentGroups(named(0), dependents).map((group) => group.map(({ name }) => Number(name.job?.slice(1))))
  }
  const reached = (edges: readonly (readonly number[])[]) => {
    const found = new Set([0])
    for (const one of found) for (const [from, to = 0] of edges) if (from === one) found.add(to)
    return [...found].filter((one) => one !== 0).sort((a, b) => a - b)
  }

  it("have all that waits for it, also through others, once, and each dependent before what it waits for", () => {
    fc.assert(
      fc.property(graphs, ({ edges }) => {
        const forward = edges.filter(([from, to]) => from < to)
        const groups = groupsOf(forward)
        expect(groups.flat().sort((a, b) => a - b)).toEqual(reached(forward))
        const place = new Map(groups.flatMap((group, index) => group.map((one) => [one, index] as const)))
        for (const [from, to] of forward) {
          const [before, after] = [place.get(to), place.get(from)]
          if (before !== undefined && after !== undefined) expect(before).toBeLessThan(after)
        }
      }),
    )
  })

  it("end on circles", () => {
    fc.assert(
      fc.property(graphs, ({ edges }) => {
        const groups = groupsOf(edges)
        expect(groups.flat().sort((a, b) => a - b)).toEqual(reached(edges))
        expect(groups.every((group) => group !== undefined && group.length > 0)).toBe(true)
      }),
    )
  })

  it("need no recursion for a chain of 20,000", () => {
    const next = ({ name }: Ordered) => {
      const number = Number(name.job?.slice(1))
      return number < 20_000 ? [jobOf(`j${number + 1}`)] : []
    }
    expect(dependentGroups(jobOf("j0"), next)).toHaveLength(20_000)
  })
})

describe("the obstacle of a job", () => {
  it("is what the operator would say", () => {
    const { object } = jobOf("prepare", [], { phase: "running", startTime: "2026-01-01T00:00:00Z" })
    const { name, object: train } = jobOf("train", [{ job: "prepare" }])
    expect(obstacleTo(name, train, () => object)?.message).toBe(
      "waits for prepare (running since 2026-01-01T00:00:00Z)",
    )
    expect(obstacleTo(name, train, () => undefined)?.reason).toBe("JobMissing")
    const circle = jobOf("prepare", [{ job: "train" }]).object
    expect(obstacleTo(name, train, () => circle)?.message).toContain("train → prepare → train")
    const done = jobOf("prepare", [], { phase: "succeeded" }).object
    expect(obstacleTo(name, train, () => done)).toBeUndefined()
  })
})
