import {
  CreateSubnetCommand,
  CreateVpcCommand,
  DeleteSubnetCommand,
  DeleteVpcCommand,
  DescribeInstancesCommand,
  DescribeSecurityGroupsCommand,
  DescribeSubnetsCommand,
  DescribeVpcsCommand,
  EC2Client,
  RunInstancesCommand,
  TerminateInstancesCommand,
} from "@aws-sdk/client-ec2"
import { afterAll, afterEach, beforeAll, expect } from "vitest"
import type { Capabilities } from "../../src/clouds/account.ts"
import { awsAccounts } from "../../src/clouds/aws/account.ts"
import { awsCapabilities } from "../../src/clouds/aws/capabilities.ts"
import type { VmSettings } from "../../src/core/apis/vm-settings.ts"
import { type Moto, startMoto } from "../moto.ts"
import { missingTool, needing } from "../needing.ts"
import { unending } from "../providers/api-server.ts"
import { type AwsFront, startAwsFront } from "../providers/aws-front.ts"
import { makeUser, VM_ACTIONS, withoutAuthentication as withoutAuthenticationOf } from "./moto-users.ts"

const { describe, it } = needing(missingTool("moto"))

const ROOT = { access_key_id: "AKIAOFATEST000000000", secret_access_key: "a-secret-of-a-test" }

let moto: Moto
let front: AwsFront

beforeAll(async () => {
  moto = await startMoto()
  front = await startAwsFront(moto.url, 100)
})
afterEach(async () => {
  await withoutAuthentication(1_000_000)
  front.refused.clear()
  front.quotas.clear()
})
afterAll(async () => {
  await front.stop()
  await moto.stop()
})

const withoutAuthentication = (calls: number) => withoutAuthenticationOf(moto, calls)
const userWith = (name: string, actions: readonly string[]) => makeUser(moto, name, actions)

/** Checks by the account of a key. Policies count only at moto itself: the proxy changes headers that the key has signed. */
async function check(endpoint: string, key: typeof ROOT, regions: readonly string[] = []): Promise<Capabilities> {
  return (await awsAccounts({ endpoint })(key).capabilities?.({ regions }, unending())) ?? {}
}

/** Checks in a world of these regions only. */
async function checkIn(
  regions: readonly string[],
  { key = ROOT, endpoint = front.url, networks = {}, used = [], settings = {} }: Partial<World> = {},
): Promise<Capabilities> {
  const credentials = { accessKeyId: key.access_key_id, secretAccessKey: key.secret_access_key }
  const checks = {
    config: (region: string) => ({ region, endpoint, maxAttempts: 1, credentials }),
    networks,
    homeRegion: regions[0] ?? "",
    defaultRegions: regions,
    storages: async function* () {
      yield []
    },
  }
  return await awsCapabilities(checks, { regions: used, settings }, unending())
}

interface World {
  key: typeof ROOT
  endpoint: string
  networks: Record<string, { subnetIds: string[] }>
  used: string[]
  settings: VmSettings
}

function ec2(region: string): EC2Client {
  const credentials = { accessKeyId: ROOT.access_key_id, secretAccessKey: ROOT.secret_access_key }
  return new EC2Client({ region, credentials, endpoint: moto.url })
}

async function deleteDefaultVpc(region: string): Promise<void> {
  const client = ec2(region)
  const { Subnets = [] } = await client.send(new DescribeSubnetsCommand())
  for (const { SubnetId } of Subnets) await client.send(new DeleteSubnetCommand({ SubnetId }))
  const { Vpcs = [] } = await client.send(new DescribeVpcsCommand())
  for (const { VpcId } of Vpcs) await client.send(new DeleteVpcCommand({ VpcId }))
}

