import { createRemoteJWKSet, decodeJwt, errors, type JWTPayload, type JWTVerifyGetKey, jwtVerify } from "jose"
import type { Clock } from "../apis/clock.ts"
import { groupIdOf, userIdOf } from "./members.ts"

/** An OIDC issuer whose tokens are taken. */
export interface TrustedIssuer {
  /** Its URL, to the letter as in the tokens' `iss`. */
  issuer: string
  /** What its tokens for this Berth have as their `aud`: a token for another service is not taken. */
  audience: string
  /** The claim that has the names of a person's groups. Default: groups. */
  groupsClaim?: string
}

export interface TokenVerifierOptions {
  issuers: readonly TrustedIssuer[]
  clock: Clock
}

/** A person, as an issuer vouches for them. */
export interface Person {
  /** Issuer and subject: what memberships name. */
  userId: string
  /** For people to read; rights never rest on it. */
  email?: string
  /** Ids of the groups that the issuer says they are in; absent: none. */
  groups?: string[]
}

/** An issuer can't be asked for its keys now, so no token of it can be told good or bad. */
export class IssuerUnavailable extends Error {
  override readonly name = "IssuerUnavailable"
}

/**
 * Signatures by a private key, of the strengths that are in use (RFC 7518, RFC 8037). Never `none`, nor an HMAC: its secret
 * would be the issuer's public key.
 */
const ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"]

/** How far clocks may be apart, seconds. */
const CLOCK_SKEW_SECONDS = 30
/** How long an issuer's description is used before it is read again, seconds. */
const DISCOVERY_SECONDS = 600
const DISCOVERY_TIMEOUT_SECONDS = 5
const DISCOVERY_MAX_BYTES = 256 * 1024

interface DiscoveredIssuer {
  readAt: number
  keys: Promise<JWTVerifyGetKey>
}

/** Tells whom a bearer token of a trusted issuer stands for (OpenID Connect Discovery 1.0, RFC 7519, RFC 8725). */
export class TokenVerifier {
  readonly #options: TokenVerifierOptions
  readonly #discovered = new Map<string, DiscoveredIssuer>()

  constructor(options: TokenVerifierOptions) {
    this.#options = options
    for (const { issuer } of options.issuers) checkAddress(issuer, "the issuer")
  }

  /** Whose token it is; undefined when it is not good, whatever the reason. @throws IssuerUnavailable */
  async verify(token: string): Promise<Person | undefined> {
    const trusted = this.#options.issuers.find(({ issuer }) => issuer === claimedIssuer(token))
    if (trusted === undefined) return undefined
    const payload = await this.#payload(token, trusted)
    const { sub, email, [trusted.groupsClaim ?? "groups"]: names } = payload ?? {}
    if (sub === undefined || sub === "") return undefined
    const groups = namesIn(names).map((name) => groupIdOf(trusted.issuer, name))
    return {
      userId: userIdOf(trusted.issuer, sub),
      ...(typeof email === "string" && { email: email.slice(0, 320) }),
      ...(groups.length > 0 && { groups }),
    }
  }

  async #payload(token: string, { issuer, audience }: TrustedIssuer): Promise<JWTPayload | undefined> {
    try {
      const { payload } = await jwtVerify(token, await this.#keysOf(issuer), {
        issuer,
        audience,
        algorithms: ALGORITHMS,
        clockTolerance: CLOCK_SKEW_SECONDS,
        currentDate: this.#options.clock.now(),
        requiredClaims: ["sub", "exp"],
      })
      return payload
    } catch (error) {
      if (isRefusal(error)) return undefined
      if (error instanceof IssuerUnavailable) throw error
      throw new IssuerUnavailable(`the keys of ${issuer} can't be read now`, { cause: error })
    }
  }

  #keysOf(issuer: string): Promise<JWTVerifyGetKey> {
    const now = this.#options.clock.monotonic()
    const known = this.#discovered.get(issuer)
    if (known !== undefined && now - known.readAt < DISCOVERY_SECONDS) return known.keys
    const keys = keySetOf(issuer)
    this.#discovered.set(issuer, { readAt: now, keys })
    // What could not be read is read again by the next request.
    keys.catch(() => this.#discovered.delete(issuer))
    return keys
  }
}

/** What a token says of itself: good for nothing but to choose whose keys it is held against. */
function claimedIssuer(token: string): string | undefined {
  try {
    return decodeJwt(token).iss
  } catch {
    return undefined
  }
}

/** A list of names or a single one, as Kubernetes takes the claim; whatever else is no group. */
function namesIn(claim: unknown): string[] {
  const names: unknown[] = Array.isArray(claim) ? claim : [claim]
  return names.filter((name) => typeof name === "string").filter((name) => name !== "")
}

const ISSUERS_FAULTS: readonly string[] = [
  errors.JOSEError.code,
  errors.JWKSTimeout.code,
  errors.JWKSInvalid.code,
  errors.JWKInvalid.code,
]

/** Whether it is the token that is at fault, and not the way to the issuer's keys. */
function isRefusal(error: unknown): boolean {
  return error instanceof errors.JOSEError && !ISSUERS_FAULTS.includes(error.code)
}

/** Reads an issuer's description, and makes its key set: fetched when first needed, and when a token names a new key. */
async function keySetOf(issuer: string): Promise<JWTVerifyGetKey> {
  const url = `${issuer.replace(/\/$/, "")}/.well-known/openid-configuration`
  const { issuer: named, jwks_uri: jwksUri } = await read(url)
  if (named !== issuer) throw new IssuerUnavailable(`${url} describes another issuer: ${JSON.stringify(named)}`)
  if (typeof jwksUri !== "string") throw new IssuerUnavailable(`${url} has no jwks_uri`)
  return createRemoteJWKSet(checkAddress(jwksUri, `the jwks_uri of ${issuer}`), { cooldownDuration: 5000 })
}

async function read(url: string): Promise<Record<string, unknown>> {
  try {
    const signal = AbortSignal.timeout(DISCOVERY_TIMEOUT_SECONDS * 1000)
    const answer = await fetch(url, { signal, redirect: "error", headers: { Accept: "application/json" } })
    const text = await answer.text()
    if (!answer.ok) throw new Error(`HTTP ${answer.status}`)
    if (text.length > DISCOVERY_MAX_BYTES) throw new Error(`${text.length} bytes are too many`)
    return JSON.parse(text) as Record<string, unknown>
  } catch (cause) {
    throw new IssuerUnavailable(`${url} can't be read: ${cause instanceof Error ? cause.message : String(cause)}`, {
      cause,
    })
  }
}

/** Keys that come over an open line prove nothing; this machine's own development issuer is the exception. */
function checkAddress(address: string, what: string): URL {
  const url = URL.canParse(address) ? new URL(address) : undefined
  if (url !== undefined && (url.protocol === "https:" || isThisMachine(url))) return url
  throw new IssuerUnavailable(`${what} must be an https URL: ${JSON.stringify(address)}`)
}

/** Whether an open line to this address does not leave this machine. */
export function isThisMachine({ protocol, hostname }: URL): boolean {
  return protocol === "http:" && ["localhost", "127.0.0.1", "[::1]"].includes(hostname)
}
