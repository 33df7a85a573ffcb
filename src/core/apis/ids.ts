import { randomBytes } from "node:crypto"

/** Maximum length of the id of an organization or project. A project's id is a label of a host name. */
export const ID_LENGTH = 40

const SUFFIX_BYTES = 5

/**
 * Returns a new id of an organization or project, which is a DNS label: `Île de Café` → `ile-de-cafe-9f3c01ab7e`. The
 * suffix is random because names need not be unique.
 * @param entropy 5 to 19 bytes for the suffix; default: 5 random bytes
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
  // A label of digits alone could look like part of an IP address.
  return slug === "" ? `o-${suffix}` : `${slug}-${suffix}`
}
