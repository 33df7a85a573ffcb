import { expect, it } from "vitest"
import { jobOf, offerOf, time } from "../../../../test/harness/builders.ts"
import type { JobPhase, JobSpec, StoredJob } from "../../../core/apis/job.ts"
import type { StoredJobArray } from "../../../core/apis/jobarray.ts"
import { LABELS } from "../../../core/apis/meta.ts"
import { IndexedStore } from "../../../core/kube/store.ts"
import { CACHE_OPTIONS, JobTerm } from "../../caches.ts"
import { MEASURED } from "../jobs/numbers.ts"
import { identityOf, MOST_GROUPS, RunGroups } from "./groups.ts"

const { pages, packing } = CACHE_OPTIONS.jobs

const USAGE = { seconds: 60, cpuMean: 0.2, cpuPeak: 0.3, memoryPeakMib: 1000 }

interface Run {
  spec?: Partial<JobSpec>
  phase?: JobPhase
  isMeasured?: boolean
  labels?: Record<string, string>
}

/** Returns the groups of runs, of which each was created a second after the former one. */
function groupsOf(runs: readonly Run[]) {
  const store = new IndexedStore<StoredJob>({}, { pages, packing })
  for (const [index, { spec = {}, phase = "succeeded", isMeasured = true, labels = {} }] of runs.entries()) {
    const ended = { phase, startTime: time(index), completionTime: time(index + 60) }
    const placement = { offer: offerOf({ cpu: 8 }), reason: "cheapest" }
    const metadata = {
      name: `run-${index}`,
      labels,
      creationTimestamp: time(index),
      resourceVersion: String(index + 1),
    }
    store.put(jobOf({ metadata, spec, status: { ...ended, placement, ...(isMeasured && { usage: USAGE }) } }))
  }
  const groups = new RunGroups()
  const query = { scope: "team", terms: [JobTerm.status("succeeded")], numbers: MEASURED }
  store.visit(query, (match) => groups.add(match))
  return groups.ready.map((group) => ({ ...group, latest: store.getByKey(group.newestKey) as StoredJob }))
}

const times = (count: number, run: Run = {}): Run[] => Array.from({ length: count }, () => run)

it("runs have a group by their creator, or by image and command", () => {
  const groups = groupsOf([
    ...times(3, { labels: { [LABELS.arrayUid]: "a1" } }),
    ...times(4, { labels: { [LABELS.cronJobUid]: "c1" } }),
    ...times(2, { spec: { command: ["fit"], args: ["1"] } }),
    ...times(3, { spec: { command: ["fit"], args: ["2"] } }),
    ...times(3, { spec: { args: ["eval"] } }),
    ...times(2, { spec: { args: ["other"] } }),
  ])
  const shown = groups.map(({ origin, newestKey, runs }) => [origin?.kind, newestKey, runs.length])
  expect(shown.sort((a, b) => (String(a[1]) < String(b[1]) ? -1 : 1))).toEqual([
    [undefined, "team/run-11", 5],
    [undefined, "team/run-14", 3],
    ["array", "team/run-2", 3],
    ["cronjob", "team/run-6", 4],
  ])
  const [first] = groups.filter(({ newestKey }) => newestKey === "team/run-11")
  expect(first && identityOf(first, first.latest, undefined)).toMatchObject({ kind: "image", name: "busybox fit" })
  expect(first?.runs[0]).toEqual({
    ...{ endedAt: Date.parse(time(71)), seconds: 60, cpuPeak: 0.3, machineCpu: 8, memoryPeakMib: 1000 },
    ...{ diskPeakGib: undefined, vramPeakMib: undefined },
  })
})

it("runs that failed or were not measured are in no group", () => {
  const groups = groupsOf([...times(2), ...times(3, { phase: "failed" }), ...times(3, { isMeasured: false })])
  expect(groups).toEqual([])
})

it("the groups that ran longest are taken", () => {
  const groups = groupsOf(
    Array.from({ length: MOST_GROUPS + 1 }, (_, index) =>
      times(index === 7 ? 4 : 3, { spec: { image: `image-${index}` } }),
    ).flat(),
  )
  expect(groups).toHaveLength(MOST_GROUPS)
  expect(groups[0]?.latest.spec.image).toBe("image-7")
})

it("a group whose creator was deleted, or asks for other resources now, is none", () => {
  const resources = { cpu: "4", memory: "12Gi" }
  const [group] = groupsOf(times(3, { spec: { resources }, labels: { [LABELS.arrayUid]: "a1" } }))
  if (group === undefined) throw new Error("no group")
  const arrayWith = (now: object) =>
    ({ metadata: { name: "sweep", uid: "a1" }, spec: { jobDefinition: { resources: now } } }) as StoredJobArray
  const identity = { kind: "array", id: "a1", name: "sweep" }
  expect(identityOf(group, group.latest, arrayWith(resources))).toEqual(identity)
  expect(identityOf(group, group.latest, arrayWith({ cpu: "4000m", memory: "12288Mi" }))).toEqual(identity)
  expect(identityOf(group, group.latest, arrayWith({ cpu: "2", memory: "12Gi" }))).toBeUndefined()
  expect(identityOf(group, group.latest, undefined)).toBeUndefined()
})
