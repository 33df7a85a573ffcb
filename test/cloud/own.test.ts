import { randomBytes } from "node:crypto"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import type { Cloud, LaunchSpec, Vm } from "../../src/clouds/cloud.ts"
import type { Offer } from "../../src/core/apis/offer.ts"
import { NAMESPACES } from "../../src/core/kube/core.ts"
import { CapacityError } from "../../src/core/outbound/errors.ts"
import { MACHINES } from "../../src/core/resources.ts"
import { withOwnMachines } from "../../src/operator/machine/own-cloud.ts"
import { eventually } from "../harness/eventually.ts"
import { sharedClient } from "../harness/namespace.ts"
import { ShiftedClock } from "../harness/shifted-clock.ts"
import { SimHosts } from "../harness/sim-hosts.ts"
import { type CloudUnderTest, describeCloud } from "./conformance.ts"

const OFFER: Offer = {
  ...{ cloud: "own", region: "lab", instanceType: "", architecture: "amd64", provisioning: "onDemand" },
  ...{ cpu: 8, memoryGib: 32, hourlyPriceUsd: 0, minimumBilledSeconds: 0 },
}

const client = sharedClient()

/** Machines of a project of their own, on the real API server. */
async function setUp() {
  const namespace = `own-${randomBytes(4).toString("hex")}`
  await client.create(NAMESPACES, { metadata: { name: namespace } })
  const clock = new ShiftedClock()
  const hosts = new SimHosts(client, clock)
  const none = { open: () => Promise.reject(new Error("no other cloud")) }
  const open = (account = namespace) =>
    withOwnMachines(none, { client, clock }).open({ cloud: "own", region: "lab", account })
  const join = (name: string, spec = {}) => hosts.join({ namespace, name }, { spec: { region: "lab", ...spec } })
  const spec = (name: string, machine: string, more: Partial<LaunchSpec> = {}): LaunchSpec => ({
    ...{ name, installation: "i", tags: {}, userData: "", lifetimeSeconds: 60 },
    offer: { ...OFFER, instanceType: machine },
    ...more,
  })
  const list = async (cloud: Cloud): Promise<Vm[]> => await cloud.list({ installation: "i", region: "lab" })
  return { namespace, clock, hosts, open, join, spec, list, ref: (name: string) => ({ namespace, name }) }
}

/** The own cloud whose every Launch gets a machine that no other one had. */
async function freshMachines(): Promise<CloudUnderTest> {
  const { namespace, hosts, open, join } = await setUp()
  const machines = new Map<string, Promise<string>>()
  const machineFor = (launch: string): Promise<string> => {
    const name = `m${machines.size}`
    const made = machines.get(launch) ?? join(name).then(() => name)
    machines.set(launch, made)
    return made
  }
  const ending = new AbortController()
  const running = (async () => {
    while (!ending.signal.aborted) await hosts.step(namespace)
  })()
  return {
    offer: OFFER,
    userData: "",
    open: async () => {
      const cloud = await open()
      return {
        consistencySeconds: cloud.consistencySeconds,
        launch: async (spec, fence) =>
          await cloud.launch({ ...spec, offer: { ...spec.offer, instanceType: await machineFor(spec.name) } }, fence),
        list: (scope) => cloud.list(scope),
        terminate: (vm, fence) => cloud.terminate(vm, fence),
        verify: () => cloud.verify(),
      }
    },
    countBoots: async (launch) =>
      await eventually(() => hosts.boots.get(launch) ?? Promise.reject(new Error("no boot"))),
    powerOff: async (vm) => await hosts.free({ namespace, name: vm.id.split("/")[1] ?? "" }),
    neverWas: (launch) => ({ id: `${namespace}/never/${launch}`, launch, region: "lab" }),
    close: async () => {
      ending.abort()
      await running
    },
  }
}

describeCloud("own", freshMachines)

describe("the cloud of own machines", () => {
  let world: Awaited<ReturnType<typeof setUp>>
  let cloud: Cloud

  beforeAll(async () => {
    world = await setUp()
    cloud = await world.open()
  })
  afterAll(() => client.list(MACHINES, { namespace: world.namespace }))

  it("gives a machine to one of many Launches, and to the next one once nothing is left", async () => {
    const { join, spec, hosts, namespace, ref, list } = world
    await join("one")
    const tries = await Promise.allSettled(
      Array.from({ length: 8 }, (_, at) => cloud.launch(spec(`race-${at}`, "one"))),
    )
    const [winner, ...others] = tries.flatMap((each) => (each.status === "fulfilled" ? [each.value] : []))
    expect(others).toEqual([])
    for (const each of tries) if (each.status === "rejected") expect(each.reason).toBeInstanceOf(CapacityError)
    await hosts.step(namespace)
    await cloud.terminate(winner as Vm)
    // Its host has not ended the run: no other Launch can have the machine.
    await expect(cloud.launch(spec("next", "one"))).rejects.toThrow("machine one has another job")
    expect(await list(cloud)).toMatchObject([{ launch: winner?.launch, state: "terminating" }])
    await hosts.free(ref("one"))
    expect(await list(cloud)).toMatchObject([{ launch: winner?.launch, state: "terminated" }])
    expect(await cloud.launch(spec("next", "one"))).toMatchObject({ launch: "next", state: "booting" })
    // The next Launch has the machine, and the end of the first one is known still: its bill needs it.
    expect(await list(cloud)).toMatchObject([
      { launch: "next", state: "booting" },
      { launch: winner?.launch, state: "terminated", terminationTime: expect.any(String) },
    ])
  })

  it("ends at once a Launch that no host has begun", async () => {
    const { join, spec, list, hosts, namespace } = world
    await join("unbegun")
    const vm = await cloud.launch(spec("unbegun-1", "unbegun"))
    await cloud.terminate(vm)
    expect((await list(cloud)).find(({ launch }) => launch === "unbegun-1")).toMatchObject({ state: "terminated" })
    await hosts.step(namespace)
    expect(hosts.boots.get("unbegun-1")).toBeUndefined()
  })

  it("never gives a machine to a project that it doesn't serve", async () => {
    const other = await setUp()
    const { join, spec, namespace } = world
    await join("private")
    await join("common", { shared: true })
    const theirs = await other.open()
    await expect(theirs.launch(spec("theirs-1", `${namespace}/private`))).rejects.toThrow("has no machine")
    await expect(theirs.launch(spec("theirs-2", "private"))).rejects.toThrow("has no machine")
    expect(await theirs.launch(spec("theirs-3", `${namespace}/common`))).toMatchObject({ launch: "theirs-3" })
    expect(await world.list(theirs)).toMatchObject([{ launch: "theirs-3" }])
    expect((await world.list(cloud)).filter(({ launch }) => launch.startsWith("theirs"))).toEqual([])
  })

  it("gives no job to a machine that is drained, unfit or silent", async () => {
    const { join, spec, ref } = world
    await join("drained", { unschedulable: true })
    await expect(cloud.launch(spec("d-1", "drained"))).rejects.toThrow("is drained")
    await join("unfit")
    const { metadata } = await client.get(MACHINES, ref("unfit"))
    const merge = { metadata: { resourceVersion: metadata.resourceVersion }, status: { host: { unfit: "no engine" } } }
    await client.patchStatus(MACHINES, ref("unfit"), { merge }, { fieldManager: "berth-gateway" })
    await expect(cloud.launch(spec("u-1", "unfit"))).rejects.toThrow("can run no job: no engine")
  })
})
