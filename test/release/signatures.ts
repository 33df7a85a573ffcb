import { createPublicKey } from "node:crypto"
import { bundleFromJSON } from "@sigstore/bundle"
import { toSignedEntity, Verifier } from "@sigstore/verify"

/**
 * Verifies a Sigstore bundle by Sigstore's own library, with a public key in PEM and without a transparency log, as
 * `cosign verify-blob --key` does. `content` is the signed file. Without it the bundle has its content itself, which is
 * returned.
 *
 * @throws Error if key, content or signature do not match
 */
export function verifiedBy(publicPem: string, bundle: string, content?: Buffer): unknown {
  const key = { publicKey: createPublicKey(publicPem), validFor: () => true }
  const trusted = { certificateAuthorities: [], timestampAuthorities: [], tlogs: [], ctlogs: [], publicKey: () => key }
  const thresholds = { tlogThreshold: 0, ctlogThreshold: 0, timestampThreshold: 0 }
  const parsed = bundleFromJSON(JSON.parse(bundle))
  new Verifier(trusted, thresholds).verify(toSignedEntity(parsed, content))
  if (parsed.content.$case === "messageSignature") return undefined
  return JSON.parse(parsed.content.dsseEnvelope.payload.toString())
}
