import { createHmac, timingSafeEqual } from "node:crypto"

/** Path below GATEWAY_PATH at which the operator reads the tail of a job's log: it has no access to the store itself. */
export const OUTPUT_PATH = "/output"

/** Job whose output is asked for. */
export interface OutputQuestion {
  namespace: string
  uid: string
}

/** Prefix that separates these HMACs from any other use of the bootstrap key. */
const DOMAIN = "berth.dev/job-output/v1\0"

/** Returns the bearer token of a question for a job's output. Without the installation's key it can't be made. */
export function outputToken(key: Uint8Array, { namespace, uid }: OutputQuestion): string {
  return createHmac("sha256", key)
    .update(DOMAIN)
    .update(JSON.stringify([namespace, uid]))
    .digest("base64url")
}

/** Returns true if the token is of an operator of this installation, for this job. Compares in constant time. */
export function isOutputToken(key: Uint8Array, question: OutputQuestion, token: string | undefined): boolean {
  const given = Buffer.from(token ?? "")
  const expected = Buffer.from(outputToken(key, question))
  return given.byteLength === expected.byteLength && timingSafeEqual(given, expected)
}
