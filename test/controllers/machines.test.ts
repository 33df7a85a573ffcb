import { describe, expect, test } from "vitest"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import { runOn } from "../../src/core/machines/machine.ts"
import { JOBS, MACHINES, STATEMENTS } from "../../src/core/resources.ts"
import { confirmedProject } from "../harness/confirmed-project.ts"
import { type ControllerHarness, controllerHarnesses, type Work } from "../harness/controllers.ts"
import { eventually } from "../harness/eventually.ts"
import { SimHosts } from "../harness/sim-hosts.ts"

const newHarness = controllerHarnesses()

/** A namespace with machines whose hosts have joined, and an operator. */
async function setUp(names: readonly string[], spec = {}) {
  const harness = await newHarness()
  const hosts = new SimHosts(harness.client, harness.clock)
  const { namespace } = harness
  await confirmedProject(harness.client, { name: namespace, organization: namespace, namespace })
  const ref = (name: string) => ({ namespace, name })
  for (const name of names) await hosts.join(ref(name), { spec })
  harness.operator({ machines: true })
  return { harness, hosts, ref }
}

/** Runs hosts and agents until the check holds. */
async function run(
  { harness, hosts }: { harness: ControllerHarness; hosts: SimHosts },
  check: () => Promise<void>,
  work: "succeed" | "run" | Work = "succeed",
): Promise<void> {
  await eventually(async () => {
    await hosts.step(harness.namespace)
    await harness.agentsStep(work)
    await check()
  })
}

async function phases(harness: ControllerHarness): Promise<(string | undefined)[]> {
  const { items } = await harness.client.list(JOBS, { namespace: harness.namespace })
  return items.map(({ status }) => status?.phase)
}

const machineOf = ({ spec }: StoredLaunch) => [spec.offer.cloud, spec.offer.instanceType].join("/")

describe("jobs on own machines", () => {
  test("run one after the other, each once, and cost nothing but the owner's price", async () => {
    const world = await setUp(["one", "two"], { hourlyPriceUsd: 0 })
    const { harness, hosts } = world
    for (let at = 0; at < 5; at++) await harness.submit(`job-${at}`, { cloud: ["own"] })
    const most = new Map<string, number>()
    await run(world, async () => {
      const running = (await harness.launches()).filter(({ status }) => status?.agent && !status.agent.finish)
      for (const [machine, launches] of Map.groupBy(running, machineOf))
        most.set(machine, Math.max(most.get(machine) ?? 0, launches.length))
      expect(await phases(harness)).toEqual(Array(5).fill("succeeded"))
    })
    expect([...most.values()].every((count) => count === 1)).toBe(true)
    const launches = await harness.launches()
    expect(new Set(launches.map(machineOf))).toEqual(new Set(["own/one", "own/two"]))
    // A free machine wakes several jobs, and only one asks for it.
    expect(launches).toHaveLength(5)
    expect([...hosts.boots.values()]).toEqual(Array(5).fill(1))
    await eventually(async () => {
      const { items } = await harness.client.list(STATEMENTS, { namespace: harness.namespace })
      expect(items.flatMap(({ status }) => status?.spentUsd ?? []).reduce((sum, usd) => sum + usd, 0)).toBe(0)
    })
  })

  test("burst to a cloud when the machines are full, and come back", async () => {
    const world = await setUp(["one"])
    const { harness } = world
    await harness.submit("first")
    await run(world, async () => expect((await harness.job("first")).status?.phase).toBe("running"), "run")
    await harness.submit("second")
    await run(world, async () => expect((await harness.job("second")).status?.phase).toBe("running"), "run")
    const [first, second] = [await harness.job("first"), await harness.job("second")]
    expect(first.status?.placement?.offer).toMatchObject({ cloud: "own", instanceType: "one" })
    expect(second.status?.placement?.offer).toMatchObject({ cloud: "sim" })
    expect(second.status?.placement?.reason).toContain("machine one has another job")
    await run(world, async () => expect(await phases(harness)).toEqual(["succeeded", "succeeded"]))
    await run(world, async () => {
      expect(runOn(await harness.client.get(MACHINES, world.ref("one"))).is).toBe("over")
    })
    await harness.submit("third")
    await run(world, async () => expect((await harness.job("third")).status?.phase).toBe("succeeded"))
    expect((await harness.job("third")).status?.placement?.offer).toMatchObject({ cloud: "own" })
  })

  test("a job whose host has vanished gets another machine once the lease is over, and not before", async () => {
    const world = await setUp(["one", "two"], { leaseSeconds: 300 })
    const { harness, hosts, ref } = world
    await harness.submit("job", { cloud: ["own"] })
    await run(world, async () => expect((await harness.job("job")).status?.phase).toBe("running"), "run")
    const lost = (await harness.job("job")).status?.placement?.offer.instanceType ?? ""
    const other = lost === "one" ? "two" : "one"
    hosts.vanish(lost)
    harness.clock.advance(350)
    await hosts.beat(ref(other))
    expect((await harness.launches()).map(machineOf)).toEqual([`own/${lost}`])
    harness.clock.advance(12)
    await hosts.beat(ref(other))
    // Nothing more is heard of what the vanished host runs.
    const ends: Work = (launch) => (machineOf(launch) === `own/${lost}` ? undefined : "Succeeded")
    await run(world, async () => expect((await harness.job("job")).status?.phase).toBe("succeeded"), ends)
    expect((await harness.launches()).map(machineOf)).toEqual([`own/${lost}`, `own/${other}`])
  })

  test("a machine that is deleted ends its job first, which then runs elsewhere", async () => {
    const world = await setUp(["one"])
    const { harness, hosts, ref } = world
    await harness.submit("job")
    await run(world, async () => expect((await harness.job("job")).status?.phase).toBe("running"), "run")
    const launch = (await harness.liveLaunch()).metadata.name
    await harness.client.delete(MACHINES, ref("one"))
    await eventually(async () =>
      expect((await harness.client.get(MACHINES, ref("one"))).status?.launch?.endTime).toBeDefined(),
    )
    expect(hosts.boots.get(launch)).toBe(1)
    await run(world, async () => expect((await harness.job("job")).status?.phase).toBe("succeeded"))
    expect((await harness.job("job")).status?.placement?.offer).toMatchObject({ cloud: "sim" })
    await eventually(async () =>
      expect(await harness.client.list(MACHINES, { namespace: harness.namespace })).toMatchObject({ items: [] }),
    )
  })

  test("a cancelled job leaves its machine to the next one", async () => {
    const world = await setUp(["one"])
    const { harness } = world
    await harness.submit("job", { cloud: ["own"] })
    await run(world, async () => expect((await harness.job("job")).status?.phase).toBe("running"), "run")
    await harness.cancel("job")
    await harness.submit("next", { cloud: ["own"] })
    await run(world, async () => expect((await harness.job("next")).status?.phase).toBe("succeeded"))
    expect((await harness.job("job")).status?.phase).toBe("cancelled")
  })
})
