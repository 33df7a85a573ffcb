import type { StoredJob } from "../../src/core/apis/job.ts"
import { pricesOf, type StoredLaunch } from "../../src/core/apis/launch.ts"
import { billedUsd, roundUsd } from "../../src/core/apis/money.ts"
import { sumOfParts } from "../../src/core/apis/price.ts"
import { JOBS } from "../../src/core/resources.ts"
import { minimumBilledSecondsOf, vmNameOf } from "../../src/core/reuse/reuse.ts"
import type { Fixture } from "./crash-fixture.ts"
import type { Scenario } from "./crash-run.ts"
import { isJobOver } from "./crash-scenarios.ts"
import type { Finding } from "./tally.ts"

/** Name of the scenario in which one VM runs two jobs. */
export const TAKEOVER = "takeover"

/**
 * Both jobs fit on one offer only, so a new VM does not depend on the rest of a cooldown. The first VM waits for longer
 * than a dead operator's lease lasts.
 */
const JOB = { resources: { cpu: 3 }, timeoutSeconds: 3600 } as const
const FIRST: Partial<StoredJob["spec"]> = { ...JOB, reuse: { idleSeconds: 900 } }
const SECOND: Partial<StoredJob["spec"]> = { ...JOB, reuse: { idleSeconds: 60 } }

interface Pair {
  first: StoredLaunch | undefined
  /** First Launch of the second job. */
  second: StoredLaunch | undefined
}

async function pairOf(fixture: Fixture): Promise<Pair> {
  const launches = await fixture.launches()
  const of = (job: string) => launches.find(({ spec }) => spec.job.name === job && spec.number === 1)
  return { first: of("job"), second: of("second") }
}

/**
 * Returns a scenario of two jobs. The second one is submitted when the VM of the first one is idle.
 * @param then what happens once, as soon as the VM is handed over. Its agent never registers for the second job:
 * otherwise, it might be faster
 */
function takeover(then?: (fixture: Fixture, pair: Pair) => Promise<void>): Scenario {
  const isSilent = ({ spec }: StoredLaunch) => then !== undefined && spec.takesOver !== undefined
  return {
    begin: (fixture) => fixture.submit("job", FIRST),
    go: async (fixture) => {
      const pair = await pairOf(fixture)
      if (pair.first?.status?.phase === "idle" && fixture.once("second")) await fixture.submit("second", SECOND)
      if (then !== undefined && pair.first?.status?.handedTo !== undefined && fixture.once("then"))
        await then(fixture, pair)
      await fixture.agents((launch) => fixture.succeed(launch.metadata.name), { isSilent })
    },
    isOver: async (fixture) => {
      if ((await fixture.job("second")) === undefined) return false
      return (await isJobOver(fixture)) && (await isJobOver(fixture, "second"))
    },
    harm: wrongBills,
    // How the VM's bill is divided depends on the time of the takeover. `wrongBills` looks at the sum.
    unknowable: ["costUsd", "cost", "idleUsd", "actualUsd", "message"],
    sharesVms: true,
  }
}

/** The second job is cancelled as soon as the VM is its own, before its agent has registered. */
async function cancelSecond(fixture: Fixture): Promise<void> {
  const ref = { namespace: fixture.namespace, name: "second" }
  await fixture.client.patch(JOBS, ref, { merge: { spec: { cancelled: true } } })
}

/** The cloud takes the VM back before its agent has registered for the second job. */
async function loseVm(fixture: Fixture, { first }: Pair): Promise<void> {
  await fixture.takeBack(first?.metadata.name ?? "", first?.status?.vm?.id ?? "")
}

/** The second job itself ends its Launch if no operator sees within the boot deadline that the VM is lost. */
const vmLost: Scenario = {
  ...takeover(loseVm),
  passing: ["Job NoCapacity", "Job TakeoverLost"],
  unknowableObjects: ["Launch second-1"],
}

/** Scenarios in which a job takes over the idle VM of another one. */
export const TAKEOVER_SCENARIOS: Readonly<Record<string, Scenario>> = {
  [TAKEOVER]: takeover(),
  "takeover: cancelled": takeover(cancelSecond),
  "takeover: VM lost": vmLost,
}

/**
 * Returns what is wrong with the bills of shared VMs: each begins where its predecessor's ended, together they are the
 * VM's own, and the Statements have them all.
 */
async function wrongBills(fixture: Fixture): Promise<Finding[]> {
  const launches = await fixture.launches()
  const stated = await fixture.statedUsd()
  const sum = roundUsd(launches.reduce((total, { status }) => total + (status?.costUsd ?? 0), 0))
  const found = launches.flatMap((launch) => gapsBefore(launch, launches))
  for (const root of launches.filter(({ spec }) => spec.takesOver === undefined))
    found.push(...wrongSum(root, launches))
  if (sum !== stated)
    found.push({ violation: "lost", what: `the Launches cost ${sum} USD, and the Statements have ${stated}` })
  const again = fixture.started.filter((name, index) => fixture.started.indexOf(name) !== index)
  for (const name of again) found.push({ violation: "duplicates", what: `the container of ${name} was started again` })
  return found
}

function gapsBefore({ metadata, spec, status }: StoredLaunch, launches: readonly StoredLaunch[]): Finding[] {
  if (spec.takesOver === undefined || status?.vm === undefined) return []
  const predecessor = launches.find((launch) => launch.metadata.name === spec.takesOver)?.status
  const isNext = predecessor?.handedTo === metadata.name && predecessor.vm?.id === status.vm.id
  if (isNext && predecessor.vm?.terminationTime === status.vm.createTime) return []
  return [
    { violation: "lost", what: `the bill of ${metadata.name} does not begin where that of its predecessor ended` },
  ]
}

/** Returns the difference between the bills of a VM's Launches, and the VM's bill by its first and last time. */
function wrongSum(root: StoredLaunch, launches: readonly StoredLaunch[]): Finding[] {
  const chain = launches.filter((launch) => vmNameOf(launch) === root.metadata.name && launch.status?.vm !== undefined)
  const ends = chain.map(({ status }) => Date.parse(status?.vm?.terminationTime ?? ""))
  const seconds = (Math.max(...ends) - Date.parse(root.status?.vm?.createTime ?? "")) / 1000
  const price = sumOfParts(pricesOf(root))
  const billed = billedUsd(price, seconds, minimumBilledSecondsOf(root))
  const sum = chain.reduce((total, { status }) => total + (status?.costUsd ?? 0), 0)
  if (chain.length === 0 || Math.abs(sum - billed) <= toleranceUsd(price, chain.length)) return []
  return [{ violation: sum < billed ? "lost" : "duplicates", what: `a VM costs ${billed} USD, and its jobs ${sum}` }]
}

/** Returns what rounding may change: a second of each Launch, and the last digit. */
function toleranceUsd(hourlyUsd: number, launches: number): number {
  return (hourlyUsd / 3600) * launches + 1e-5
}
