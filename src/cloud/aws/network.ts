import { createHash } from "node:crypto"
import {
  CreateSecurityGroupCommand,
  DescribeSecurityGroupsCommand,
  DescribeSubnetsCommand,
  DescribeVpcsCommand,
  type RunInstancesCommandInput,
  type Subnet,
} from "@aws-sdk/client-ec2"
import { InvalidRequestError } from "../errors.ts"
import type { LaunchSpec } from "../provider.ts"
import type { Ec2Calls } from "./calls.ts"
import { TAGS, tagList } from "./tags.ts"

/** Where VMs of a region shall be, as far as somebody has said so. */
export interface NetworkSettings {
  /** One is chosen for each VM: that of its zone, or any. None: the default VPC. */
  subnetIds?: readonly string[]
  /** None: a group of Berth's own, without any inbound rule. */
  securityGroupIds?: readonly string[]
}

/** The part of a request that says where in the network a VM is. */
export type NetworkChoice = Pick<RunInstancesCommandInput, "SubnetId" | "SecurityGroupIds" | "Placement">

/**
 * Finds out where in a region's network VMs can be, once, and remembers it. What it finds is the same each time, so that
 * a launch that is repeated by another process makes the same request.
 */
export class Network {
  readonly #calls: Ec2Calls
  readonly #settings: NetworkSettings
  #subnets: Promise<readonly Subnet[]> | undefined
  #defaultVpc: Promise<string> | undefined
  readonly #groups = new Map<string, Promise<string>>()

  constructor(calls: Ec2Calls, settings: NetworkSettings) {
    this.#calls = calls
    this.#settings = settings
  }

  /** Where the VM of this spec is to be. @throws CloudError */
  async choose(spec: LaunchSpec, fence: () => void): Promise<NetworkChoice> {
    const { zone } = spec.offer
    const subnet = await this.#subnetFor(spec)
    const vpc = subnet?.VpcId ?? (await this.#inDefaultVpc())
    const groups = this.#settings.securityGroupIds ?? []
    const SecurityGroupIds = groups.length > 0 ? [...groups] : [await this.#ownGroup(vpc, spec.installation, fence)]
    if (subnet?.SubnetId !== undefined) return { SubnetId: subnet.SubnetId, SecurityGroupIds }
    // Without a zone EC2 takes the one that has most room.
    return { SecurityGroupIds, ...(zone !== undefined && { Placement: { AvailabilityZone: zone } }) }
  }

  /** Something of it is there no more. */
  forget(): void {
    this.#subnets = undefined
    this.#defaultVpc = undefined
    this.#groups.clear()
  }

  async #subnetFor({ name, offer }: LaunchSpec): Promise<Subnet | undefined> {
    const ids = this.#settings.subnetIds ?? []
    if (ids.length === 0) return undefined
    this.#subnets ??= kept(this.#describeSubnets(ids), () => {
      this.#subnets = undefined
    })
    const subnets = (await this.#subnets).filter(
      ({ AvailabilityZone: zone }) => offer.zone === undefined || zone === offer.zone,
    )
    const chosen = subnets[choiceOf(name, subnets.length)]
    if (chosen !== undefined) return chosen
    const message = `none of the subnets ${ids.join(", ")} is in the zone ${offer.zone ?? "of any offer"}`
    throw new InvalidRequestError("NoSubnet", message)
  }

  async #describeSubnets(ids: readonly string[]): Promise<readonly Subnet[]> {
    const command = new DescribeSubnetsCommand({ SubnetIds: [...ids] })
    const { Subnets = [] } = await this.#calls.send("DescribeSubnets", (client, options) =>
      client.send(command, options),
    )
    return [...Subnets].sort((a, b) => ((a.SubnetId ?? "") < (b.SubnetId ?? "") ? -1 : 1))
  }

  #inDefaultVpc(): Promise<string> {
    this.#defaultVpc ??= kept(this.#findDefaultVpc(), () => {
      this.#defaultVpc = undefined
    })
    return this.#defaultVpc
  }

  async #findDefaultVpc(): Promise<string> {
    const command = new DescribeVpcsCommand({ Filters: [{ Name: "is-default", Values: ["true"] }] })
    const { Vpcs = [] } = await this.#calls.send("DescribeVpcs", (client, options) => client.send(command, options))
    const id = Vpcs[0]?.VpcId
    if (id !== undefined) return id
    const message = `the account has no default VPC in ${this.#calls.region}: make one, or name subnets for Berth`
    throw new InvalidRequestError("DefaultVpcDoesNotExist", message)
  }

  #ownGroup(vpc: string, installation: string, fence: () => void): Promise<string> {
    const key = `${vpc}/${installation}`
    let group = this.#groups.get(key)
    if (group === undefined) {
      group = kept(this.#findOrMakeGroup(vpc, installation, fence), () => this.#groups.delete(key))
      this.#groups.set(key, group)
    }
    return group
  }

  async #findOrMakeGroup(vpc: string, installation: string, fence: () => void): Promise<string> {
    const found = await this.#findGroup(vpc, installation)
    if (found !== undefined) return found
    const tags = tagList({ [TAGS.installation]: installation })
    const command = new CreateSecurityGroupCommand({
      GroupName: groupName(installation),
      // A new group lets everything out and nothing in.
      Description: "VMs of Berth: no inbound rule",
      VpcId: vpc,
      TagSpecifications: [{ ResourceType: "security-group", Tags: tags }],
    })
    try {
      const { GroupId } = await this.#calls.change("CreateSecurityGroup", fence, (client, options) =>
        client.send(command, options),
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
    const command = new DescribeSecurityGroupsCommand({
      Filters: [
        { Name: "vpc-id", Values: [vpc] },
        { Name: "group-name", Values: [groupName(installation)] },
        { Name: `tag:${TAGS.installation}`, Values: [installation] },
      ],
    })
    const { SecurityGroups = [] } = await this.#calls.send("DescribeSecurityGroups", (client, options) =>
      client.send(command, options),
    )
    return SecurityGroups[0]?.GroupId
  }
}

function groupName(installation: string): string {
  return `berth-${installation}`
}

/** The same number below `count` for the same name, evenly spread over names. */
function choiceOf(name: string, count: number): number {
  return count === 0 ? 0 : createHash("sha256").update(name).digest().readUInt32BE(0) % count
}

/** A promise that is forgotten when it fails. */
function kept<T>(promise: Promise<T>, forget: () => void): Promise<T> {
  promise.catch(forget)
  return promise
}
