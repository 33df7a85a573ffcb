import { createHmac, randomBytes } from "node:crypto"

/** Prefix of a signing secret (https://www.standardwebhooks.com). */
const PREFIX = "whsec_"
/** Bytes of a key that the specification allows. */
const KEY_BYTES = { least: 24, most: 64 }
const NEW_KEY_BYTES = 32

/** Returns a new signing secret. */
export function newSigningSecret(): string {
  return `${PREFIX}${randomBytes(NEW_KEY_BYTES).toString("base64")}`
}

/** Returns the error of a signing secret, without a part of it; undefined if it is valid. */
export function signingSecretError(secret: string): string | undefined {
  const key = keyOf(secret)
  if (key !== undefined && key.length >= KEY_BYTES.least && key.length <= KEY_BYTES.most) return undefined
  return `must be ${PREFIX} and the base64 of ${KEY_BYTES.least} to ${KEY_BYTES.most} random bytes`
}

function keyOf(secret: string): Buffer | undefined {
  if (!secret.startsWith(PREFIX)) return undefined
  const text = secret.slice(PREFIX.length)
  const key = Buffer.from(text, "base64")
  return key.toString("base64").replace(/=+$/, "") === text.replace(/=+$/, "") ? key : undefined
}

/**
 * Returns the headers of Standard Webhooks. While a secret is rotated there are two signatures, and a receiver accepts
 * either.
 */
export function signedHeaders(
  id: string,
  body: string,
  { secrets, now }: { secrets: readonly string[]; now: Date },
): Record<string, string> {
  const timestamp = String(Math.floor(now.getTime() / 1000))
  const signatures = secrets.map((secret) => {
    const key = keyOf(secret) ?? Buffer.alloc(0)
    return `v1,${createHmac("sha256", key).update(`${id}.${timestamp}.${body}`).digest("base64")}`
  })
  const signature = signatures.length === 0 ? {} : { "webhook-signature": signatures.join(" ") }
  return { "webhook-id": id, "webhook-timestamp": timestamp, ...signature }
}
