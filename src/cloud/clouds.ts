import { CredentialsError } from "./errors.ts"
import type { Cloud, CloudAccount, Clouds } from "./provider.ts"

/** Opens one cloud's accounts. */
export type CloudOpener = (account: CloudAccount) => Promise<Cloud>

/** The clouds that an installation has, by name. An account of any other cloud is refused. */
export function cloudsOf(openers: Readonly<Record<string, CloudOpener>>): Clouds {
  const names = Object.keys(openers)
  return {
    async open(account) {
      const open = Object.hasOwn(openers, account.cloud) ? openers[account.cloud] : undefined
      if (open !== undefined) return await open(account)
      const message = `no cloud "${account.cloud}" in this installation: it has ${names.join(", ") || "none"}`
      throw new CredentialsError("UnknownCloud", message)
    },
  }
}
