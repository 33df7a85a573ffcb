import type { Arm } from "./arm.ts"
import { errorStatus } from "./errors.ts"
import { groupName, INSTALLATION_TAG, type Place } from "./machine.ts"
import { idOfSubnet, type NamedSubnet, requireSubnet } from "./named-subnet.ts"

const GROUPS_API = "2021-04-01"
const NETWORK = "berth"
const SECURITY_GROUP = "berth-no-inbound"

/** Addresses within the network, which no other network can reach. */
const ADDRESSES = "10.0.0.0/16"

interface Where {
  installation: string
  region: string
  /** Existing subnet, which the connection names. Absent: the installation's own network. */
  named?: NamedSubnet | undefined
}

export interface PlaceOptions {
  /** Poll interval while Azure creates a resource, seconds, if Azure returns none of its own. */
  lookSeconds: number
  /** Called right before each request that changes anything. Its error is passed on. */
  fence?: (() => void) | undefined
}

/**
 * Finds or creates the resources around an installation's VMs of a region. They are a resource group and a network in
 * it, whose security group allows no inbound traffic. All of them are free of charge. Waits for each resource, because
 * the next one needs it.
 * @throws CloudError
 */
export async function placeFor(
  arm: Arm,
  { installation, region, named }: Where,
  { lookSeconds, fence }: PlaceOptions,
): Promise<Place> {
  const group = groupName(installation, region)
  if (named !== undefined) {
    await requireSubnet(arm, named, region)
    const found = await findSecurityGroup(arm, group)
    const securityGroupId = found ?? (await createSecurityGroup(arm, { installation, region }, { lookSeconds, fence }))
    return { securityGroupId, subnetId: idOfSubnet(named) }
  }
  const found = await findPlace(arm, group)
  if (found !== undefined) return found
  const tags = { [INSTALLATION_TAG]: installation }
  const waiting = { updateIntervalInMs: lookSeconds * 1000 }
  const securityGroupId = await createSecurityGroup(arm, { installation, region }, { lookSeconds, fence })
  const subnetId = await arm.call(
    "read",
    async ({ network }, call) => {
      const options = { ...call, ...waiting }
      const subnet = { name: NETWORK, addressPrefix: ADDRESSES, networkSecurityGroup: { id: securityGroupId } }
      const wanted = { location: region, tags, addressSpace: { addressPrefixes: [ADDRESSES] }, subnets: [subnet] }
      const made = await network.virtualNetworks.createOrUpdate(group, NETWORK, wanted, options)
      return made.subnets?.[0]?.id ?? ""
    },
    fence,
  )
  return { securityGroupId, subnetId }
}

/** Creates the resource group and the security group in it, and returns the id of the latter. */
async function createSecurityGroup(
  arm: Arm,
  { installation, region }: Where,
  { lookSeconds, fence }: PlaceOptions,
): Promise<string> {
  const group = groupName(installation, region)
  const tags = { [INSTALLATION_TAG]: installation }
  const path = `/subscriptions/${arm.subscription}/resourcegroups/${group}`
  await arm.request("read", { method: "PUT", path, apiVersion: GROUPS_API, body: { location: region, tags } }, fence)
  const waiting = { updateIntervalInMs: lookSeconds * 1000 }
  return await arm.call(
    "read",
    async ({ network }, call) => {
      const options = { ...call, ...waiting }
      const rule = {
        name: "nothing-in",
        direction: "Inbound",
        access: "Deny",
        // Azure's own rules, which follow all others, allow inbound traffic from the network itself.
        priority: 4096,
        protocol: "*",
        sourceAddressPrefix: "*",
        sourcePortRange: "*",
        destinationAddressPrefix: "*",
        destinationPortRange: "*",
      }
      const wanted = { location: region, tags, securityRules: [rule] }
      return (await network.networkSecurityGroups.createOrUpdate(group, SECURITY_GROUP, wanted, options)).id ?? ""
    },
    fence,
  )
}

async function findSecurityGroup(arm: Arm, group: string): Promise<string | undefined> {
  return await arm.call("read", async ({ network }, options) => {
    try {
      const { id, provisioningState } = await network.networkSecurityGroups.get(group, SECURITY_GROUP, options)
      return provisioningState === "Succeeded" ? id : undefined
    } catch (error) {
      if (errorStatus(error) === 404) return undefined
      throw error
    }
  })
}

/** The network is created last: if it exists, everything exists. */
async function findPlace(arm: Arm, group: string): Promise<Place | undefined> {
  return await arm.call("read", async ({ network }, options) => {
    try {
      const { subnets, provisioningState } = await network.virtualNetworks.get(group, NETWORK, options)
      const subnetId = subnets?.[0]?.id
      const securityGroupId = subnets?.[0]?.networkSecurityGroup?.id
      if (provisioningState !== "Succeeded" || subnetId === undefined || securityGroupId === undefined) return undefined
      return { subnetId, securityGroupId }
    } catch (error) {
      if (errorStatus(error) === 404) return undefined
      throw error
    }
  })
}
