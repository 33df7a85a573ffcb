import { createHash } from "node:crypto"
import type { CredentialFields } from "../core/apis/credentials.ts"

/** Returns a hash of credentials, so that they can be compared without being kept. */
export function credentialsDigest(credentials: CredentialFields): string {
  return createHash("sha256")
    .update(JSON.stringify(Object.entries(credentials).sort()))
    .digest("hex")
}

/** Cache by credentials. It drops the least recently used entries above its limit. */
export class ByCredentials<T> {
  readonly #most: number
  readonly #opened = new Map<string, T>()

  /** @param most maximum number of entries */
  constructor(most: number) {
    this.#most = most
  }

  /**
   * Returns the same object for the same credentials, in whichever connection they are.
   * @param open creates the object if it is missing
   * @param scope separates objects that the same credentials open
   */
  get(credentials: CredentialFields, open: () => T, scope = ""): T {
    const key = `${scope}/${credentialsDigest(credentials)}`
    const opened = this.#opened.get(key) ?? open()
    this.#opened.delete(key)
    this.#opened.set(key, opened)
    for (const oldest of this.#opened.keys()) {
      if (this.#opened.size <= this.#most) break
      this.#opened.delete(oldest)
    }
    return opened
  }
}
