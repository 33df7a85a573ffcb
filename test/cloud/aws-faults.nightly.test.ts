import { type Instance, RunInstancesCommand } from "@aws-sdk/client-ec2"
import { afterAll, beforeAll, expect, vi } from "vitest"
import { openAws } from "../../src/clouds/aws/aws.ts"
import { TAGS } from "../../src/clouds/aws/tags.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import { inParallel } from "../../src/core/apis/in-parallel.ts"
import { isOver } from "../../src/core/apis/launch.ts"
import type { Offer } from "../../src/core/apis/offer.ts"
import { ifFound } from "../../src/core/kube/errors.ts"
import { LAUNCHES } from "../../src/core/resources.ts"
import {
  type ControllerHarness,
  controllerHarnesses,
  type Operator,
  type OperatorOptions,
} from "../harness/controllers.ts"
import { eventually } from "../harness/eventually.ts"
import { type Moto, startMoto } from "../moto.ts"
import { missingTool, needing } from "../needing.ts"
import { Ec2Console, isGone, launchOf } from "./ec2-console.ts"
import { type AwsRequest, type Ec2Fault, Ec2Proxy } from "./ec2-proxy.ts"

const { describe, it: test } = needing(missingTool("moto"))

const REGION = "eu-west-1"
const ACCOUNT = { cloud: "aws", region: REGION }

/** Offers in the order of their price, each of another family, because quotas are granted by family. */
const OFFERS: readonly Offer[] = ["t3.small", "m6i.large", "c6i.xlarge", "r6i.2xlarge"].map((instanceType, index) => ({
  ...ACCOUNT,
  instanceType,
  architecture: "amd64",
  provisioning: "onDemand",
  cpu: 2 ** (index + 1),
  memoryGib: 8 * (index + 1),
  hourlyPriceUsd: 0.1 * (index + 1),
  minimumBilledSeconds: 60,
}))

/** One error of AWS for each class of `core/outbound/errors.ts`. */
const ERRORS = [
  { code: "InsufficientInstanceCapacity", status: 500 },
  { code: "VcpuLimitExceeded", status: 400 },
  { code: "UnauthorizedOperation", status: 403 },
  { code: "OptInRequired", status: 401 },
  { code: "InvalidParameterValue", status: 400 },
  { code: "RequestLimitExceeded", status: 503 },
  { code: "InternalError", status: 500 },
]
const ACTIONS = ["RunInstances", "DescribeInstances", "TerminateInstances"]

/** Each action meets each error before its effect and after it. */
const FAULTS: Ec2Fault[] = ACTIONS.flatMap((action): Ec2Fault[] => [
  ...ERRORS.flatMap((error): Ec2Fault[] => [
    { action, when: "before", ...error },
    { action, when: "after", ...error },
  ]),
  { action, when: "lost" },
])

const newHarness = controllerHarnesses()
let moto: Moto
let proxy: Ec2Proxy
let console_: Ec2Console

beforeAll(async () => {
  moto = await startMoto()
  proxy = await Ec2Proxy.start(moto)
  // Like EC2: lists do not show an instance immediately.
  proxy.hideSeconds = 0.3
  console_ = new Ec2Console(moto, REGION)
  vi.stubEnv("AWS_ENDPOINT_URL", proxy.url)
})
afterAll(async () => {
  console_.close()
  vi.unstubAllEnvs()
  await proxy.stop()
  await moto.stop()
})

/** One job in an account of its own, with agents that do their work wherever a VM runs. */
class Scenario {
  readonly harness: ControllerHarness
  readonly #operator: Operator

