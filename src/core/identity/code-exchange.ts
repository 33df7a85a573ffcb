import { readFile } from "node:fs/promises"
import {
  allowInsecureRequests,
  ClientSecretBasic,
  ClientSecretPost,
  Configuration,
  discovery,
  genericGrantRequest,
  None,
  ResponseBodyError,
  type ServerMetadata,
  WWWAuthenticateChallengeError,
} from "openid-client"
import type { Clock } from "../apis/clock.ts"
import { defined } from "../apis/defined.ts"
import { keptFor } from "./kept.ts"
import { DISCOVERY_SECONDS, IssuerUnavailable, isThisMachine } from "./oidc.ts"

export interface CodeExchangeOptions {
  /** URL of the issuer. */
  issuer: string
  /** OAuth client of the web console. */
  clientId: string
  /** File with the client's secret. It is read for each code, so that the secret may change. Absent: a public client. */
  secretFile?: string | undefined
  clock: Clock
}

/** Code that the issuer has given to a browser, and what proves that the browser asked for it (RFC 7636). */
export interface GivenCode {
  code: string
  verifier: string
  /** Address to which the issuer sent the code. */
  redirectUri: string
}

/** Tokens for the browser. It never gets a refresh token. */
export interface GivenTokens {
  access_token: string
  id_token?: string
}

/** Facts about the issuer that a browser needs before it has a code (RFC 8414, RFC 9207). */
export interface IssuerFacts {
  issuer: string
  authorization_endpoint: string
  authorization_response_iss_parameter_supported: boolean
}

/** The issuer rejected a code, or the client that sent it. */
export class CodeRejected extends Error {
  override readonly name = "CodeRejected"
  /** Error of the issuer: a code of RFC 6749. */
  readonly reason: string
  /** True if the client or its secret is wrong, so that no code can succeed. */
  readonly isOfClient: boolean

  constructor(issuer: string, reason: string) {
    super(`${issuer} rejected the sign-in (${reason})`)
    this.reason = reason
    this.isOfClient = OF_CLIENT.includes(reason)
  }
}

const OF_CLIENT = ["invalid_client", "unauthorized_client"]
/** Errors of RFC 6749 and RFC 8707. The text of any other error may hold anything, so it is not repeated. */
const REASONS = [
  ...OF_CLIENT,
  "invalid_request",
  "invalid_grant",
  "unsupported_grant_type",
  "invalid_scope",
  "invalid_target",
]

const TIMEOUT_SECONDS = 10

/** Exchanges codes of sign-ins for tokens, for browsers that may not ask the issuer, or must not know the secret. */
export class CodeExchange {
  readonly #options: CodeExchangeOptions
  readonly #server: () => Promise<ServerMetadata>

  constructor(options: CodeExchangeOptions) {
    this.#options = options
    this.#server = keptFor(DISCOVERY_SECONDS, options.clock, () => this.#discover())
  }

  /** @throws IssuerUnavailable */
  async facts(): Promise<IssuerFacts> {
    const { issuer, authorization_endpoint: endpoint, ...server } = await this.#server()
    if (endpoint === undefined) throw new IssuerUnavailable(`${issuer} has no sign-in for browsers`)
    const sendsIssuer = server["authorization_response_iss_parameter_supported"] === true
    return { issuer, authorization_endpoint: endpoint, authorization_response_iss_parameter_supported: sendsIssuer }
  }

  /** @throws CodeRejected, IssuerUnavailable; neither has the secret or the code */
  async exchange({ code, verifier, redirectUri }: GivenCode): Promise<GivenTokens> {
    const { issuer } = this.#options
    const client = await this.#client()
    try {
      const parameters = { code, code_verifier: verifier, redirect_uri: redirectUri }
      const tokens = await genericGrantRequest(client, "authorization_code", parameters)
      const { access_token, id_token } = tokens
      return { access_token, ...defined({ id_token }) }
    } catch (error) {
      // Errors of the library have the issuer's whole answer, so they are not causes of these.
      const reason = reasonOf(error)
      if (reason === undefined) throw new IssuerUnavailable(`${issuer} did not answer: ${messageWithCause(error)}`)
      throw new CodeRejected(issuer, reason)
    }
  }

  async #discover(): Promise<ServerMetadata> {
    const { issuer, clientId } = this.#options
    try {
      const execute = isThisMachine(new URL(issuer)) ? [allowInsecureRequests] : []
      const options = { execute, timeout: TIMEOUT_SECONDS }
      return (await discovery(new URL(issuer), clientId, undefined, None(), options)).serverMetadata()
    } catch (error) {
      throw new IssuerUnavailable(`the description of ${issuer} can't be read: ${messageWithCause(error)}`)
    }
  }

  async #client(): Promise<Configuration> {
    const { issuer, clientId, secretFile } = this.#options
    const server = await this.#server()
    const secret = secretFile === undefined ? undefined : await secretIn(secretFile)
    const methods = server.token_endpoint_auth_methods_supported ?? ["client_secret_basic"]
    const withSecret = methods.includes("client_secret_basic") ? ClientSecretBasic : ClientSecretPost
    const client = new Configuration(server, clientId, undefined, secret === undefined ? None() : withSecret(secret))
    client.timeout = TIMEOUT_SECONDS
    if (isThisMachine(new URL(issuer))) allowInsecureRequests(client)
    return client
  }
}

/** Returns the reason of an issuer's rejection; undefined if the error is not one. */
function reasonOf(error: unknown): string | undefined {
  // A 401 of a token endpoint is about the client (RFC 6749, 5.2).
  if (error instanceof WWWAuthenticateChallengeError) return "invalid_client"
  if (!(error instanceof ResponseBodyError)) return undefined
  return REASONS.includes(error.error) ? error.error : "unknown error"
}

/** @throws IssuerUnavailable if the file can't be read, or is empty */
async function secretIn(file: string): Promise<string> {
  const secret = await readFile(file, "utf8").catch((error: unknown) => {
    throw new IssuerUnavailable(`the secret of the console's client can't be read: ${messageWithCause(error)}`)
  })
  if (secret.trim() === "") throw new IssuerUnavailable(`the secret of the console's client is empty: ${file}`)
  return secret.trim()
}

/** Returns the message of an error and of its cause, such as a refused connection. */
function messageWithCause(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  return error.cause instanceof Error ? `${error.message}: ${error.cause.message}` : error.message
}
