import { isIP } from "node:net"
import { isPublicAddress, type PrivateTargets, targetCheck } from "../outbound/public-fetch.ts"

/**
 * Ports to which no request is sent (https://fetch.spec.whatwg.org/#port-blocking). The port 0 is of no service.
 */
const BLOCKED_PORTS: ReadonlySet<number> = new Set([
  ...[0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103, 104, 109],
  ...[
    110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514, 515, 526, 530, 531,
  ],
  ...[532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060],
  ...[5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080],
])

/**
 * Domains that have no address on the internet: RFC 6761 (localhost, test, invalid), RFC 6762 (local), RFC 7686 (onion),
 * RFC 8375 (home.arpa), and ICANN's resolution 2024.07.29.06 (internal). A name without a dot is none either.
 */
const PRIVATE_DOMAIN = /(^|[.])(localhost|test|invalid|local|onion|home[.]arpa|internal)$|^[^.]+$/

const ASK = "ask an operator of Berth to allow it (docs/webhooks.md)"

/**
 * Returns why no message can ever reach an address, without the part of it that may be secret; undefined if one may. The
 * REST API refuses such an address, the conditions of a webhook show it, and no request is sent to it. The address that a
 * name has is known only at each request, which `publicFetch` checks.
 * @param url address that RECEIVER_PATTERN matches and URL can parse
 */
export function receiverFault(url: string, targets: PrivateTargets): string | undefined {
  const { protocol, hostname, port, origin } = new URL(url)
  const host = hostname.replace(/^\[|\]$/g, "").replace(/[.]$/, "")
  const isAddress = isIP(host) !== 0
  const isTarget = targetCheck(targets)(host, host)
  if (!isAddress && !isHostName(host)) return `must have a host name such as ci.example.com, not ${hostname}`
  if (BLOCKED_PORTS.has(Number(port === "" ? 443 : port)))
    return `must have a port that HTTP clients use, such as 443, not ${port}`
  if (isTarget) return undefined
  // A private name may have an address in a network that an operator allows.
  const isPrivate = isAddress
    ? !isPublicAddress(host)
    : PRIVATE_DOMAIN.test(host.toLowerCase()) && targets.networks.length === 0
  if (isPrivate) return `must have a public address, and ${hostname} has none: ${ASK}`
  if (protocol === "https:") return undefined
  return `must begin with https://, not ${origin}: http:// is only for receivers that an operator of Berth allows (docs/webhooks.md)`
}

/** Returns true if a name can be looked up (RFC 1035: labels of 1 to 63 characters, 253 in all). */
function isHostName(host: string): boolean {
  return host.length <= 253 && host.split(".").every((label) => label.length >= 1 && label.length <= 63)
}
