import { randomUUID } from "node:crypto"
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
import { afterAll, afterEach, beforeAll, beforeEach, expect, onTestFinished, vi } from "vitest"
import { type AwsOptions, openAws } from "../../src/clouds/aws/aws.ts"
import type { Cloud, LaunchSpec } from "../../src/clouds/cloud.ts"
import { type Clock, systemClock } from "../../src/core/apis/clock.ts"
import type { Offer } from "../../src/core/apis/offer.ts"
import {
  AccountError,
  CapacityError,
  CredentialsError,
  InvalidRequestError,
  OutcomeUnknownError,
  QuotaError,
  RegionError,
  SubnetCapacityError,
  TransientError,
} from "../../src/core/outbound/errors.ts"
import { eventually } from "../harness/eventually.ts"
import { type Moto, startMoto } from "../moto.ts"
import { missingTool, needing } from "../needing.ts"
import { documentedActions, roleStatements } from "./aws-policy.ts"
import { type CloudUnderTest, type CloudWithFaults, describeCloud, describeFaults } from "./conformance.ts"
import { type Ec2Fault, Ec2Proxy } from "./ec2-proxy.ts"
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

/** Rate limit that makes actions immediate; EC2's real limit would take minutes. */
const AT_ONCE = { capacity: 1000, perSecond: 1000 }

let moto: Moto
let proxy: Ec2Proxy
/** Client that bypasses the proxy: an independent view of the account. */
let direct: EC2Client

beforeAll(async () => {
  moto = await startMoto()
  proxy = await Ec2Proxy.start(moto)
  vi.stubEnv("AWS_ENDPOINT_URL", proxy.url)
  const credentials = { accessKeyId: "direct", secretAccessKey: "direct" }
  direct = new EC2Client({ region: REGION, endpoint: moto.url, credentials })
})
afterEach(() => expect(proxy.breaches).toEqual([]))
afterAll(async () => {
  direct.destroy()
  vi.unstubAllEnvs()
  await proxy.stop()
  await moto.stop()
})

async function instancesOf(launch: string): Promise<Instance[]> {
  const filter = { Name: "tag:berth.dev/launch", Values: [launch] }
  const { Reservations = [] } = await direct.send(new DescribeInstancesCommand({ Filters: [filter] }))
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
      await direct.send(new TerminateInstancesCommand({ InstanceIds: [id] }))
    },
    close: async () => undefined,
  }
}

describeCloud("aws", async () => accountUnderTest(), describe)

const ACTIONS = { launch: "RunInstances", list: "DescribeInstances", terminate: "TerminateInstances" } as const

