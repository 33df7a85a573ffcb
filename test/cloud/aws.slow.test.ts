import { randomUUID } from "node:crypto"
import { readFile } from "node:fs/promises"
import { join } from "node:path"
import {
  CreateSubnetCommand,
  CreateVpcCommand,
  DeleteSubnetCommand,
  DeleteVpcCommand,
  DescribeInstancesCommand,
  DescribeSecurityGroupsCommand,
  DescribeSubnetsCommand,
  DescribeVolumesCommand,
  DescribeVpcsCommand,
  EC2Client,
  type Instance,
  StopInstancesCommand,
  TerminateInstancesCommand,
} from "@aws-sdk/client-ec2"
import { afterAll, afterEach, beforeAll, beforeEach, expect } from "vitest"
import { type Clock, systemClock } from "../../src/apis/clock.ts"
import type { Offer } from "../../src/apis/offer.ts"
import { type AwsOptions, openAws } from "../../src/cloud/aws/aws.ts"
import {
  CapacityError,
  CredentialsError,
  InvalidRequestError,
  OutcomeUnknownError,
  QuotaError,
  RegionError,
  TransientError,
} from "../../src/cloud/errors.ts"
import type { Cloud, LaunchSpec } from "../../src/cloud/provider.ts"
import { type Moto, startMoto } from "../moto.ts"
import { missingTool, needing } from "../needing.ts"
import { type CloudUnderTest, type CloudWithFaults, describeCloud, describeFaults } from "./conformance.ts"
import { type Ec2Fault, Ec2Proxy } from "./ec2-proxy.ts"
import { eventually } from "./eventually.ts"
import type { FaultKind } from "./faults.ts"

const { describe, it } = needing(missingTool("moto"))

const REGION = "eu-central-1"
const KEY = { access_key_id: "AKIATEST", secret_access_key: "secret" }
const IMAGE = "ami-0123456789abcdef0"

const OFFER: Offer = {
  cloud: "aws",
  region: REGION,
  instanceType: "t4g.small",
  architecture: "arm64",
  provisioning: "onDemand",
  cpu: 2,
  memoryGib: 2,
  hourlyPriceUsd: 0.0192,
  minimumBilledSeconds: 60,
}

/** What takes place at once here would take EC2 minutes. */
const AT_ONCE = { capacity: 1000, perSecond: 1000 }

let moto: Moto
let proxy: Ec2Proxy
/** Past the proxy: another witness of what is there. */
let witness: EC2Client

beforeAll(async () => {
  moto = await startMoto()
  proxy = await Ec2Proxy.start(moto)
  process.env["AWS_ENDPOINT_URL"] = proxy.url
  const credentials = { accessKeyId: "witness", secretAccessKey: "witness" }
  witness = new EC2Client({ region: REGION, endpoint: moto.url, credentials })
})
afterEach(() => expect(proxy.breaches).toEqual([]))
afterAll(async () => {
  witness.destroy()
  await proxy.stop()
  await moto.stop()
})

async function instancesOf(launch: string): Promise<Instance[]> {
  const filter = { Name: "tag:berth.dev/launch", Values: [launch] }
  const { Reservations = [] } = await witness.send(new DescribeInstancesCommand({ Filters: [filter] }))
  return Reservations.flatMap(({ Instances = [] }) => Instances)
}

function open(options: Partial<AwsOptions> = {}): Cloud {
  return openAws({ clock: systemClock, allowances: { RunInstances: AT_ONCE }, ...options })(KEY, REGION)
}

function accountUnderTest(): CloudUnderTest {
  return {
    offer: OFFER,
    imageId: IMAGE,
    userData: "#cloud-config\n",
    open: async () => open(),
    countBoots: (launch) =>
      eventually(async () => {
        const instances = await instancesOf(launch)
        expect(instances).not.toEqual([])
        return instances.length
      }),
    powerOff: async ({ id }) => {
      await witness.send(new TerminateInstancesCommand({ InstanceIds: [id] }))
    },
    close: async () => undefined,
  }
}

describeCloud("aws", async () => accountUnderTest(), describe)

const ACTIONS = { launch: "RunInstances", list: "DescribeInstances", terminate: "TerminateInstances" } as const