  constructor(harness: ControllerHarness, options: Partial<OperatorOptions> = {}) {
    this.harness = harness
    const open = openAws({ clock: systemClock, consistencySeconds: 1, allowances: UNPACED })
    const credentials = { access_key_id: harness.namespace, secret_access_key: "secret" }
    this.#operator = harness.operator({
      clients: {
        client: harness.client,
        clouds: { open: async ({ region }) => open(credentials, region) },
        fence: () => undefined,
      },
      market: { offers: OFFERS, account: ACCOUNT },
      settings: { cooldownSeconds: 1, maxCooldownSeconds: 1, capRetrySeconds: 1, connectionRetrySeconds: 1 },
      observeSeconds: 0.4,
      youngSeconds: 0,
      ...options,
    })
  }

  instances(): Promise<Instance[]> {
    return console_.instances("installation", this.harness.installation)
  }

  /**
   * Runs one step of the agents on all running VMs. An agent without a current Launch is rejected and powers its VM
   * off.
   */
  async agentsStep(): Promise<void> {
    for (const instance of (await this.instances()).filter((each) => !isGone(each))) {
      const name = launchOf(instance)
      const launch = await ifFound(this.harness.client.get(LAUNCHES, { namespace: this.harness.namespace, name }))
      if (launch === undefined || isOver(launch) || launch.spec.ended === true) continue
      const agent = launch.status?.agent
      if (agent === undefined) await this.harness.register(name)
      else if (agent.startTime === undefined) await this.harness.start(name)
      else if (agent.finish === undefined) await this.harness.finish(name, "Succeeded")
    }
  }

  /** Resolves when the job has ended, its cost is final, and its Launches are terminated. */
  async over(): Promise<void> {
    await eventually(async () => {
      await this.agentsStep()
      const { status } = await this.harness.job("job")
      expect(status?.cost?.actualUsd).toBeDefined()
      expect((await this.harness.launches()).filter((launch) => !isOver(launch))).toEqual([])
    }, 120)
  }

  /** Runs two rounds, after which each orphan is terminated. */
  async collectGarbage(): Promise<void> {
    await this.#operator.launchControl.garbageCollector.round()
    await this.#operator.launchControl.garbageCollector.round()
  }

  async close(): Promise<void> {
    await this.#operator.stop()
    await this.harness.close()
  }
}

const UNPACED = { RunInstances: { capacity: 1000, perSecond: 1000 } }

function nameOf({ action, when, code = "no answer" }: Ec2Fault): string {
  return `${action}: ${code}, ${when === "before" ? "nothing has happened" : "it has happened"}`
}

async function playWith(fault: Ec2Fault): Promise<void> {
  const harness = await newHarness()
  const about = nameOf(fault)
  proxy.faults.push({ ...fault, if: ({ accessKeyId }) => accessKeyId === harness.namespace })
  const scenario = new Scenario(harness)
  await harness.submit("job")
  await scenario.over()
  expect((await harness.job("job")).status?.phase, about).toBe("succeeded")
  const met = proxy.faults.every((left) => left.if?.({ accessKeyId: harness.namespace } as never) !== true)
  expect(met, `${about}: the fault was met`).toBe(true)
  const launches = (await scenario.instances()).map(launchOf)
  expect(launches.length, `${about}: VMs of ${launches.join(", ")}`).toBe(new Set(launches).size)
  await scenario.collectGarbage()
  expect(
    (await scenario.instances()).filter((instance) => !isGone(instance)),
    about,
  ).toEqual([])
  await scenario.close()
}

