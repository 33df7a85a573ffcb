import { createHash } from "node:crypto"
import type { DescribeInstancesCommandInput, Instance } from "@aws-sdk/client-ec2"
import type { Clock } from "../../core/apis/clock.ts"
import type { CredentialFields } from "../../core/apis/credentials.ts"
import type { Offer } from "../../core/apis/offer.ts"
import {
  CapacityError,
  CloudError,
  InvalidRequestError,
  OutcomeUnknownError,
  RegionError,
  SubnetCapacityError,
  TransientError,
} from "../../core/outbound/errors.ts"
import type { Cloud, Identity, LaunchSpec, Scope, Vm, VmRef } from "../cloud.ts"
import type { RegionOpener } from "../provider.ts"
import { specDigest } from "../spec-digest.ts"
import { awsAccounts } from "./account.ts"
import { Batch } from "./batch.ts"
import { Ec2Calls } from "./calls.ts"
import { isKeyRefused, toCloudError } from "./errors.ts"
import { imageParameter, readImage } from "./images.ts"
import { Network, type NetworkSettings } from "./network.ts"
import { type Allowance, Pacer } from "./pacing.ts"
import { runInstancesInput } from "./request.ts"
import { type SdkConfig, sdkConfig, ssmClient } from "./sdk.ts"
import { findTag, TAGS } from "./tags.ts"
import { AssumedRoles } from "./temporary-keys.ts"
import { toVm } from "./vm.ts"

export interface AwsOptions {
  clock: Clock
  /** Network of the VMs, by region. Default: the default VPC. */
  networks?: Readonly<Record<string, NetworkSettings>>
  /** Maximum rate of each action. Default: a share of what EC2 allows an account. */
  allowances?: Readonly<Record<string, Allowance>>
  /** Timeout for one answer, seconds. Default 30. */
  answerSeconds?: number
  /** Default 300. EC2's lists show changes within seconds, and usually show terminated VMs for an hour. */
  consistencySeconds?: number
  /** Default: only roles that a connection's own key assumes. */
  roles?: AssumedRoles
}

/** Maximum number of open regions with their caches. The least recently used one is dropped. */
const MOST_OPEN = 256
/** Seconds for which the recommended image is cached. */
const IMAGE_SECONDS = 600
/** Seconds that a query waits for others that fit into the same call. */
const GATHER_SECONDS = 0.05
/**
 * Maximum number of values of a filter, and of ids in one call
 * (https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeInstances.html).
 */
const MOST_VALUES = 200
const PAGE_SIZE = 1000

/** Opens EC2 by region. Clients are cached per credentials and region, so all callers share one rate limiter. */
export function openAws(options: AwsOptions): RegionOpener {
  const open = new Map<string, Cloud>()
  return (credentials, region) => {
    const key = createHash("sha256")
      .update(JSON.stringify([region, credentials]))
      .digest("base64url")
    const cloud = open.get(key) ?? new AwsRegion(credentials, region, options)
    open.delete(key)
    open.set(key, cloud)
    const [oldest] = open.keys()
    if (open.size > MOST_OPEN && oldest !== undefined) open.delete(oldest)
    return cloud
  }
}

interface Ending {
  id: string
  fence: () => void
}

/** EC2 in one region of one account. */
class AwsRegion implements Cloud {
  readonly consistencySeconds: number
  readonly #region: string
  readonly #answerMs: number
  readonly #credentials: CredentialFields
  readonly #clock: Clock
  readonly #calls: Ec2Calls
  readonly #network: Network
  readonly #isNetworkNamed: boolean
  readonly #sdkConfig: SdkConfig
  readonly #looks: Batch<string, readonly Instance[]>
  readonly #endings: Batch<Ending, undefined>
  readonly #images = new Map<string, { image: Promise<string>; until: number }>()
  /**
   * Ids of recently created VMs with the time of their creation, in monotonic seconds. Parts of EC2 may not know them
   * yet.
   */
  readonly #fresh = new Map<string, number>()

  constructor(credentials: CredentialFields, region: string, options: AwsOptions) {
    const {
      clock,
      networks = {},
      allowances,
      answerSeconds = 30,
      consistencySeconds = 300,
      roles = new AssumedRoles(),
    } = options
    const network = networks[region] ?? {}
    this.consistencySeconds = consistencySeconds
    this.#region = region
    this.#answerMs = answerSeconds * 1000
    this.#credentials = credentials
    this.#clock = clock
    this.#calls = new Ec2Calls({ credentials, region, answerSeconds, pacer: new Pacer(clock, allowances), roles })
    this.#network = new Network(this.#calls, network)
    this.#isNetworkNamed = (network.subnetIds ?? network.securityGroupIds) !== undefined
    this.#sdkConfig = sdkConfig(credentials, { region, roles })
    const gathered = { most: MOST_VALUES, gatherSeconds: GATHER_SECONDS, clock }
    this.#looks = new Batch<string, readonly Instance[]>({ ...gathered, call: (names) => this.#look(names) })
    this.#endings = new Batch({ ...gathered, call: (endings) => this.#end(endings) })
  }

