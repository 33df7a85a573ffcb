import type { CredentialFields } from "../core/apis/credentials.ts"
import type { ImageName } from "../core/apis/image.ts"
import type { Fetch } from "../core/outbound/guarded-fetch.ts"

/** An image that the VM of a Launch pulls. */
export interface PullScope extends ImageName {
  /** Name of the Launch, for the provider's own records. */
  launch: string
}

/** Login for a registry. The password expires if the provider supports that. */
export interface RegistryLogin {
  username: string
  password: string
  /** RFC 3339; absent if the password does not expire. */
  expiration?: string
}

export interface RegistryOpener {
  /** Returns true if an account of this type may have images in the registry. Makes no calls. */
  serves(registry: string): boolean
  /**
   * Signs in for pulling this image and, if the provider supports it, for nothing else. Throws the errors of errors.ts.
   */
  login(credentials: CredentialFields, scope: PullScope, signal: AbortSignal): Promise<RegistryLogin>
}

/** Settings of an account at a registry. */
export interface RegistryOptions {
  /** Sends requests to hosts that were checked. Default: Node.js' own fetch. */
  send?: Fetch
}
