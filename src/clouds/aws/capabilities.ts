import type { CreateSecurityGroupCommandInput, EC2 } from "@aws-sdk/client-ec2"
import { defined } from "../../core/apis/defined.ts"
import type { Offer } from "../../core/apis/offer.ts"
import { frozenSettings, type VmNetwork } from "../../core/apis/vm-settings.ts"
import { type CloudError, CredentialsError, RegionError } from "../../core/outbound/errors.ts"
import type { Capabilities, Capability, CapabilityQuestion, DenialReason, DiscoveredResource } from "../account.ts"
import {
  describe,
  judgeFindings,
  listable,
  noFindings,
  notListable,
  type Obstacle,
  settleCheck,
  unreadConsole,
} from "../capabilities.ts"
import { toCloudError } from "./errors.ts"
import { imageParameter, readImage } from "./images.ts"
import { DEFAULT_VPC, type NetworkChoice, type NetworkSettings, strayFault, withAddress } from "./network.ts"
import { zeroQuotas } from "./quotas.ts"
import { runInstancesInput } from "./request.ts"
import { ec2Client, type SdkConfig, ssmClient } from "./sdk.ts"
import { TAGS, tagList } from "./tags.ts"

export interface AwsChecks {
  config: (region: string) => SdkConfig
  networks: Readonly<Record<string, NetworkSettings>>
  /** Region for calls that are not about one region. */
  homeRegion: string
  /** Regions that every account has enabled. */
  defaultRegions: readonly string[]
  /** Lists the account's buckets. */
  storages: (signal: AbortSignal) => AsyncIterable<DiscoveredResource[]>
}

/** Maximum number of regions in use that one verification checks first. */
const MOST_REGIONS = 5

/**
 * Machine types of the requests that are only checked. A policy may allow some types only: a standard, a compute and a
 * GPU type stand for all. Each boots the image for amd64.
 */
const SAMPLE_TYPES = ["t3.micro", "c7i.large", "g4dn.xlarge"]

/** EC2 answers a request with DryRun by this error if it would have succeeded. */
const WOULD_SUCCEED = "DryRunOperation"
const UNAUTHORIZED = /^(UnauthorizedOperation|AccessDenied(Exception)?|NotAuthorized)$/
const ACCOUNT_DISABLED = /^(Blocked|AccountDisabled|PendingVerification)$/

/** Checks the uses of an AWS account by calls that read, and by requests with DryRun, which create nothing. */
export async function awsCapabilities(
  checks: AwsChecks,
  question: CapabilityQuestion,
  signal: AbortSignal,
): Promise<Capabilities> {
  const [vms, buckets, repositories, prices] = await Promise.all([
    settleCheck(vmsOf(checks, question, signal)),
    listable("buckets", checks.storages, signal),
    settleCheck(repositoriesOf(checks, signal)),
    settleCheck(pricesOf(checks, signal)),
  ])
  return { vms, buckets, repositories, prices }
}

interface RegionResult {
  region: string
  /** Obstacles and doubts; both are empty if VMs can start in the region. */
  obstacles: Obstacle[]
  doubts: string[]
  notes: string[]
}

/**
 * Returns the verdict on VMs. An organization may deny regions, and a default VPC may be missing in one. So an account
 * counts as unable only if every default region of AWS has an obstacle, or every region that the connection names.
 */
async function vmsOf(
  checks: AwsChecks,
  { regions: used, settings = {} }: CapabilityQuestion,
  signal: AbortSignal,
): Promise<Capability> {
  const check = (region: string) =>
    checkRegion(region, checks, { network: frozenSettings(settings, { region })?.network, signal })
  const named = settings.subnets && Object.keys(settings.subnets)
  const first = named?.slice(0, MOST_REGIONS) ?? (used.length > 0 ? used.slice(-MOST_REGIONS) : [checks.homeRegion])
  const results = await Promise.all(first.map(check))
  if (results.every(({ obstacles }) => obstacles.length > 0)) {
    const all = named ?? [...checks.defaultRegions, ...Object.keys(checks.networks)]
    const others = [...new Set(all)].filter((region) => !first.includes(region))
    results.push(...(await Promise.all(others.map(check))))
  }
  return judgeFindings(mergeRegions(results), "VMs can start: EC2 accepted a request that only checks permissions")
}

