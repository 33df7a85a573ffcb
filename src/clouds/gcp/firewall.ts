import type { Compute } from "./compute.ts"
import { isAlreadyThere, isNotFound, operationError } from "./errors.ts"
import { NETWORK_TAG } from "./machine.ts"
import { isDone, type Operation } from "./operation.ts"

/** Maximum number of waits for the rule's creation. Each takes up to two minutes. */
const MOST_LOOKS = 3

/** Returns the name of the rule of a network. Google allows 63 characters. */
export function firewallName(network: string): string {
  return `berth-no-inbound-${network}`.slice(0, 63)
}

/**
 * Makes a network reject all inbound traffic to Berth's VMs, whatever its other rules allow. Google's `default` network
 * allows SSH and RDP from everywhere. Finds or creates one rule of the highest priority. @throws CloudError
 */
export async function closeInbound(compute: Compute, network: string, fence?: () => void): Promise<void> {
  const { project } = compute
  const firewall = firewallName(network)
  const there = await compute.call("read", async ({ firewalls }, options) => {
    try {
      await firewalls.get({ project, firewall }, options)
      return true
    } catch (error) {
      if (isNotFound(error)) return false
      throw error
    }
  })
  if (there) return
  const firewallResource = {
    name: firewall,
    description: "Rejects all inbound traffic to Berth's VMs.",
    network: `global/networks/${network}`,
    direction: "INGRESS",
    priority: 0,
    sourceRanges: ["0.0.0.0/0"],
    targetTags: [NETWORK_TAG],
    denied: [{ IPProtocol: "all" }],
  }
  await compute.call(
    "read",
    async ({ firewalls, globalOperations }, options) => {
      try {
        const [{ latestResponse }] = await firewalls.insert({ project, firewallResource }, options)
        let operation = latestResponse as Operation
        for (let look = 0; !isDone(operation) && look < MOST_LOOKS; look++) {
          ;[operation] = await globalOperations.wait({ project, operation: operation.name ?? "" }, options)
        }
        const errors = operation.error?.errors ?? []
        if (errors.length > 0) throw operationError(errors, operation.httpErrorStatusCode ?? 0)
      } catch (error) {
        if (!isAlreadyThere(error)) throw error
      }
    },
    fence,
  )
}
