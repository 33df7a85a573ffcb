import type { Arm } from "./arm.ts"
import { statusOf } from "./errors.ts"
import { groupName, INSTALLATION_TAG, type Place } from "./machine.ts"

const GROUPS_API = "2021-04-01"
const NETWORK = "berth"
const SECURITY_GROUP = "berth-no-inbound"

/** Addresses within the network, which no other network can reach. */
const ADDRESSES = "10.0.0.0/16"

interface Where {
  installation: string
  region: string
}

export interface PlaceOptions {
  /** Seconds between two looks at whether Azure has made a resource, where Azure names no time of its own. */
  lookSeconds: number
  /** Called right before each request that changes anything; what it throws is passed on. */
  fence?: (() => void) | undefined
}

/**
 * Finds or makes where an installation's VMs of a region are put: a resource group of their own, and in it a network
 * whose security group lets nothing in. All of it is free of charge. Waits until each is made, as the next needs it.
 * @throws CloudError
 */
export async function placeFor(
  arm: Arm,
  { installation, region }: Where,
  { lookSeconds, fence }: PlaceOptions,
): Promise<Place> {
  const group = groupName(installation, region)
  const found = await findPlace(arm, group)
  if (found !== undefined) return found
  const tags = { [INSTALLATION_TAG]: installation }
  const path = `/subscriptions/${arm.subscription}/resourcegroups/${group}`
  await arm.request("read", { method: "PUT", path, apiVersion: GROUPS_API, body: { location: region, tags } }, fence)
  const waiting = { updateIntervalInMs: lookSeconds * 1000 }
  const securityGroupId = await arm.call(
    "read",
    async ({ network }, call) => {
      const options = { ...call, ...waiting }
      const rule = {
        name: "nothing-in",
        direction: "Inbound",
        access: "Deny",
        // Azure's own rules, which come after all others, let in what comes from the network itself.
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

/** The network is made last: when it is there, everything is. */
async function findPlace(arm: Arm, group: string): Promise<Place | undefined> {
  return await arm.call("read", async ({ network }, options) => {
    try {
      const { subnets, provisioningState } = await network.virtualNetworks.get(group, NETWORK, options)
      const subnetId = subnets?.[0]?.id
      const securityGroupId = subnets?.[0]?.networkSecurityGroup?.id
      if (provisioningState !== "Succeeded" || subnetId === undefined || securityGroupId === undefined) return undefined
      return { subnetId, securityGroupId }
    } catch (error) {
      if (statusOf(error) === 404) return undefined
      throw error
    }
  })
}
