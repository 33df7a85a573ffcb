import { afterAll, beforeAll, describe, expect, it } from "vitest"
import type { JobPlan } from "../../src/client/client.ts"
import type { StoredJob } from "../../src/core/apis/job.ts"
import {
  type FinishReason,
  type LaunchSpec,
  type LaunchStatus,
  launchName,
  type StoredLaunch,
} from "../../src/core/apis/launch.ts"
import { JOBS, LAUNCHES } from "../../src/core/resources.ts"
import { testNamespace } from "../control-plane.ts"
import { agentOf, launchOf, offerOf } from "../harness/builders.ts"
import { caller, created } from "../harness/caller.ts"
import { type ControllerHarness, controllerHarnesses } from "../harness/controllers.ts"
import { eventually } from "../harness/eventually.ts"
import { type Replica, shippedOffers, startReplica } from "../harness/facade.ts"
import { projectFixture } from "../harness/facade-project.ts"
import { SYSTEM_NAMESPACE } from "../harness/system-namespace.ts"

const attacker = projectFixture("attack-preemptions-attacker")
const tenant = projectFixture("attack-preemptions-tenant")
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

describe("the operator", () => {
  const newHarness = controllerHarnesses()
  const [liar, victim] = [testNamespace("attack-preemptions-liar"), testNamespace("attack-preemptions-victim")]
  const spot = (instanceType: string, hourlyPriceUsd: number) =>
    offerOf({ instanceType, hourlyPriceUsd, provisioning: "spot" })
  const offers = [spot("cheapest", 0.4), spot("next", 0.401)]
  const market = { offers, account: { cloud: "sim", region: "here" } }
  const job = { image: "busybox", provisioning: "spot", timeoutSeconds: 8 * 3600, maxPreemptions: 0 } as const

  const submit = (harness: ControllerHarness, project: string, name: string) =>
    harness.client.create(JOBS, { metadata: { namespace: project, name }, spec: job } as unknown as StoredJob)

  /** Runs jobs of a project until the agents of their VMs have ended them. Returns the machines that they got. */
  async function machinesOf(harness: ControllerHarness, project: string, names: readonly string[], end: FinishReason) {
    const operator = harness.operator({ project, market })
    for (const name of names) await submit(harness, project, name)
    const ended = () => Promise.all(names.map((name) => harness.client.get(JOBS, { namespace: project, name })))
    // All have their VMs before the first one ends: a cooldown must not keep some of them from the machine.
    await eventually(async () => {
      for (const { status } of await ended()) expect(status?.placement).toBeDefined()
    })
    await eventually(async () => {
      await harness.agentsStep(() => end)
      for (const { status } of await ended()) expect(["succeeded", "failed"]).toContain(status?.phase)
    })
    await operator.stop()
    return (await ended()).map(({ status }) => status?.placement?.offer.instanceType)
  }

  it("places the jobs of others as without the forgeries, and only the forger's own elsewhere", async () => {
    const harness = await newHarness()
    expect(await machinesOf(harness, victim, ["before"], "Succeeded")).toEqual(["cheapest"])
    const names = Array.from({ length: 20 }, (_, number) => `forged-${number}`)
    const forged = await machinesOf(harness, liar, names, "Preempted")
    expect(forged).toContain("cheapest")
    // As long as the operator has the records of the forgeries.
    expect(await machinesOf(harness, victim, ["after"], "Succeeded")).toEqual(["cheapest"])
    // Then no offer is in cooldown any more: what is left is the ranking.
    harness.clock.advance(2 * 3600)
    expect(await machinesOf(harness, liar, ["own"], "Succeeded")).toEqual(["next"])
  })
})
