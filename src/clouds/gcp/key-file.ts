import type { FieldError } from "../../core/apis/field-error.ts"
import { LIMITS } from "../../core/apis/field-limits.ts"

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
export function keyFileErrors(content: unknown): FieldError[] {
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
