import { type CredentialFields, SECRET_FIELDS } from "../apis/credentials.ts"

/** Replacement of a piece of a secret. */
const SCRUBBED = "[redacted]"

/** Minimum length of a piece of a secret, in characters: this many in a row that a text and a secret share. */
const PIECE = 8

/** Ids that providers treat as half of the key. Other ids stay, because they show which account a message is about. */
const HALF_SECRET_FIELDS: readonly string[] = ["access_key_id"]

/** Secret fields of a key file. Its other fields (addresses, names) may be in messages. */
const SECRETS_OF_A_KEYFILE = ["private_key", "private_key_id"]

/** Lines around the content of a PEM text. */
const PEM_ARMOUR = /-----(BEGIN|END) [A-Z ]+-----/g

/**
 * Redacts a text of others (a provider's message, an SDK's): removes every piece of these credentials. It finds them
 * whole, cut, or in JSON, a URL or base64.
 */
export function scrub(text: string, credentials: CredentialFields): string {
  const secrets = secretsOf(credentials).flatMap(spellings)
  const short = secrets.filter((secret) => secret.length < PIECE)
  const pieces = new Set(secrets.flatMap(piecesOf))
  return short.reduce((rest, secret) => rest.replaceAll(secret, SCRUBBED), withoutPieces(text, pieces))
}

/**
 * Redacts the same error for logs, events and statuses: its message, its stack, and the message of its cause. Other
 * fields of the cause are removed. The error is changed in place, so that callers still recognize its class.
 */
export function scrubError(error: unknown, credentials: CredentialFields): unknown {
  if (!(error instanceof Error)) return new Error(scrub(String(error), credentials))
  const { message, stack, cause } = error
  error.message = scrub(message, credentials)
  if (stack !== undefined) error.stack = scrub(stack, credentials)
  if ("code" in error && typeof error.code === "string") Object.assign(error, { code: scrub(error.code, credentials) })
  if (cause !== undefined) error.cause = withoutFields(cause, credentials)
  return error
}

/** Removes the fields of a cause. It is an SDK's error, which may have the whole request. */
function withoutFields(cause: unknown, credentials: CredentialFields): Error {
  const plain = new Error(scrub(cause instanceof Error ? cause.message : String(cause), credentials))
  if (cause instanceof Error && cause.stack !== undefined) plain.stack = scrub(cause.stack, credentials)
  return plain
}

function secretsOf(credentials: CredentialFields): string[] {
  return Object.entries(credentials).flatMap(([field, value]) => {
    if (field === "keyfile_json") return secretsOfKeyfile(value)
    return SECRET_FIELDS.includes(field) || HALF_SECRET_FIELDS.includes(field) ? [value] : []
  })
}

function secretsOfKeyfile(content: string): string[] {
  try {
    const file: unknown = JSON.parse(content)
    if (typeof file !== "object" || file === null) return [content]
    return SECRETS_OF_A_KEYFILE.flatMap((field) => {
      const value: unknown = Reflect.get(file, field)
      return typeof value === "string" ? value.replaceAll(PEM_ARMOUR, "\n").split("\n").filter(isTelling) : []
    })
  } catch {
    // The user took some other text for a key file.
    return [content]
  }
}

/** Returns false for the short last line of a key, because half of all words contain it. */
function isTelling(line: string): boolean {
  return line.length >= PIECE
}

function spellings(secret: string): string[] {
  const hex = Buffer.from(secret).toString("hex")
  const base64 = [0, 1, 2].map((offset) => base64At(offset, secret))
  const all = [secret, JSON.stringify(secret).slice(1, -1), encodeURIComponent(secret), hex, ...base64]
  const ofUrls = base64.map((text) => text.replaceAll("+", "-").replaceAll("/", "_"))
  return [...new Set([...all, ...ofUrls])].filter((spelling) => spelling !== "")
}

/**
 * Returns the base64 characters that depend only on the secret. The secret begins at this offset of a longer text (a
 * header, a file).
 */
function base64At(offset: number, secret: string): string {
  const bytes = Buffer.concat([Buffer.alloc(offset), Buffer.from(secret)])
  // Each three bytes become four characters. Those at the ends depend on the text around the secret.
  return bytes.toString("base64").slice(offset === 0 ? 0 : 4, Math.floor(bytes.length / 3) * 4)
}

function piecesOf(secret: string): string[] {
  return Array.from({ length: Math.max(0, secret.length - PIECE + 1) }, (_, at) => secret.slice(at, at + PIECE))
}

function withoutPieces(text: string, pieces: ReadonlySet<string>): string {
  let clean = ""
  let end = 0
  for (let at = 0; at <= text.length - PIECE; at++) {
    if (!pieces.has(text.slice(at, at + PIECE))) continue
    if (at > end || end === 0) clean += text.slice(end, at) + SCRUBBED
    end = Math.max(end, at + PIECE)
  }
  return clean + text.slice(end)
}
