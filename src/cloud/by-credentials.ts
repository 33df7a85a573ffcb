import { createHash } from "node:crypto"
import type { CredentialFields } from "../apis/credentials.ts"

/** Tells credentials apart without keeping them. */
export function credentialsDigest(credentials: CredentialFields): string {
  return createHash("sha256")
    .update(JSON.stringify(Object.entries(credentials).sort()))
    .digest("hex")
}

/** What was opened by credentials: as many of these as are kept, and those that were not used for longest go first. */
export class ByCredentials<T> {
  readonly #most: number
  readonly #opened = new Map<string, T>()

  /** @param most how many are kept */
  constructor(most: number) {
    this.#most = most
  }

  /**
   * One and the same for the same credentials, whoever carries them.
   * @param open makes what is not there
   * @param scope tells apart what the same credentials open
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
