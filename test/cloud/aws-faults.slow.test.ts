import { type Instance, RunInstancesCommand } from "@aws-sdk/client-ec2"
import { afterAll, beforeAll, expect } from "vitest"
import { systemClock } from "../../src/apis/clock.ts"
import { isOver } from "../../src/apis/launch.ts"
import type { Offer } from "../../src/apis/offer.ts"
import { openAws } from "../../src/cloud/aws/aws.ts"
import { TAGS } from "../../src/cloud/aws/tags.ts"
import { isNotFound } from "../../src/kube/errors.ts"
import { LAUNCHES, type Operator, type OperatorOptions, type Stage, stages } from "../controllers/harness.ts"
import { type Moto, startMoto } from "../moto.ts"
import { missingTool, needing } from "../needing.ts"
import { Ec2Console, isGone, launchOf } from "./ec2-console.ts"
import { type AwsRequest, type Ec2Fault, Ec2Proxy } from "./ec2-proxy.ts"
import { eventually } from "./eventually.ts"

const { describe, it: test } = needing(missingTool("moto"))

const REGION = "eu-west-1"
const ACCOUNT = { cloud: "aws", region: REGION }

/** Each the next choice after the one before, and of a family of its own, as quotas are granted by family. */
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

/** One error of AWS for each class of `cloud/errors.ts`. */
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

const FAULTS: Ec2Fault[] = ACTIONS.flatMap((action): Ec2Fault[] => [
  ...ERRORS.flatMap((error) => [
    { action, when: "before" as const, ...error },
    { action, when: "after" as const, ...error },
  ]),
  { action, when: "lost" },
])

const newStage = stages()
let moto: Moto
let proxy: Ec2Proxy
let console_: Ec2Console

beforeAll(async () => {
  moto = await startMoto()
  proxy = await Ec2Proxy.start(moto)
  // As real as it gets: no list shows what was just made.
  proxy.hideSeconds = 0.3
  console_ = new Ec2Console(moto, REGION)
  process.env["AWS_ENDPOINT_URL"] = proxy.url
})
afterAll(async () => {
  console_.close()
  await proxy.stop()
  await moto.stop()
})

/** One job in an account of its own, with agents that do their work wherever a VM runs. */
class Play {
  readonly stage: Stage
  readonly #operator: Operator

  constructor(stage: Stage, options: Partial<OperatorOptions> = {}) {
    this.stage = stage
    const open = openAws({ clock: systemClock, consistencySeconds: 1, allowances: UNPACED })
    const credentials = { access_key_id: stage.namespace, secret_access_key: "secret" }
    this.#operator = stage.operator({
      membrane: {
        client: stage.client,
        clouds: { open: async ({ region }) => open(credentials, region) },
        fence: () => undefined,
      },
      market: { offers: OFFERS, account: ACCOUNT },
      settings: { restSeconds: 1, restCapSeconds: 1, capRetrySeconds: 1, connectionRetrySeconds: 1 },
      observeSeconds: 0.4,
      youngSeconds: 0,
      ...options,
    })
  }

  instances(): Promise<Instance[]> {
    return console_.instances("installation", this.stage.installation)
  }

  /** One step of the agents on all VMs that run; one whose Launch is not current is refused and powers its VM off. */
  async agentsStep(): Promise<void> {
    for (const instance of (await this.instances()).filter((each) => !isGone(each))) {
      const name = launchOf(instance)
      const launch = await this.stage.client
        .get(LAUNCHES, { namespace: this.stage.namespace, name })
        .catch(ignoreNotFound)
      if (launch === undefined || isOver(launch) || launch.spec.ended === true) continue
      const agent = launch.status?.agent
      if (agent === undefined) await this.stage.register(name)
      else if (agent.startTime === undefined) await this.stage.start(name)
      else if (agent.finish === undefined) await this.stage.finish(name, "Succeeded")
    }
  }

  /** Until the job has ended, its cost is final, and its Launches are over. */
  async over(): Promise<void> {
    await eventually(async () => {
      await this.agentsStep()
      const { status } = await this.stage.job("job")
      expect(status?.cost?.actualUsd).toBeDefined()
      expect((await this.stage.launches()).filter((launch) => !isOver(launch))).toEqual([])
    }, 120)
  }

  /** Two rounds, after which each orphan is terminated. */
  async collectGarbage(): Promise<void> {
    await this.#operator.launchControl.garbageCollector.round()
    await this.#operator.launchControl.garbageCollector.round()
  }

  async close(): Promise<void> {
    await this.#operator.stop()
    await this.stage.close()
  }
}

const UNPACED = { RunInstances: { capacity: 1000, perSecond: 1000 } }

function ignoreNotFound(error: unknown): undefined {
  if (!isNotFound(error)) throw error
  return undefined
}

function nameOf({ action, when, code = "no answer" }: Ec2Fault): string {
  return `${action}: ${code}, ${when === "before" ? "nothing has happened" : "it has happened"}`
}

