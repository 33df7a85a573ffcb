import { RegionError } from "../../core/outbound/errors.ts"
import type { LaunchSpec } from "../cloud.ts"
import { derivedIndex } from "../derived.ts"
import type { Arm } from "./arm.ts"
import { errorStatus } from "./errors.ts"

/** Existing subnet that a connection names. */
export interface NamedSubnet {
  subscription: string
  group: string
  network: string
  subnet: string
}

const NETWORK_ID =
  /^\/subscriptions\/([^/]+)\/resource[Gg]roups\/([^/]+)\/providers\/Microsoft[.]Network\/virtualNetworks\/([^/]+)$/

/**
 * Returns the existing subnet for a VM; undefined if the connection names none. A connection with several subnets in a
 * region spreads its VMs over them. Each Launch always gets the same one.
 */
export function namedSubnet({ name, network }: LaunchSpec, subscription: string): NamedSubnet | undefined {
  const { subnets = [], network: networkName = "" } = network ?? {}
  const chosen = subnets[derivedIndex(name, subnets.length)]
  return chosen === undefined ? undefined : parseSubnet(chosen, { network: networkName, subscription })
}

/** Parses a subnet of a connection's `subnets`. @param own the connection's network and subscription */
export function parseSubnet(text: string, own: { network: string; subscription: string }): NamedSubnet {
  const end = text.lastIndexOf("/")
  const network = end < 0 ? own.network : text.slice(0, end).replace(/\/subnets$/, "")
  return { ...networkNamed(network, own.subscription), subnet: text.slice(end + 1) }
}

/** Parses RESOURCE-GROUP/NETWORK, or the id of a virtual network. */
function networkNamed(text: string, own: string): Omit<NamedSubnet, "subnet"> {
  const [, subscription, group, network] = NETWORK_ID.exec(text) ?? []
  if (subscription !== undefined && group !== undefined && network !== undefined) {
    return { subscription, group, network }
  }
  const [groupOnly = "", networkOnly = ""] = text.split("/")
  return { subscription: own, group: groupOnly, network: networkOnly }
}

/** Returns the resource id of a subnet. */
export function idOfSubnet({ subnet, ...network }: NamedSubnet): string {
  return `${idOfNetwork(network)}/subnets/${subnet}`
}

function idOfNetwork({ subscription, group, network }: Omit<NamedSubnet, "subnet">): string {
  return `/subscriptions/${subscription}/resourceGroups/${group}/providers/Microsoft.Network/virtualNetworks/${network}`
}

const NETWORKS_API = "2024-05-01"

/**
 * Checks that a named subnet exists and is in the region. @throws RegionError if not, with the connection's field and the
 * remedy; other CloudErrors
 */
export async function requireSubnet(arm: Arm, named: NamedSubnet, region: string): Promise<void> {
  const fault = await subnetFault(named, { region, subscription: arm.subscription }, (path, apiVersion) =>
    findNetwork(arm, path, apiVersion),
  )
  if (fault !== undefined) throw new RegionError(fault.code, fault.message)
}

/** Reads a virtual network by its path; undefined if it does not exist. */
type FindNetwork = (path: string, apiVersion: string) => Promise<FoundNetwork | undefined>

/**
 * Returns the reason why VMs of a region and subscription can't use a named subnet; undefined if they can. The message
 * names the connection's field and the remedy.
 */
export async function subnetFault(
  named: NamedSubnet,
  { region, subscription }: { region: string; subscription: string },
  find: FindNetwork,
): Promise<{ code: string; message: string } | undefined> {
  const { network, subnet } = named
  const where = `${named.group}/${network}`
  if (named.subscription.toLowerCase() !== subscription.toLowerCase()) {
    const message = `the virtual network ${where} of the connection's \`subnets\` is in subscription ${named.subscription}. Azure requires it in the VM's subscription ${subscription}: name a network there`
    return { code: "NetworkInOtherSubscription", message }
  }
  const found = await find(idOfNetwork(named), NETWORKS_API)
  if (found === undefined) {
    const message = `the connection's \`subnets\` for ${region} need the virtual network ${where}, which does not exist: create it, or correct \`network\` or \`subnets\``
    return { code: "NetworkNotFound", message }
  }
  if (placeName(found.location) !== placeName(region)) {
    const message = `the virtual network ${where} of the connection's \`subnets\` for ${region} is in ${found.location}: name a network in ${region}, or move the entry to ${found.location}`
    return { code: "NetworkInOtherRegion", message }
  }
  const names = (found.properties?.subnets ?? []).map(({ name = "" }) => name)
  if (names.some((name) => name.toLowerCase() === subnet.toLowerCase())) return undefined
  const message = `the virtual network ${where} has no subnet ${subnet}, which the connection's \`subnets\` name for ${region}: it has ${names.join(", ") || "none"}. Create the subnet, or correct \`subnets\``
  return { code: "SubnetNotFound", message }
}

/** Part of a virtual network in Azure's answer. */
export interface FoundNetwork {
  location: string
  properties?: { subnets?: { name?: string }[] }
}

async function findNetwork(arm: Arm, path: string, apiVersion: string): Promise<FoundNetwork | undefined> {
  try {
    return (await arm.request("read", { method: "GET", path, apiVersion })) as FoundNetwork
  } catch (error) {
    if (isMissing(error)) return undefined
    throw error
  }
}

/** The error of `Arm` has Azure's answer as its cause. */
function isMissing(error: unknown): boolean {
  return error instanceof Error && error.cause !== undefined && errorStatus(error.cause) === 404
}

/** Azure writes a region as `westeurope` or as `West Europe`. */
function placeName(location: string): string {
  return location.toLowerCase().replaceAll(" ", "")
}
