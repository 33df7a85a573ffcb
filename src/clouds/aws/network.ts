import type { CreateSecurityGroupCommandInput, RunInstancesCommandInput, Subnet } from "@aws-sdk/client-ec2"
import { defined } from "../../core/apis/defined.ts"
import { AccountError, CapacityError, InvalidRequestError, RegionError } from "../../core/outbound/errors.ts"
import type { LaunchSpec } from "../cloud.ts"
import { derivedIndex } from "../derived.ts"
import type { Ec2Calls } from "./calls.ts"
import { TAGS, tagList } from "./tags.ts"

/** Request for the default VPC of a region. */
export const DEFAULT_VPC = { Filters: [{ Name: "is-default", Values: ["true"] }] }

/** Configured network of a region's VMs. */
export interface NetworkSettings {
  /** Each VM gets one of them: the one in its zone, or any. Absent: the default VPC. */
  subnetIds?: readonly string[]
  /** Absent: a security group of Berth's own, without any inbound rule. */
  securityGroupIds?: readonly string[]
}

/** The network fields of a RunInstances request. */
export type NetworkChoice = Pick<
  RunInstancesCommandInput,
  "SubnetId" | "SecurityGroupIds" | "Placement" | "NetworkInterfaces"
>

/** Network of one request. */
export interface ChosenNetwork {
  fields: NetworkChoice
  /** True if more subnets are named for this VM. */
  hasOtherSubnets: boolean
}

/**
 * Finds the network for a region's VMs once, and caches it. Every process finds the same network, so that a launch
 * repeated by another process sends the same request.
 */
export class Network {
  readonly #calls: Ec2Calls
  readonly #settings: NetworkSettings
  /** Subnets of connections, by their ids. */
  readonly #named = new Map<string, Promise<readonly Subnet[]>>()
  #subnets: Promise<readonly Subnet[]> | undefined
  #defaultVpc: Promise<string> | undefined
  readonly #groups = new Map<string, Promise<string>>()

  constructor(calls: Ec2Calls, settings: NetworkSettings) {
    this.#calls = calls
    this.#settings = settings
  }

