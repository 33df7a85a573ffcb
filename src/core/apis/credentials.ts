import Type, { type Static, type TObject, type TSchema } from "typebox"
import type { ConnectionType } from "./connection.ts"
import type { FieldError } from "./field-error.ts"
import { LIMITS } from "./limits.ts"
import { ALLOWED, SENSITIVE } from "./schema.ts"
import { errorsOf } from "./validate.ts"

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

/** ARN of an IAM role (https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers.html). */
const ROLE_ARN = "^arn:aws(-cn|-us-gov)?:iam::[0-9]{12}:role/[A-Za-z0-9+=,.@_/-]{1,512}$"

/** Resource name of a provider (https://cloud.google.com/iam/docs/workload-identity-federation). */
const IDENTITY_PROVIDER =
  "^projects/[0-9]+/locations/global/workloadIdentityPools/[a-z0-9-]{4,32}/providers/[a-z0-9-]{4,32}$"

const SERVICE_ACCOUNT = "^[a-z0-9][-a-z0-9]*@[a-z0-9][-a-z0-9.:]*\\.iam\\.gserviceaccount\\.com$"

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

/**
 * Other forms of credentials, without a long-lived secret for VMs: the cloud trusts identity tokens that Berth issues for
 * one connection of one project. `aws` has a third form: a key that may only assume the role.
 */
const ROLE = {
  role_arn: Identifier(ROLE_ARN, "ARN of the IAM role that Berth assumes.", "arn:aws:iam::<account>:role/<name>"),
}
const OTHER_FORMS: Partial<Record<ConnectionType, readonly TObject[]>> = {
  aws: [Type.Object(ROLE), Type.Object({ ...KEY_PAIR, ...ROLE })],
  gcp: [
    Type.Object({
      gcp_project_id: CREDENTIALS.gcp.properties.gcp_project_id,
      workload_identity_provider: Identifier(
        IDENTITY_PROVIDER,
        "Workload identity provider that trusts Berth's issuer.",
        "projects/<number>/locations/global/workloadIdentityPools/<pool>/providers/<provider>",
      ),
      service_account: Identifier(
        SERVICE_ACCOUNT,
        "Email of the service account that Berth impersonates.",
        "<name>@<project>.iam.gserviceaccount.com",
      ),
    }),
  ],
  azure: [Type.Omit(CREDENTIALS.azure, ["client_secret"])],
}

export type CredentialsOf<T extends ConnectionType> = Static<(typeof CREDENTIALS)[T]>

export type CredentialFields = Readonly<Record<string, string>>

/** Fields that are secret. The others only identify the account. */
export const SECRET_FIELDS: readonly string[] = ["secret_access_key", "keyfile_json", "client_secret", "token"]

/** Returns the forms of credentials that a type of connection accepts. The first is the contract's. */
export function formsOf(type: ConnectionType): TObject[] {
  return [CREDENTIALS[type], ...(OTHER_FORMS[type] ?? [])]
}

/** Returns the schemas of all fields of a type of connection, of every form. */
export function credentialSchemasOf(type: ConnectionType): Record<string, TSchema> {
  return Object.assign({}, ...formsOf(type).map(({ properties }) => properties))
}

/** Returns the names of the fields of a type of connection, of every form. */
export function credentialFieldsOf(type: ConnectionType): string[] {
  return Object.keys(credentialSchemasOf(type))
}

/** Returns true if the fields are all fields of one form. */
export function isWholeForm(type: ConnectionType, fields: CredentialFields): boolean {
  return formsOf(type).some(({ properties }) => Object.keys(properties).every((field) => Object.hasOwn(fields, field)))
}

/** Returns every error: missing, unknown and malformed fields, and a wrong content of a key file. */
export function credentialErrors(type: ConnectionType, fields: Readonly<Record<string, unknown>>): FieldError[] {
  return [...errorsOf(formOf(type, fields), fields), ...keyfileErrors(fields["keyfile_json"])]
}

/** Returns the form that the fields are meant to have. */
function formOf(type: ConnectionType, fields: Readonly<Record<string, unknown>>): TObject {
  const has = (field: string) => Object.hasOwn(fields, field)
  const [first = CREDENTIALS[type], second = first, third = second] = formsOf(type)
  if (type === "aws" && has("role_arn")) return has("access_key_id") || has("secret_access_key") ? third : second
  if (type === "gcp" && (has("workload_identity_provider") || has("service_account"))) return second
  return type === "azure" && !has("client_secret") ? second : first
}

/** Fields that Berth adds to credentials of the other forms. No user can set them. */
export interface Federation {
  /** Subject of the identity tokens: the project and the connection. */
  identity_subject: string
  /** External id of AWS' AssumeRole. */
  external_id: string
}

/** Returns true if a cloud must trust Berth's identity token, or its external id. */
export function isFederated(type: ConnectionType, fields: CredentialFields): boolean {
  return Object.hasOwn(fields, "role_arn") || needsIdentityToken(type, fields)
}

/** Returns true if a cloud accepts the credentials only with an identity token of Berth. */
export function needsIdentityToken(type: ConnectionType, fields: CredentialFields): boolean {
  if (type === "aws") return Object.hasOwn(fields, "role_arn") && !Object.hasOwn(fields, "access_key_id")
  if (type === "gcp") return Object.hasOwn(fields, "workload_identity_provider")
  return type === "azure" && !Object.hasOwn(fields, "client_secret")
}

/**
 * Returns the audience that a cloud expects in identity tokens; undefined if it needs no token. Sources:
 * https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles_providers_create_oidc.html,
 * https://cloud.google.com/iam/docs/workload-identity-federation-with-other-providers (the provider's default) and
 * https://learn.microsoft.com/entra/workload-id/workload-identity-federation
 */
export function audienceOf(type: ConnectionType, fields: CredentialFields): string | undefined {
  if (!needsIdentityToken(type, fields)) return undefined
  if (type === "gcp") return `https://iam.googleapis.com/${fields["workload_identity_provider"]}`
  return type === "aws" ? "sts.amazonaws.com" : "api://AzureADTokenExchange"
}

/** Returns the errors of credentials that this installation can't use, because it issues no identity tokens. */
export function identityTokenErrors(type: ConnectionType, fields: CredentialFields): FieldError[] {
  if (!needsIdentityToken(type, fields)) return []
  const secret = { aws: "access_key_id", gcp: "keyfile_json", azure: "client_secret" }[type as "aws" | "gcp" | "azure"]
  const why = "this installation has no --identity-issuer, so it can't sign in without a secret"
  return [{ pointer: `/${secret}`, detail: `${secret} is required: ${why}` }]
}

/** Token addresses in Google's key files, the current one and an older one. */
const TOKEN_URIS = ["https://oauth2.googleapis.com/token", "https://accounts.google.com/o/oauth2/token"]
const UNIVERSE = "googleapis.com"
const KEYFILE_NEEDS = ["project_id", "private_key", "client_email"]

/** Types of Google credentials files that are not service account keys. A message may show these names. */
const OTHER_FILES = ["external_account", "authorized_user", "impersonated_service_account", "gdch_service_account"]

/**
 * Returns the errors of a key file. The messages contain none of its content.
 * Only service account keys with Google's own addresses are accepted. Other files could make Berth read files and call
 * hosts that their author chooses.
 */
export function keyfileErrors(content: unknown): FieldError[] {
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
