import { createHash, randomBytes, timingSafeEqual } from "node:crypto"

/** `berth_<keyId>_<256 random bits in base64url>`: recognisable to secret scanners, and the id finds the ApiKey. */
const VALUE = /^berth_([a-z0-9]{8,40})_[A-Za-z0-9_-]{43}$/

const KEY_ID_LENGTH = 12
const KEY_ID_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"

/** A new API key: `value` is for its owner and shown once, the rest is kept in an ApiKey's spec. */
export interface NewApiKey {
  value: string
  keyId: string
  tokenHash: string
}

/** Makes a key from the system's random numbers. */
export function makeApiKey(): NewApiKey {
  const keyId = Array.from(randomBytes(KEY_ID_LENGTH), (byte) => KEY_ID_ALPHABET[byte % KEY_ID_ALPHABET.length]).join(
    "",
  )
  const value = `berth_${keyId}_${randomBytes(32).toString("base64url")}`
  return { value, keyId, tokenHash: hashOf(value) }
}

/** The part of a key's value that names it; undefined when the value is no API key. */
export function keyIdOf(value: string): string | undefined {
  return VALUE.exec(value)?.[1]
}

/** SHA-256 of the whole value, in hex: 256 random bits need no slow hash. */
export function hashOf(value: string): string {
  return createHash("sha256").update(value).digest("hex")
}

/** Whether the value has this hash, in a time that does not depend on where they differ. */
export function matchesHash(value: string, tokenHash: string): boolean {
  const expected = Buffer.from(tokenHash, "hex")
  const actual = Buffer.from(hashOf(value), "hex")
  return expected.length === actual.length && timingSafeEqual(expected, actual)
}
