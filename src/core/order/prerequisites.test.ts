import { describe, expect, test } from "vitest"
import { randomFrom } from "../../../test/random.ts"
import type { ObservedPrerequisite, Prerequisite } from "../apis/prerequisites.ts"
import { findCircle, type Orderable, observedAfter, obstacleOf, prerequisiteState } from "./prerequisites.ts"

function objectOf(name: string, status?: Orderable["status"], after: readonly Prerequisite[] = []): Orderable {
  return { metadata: { name, namespace: "team", uid: `uid-${name}` }, spec: { after }, ...(status && { status }) }
}

const PREPARE: Prerequisite = { job: "prepare" }

describe("the state of a prerequisite", () => {
  test.each<[string, ObservedPrerequisite | undefined, Orderable | undefined, object]>([
    ["is missing if there is none", undefined, undefined, {}],
    [
      "is its progress while it has not ended",
      undefined,
      objectOf("prepare"),
      { uid: "uid-prepare", progress: "queued" },
    ],
    [
      "says why it is queued",
      undefined,
      objectOf("prepare", { phase: "queued", reason: "CapReached" }),
      { uid: "uid-prepare", progress: "queued: CapReached" },
    ],
    [
      "says since when it runs",
      undefined,
      objectOf("prepare", { phase: "running", startTime: "2026-01-01T00:00:00Z" }),
      { uid: "uid-prepare", progress: "running since 2026-01-01T00:00:00Z" },
    ],
    ["is its outcome", undefined, objectOf("prepare", { phase: "failed" }), { uid: "uid-prepare", outcome: "failed" }],
    [
      "is the outcome that the status remembers, whatever has the name now",
      { job: "prepare", uid: "first", outcome: "succeeded" },
      objectOf("prepare", { phase: "failed" }),
      { uid: "first", outcome: "succeeded" },
    ],
    ["is deleted if it existed", { job: "prepare", uid: "first" }, undefined, { uid: "first", outcome: "deleted" }],
    [
      "is deleted if another one has the name now",
      { job: "prepare", uid: "first" },
      objectOf("prepare", { phase: "succeeded" }),
      { uid: "first", outcome: "deleted" },
    ],
  ])("%s", (_, record, object, state) => {
    expect(prerequisiteState(PREPARE, record, object)).toEqual({ prerequisite: PREPARE, ...state })
  })

  test("a prerequisite that is being deleted counts only for those that knew it before, or if it has ended", () => {
    const going = objectOf("prepare", { phase: "running" })
    going.metadata.deletionTimestamp = "2026-01-01T00:00:00Z"
    expect(prerequisiteState(PREPARE, undefined, going)).toEqual({ prerequisite: PREPARE })
    const known = { job: "prepare", uid: "uid-prepare" }
    expect(prerequisiteState(PREPARE, known, going)).toMatchObject({ uid: "uid-prepare", progress: "being deleted" })
    const ended = { ...going, status: { phase: "succeeded" } } as Orderable
    expect(prerequisiteState(PREPARE, undefined, ended)).toMatchObject({ outcome: "succeeded" })
  })

  test("an array has an outcome at its completion time, and none while it runs again", () => {
    const sweep = { array: "sweep" }
    const ended = objectOf("sweep", { phase: "failed", completionTime: "2026-01-01T00:00:00Z" })
    expect(prerequisiteState(sweep, undefined, ended)).toMatchObject({ outcome: "failed" })
    const again = objectOf("sweep", { phase: "running" })
    expect(prerequisiteState(sweep, undefined, again)).toMatchObject({ progress: "running" })
  })
})

describe("a message", () => {
  test("names at most five of many, and all their states", () => {
    const states = Array.from({ length: 7 }, (_, index) => ({
      ...{ prerequisite: { job: `j${index}` }, uid: "u", progress: "running" },
    }))
    const five = "j0 (running), j1 (running), j2 (running), j3 (running), j4 (running)"
    expect(obstacleOf(states, undefined)).toEqual({ reason: "WaitsForJob", message: `waits for ${five} and 2 more` })
  })

  test("says first what can't be met, then a circle, then what is missing", () => {
    const missing = { prerequisite: { array: "sweep" } }
    const waiting = { prerequisite: PREPARE, uid: "u", progress: "running" }
    const failed = { prerequisite: { job: "bad" }, uid: "u", outcome: "failed" } as const
    expect(obstacleOf([missing, waiting, failed], ["a", "b", "a"])?.reason).toBe("DependencyFailed")
    expect(obstacleOf([missing, waiting], ["a", "b", "a"])?.reason).toBe("DependencyCycle")
    expect(obstacleOf([missing, waiting], undefined)).toEqual({
      reason: "JobMissing",
      message: "array/sweep is not there yet. Create it, or cancel this one",
    })
  })
})

test("a status knows what exists or existed", () => {
  const found = prerequisiteState(PREPARE, undefined, objectOf("prepare"))
  expect(observedAfter([found, { prerequisite: { array: "late" } }])).toEqual([{ job: "prepare", uid: "uid-prepare" }])
  expect(observedAfter([{ prerequisite: PREPARE }])).toBeUndefined()
})

/** Returns true if a walk of at most so many steps leads from a name to itself: the rule, without the search under test. */
function isOnCircle(start: string, edges: ReadonlyMap<string, readonly string[]>): boolean {
  let reached = new Set(edges.get(start))
  for (let step = 0; step < edges.size; step++) {
    if (reached.has(start)) return true
    reached = new Set([...reached, ...[...reached].flatMap((name) => edges.get(name) ?? [])])
  }
  return reached.has(start)
}

test("a circle is found in random graphs if and only if there is one, and each of its steps is an edge", () => {
  const random = randomFrom(7)
  let circles = 0
  for (let round = 0; round < 500; round++) {
    const size = 2 + Math.floor(random() * 9)
    const names = Array.from({ length: size }, (_, index) => `j${index}`)
    const edges = new Map(names.map((name) => [name, names.filter((other) => other !== name && random() < 1.3 / size)]))
    const objects = new Map(
      names.map((name) => [
        name,
        objectOf(
          name,
          undefined,
          (edges.get(name) ?? []).map((job) => ({ job })),
        ),
      ]),
    )
    for (const name of names) {
      const circle = findCircle({ job: name }, objects.get(name) as Orderable, ({ job = "" }) => objects.get(job))
      expect(circle !== undefined).toBe(isOnCircle(name, edges))
      if (circle === undefined) continue
      circles++
      expect([circle[0], circle.at(-1)]).toEqual([name, name])
      for (const [index, from] of circle.slice(0, -1).entries()) expect(edges.get(from)).toContain(circle[index + 1])
    }
  }
  expect(circles).toBeGreaterThan(300)
})
