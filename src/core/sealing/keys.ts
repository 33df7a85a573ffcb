import { createCipheriv, createDecipheriv, randomBytes } from "node:crypto"

/** Sizes of AES-256-GCM, bytes: its key, the nonce that NIST SP 800-38D recommends, the whole tag. */
export const KEY_BYTES = 32
export const NONCE_BYTES = 12
export const TAG_BYTES = 16

/** Syntax of key ids. They contain no dot, because dots separate the parts of a sealed text. */
export const KEY_ID_PATTERN = /^[A-Za-z0-9_-]{1,64}$/

/** Data key that only the keeper of the key-encryption key can unwrap. */
export interface WrappedKey {
  /** Id of the key-encryption key. */
  keyId: string
  bytes: Uint8Array
}

/** Reason why a sealed text can't be opened. */
export type SealingErrorReason =
  | "malformed"
  /** Sealed by a newer release. */
  | "unknownVersion"
  /** Sealed under a key that is not in the keyring, or no longer. */
  | "unknownKey"
  /** Changed, cut, or copied from another object. */
  | "tampered"

/** A sealed text can't be opened. The message contains neither a key nor any of the content. */
export class SealingError extends Error {
  override readonly name = "SealingError"
  readonly reason: SealingErrorReason

  constructor(reason: SealingErrorReason, message: string) {
    super(message)
    this.reason = reason
  }
}

/** Keeps the key-encryption keys and never reveals one. It is a keyring in memory or a key management service. */
export interface KeyEncryption {
  /** Returns the id of the key that new data keys are wrapped under. */
  primary(): Promise<string>
  /** Encrypts a data key under the current primary key, bound to `associatedData`. */
  wrap(dataKey: Uint8Array, associatedData: Uint8Array): Promise<WrappedKey>
  /** @throws SealingError unknownKey; or tampered if this key and `associatedData` did not wrap it */
  unwrap(wrapped: WrappedKey, associatedData: Uint8Array): Promise<Uint8Array>
}

/** Key-encryption keys by their ids. New data keys are wrapped under the primary key; old ones may use the others. */
export interface Keyring {
  primary: string
  keys: ReadonlyMap<string, Uint8Array>
}

/** Wraps data keys under the keys of a keyring that others store and may rotate. */
export class KeyringEncryption implements KeyEncryption {
  readonly #read: () => Promise<Keyring>
  #last: Keyring | undefined

  /** `read` returns the current keyring. Its errors are passed on. */
  constructor(read: () => Promise<Keyring>) {
    this.#read = read
  }

  async primary(): Promise<string> {
    return (await this.#refresh()).primary
  }

  /** Wraps under the current primary key, so that a rotated key gets no new data keys. */
  async wrap(dataKey: Uint8Array, associatedData: Uint8Array): Promise<WrappedKey> {
    const { primary, keys } = await this.#refresh()
    const key = keys.get(primary)
    if (key === undefined) throw unknownKey(primary)
    return { keyId: primary, bytes: encrypt(key, dataKey, associatedData) }
  }

  async unwrap({ keyId, bytes }: WrappedKey, associatedData: Uint8Array): Promise<Uint8Array> {
    const key = this.#last?.keys.get(keyId) ?? (await this.#refresh()).keys.get(keyId)
    if (key === undefined) throw unknownKey(keyId)
    return decrypt(key, bytes, associatedData)
  }

  async #refresh(): Promise<Keyring> {
    this.#last = await this.#read()
    return this.#last
  }
}

function unknownKey(keyId: string): SealingError {
  return new SealingError("unknownKey", `the key-encryption key "${keyId}" is not in the keyring`)
}

/** Encrypts with AES-256-GCM and a new nonce. Returns nonce, ciphertext and tag. */
export function encrypt(key: Uint8Array, content: Uint8Array, associatedData: Uint8Array): Uint8Array {
  const nonce = randomBytes(NONCE_BYTES)
  const cipher = createCipheriv("aes-256-gcm", key, nonce, { authTagLength: TAG_BYTES }).setAAD(associatedData)
  return Buffer.concat([nonce, cipher.update(content), cipher.final(), cipher.getAuthTag()])
}

/**
 * Decrypts a result of `encrypt`.
 * @throws SealingError tampered if the bytes, the key or the associated data differ from those of `encrypt`
 */
export function decrypt(key: Uint8Array, bytes: Uint8Array, associatedData: Uint8Array): Uint8Array {
  if (bytes.length < NONCE_BYTES + TAG_BYTES) throw tamperedError()
  const nonce = bytes.subarray(0, NONCE_BYTES)
  const decipher = createDecipheriv("aes-256-gcm", key, nonce, { authTagLength: TAG_BYTES })
    .setAAD(associatedData)
    .setAuthTag(bytes.subarray(-TAG_BYTES))
  const content = decipher.update(bytes.subarray(NONCE_BYTES, -TAG_BYTES))
  try {
    return Buffer.concat([content, decipher.final()])
  } catch {
    throw tamperedError()
  }
}

function tamperedError(): SealingError {
  return new SealingError("tampered", "it was changed, or sealed for another project or name")
}
