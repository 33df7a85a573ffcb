import { createHash } from "node:crypto"
import type { LaunchSpec } from "./cloud.ts"

/**
 * Returns a digest that identifies a spec, for a label or tag of the VM: 40 characters of 0-9, a-f. It omits the user
 * data, because another release of Berth may render it differently. It omits network and disk, which earlier releases
 * do not know. A VM launched before an upgrade or a rollback must still match its launch afterwards.
 */
export function specDigest(spec: LaunchSpec): string {
  const { name, installation, tags, offer, imageId, lifetimeSeconds } = spec
  const { region, zone, instanceType, architecture, provisioning, gpu } = offer
  const machine = [region, zone, instanceType, architecture, provisioning, gpu?.model, gpu?.count]
  const sortedTags = Object.entries(tags).sort(([one], [other]) => (one < other ? -1 : 1))
  const parts = [name, installation, sortedTags, machine, imageId, lifetimeSeconds]
  return createHash("sha256").update(JSON.stringify(parts)).digest("hex").slice(0, 40)
}
