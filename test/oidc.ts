import { createServer, type RequestListener } from "node:http"
import { createServer as createSecureServer } from "node:https"
import type { AddressInfo } from "node:net"
import { type CryptoKey, exportJWK, generateKeyPair, type JWTPayload, SignJWT } from "jose"
import Provider from "oidc-provider"
import { createMemoryAdapter } from "oidc-provider/lib/adapters/memory_adapter.js"

/** Running OpenID Connect server (oidc-provider, which is certified) whose signing keys the test also has. */
export interface Issuer {
  url: string
  /** Returns a token, signed by the current key, with these claims beside the usual ones; null leaves one out. */
  token(claims?: Record<string, unknown>, header?: Record<string, unknown>): Promise<string>
  /** Signs with another key from now on, and publishes only that one. */
  rotate(): Promise<void>
  close(): Promise<void>
}

export const AUDIENCE = "berth-test"

/** @param secure enables TLS: an address of this host, and the certificate and key for it, PEM */
export async function startIssuer(secure?: { address: string; cert: string; key: string }): Promise<Issuer> {
  let handle: RequestListener = (_req, res) => void res.writeHead(503).end()
  const serve: RequestListener = (req, res) => handle(req, res)
  const server = secure === undefined ? createServer(serve) : createSecureServer(secure, serve)
  const address = secure?.address ?? "127.0.0.1"
  await new Promise<void>((resolve) => server.listen(0, address, resolve))
  const url = `${secure === undefined ? "http" : "https"}://${address}:${(server.address() as AddressInfo).port}`
  let signing: { kid: string; key: CryptoKey }
  let made = 0
  const rotate = async (): Promise<void> => {
    const { privateKey } = await generateKeyPair("ES256", { extractable: true })
    const kid = `key-${++made}`
    const jwk = { ...(await exportJWK(privateKey)), kid, alg: "ES256", use: "sig" }
    // Without these settings the library prints warnings.
    const quiet = { adapter: createMemoryAdapter(), features: { devInteractions: { enabled: false } } }
    handle = new Provider(url, { jwks: { keys: [jwk] }, ...quiet }).callback()
    signing = { kid, key: privateKey }
  }
  await rotate()
  return {
    url,
    rotate,
    token: (claims = {}, header = {}) => {
      const now = Math.floor(Date.now() / 1000)
      const usual = { iss: url, aud: AUDIENCE, sub: "ada", email: "ada@example.com", iat: now, exp: now + 300 }
      const payload = Object.fromEntries(Object.entries({ ...usual, ...claims }).filter(([, value]) => value !== null))
      return new SignJWT(payload as JWTPayload)
        .setProtectedHeader({ alg: "ES256", kid: signing.kid, ...header })
        .sign(signing.key)
    },
    close: async () => {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}