  /** Returns the network of this spec's VM. @throws CloudError */
  async choose(spec: LaunchSpec, fence: () => void): Promise<ChosenNetwork> {
    const { zone } = spec.offer
    const candidates = await this.#candidatesFor(spec)
    const number = spec.exhaustedSubnets ?? 0
    const subnet = candidates[number]
    if (subnet === undefined && number > 0) {
      throw new CapacityError("NoSubnet", `none of the ${candidates.length} named subnets had capacity`)
    }
    const vpc = subnet?.VpcId ?? (await this.#inDefaultVpc())
    const groups = this.#settings.securityGroupIds ?? []
    const SecurityGroupIds = groups.length > 0 ? [...groups] : [await this.#ownGroup(vpc, spec.installation, fence)]
    const fields = {
      ...defined({ SubnetId: subnet?.SubnetId }),
      SecurityGroupIds,
      // Without a zone EC2 chooses the one with the most capacity.
      ...(subnet === undefined && zone !== undefined && { Placement: { AvailabilityZone: zone } }),
    }
    return { fields: withAddress(fields, spec.network?.publicAddress), hasOtherSubnets: number + 1 < candidates.length }
  }

  /** Clears the cache: a cached resource no longer exists. */
  forget(): void {
    this.#subnets = undefined
    this.#named.clear()
    this.#defaultVpc = undefined
    this.#groups.clear()
  }

  /** Returns the subnets for this VM, in the order in which they are tried; none: the default VPC. */
  async #candidatesFor(spec: LaunchSpec): Promise<readonly Subnet[]> {
    if (spec.network?.subnets !== undefined) return await this.#namedSubnets(spec, spec.network.subnets)
    return await this.#configuredSubnets(spec)
  }

  /** Returns the connection's subnets in the offer's zone, in the Launch's own order. It depends on nothing else. */
  async #namedSubnets({ name, offer, network }: LaunchSpec, ids: readonly string[]): Promise<readonly Subnet[]> {
    const { region } = this.#calls
    const key = ids.join()
    let described = this.#named.get(key)
    if (described === undefined) {
      described = keepUnlessRejected(this.#describeSubnets(ids), () => this.#named.delete(key))
      this.#named.set(key, described)
    }
    const all = await described.catch((error: unknown) => {
      if (!(error instanceof InvalidRequestError)) throw error
      const message = `the connection's \`subnets\` name ${ids.join(", ")} for ${region}: ${error.message}. Create the subnets, or correct \`subnets\``
      throw new RegionError(error.code, message, { cause: error })
    })
    const stray = strayFault(all, network?.network)
    if (stray !== undefined) throw new RegionError("SubnetInOtherNetwork", stray)
    const usable = all.filter(({ AvailabilityZone: zone }) => offer.zone === undefined || zone === offer.zone)
    if (usable.length > 0) return rotate(usable, derivedIndex(name, usable.length))
    const message = `none of the connection's \`subnets\` ${ids.join(", ")} is in the zone ${offer.zone}: add one`
    throw new InvalidRequestError("NoSubnet", message)
  }

  /** Returns the installation's subnets in the offer's zone, in the Launch's own order. */
  async #configuredSubnets({ name, offer }: LaunchSpec): Promise<readonly Subnet[]> {
    const ids = this.#settings.subnetIds ?? []
    if (ids.length === 0) return []
    this.#subnets ??= keepUnlessRejected(this.#describeSubnets(ids), () => {
      this.#subnets = undefined
    })
    const subnets = (await this.#subnets).filter(
      ({ AvailabilityZone: zone }) => offer.zone === undefined || zone === offer.zone,
    )
    if (subnets.length > 0) return rotate(subnets, derivedIndex(name, subnets.length))
    const message = `none of the subnets ${ids.join(", ")} is in the zone ${offer.zone ?? "of any offer"}`
    throw new InvalidRequestError("NoSubnet", message)
  }

  async #describeSubnets(ids: readonly string[]): Promise<readonly Subnet[]> {
    const { Subnets = [] } = await this.#calls.send("DescribeSubnets", (ec2, options) =>
      ec2.describeSubnets({ SubnetIds: [...ids] }, options),
    )
    return [...Subnets].sort((a, b) => ((a.SubnetId ?? "") < (b.SubnetId ?? "") ? -1 : 1))
  }

  #inDefaultVpc(): Promise<string> {
    this.#defaultVpc ??= keepUnlessRejected(this.#findDefaultVpc(), () => {
      this.#defaultVpc = undefined
    })
    return this.#defaultVpc
  }

  async #findDefaultVpc(): Promise<string> {
    const { Vpcs = [] } = await this.#calls.send("DescribeVpcs", (ec2, options) =>
      ec2.describeVpcs(DEFAULT_VPC, options),
    )
    const id = Vpcs[0]?.VpcId
    if (id !== undefined) return id
    const message = `the account has no default VPC in ${this.#calls.region}: create one, or configure subnets in the connection`
    throw new AccountError("DefaultVpcDoesNotExist", message)
  }

  #ownGroup(vpc: string, installation: string, fence: () => void): Promise<string> {
    const key = `${vpc}/${installation}`
    let group = this.#groups.get(key)
    if (group === undefined) {
      group = keepUnlessRejected(this.#findOrMakeGroup(vpc, installation, fence), () => this.#groups.delete(key))
      this.#groups.set(key, group)
    }
    return group
  }

  async #findOrMakeGroup(vpc: string, installation: string, fence: () => void): Promise<string> {
    const found = await this.#findGroup(vpc, installation)
    if (found !== undefined) return found
    const tags = tagList({ [TAGS.installation]: installation })
    const request: CreateSecurityGroupCommandInput = {
      GroupName: groupName(installation),
      // A new group allows all outbound traffic and no inbound traffic.
      Description: "VMs of Berth: no inbound rule",
      VpcId: vpc,
      TagSpecifications: [{ ResourceType: "security-group", Tags: tags }],
    }
    try {
      const { GroupId } = await this.#calls.change("CreateSecurityGroup", fence, (ec2, options) =>
        ec2.createSecurityGroup(request, options),
      )
      if (GroupId !== undefined) return GroupId
    } catch (error) {
      if (!(error instanceof InvalidRequestError) || error.code !== "InvalidGroup.Duplicate") throw error
    }
    // Another process was faster, or an earlier call's answer was lost.
    const made = await this.#findGroup(vpc, installation)
    if (made !== undefined) return made
    const message = `the security group ${groupName(installation)} of ${vpc} lacks the tag ${TAGS.installation}=${installation}: delete it`
    throw new InvalidRequestError("InvalidGroup.Duplicate", message)
  }

  async #findGroup(vpc: string, installation: string): Promise<string | undefined> {
    const request = {
      Filters: [
        { Name: "vpc-id", Values: [vpc] },
        { Name: "group-name", Values: [groupName(installation)] },
        { Name: `tag:${TAGS.installation}`, Values: [installation] },
      ],
    }
    const { SecurityGroups = [] } = await this.#calls.send("DescribeSecurityGroups", (ec2, options) =>
      ec2.describeSecurityGroups(request, options),
    )
    return SecurityGroups[0]?.GroupId
  }
}

/** Returns the fault of a subnet outside the connection's network; undefined if there is none. */
export function strayFault(subnets: readonly Subnet[], network: string | undefined): string | undefined {
  const stray = subnets.find(({ VpcId }) => network !== undefined && VpcId !== network)
  if (stray === undefined) return undefined
  return `the subnet ${stray.SubnetId} is in ${stray.VpcId}, not in the connection's \`network\` ${network}: correct \`network\` or \`subnets\``
}

/** Returns the fields with or without a public address. @param isPublic absent: the subnet decides */
export function withAddress(fields: NetworkChoice, isPublic: boolean | undefined): NetworkChoice {
  if (isPublic === undefined) return fields
  const { SubnetId, SecurityGroupIds: Groups, ...others } = fields
  const subnet = SubnetId === undefined ? {} : { SubnetId }
  const address = { DeviceIndex: 0, DeleteOnTermination: true, AssociatePublicIpAddress: isPublic }
  return { ...others, NetworkInterfaces: [{ ...address, ...subnet, ...defined({ Groups }) }] }
}

function rotate<T>(items: readonly T[], first: number): T[] {
  return [...items.slice(first), ...items.slice(0, first)]
}

function groupName(installation: string): string {
  return `berth-${installation}`
}

/** Calls `forget` if the promise rejects, so that failures are not cached. */
function keepUnlessRejected<T>(promise: Promise<T>, forget: () => void): Promise<T> {
  promise.catch(forget)
  return promise
}