/** How EC2 says what goes wrong. */
const EC2_FAULTS: Record<FaultKind, Omit<Ec2Fault, "action">> = {
  capacity: { when: "before", code: "InsufficientInstanceCapacity", status: 500 },
  quota: { when: "before", code: "VcpuLimitExceeded" },
  forbidden: { when: "before", code: "UnauthorizedOperation", status: 403 },
  invalid: { when: "before", code: "InvalidParameterValue" },
  rateLimit: { when: "before", code: "RequestLimitExceeded", status: 503 },
  serverError: { when: "before", code: "InternalError", status: 500 },
  reset: { when: "reset" },
  errorAfter: { when: "after", code: "InternalError", status: 500 },
  lost: { when: "lost" },
  slow: { when: "slow" },
}

describeFaults(
  "aws",
  async (): Promise<CloudWithFaults> => {
    const refused = { access_key_id: "AKIAREFUSED", secret_access_key: "wrong" }
    proxy.refusedKeys.add(refused.access_key_id)
    return {
      ...accountUnderTest(),
      open: async () => open({ answerSeconds: 5 }),
      openRefused: async () => openAws({ clock: systemClock })(refused, REGION),
      fail: (act, fault) => proxy.faults.push({ action: ACTIONS[act], ...EC2_FAULTS[fault] }),
      mend: () => {
        proxy.faults.length = 0
      },
      limitPages: (size) => {
        proxy.pageSize = size
      },
      violations: () => proxy.breaches,
    }
  },
  describe,
)