function mergeRegions(results: readonly RegionResult[]) {
  const findings = noFindings()
  const able = results.filter(({ obstacles, doubts }) => obstacles.length + doubts.length === 0)
  const unable = results.filter(({ obstacles }) => obstacles.length > 0)
  if (able.length > 0) {
    findings.notes.push(...able.flatMap(({ notes }) => notes))
    for (const { region, obstacles } of unable) findings.notes.push(`not in ${region}: ${obstacles[0]?.message}`)
    return { ...findings, notes: findings.notes.slice(0, MOST_REGIONS) }
  }
  if (unable.length === results.length) {
    const [{ obstacles = [] } = {}] = unable
    const isEverywhere = `it is so in all ${unable.length} regions that were checked`
    return { ...findings, obstacles: obstacles.slice(0, 3).map((each) => withNote(each, isEverywhere)) }
  }
  findings.doubts.push(...results.flatMap(({ doubts }) => doubts).slice(0, 3))
  return findings
}

function withNote(obstacle: Obstacle, note: string): Obstacle {
  return { ...obstacle, message: `${obstacle.message} (${note})` }
}

interface RegionCheck {
  /** Network of the VMs by the connection's settings. Absent: the installation's, or the default VPC. */
  network: VmNetwork | undefined
  signal: AbortSignal
}

async function checkRegion(
  region: string,
  checks: AwsChecks,
  { network: own, signal }: RegionCheck,
): Promise<RegionResult> {
  const result: RegionResult = { region, obstacles: [], doubts: [], notes: [] }
  const config = checks.config(region)
  const ec2 = await ec2Client(config)
  const ssm = await ssmClient(config)
  // They are read meanwhile. An account without this permission can still start VMs.
  const quotas = zeroQuotas(config, signal).catch((): string[] => [])
  try {
    const probe = new Probe(ec2, region, signal)
    const ownVms = { MaxResults: 5, Filters: [{ Name: "tag-key", Values: [TAGS.installation] }] }
    const vms = await probe.reads("DescribeInstances", () => ec2.describeInstances(ownVms, probe.abort))
    const network = await networkOf(probe, checks.networks[region] ?? {}, own)
    const image = await probe.reads("GetParameter", () =>
      readImage(ssm, imageParameter(sampleOffer(region, "t3.micro", "onDemand")), signal),
    )
    if (network !== undefined && image !== undefined) await probe.launches(region, { network, image })
    await probe.readsConsole(vms?.Reservations?.[0]?.Instances?.[0]?.InstanceId)
    return { ...result, ...probe.result, notes: [...probe.result.notes, ...(await quotas)] }
  } catch (error) {
    // An error of the network under the calls, or a region that does not answer.
    return { ...result, doubts: [describe(error)] }
  } finally {
    ec2.destroy()
    ssm.destroy()
  }
}

/** Returns the network of the region's VMs, and records an obstacle if there is none. */
async function networkOf(
  probe: Probe,
  { subnetIds = [], securityGroupIds = [] }: NetworkSettings,
  own: VmNetwork | undefined,
): Promise<NetworkChoice | undefined> {
  const ids = own?.subnets ?? subnetIds
  const place = ids.length > 0 ? await namedPlace(probe, ids, own?.network) : await defaultPlace(probe)
  if (place === undefined) return undefined
  const { vpc, subnet } = place
  if (securityGroupIds.length === 0) await checkSecurityGroup(probe, vpc)
  const fields = {
    ...defined({ SubnetId: subnet }),
    ...(securityGroupIds.length > 0 && { SecurityGroupIds: [...securityGroupIds] }),
  }
  return withAddress(fields, own?.publicAddress)
}

interface VmPlace {
  vpc: string
  /** Absent: EC2 chooses. */
  subnet?: string
}

async function namedPlace(probe: Probe, ids: readonly string[], network?: string): Promise<VmPlace | undefined> {
  const { ec2, abort } = probe
  const answer = await probe.reads("DescribeSubnets", () => ec2.describeSubnets({ SubnetIds: [...ids] }, abort))
  const { Subnets = [] } = answer ?? {}
  const stray = strayFault(Subnets, network)
  if (stray !== undefined) probe.found("NetworkMissing", stray)
  const [{ SubnetId: subnet, VpcId: vpc = "" } = {}] = Subnets
  return stray !== undefined || subnet === undefined ? undefined : { vpc, subnet }
}

