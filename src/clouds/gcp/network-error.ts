import { AccountError, InvalidRequestError, RegionError } from "../../core/outbound/errors.ts"
import type { LaunchSpec } from "../cloud.ts"

/**
 * Compute Engine's message names the part of the request, or the path of the resource
 * (https://github.com/google/anthos-microk8s/issues/1, https://github.com/hashicorp/terraform-provider-google/issues/2140
 * and /175).
 */
const ABOUT_NETWORK = /\b(networkInterfaces|networks?\/|subnetworks?\/)/
const MISSING = /not found|cannot be found|does not exist/i
const NO_SUBNET = /custom subnet ?mode/i

/**
 * Returns the error of a request whose network or subnet, as the connection names it, does not exist. Such an error holds
 * for the whole region. Returns any other error unchanged.
 */
export function networkError(error: unknown, { offer, network: settings }: LaunchSpec): unknown {
  if (settings?.network === undefined) return error
  if (!(error instanceof InvalidRequestError || error instanceof AccountError)) return error
  const { code, message } = error
  const { network, subnets = [] } = settings
  const advice = adviceFor(message, { network, subnets, region: offer.region })
  return advice === undefined ? error : new RegionError(code, `${advice} (${message})`, { cause: error })
}

function adviceFor(
  message: string,
  { network, subnets, region }: { network: string; subnets: readonly string[]; region: string },
): string | undefined {
  if (NO_SUBNET.test(message)) {
    return `the connection's \`network\` ${network} creates no subnets by itself: name one for ${region} in \`subnets\``
  }
  if (!ABOUT_NETWORK.test(message) || !MISSING.test(message)) return undefined
  const subnet = subnets.length === 0 ? "" : `, or its \`subnets\` ${subnets.join(", ")} in ${region},`
  return `the connection's \`network\` ${network}${subnet} does not exist in its project: create it, or correct the name`
}
