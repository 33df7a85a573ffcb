import { type CredentialFields, SECRET_FIELDS } from "../apis/credentials.ts"

/** What stands for a piece of a secret. */
const SCRUBBED = "[redacted]"

/** So many characters in a row that are also in a secret are taken for a piece of it. */
const PIECE = 8

/** Ids that providers treat as half of the key: with the others nobody could tell which account a message is about. */
const HALF_SECRET_FIELDS: readonly string[] = ["access_key_id"]

/** What of a key file opens the account; the rest of it (addresses, names) is in messages by right. */
const SECRETS_OF_A_KEYFILE = ["private_key", "private_key_id"]

/** What a PEM text has around its content. */
const PEM_ARMOUR = /-----(BEGIN|END) [A-Z ]+-----/g

/**
 * A text that somebody else wrote (a provider's message, an SDK's) without any piece of these credentials: as they are,
 * cut, or as JSON, a URL or base64 would have them.
 */
export function scrubbed(text: string, credentials: CredentialFields): string {
  const secrets = secretsOf(credentials).flatMap(spellings)
  const short = secrets.filter((secret) => secret.length < PIECE)
  const pieces = new Set(secrets.flatMap(piecesOf))
  return short.reduce((rest, secret) => rest.replaceAll(secret, SCRUBBED), withoutPieces(text, pieces))
}

/**
 * The same error without any piece of these credentials, for logs, events and statuses: its message, its stack and the
 * words of its cause, of which nothing else stays. It is changed in place: whoever catches it still knows it by its class.
 */
export function scrubbedError(error: unknown, credentials: CredentialFields): unknown {
  if (!(error instanceof Error)) return new Error(scrubbed(String(error), credentials))
  const { message, stack, cause } = error
  error.message = scrubbed(message, credentials)
  if (stack !== undefined) error.stack = scrubbed(stack, credentials)
  if ("code" in error && typeof error.code === "string")
    Object.assign(error, { code: scrubbed(error.code, credentials) })
  if (cause !== undefined) error.cause = withoutFields(cause, credentials)
  return error
}

/** A cause is an SDK's error, whose fields may hold the whole request. */
function withoutFields(cause: unknown, credentials: CredentialFields): Error {
  const plain = new Error(scrubbed(cause instanceof Error ? cause.message : String(cause), credentials))
  if (cause instanceof Error && cause.stack !== undefined) plain.stack = scrubbed(cause.stack, credentials)
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
    // Whatever somebody took for a key file.
    return [content]
  }
}

/** The last line of a key may be so short that half of all words have it. */
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

/** What of a secret is to be seen in the base64 of a longer text (a header, a file) in which it begins at this offset. */
function base64At(offset: number, secret: string): string {
  const bytes = Buffer.concat([Buffer.alloc(offset), Buffer.from(secret)])
  // Each three bytes make four characters: those at the ends depend on what stands around the secret.
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
