import { isThisMachine } from "../../core/identity/oidc.ts"
import { CONSOLE_PATH, RETURN_PATH } from "./paths.ts"

/** Facts about a request that asks for tokens. */
export interface AskingConsole {
  /** Host and port of the request. */
  host: string
  /** Header Origin, which browsers send. */
  origin?: string | undefined
  /** Domain of the installation. */
  baseDomain: string
  /** True if each label below the domain is the host of a project. */
  hasProjectHosts: boolean
}

/**
 * Returns the reason for which a redirect address is not the console that asks; undefined if it is. So a code that the
 * issuer sent to any other address gives no token here. Pure.
 */
export function redirectFault(address: string, { host, origin, ...domain }: AskingConsole): string | undefined {
  const url = URL.parse(address)
  if (url === null || address !== url.origin + CONSOLE_PATH + RETURN_PATH)
    return `must be the console's own address, such as https://${domain.baseDomain}${CONSOLE_PATH}${RETURN_PATH}`
  if (url.protocol !== "https:" && !isThisMachine(url)) return "must be an https URL"
  if (!isThisMachine(url) && !isOwnHost(url.hostname, domain))
    return `must have the host ${domain.baseDomain}${domain.hasProjectHosts ? ", or a project's host below it" : ""}`
  if (url.host !== host.toLowerCase()) return `must have the host of the request, ${host}`
  if (origin !== undefined && origin !== url.origin) return "must have the origin of the page that asks"
  return undefined
}

function isOwnHost(
  hostname: string,
  { baseDomain, hasProjectHosts }: Pick<AskingConsole, "baseDomain" | "hasProjectHosts">,
) {
  const domain = baseDomain.toLowerCase()
  if (hostname === domain) return true
  return hasProjectHosts && hostname.endsWith(`.${domain}`) && !hostname.slice(0, -domain.length - 1).includes(".")
}
