import { createRemoteJWKSet, decodeJwt, errors, type JWTPayload, type JWTVerifyGetKey, jwtVerify } from "jose"
import { type Clock, timestamp } from "../apis/clock.ts"
import { type GroupsTrouble, groupsIn } from "./group-claim.ts"
import { keptFor } from "./kept.ts"
import { groupIdOf, userIdOf } from "./members.ts"

/** OIDC issuer whose tokens are accepted. */
export interface TrustedIssuer {
  /** URL of the issuer, exactly as in the tokens' `iss`. */
  issuer: string
  /** The `aud` of tokens for this installation. Tokens for other services are rejected. */
  audience: string
  /** The `aud` of tokens that the web console gets with a client of its own. They are accepted too. */
  consoleAudience?: string
  /** Claim with the names of a user's groups. Default: groups. */
  groupsClaim?: string
}

export interface TokenVerifierOptions {
  issuers: readonly TrustedIssuer[]
  clock: Clock
}

/** Issuer of tokens that stand for keys, such as that of a CI system. No person signs in there. */
export interface WorkloadIssuer {
  /** URL of the issuer, exactly as in the tokens' `iss`. */
  issuer: string
  /** The `aud` of tokens for this installation. A token that is meant for another service is rejected. */
  audience: string
}

/** Program with a token, as its issuer describes it. */
export interface Workload {
  issuer: string
  /** Claims that are texts. */
  claims: Readonly<Record<string, string>>
  /** Time at which the token expires. */
  expiresAt: string | undefined
}

/** User, as the issuer describes them. */
export interface User {
  /** Id from issuer and subject, which memberships name. */
  userId: string
  /** Email address to display. Absent if the issuer has not verified it. Rights never depend on it. */
  email?: string
  /** Time at which the token expires. */
  expiresAt?: string
  /** Ids of the groups in the token; absent: none. */
  groups?: string[]
  /** Reason for which the token names no groups, or not all. */
  groupsTrouble?: GroupsTrouble
}

/** The issuer's keys can't be read now, so its tokens can be neither accepted nor rejected. */
export class IssuerUnavailable extends Error {
  override readonly name = "IssuerUnavailable"
}

/**
 * Signatures by a private key that are in use (RFC 7518, RFC 8037). Never `none`, and never an HMAC, because its secret
 * would be the issuer's public key.
 */
const ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"]

/** Maximum difference between clocks, seconds. */
const CLOCK_SKEW_SECONDS = 30
/** Delay before an issuer's description is read again, seconds. */
export const DISCOVERY_SECONDS = 600
const DISCOVERY_TIMEOUT_SECONDS = 5
const DISCOVERY_MAX_BYTES = 256 * 1024

/** Finds the user of a bearer token of a trusted issuer (OpenID Connect Discovery 1.0, RFC 7519, RFC 8725). */
export class TokenVerifier {
  readonly #tokens: Tokens<TrustedIssuer>

  constructor({ issuers, clock }: TokenVerifierOptions) {
    this.#tokens = new Tokens(issuers, ({ audience, consoleAudience = audience }) => [audience, consoleAudience], clock)
  }

  /** Returns the token's user, or undefined if the token is invalid for any reason. @throws IssuerUnavailable */
  async verify(token: string): Promise<User | undefined> {
    const trusted = this.#tokens.issuerOf(token)
    if (trusted === undefined) return undefined
    const payload = await this.#tokens.payload(token, trusted)
    if (payload === undefined) return undefined
    const { sub, exp, email, email_verified: isVerified } = payload
    if (sub === undefined || sub === "") return undefined
    const { names, trouble } = groupsIn(payload, trusted.groupsClaim ?? "groups")
    const groups = names.map((name) => groupIdOf(trusted.issuer, name))
    return {
      userId: userIdOf(trusted.issuer, sub),
      ...(typeof email === "string" && !isFalse(isVerified) && { email: email.slice(0, 320) }),
      ...(exp !== undefined && { expiresAt: timestamp(new Date(exp * 1000)) }),
      ...(groups.length > 0 && { groups }),
      ...(trouble && { groupsTrouble: trouble }),
    }
  }
}

/** Finds the program that a token of a CI system's issuer describes. It is never a user. */
export class WorkloadVerifier {
  readonly #tokens: Tokens<WorkloadIssuer>

  constructor({ issuers, clock }: { issuers: readonly WorkloadIssuer[]; clock: Clock }) {
    this.#tokens = new Tokens(issuers, ({ audience }) => [audience], clock)
  }

  /** Returns the issuer that a token names, if it is one of these. The token is not verified yet. */
  issuerOf(token: string): WorkloadIssuer | undefined {
    return this.#tokens.issuerOf(token)
  }

