import { randomBytes } from "node:crypto"

/** The longest id of an organization or project: a project's is a label of a host name. */
export const ID_LENGTH = 40

const SUFFIX_BYTES = 5

/**
 * A new id of an organization or project: what is readable of its name, and a random suffix, as names need not be unique;
 * a DNS label. `Île de Café` → `ile-de-cafe-9f3c01ab7e`.
 * @param entropy 5 to 19 bytes, all of which are in the suffix; default: 5 of the system's random numbers
 */
export function makeId(displayName: string, entropy: Uint8Array = randomBytes(SUFFIX_BYTES)): string {
  const suffix = Buffer.from(entropy).toString("hex")
  const slug = displayName
    .normalize("NFKD")
    .replace(/\p{Mark}/gu, "")
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "-")
    .slice(0, ID_LENGTH - suffix.length - 1)
    .replace(/^-+|-+$/g, "")
  // A label of digits alone could be taken for a part of an IP address.
  return slug === "" ? `o-${suffix}` : `${slug}-${suffix}`
}
