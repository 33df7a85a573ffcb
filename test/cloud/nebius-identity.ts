import { createPublicKey, generateKeyPairSync, type KeyObject, randomUUID } from "node:crypto"
import { status } from "@grpc/grpc-js"
import { createLocalJWKSet, decodeProtectedHeader, type JSONWebKeySet, jwtVerify } from "jose"
import { badRequest, Refusal } from "./nebius-description.ts"

/** Credentials of a service account, as a connection has them. */
export interface ServiceAccountKey {
  service_account_id: string
  public_key_id: string
  private_key: string
}

/** Trust of `FederatedCredentials`: whose tokens may act as a service account. Its `jwk_set_json` is `jwks`. */
export interface Federation {
  issuer: string
  subject: string
  jwks: JSONWebKeySet
}

/** Fields of `ExchangeTokenRequest`. */
export interface Exchange {
  grantType?: string
  requestedTokenType?: string
  subjectToken?: string
  subjectTokenType?: string
  actorToken?: string
  actorTokenType?: string
}

/** Longest validity of a service account's assertion (https://github.com/nebius/api#service-account-authentication). */
const LONGEST_ASSERTION_SECONDS = 300
/** Validity of a token, seconds. */
const TOKEN_SECONDS = 43_200

const TYPES = "urn:ietf:params:oauth:token-type"
const GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"

const { privateKey, publicKey } = generateKeyPairSync("rsa", {
  modulusLength: 2048,
  publicKeyEncoding: { type: "spki", format: "pem" },
  privateKeyEncoding: { type: "pkcs8", format: "pem" },
})

/** Credentials that each stand-in knows. */
export const ACCOUNT_KEY: ServiceAccountKey = {
  service_account_id: "serviceaccount-e00berth",
  public_key_id: "publickey-e00berth",
  private_key: privateKey,
}

/** Issues tokens for assertions of service accounts, and knows the ones that are valid. */
export class NebiusIdentity {
  /** Trusts by the service account that they act as. */
  readonly federations = new Map<string, Federation>()
  readonly #keys = new Map<string, { account: string; key: KeyObject }>()
  readonly #tokens = new Map<string, { account: string; expiresMs: number }>()
  readonly #now: () => number

  constructor(now: () => number) {
    this.#now = now
    const { service_account_id: account, public_key_id: id } = ACCOUNT_KEY
    this.#keys.set(id, { account, key: createPublicKey(publicKey) })
  }

  /** Makes all tokens invalid, like expired ones. */
  expireTokens(): void {
    this.#tokens.clear()
  }

  /** Returns the service account of a call's `authorization` header. @throws Refusal */
  accountOf(authorization: string): string {
    const found = this.#tokens.get(/^Bearer (\S+)$/.exec(authorization)?.[1] ?? "")
    if (found !== undefined && found.expiresMs > this.#now()) return found.account
    throw new Refusal(status.UNAUTHENTICATED, "the token is missing, unknown or expired")
  }

  /** Exchanges an assertion for a token (RFC 8693). @throws Refusal */
  async exchange(request: Exchange): Promise<Record<string, string>> {
    const { grantType, requestedTokenType = `${TYPES}:access_token`, subjectTokenType } = request
    const isFederated = subjectTokenType === "urn:nebius:params:oauth:token-type:subject_identifier"
    const isKnown = isFederated ? request.actorTokenType === `${TYPES}:jwt` : subjectTokenType === `${TYPES}:jwt`
    if (grantType !== GRANT || requestedTokenType !== `${TYPES}:access_token` || !isKnown)
      throw badRequest([{ field: "subject_token_type", message: `unknown exchange: ${grantType} ${subjectTokenType}` }])
    const account = await (isFederated ? this.#federated(request) : this.#signed(request)).catch((error: unknown) => {
      throw new Refusal(status.UNAUTHENTICATED, `the assertion is not valid: ${(error as Error).message}`)
    })
    const token = randomUUID()
    this.#tokens.set(token, { account, expiresMs: this.#now() + TOKEN_SECONDS * 1000 })
    return {
      accessToken: token,
      issuedTokenType: `${TYPES}:access_token`,
      tokenType: "Bearer",
      expiresIn: String(TOKEN_SECONDS),
    }
  }

  async #signed({ subjectToken = "" }: Exchange): Promise<string> {
    const found = this.#keys.get(decodeProtectedHeader(subjectToken).kid ?? "")
    if (found === undefined) throw new Error("no such key")
    const { account, key } = found
    const claims = { issuer: account, subject: account, algorithms: ["RS256"], requiredClaims: ["exp"] }
    const { payload } = await jwtVerify(subjectToken, key, { ...claims, currentDate: new Date(this.#now()) })
    const left = (payload.exp ?? 0) - this.#now() / 1000
    if (left > LONGEST_ASSERTION_SECONDS) throw new Error(`it is valid for ${Math.round(left)} seconds`)
    return account
  }

  /** The audience is not checked: `FederatedCredentials` names none. */
  async #federated({ subjectToken: account = "", actorToken = "" }: Exchange): Promise<string> {
    const trust = this.federations.get(account)
    if (trust === undefined) throw new Error("no federated credentials")
    const claims = { issuer: trust.issuer, subject: trust.subject, algorithms: ["RS256"], requiredClaims: ["exp"] }
    await jwtVerify(actorToken, createLocalJWKSet(trust.jwks), { ...claims, currentDate: new Date(this.#now()) })
    return account
  }
}
