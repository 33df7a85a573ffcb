import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { LocalCloud } from "../../dev/local-cloud/local.ts"
import { LOCAL_REGION } from "../../dev/local-cloud/offers.ts"
import { openAws } from "../../src/clouds/aws/aws.ts"
import { openAzure } from "../../src/clouds/azure/azure.ts"
import type { CloudAccount, Clouds } from "../../src/clouds/cloud.ts"
import { openGcp } from "../../src/clouds/gcp/gcp.ts"
import { clientsOf } from "../../src/clouds/nebius/client.ts"
import { openNebius } from "../../src/clouds/nebius/nebius.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import { billedUsd, roundUsd } from "../../src/core/apis/money.ts"
import type { Offer } from "../../src/core/apis/offer.ts"
import type { KubeClient } from "../../src/core/kube/client.ts"
import { ArmServer } from "../cloud/arm-server.ts"
import { Ec2Console, isGone, launchOf } from "../cloud/ec2-console.ts"
import { Ec2Proxy } from "../cloud/ec2-proxy.ts"
import { GceServer } from "../cloud/gce-server.ts"
import { refusalOf } from "../cloud/nebius-description.ts"
import { NebiusServer } from "../cloud/nebius-server.ts"
import { offerOf } from "../harness/builders.ts"
import type { ShiftedClock } from "../harness/shifted-clock.ts"
import { SimCloud } from "../harness/sim-cloud.ts"
import { type Moto, startMoto } from "../moto.ts"
import { AwsProxy } from "./crash-aws-door.ts"
import type { Life, Observer } from "./crash-gate.ts"
import type { Finding } from "./tally.ts"

/** Account of a cloud for one run of a scenario, with a view of its VMs that is independent of Berth. */
export interface CloudFixture {
  /** Accounts that need no connection. */
  accounts: readonly CloudAccount[]
  /** True if its VMs are those of a project. */
  needsProject?: true
  /** Offers: the first is the cheapest, the second is for tests without capacity. */
  offers: readonly Offer[]
  /** Returns the clouds for one operator process. */
  clouds(life: Life): Clouds
  /** Returns names of Launches, one for each VM that exists or is billed. */
  alive(installation: string): Promise<string[]>
  /** Returns the part of `alive` on which an agent may have started. Absent: all of `alive`. */
  booted?(installation: string): Promise<string[]>
  /** Preempts a VM. */
  takeBack(vmId: string): Promise<void>
  /** Lets the VM of a Launch end itself, and keeps no record of it. Absent: scenarios that need it run on other clouds. */
  powerOff?(launch: string): void
  /** Returns what is wrong with VMs and costs at the end, by the cloud's own view. Absent: the bill says it all. */
  harm?(launches: readonly StoredLaunch[]): Finding[]
  /** Returns the bill of all VMs that ever existed, USD. Absent: the cloud writes none. */
  billUsd?(): number
  /** Removes the capacity for the first offer. */
  sellOut(): void | Promise<void>
  /** Requests that the cloud's API doesn't describe. */
  violations(): readonly string[]
  close(): Promise<void>
}

/** Installation that uses a cloud. */
export interface Installed extends Pick<Observer, "onTerminate"> {
  client: KubeClient
  namespace: string
  systemNamespace: string
}

export type OpenCloudFixture = (clock: ShiftedClock, installed: Installed) => Promise<CloudFixture>

/** Longest billed minimum, so that a cost does not depend on a VM's lifetime. */
const MINIMUM_SECONDS = 24 * 3600

function pair(cloud: string, regions: readonly [string, string], types: readonly [string, string]): Offer[] {
  return types.map((instanceType, index) =>
    offerOf({
      ...{ cloud, region: regions[index] ?? "", instanceType, cpu: 2 + index, hourlyPriceUsd: 0.1 * (index + 1) },
      memoryGib: 8 * (index + 1),
      minimumBilledSeconds: MINIMUM_SECONDS,
    }),
  )
}

/** Opens a cloud in memory, which is fast. */
export const openSim: OpenCloudFixture = (clock) => {
  const cloud = new SimCloud(clock)
  cloud.remembersEnded = false
  const offers = pair("sim", ["here", "here"], ["small", "medium"])
  return Promise.resolve({
    accounts: [{ cloud: "sim", region: "here" }],
    offers,
    clouds: (life) => life.clouds(cloud),
    alive: () => Promise.resolve(cloud.alive.map(({ launch }) => launch)),
    takeBack: async (vmId) => cloud.lose(vmId, true),
    powerOff: (launch) => cloud.forget(launch),
    billUsd: () =>
      cloud.vms.reduce((total, { spec }) => {
        const { hourlyPriceUsd = 0, minimumBilledSeconds = 0 } = spec?.offer ?? {}
        return roundUsd(total + billedUsd(hourlyPriceUsd, 0, minimumBilledSeconds))
      }, 0),
    sellOut: () => {
      cloud.faults.push(...Array.from({ length: 99 }, () => ({ fault: "capacity" as const, instanceType: "small" })))
    },
    violations: () => cloud.breaches,
    close: () => Promise.resolve(),
  })
}