describe("capabilities of an AWS account", () => {
  it("are True with the rights of docs/aws.md, and the check creates nothing", async () => {
    const key = await userWith("able", [...VM_ACTIONS, "s3:ListAllMyBuckets", "ecr:DescribeRepositories"])
    await withoutAuthentication(0)
    const found = await check(moto.url, key, ["eu-central-1"])
    expect(found).toMatchObject({
      vms: { is: "granted" },
      buckets: { is: "granted" },
      repositories: { is: "granted" },
    })
    await withoutAuthentication(1_000_000)
    const client = ec2("eu-central-1")
    expect((await client.send(new DescribeInstancesCommand())).Reservations).toEqual([])
    const { SecurityGroups = [] } = await client.send(new DescribeSecurityGroupsCommand())
    expect(SecurityGroups.map(({ GroupName }) => GroupName)).toEqual(["default"])
  })

  it("name the action that the policy lacks", async () => {
    for (const lacking of ["ec2:RunInstances", "ec2:DescribeVpcs", "ec2:CreateSecurityGroup"]) {
      const rest = VM_ACTIONS.filter((action) => action !== lacking)
      const key = await userWith(`no-${lacking.replace(":", "-")}`, rest)
      await withoutAuthentication(0)
      const { vms } = await checkIn(["us-east-1"], { key, endpoint: moto.url })
      expect(vms, lacking).toMatchObject({ is: "denied", reason: "PermissionsMissing" })
      expect(vms?.message).toContain(`AWS denies ${lacking.split(":")[1]} in us-east-1`)
      expect(vms).toHaveProperty("missing", [lacking])
      await withoutAuthentication(1_000_000)
    }
    front.refused.set("ssm/us-east-1", { status: 400, code: "AccessDeniedException" })
    expect((await checkIn(["us-east-1"])).vms?.message).toContain("AWS denies GetParameter")
  })

  it("mention the right to read consoles if it is missing for a VM of Berth's, and VMs start without it", async () => {
    const client = ec2("us-west-2")
    const Tags = [{ Key: "berth.dev/installation", Value: "i" }]
    const vm = { ImageId: "ami-0123456789abcdef0", MinCount: 1, MaxCount: 1 }
    const key = await userWith("no-console", VM_ACTIONS)
    const message = async () => {
      await withoutAuthentication(0)
      const { vms } = await checkIn(["us-west-2"], { key, endpoint: moto.url })
      await withoutAuthentication(1_000_000)
      expect(vms?.is).toBe("granted")
      return vms?.message
    }
    expect(await message()).not.toContain("GetConsoleOutput")
    const { Instances = [] } = await client.send(
      new RunInstancesCommand({ ...vm, TagSpecifications: [{ ResourceType: "instance", Tags }] }),
    )
    expect(await message()).toContain("can't say why: add ec2:GetConsoleOutput")
    await client.send(
      new TerminateInstancesCommand({ InstanceIds: Instances.map(({ InstanceId = "" }) => InstanceId) }),
    )
  })

  it("count another region if the first denies everything", async () => {
    front.refused.set("ec2/us-east-1", { status: 403, code: "UnauthorizedOperation" })
    const { vms } = await checkIn(["us-east-1", "eu-west-1"])
    expect(vms).toMatchObject({ is: "granted", message: expect.stringContaining("not in us-east-1") })
  })

  it("mention quotas of zero in each region in use, and the command that requests more", async () => {
    for (const code of ["L-1216C47A", "L-34B43A08"]) front.quotas.set(code, 5)
    front.quotas.set("L-DB2E81BA", 0)
    const { vms } = await checkIn(["us-east-1"], { used: ["us-east-1", "eu-west-1"] })
    expect(vms?.is).toBe("granted")
    expect(vms?.message).toMatch(/no VMs on demand with GPUs of the G families in us-east-1, because .* is 0/)
    expect(vms?.message).toMatch(/`aws service-quotas request-.* --quota-code L-DB2E81BA --region eu-west-1 /)
    expect(vms?.message).not.toContain("spot")
  })

  it("leave quotas unknown without the permission to read them, and while they are unknown to AWS", async () => {
    const { vms } = await checkIn(["us-east-1"])
    expect(vms).toEqual({ is: "granted", message: expect.not.stringContaining("quota") })
    front.quotas.set("L-DB2E81BA", 0)
    front.refused.set("servicequotas/us-east-1", { status: 400, code: "AccessDeniedException" })
    expect((await checkIn(["us-east-1"])).vms).toEqual(vms)
    expect(front.requests.filter((request) => request.includes("GetServiceQuota"))).not.toEqual([])
  })

  it("do not count a rejected list as a missing right on a bucket or image", async () => {
    front.refused.set("s3/us-east-1", { status: 403, code: "AccessDenied" })
    front.refused.set("ecr/us-east-1", { status: 400, code: "AccessDeniedException" })
    const found = await check(front.url, ROOT)
    expect(found).toMatchObject({ vms: { is: "granted" }, buckets: { is: "unknown" }, repositories: { is: "unknown" } })
  })

  it("name the rights for prices that are missing", async () => {
    expect((await checkIn(["us-east-1"])).prices).toMatchObject({ is: "granted" })
    front.refused.set("pricing/us-east-1", { status: 400, code: "AccessDeniedException" })
    front.refused.set("ec2/us-east-1", { status: 403, code: "UnauthorizedOperation" })
    const { prices } = await checkIn(["us-east-1"])
    expect(prices).toMatchObject({ is: "denied", reason: "PermissionsMissing" })
    expect(prices?.message).toMatch(/ec2:DescribeSpotPriceHistory.*pricing:GetProducts/)
  })

  it("are False without a default VPC in any region, and name the command that creates one", async () => {
    const regions = ["eu-north-1", "eu-west-3"]
    await deleteDefaultVpc("eu-north-1")
    const one = await checkIn(regions)
    expect(one.vms).toMatchObject({ is: "granted", message: expect.stringContaining("not in eu-north-1") })
    await deleteDefaultVpc("eu-west-3")
    const none = await checkIn(regions)
    expect(none.vms).toMatchObject({ is: "denied", reason: "NetworkMissing" })
    expect(none.vms?.message).toContain("aws ec2 create-default-vpc --region eu-north-1")
    const networks = { "eu-west-3": { subnetIds: ["subnet-00000000"] } }
    const named = await checkIn(regions, { networks, used: ["eu-west-3"] })
    expect(named.vms?.message).toContain("subnet-00000000")
  })

  it("are about the subnets of the connection, without a default VPC", async () => {
    await deleteDefaultVpc("eu-west-2")
    const client = ec2("eu-west-2")
    const { Vpc } = await client.send(new CreateVpcCommand({ CidrBlock: "10.0.0.0/16" }))
    const created = await client.send(new CreateSubnetCommand({ VpcId: Vpc?.VpcId, CidrBlock: "10.0.0.0/24" }))
    const subnets = { "eu-west-2": [created.Subnet?.SubnetId ?? ""] }
    // us-east-1 has a default VPC, but the connection starts no VM there.
    const check = (settings: VmSettings) => checkIn(["us-east-1", "eu-west-2"], { settings })
    const able = await check({ subnets, network: Vpc?.VpcId ?? "", publicAddress: false })
    expect(able.vms).toMatchObject({ is: "granted" })
    const elsewhere = await check({ subnets, network: "vpc-00000000" })
    expect(elsewhere.vms).toMatchObject({ is: "denied", reason: "NetworkMissing" })
    expect(elsewhere.vms?.message).toContain("not in the connection's `network` vpc-00000000")
    const missing = await check({ subnets: { "eu-west-2": ["subnet-00000000"] } })
    expect(missing.vms).toMatchObject({ is: "denied", reason: "NetworkMissing" })
    expect(missing.vms?.message).toMatch(
      /subnets for eu-west-2 are not found: create the subnets, or correct `subnets`/,
    )
  })

  it("are unanswered or unknown while AWS does not answer", async () => {
    front.refused.set("ec2/us-east-1", { status: 503, code: "Unavailable" })
    front.refused.set("s3/us-east-1", { status: 503, code: "SlowDown" })
    const found = await check(front.url, ROOT)
    expect(found).toMatchObject({ vms: { is: "unknown" }, buckets: { is: "unanswered" } })
  })
})
