import { createPrivateKey } from "node:crypto"
import { SignJWT } from "jose"
import { type Clock, systemClock } from "../../core/apis/clock.ts"
import type { CredentialFields } from "../../core/apis/credentials.ts"
import { CredentialsError, TransientError } from "../../core/outbound/errors.ts"
import { type IdentityTokens, identityToken } from "../identity-tokens.ts"
import { decode, encode, hostOf, type Json, methodOf } from "./api.ts"
import { toCloudError } from "./errors.ts"
import type { SendRpc } from "./rpc.ts"

export interface SignInOptions {
  send: SendRpc
  /** Absent: only service accounts with a key. */
  tokens?: IdentityTokens | undefined
  clock?: Clock | undefined
}

const EXCHANGE = "iam.v1.TokenExchangeService/Exchange"
const JWT_TYPE = "urn:ietf:params:oauth:token-type:jwt"
const TIMEOUT_SECONDS = 30
/** A token is renewed this long before its end. */
const EARLY_SECONDS = 300

/** Gets access tokens of a service account, by its key or by identity tokens of Berth. Keeps one until shortly before its end. */
export class SignIn {
  readonly #credentials: CredentialFields
  readonly #options: SignInOptions
  #token: Promise<string> | undefined
  #until = 0

  constructor(credentials: CredentialFields, options: SignInOptions) {
    this.#credentials = credentials
    this.#options = options
  }

  /** @throws CredentialsError if Nebius rejects the key; TransientError if it does not answer */
  token(): Promise<string> {
    const { clock = systemClock } = this.#options
    if (this.#token !== undefined && clock.monotonic() < this.#until) return this.#token
    const began = clock.monotonic()
    this.#until = began + TIMEOUT_SECONDS
    const exchange = this.#exchange().then(({ accessToken, expiresIn }) => {
      this.#until = began + Math.max(0, Number(expiresIn) - EARLY_SECONDS)
      return String(accessToken)
    })
    this.#token = exchange
    exchange.catch(() => {
      if (this.#token === exchange) this.#token = undefined
    })
    return exchange
  }

  /** Drops a token that Nebius does not accept any more. */
  async forget(token: string): Promise<void> {
    const kept = this.#token
    if ((await kept) === token && this.#token === kept) this.#token = undefined
  }

  async #exchange(): Promise<Json> {
    const method = methodOf(EXCHANGE)
    const message = encode(method.input, {
      grantType: "urn:ietf:params:oauth:grant-type:token-exchange",
      requestedTokenType: "urn:ietf:params:oauth:token-type:access_token",
      ...(await this.#subject()),
    })
    const path = `/${method.parent.typeName}/${method.name}`
    const rpc = { host: hostOf(method), path, message, headers: {}, timeoutSeconds: TIMEOUT_SECONDS }
    try {
      return decode(method.output, await this.#options.send(rpc))
    } catch (error) {
      const failure = toCloudError(error, "read")
      if (failure instanceof TransientError) throw failure
      throw new CredentialsError(failure.code, `${this.#refused()}. ${failure.message}`, { cause: error })
    }
  }

  /** https://github.com/nebius/api#service-account-authentication, and `auth/federated_credentials.go` of Nebius' SDK for Go. */
  async #subject(): Promise<Json> {
    const { service_account_id: account = "", public_key_id: keyId, private_key: key } = this.#credentials
    if (keyId === undefined || key === undefined) {
      return {
        subjectToken: account,
        subjectTokenType: "urn:nebius:params:oauth:token-type:subject_identifier",
        actorToken: await identityToken(this.#options.tokens, "nebius", this.#credentials),
        actorTokenType: JWT_TYPE,
      }
    }
    const jwt = new SignJWT().setProtectedHeader({ alg: "RS256", kid: keyId }).setIssuer(account).setSubject(account)
    const signed = await jwt.setIssuedAt().setExpirationTime("1 minute").sign(parseKey(key))
    return { subjectToken: signed, subjectTokenType: JWT_TYPE }
  }

  #refused(): string {
    const { service_account_id: account, public_key_id: keyId, identity_subject: subject } = this.#credentials
    return keyId === undefined
      ? `Nebius refused the identity token: ${account} needs federated credentials for Berth's issuer and the subject ${subject} (docs/nebius.md)`
      : `Nebius refused the key ${keyId} of ${account}: create a new authorized key, and check that the account is active`
  }
}

/** @throws CredentialsError without any part of the key */
function parseKey(pem: string) {
  try {
    return createPrivateKey(pem)
  } catch {
    // The parser's message may quote a piece of the key.
    throw new CredentialsError(
      "MalformedKey",
      "private_key is not a private key in PEM form: create a new authorized key",
    )
  }
}
