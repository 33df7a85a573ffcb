import type { CredentialFields } from "../apis/credentials.ts"
import type { ImageName } from "../apis/image.ts"

/** An image that the VM of a Launch is to pull. */
export interface PullScope extends ImageName {
  /** Name of the Launch, for the provider's own records. */
  launch: string
}

/** What a registry takes from who signs in; with a password that ends by itself, where the provider has one. */
export interface RegistryLogin {
  username: string
  password: string
  /** RFC 3339; absent where it doesn't end by itself. */
  expiration?: string
}

/** The registries of one type of connection. */
export interface RegistryOpener {
  /** Whether an account of this type may have images in the registry. Calls no host. */
  serves(registry: string): boolean
  /** Signs in for pulling this image and, where the provider can, for nothing else. Throws the errors of errors.ts. */
  login(credentials: CredentialFields, scope: PullScope, signal: AbortSignal): Promise<RegistryLogin>
}