const TEST_AGENT = join(import.meta.dirname, "..", "cloud", "test-agent.mjs")

/** Opens the local cloud. Its agents are processes of this host, which run until they are killed. */
export const openLocal: OpenCloudFixture = async (clock) => {
  const dataDir = await mkdtemp(join(tmpdir(), "berth-crash-"))
  const opened: LocalCloud[] = []
  const open = (): LocalCloud => {
    const agentCommand = [process.execPath, TEST_AGENT]
    const cloud = new LocalCloud({ dataDir, agentCommand, region: LOCAL_REGION, clock, onError: () => undefined })
    opened.push(cloud)
    return cloud
  }
  const observer = open()
  const list = async (installation: string) =>
    (await observer.list({ installation, region: LOCAL_REGION })).filter(({ state }) => state !== "terminated")
  const region = [LOCAL_REGION, LOCAL_REGION] as const
  return {
    accounts: [{ cloud: "local", region: LOCAL_REGION }],
    offers: pair("local", region, ["local-1", "local-2"]),
    clouds: (life) => {
      const cloud = open()
      return life.clouds({ open: () => Promise.resolve(cloud) })
    },
    alive: async (installation) => (await list(installation)).map(({ launch }) => launch),
    takeBack: (vmId) => observer.terminate({ id: vmId, launch: vmId, region: LOCAL_REGION }),
    sellOut: () => {
      throw new Error("the local cloud never refuses")
    },
    violations: () => [],
    close: async () => {
      await Promise.all(opened.map((cloud) => cloud.close()))
      await rm(dataDir, { recursive: true, force: true, maxRetries: 5 })
    },
  }
}

const isGet = (method: string, path: string): boolean =>
  method === "GET" || /\/(token|wait)$/.test(path) || path.includes("/oauth2/")

export const openGoogle: OpenCloudFixture = async (clock) => {
  const project = "berth-test"
  const zones = { "us-central1": ["us-central1-a"], "europe-west1": ["europe-west1-b"] }
  const server = new GceServer({ project, regions: zones })
  await server.start()
  const credentials = { gcp_project_id: project, keyfile_json: server.keyfile }
  return {
    accounts: [{ cloud: "gcp", region: "us-central1" }],
    offers: pair("gcp", ["us-central1", "europe-west1"], ["e2-standard-2", "e2-standard-4"]),
    clouds: (life) => {
      const open = openGcp({ send: life.fetch(server.send, isGet), consistencySeconds: 1, callSeconds: 20, clock })
      return life.clouds({ open: async ({ region }) => open(credentials, region) })
    },
    alive: async (installation) => launchesOf(server, installation),
    // A VM that is still being created may fail for lack of capacity.
    booted: async (installation) => launchesOf(server, installation, "RUNNING"),
    takeBack: async (vmId) => {
      const [, zone = "", , name = ""] = vmId.split("/")
      server.preempt(zone, name)
    },
    sellOut: () => {
      server.insertErrors.set("us-central1-a", { code: "ZONE_RESOURCE_POOL_EXHAUSTED", message: "no machines" })
    },
    violations: () => server.violations,
    close: () => server.close(),
  }
}

/** Pattern for the name of a Launch at the end of a VM's name. */
const LAUNCH_NAME = /[0-9a-f]{8}-[0-9a-f-]{27}-\d+$/

/** Returns the names of the Launches of VMs on Compute Engine, optionally of one state. */
function launchesOf(server: GceServer, installation: string, state?: string): string[] {
  return server
    .instances()
    .filter(({ labels }) => Object.values(labels).includes(installation))
    .filter(({ status }) => state === undefined || status === state)
    .map(({ name }) => LAUNCH_NAME.exec(name)?.[0] ?? name)
}

export const openMicrosoft: OpenCloudFixture = async (clock) => {
  const server = new ArmServer()
  await server.start()
  let isSoldOut = false
  const types = ["Standard_D2s_v5", "Standard_D4s_v5"] as const
  const send: typeof fetch = async (input, init) => {
    const isFirst = String(init?.body ?? "").includes(`"${types[0]}"`)
    if (isSoldOut && init?.method === "PUT" && isFirst) server.faults.add("launch", "capacity")
    return await server.send(input, init)
  }
  return {
    accounts: [{ cloud: "azure", region: "westeurope" }],
    offers: pair("azure", ["westeurope", "westeurope"], types),
    clouds: (life) => {
      const gated = life.fetch(send, isGet)
      const open = openAzure({ send: gated, callSeconds: 20, lookSeconds: 0.05, consistencySeconds: 1, clock })
      return life.clouds({ open: async ({ region }) => open(server.credentials, region) })
    },
    alive: async () => server.requested().map(({ tags }) => (tags as Record<string, string>)["berth-launch"] ?? ""),
    takeBack: async (vmId) => server.evict(vmId),
    sellOut: () => {
      isSoldOut = true
    },
    violations: () => server.violations,
    close: () => server.close(),
  }
}

