import { Router } from "express"
import type { IdentityIssuer } from "../core/identity/identity-tokens.ts"
import { unavailable } from "./http/problem.ts"

/** Seconds for which clouds may cache the documents. A new key must be known before it signs. */
const MAX_AGE_SECONDS = 300

/**
 * Serves the documents by which clouds verify Berth's identity tokens, under `/.well-known`
 * (https://openid.net/specs/openid-connect-discovery-1_0.html). They are public and contain no secret.
 */
export function identityRouter(identity: IdentityIssuer): Router {
  const router = Router({ caseSensitive: true })
  const cache = `public, max-age=${MAX_AGE_SECONDS}`
  router.get("/openid-configuration", (_req, res) => {
    res.set("Cache-Control", cache).json(identity.configuration())
  })
  router.get("/jwks.json", async (_req, res) => {
    const keys = await identity.jwks().catch((error: unknown) => {
      throw unavailable("The keys of the identity tokens can't be read yet: try again.", 5, error)
    })
    res.set("Cache-Control", cache).json(keys)
  })
  return router
}
