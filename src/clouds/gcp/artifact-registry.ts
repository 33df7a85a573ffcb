import type { RegistryOpener } from "../registry-access.ts"
import { type GoogleOptions, googleAs, googleError } from "./google.ts"

/** Artifact Registry's hosts, including the former ones of Container Registry. */
const REGISTRY = /^([a-z0-9-]+-docker\.pkg\.dev|([a-z]+\.)?gcr\.io)$/

/**
 * User name for an access token at Google's registries
 * (https://cloud.google.com/artifact-registry/docs/docker/authentication).
 */
const TOKEN_USER = "oauth2accesstoken"

/**
 * Signs in to Artifact Registry by an access token of the service account. The token can only read, and expires after
 * an hour.
 */
export function artifactRegistries(options: GoogleOptions = {}): RegistryOpener {
  return {
    serves: (registry) => REGISTRY.test(registry),
    login: async (credentials, _scope, signal) => {
      try {
        const google = await googleAs(credentials, options, signal)
        const { token: password } = await google.getAccessToken()
        const { expiry_date: expiry } = google.credentials
        const expiration = typeof expiry === "number" && { expiration: new Date(expiry).toISOString() }
        return { username: TOKEN_USER, password: password ?? "", ...expiration }
      } catch (error) {
        throw googleError(error, signal)
      }
    },
  }
}
