import { createHash, randomBytes, timingSafeEqual } from "node:crypto"

/** Random secret of a session. It is in memory only. */
export class Token {
  readonly text = randomBytes(32).toString("base64url")

  /** Compares in a time that does not depend on the secret. */
  matches(text: string): boolean {
    return timingSafeEqual(hashOf(text), hashOf(this.text))
  }
}

function hashOf(text: string): Buffer {
  return createHash("sha256").update(text).digest()
}
