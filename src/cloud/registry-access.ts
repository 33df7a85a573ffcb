import type { CredentialFields } from "../apis/credentials.ts"
import type { ImageName } from "../apis/image.ts"

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