describe("a job on EC2", () => {
  test.each(ACTIONS)(
    "%s meets each kind of error, before or after its effect: creates one VM for each Launch, leaves none, and the job succeeds",
    async (action) => {
      const faults = FAULTS.filter((fault) => fault.action === action)
      expect(faults).toHaveLength(15)
      await inParallel(faults, 8, (fault) => playWith(fault))
      expect(proxy.breaches).toEqual([])
    },
    300_000,
  )

  test("buys a spot-first job on demand when there is no spot capacity, cheapest first, and lists both attempts", async () => {
    const harness = await newHarness()
    const isSpot = ({ accessKeyId, parameters }: AwsRequest): boolean =>
      accessKeyId === harness.namespace && parameters.get("InstanceMarketOptions.MarketType") === "spot"
    proxy.faults.push({
      action: "RunInstances",
      when: "before",
      code: "MaxSpotInstanceCountExceeded",
      times: 99,
      if: isSpot,
    })
    const spot = OFFERS.map((offer) => ({
      ...offer,
      provisioning: "spot" as const,
      hourlyPriceUsd: offer.hourlyPriceUsd / 3,
    }))
    const settings = { cooldownSeconds: 300, maxCooldownSeconds: 3600 }
    const scenario = new Scenario(harness, { market: { offers: [...OFFERS, ...spot], account: ACCOUNT }, settings })
    await harness.submit("job", { provisioning: "spotFirst" })
    await scenario.over()
    const { status } = await harness.job("job")
    expect(status?.phase).toBe("succeeded")
    expect(status?.refusedOffers?.map(({ provisioning, reason }) => [provisioning, reason])).toContainEqual([
      "spot",
      "Quota",
    ])
    expect(await scenario.instances()).toEqual([expect.objectContaining({ InstanceType: "t3.small" })])
    expect((await scenario.instances())[0]?.InstanceLifecycle).toBeUndefined()
    proxy.faults.length = 0
    await scenario.close()
  })

  test("moves to another region when the account has not enabled the first, which then has a cooldown", async () => {
    const harness = await newHarness()
    const code = "OptInRequired"
    const isClosed = ({ accessKeyId, region }: AwsRequest): boolean =>
      accessKeyId === harness.namespace && region === REGION
    proxy.faults.push({ action: "RunInstances", when: "before", code, status: 401, times: 99, if: isClosed })
    const elsewhere = OFFERS.map((offer) => ({
      ...offer,
      region: "eu-west-3",
      hourlyPriceUsd: offer.hourlyPriceUsd * 10,
    }))
    const settings = { cooldownSeconds: 300, maxCooldownSeconds: 3600 }
    const scenario = new Scenario(harness, {
      market: { offers: [...OFFERS, ...elsewhere], account: ACCOUNT },
      settings,
    })
    await harness.submit("job")
    await eventually(async () => {
      const launches = await harness.launches()
      expect(launches.map(({ spec, status }) => [spec.offer.region, status?.phase])).toEqual([
        [REGION, "refused"],
        ["eu-west-3", "created"],
      ])
    })
    await harness.cancel("job")
    await eventually(async () => expect((await harness.launches()).every(isOver)).toBe(true))
    proxy.faults.length = 0
    await scenario.close()
  })
})

describe("garbage collection on EC2", () => {
  test("deletes orphans and second VMs of a Launch, and keeps young VMs and those of other installations", async () => {
    const harness = await newHarness()
    const scenario = new Scenario(harness, { youngSeconds: 60 })
    await harness.submit("job")
    const live = await eventually(() => harness.liveLaunch())
    const cloud = openAws({ clock: systemClock, allowances: UNPACED })(
      { access_key_id: "another", secret_access_key: "secret" },
      REGION,
    )
    const plant = (name: string, installation = harness.installation) =>
      cloud.launch({
        name,
        installation,
        tags: {},
        offer: OFFERS[0] as Offer,
        imageId: "ami-0123456789abcdef0",
        userData: "#!",
        lifetimeSeconds: 60,
      })
    const orphan = await plant("orphan-1")
    const foreign = await plant("orphan-1", `${harness.installation}-other`)
    const second = await runOnce(live.metadata.name, harness.installation)
    const terminated = async () => {
      await scenario.collectGarbage()
      return new Set((await scenario.instances()).filter(isGone).map(({ InstanceId }) => InstanceId))
    }
    expect(await terminated()).toEqual(new Set())
    harness.clock.advance(60)
    await eventually(async () => expect(await terminated()).toEqual(new Set([orphan.id, second])))
    expect((await console_.instances("installation", `${harness.installation}-other`)).filter(isGone)).toEqual([])
    expect((await scenario.instances()).filter((instance) => !isGone(instance)).map(launchOf)).toEqual([
      live.metadata.name,
    ])
    await cloud.terminate(foreign)
    await harness.cancel("job")
    await eventually(async () => expect((await harness.launches()).every(isOver)).toBe(true))
    await scenario.close()
  })
})

/** Starts an instance with the tags of a Launch that already has its VM, like a stranger would. */
async function runOnce(launch: string, installation: string): Promise<string> {
  const Tags = [
    { Key: TAGS.launch, Value: launch },
    { Key: TAGS.installation, Value: installation },
  ]
  const { Instances = [] } = await console_.client.send(
    new RunInstancesCommand({
      MinCount: 1,
      MaxCount: 1,
      ImageId: "ami-0123456789abcdef0",
      TagSpecifications: [{ ResourceType: "instance", Tags }],
    }),
  )
  return Instances[0]?.InstanceId ?? ""
}
