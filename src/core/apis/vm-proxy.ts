import Type, { type Static } from "typebox"
import { ALLOWED, SENSITIVE } from "./schema.ts"

/**
 * Hosts that are never reached by a proxy: this machine, and the metadata services of the clouds, which give each machine
 * its own answer.
 */
const NEVER_PROXIED = [
  ...["localhost", ".localhost", "127.0.0.1", "::1"],
  ...[
    "169.254.169.254",
    "169.254.170.2",
    "169.254.170.23",
    "168.63.129.16",
    "fd00:ec2::254",
    "metadata.google.internal",
  ],
]

/** Syntax of a proxy's URL without credentials. It has no character that a shell or systemd interprets. */
const PROXY_PATTERN = "^https?://([A-Za-z0-9.-]+|\\[[0-9A-Fa-f:]+\\])(:[0-9]{1,5})?/?$"

/** Syntax of a list of hosts, domains and addresses. */
const NO_PROXY_PATTERN = "^[A-Za-z0-9.:*/_,-]*$"

/** Proxy of VMs. User data has no secrets, so neither has the URL. */
export const VmProxySchema = Type.Object(
  {
    url: Type.String({
      maxLength: 512,
      pattern: PROXY_PATTERN,
      description: "URL of the proxy, such as http://proxy.example.com:3128.",
      [ALLOWED]: "an http or https URL without user, password and path, such as http://proxy.example.com:3128",
      // A password that is given by mistake must not be in a log.
      [SENSITIVE]: true,
    }),
    noProxy: Type.Optional(
      Type.String({
        maxLength: 2048,
        pattern: NO_PROXY_PATTERN,
        description: "Hosts that VMs reach without the proxy, separated by commas.",
        [ALLOWED]: "hosts, domains such as .example.com and addresses, separated by commas",
        [SENSITIVE]: true,
      }),
    ),
  },
  { description: "HTTP proxy by which the VM reaches other hosts." },
)
export type VmProxy = Static<typeof VmProxySchema>

/** Returns the hosts without a proxy: those that are given, and those that never have one. */
export function withoutProxy(given = ""): string {
  const hosts = given.split(/[\s,]+/).filter((host) => host !== "")
  return [...new Set([...hosts, ...NEVER_PROXIED])].join(",")
}
