import { createHash } from "node:crypto"
import type { LaunchSpec } from "./provider.ts"

/**
 * Tells specs apart: for clouds that don't do so themselves, which keep it with the VM as a label or tag. 40 of 0-9, a-f.
 */
export function specDigest(spec: LaunchSpec): string {
  const { name, installation, tags, offer, imageId, userData, lifetimeSeconds } = spec
  const { region, zone, instanceType, architecture, provisioning, gpu } = offer
  const machine = [region, zone, instanceType, architecture, provisioning, gpu?.model, gpu?.count]
  const sortedTags = Object.entries(tags).sort(([one], [other]) => (one < other ? -1 : 1))
  const parts = [name, installation, sortedTags, machine, imageId, userData, lifetimeSeconds]
  return createHash("sha256").update(JSON.stringify(parts)).digest("hex").slice(0, 40)
}
