import type { Compute } from "./compute.ts"
import { isAlreadyThere, isNotFound, operationError } from "./errors.ts"
import { NETWORK_TAG } from "./machine.ts"
import { isDone, type Operation } from "./operation.ts"

/** Looks at the rule's making, at most; each look waits for its end up to two minutes. */
const MOST_LOOKS = 3

/**
 * Sees to it that a network lets nothing in to Berth's VMs, whatever its other rules say: Google's `default` network lets
 * SSH and RDP in from everywhere. Finds or makes one rule, of the highest priority. @throws CloudError
 */
export async function closeInbound(compute: Compute, network: string, fence?: () => void): Promise<void> {
  const { project } = compute
  const firewall = `berth-no-inbound-${network}`.slice(0, 63)
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
    description: "Berth's VMs are reached by nobody: they call out.",
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
