import { randomBytes, randomUUID } from "node:crypto"
import {
  decrypt,
  encrypt,
  KEY_BYTES,
  KEY_ID_PATTERN,
  type KeyEncryption,
  SealingError,
  type WrappedKey,
} from "./keys.ts"

/** Object that a secret is sealed for. It can't be opened for another one, so a copied ciphertext is useless. */
export interface SealingContext {
  /** Id of the project: the Project's name. */
  project: string
  /** The object's `metadata.name`. */
  name: string
}

/**
 * Format: berth1.<key id>.<credential id>.<wrapped data key>.<content>
 *
 * Each secret has its own data key, which encrypts the content. The key-encryption key with that id encrypts the data
 * key. Both use AES-256-GCM, bound to version, credential id, project and name. The last two parts are base64url of
 * nonce, ciphertext and tag. Every later version of the format must also begin with its version.
 */
const VERSION = "berth1"

interface Envelope {
  /** Random id of each seal. It distinguishes one sealed text of a name from another. */
  credentialId: string
  wrapped: WrappedKey
  content: Uint8Array
}

/** Seals secrets, each under a new data key. */
export class Sealer {
  readonly #keys: KeyEncryption

  constructor(keys: KeyEncryption) {
    this.#keys = keys
  }

  /** Seals a secret. The result may be stored anywhere. */
  async seal(secret: string, context: SealingContext): Promise<string> {
    const credentialId = randomUUID()
    const associatedData = associatedDataOf(credentialId, context)
    const dataKey = randomBytes(KEY_BYTES)
    const content = encrypt(dataKey, Buffer.from(secret), associatedData)
    const wrapped = await this.#keys.wrap(dataKey, associatedData)
    return format({ credentialId, wrapped, content })
  }

  /** Opens a sealed secret. @throws SealingError, or the error of the key keeper if it can't be reached */
  async open(sealed: string, context: SealingContext): Promise<string> {
    const { credentialId, wrapped, content } = parse(sealed)
    const associatedData = associatedDataOf(credentialId, context)
    const dataKey = await this.#keys.unwrap(wrapped, associatedData)
    return Buffer.from(decrypt(dataKey, content, associatedData)).toString()
  }

  /**
   * Returns true if the text is sealed under a key that is no longer the primary one. @throws SealingError if it is not
   * a sealed text
   */
  async isOutdated(sealed: string): Promise<boolean> {
    return parseSealingKeyId(sealed) !== (await this.#keys.primary())
  }

  /**
   * Seals the same secret under the current primary key. It wraps the data key again; the content stays.
   * @throws as `open`
   */
  async reseal(sealed: string, context: SealingContext): Promise<string> {
    const { credentialId, wrapped, content } = parse(sealed)
    const associatedData = associatedDataOf(credentialId, context)
    const dataKey = await this.#keys.unwrap(wrapped, associatedData)
    return format({ credentialId, wrapped: await this.#keys.wrap(dataKey, associatedData), content })
  }
}

/**
 * Returns the id of the sealed content. It stays the same when the content is sealed again under another key.
 * @throws SealingError if it is not a sealed text
 */
export function parseCredentialId(sealed: string): string {
  return parse(sealed).credentialId
}

/** Returns the id of the key-encryption key of a sealed text. @throws SealingError if it is not a sealed text */
export function parseSealingKeyId(sealed: string): string {
  return parse(sealed).wrapped.keyId
}

/** Returns the associated data as JSON, because names joined by a separator could be split in two ways. */
function associatedDataOf(credentialId: string, { project, name }: SealingContext): Uint8Array {
  return Buffer.from(JSON.stringify([VERSION, credentialId, project, name]))
}

function format({ credentialId, wrapped, content }: Envelope): string {
  return [VERSION, wrapped.keyId, credentialId, base64(wrapped.bytes), base64(content)].join(".")
}

function base64(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString("base64url")
}

function parse(sealed: string): Envelope {
  const [version = "", keyId = "", credentialId = "", wrappedKey = "", content = "", ...more] = sealed.split(".")
  if (version !== VERSION) throw versionError(version)
  if (!KEY_ID_PATTERN.test(keyId) || credentialId === "" || more.length > 0) throw malformedError()
  return { credentialId, wrapped: { keyId, bytes: bytesOf(wrappedKey) }, content: bytesOf(content) }
}

/**
 * Decodes only the canonical form that `base64` writes. Node.js accepts several forms, and a changed text must not pass
 * as the same.
 */
function bytesOf(text: string): Uint8Array {
  const bytes = Buffer.from(text, "base64url")
  if (text === "" || bytes.toString("base64url") !== text) throw malformedError()
  return bytes
}

function malformedError(): SealingError {
  return new SealingError(
    "malformed",
    `it is not a sealed text; expected ${VERSION}.<key id>.<credential id>.<data key>.<content>`,
  )
}

function versionError(version: string): SealingError {
  if (!/^berth[0-9]{1,9}$/.test(version)) return malformedError()
  return new SealingError("unknownVersion", `its version is ${version}; this release supports ${VERSION}`)
}
