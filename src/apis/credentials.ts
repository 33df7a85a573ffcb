import Type, { type Static, type TObject } from "typebox"
import type { ConnectionType } from "./connection.ts"
import type { Fault } from "./fault.ts"
import { LIMITS } from "./limits.ts"
import { ALLOWED, SENSITIVE } from "./schema.ts"
import { faultsOf } from "./validate.ts"

/**
 * The credentials of each kind of connection, under the names that the contract (aws, gcp) or the provider gives them.
 * They are the fields of the REST API, what is sealed, and the keys of a Secret that credentialsSecretRef names.
 * No message ever shows one: who mistakes the field pastes the secret into another one.
 */

/** Something that becomes a part of a provider's host name or path: nothing else may get in with it. */
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

/** An S3 key pair: AWS' own, and Cloudflare's for R2. */
const KEY_PAIR = {
  access_key_id: Identifier("^[!-~]+$", "Id of the access key.", "ASCII characters without spaces or line ends"),
  secret_access_key: Secret("The access key itself."),
}

export const CREDENTIALS = {
  aws: Type.Object(KEY_PAIR),
  gcp: Type.Object({
    gcp_project_id: Identifier(
      "^[a-z0-9][-a-z0-9.:]*$",
      "Id of the Google Cloud project.",
      "a project's id: a-z, 0-9 and -, after a domain and a colon where it has one",
    ),
    keyfile_json: Type.String({
      minLength: 1,
      maxLength: LIMITS.keyfile,
      contentMediaType: "application/json",
      description: "Content of a service account's key file, as a string.",
      [SENSITIVE]: true,
    }),
  }),
  azure: Type.Object({
    tenant_id: Identifier(
      "^[A-Za-z0-9][-A-Za-z0-9.]*$",
      "Directory (tenant) id, or one of its domains.",
      "a UUID or a domain name",
    ),
    client_id: Identifier(UUID, "Application (client) id of the service principal.", A_UUID),
    client_secret: Secret("Secret of the service principal."),
    subscription_id: Identifier(UUID, "Subscription that is used.", A_UUID),
  }),
  cloudflare: Type.Object({
    account_id: Identifier("^[0-9a-f]{32}$", "Id of the Cloudflare account whose R2 is used.", "32 of 0-9 and a-f"),
    ...KEY_PAIR,
  }),
  dockerhub: Type.Object({
    username: Identifier(ACCOUNT_NAME, "Docker id or organization.", AN_ACCOUNT_NAME),
    token: Secret("Access token."),
  }),
  github: Type.Object({
    username: Identifier(ACCOUNT_NAME, "GitHub user.", AN_ACCOUNT_NAME),
    token: Secret("Personal access token with read:packages."),
  }),
} as const satisfies Record<ConnectionType, TObject>

export type CredentialsOf<T extends ConnectionType> = Static<(typeof CREDENTIALS)[T]>

/** Credentials of any kind. */
export type CredentialFields = Readonly<Record<string, string>>

/** Those that open an account; the others only name it. */
export const SECRET_FIELDS: readonly string[] = ["secret_access_key", "keyfile_json", "client_secret", "token"]

/** The names of a kind's fields. */
export function credentialFieldsOf(type: ConnectionType): string[] {
  return Object.keys(CREDENTIALS[type].properties)
}

/** Everything that is wrong with a kind's credentials: missing, unknown and malformed fields, and a key file's content. */
export function credentialFaults(type: ConnectionType, fields: Readonly<Record<string, unknown>>): Fault[] {
  return [...faultsOf(CREDENTIALS[type], fields), ...keyfileFaults(fields["keyfile_json"])]
}

/** The addresses that Google's own key files have, the present one and an old one. */
const TOKEN_URIS = ["https://oauth2.googleapis.com/token", "https://accounts.google.com/o/oauth2/token"]
const UNIVERSE = "googleapis.com"
const KEYFILE_NEEDS = ["project_id", "private_key", "client_email"]

/** Kinds of credentials files that are no keys of service accounts: said by name, as their owner knows them. */
const OTHER_FILES = ["external_account", "authorized_user", "impersonated_service_account", "gdch_service_account"]

/**
 * What is wrong with a key file's content, in words that show nothing of it. Only keys of service accounts are taken,
 * with Google's own addresses: other files would make us read files and call hosts that their author names.
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
  if (missing.length > 0) details.push(`is no complete key of a service account: it has no ${missing.join(", no ")}`)
  if (typeof file["private_key"] === "string" && !/^-----BEGIN (RSA )?PRIVATE KEY-----\s/.test(file["private_key"]))
    details.push("has a private_key that is not in PEM form (-----BEGIN PRIVATE KEY-----)")
  const { token_uri = TOKEN_URIS[0], universe_domain = UNIVERSE } = file
  if (!TOKEN_URIS.some((uri) => uri === token_uri))
    details.push(`has a token_uri that is not Google's: it must be ${TOKEN_URIS.join(" or ")}`)
  if (universe_domain !== UNIVERSE) details.push(`has another universe_domain than ${UNIVERSE}`)
  return details
}

function objectIn(content: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(content)
    return typeof value === "object" && value !== null && !Array.isArray(value) ? { ...value } : undefined
  } catch {
    // What the parser says has a piece of the content in it.
    return undefined
  }
}

function notServiceAccount(type: unknown): string {
  const said = OTHER_FILES.find((other) => other === type)
  const found = said === undefined ? 'it has no "type": "service_account"' : `it is of type ${said}, which is not taken`
  return `must be a service account's key file: ${found}; create a JSON key of a service account`
}
