import { mkdtemp, readdir, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterEach, beforeEach, describe, expect, it } from "vitest"
import { forgetUnneeded } from "../../dev/ended-vms.ts"
import { LocalCloud } from "../../dev/local-cloud/local.ts"
import { localOffers } from "../../dev/local-cloud/offers.ts"
import { powerOff, takeOverPlans } from "../../dev/power-off.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import { KubeClient } from "../../src/core/kube/client.ts"
import { LAUNCHES } from "../../src/core/resources.ts"
import { kubeConfig } from "../control-plane.ts"
import { eventually } from "../harness/eventually.ts"
import { launchFixture } from "../harness/launches.ts"

const AGENT = [process.execPath, join(import.meta.dirname, "..", "cloud", "test-agent.mjs")]
const [offer] = localOffers()
if (offer === undefined) throw new Error("the local cloud has no offer")

const fixture = launchFixture("local-vms")
const { client, namespace: systemNamespace } = fixture
const scope = { installation: "test", region: "local" }

let dataDir: string
let cloud: LocalCloud

beforeEach(async () => {
  dataDir = await mkdtemp(join(tmpdir(), "berth-local-vms-"))
  cloud = new LocalCloud({
    dataDir,
    agentCommand: AGENT,
    region: "local",
    clock: systemClock,
    onError: (error) => {
      throw error
    },
  })
})
afterEach(async () => {
  for (const vm of await cloud.list(scope)) await cloud.kill(vm)
  await cloud.close()
  await rm(dataDir, { recursive: true })
})

/** Creates a Launch and its VM, whose agent runs. */
const launched = async (): Promise<StoredLaunch> => {
  const launch = await fixture.launch({})
  const { name } = launch.metadata
  const { lifetimeSeconds } = launch.spec
  await cloud.launch({ name, installation: "test", tags: {}, offer, userData: "{}", lifetimeSeconds })
  await eventually(() => readdir(join(dataDir, name, "disk")).then((files) => expect(files).toContain("boots")))
  return launch
}

const options = () => ({ cloud, scope, client, systemNamespace, clock: systemClock, seconds: 20 })

/** Client of an API server that has died. */
function deadClient(): KubeClient {
  const config = kubeConfig()
  for (const cluster of config.clusters) Object.assign(cluster, { server: "https://127.0.0.1:1" })
  return new KubeClient(config)
}

describe("a planned power-off of local VMs", () => {
  const loss = async (launch: StoredLaunch) => (await fixture.read(launch)).status?.loss

  it("is taken over at the next start if the API server had died, and only for VMs that are still needed", async () => {
    const [running, over, elsewhere] = [await launched(), await launched(), await fixture.launch({})]
    const dead = deadClient()
    const { ended, failures } = await powerOff({ ...options(), client: dead })
    await dead.close()
    expect({ ended, failures }).toEqual({ ended: 2, failures: [] })
    expect(await loss(running)).toBeUndefined()
    await fixture.end(over)
    await takeOverPlans(options())
    expect(await loss(running)).toMatchObject({ reason: "PoweredOff", message: expect.stringContaining("was stopped") })
    expect(await loss(over)).toBeUndefined()
    expect(await loss(elsewhere)).toBeUndefined()
    const before = await fixture.read(running)
    await takeOverPlans(options())
    expect((await fixture.read(running)).metadata.resourceVersion).toBe(before.metadata.resourceVersion)
  })

  it("is on the Launch at once if the API server lives", async () => {
    const launch = await launched()
    expect(await powerOff(options())).toEqual({ ended: 1, failures: [] })
    expect(await loss(launch)).toMatchObject({ reason: "PoweredOff" })
  })
})

it("records of local VMs stay as long as their Launch, and no longer", async () => {
  const [kept, dropped] = [await launched(), await launched()]
  const alive = await launched()
  const shown = async () => (await cloud.list(scope)).map(({ launch }) => launch).sort()
  const names = (...launches: StoredLaunch[]) => launches.map(({ metadata }) => metadata.name).sort()
  for (const launch of [kept, dropped]) {
    await cloud.kill({ id: launch.metadata.name, launch: launch.metadata.name, region: "local" })
  }
  await forgetUnneeded(options())
  expect(await shown()).toEqual(names(kept, dropped, alive))
  // A VM that runs is the garbage collection's, whatever its Launch.
  for (const { metadata } of [dropped, alive]) {
    await client.delete(LAUNCHES, { namespace: systemNamespace, name: metadata.name })
  }
  await forgetUnneeded(options())
  expect(await shown()).toEqual(names(kept, alive))
  expect(await readdir(dataDir)).toHaveLength(2)
})
