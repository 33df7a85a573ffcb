import { createHmac, randomBytes, timingSafeEqual } from "node:crypto"

/** Path below GATEWAY_PATH at which a gateway names the operator that leads in its cluster. */
export const OWNER_PATH = "/operator"

/** Answer of a gateway. Its proof shows that the gateway has this installation's key. */
export interface OwnerAnswer {
  /** Identity of the operator that holds the lease in the gateway's cluster; empty if none does. */
  operator: string
  proof: string
}

const NONCE = /^[0-9a-f]{32}$/

/** Prefix that separates these HMACs from any other use of the bootstrap key. */
const DOMAIN = "berth.dev/gateway-owner/v1\0"

/** Returns a value that makes a question and its answer unique. */
export function newNonce(): string {
  return randomBytes(16).toString("hex")
}

/** Returns the bearer token of a question. Without the installation's key it can't be made. */
export function questionToken(key: Uint8Array, nonce: string): string {
  return hmac(key, ["question", nonce])
}

/** Returns true for a question of an operator with the installation's key. */
export function isQuestion(key: Uint8Array, { nonce, token }: { nonce: unknown; token: string | undefined }): boolean {
  if (typeof nonce !== "string" || !NONCE.test(nonce) || token === undefined) return false
  return isEqual(token, questionToken(key, nonce))
}

/** Returns the answer to the question with this nonce. */
export function ownerAnswer(key: Uint8Array, nonce: string, operator: string): OwnerAnswer {
  return { operator, proof: hmac(key, ["answer", nonce, operator]) }
}

/** Returns the operator that an answer names; undefined if it isn't an answer of this installation to this question. */
export function answeredOperator(key: Uint8Array, nonce: string, answer: unknown): string | undefined {
  const { operator, proof } = (answer ?? {}) as Partial<Record<keyof OwnerAnswer, unknown>>
  if (typeof operator !== "string" || typeof proof !== "string") return undefined
  return isEqual(proof, ownerAnswer(key, nonce, operator).proof) ? operator : undefined
}

function hmac(key: Uint8Array, parts: readonly string[]): string {
  return createHmac("sha256", key).update(DOMAIN).update(JSON.stringify(parts)).digest("base64url")
}

/** Compares in constant time. */
function isEqual(given: string, expected: string): boolean {
  const [one, other] = [Buffer.from(given), Buffer.from(expected)]
  return one.byteLength === other.byteLength && timingSafeEqual(one, other)
}