async function defaultPlace(probe: Probe): Promise<VmPlace | undefined> {
  const { ec2, region, abort } = probe
  const answer = await probe.reads("DescribeVpcs", () => ec2.describeVpcs(DEFAULT_VPC, abort))
  if (answer === undefined) return undefined
  const vpc = answer.Vpcs?.[0]?.VpcId
  if (vpc !== undefined) return { vpc }
  const advice = `create one by \`aws ec2 create-default-vpc --region ${region}\`, or name \`subnets\` in the connection`
  probe.found("NetworkMissing", `the account has no default VPC in ${region}: ${advice}`)
  return undefined
}

/** Berth creates its security group once. If one exists, the permission to create it may be withdrawn. */
async function checkSecurityGroup(probe: Probe, vpc: string): Promise<void> {
  const { ec2, abort } = probe
  const Filters = [
    { Name: "vpc-id", Values: [vpc] },
    { Name: "tag-key", Values: [TAGS.installation] },
  ]
  const answer = await probe.reads("DescribeSecurityGroups", () => ec2.describeSecurityGroups({ Filters }, abort))
  if (answer === undefined || (answer.SecurityGroups ?? []).length > 0) return
  const Tags = tagList({ [TAGS.installation]: CHECK })
  const creation: CreateSecurityGroupCommandInput = {
    DryRun: true,
    GroupName: `berth-${CHECK}`,
    Description: "VMs of Berth: no inbound rule",
    VpcId: vpc,
    TagSpecifications: [{ ResourceType: "security-group", Tags }],
  }
  await probe.dryRun("CreateSecurityGroup", () => ec2.createSecurityGroup(creation, abort))
}

/** Value of the installation's tag in requests that are only checked. */
const CHECK = "check"

/** Makes the calls of one region, and records what stands in the way of VMs. */
class Probe {
  readonly result = { obstacles: [] as Obstacle[], doubts: [] as string[], notes: [] as string[] }
  readonly ec2: EC2
  readonly region: string
  readonly abort: { abortSignal: AbortSignal }

  constructor(ec2: EC2, region: string, signal: AbortSignal) {
    this.ec2 = ec2
    this.region = region
    this.abort = { abortSignal: signal }
  }

  found(reason: DenialReason, message: string, missing: readonly string[] = []): void {
    this.result.obstacles.push({ reason, message, missing })
  }

  /** Returns the answer of a call that reads; undefined if it failed, which is recorded. */
  async reads<T>(action: string, call: () => Promise<T>): Promise<T | undefined> {
    try {
      return await call()
    } catch (error) {
      this.#record(action, toCloudError(error, { action, region: this.region, changes: false }))
      return undefined
    }
  }

  /** Records the outcome of a request with DryRun. */
  async dryRun(action: string, call: () => Promise<unknown>): Promise<void> {
    const error = await this.#dryRunError(action, call)
    if (error !== undefined) this.#record(action, error)
  }

  /** Checks the request that creates a VM, on demand and spot. Any allowed machine type is enough. */
  async launches(region: string, { network, image }: { network: NetworkChoice; image: string }): Promise<void> {
    const run = (type: string, provisioning: Offer["provisioning"]) =>
      this.#dryRunError("RunInstances", () => {
        const input = runInstancesInput(sampleSpec(sampleOffer(region, type, provisioning), image), network)
        const { ClientToken: _, ...request } = input
        return this.ec2.runInstances({ ...request, DryRun: true }, this.abort)
      })
    let error: CloudError | undefined
    for (const type of SAMPLE_TYPES) {
      const outcome = await run(type, "onDemand")
      error ??= outcome
      if (outcome !== undefined) continue
      const spot = await run(type, "spot")
      if (spot !== undefined && isUnauthorized(spot)) this.result.notes.push(`spot VMs are denied: ${spot.message}`)
      return
    }
    if (error !== undefined) this.#record("RunInstances", error)
  }

  /** Notes the missing right to read a VM's console. The policy allows it for tagged VMs, so it can be checked only on one. */
  async readsConsole(InstanceId: string | undefined): Promise<void> {
    if (InstanceId === undefined) return
    const request = { DryRun: true, InstanceId }
    const error = await this.#dryRunError("GetConsoleOutput", () => this.ec2.getConsoleOutput(request, this.abort))
    if (error !== undefined && isUnauthorized(error)) this.result.notes.push(unreadConsole("ec2:GetConsoleOutput"))
  }

  /** Returns the error of a request with DryRun; undefined if EC2 would accept it. */
  async #dryRunError(action: string, call: () => Promise<unknown>): Promise<CloudError | undefined> {
    try {
      await call()
      return undefined
    } catch (error) {
      const explained = toCloudError(error, { action, region: this.region, changes: false })
      return explained.code === WOULD_SUCCEED ? undefined : explained
    }
  }

  #record(action: string, error: CloudError): void {
    if (isUnauthorized(error)) {
      const advice = "add the action to the policy of the user, as docs/aws.md describes"
      const service = action === "GetParameter" ? "ssm" : "ec2"
      this.found("PermissionsMissing", `AWS denies ${action} in ${this.region}: ${advice}`, [`${service}:${action}`])
    } else if (ACCOUNT_DISABLED.test(error.code)) this.found("AccountDisabled", error.message)
    else if (/(NotFound|Malformed)$/.test(error.code) && action === "DescribeSubnets") {
      const advice = "create the subnets, or correct `subnets` of the connection"
      this.found("NetworkMissing", `the subnets for ${this.region} are not found: ${advice} (${error.message})`)
    } else if (error instanceof CredentialsError) {
      this.found("ServiceDisabled", `the account can't use EC2 in ${this.region}: ${error.message}`)
    } else this.result.doubts.push(error.message)
  }
}