async function playWith(fault: Ec2Fault): Promise<void> {
  const stage = await newStage()
  const about = nameOf(fault)
  proxy.faults.push({ ...fault, if: ({ accessKeyId }) => accessKeyId === stage.namespace })
  const play = new Play(stage)
  await stage.submit("job")
  await play.over()
  expect((await stage.job("job")).status?.phase, about).toBe("succeeded")
  const met = proxy.faults.every((left) => left.if?.({ accessKeyId: stage.namespace } as never) !== true)
  expect(met, `${about}: the fault was met`).toBe(true)
  const launches = (await play.instances()).map(launchOf)
  expect(launches.length, `${about}: VMs of ${launches.join(", ")}`).toBe(new Set(launches).size)
  await play.collectGarbage()
  expect(
    (await play.instances()).filter((instance) => !isGone(instance)),
    about,
  ).toEqual([])
  await play.close()
}

/** Runs so many at a time. */
async function inParallel(tasks: readonly (() => Promise<void>)[], width: number): Promise<void> {
  const left = [...tasks]
  const worker = async (): Promise<void> => {
    for (let task = left.shift(); task !== undefined; task = left.shift()) await task()
  }
  await Promise.all(Array.from({ length: width }, worker))
}

describe("a job on EC2", () => {
  test.each(ACTIONS)(
    "%s meets each kind of error, before or after its effect: one VM for each Launch, none left, the job succeeds",
    async (action) => {
      const faults = FAULTS.filter((fault) => fault.action === action)
      expect(faults).toHaveLength(15)
      await inParallel(
        faults.map((fault) => () => playWith(fault)),
        8,
      )
      expect(proxy.breaches).toEqual([])
    },
    300_000,
  )

  test("that takes spot first is bought on demand when there is none, cheapest first, and both tries are told", async () => {
    const stage = await newStage()
    const isSpot = ({ accessKeyId, parameters }: AwsRequest): boolean =>
      accessKeyId === stage.namespace && parameters.get("InstanceMarketOptions.MarketType") === "spot"
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
    const settings = { restSeconds: 300, restCapSeconds: 3600 }
    const play = new Play(stage, { market: { offers: [...OFFERS, ...spot], account: ACCOUNT }, settings })
    await stage.submit("job", { provisioning: "spotFirst" })
    await play.over()
    const { status } = await stage.job("job")
    expect(status?.phase).toBe("succeeded")
    expect(status?.refusedOffers?.map(({ provisioning, reason }) => [provisioning, reason])).toContainEqual([
      "spot",
      "Quota",
    ])
    expect(await play.instances()).toEqual([expect.objectContaining({ InstanceType: "t3.small" })])
    expect((await play.instances())[0]?.InstanceLifecycle).toBeUndefined()
    proxy.faults.length = 0
    await play.close()
  })

  test("in a region that its account has not enabled goes to another region, and that one is left alone", async () => {
    const stage = await newStage()
    const code = "OptInRequired"
    const isClosed = ({ accessKeyId, region }: AwsRequest): boolean =>
      accessKeyId === stage.namespace && region === REGION
    proxy.faults.push({ action: "RunInstances", when: "before", code, status: 401, times: 99, if: isClosed })
    const elsewhere = OFFERS.map((offer) => ({
      ...offer,
      region: "eu-west-3",
      hourlyPriceUsd: offer.hourlyPriceUsd * 10,
    }))
    const settings = { restSeconds: 300, restCapSeconds: 3600 }
    const play = new Play(stage, { market: { offers: [...OFFERS, ...elsewhere], account: ACCOUNT }, settings })
    await stage.submit("job")
    await eventually(async () => {
      const launches = await stage.launches()
      expect(launches.map(({ spec, status }) => [spec.offer.region, status?.phase])).toEqual([
        [REGION, "refused"],
        ["eu-west-3", "created"],
      ])
    })
    await stage.cancel("job")
    await eventually(async () => expect((await stage.launches()).every(isOver)).toBe(true))
    proxy.faults.length = 0
    await play.close()
  })
})

describe("garbage collection on EC2", () => {
  test("ends what no Launch stands for, a second VM of a Launch as well; spares the young and other installations", async () => {
    const stage = await newStage()
    const play = new Play(stage, { youngSeconds: 60 })
    await stage.submit("job")
    const live = await eventually(() => stage.liveLaunch())
    const cloud = openAws({ clock: systemClock, allowances: UNPACED })(
      { access_key_id: "another", secret_access_key: "secret" },
      REGION,
    )
    const plant = (name: string, installation = stage.installation) =>
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
    const foreign = await plant("orphan-1", `${stage.installation}-other`)
    const second = await runOnce(live.metadata.name, stage.installation)
    const terminated = async () => {
      await play.collectGarbage()
      return new Set((await play.instances()).filter(isGone).map(({ InstanceId }) => InstanceId))
    }
    expect(await terminated()).toEqual(new Set())
    stage.clock.advance(60)
    await eventually(async () => expect(await terminated()).toEqual(new Set([orphan.id, second])))
    expect((await console_.instances("installation", `${stage.installation}-other`)).filter(isGone)).toEqual([])
    expect((await play.instances()).filter((instance) => !isGone(instance)).map(launchOf)).toEqual([live.metadata.name])
    await cloud.terminate(foreign)
    await stage.cancel("job")
    await eventually(async () => expect((await stage.launches()).every(isOver)).toBe(true))
    await play.close()
  })
})

/** An instance that somebody made with the tags of a Launch that has its VM. */
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
