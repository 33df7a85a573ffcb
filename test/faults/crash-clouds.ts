import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import type { Offer } from "../../src/apis/offer.ts"
import { openAws } from "../../src/cloud/aws/aws.ts"
import { openAzure } from "../../src/cloud/azure/azure.ts"
import { openGcp } from "../../src/cloud/gcp/gcp.ts"
import { LocalCloud } from "../../src/cloud/local/local.ts"
import { LOCAL_REGION } from "../../src/cloud/local/offers.ts"
import type { CloudAccount, Clouds } from "../../src/cloud/provider.ts"
import { ArmServer } from "../cloud/arm-server.ts"
import { Ec2Console, isGone, launchOf } from "../cloud/ec2-console.ts"
import { Ec2Proxy } from "../cloud/ec2-proxy.ts"
import { GceServer } from "../cloud/gce-server.ts"
import { offerOf } from "../controllers/builders.ts"
import type { ShiftedClock } from "../controllers/shifted-clock.ts"
import { SimCloud } from "../controllers/sim-cloud.ts"
import { type Moto, startMoto } from "../moto.ts"
import { AwsDoor } from "./crash-aws-door.ts"
import type { Life } from "./crash-gate.ts"

/** One account of a cloud on which a scenario is played, seen by another witness than Berth. */
export interface Theatre {
  account: CloudAccount
  /** The first one is the choice; where capacity is short, the second. */
  offers: readonly Offer[]
  /** What an operator reaches it by. */
  clouds(life: Life): Clouds
  /** Names of Launches, one for each of their VMs that is there, or billed. */
  alive(installation: string): Promise<string[]>
  /** Those of `alive` on which an agent may have begun; without it, all. */
  booted?(installation: string): Promise<string[]>
  /** Takes a VM away, as clouds do with spot VMs. */
  takeBack(vmId: string): Promise<void>
  /** Sells the first offer no more. */
  sellOut(): void
  /** What was asked that the cloud's API doesn't have. */
  violations(): readonly string[]
  close(): Promise<void>
}

export type OpenTheatre = (clock: ShiftedClock) => Promise<Theatre>

/** The longest minimum that is billed: so a cost doesn't tell how long a VM was there. */
const MINIMUM_SECONDS = 24 * 3600

function pair(cloud: string, regions: readonly [string, string], types: readonly [string, string]): Offer[] {
  return types.map((instanceType, index) =>
    offerOf({
      ...{ cloud, region: regions[index] ?? "", instanceType, cpu: 2 + index, hourlyPriceUsd: 0.1 * (index + 1) },
      minimumBilledSeconds: MINIMUM_SECONDS,
    }),
  )
}

/** A cloud in memory: fast. */
export const openSim: OpenTheatre = (clock) => {
  const cloud = new SimCloud(clock)
  cloud.remembersEnded = false
  const account = { cloud: "sim", region: "here" }
  const offers = pair("sim", ["here", "here"], ["small", "medium"])
  return Promise.resolve({
    account,
    offers,
    clouds: (life) => life.clouds(cloud),
    alive: () => Promise.resolve(cloud.alive.map(({ launch }) => launch)),
    takeBack: async (vmId) => cloud.lose(vmId, true),
    sellOut: () => {
      cloud.faults.push(...Array.from({ length: 99 }, () => ({ fault: "capacity" as const, instanceType: "small" })))
    },
    violations: () => cloud.breaches,
    close: () => Promise.resolve(),
  })
}

const TEST_AGENT = join(import.meta.dirname, "..", "cloud", "test-agent.mjs")

