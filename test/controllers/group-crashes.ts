import { isTerminal, type StoredJob } from "../../src/core/apis/job.ts"
import { isOver, type StoredLaunch } from "../../src/core/apis/launch.ts"
import { Reflector } from "../../src/core/kube/reflector.ts"
import { JOBS, LAUNCHES } from "../../src/core/resources.ts"
import type { ControllerHarness, Work } from "../harness/controllers.ts"
import { silentLogger } from "../harness/silent-logger.ts"
import { Crash, crashingClients } from "./crash.ts"

export interface GroupRun {
  /** Limit of each group, by its name. */
  limits: Readonly<Record<string, number>>
  jobsOfEach: number
  /** Least number of times that the operator crashes. */
  crashes: number
  random: () => number
}

export interface GroupResult {
  crashes: number
  jobs: number
  vms: number
  /** Largest number of Launches that were not over, by group. */
  mostLaunches: Record<string, number>
  /** Largest number of VMs that lived at the same time, by group. */
  mostVms: Record<string, number>
}

/** Beginning of the names of jobs. */
const JOB = "job-"

/** Writes of an operator, at most, before it crashes. */
const LONGEST_LIFE = 60

/**
 * Runs jobs of groups, and as many without one, to their end. Some fail once and get new VMs. Each operator crashes at a
 * random write, and another one takes over. Jobs come until it has happened as often as wanted.
 */
export async function runGroupsWithCrashes(harness: ControllerHarness, run: GroupRun): Promise<GroupResult> {
  const { client, namespace, cloud } = harness
  const { limits, jobsOfEach, random } = run
  const ending = new AbortController()
  const jobs = new Reflector<StoredJob>({ client, resource: JOBS, namespace, logger: silentLogger })
  const launches = new Reflector<StoredLaunch>({ client, resource: LAUNCHES, namespace, logger: silentLogger })
  const mostLaunches: Record<string, number> = {}
  /** Group of each Launch. */
  const groups = new Map<string, string>()
  launches.onChange(({ current }) => {
    if (current?.spec.concurrencyGroup !== undefined) groups.set(current.metadata.name, current.spec.concurrencyGroup)
    const live = launches.store.list().filter((launch) => !isOver(launch))
    for (const group of Object.keys(limits)) {
      const count = live.filter(({ spec }) => spec.concurrencyGroup === group).length
      mostLaunches[group] = Math.max(mostLaunches[group] ?? 0, count)
    }
  })
  const work: Work = ({ spec: { number, job } }) =>
    number === 1 && Number(job.name.slice(JOB.length)) % 5 === 0 ? "ContainerFailed" : "Succeeded"
  const loops = [jobs.run(ending.signal), launches.run(ending.signal), harness.agents(ending.signal, work)]
  let submitted = 0
  const submit = async () => {
    for (const name of [...Object.keys(limits), undefined]) {
      const group = name === undefined ? {} : { concurrencyGroup: { name, limit: limits[name] ?? 1 } }
      const retryRules = [{ reasons: ["ContainerFailed" as const], action: "newVm" as const }]
      await harness.submit(`${JOB}${submitted++}`, { ...group, retryRules })
    }
  }
  const areOver = () =>
    jobs.store.size === submitted && jobs.store.list().every(({ status }) => isTerminal(status?.phase))
  let crashes = 0
  try {
    while (submitted < jobsOfEach * (Object.keys(limits).length + 1)) await submit()
    while (crashes < run.crashes || !areOver()) {
      // There is always a job that has not ended.
      if (areOver()) await submit()
      const crash = new Crash(client, 1 + Math.floor(random() * LONGEST_LIFE), random() < 0.5 ? "before" : "after")
      const settings = { launchesPerMinute: 1_000_000 }
      const operator = harness.operator({ clients: crashingClients(harness, crash), settings })
      const waiting = new AbortController()
      await Promise.race([crash.death, jobs.store.waitUntil(areOver, waiting.signal)])
      waiting.abort()
      if (crash.dead) crashes++
      await operator.stop()
    }
  } finally {
    ending.abort()
    await Promise.all(loops)
  }
  return { crashes, jobs: submitted, vms: cloud.vms.length, mostLaunches, mostVms: mostAtATime(harness, groups) }
}

/** Returns the largest number of VMs of each group that lived at the same time, from the cloud's own record. */
function mostAtATime({ cloud }: ControllerHarness, groups: ReadonlyMap<string, string>): Record<string, number> {
  const most: Record<string, number> = {}
  const of = Map.groupBy(cloud.vms, ({ vm }) => groups.get(vm.launch) ?? "")
  of.delete("")
  for (const [group, vms] of of) {
    const lives = vms.map(
      ({ vm }) => [Date.parse(vm.createTime), Date.parse(vm.terminationTime ?? "9999-01-01")] as const,
    )
    const counts = lives.map(([begin]) => lives.filter(([from, to]) => from <= begin && to > begin).length)
    most[group] = Math.max(...counts)
  }
  return most
}
