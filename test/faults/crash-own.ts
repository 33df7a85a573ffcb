import { JobReason, type StoredJob } from "../../src/core/apis/job.ts"
import { MACHINES } from "../../src/core/resources.ts"
import type { CloudFixture, OpenCloudFixture } from "./crash-clouds.ts"
import type { Fixture } from "./crash-fixture.ts"
import type { Scenario } from "./crash-run.ts"
import { isJobOver, JOB_SCENARIOS, jobScenario, lose, QUICK_LIFE, quickLife, succeed } from "./crash-scenarios.ts"
import type { Snapshot } from "./crash-snapshot.ts"
import { OwnHosts } from "./own-hosts.ts"

/** Names of the machines, the cheapest first. */
const [FIRST, SECOND] = ["first", "second"] as const

/** Shorter than the time in which a fixture counts as stuck. */
const LEASE_SECONDS = 120

/** Opens a cloud of two own machines. Their hosts are simulated, and the operator's requests are writes of their status. */
export const openOwn: OpenCloudFixture = async (clock, { client, namespace, systemNamespace, onTerminate }) => {
  const hosts = new OwnHosts({ client, clock, namespace, systemNamespace, onStop: onTerminate })
  for (const [index, name] of [FIRST, SECOND].entries())
    await hosts.join(name, { hourlyPriceUsd: 0.1 * (index + 1), leaseSeconds: LEASE_SECONDS })
  const fixture: CloudFixture = {
    accounts: [],
    needsProject: true,
    offers: [],
    clouds: () => ({ open: () => Promise.reject(new Error("there is no other cloud")) }),
    alive: () => hosts.look(),
    booted: () => Promise.resolve(hosts.reachable),
    takeBack: async (vmId) => hosts.cutOff(vmId.split("/").at(-1) ?? ""),
    powerOff: (launch) => hosts.endRun(launch),
    billUsd: () => hosts.billUsd(),
    harm: (launches) => hosts.harm(launches),
    sellOut: () => hosts.occupy(FIRST),
    violations: () => [],
    close: () => Promise.resolve(),
  }
  return fixture
}

const ref = ({ namespace }: Fixture, name: string) => ({ namespace, name })

/** Fields of costs. The time for which a job has a machine depends on the fault. `OwnHosts.harm` looks at the costs. */
const COSTS = ["costUsd", "cost", "actualUsd"]

/** The host of the job's machine is cut off, so the job gets another machine after the end of the lease. */
const lost: Scenario = {
  ...jobScenario(lose),
  begin: async (fixture) => {
    await fixture.addProject()
    await fixture.submit("job")
  },
}

/** The job's machine is removed while the job runs on it. */
const removed = jobScenario(
  async (launch, fixture) => {
    if (launch.spec.number > 1) await fixture.succeed(launch.metadata.name)
  },
  async (fixture) => void (await fixture.client.delete(MACHINES, ref(fixture, FIRST))),
)

/** The job's machine is drained while the job runs on it. So the next job gets the other machine. */
const drained: Scenario = {
  ...jobScenario(async (launch, fixture) => {
    if (launch.spec.job.name !== "job") return await fixture.succeed(launch.metadata.name)
    if ((await fixture.job())?.status?.phase !== "running") return
    if (fixture.once("drained"))
      await fixture.client.patch(MACHINES, ref(fixture, FIRST), { merge: { spec: { unschedulable: true } } })
    await fixture.succeed(launch.metadata.name)
  }),
  isOver: async (fixture) => {
    if (!(await isJobOver(fixture))) return false
    if (fixture.once("second")) await fixture.submit("second")
    return await isJobOver(fixture, "second")
  },
}

/** Returns the part of an end that does not depend on which job gets which machine. */
function whicheverMachine({ objects, ...others }: Snapshot): Snapshot {
  const jobs = Object.entries(objects).filter(([key]) => key.startsWith("Job "))
  const phases = jobs.map(([key, job]) => [key, (job as StoredJob).status?.phase])
  return { ...others, objects: Object.fromEntries(phases) }
}

/** Two jobs want the same machine at once. Which one gets it depends on the fault. */
const both: Scenario = {
  ...jobScenario(succeed),
  begin: async (fixture) => {
    for (const name of ["job", "second"]) await fixture.submit(name)
  },
  isOver: async (fixture) => (await isJobOver(fixture)) && (await isJobOver(fixture, "second")),
  passing: ["Job NoCapacity", "Launch Refused"],
  known: whicheverMachine,
}

/** The second job waits for the machine of the first one. */
const inTurn: Scenario = {
  ...jobScenario(async (launch, fixture) => {
    const isFirst = launch.spec.job.name === "job"
    if (isFirst && fixture.once("second")) await fixture.submit("second")
    if (!isFirst || (await fixture.job("second"))?.status?.reason === JobReason.NoCapacity)
      await fixture.succeed(launch.metadata.name)
  }),
  begin: async (fixture) => {
    await fixture.fixture.sellOut()
    await fixture.submit("job")
  },
  isOver: async (fixture) => (await isJobOver(fixture)) && (await isJobOver(fixture, "second")),
}

/** Name of the scenario in which a machine's host is cut off. */
export const LOST = "machine lost"

/** Name of the scenario in which two jobs need one machine. */
export const IN_TURN = "jobs in turn"

/** Name of the scenario in which a machine is removed while a job runs on it. */
export const REMOVED = "machine removed"

/** Scenarios of every cloud that differ on own machines. */
const COMMON = /^(success|new VM|cancel|delete|cancel at boot|delete at boot|failover)$/

const ALL: Readonly<Record<string, Scenario>> = {
  ...Object.fromEntries(Object.entries(JOB_SCENARIOS).filter(([name]) => COMMON.test(name))),
  // The operator may see the end of the run before it asks for it.
  [QUICK_LIFE]: { ...quickLife, unknowable: [...(quickLife.unknowable ?? []), "endTime"] },
  [LOST]: lost,
  [REMOVED]: removed,
  "machine drained": drained,
  "two jobs at once": both,
  [IN_TURN]: inTurn,
}

/** Scenarios of own machines. */
export const OWN_SCENARIOS: Readonly<Record<string, Scenario>> = Object.fromEntries(
  Object.entries(ALL).map(([name, scenario]) => [
    name,
    { ...scenario, unknowable: [...(scenario.unknowable ?? []), ...COSTS] },
  ]),
)