/** Agents as processes of this host, which stay until they are ended. */
export const openLocal: OpenTheatre = async (clock) => {
  const dataDir = await mkdtemp(join(tmpdir(), "berth-crash-"))
  const opened: LocalCloud[] = []
  const open = (): LocalCloud => {
    const agentCommand = [process.execPath, TEST_AGENT]
    const cloud = new LocalCloud({ dataDir, agentCommand, region: LOCAL_REGION, clock, onError: () => undefined })
    opened.push(cloud)
    return cloud
  }
  const witness = open()
  const list = async (installation: string) =>
    (await witness.list({ installation, region: LOCAL_REGION })).filter(({ state }) => state !== "terminated")
  const region = [LOCAL_REGION, LOCAL_REGION] as const
  return {
    account: { cloud: "local", region: LOCAL_REGION },
    offers: pair("local", region, ["local-1", "local-2"]),
    clouds: (life) => {
      const cloud = open()
      return life.clouds({ open: () => Promise.resolve(cloud) })
    },
    alive: async (installation) => (await list(installation)).map(({ launch }) => launch),
    takeBack: (vmId) => witness.terminate({ id: vmId, launch: vmId, region: LOCAL_REGION }),
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

export const openGoogle: OpenTheatre = async (clock) => {
  const project = "berth-test"
  const zones = { "us-central1": ["us-central1-a"], "europe-west1": ["europe-west1-b"] }
  const server = new GceServer({ project, regions: zones })
  await server.start()
  const credentials = { gcp_project_id: project, keyfile_json: server.keyfile }
  return {
    account: { cloud: "gcp", region: "us-central1" },
    offers: pair("gcp", ["us-central1", "europe-west1"], ["e2-standard-2", "e2-standard-4"]),
    clouds: (life) => {
      const open = openGcp({ send: life.fetch(server.send, isGet), consistencySeconds: 1, callSeconds: 20, clock })
      return life.clouds({ open: async ({ region }) => open(credentials, region) })
    },
    alive: async (installation) => launchesOf(server, installation),
    // One that is only being made may still turn out to be one too many for its zone.
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

/** The name of a Launch at the end of a VM's. */
const LAUNCH_NAME = /[0-9a-f]{8}-[0-9a-f-]{27}-\d+$/

/** Names of the Launches that VMs on Compute Engine are of, those in one state or all. */
function launchesOf(server: GceServer, installation: string, state?: string): string[] {
  return server
    .instances()
    .filter(({ labels }) => Object.values(labels).includes(installation))
    .filter(({ status }) => state === undefined || status === state)
    .map(({ name }) => LAUNCH_NAME.exec(name)?.[0] ?? name)
}

export const openMicrosoft: OpenTheatre = async (clock) => {
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
    account: { cloud: "azure", region: "westeurope" },
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

/**
 * So many accounts are taken in turns: moto keeps instances that have ended and looks through all of an account's for each
 * request, but needs 0.2 s and 4 MiB for another account.
 */
const ACCOUNTS = 50
const FIRST_ACCOUNT = 100_000_000_000
const EC2_REGION = "eu-west-1"

/** One moto for all that is played on EC2; each play has access keys and an installation of its own. */
export class Ec2Stage {
  readonly #moto: Moto
  readonly #proxy: Ec2Proxy
  readonly #door: AwsDoor
  readonly #endpointBefore = process.env["AWS_ENDPOINT_URL"]
  #plays = 0

  private constructor(moto: Moto, proxy: Ec2Proxy, door: AwsDoor) {
    this.#moto = moto
    this.#proxy = proxy
    this.#door = door
    process.env["AWS_ENDPOINT_URL"] = door.url
  }

  static async start(): Promise<Ec2Stage> {
    const moto = await startMoto()
    const proxy = await Ec2Proxy.start(moto)
    return new Ec2Stage(moto, proxy, await AwsDoor.start(proxy.url))
  }

  async close(): Promise<void> {
    if (this.#endpointBefore === undefined) delete process.env["AWS_ENDPOINT_URL"]
    else process.env["AWS_ENDPOINT_URL"] = this.#endpointBefore
    await this.#door.close()
    await this.#proxy.stop()
    await this.#moto.stop()
  }

  readonly open: OpenTheatre = (clock) => {
    const account = String(FIRST_ACCOUNT + (this.#plays % ACCOUNTS))
    const console = new Ec2Console(this.#moto, EC2_REGION, account)
    const play = `play-${this.#plays++}`
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
      account: { cloud: "aws", region: EC2_REGION },
      offers: pair("aws", [EC2_REGION, EC2_REGION], types),
      clouds: (life) => {
        // A key for each life: so the door knows who asks.
        const key = `${play}-${keys.length}`
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
