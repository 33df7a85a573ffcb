import { afterAll, beforeAll, beforeEach, expect, vi } from "vitest"
import { openAws } from "../../src/clouds/aws/aws.ts"
import { createClouds } from "../../src/clouds/provider.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import type { Offer } from "../../src/core/apis/offer.ts"
import { type ControllerHarness, controllerHarnesses } from "../harness/controllers.ts"
import { eventually } from "../harness/eventually.ts"
import { type Moto, startMoto } from "../moto.ts"
import { missingTool, needing } from "../needing.ts"
import { Ec2Console, isGone } from "./ec2-console.ts"
import { Ec2Proxy } from "./ec2-proxy.ts"

const { describe, it } = needing(missingTool("moto"))

const JOBS = 20
const REGION = "eu-central-1"
const ACCOUNT = { cloud: "aws", region: REGION }
const OFFER: Offer = {
  ...ACCOUNT,
  instanceType: "m6i.large",
  architecture: "amd64",
  provisioning: "onDemand",
  cpu: 2,
  memoryGib: 8,
  hourlyPriceUsd: 0.115,
  minimumBilledSeconds: 60,
}
/** Delay between two lists of the VMs in production, seconds. */
const OBSERVE_SECONDS = 10
/** Rate limit that makes actions immediate. */
const AT_ONCE = { capacity: 1000, perSecond: 1000 }

/** Calls of the first launch in a region: image, network and security group. */
const ONCE = { CreateSecurityGroup: 1, DescribeSecurityGroups: 1, DescribeVpcs: 1, GetParameter: 1 }

const newHarness = controllerHarnesses()
let moto: Moto
let proxy: Ec2Proxy

beforeAll(async () => {
  moto = await startMoto()
  proxy = await Ec2Proxy.start(moto)
  vi.stubEnv("AWS_ENDPOINT_URL", proxy.url)
})
beforeEach(() => {
  proxy.requests.length = 0
})
afterAll(async () => {
  vi.unstubAllEnvs()
  await proxy.stop()
  await moto.stop()
})

async function berthOnAws(): Promise<ControllerHarness> {
  const harness = await newHarness()
  const open = openAws({ clock: systemClock, allowances: { RunInstances: AT_ONCE }, consistencySeconds: 1 })
  const key = { access_key_id: "AKIATEST", secret_access_key: "secret" }
  const clouds = createClouds({ aws: ({ region }) => Promise.resolve(open(key, region)) })
  harness.operator({
    clients: { client: harness.client, clouds, fence: () => undefined },
    market: { offers: [OFFER], account: ACCOUNT },
    observeSeconds: OBSERVE_SECONDS,
  })
  return harness
}

/** Runs these jobs at the same time, each on a VM of its own, until the VMs are deleted. */
async function runAll(harness: ControllerHarness, names: readonly string[]): Promise<void> {
  await Promise.all(names.map((name) => harness.submit(name)))
  const booted = await eventually(async () => {
    const live = (await harness.launches()).filter(({ spec }) => names.includes(spec.job.name))
    expect(live.filter(({ status }) => status?.vm?.id !== undefined)).toHaveLength(names.length)
    return live.map(({ metadata }) => metadata.name)
  })
  await Promise.all(booted.map((launch) => harness.start(launch)))
  await Promise.all(booted.map((launch) => harness.finish(launch, "Succeeded")))
  await eventually(async () => expect(await runningIn(harness)).toEqual([]))
  harness.clock.advance(OBSERVE_SECONDS)
  await eventually(async () => {
    for (const name of names) expect((await harness.job(name)).status?.cost?.actualUsd).toBeDefined()
  })
}

/** Returns the ids of the installation's instances that have not ended, without a call of Berth's. */
async function runningIn(harness: ControllerHarness): Promise<string[]> {
  const ec2 = new Ec2Console(moto, REGION)
  const all = await ec2.instances("installation", harness.installation)
  ec2.close()
  return all.filter((instance) => !isGone(instance)).map(({ InstanceId = "" }) => InstanceId)
}

/** Returns the number of calls, by action; lists and lookups apart. */
function counted(): Record<string, number> {
  const counts: Record<string, number> = {}
  for (const { action, parameters } of proxy.requests) {
    const isList = [...parameters.values()].includes("tag:berth.dev/installation")
    const name = action === "DescribeInstances" ? (isList ? "list" : "lookup") : action
    counts[name] = (counts[name] ?? 0) + 1
  }
  return counts
}

describe("calls of AWS", { timeout: 280_000 }, () => {
  it(`are 3 for each of ${JOBS} jobs one after another, besides a list for each round`, async () => {
    const harness = await berthOnAws()
    for (let job = 0; job < JOBS; job++) await runAll(harness, [`job-${job}`])
    const { list = 0, ...others } = counted()
    expect(others).toEqual({ ...ONCE, lookup: JOBS, RunInstances: JOBS, TerminateInstances: JOBS })
    // Each job lasts one round. In the first 18 minutes of a term the garbage collector looks for late VMs as often. The
    // operator's first round and the garbage collector's come on top.
    expect(list).toBeLessThanOrEqual(2 * JOBS + 2)
  })

  it(`are shared by ${JOBS} jobs at once, except the one that creates a VM`, async () => {
    const harness = await berthOnAws()
    const since = harness.clock.now().getTime()
    await runAll(
      harness,
      Array.from({ length: JOBS }, (_, job) => `job-${job}`),
    )
    const { list = 0, lookup = 0, TerminateInstances = 0, ...others } = counted()
    expect(others).toEqual({ ...ONCE, RunInstances: JOBS })
    // Requests within 50 ms share a call. How many come together depends on the machine: mostly 4 + 3, alone 20 + 20.
    expect(lookup + TerminateInstances, `${lookup} lookups, ${TerminateInstances} terminations`).toBeLessThanOrEqual(
      JOBS,
    )
    // The operator and the garbage collector look once each at the start, and once each in every round that has passed:
    // within 50 ms of one another they share a list.
    const rounds = Math.floor((harness.clock.now().getTime() - since) / 1000 / OBSERVE_SECONDS)
    expect(list).toBeLessThanOrEqual(2 * (1 + rounds))
  })
})
