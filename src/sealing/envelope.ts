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

/** What a secret is sealed for: it opens nowhere else, so that a copied ciphertext is of no use. */
export interface SealingContext {
  /** The project's id: the Project's name. */
  project: string
  /** The object's metadata.name. */
  name: string
}

/**
 *     berth1.<key id>.<credential id>.<wrapped data key>.<content>
 *
 * The content is encrypted under a data key of its own; the data key under the key-encryption key of that id. Both
 * are AES-256-GCM, bound to version, credential id, project and name. The last two parts are base64url of nonce,
 * ciphertext and tag. The version stands first, whatever will follow it.
 */
const VERSION = "berth1"

interface Envelope {
  /** Random, made with each seal: one sealing of a name can't be told from another one otherwise. */
  credentialId: string
  wrapped: WrappedKey
  content: Uint8Array
}

/** Seals secrets, each under a fresh data key. */
export class Sealer {
  readonly #keys: KeyEncryption

  constructor(keys: KeyEncryption) {
    this.#keys = keys
  }

  /** The secret as it may be stored anywhere. */
  async seal(secret: string, context: SealingContext): Promise<string> {
    const credentialId = randomUUID()
    const associatedData = associatedDataOf(credentialId, context)
    const dataKey = randomBytes(KEY_BYTES)
    const content = encrypt(dataKey, Buffer.from(secret), associatedData)
    const wrapped = await this.#keys.wrap(dataKey, associatedData)
    return format({ credentialId, wrapped, content })
  }

  /** The secret again. @throws SealingError, or what the keeper of the keys throws when it can't be asked */
  async open(sealed: string, context: SealingContext): Promise<string> {
    const { credentialId, wrapped, content } = parse(sealed)
    const associatedData = associatedDataOf(credentialId, context)
    const dataKey = await this.#keys.unwrap(wrapped, associatedData)
    return Buffer.from(decrypt(dataKey, content, associatedData)).toString()
  }

  /** Whether it is sealed under a key that is not the primary one any more. @throws SealingError for no sealed text */
  async isOutdated(sealed: string): Promise<boolean> {
    return keyIdOf(sealed) !== (await this.#keys.primary())
  }

  /**
   * The same secret under the primary key of now: only the data key is wrapped anew, the content stays.
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
 * Id of what is sealed: the same as long as the content is, also when it is sealed again under another key.
 * @throws SealingError for what is no sealed text
 */
export function credentialIdOf(sealed: string): string {
  return parse(sealed).credentialId
}

/** Id of the key-encryption key that a sealed text needs. @throws SealingError for what is no sealed text */
export function keyIdOf(sealed: string): string {
  return parse(sealed).wrapped.keyId
}

/** As JSON, because names joined by any sign could be cut in two ways. */
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
  if (!KEY_ID_PATTERN.test(keyId) || credentialId === "" || more.length > 0) throw malformed()
  return { credentialId, wrapped: { keyId, bytes: bytesOf(wrappedKey) }, content: bytesOf(content) }
}

/** Only the one spelling that `base64` makes: Node.js reads several, and a changed text must not pass for the same. */
function bytesOf(text: string): Uint8Array {
  const bytes = Buffer.from(text, "base64url")
  if (text === "" || bytes.toString("base64url") !== text) throw malformed()
  return bytes
}

function malformed(): SealingError {
  return new SealingError("malformed", `it is no sealed text: ${VERSION}.<key id>.<credential id>.<data key>.<content>`)
}

function versionError(version: string): SealingError {
  if (!/^berth[0-9]{1,9}$/.test(version)) return malformed()
  return new SealingError("unknownVersion", `its version is ${version}, this release knows ${VERSION}`)
}
