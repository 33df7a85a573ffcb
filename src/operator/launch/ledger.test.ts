import { describe, expect, test } from "vitest"
import { at, jobOf, launchOf, time, vmStatus } from "../../../test/harness/builders.ts"
import { systemClock } from "../../core/apis/clock.ts"
import type { LaunchStatus, StoredLaunch } from "../../core/apis/launch.ts"
import { ANNOTATIONS, keyOf } from "../../core/apis/meta.ts"
import { IndexedStore } from "../../core/kube/store.ts"
import { launchIndexes } from "../../market/caches.ts"
import { ALL_NAMESPACES, LaunchLedger, launchHistory } from "../../market/placement/ledger.ts"

const OVER = vmStatus({ phase: "terminated", vm: { state: "terminated", id: "vm-1", terminationTime: time(60) } })
const REFUSAL = { class: "Capacity", message: "none left", time: time(5) } as const

const STATUSES: Record<string, LaunchStatus> = {
  requested: { phase: "requested" },
  live: vmStatus(),
  refused: { phase: "refused", refusal: REFUSAL },
  preempted: vmStatus({ loss: { reason: "Preempted", message: "taken back", time: time(50) } }),
  deleted: OVER,
}

const BEGIN_SECONDS = 50

/** Returns a Launch for each status, in two projects, with and without the mark that its cost is counted. */
function launches(): StoredLaunch[] {
  return ["team", "other"].flatMap((namespace) =>
    [{}, { [ANNOTATIONS.counted]: "2026-11" }].flatMap((annotations) =>
      Object.values(STATUSES).map((status, index) => {
        const metadata = { annotations, creationTimestamp: time(BEGIN_SECONDS + 10 * index) }
        return launchOf(jobOf({ metadata: { namespace } }), 1, { metadata, status })
      }),
    ),
  )
}

function ledgerOf(seen: readonly StoredLaunch[]): LaunchLedger {
  const store = new IndexedStore<StoredLaunch>(launchIndexes)
  // Each one was another before, so that its indexes have changed.
  for (const launch of seen) {
    const { annotations: _, ...metadata } = { ...launch.metadata, resourceVersion: "0" }
    store.put({ ...launch, metadata, status: { phase: "requested" } })
    store.put(launch)
  }
  return new LaunchLedger(store, { ...systemClock, now: () => at(95) })
}

const namesOf = (found: readonly StoredLaunch[]) => found.map(({ metadata }) => metadata.name).sort()

describe("a ledger of Launches", () => {
  const all = launches()
  const [history, ledger] = [launchHistory(all), ledgerOf(all)]

  test("finds the same ones by its indexes as a list of all", () => {
    expect(namesOf(ledger.all())).toEqual(namesOf(history.all()))
    expect(namesOf(ledger.failed())).toEqual(namesOf(history.failed()))
    // Those that were refused, preempted and deleted, with and without the mark, in two projects.
    expect(ledger.failed()).toHaveLength(3 * 2 * 2)
  })

  test.each([
    [49, 20],
    [50, 16],
    [59.5, 16],
    [60, 12],
    [89, 4],
    [90, 0],
  ])("finds those created after second %d: %d", (seconds, count) => {
    const found = ledger.createdAfter(at(seconds), at(95))
    expect(found).toHaveLength(count)
    expect(namesOf(found)).toEqual(namesOf(history.createdAfter(at(seconds), at(95))))
    expect(ledger.mostCreatedAfter(at(seconds), at(95))).toBeGreaterThanOrEqual(count)
  })

  test("finds those that a faster clock has created", () => {
    expect(ledger.createdAfter(at(49), at(-100))).toHaveLength(20)
    expect(ledger.mostCreatedAfter(at(49), at(-100))).toBe(20)
  })

  test("finds those whose cost is not marked as counted, of one project or all", () => {
    expect(ledger.unmarked("team")).toHaveLength(5)
    expect(ledger.unmarked("team").every(({ spec }) => spec.job.namespace === "team")).toBe(true)
    expect(ledger.unmarked(ALL_NAMESPACES)).toHaveLength(10)
  })

  test("has those that are being created, until the cache has them", () => {
    const launch = launchOf(jobOf(), 1)
    const store = new IndexedStore<StoredLaunch>(launchIndexes)
    const own = new LaunchLedger(store, { ...systemClock, now: () => at(0) })
    const found = () => [
      ...[own.all(), own.createdAfter(at(-60), at(0)), own.unmarked("team"), own.unmarked(ALL_NAMESPACES)],
      own.unmarked("other"),
      own.failed(),
    ]
    own.assume(launch)
    expect(found().map(({ length }) => length)).toEqual([1, 1, 1, 1, 0, 0])
    expect(own.mostCreatedAfter(at(-60), at(0))).toBe(1)
    store.put(launch)
    expect(found().map((each) => each.map(keyOf))).toEqual([
      ...[[keyOf(launch)], [keyOf(launch)], [keyOf(launch)], [keyOf(launch)]],
      [],
      [],
    ])
    const another = launchOf(jobOf(), 1)
    own.assume(another)
    own.forget(another)
    expect(own.all()).toHaveLength(1)
  })

  test("take no place from their own job, whose creation had no answer, until the cache has them", () => {
    const [launch, other] = [launchOf(jobOf(), 1), launchOf(jobOf({ metadata: { uid: "other", name: "other" } }), 1)]
    const store = new IndexedStore<StoredLaunch>(launchIndexes)
    const all = new LaunchLedger(store, systemClock)
    all.assume(launch)
    all.assume(other)
    const seen = all.seenBy(launch.spec.job.uid)
    expect(seen.unmarked("team").map(keyOf)).toEqual([keyOf(other)])
    expect(all.unmarked("team")).toHaveLength(2)
    store.put(launch)
    expect(seen.unmarked("team").map(keyOf).sort()).toEqual([keyOf(launch), keyOf(other)].sort())
  })
})