/** EC2's answers for each fault. */
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
    it("ends with its shutdown, blocks the metadata service for jobs, has an encrypted disk and allows no inbound traffic", async () => {
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
      const groups = await direct.send(new DescribeSecurityGroupsCommand({ GroupIds: [group?.GroupId ?? ""] }))
      expect(groups.SecurityGroups).toEqual([
        expect.objectContaining({
          IpPermissions: [],
          Tags: [{ Key: "berth.dev/installation", Value: installation }],
        }),
      ])
    })

    it("carries its Launch and installation on instance, disk and network interface", async () => {
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
      const { Volumes } = await direct.send(new DescribeVolumesCommand({ Filters: [attached] }))
      expect(Volumes).toEqual([expect.objectContaining({ Tags: tags })])
      expect(proxy.of("RunInstances")[0]?.parameters.get("TagSpecification.3.ResourceType")).toBe("network-interface")
    })

    it("a spot VM is requested once, and shown as preempted after its preemption", async () => {
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

    it("shows its console, the newest output where EC2 has it, and none once EC2 has forgotten the VM", async () => {
      const vm = await cloud.launch(spec())
      const consoleOf = () => cloud.consoleOf?.({ ...vm, region: REGION })
      proxy.consoles.set(vm.id, { text: "newest\r\n", isNitro: true })
      expect(await consoleOf()).toBe("newest\r\n")
      proxy.consoles.set(vm.id, { text: "of its end\r\n", isNitro: false })
      expect(await consoleOf()).toBe("of its end\r\n")
      expect(proxy.of("GetConsoleOutput").map(({ parameters }) => parameters.get("Latest"))).toEqual([
        ...["true", "true", "false"],
      ])
      proxy.consoles.delete(vm.id)
      expect(await cloud.consoleOf?.({ ...vm, id: "i-00000000000000000" })).toBeUndefined()
    })

    it("does not show its console without the right of docs/aws.md, and everything else works", async () => {
      const vm = await cloud.launch(spec())
      proxy.policies.set(
        KEY.access_key_id,
        documentedActions().filter((action) => action !== "ec2:GetConsoleOutput"),
      )
      try {
        await expect(cloud.consoleOf?.(vm)).rejects.toThrow(CredentialsError)
        await cloud.terminate(vm)
      } finally {
        proxy.policies.delete(KEY.access_key_id)
      }
    })

    it("a VM that a user has stopped is still listed, and can be terminated", async () => {
      const vm = await cloud.launch(spec())
      await direct.send(new StopInstancesCommand({ InstanceIds: [vm.id] }))
      expect(await list()).toEqual([expect.objectContaining({ state: "running" })])
      await cloud.terminate(vm)
      expect(await list()).toEqual([expect.objectContaining({ state: "terminated" })])
    })

    it("throws on user data above EC2's limit, without a call", async () => {
      await expect(cloud.launch(spec({ userData: "x".repeat(16_385) }))).rejects.toThrow(/16385 bytes.*at most 16384/)
      expect(proxy.of("RunInstances")).toEqual([])
    })
  })

  describe("placement of a VM on EC2", () => {
    it("uses the zone of the offer, if it names one", async () => {
      const asked = spec({ offer: { ...OFFER, zone: `${REGION}b` } })
      await cloud.launch(asked)
      expect(await instancesOf(asked.name)).toMatchObject([{ Placement: { AvailabilityZone: `${REGION}b` } }])
    })

    it("looks up the subnets once for many launches", async () => {
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

    it("picks one of the named subnets by zone, the same at each replay, and spreads launches over all", async () => {
      const { Vpc } = await direct.send(new CreateVpcCommand({ CidrBlock: "10.9.0.0/16" }))
      const VpcId = Vpc?.VpcId ?? ""
      const made = ["a", "a", "b"].map(async (zone, index) => {
        const AvailabilityZone = `${REGION}${zone}`
        const { Subnet } = await direct.send(
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
      // Enough launches that each subnet gets one: with 16, one subnet got none in one of 200 runs.
      const anywhere = await subnetsOf(Array.from({ length: 32 }, () => spec()))
      expect(new Set(anywhere)).toEqual(new Set(subnetIds))
      await expect(cloud.launch(spec({ offer: { ...OFFER, zone: `${REGION}c` } }))).rejects.toThrow(/is in the zone/)
    })

    /** Creates a VPC with one subnet in each of these zones. */
    async function networkWith(...zones: string[]): Promise<{ vpc: string; subnets: string[] }> {
      const { Vpc } = await direct.send(new CreateVpcCommand({ CidrBlock: "10.8.0.0/16" }))
      const vpc = Vpc?.VpcId ?? ""
      const made = zones.map(async (zone, index) => {
        const place = { VpcId: vpc, AvailabilityZone: `${REGION}${zone}`, CidrBlock: `10.8.${index}.0/24` }
        const { Subnet } = await direct.send(new CreateSubnetCommand(place))
        return Subnet?.SubnetId ?? ""
      })
      return { vpc, subnets: await Promise.all(made) }
    }

    const disksOf = async (id: string) => {
      const attached = { Name: "attachment.instance-id", Values: [id] }
      return (await direct.send(new DescribeVolumesCommand({ Filters: [attached] }))).Volumes
    }

    it("never has a smaller disk than its image, and EC2's words say so of one that is", async () => {
      await cloud.launch(spec({ disk: { sizeGib: 10 } }))
      proxy.imageDiskGb = 80
      const refused = cloud.launch(spec())
      await expect(refused).rejects.toBeInstanceOf(InvalidRequestError)
      await expect(refused).rejects.toThrow("Volume of size 50GB is smaller than snapshot")
      proxy.imageDiskGb = 30
    })

    it("uses the connection's network, address and disk, and no setting of the installation", async () => {
      const { vpc, subnets } = await networkWith("a")
      const { subnets: others } = await networkWith("a")
      cloud = open({ networks: { [REGION]: { subnetIds: others } } })
      const asked = spec({
        network: { network: vpc, subnets, publicAddress: false },
        disk: { sizeGib: 70, requiredGib: 200, type: "gp2" },
      })
      const { id, ipAddress } = await cloud.launch(asked)
      const [instance] = await instancesOf(asked.name)
      expect(instance).toMatchObject({ SubnetId: subnets[0], VpcId: vpc })
      expect(instance?.PublicIpAddress).toBeUndefined()
      expect(ipAddress).toBeUndefined()
      expect(await disksOf(id)).toMatchObject([{ Size: 200, VolumeType: "gp2", Encrypted: true }])
      const [group] = instance?.NetworkInterfaces?.[0]?.Groups ?? []
      const groups = await direct.send(new DescribeSecurityGroupsCommand({ GroupIds: [group?.GroupId ?? ""] }))
      expect(groups.SecurityGroups).toMatchObject([{ VpcId: vpc, IpPermissions: [] }])
      const addressed = spec({ network: { subnets, publicAddress: true } })
      await cloud.launch(addressed)
      expect((await instancesOf(addressed.name))[0]?.PublicIpAddress).toMatch(/^[0-9.]+$/)
    })

    it("creates a VM without a public address in the default VPC, if the connection names no subnets", async () => {
      const asked = spec({ network: { publicAddress: false } })
      await cloud.launch(asked)
      const [instance] = await instancesOf(asked.name)
      expect(instance?.SubnetId).toMatch(/^subnet-/)
      expect(instance?.PublicIpAddress).toBeUndefined()
    })

    it("names another subnet only in a launch that counts the exhausted ones, and fails when all are exhausted", async () => {
      const { subnets } = await networkWith("a", "b")
      const asked = spec({ network: { subnets, publicAddress: true } })
      const full = {
        action: "RunInstances",
        when: "before",
        code: "InsufficientInstanceCapacity",
        status: 500,
      } as const
      proxy.faults.push(full, full)
      await expect(cloud.launch(asked)).rejects.toBeInstanceOf(SubnetCapacityError)
      // The replay of a rejected request names the same subnet: another one could create a second VM.
      await expect(open().launch(asked)).rejects.toBeInstanceOf(SubnetCapacityError)
      proxy.faults.push({ action: "RunInstances", when: "lost" })
      proxy.hideSeconds = 600
      const next = { ...asked, exhaustedSubnets: 1 }
      await expect(cloud.launch(next)).rejects.toBeInstanceOf(OutcomeUnknownError)
      const { id } = await open().launch(next)
      expect((await instancesOf(asked.name)).map(({ InstanceId }) => InstanceId)).toEqual([id])
      const named = proxy.of("RunInstances").map(({ parameters }) => parameters.get("NetworkInterface.1.SubnetId"))
      const [first, second] = [...new Set(named)]
      expect(named).toEqual([first, first, second, second])
      expect(new Set([first, second])).toEqual(new Set(subnets))
      const tokens = proxy.of("RunInstances").map(({ parameters }) => parameters.get("ClientToken"))
      const [one, other] = [...new Set(tokens)]
      expect(tokens).toEqual([one, one, other, other])
      expect(other).toMatch(/^[\w-]{43}$/)
      proxy.faults.push(full)
      const last = spec({ network: { subnets, publicAddress: true }, exhaustedSubnets: 1 })
      const refusal = await cloud.launch(last).catch((error: unknown) => error)
      expect(refusal).toBeInstanceOf(CapacityError)
      expect(refusal).not.toBeInstanceOf(SubnetCapacityError)
    })

    it("tries each subnet that the installation names, in all zones", async () => {
      const { subnets } = await networkWith("a", "b")
      cloud = open({ networks: { [REGION]: { subnetIds: subnets } } })
      const asked = spec()
      const full = {
        action: "RunInstances",
        when: "before",
        code: "InsufficientInstanceCapacity",
        status: 500,
      } as const
      proxy.faults.push(full, full)
      await expect(cloud.launch(asked)).rejects.toBeInstanceOf(SubnetCapacityError)
      const last = await cloud.launch({ ...asked, exhaustedSubnets: 1 }).catch((error: unknown) => error)
      expect(last).toBeInstanceOf(CapacityError)
      expect(last).not.toBeInstanceOf(SubnetCapacityError)
      await cloud.launch({ ...asked, exhaustedSubnets: 1 })
      const named = proxy.of("RunInstances").map(({ parameters }) => parameters.get("SubnetId"))
      expect(new Set(named)).toEqual(new Set(subnets))
      expect(named[1]).toBe(named[2])
    })

    it("names the field and the remedy for a subnet that does not exist, or is in another network", async () => {
      const { subnets } = await networkWith("a")
      const { vpc } = await networkWith("a")
      const missing = spec({ network: { subnets: ["subnet-0a1b2c3d"], publicAddress: true } })
      const refusal = await cloud.launch(missing).catch((error: unknown) => error)
      expect(refusal).toBeInstanceOf(RegionError)
      const words = /connection's `subnets` name subnet-0a1b2c3d for eu-central-1.*correct `subnets`/
      expect(refusal).toMatchObject({ message: expect.stringMatching(words) })
      const stray = cloud.launch(spec({ network: { network: vpc, subnets, publicAddress: true } }))
      await expect(stray).rejects.toThrow(new RegExp(`not in the connection's .network. ${vpc}: correct`))
      const zone = `${REGION}c`
      const elsewhere = spec({ offer: { ...OFFER, zone }, network: { subnets, publicAddress: true } })
      await expect(cloud.launch(elsewhere)).rejects.toThrow(/is in the zone eu-central-1c: add one/)
    })

    it("looks up a subnet again after it was deleted", async () => {
      await cloud.launch(spec())
      proxy.faults.push({ action: "RunInstances", when: "before", code: "InvalidGroup.NotFound" })
      const asked = spec()
      await expect(cloud.launch(asked)).rejects.toBeInstanceOf(TransientError)
      await cloud.launch(asked)
      expect(proxy.of("DescribeVpcs")).toHaveLength(2)
    })

    it("throws in a region without a default VPC, with what to do", async () => {
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
      await expect(launch).rejects.toThrow(/no default VPC in ap-south-1: create one, or configure subnets/)
    })
  })

  describe("image of a VM on EC2", () => {
    it("uses the image that AWS recommends for the architecture, and caches it", async () => {
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

    it("throws for GPUs that AWS has no image for", async () => {
      const gpu = { model: "T4G", count: 1, vramGib: 16 }
      await expect(cloud.imageFor?.({ ...OFFER, gpu })).rejects.toThrow(/no ECS-optimized image for GPUs on arm64/)
    })
  })

  describe("a repeated launch on EC2", () => {
    it("finds the VM after a lost answer, even while EC2 does not list it yet", async () => {
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

    it("finds the VM of the first call after a change of the network, as soon as EC2 lists it", async () => {
      proxy.hideSeconds = 60
      const asked = spec()
      const vm = await cloud.launch(asked)
      const { Vpc } = await direct.send(new CreateVpcCommand({ CidrBlock: "10.8.0.0/16" }))
      const { Subnet } = await direct.send(new CreateSubnetCommand({ VpcId: Vpc?.VpcId, CidrBlock: "10.8.0.0/24" }))
      const elsewhere = open({ networks: { [REGION]: { subnetIds: [Subnet?.SubnetId ?? ""] } } })
      await expect(elsewhere.launch(asked)).rejects.toBeInstanceOf(OutcomeUnknownError)
      proxy.reveal()
      expect(await elsewhere.launch(asked)).toMatchObject({ id: vm.id })
      expect(await instancesOf(asked.name)).toHaveLength(1)
    })

    it("creates no second VM after an upgrade while the result of the first call is unknown", async () => {
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

    it("rejects a launch when EC2 reports its VM as terminated and no longer lists it", async () => {
      proxy.faults.push({ action: "RunInstances", when: "before", code: "IdempotentInstanceTerminated" })
      await expect(cloud.launch(spec())).rejects.toBeInstanceOf(InvalidRequestError)
    })

    it("creates another VM in a copy of the installation", async () => {
      const asked = spec()
      const first = await cloud.launch(asked)
      const second = await cloud.launch({ ...asked, installation: `${installation}-restored` })
      expect(second.id).not.toBe(first.id)
    })
  })

  describe("errors of EC2", () => {
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
      ["AuthFailure.ServiceLinkedRoleCreationNotPermitted", 403, AccountError],
      ["PendingVerification", 400, RegionError],
      ["Blocked", 403, CredentialsError],
      ["OptInRequired", 401, RegionError],
      ["RequestLimitExceeded", 503, TransientError],
      ["InvalidParameterValue", 400, InvalidRequestError],
      ["InvalidAMIID.NotFound", 400, InvalidRequestError],
      ["SomethingNew", 400, InvalidRequestError],
      ["InternalError", 500, OutcomeUnknownError],
      ["Unavailable", 503, OutcomeUnknownError],
      ["SomethingNew", 500, OutcomeUnknownError],
    ])("classifies %s (%i) of a launch as %o", async (code, status, type) => {
      proxy.faults.push({ action: "RunInstances", when: "before", code, status })
      const error: unknown = await cloud.launch(spec()).catch((thrown: unknown) => thrown)
      expect(error).toBeInstanceOf(type)
      expect(error).toMatchObject({ code, message: expect.stringContaining(`RunInstances in ${REGION}: ${code}`) })
    })

    it.each(["InternalError", "Unavailable", "RequestLimitExceeded"])(
      "classifies %s of a list as transient",
      async (code) => {
        proxy.faults.push({ action: "DescribeInstances", when: "before", code, status: 503 })
        await expect(list()).rejects.toBeInstanceOf(TransientError)
      },
    )

    it("classifies unreachable networks as transient, even for a launch", async () => {
      vi.stubEnv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
      onTestFinished(() => void vi.stubEnv("AWS_ENDPOINT_URL", proxy.url))
      await expect(open().launch(spec())).rejects.toBeInstanceOf(TransientError)
    })

    it("limits an authentication error to the region that rejects the key", async () => {
      const refusal = { when: "before", code: "AuthFailure", status: 401 } as const
      proxy.faults.push({ ...refusal, action: "DescribeInstances" })
      await expect(cloud.launch(spec())).rejects.toBeInstanceOf(RegionError)
      const bad = { ...refusal, code: "InvalidClientTokenId", status: 403 }
      proxy.faults.push({ ...refusal, action: "DescribeInstances" }, { ...bad, action: "GetCallerIdentity" })
      await expect(list()).rejects.toBeInstanceOf(CredentialsError)
    })

    it("leaves out AWS' encoded authorization messages", async () => {
      const message = "You are not authorized. Encoded authorization failure message: abcdefg"
      const refusal = { action: "RunInstances", when: "before", code: "UnauthorizedOperation", status: 403 } as const
      proxy.faults.push({ ...refusal, message })
      await expect(cloud.launch(spec())).rejects.toThrow(/UnauthorizedOperation: You are not authorized\.$/)
    })
  })

  describe("terminate on EC2", () => {
    it("throws a transient error for a VM that EC2 does not know yet", async () => {
      const vm = await cloud.launch(spec())
      proxy.faults.push({ action: "TerminateInstances", when: "before", code: "InvalidInstanceID.NotFound" })
      await expect(cloud.terminate(vm)).rejects.toBeInstanceOf(TransientError)
      ahead = 301
      proxy.faults.push({ action: "TerminateInstances", when: "before", code: "InvalidInstanceID.NotFound" })
      await expect(cloud.terminate(vm)).resolves.toBeUndefined()
    })

    it("sends one call for several VMs, and an unknown VM does not spare the others", async () => {
      const vms = await Promise.all([spec(), spec(), spec()].map((asked) => cloud.launch(asked)))
      await Promise.all(vms.slice(0, 2).map((vm) => cloud.terminate(vm)))
      expect(proxy.of("TerminateInstances")).toHaveLength(1)
      const unknown = { id: "i-0123456789abcdef0", launch: "x", region: REGION }
      await Promise.all([...vms, unknown].map((vm) => cloud.terminate(vm)))
      expect((await list()).map(({ state }) => state)).toEqual(["terminated", "terminated", "terminated"])
    })
  })

  it("makes no changing call after the fence has fallen", async () => {
    const fence = (): void => {
      throw new Error("not the leader")
    }
    const vm = await cloud.launch(spec())
    proxy.requests.length = 0
    await expect(cloud.launch(spec(), fence)).rejects.toThrow("not the leader")
    await expect(cloud.terminate(vm, fence)).rejects.toThrow("not the leader")
    expect(new Set(actions())).toEqual(new Set(["DescribeInstances"]))
  })

  it("lists VMs page by page", async () => {
    proxy.pageSize = 2
    const made = await Promise.all(Array.from({ length: 5 }, () => cloud.launch(spec())))
    proxy.requests.length = 0
    expect(new Set((await list()).map(({ id }) => id))).toEqual(new Set(made.map(({ id }) => id)))
    expect(actions()).toEqual(["DescribeInstances", "DescribeInstances", "DescribeInstances"])
  })
})

/** Actions that AWS requires although no call has their name: for tags, and for the role of the spot market. */
const IMPLIED = ["ec2:CreateTags", "iam:CreateServiceLinkedRole"]
/** Action that needs no permission. */
const FREE = "sts:GetCallerIdentity"

it("Berth uses exactly the actions of docs/roles/aws.json, besides those for prices (runs last in this file)", () => {
  const statements = roleStatements()
  expect(new Set(statements.map(({ Effect }) => Effect))).toEqual(new Set(["Allow"]))
  // test/prices/aws.slow.test.ts compares the statement for prices.
  const allowed = statements.filter(({ Sid }) => Sid !== "Prices").flatMap(({ Action }) => Action)
  const called = [...proxy.actions].filter((action) => action !== FREE)
  expect([...new Set(allowed)].sort()).toEqual([...called, ...IMPLIED].sort())
  expect(proxy.actions).toContain(FREE)
})
