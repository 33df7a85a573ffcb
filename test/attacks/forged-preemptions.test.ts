import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { type LaunchSpec, type LaunchStatus, launchName, type StoredLaunch } from "../../src/apis/launch.ts"
import type { JobPlan } from "../../src/client/client.ts"
import { LAUNCHES } from "../../src/controllers/launch/options.ts"
import { JOBS } from "../../src/facade/caches.ts"
import { eventually } from "../cloud/eventually.ts"
import { agentOf, launchOf } from "../controllers/builders.ts"
import {
  caller,
  created,
  type Replica,
  SYSTEM_NAMESPACE,
  shippedOffers,
  startReplica,
  testFixture,
} from "../facade/harness.ts"

const attacker = testFixture("attack-preemptions-attacker")
const tenant = testFixture("attack-preemptions-tenant")
let replica: Replica
const made: { namespace: string; name: string }[] = []

beforeAll(async () => {
  // Each project has an account of its own.
  const launchAccounts = { of: (namespace: string) => [{ cloud: "aws", connection: "main", account: namespace }] }
  replica = await startReplica({ market: { offers: shippedOffers(), launchAccounts } })
})
afterAll(async () => {
  await Promise.all(made.map((ref) => tenant.client.delete(LAUNCHES, ref)))
  await replica.close()
})

type Placement = JobPlan["placements"][number]

/** Returns the ranking of an 8-hour job on spot, as a dry run shows it. */
async function rankingFor(of: typeof tenant): Promise<Placement[]> {
  const body = { image: "a", provisioning: "spot", resources: { cpu: 4, memory: "8Gi" }, timeoutSeconds: 8 * 3600 }
  const response = await caller(() => replica, of)("/1/jobs?dry_run=true", { body })
  return ((await response.json()) as JobPlan).placements
}

/** Creates the Launch of a VM that ran on the best offer of a ranking, as the operator and the gateway would. */
async function ended(of: typeof tenant, number: number, status: LaunchStatus, { region, instance_type }: Placement) {
  const job = await of.client.get(JOBS, { namespace: of.namespace, name: "spot" })
  const { spec } = launchOf(job, number)
  const offer: LaunchSpec["offer"] = {
    ...spec.offer,
    cloud: "aws",
    region,
    instanceType: instance_type,
    provisioning: "spot",
  }
  const ref = { namespace: SYSTEM_NAMESPACE, name: launchName(spec.job.uid, number) }
  const own = { connection: "main", account: of.namespace }
  await of.client.create(LAUNCHES, { kind: "Launch", metadata: ref, spec: { ...spec, offer, ...own } } as StoredLaunch)
  made.push(ref)
  await of.client.patchStatus(LAUNCHES, ref, { merge: { status } })
}

const minutesAgo = (minutes: number) => new Date(Date.now() - minutes * 60_000).toISOString()

/** An end that only the agent calls a preemption. */
function agentsWord(): LaunchStatus {
  const end = minutesAgo(120)
  const vm = { state: "terminated", id: "i-1", createTime: minutesAgo(121), terminationTime: end } as const
  const agent = agentOf({
    registrationTime: minutesAgo(121),
    preemptionNotice: end,
    finish: { reason: "Preempted", time: end },
  })
  return { phase: "terminated", vm, agent }
}

describe("an agent's word of a preemption", () => {
  it("changes its own account's ranking, and no other's", async () => {
    await created(await caller(() => replica, attacker)("/1/jobs", { body: { name: "spot", image: "a" } }))
    const before = await rankingFor(tenant)
    const [best] = before
    if (best === undefined) throw new Error("no spot offer fits")
    expect(await rankingFor(attacker)).toEqual(before)
    for (let number = 1; number <= 50; number++) await ended(attacker, number, agentsWord(), best)
    // A process uses its rates for 10 seconds.
    await eventually(async () => expect((await rankingFor(attacker))[0]).not.toEqual(best))
    expect(await rankingFor(tenant)).toEqual(before)
  })
})