/** Opens Nebius' stand-in, whose description leaves some behaviour open: each is the harder one. */
export const openNebiusCloud: OpenCloudFixture = async (clock) => {
  const places = [
    { id: "project-e00home", region: "eu-north1" },
    { id: "project-u00away", region: "us-central1" },
  ]
  const server = new NebiusServer(places)
  await server.start()
  const types = ["cpu-d3_4vcpu-16gb", "cpu-d3_8vcpu-32gb"] as const
  const isRead = (path: string) => /[/](Get|List|Exchange)[A-Za-z]*$/.test(path)
  const launchesIn = (installation: string, isCounted: (state: string) => boolean) =>
    server
      .instances()
      .filter(({ state, metadata: { labels } }) => labels["berth-installation"] === installation && isCounted(state))
      .map(({ metadata: { labels } }) => labels["berth-launch"] ?? "")
  return {
    accounts: [{ cloud: "nebius", region: "eu-north1" }],
    offers: pair("nebius", ["eu-north1", "us-central1"], types),
    clouds: (life) => {
      const send = life.call(server.send, isRead)
      const open = openNebius(clientsOf({ send, callSeconds: 20, clock }), {
        consistencySeconds: 1,
        lookSeconds: 0.05,
        clock,
      })
      return life.clouds({ open: async ({ region }) => open(server.credentials, region) })
    },
    // A stopped VM counts: its disk is billed.
    alive: async (installation) => launchesIn(installation, () => true),
    // A VM that is still being created may fail for lack of capacity.
    booted: async (installation) => launchesIn(installation, (state) => state === "RUNNING"),
    // The offers are no spot machines, which alone are preempted: the host breaks.
    takeBack: async (vmId) => server.crash(vmId),
    sellOut: () => void server.createErrors.set(types[0], refusalOf("capacity")),
    violations: () => server.violations,
    close: () => server.close(),
  }
}

/**
 * Number of accounts that runs share in turn. Moto keeps terminated instances and searches all instances of an account
 * at each request. Another account needs only 0.2 s and 4 MiB.
 */
const ACCOUNTS = 50
const FIRST_ACCOUNT = 100_000_000_000
const EC2_REGION = "eu-west-1"

/** One moto for all runs on EC2. Each run has access keys and an installation of its own. */
export class Ec2Clouds {
  readonly #moto: Moto
  readonly #proxy: Ec2Proxy
  readonly #door: AwsProxy
  readonly #endpointBefore = process.env["AWS_ENDPOINT_URL"]
  #runs = 0

  private constructor(moto: Moto, proxy: Ec2Proxy, door: AwsProxy) {
    this.#moto = moto
    this.#proxy = proxy
    this.#door = door
    process.env["AWS_ENDPOINT_URL"] = door.url
  }

  static async start(): Promise<Ec2Clouds> {
    const moto = await startMoto()
    const proxy = await Ec2Proxy.start(moto)
    return new Ec2Clouds(moto, proxy, await AwsProxy.start(proxy.url))
  }

  async close(): Promise<void> {
    if (this.#endpointBefore === undefined) delete process.env["AWS_ENDPOINT_URL"]
    else process.env["AWS_ENDPOINT_URL"] = this.#endpointBefore
    await this.#door.close()
    await this.#proxy.stop()
    await this.#moto.stop()
  }

  readonly open: OpenCloudFixture = (clock) => {
    const account = String(FIRST_ACCOUNT + (this.#runs % ACCOUNTS))
    const console = new Ec2Console(this.#moto, EC2_REGION, account)
    const run = `run-${this.#runs++}`
    const types = ["t3.small", "m6i.large"] as const
    const keys: string[] = []
    let isSoldOut = false
    this.#proxy.faults.push({
      ...{ action: "RunInstances", when: "before", code: "InsufficientInstanceCapacity", status: 500 },
      times: Number.POSITIVE_INFINITY,
      if: ({ accessKeyId, parameters }) =>
        isSoldOut && keys.includes(accessKeyId) && parameters.get("InstanceType") === types[0],
    })
    const there = async (installation: string) =>
      (await console.instances("installation", installation)).filter((instance) => !isGone(instance))
    return Promise.resolve({
      accounts: [{ cloud: "aws", region: EC2_REGION }],
      offers: pair("aws", [EC2_REGION, EC2_REGION], types),
      clouds: (life) => {
        // Each process has a key of its own, by which the door identifies it.
        const key = `${run}-${keys.length}`
        keys.push(key)
        this.#door.admit(key, { life, account })
        const allowances = { RunInstances: { capacity: 1000, perSecond: 1000 } }
        const open = openAws({ clock, consistencySeconds: 1, answerSeconds: 20, allowances })
        const credentials = { access_key_id: key, secret_access_key: "secret" }
        return life.clouds({ open: async ({ region }) => open(credentials, region) })
      },
      alive: async (installation) => (await there(installation)).map(launchOf),
      takeBack: (vmId) => this.#proxy.takeBack(vmId, EC2_REGION, account),
      sellOut: () => {
        isSoldOut = true
      },
      violations: () => this.#proxy.breaches,
      close: async () => console.close(),
    })
  }
}
