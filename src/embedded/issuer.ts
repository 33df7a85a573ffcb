import { mkdir, readFile, writeFile } from "node:fs/promises"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { join } from "node:path"
import { exportJWK, generateKeyPair, type JWK } from "jose"
import type { TrustedIssuer } from "../identity/oidc.ts"

/** The client that people sign in with: a program on their machine, which has no secret. */
export const CLIENT_ID = "berth-cli"

const AUDIENCE = "berth"
const TOKEN_SECONDS = 3600

export interface DevelopmentIssuer extends TrustedIssuer {
  close(): Promise<void>
}

export interface IssuerOptions {
  /** 0: any free one. People are known by the issuer's URL, so a kept installation needs the same one each time. */
  port: number
  /** Where its signing key is kept. */
  dataDir: string
}

/**
 * An OpenID Connect server for one machine: whoever asks is signed in under the name that they type, without a password.
 * It listens on this machine only. Production names its own issuer.
 */
export async function startIssuer({ port, dataDir }: IssuerOptions): Promise<DevelopmentIssuer> {
  // Imported here: a development dependency, which no production bundle has.
  const { default: Provider } = await import("oidc-provider")
  const server = createServer()
  server.listen(port, "127.0.0.1")
  await new Promise<void>((resolve, reject) => server.once("listening", resolve).once("error", reject))
  const issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  server.on("request", new Provider(issuer, configuration(await signingKey(dataDir))).callback())
  return {
    issuer,
    audience: AUDIENCE,
    close: async () => {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

/** Kept, so that tokens stay good when the stack is started anew. */
async function signingKey(dataDir: string): Promise<JWK> {
  const path = join(dataDir, "issuer-key.json")
  try {
    return JSON.parse(await readFile(path, "utf8")) as JWK
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error
  }
  const { privateKey } = await generateKeyPair("ES256", { extractable: true })
  const key = { ...(await exportJWK(privateKey)), alg: "ES256", use: "sig" }
  await mkdir(dataDir, { recursive: true, mode: 0o700 })
  await writeFile(path, JSON.stringify(key), { mode: 0o600 })
  return key
}

function configuration(key: JWK): object {
  const emailOf = (accountId: string): string => `${accountId}@localhost`
  return {
    jwks: { keys: [key] },
    clients: [
      {
        client_id: CLIENT_ID,
        token_endpoint_auth_method: "none",
        application_type: "native",
        grant_types: ["urn:ietf:params:oauth:grant-type:device_code"],
        response_types: [],
        id_token_signed_response_alg: "ES256",
        redirect_uris: [],
      },
    ],
    features: {
      devInteractions: { enabled: true },
      deviceFlow: { enabled: true },
      // Access tokens become JWTs, for Berth and nobody else (RFC 9068).
      resourceIndicators: {
        enabled: true,
        defaultResource: () => "urn:berth",
        useGrantedResource: () => true,
        getResourceServerInfo: () => ({
          scope: "openid email",
          audience: AUDIENCE,
          accessTokenFormat: "jwt",
          accessTokenTTL: TOKEN_SECONDS,
          jwt: { sign: { alg: "ES256" } },
        }),
      },
    },
    extraTokenClaims: (_context: unknown, { accountId }: { accountId?: string }) =>
      accountId === undefined ? {} : { email: emailOf(accountId) },
    findAccount: (_context: unknown, accountId: string) => ({
      accountId,
      claims: () => ({ sub: accountId, email: emailOf(accountId) }),
    }),
    claims: { openid: ["sub"], email: ["email"] },
    ttl: { DeviceCode: 600, Grant: TOKEN_SECONDS, Interaction: 600, Session: TOKEN_SECONDS },
  }
}
