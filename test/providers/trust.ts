import { createRemoteJWKSet, jwtVerify } from "jose"

/** Trust of a role, a provider or an application: whose tokens it accepts. */
export interface Trust {
  issuer: string
  subject: string
  audience: string
}

/**
 * Verifies an identity token as a cloud does: it reads the issuer's documents, checks the signature, the times and the
 * claims. @throws Error with the reason
 */
export async function verifyAsCloud(token: string, { issuer, subject, audience }: Trust): Promise<void> {
  const response = await fetch(`${issuer}/.well-known/openid-configuration`)
  const { jwks_uri, issuer: stated } = (await response.json()) as { jwks_uri: string; issuer: string }
  if (stated !== issuer) throw new Error(`the document names the issuer ${stated}`)
  const keys = createRemoteJWKSet(new URL(jwks_uri))
  await jwtVerify(token, keys, { issuer, subject, audience, algorithms: ["RS256"], requiredClaims: ["exp", "iat"] })
}
