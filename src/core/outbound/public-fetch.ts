import { type LookupAddress, type LookupOptions, lookup } from "node:dns"
import { BlockList, isIP } from "node:net"
import { fetch } from "undici"
import { DEFINITIONS, VM_CLOUDS } from "../../clouds/definitions.ts"
import { createDispatcher } from "../apis/dispatcher.ts"
import { proxyOfProcess } from "../apis/proxy.ts"
import { InvalidRequestError } from "./errors.ts"
import type { Fetch } from "./guarded-fetch.ts"

/**
 * Addresses of internal networks and of clouds' services on each VM, and addresses without a host
 * (https://www.iana.org/assignments/iana-ipv4-special-registry).
 */
const SPECIAL_IPV4 = [
  ...["0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24"],
  ...["192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"],
  ...["224.0.0.0/4", "240.0.0.0/4"],
  ...VM_CLOUDS.flatMap((cloud): readonly string[] => DEFINITIONS[cloud].vms.serviceAddresses)
    .filter((address) => isIP(address) === 4)
    .map((address) => `${address}/32`),
]

/** Range of all public addresses. Those below lead to an IPv4 address. */
const GLOBAL_IPV6 = "2000::/3"
const SPECIAL_IPV6 = ["2001::/23", "2001:db8::/32", "2002::/16"]

const special4 = blockListOf(SPECIAL_IPV4, "ipv4")
const special6 = blockListOf(SPECIAL_IPV6, "ipv6")
const global6 = blockListOf([GLOBAL_IPV6], "ipv6")

/** Returns true if the address is public on the internet. */
export function isPublicAddress(address: string): boolean {
  if (isIP(address) === 4) return !special4.check(address, "ipv4")
  return isIP(address) === 6 && global6.check(address, "ipv6") && !special6.check(address, "ipv6")
}

/** Hosts and networks outside of the internet that an operator of Berth allows. */
export interface PrivateTargets {
  /** Names of hosts. `*.example.com` stands for all hosts of a domain. */
  hosts: readonly string[]
  /** Networks, such as 10.0.0.0/8. */
  networks: readonly string[]
}

/** No hosts outside of the internet. */
export const NO_TARGETS: PrivateTargets = { hosts: [], networks: [] }

/** Check of a host and of one of its addresses. */
type TargetCheck = (host: string, address: string) => boolean

/** Returns a check if a host, by its name or by this address of it, is one of the targets. */
export function targetCheck({ hosts, networks }: PrivateTargets): TargetCheck {
  const subnets = networks.map((network): [string, number] => {
    const [address = "", bits] = network.split("/")
    return [address, Number(bits)]
  })
  const ofVersion = (version: number) => {
    const list = new BlockList()
    const family = version === 4 ? "ipv4" : "ipv6"
    for (const [address, bits] of subnets) if (isIP(address) === version) list.addSubnet(address, bits, family)
    return (address: string) => list.check(address, family)
  }
  const [in4, in6] = [ofVersion(4), ofVersion(6)]
  const isNamed = (host: string) => {
    const name = host.toLowerCase().replace(/\.$/, "")
    return hosts.some((allowed) => (allowed.startsWith("*.") ? name.endsWith(allowed.slice(1)) : name === allowed))
  }
  return (host, address) => {
    if (isNamed(host)) return true
    return isIP(address) === 4 ? in4(address) : isIP(address) === 6 && in6(address)
  }
}

/**
 * Returns a fetch for hosts that users choose. It connects to public addresses only, so that users can't reach the
 * cluster's own network through Berth. It connects to the same address that it has checked. A proxy looks up names itself,
 * and must refuse private addresses.
 * @param targets other hosts and networks that it may connect to
 */
export function publicFetch(targets: PrivateTargets = NO_TARGETS): Fetch {
  const isTarget = targetCheck(targets)
  const isAllowed: TargetCheck = (host, address) => isPublicAddress(address) || isTarget(host, address)
  const look = lookupOf(isAllowed)
  const dispatcher = createDispatcher({ connect: { lookup: look } })
  return async (input, init) => {
    const url = new URL(input instanceof Request ? input.url : input)
    // No lookup runs for an address.
    const literal = url.hostname.replace(/^\[|\]$/g, "")
    if (isIP(literal) !== 0 && !isAllowed(literal, literal)) throw privateAddress(url.hostname)
    if (isIP(literal) === 0 && proxyOfProcess() !== undefined) await knownHere(literal, look)
    return (await fetch(url, { ...(init as object), dispatcher })) as unknown as Response
  }
}

type Found = (error: Error | null, found: LookupAddress[] | string, family?: number) => void

function lookupOf(isAllowed: TargetCheck) {
  return (host: string, options: LookupOptions, done: Found): void => {
    lookup(host, { ...options, all: true }, (error, found) => {
      if (error !== null) return done(error, [])
      const addresses = found.filter(({ address }) => isAllowed(host, address))
      const [first] = addresses
      if (first === undefined) return done(privateAddress(host), [])
      if (options.all === true) done(null, addresses)
      else done(null, first.address, first.family)
    })
  }
}

/** Rejects if a name is known here and leads only to addresses that are not allowed. Others are left to the proxy. */
function knownHere(host: string, look: ReturnType<typeof lookupOf>): Promise<void> {
  return new Promise((resolve, reject) => {
    look(host, {}, (error) => (error instanceof InvalidRequestError ? reject(error) : resolve()))
  })
}

function privateAddress(host: string): InvalidRequestError {
  return new InvalidRequestError(
    "PrivateAddress",
    `${host} has no public address, and Berth connects only to public ones`,
  )
}

function blockListOf(networks: readonly string[], family: "ipv4" | "ipv6"): BlockList {
  const list = new BlockList()
  for (const network of networks) {
    const [address = "", bits] = network.split("/")
    list.addSubnet(address, Number(bits), family)
  }
  return list
}
