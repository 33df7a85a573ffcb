import type { RegistryOpener } from "../registry-access.ts"
import { type GoogleOptions, googleAs, googleError } from "./google.ts"

/** Artifact Registry's hosts, those that were Container Registry's among them. */
const REGISTRY = /^([a-z0-9-]+-docker\.pkg\.dev|([a-z]+\.)?gcr\.io)$/

/** By this user a registry of Google's takes an access token (https://cloud.google.com/artifact-registry/docs/docker/authentication). */
const TOKEN_USER = "oauth2accesstoken"

/** Signs in to Artifact Registry by an access token of the service account's, good for reading and for an hour. */
export function artifactRegistries(options: GoogleOptions = {}): RegistryOpener {
  return {
    serves: (registry) => REGISTRY.test(registry),
    login: async (credentials, _scope, signal) => {
      try {
        const google = await googleAs(credentials, options, signal)
        const { access_token: password, expiry_date: expiry } = await google.authorize()
        const expiration = typeof expiry === "number" && { expiration: new Date(expiry).toISOString() }
        return { username: TOKEN_USER, password: password ?? "", ...expiration }
      } catch (error) {
        throw googleError(error, signal)
      }
    },
  }
}
