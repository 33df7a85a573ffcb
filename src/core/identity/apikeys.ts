import { createHash, randomBytes, timingSafeEqual } from "node:crypto"

/** `berth_<keyId>_<256 random bits in base64url>`. Secret scanners recognise the form; the key id finds the ApiKey. */
const VALUE = /^berth_([a-z0-9]{8,40})_[A-Za-z0-9_-]{43}$/

const KEY_ID_LENGTH = 12
const KEY_ID_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"

/** New API key. `value` is shown once, to its owner; the rest is stored in an ApiKey's spec. */
export interface NewApiKey {
  value: string
  keyId: string
  tokenHash: string
}

/** Creates a key from the system's random numbers. */
export function makeApiKey(): NewApiKey {
  const keyId = Array.from(randomBytes(KEY_ID_LENGTH), (byte) => KEY_ID_ALPHABET[byte % KEY_ID_ALPHABET.length]).join(
    "",
  )
  const value = `berth_${keyId}_${randomBytes(32).toString("base64url")}`
  return { value, keyId, tokenHash: hashKey(value) }
}

/** Returns the key id in a key's value, or undefined if the value is not an API key. */
export function parseKeyId(value: string): string | undefined {
  return VALUE.exec(value)?.[1]
}

/** Returns the SHA-256 of the whole value, in hex. 256 random bits need no slow hash. */
export function hashKey(value: string): string {
  return createHash("sha256").update(value).digest("hex")
}

/** Returns true if the value has this hash. The duration does not depend on where the two differ. */
export function matchesHash(value: string, tokenHash: string): boolean {
  const expected = Buffer.from(tokenHash, "hex")
  const actual = Buffer.from(hashKey(value), "hex")
  return expected.length === actual.length && timingSafeEqual(expected, actual)
}