describe("aws", () => {
  let cloud: Cloud
  let installation: string
  let ahead: number
  const clock: Clock = { ...systemClock, monotonic: () => systemClock.monotonic() + ahead }

  beforeEach(() => {
    ahead = 0
    installation = `i-${randomUUID()}`
    proxy.faults.length = 0
    proxy.requests.length = 0
    proxy.hideSeconds = 0
    proxy.pageSize = 1000
    cloud = open({ clock })
  })

  const spec = (overrides: Partial<LaunchSpec> = {}): LaunchSpec => ({
    name: `${randomUUID()}-1`,
    installation,
    tags: { project: "team", job: "train" },
    offer: OFFER,
    imageId: IMAGE,
    userData: "#cloud-config\n",
    lifetimeSeconds: 3600,
    ...overrides,
  })
  const list = () => cloud.list({ installation, region: REGION })
  const actions = () => proxy.requests.map(({ action }) => action)

  describe("a VM", () => {
    it("ends with its shutdown, keeps its metadata to itself, has an encrypted disk of its own and lets nobody in", async () => {
      const asked = spec()
      await cloud.launch(asked)
      expect(Object.fromEntries(proxy.of("RunInstances")[0]?.parameters ?? [])).toMatchObject({
        InstanceInitiatedShutdownBehavior: "terminate",
        "MetadataOptions.HttpTokens": "required",
        "MetadataOptions.HttpPutResponseHopLimit": "1",
        "BlockDeviceMapping.1.Ebs.DeleteOnTermination": "true",
        "BlockDeviceMapping.1.Ebs.Encrypted": "true",
        "BlockDeviceMapping.1.Ebs.VolumeType": "gp3",
        MinCount: "1",
        MaxCount: "1",
      })
      const [instance] = await instancesOf(asked.name)
      expect(instance).toMatchObject({ ImageId: IMAGE, InstanceType: "t4g.small" })
      const [group] = instance?.SecurityGroups ?? []
      const groups = await witness.send(new DescribeSecurityGroupsCommand({ GroupIds: [group?.GroupId ?? ""] }))
      expect(groups.SecurityGroups).toEqual([
        expect.objectContaining({
          IpPermissions: [],
          Tags: [{ Key: "berth.dev/installation", Value: installation }],
        }),
      ])
    })

    it("carries who it is for on instance, disk and network interface", async () => {
      const asked = spec()
      const { id } = await cloud.launch(asked)
      const tags = expect.arrayContaining([
        { Key: "berth.dev/installation", Value: installation },
        { Key: "berth.dev/launch", Value: asked.name },
        { Key: "berth.dev/project", Value: "team" },
        { Key: "berth.dev/job", Value: "train" },
      ])
      expect(await instancesOf(asked.name)).toEqual([expect.objectContaining({ Tags: tags })])
      const attached = { Name: "attachment.instance-id", Values: [id] }
      const { Volumes } = await witness.send(new DescribeVolumesCommand({ Filters: [attached] }))
      expect(Volumes).toEqual([expect.objectContaining({ Tags: tags })])
      expect(proxy.of("RunInstances")[0]?.parameters.get("TagSpecification.3.ResourceType")).toBe("network-interface")
    })

    it("is bought once on the spot market, and known as taken back when it was", async () => {
      const vm = await cloud.launch(spec({ offer: { ...OFFER, provisioning: "spot" } }))
      expect(Object.fromEntries(proxy.of("RunInstances")[0]?.parameters ?? [])).toMatchObject({
        "InstanceMarketOptions.MarketType": "spot",
        "InstanceMarketOptions.SpotOptions.SpotInstanceType": "one-time",
        "InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior": "terminate",
      })
      expect((await list())[0]?.preempted).toBeUndefined()
      await proxy.takeBack(vm.id, REGION)
      expect(await list()).toEqual([expect.objectContaining({ id: vm.id, state: "terminated", preempted: true })])
    })

    it("that somebody stopped is still there, and can be ended", async () => {
      const vm = await cloud.launch(spec())
      await witness.send(new StopInstancesCommand({ InstanceIds: [vm.id] }))
      expect(await list()).toEqual([expect.objectContaining({ state: "running" })])
      await cloud.terminate(vm)
      expect(await list()).toEqual([expect.objectContaining({ state: "terminated" })])
    })

    it("can't have more user data than EC2 takes, and no call is made for it", async () => {
      await expect(cloud.launch(spec({ userData: "x".repeat(16_385) }))).rejects.toThrow(/16385 bytes.*at most 16384/)
      expect(proxy.of("RunInstances")).toEqual([])
    })
  })

  describe("its place", () => {
    it("is the zone of the offer, where it names one", async () => {
      const asked = spec({ offer: { ...OFFER, zone: `${REGION}b` } })
      await cloud.launch(asked)
      expect(await instancesOf(asked.name)).toMatchObject([{ Placement: { AvailabilityZone: `${REGION}b` } }])
    })

    it("is found out once for many", async () => {
      await Promise.all(Array.from({ length: 5 }, () => cloud.launch(spec())))
      await cloud.launch(spec())
      expect(
        actions()
          .filter((action) => /Vpc|SecurityGroup/.test(action))
          .sort(),
      ).toEqual(["CreateSecurityGroup", "DescribeSecurityGroups", "DescribeVpcs"])
      const asked = spec()
      await open().launch(asked)
      expect(proxy.of("CreateSecurityGroup")).toHaveLength(1)
    })

    it("is one of the subnets that are named, by zone, the same at each replay, and spread", async () => {
      const { Vpc } = await witness.send(new CreateVpcCommand({ CidrBlock: "10.9.0.0/16" }))
      const VpcId = Vpc?.VpcId ?? ""
      const made = ["a", "a", "b"].map(async (zone, index) => {
        const AvailabilityZone = `${REGION}${zone}`
        const { Subnet } = await witness.send(
          new CreateSubnetCommand({ VpcId, AvailabilityZone, CidrBlock: `10.9.${index}.0/24` }),
        )
        return Subnet?.SubnetId ?? ""
      })
      const subnetIds = await Promise.all(made)
      cloud = open({ networks: { [REGION]: { subnetIds } } })
      const subnetsOf = async (specs: LaunchSpec[]) =>
        Promise.all(
          specs.map(async (asked) => {
            await cloud.launch(asked)
            return (await instancesOf(asked.name))[0]?.SubnetId
          }),
        )
      const inB = await subnetsOf([spec({ offer: { ...OFFER, zone: `${REGION}b` } })])
      expect(inB).toEqual([subnetIds[2]])
      // So many that each subnet gets one: names are random, and with 16 one subnet in 200 runs got none.
      const anywhere = await subnetsOf(Array.from({ length: 32 }, () => spec()))
      expect(new Set(anywhere)).toEqual(new Set(subnetIds))
      await expect(cloud.launch(spec({ offer: { ...OFFER, zone: `${REGION}c` } }))).rejects.toThrow(/is in the zone/)
    })

    it("that was deleted meanwhile is looked for again", async () => {
      await cloud.launch(spec())
      proxy.faults.push({ action: "RunInstances", when: "before", code: "InvalidGroup.NotFound" })
      const asked = spec()
      await expect(cloud.launch(asked)).rejects.toBeInstanceOf(TransientError)
      await cloud.launch(asked)
      expect(proxy.of("DescribeVpcs")).toHaveLength(2)
    })

    it("is nowhere in a region without a default VPC, and the error says what to do", async () => {
      const elsewhere = "ap-south-1"
      const there = new EC2Client({
        region: elsewhere,
        endpoint: moto.url,
        credentials: { accessKeyId: "w", secretAccessKey: "w" },
      })
      const { Subnets = [] } = await there.send(new DescribeSubnetsCommand({}))
      for (const { SubnetId } of Subnets) await there.send(new DeleteSubnetCommand({ SubnetId }))
      const { Vpcs = [] } = await there.send(new DescribeVpcsCommand({}))
      for (const { VpcId } of Vpcs) await there.send(new DeleteVpcCommand({ VpcId }))
      there.destroy()
      const launch = openAws({ clock })(KEY, elsewhere).launch(spec({ offer: { ...OFFER, region: elsewhere } }))
      await expect(launch).rejects.toThrow(/no default VPC in ap-south-1: make one, or name subnets/)
    })
  })

  describe("its image", () => {
    it("is what AWS recommends for the architecture, and asked for once in a while", async () => {
      const arm = await cloud.imageFor?.(OFFER)
      const amd = await cloud.imageFor?.({ ...OFFER, architecture: "amd64" })
      const gpu = await cloud.imageFor?.({
        ...OFFER,
        architecture: "amd64",
        gpu: { model: "A10G", count: 1, vramGib: 24 },
      })
      expect(new Set([arm, amd, gpu]).size).toBe(3)
      for (const image of [arm, amd, gpu]) expect(image).toMatch(/^ami-[0-9a-f]{17}$/)
      await cloud.imageFor?.(OFFER)
      expect(proxy.requests).toHaveLength(3)
      ahead = 601
      await cloud.imageFor?.(OFFER)
      expect(proxy.requests).toHaveLength(4)
    })

    it("is none for GPUs that AWS has no image for", async () => {
      const gpu = { model: "T4G", count: 1, vramGib: 16 }
      await expect(cloud.imageFor?.({ ...OFFER, gpu })).rejects.toThrow(/no ECS-optimized image for GPUs on arm64/)
    })
  })

  describe("a launch that is repeated", () => {
    it("after its answer was lost finds the VM, also while EC2 does not list it yet", async () => {
      proxy.hideSeconds = 60
      const asked = spec()
      proxy.faults.push({ action: "RunInstances", when: "lost" })
      await expect(cloud.launch(asked)).rejects.toBeInstanceOf(OutcomeUnknownError)
      expect(await list()).toEqual([])
      const vm = await open().launch(asked)
      expect(await instancesOf(asked.name)).toMatchObject([{ InstanceId: vm.id }])
      proxy.reveal()
      expect(await list()).toMatchObject([{ id: vm.id }])
    })

    it("in another network finds the VM of the first call, as soon as EC2 lists it", async () => {
      proxy.hideSeconds = 60
      const asked = spec()
      const vm = await cloud.launch(asked)
      const { Vpc } = await witness.send(new CreateVpcCommand({ CidrBlock: "10.8.0.0/16" }))
      const { Subnet } = await witness.send(new CreateSubnetCommand({ VpcId: Vpc?.VpcId, CidrBlock: "10.8.0.0/24" }))
      const elsewhere = open({ networks: { [REGION]: { subnetIds: [Subnet?.SubnetId ?? ""] } } })
      await expect(elsewhere.launch(asked)).rejects.toBeInstanceOf(OutcomeUnknownError)
      proxy.reveal()
      expect(await elsewhere.launch(asked)).toMatchObject({ id: vm.id })
      expect(await instancesOf(asked.name)).toHaveLength(1)
    })

    it("by another release, in other words, makes no second VM while nobody knows what became of the first call", async () => {
      proxy.hideSeconds = 60
      const asked = spec()
      proxy.faults.push({ action: "RunInstances", when: "lost" })
      await expect(cloud.launch(asked)).rejects.toBeInstanceOf(OutcomeUnknownError)
      const upgraded = { ...asked, userData: "#cloud-config\n# of another release\n" }
      await expect(open().launch(upgraded)).rejects.toMatchObject({ code: "IdempotentParameterMismatch" })
      await expect(open().launch(upgraded)).rejects.toBeInstanceOf(OutcomeUnknownError)
      proxy.reveal()
      const [first, ...more] = await instancesOf(asked.name)
      expect(await open().launch(upgraded)).toMatchObject({ id: first?.InstanceId })
      expect(more).toEqual([])
    })

    it("of which EC2 says that its VM has ended and is forgotten is refused", async () => {
      proxy.faults.push({ action: "RunInstances", when: "before", code: "IdempotentInstanceTerminated" })
      await expect(cloud.launch(spec())).rejects.toBeInstanceOf(InvalidRequestError)
    })

    it("in a copy of the installation makes another VM", async () => {
      const asked = spec()
      const first = await cloud.launch(asked)
      const second = await cloud.launch({ ...asked, installation: `${installation}-restored` })
      expect(second.id).not.toBe(first.id)
    })
  })

  describe("errors", () => {
    it.each([
      ["InsufficientInstanceCapacity", 500, CapacityError],
      ["Unsupported", 400, CapacityError],
      ["SpotMaxPriceTooLow", 400, CapacityError],
      ["InsufficientFreeAddressesInSubnet", 400, CapacityError],
      ["VcpuLimitExceeded", 400, QuotaError],
      ["InstanceLimitExceeded", 400, QuotaError],
      ["MaxSpotInstanceCountExceeded", 400, QuotaError],
      ["SomeNewLimitExceeded", 400, QuotaError],
      ["UnauthorizedOperation", 403, RegionError],
      ["AuthFailure.ServiceLinkedRoleCreationNotPermitted", 403, CredentialsError],
      ["PendingVerification", 403, CredentialsError],
      ["Blocked", 403, CredentialsError],
      ["OptInRequired", 401, RegionError],
      ["RequestLimitExceeded", 503, TransientError],
      ["InvalidParameterValue", 400, InvalidRequestError],
      ["InvalidAMIID.NotFound", 400, InvalidRequestError],
      ["SomethingNew", 400, InvalidRequestError],
      ["InternalError", 500, OutcomeUnknownError],
      ["Unavailable", 503, OutcomeUnknownError],
      ["SomethingNew", 500, OutcomeUnknownError],
    ])("%s (%i) of a launch is a %o", async (code, status, type) => {
      proxy.faults.push({ action: "RunInstances", when: "before", code, status })
      const error: unknown = await cloud.launch(spec()).catch((thrown: unknown) => thrown)
      expect(error).toBeInstanceOf(type)
      expect(error).toMatchObject({ code, message: expect.stringContaining(`RunInstances in ${REGION}: ${code}`) })
    })

    it.each(["InternalError", "Unavailable", "RequestLimitExceeded"])("%s of a list is transient", async (code) => {
      proxy.faults.push({ action: "DescribeInstances", when: "before", code, status: 503 })
      await expect(list()).rejects.toBeInstanceOf(TransientError)
    })

    it("of a network that was never reached are transient, even of a launch", async () => {
      process.env["AWS_ENDPOINT_URL"] = "http://127.0.0.1:1"
      try {
        await expect(open().launch(spec())).rejects.toBeInstanceOf(TransientError)
      } finally {
        process.env["AWS_ENDPOINT_URL"] = proxy.url
      }
    })

    it("of a key that only one region refuses are about that region", async () => {
      const refusal = { when: "before", code: "AuthFailure", status: 401 } as const
      proxy.faults.push({ ...refusal, action: "DescribeInstances" })
      await expect(cloud.launch(spec())).rejects.toBeInstanceOf(RegionError)
      const bad = { ...refusal, code: "InvalidClientTokenId", status: 403 }
      proxy.faults.push({ ...refusal, action: "DescribeInstances" }, { ...bad, action: "GetCallerIdentity" })
      await expect(list()).rejects.toBeInstanceOf(CredentialsError)
    })

    it("leave out what AWS encrypted for administrators", async () => {
      const message = "You are not authorized. Encoded authorization failure message: abcdefg"
      const refusal = { action: "RunInstances", when: "before", code: "UnauthorizedOperation", status: 403 } as const
      proxy.faults.push({ ...refusal, message })
      await expect(cloud.launch(spec())).rejects.toThrow(/UnauthorizedOperation: You are not authorized\.$/)
    })
  })

  describe("terminate", () => {
    it("of a VM that EC2 does not know yet is to be tried again", async () => {
      const vm = await cloud.launch(spec())
      proxy.faults.push({ action: "TerminateInstances", when: "before", code: "InvalidInstanceID.NotFound" })
      await expect(cloud.terminate(vm)).rejects.toBeInstanceOf(TransientError)
      ahead = 301
      proxy.faults.push({ action: "TerminateInstances", when: "before", code: "InvalidInstanceID.NotFound" })
      await expect(cloud.terminate(vm)).resolves.toBeUndefined()
    })

    it("of many is one call, and one that EC2 doesn't know spares none of the others", async () => {
      const vms = await Promise.all([spec(), spec(), spec()].map((asked) => cloud.launch(asked)))
      await Promise.all(vms.slice(0, 2).map((vm) => cloud.terminate(vm)))
      expect(proxy.of("TerminateInstances")).toHaveLength(1)
      const unknown = { id: "i-0123456789abcdef0", launch: "x", region: REGION }
      await Promise.all([...vms, unknown].map((vm) => cloud.terminate(vm)))
      expect((await list()).map(({ state }) => state)).toEqual(["terminated", "terminated", "terminated"])
    })
  })

  it("calls nothing that changes anything once the fence has fallen", async () => {
    const fence = (): void => {
      throw new Error("not the leader")
    }
    const vm = await cloud.launch(spec())
    proxy.requests.length = 0
    await expect(cloud.launch(spec(), fence)).rejects.toThrow("not the leader")
    await expect(cloud.terminate(vm, fence)).rejects.toThrow("not the leader")
    expect(new Set(actions())).toEqual(new Set(["DescribeInstances"]))
  })

  it("lists page by page", async () => {
    proxy.pageSize = 2
    const made = await Promise.all(Array.from({ length: 5 }, () => cloud.launch(spec())))
    proxy.requests.length = 0
    expect(new Set((await list()).map(({ id }) => id))).toEqual(new Set(made.map(({ id }) => id)))
    expect(actions()).toEqual(["DescribeInstances", "DescribeInstances", "DescribeInstances"])
  })
})

/** AWS asks for these rights, though no call has their name: tags of what is made, the role of the spot market. */
const IMPLIED = ["ec2:CreateTags", "iam:CreateServiceLinkedRole"]
/** Who has no right at all may call this. */
const FREE = "sts:GetCallerIdentity"

it("calls just what the policy in docs/aws.md allows, which is read last of all tests of this file", async () => {
  const page = await readFile(join(import.meta.dirname, "..", "..", "docs", "aws.md"), "utf8")
  const [, policy = ""] = /```json\n(\{\n {2}"Version"[\s\S]*?)```/.exec(page) ?? []
  const { Statement } = JSON.parse(policy) as { Statement: { Effect: string; Action: string | string[] }[] }
  expect(new Set(Statement.map(({ Effect }) => Effect))).toEqual(new Set(["Allow"]))
  const allowed = Statement.flatMap(({ Action }) => Action)
  const called = [...proxy.actions].filter((action) => action !== FREE)
  expect([...new Set(allowed)].sort()).toEqual([...called, ...IMPLIED].sort())
  expect(proxy.actions).toContain(FREE)
})