  readonly imageFor = async (offer: Offer): Promise<string> => {
    const parameter = imageParameter(offer)
    const now = this.#clock.monotonic()
    const known = this.#images.get(parameter)
    if (known !== undefined && now < known.until) return await known.image
    const image = this.#explained(() => this.#recommended(parameter))
    const entry = { image, until: now + IMAGE_SECONDS }
    this.#images.set(parameter, entry)
    image.catch(() => {
      if (this.#images.get(parameter) === entry) this.#images.delete(parameter)
    })
    return await image
  }

  /** SSM's own SDK retries a failed call: it only reads. */
  async #recommended(parameter: string): Promise<string> {
    const ssm = await ssmClient(this.#sdkConfig)
    try {
      return await readImage(ssm, parameter, AbortSignal.timeout(this.#answerMs))
    } catch (error) {
      throw toCloudError(error, { action: "GetParameter", region: this.#region, changes: false })
    } finally {
      ssm.destroy()
    }
  }

  async launch(spec: LaunchSpec, fence: () => void = () => undefined): Promise<Vm> {
    return await this.#explained(async () => {
      const found = await this.#find(spec)
      if (found !== undefined) return found
      const { fields, hasOtherSubnets } = await this.#network.choose(spec, fence)
      const request = runInstancesInput(spec, fields)
      try {
        const { Instances = [] } = await this.#calls.change("RunInstances", fence, (ec2, options) =>
          ec2.runInstances(request, options),
        )
        return this.#made(spec, Instances)
      } catch (error) {
        if (error instanceof CapacityError && hasOtherSubnets) {
          throw new SubnetCapacityError(error.code, error.message, { cause: error })
        }
        return await this.#afterRefusal(spec, error)
      }
    })
  }

  #made(spec: LaunchSpec, instances: readonly Instance[]): Vm {
    const vm = instances[0] && toVm(instances[0], this.#region)
    if (vm === undefined) throw new OutcomeUnknownError("NoInstance", "RunInstances returned no instance")
    if (vm.launch !== spec.name)
      throw new OutcomeUnknownError("NoInstance", "RunInstances returned the instance of another launch")
    this.#remember(vm.id)
    return vm
  }

  /** Interprets an error of RunInstances when an earlier call may have been accepted. */
  async #afterRefusal(spec: LaunchSpec, error: unknown): Promise<Vm> {
    if (!(error instanceof InvalidRequestError)) throw error
    if (error.code === "IdempotentParameterMismatch" || error.code === "IdempotentInstanceTerminated") {
      // An earlier call used the token for another spec. Or it was for this spec in another network or from another
      // release of Berth.
      const found = await this.#find(spec)
      if (found !== undefined) return found
      if (error.code === "IdempotentInstanceTerminated") throw error
      throw new OutcomeUnknownError(error.code, `${error.message}; EC2 doesn't list the VM of the earlier call yet`)
    }
    const isNamed = this.#isNetworkNamed || spec.network?.subnets !== undefined
    // The next launch describes the connection's subnets again, and reports which one is missing.
    if (spec.network?.subnets !== undefined) this.#network.forget()
    if (!isNamed && /^Invalid(Group|SecurityGroupID|SubnetID|VpcID)\./.test(error.code)) {
      // A found resource was deleted, or is not visible everywhere yet. The next attempt searches again.
      this.#network.forget()
      throw new TransientError(error.code, error.message, { cause: error })
    }
    throw error
  }

  /** Returns the VM of this spec if EC2 lists it. @throws InvalidRequestError if it was created for another spec */
  async #find(spec: LaunchSpec): Promise<Vm | undefined> {
    const instances = (await this.#looks.ask(spec.name)).filter(
      ({ Tags }) => findTag(Tags, TAGS.installation) === spec.installation,
    )
    const [first] = instances.sort(byLife)
    if (first === undefined) return undefined
    if (findTag(first.Tags, TAGS.spec) === specDigest(spec)) return toVm(first, this.#region)
    const message = `the VM ${first.InstanceId} was created for ${spec.name} by another request`
    throw new InvalidRequestError("IdempotentParameterMismatch", message)
  }

  async #look(names: readonly string[]): Promise<(readonly Instance[])[]> {
    const filter = { Name: `tag:${TAGS.launch}`, Values: [...new Set(names)] }
    const instances: Instance[] = []
    for await (const page of this.#pages({ Filters: [filter] })) instances.push(...page)
    return names.map((name) => instances.filter(({ Tags }) => findTag(Tags, TAGS.launch) === name))
  }

  async list({ installation, region }: Scope): Promise<Vm[]> {
    if (region !== this.#region) return []
    return await this.#explained(async () => {
      const filter = { Name: `tag:${TAGS.installation}`, Values: [installation] }
      const vms: Vm[] = []
      for await (const page of this.#pages({ Filters: [filter] })) {
        vms.push(...page.flatMap((instance) => toVm(instance, this.#region) ?? []))
      }
      return vms
    })
  }

  async *#pages(filter: DescribeInstancesCommandInput): AsyncGenerator<Instance[]> {
    let NextToken: string | undefined
    do {
      const request = { ...filter, MaxResults: PAGE_SIZE, ...(NextToken && { NextToken }) }
      const page = await this.#calls.send("DescribeInstances", (ec2, options) =>
        ec2.describeInstances(request, options),
      )
      yield (page.Reservations ?? []).flatMap(({ Instances = [] }) => Instances)
      NextToken = page.NextToken
    } while (NextToken)
  }

  async terminate({ id }: VmRef, fence: () => void = () => undefined): Promise<void> {
    await this.#explained(() => this.#endings.ask({ id, fence }))
  }

  async #end(endings: readonly Ending[]): Promise<(Error | undefined)[]> {
    const ids = [...new Set(endings.map(({ id }) => id))]
    const fence = (): void => {
      for (const ending of endings) ending.fence()
    }
    try {
      await this.#terminateInstances(ids, fence)
      return endings.map(() => undefined)
    } catch (error) {
      if (!(error instanceof CloudError) || !isUnknownInstance(error)) throw error
      if (ids.length === 1) return endings.map(() => this.#unknownInstance(ids[0] ?? "", error))
    }
    // If one id is unknown, EC2 terminates none of them.
    return await Promise.all(endings.map((ending) => this.#endOne(ending)))
  }

  async #endOne({ id, fence }: Ending): Promise<Error | undefined> {
    try {
      await this.#terminateInstances([id], fence)
      return undefined
    } catch (error) {
      if (!(error instanceof Error)) throw error
      return error instanceof CloudError && isUnknownInstance(error) ? this.#unknownInstance(id, error) : error
    }
  }

  async #terminateInstances(ids: readonly string[], fence: () => void): Promise<void> {
    const request = { InstanceIds: [...ids] }
    await this.#calls.change("TerminateInstances", fence, (ec2, options) => ec2.terminateInstances(request, options))
  }

  /** Interprets an unknown id: the VM is deleted, unless it was created recently. */
  #unknownInstance(id: string, error: CloudError): Error | undefined {
    const madeAt = this.#fresh.get(id)
    if (madeAt === undefined || this.#clock.monotonic() - madeAt > this.consistencySeconds) return undefined
    return new TransientError(error.code, error.message, { cause: error })
  }

  /**
   * Reads the newest output, which only machines on Nitro have. For the others, EC2 keeps what they wrote until their
   * start or end. An error says nothing about the key: `list` and `launch` find that out.
   */
  readonly consoleOf = async ({ id }: VmRef): Promise<string | undefined> => {
    try {
      return await this.#consoleOutput(id, true)
    } catch (error) {
      if (!(error instanceof InvalidRequestError)) throw error
      if (isUnknownInstance(error)) return undefined
      return await this.#consoleOutput(id, false)
    }
  }

  async #consoleOutput(InstanceId: string, Latest: boolean): Promise<string> {
    const { Output = "" } = await this.#calls.send("GetConsoleOutput", (ec2, options) =>
      ec2.getConsoleOutput({ InstanceId, Latest }, options),
    )
    return Buffer.from(Output, "base64").toString()
  }

  #remember(id: string): void {
    const now = this.#clock.monotonic()
    for (const [known, at] of this.#fresh) {
      if (now - at <= this.consistencySeconds) break
      this.#fresh.delete(known)
    }
    this.#fresh.set(id, now)
  }

  verify(): Promise<Identity> {
    return awsAccounts()(this.#credentials).verify(AbortSignal.timeout(this.#answerMs))
  }

  /**
   * Distinguishes a wrong key from a region that the account has not enabled: both give the same error. A call in a
   * region that every account has decides. Otherwise one such region would pause all the others.
   */
  async #explained<T>(call: () => Promise<T>): Promise<T> {
    try {
      return await call()
    } catch (error) {
      if (!isKeyRefused(error)) throw error
      const isGood = await this.verify().then(
        () => true,
        () => false,
      )
      if (!isGood) throw error
      const message = `AWS accepts the key in other regions, but not in ${this.#region}: enable the region for the account, or leave it out`
      throw new RegionError("RegionNotEnabled", message, { cause: error })
    }
  }
}

function isUnknownInstance({ code }: CloudError): boolean {
  return code.startsWith("InvalidInstanceID.")
}

/** Orders running VMs before terminated ones, then by launch time. */
function byLife(a: Instance, b: Instance): number {
  const ended = (instance: Instance) => (instance.State?.Name === "terminated" ? 1 : 0)
  return ended(a) - ended(b) || Number(a.LaunchTime ?? 0) - Number(b.LaunchTime ?? 0)
}
