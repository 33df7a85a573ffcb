import { createHash } from "node:crypto"
import type { LaunchSpec } from "./provider.ts"

/**
 * Tells specs apart; kept with the VM as a label or tag. 40 of 0-9, a-f. Without the user data: another release of Berth
 * may render it otherwise, and what was launched before an upgrade is still this launch's VM after it.
 */
export function specDigest(spec: LaunchSpec): string {
  const { name, installation, tags, offer, imageId, lifetimeSeconds } = spec
  const { region, zone, instanceType, architecture, provisioning, gpu } = offer
  const machine = [region, zone, instanceType, architecture, provisioning, gpu?.model, gpu?.count]
  const sortedTags = Object.entries(tags).sort(([one], [other]) => (one < other ? -1 : 1))
  const parts = [name, installation, sortedTags, machine, imageId, lifetimeSeconds]
  return createHash("sha256").update(JSON.stringify(parts)).digest("hex").slice(0, 40)
}