function isUnauthorized(error: CloudError): boolean {
  return (error instanceof RegionError || error instanceof CredentialsError) && UNAUTHORIZED.test(error.code)
}

function sampleOffer(region: string, instanceType: string, provisioning: Offer["provisioning"]): Offer {
  const size = { cpu: 2, memoryGib: 1, hourlyPriceUsd: 0, minimumBilledSeconds: 60 }
  return { cloud: "aws", region, instanceType, architecture: "amd64", provisioning, ...size }
}

function sampleSpec(offer: Offer, imageId: string) {
  const tags = { project: CHECK, job: CHECK }
  return { name: CHECK, installation: CHECK, tags, offer, imageId, userData: "", lifetimeSeconds: 3600 }
}

async function repositoriesOf(checks: AwsChecks, signal: AbortSignal): Promise<Capability> {
  const { default: sdk } = await import("@aws-sdk/client-ecr")
  const client = new sdk.ECR(checks.config(checks.homeRegion))
  const call = { action: "DescribeRepositories", region: checks.homeRegion, changes: false }
  try {
    await client.describeRepositories({ maxResults: 1 }, { abortSignal: signal })
    return { is: "granted", message: "the credentials can list image repositories" }
  } catch (error) {
    const explained = toCloudError(error, call)
    if (explained instanceof CredentialsError) return notListable("image repositories", explained.code)
    throw explained
  } finally {
    client.destroy()
  }
}

/** Checks both sources of prices: EC2's for spot, and the price list. */
async function pricesOf(checks: AwsChecks, signal: AbortSignal): Promise<Capability> {
  const findings = noFindings()
  const missing = (action: string, error: CloudError): void => {
    if (!(error instanceof CredentialsError)) throw error
    const advice = "add the statement Prices of docs/aws.md. Until then Berth uses another connection or its own list"
    const message = `AWS denies ${action}: ${advice}`
    findings.obstacles.push({ reason: "PermissionsMissing", message, missing: [action] })
  }
  const config = checks.config(checks.homeRegion)
  const ec2 = await ec2Client(config)
  const { default: sdk } = await import("@aws-sdk/client-pricing")
  const pricing = new sdk.Pricing(config)
  const call = (action: string) => ({ action, region: checks.homeRegion, changes: false })
  try {
    const spot = { DryRun: true, MaxResults: 1 }
    await ec2.describeSpotPriceHistory(spot, { abortSignal: signal }).catch((error: unknown) => {
      const explained = toCloudError(error, call("DescribeSpotPriceHistory"))
      if (explained.code !== WOULD_SUCCEED) missing("ec2:DescribeSpotPriceHistory", explained)
    })
    const products = { ServiceCode: "AmazonEC2", FormatVersion: "aws_v1", MaxResults: 1 }
    await pricing.getProducts(products, { abortSignal: signal }).catch((error: unknown) => {
      missing("pricing:GetProducts", toCloudError(error, call("GetProducts")))
    })
    return judgeFindings(findings, "the credentials can read current prices")
  } finally {
    ec2.destroy()
    pricing.destroy()
  }
}
