import Type, { type Static, type TObject } from "typebox"
import type { ConnectionType } from "./connection.ts"
import type { Fault } from "./fault.ts"
import { LIMITS } from "./limits.ts"
import { ALLOWED, SENSITIVE } from "./schema.ts"
import { faultsOf } from "./validate.ts"

/**
 * Credentials of each type of connection. Fields have the names of the contract (aws, gcp) or of the provider. They are
 * the fields of the REST API, of the encrypted form, and of a Secret in credentialsSecretRef.
 * No message contains a value: users sometimes paste a secret into the wrong field.
 */

/** Declares a value that becomes part of a provider's host name or path. The pattern prevents injection. */
function Identifier(pattern: string, description: string, allowed: string) {
  return Type.String({
    minLength: 1,
    maxLength: LIMITS.credential,
    pattern,
    description,
    [ALLOWED]: allowed,
    [SENSITIVE]: true,
  })
}

function Secret(description: string) {
  return Identifier("^[!-~]+$", description, "ASCII characters without spaces or line ends")
}

const UUID = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
const A_UUID = "a UUID"
const ACCOUNT_NAME = "^[A-Za-z0-9][-._A-Za-z0-9]*$"
const AN_ACCOUNT_NAME = "letters, digits, -, _ and ."

/** S3 key pair, of AWS or of Cloudflare R2. */
const KEY_PAIR = {
  access_key_id: Identifier("^[!-~]+$", "Id of the access key.", "ASCII characters without spaces or line ends"),
  secret_access_key: Secret("Secret access key."),
}

export const CREDENTIALS = {
  aws: Type.Object(KEY_PAIR),
  gcp: Type.Object({
    gcp_project_id: Identifier(
      "^[a-z0-9][-a-z0-9.:]*$",
      "Id of the Google Cloud project.",
      "the id of a project: a-z, 0-9 and -, with an optional domain and a colon before it",
    ),
    keyfile_json: Type.String({
      minLength: 1,
      maxLength: LIMITS.keyfile,
      contentMediaType: "application/json",
      description: "Content of the service account's JSON key file, as a string.",
      [SENSITIVE]: true,
    }),
  }),
  azure: Type.Object({
    tenant_id: Identifier(
      "^[A-Za-z0-9][-A-Za-z0-9.]*$",
      "Directory (tenant) id, or a domain of the tenant.",
      "a UUID or a domain name",
    ),
    client_id: Identifier(UUID, "Application (client) id of the service principal.", A_UUID),
    client_secret: Secret("Client secret of the service principal."),
    subscription_id: Identifier(UUID, "Id of the subscription.", A_UUID),
  }),
  cloudflare: Type.Object({
    account_id: Identifier(
      "^[0-9a-f]{32}$",
      "Id of the Cloudflare account that has the R2 buckets.",
      "32 characters of 0-9 and a-f",
    ),
    ...KEY_PAIR,
  }),
  dockerhub: Type.Object({
    username: Identifier(ACCOUNT_NAME, "Docker ID or organization.", AN_ACCOUNT_NAME),
    token: Secret("Access token."),
  }),
  github: Type.Object({
    username: Identifier(ACCOUNT_NAME, "GitHub user.", AN_ACCOUNT_NAME),
    token: Secret("Personal access token with read:packages."),
  }),
} as const satisfies Record<ConnectionType, TObject>

export type CredentialsOf<T extends ConnectionType> = Static<(typeof CREDENTIALS)[T]>

export type CredentialFields = Readonly<Record<string, string>>

/** Fields that are secret. The others only identify the account. */
export const SECRET_FIELDS: readonly string[] = ["secret_access_key", "keyfile_json", "client_secret", "token"]

/** Returns the names of the fields of a type of connection. */
export function credentialFieldsOf(type: ConnectionType): string[] {
  return Object.keys(CREDENTIALS[type].properties)
}

/** Returns every fault: missing, unknown and malformed fields, and a wrong content of a key file. */
export function credentialFaults(type: ConnectionType, fields: Readonly<Record<string, unknown>>): Fault[] {
  return [...faultsOf(CREDENTIALS[type], fields), ...keyfileFaults(fields["keyfile_json"])]
}

/** Token addresses in Google's key files, the current one and an older one. */
const TOKEN_URIS = ["https://oauth2.googleapis.com/token", "https://accounts.google.com/o/oauth2/token"]
const UNIVERSE = "googleapis.com"
const KEYFILE_NEEDS = ["project_id", "private_key", "client_email"]

/** Types of Google credentials files that are not service account keys. A message may show these names. */
const OTHER_FILES = ["external_account", "authorized_user", "impersonated_service_account", "gdch_service_account"]

/**
 * Returns the faults of a key file. The messages contain none of its content.
 * Only service account keys with Google's own addresses are accepted. Other files could make Berth read files and call
 * hosts that their author chooses.
 */
export function keyfileFaults(content: unknown): Fault[] {
  if (typeof content !== "string" || content === "" || content.length > LIMITS.keyfile) return []
  const details = keyfileDetails(content)
  return details.map((detail) => ({ pointer: "/keyfile_json", detail: `keyfile_json ${detail}` }))
}

function keyfileDetails(content: string): string[] {
  const file = objectIn(content)
  if (file === undefined) return ["must be the content of a service account's key file: a JSON object, as a string"]
  const { type } = file
  if (type !== "service_account") return [notServiceAccount(type)]
  const details: string[] = []
  const missing = KEYFILE_NEEDS.filter((field) => typeof file[field] !== "string" || file[field] === "")
  if (missing.length > 0)
    details.push(
      `is not a complete service account key: ${missing.join(", ")} ${missing.length === 1 ? "is" : "are"} missing`,
    )
  if (typeof file["private_key"] === "string" && !/^-----BEGIN (RSA )?PRIVATE KEY-----\s/.test(file["private_key"]))
    details.push("has a private_key that is not in PEM form (-----BEGIN PRIVATE KEY-----)")
  const { token_uri = TOKEN_URIS[0], universe_domain = UNIVERSE } = file
  if (!TOKEN_URIS.some((uri) => uri === token_uri))
    details.push(`has a token_uri that is not Google's: use ${TOKEN_URIS.join(" or ")}`)
  if (universe_domain !== UNIVERSE) details.push(`must have the universe_domain ${UNIVERSE}`)
  return details
}

function objectIn(content: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(content)
    return typeof value === "object" && value !== null && !Array.isArray(value) ? { ...value } : undefined
  } catch {
    // The parser's message contains a piece of the content.
    return undefined
  }
}

function notServiceAccount(type: unknown): string {
  const said = OTHER_FILES.find((other) => other === type)
  const found =
    said === undefined ? 'it has no "type": "service_account"' : `it is of type ${said}, which is not supported`
  return `must be a service account's key file: ${found}; create a JSON key of a service account`
}