  /** Returns the token's workload, or undefined if the token is invalid for any reason. @throws IssuerUnavailable */
  async verify(token: string, trusted: WorkloadIssuer): Promise<Workload | undefined> {
    const payload = await this.#tokens.payload(token, trusted)
    if (payload === undefined) return undefined
    const { exp } = payload
    const claims = Object.entries(payload).filter((claim): claim is [string, string] => typeof claim[1] === "string")
    return {
      issuer: trusted.issuer,
      claims: Object.fromEntries(claims),
      expiresAt: exp === undefined ? undefined : timestamp(new Date(exp * 1000)),
    }
  }
}

/** Verifies the tokens of some issuers. */
class Tokens<Issuer extends { issuer: string }> {
  readonly #issuers: readonly Issuer[]
  readonly #audiencesOf: (issuer: Issuer) => string[]
  readonly #clock: Clock
  readonly #keys: ReadonlyMap<string, () => Promise<JWTVerifyGetKey>>

  constructor(issuers: readonly Issuer[], audiencesOf: (issuer: Issuer) => string[], clock: Clock) {
    this.#issuers = issuers
    this.#audiencesOf = audiencesOf
    this.#clock = clock
    for (const { issuer } of issuers) checkAddress(issuer, "the issuer")
    this.#keys = new Map(
      issuers.map(({ issuer }) => [issuer, keptFor(DISCOVERY_SECONDS, clock, () => keySetOf(issuer))]),
    )
  }

  /** Returns the issuer that a token claims, if it is one of these. Only use: to choose what checks the token. */
  issuerOf(token: string): Issuer | undefined {
    const claimed = claimedIssuer(token)
    return this.#issuers.find(({ issuer }) => issuer === claimed)
  }

  /** Returns the claims of a valid token; undefined for any other. @throws IssuerUnavailable */
  async payload(token: string, trusted: Issuer): Promise<JWTPayload | undefined> {
    const { issuer } = trusted
    try {
      const keys = await this.#keys.get(issuer)?.()
      if (keys === undefined) return undefined
      const { payload } = await jwtVerify(token, keys, {
        issuer,
        audience: this.#audiencesOf(trusted),
        algorithms: ALGORITHMS,
        clockTolerance: CLOCK_SKEW_SECONDS,
        currentDate: this.#clock.now(),
        requiredClaims: ["sub", "exp"],
      })
      return payload
    } catch (error) {
      if (isRefusal(error)) return undefined
      if (error instanceof IssuerUnavailable) throw error
      throw new IssuerUnavailable(`the keys of ${issuer} can't be read now`, { cause: error })
    }
  }
}

/** Returns the issuer that a token claims. */
function claimedIssuer(token: string): string | undefined {
  try {
    return decodeJwt(token).iss
  } catch {
    return undefined
  }
}

/** Some issuers write the claim as a string. */
function isFalse(claim: unknown): boolean {
  return claim === false || claim === "false"
}

const ISSUERS_ERRORS: readonly string[] = [
  errors.JOSEError.code,
  errors.JWKSTimeout.code,
  errors.JWKSInvalid.code,
  errors.JWKInvalid.code,
]

/** Returns true if the token is invalid, and false if the issuer's keys could not be read. */
function isRefusal(error: unknown): boolean {
  return error instanceof errors.JOSEError && !ISSUERS_ERRORS.includes(error.code)
}

/**
 * Reads an issuer's description and returns its key set. Keys are fetched on first use, and for a token with a new key.
 */
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
    if (text.length > DISCOVERY_MAX_BYTES)
      throw new Error(`${text.length} bytes; at most ${DISCOVERY_MAX_BYTES} are allowed`)
    return JSON.parse(text) as Record<string, unknown>
  } catch (cause) {
    throw new IssuerUnavailable(`${url} can't be read: ${cause instanceof Error ? cause.message : String(cause)}`, {
      cause,
    })
  }
}

/**
 * Checks that keys arrive over TLS, because others can replace them on an open connection. Only a development issuer on
 * this machine is exempt.
 */
function checkAddress(address: string, what: string): URL {
  const url = URL.canParse(address) ? new URL(address) : undefined
  if (url !== undefined && (url.protocol === "https:" || isThisMachine(url))) return url
  throw new IssuerUnavailable(`${what} must be an https URL: ${JSON.stringify(address)}`)
}

/** Returns true if plain HTTP to this address does not leave this machine. */
export function isThisMachine({ protocol, hostname }: URL): boolean {
  return protocol === "http:" && ["localhost", "127.0.0.1", "[::1]"].includes(hostname)
}
