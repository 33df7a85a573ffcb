import { mkdir, readFile, writeFile } from "node:fs/promises"
import { createServer, type IncomingMessage, type RequestListener, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import { join } from "node:path"
import { text } from "node:stream/consumers"
import { exportJWK, generateKeyPair, type JWK } from "jose"
import type Provider from "oidc-provider"
import type { OidcContext } from "oidc-provider"
import type { TrustedIssuer } from "../src/core/identity/oidc.ts"
import { codePage, confirmPage, donePage, faultPage, NAME_RULE, nameIn, namePage } from "./issuer-pages.ts"

/** The client that signs people in: a program on their machine, without a secret. */
export const CLIENT_ID = "berth-cli"

const AUDIENCE = "berth"
const RESOURCE = "urn:berth"
const SCOPE = "openid email"
const TOKEN_SECONDS = 3600
const SIGN_IN_SECONDS = 600
/** Time for which a command line may renew its tokens. */
const RENEWAL_SECONDS = 86_400

/** Path of the name page; the id of the sign-in follows. */
const SIGN_IN_PATH = "/sign-in/"

export interface DevelopmentIssuer extends TrustedIssuer {
  close(): Promise<void>
}

export interface IssuerOptions {
  /** 0 for any free port. The issuer's URL identifies people, so a kept installation needs the same port each time. */
  port: number
  /** Folder of its signing key. */
  dataDir: string
  /** Lifetime of access tokens, seconds. */
  tokenSeconds?: number
  /** Client with a secret, for the web console. Its access tokens are opaque, so its ID tokens are for Berth. */
  consoleClient?: ConfidentialClient
  /** Claims about groups that a person's tokens have: `groups`, or `_claim_names` and `_claim_sources`. Default none. */
  groupClaimsOf?: (accountId: string) => Record<string, unknown>
  /** False: no browser may read an answer of another origin. Default true. */
  hasCors?: boolean
}

export interface ConfidentialClient {
  clientId: string
  secret: string
}

/**
 * Starts an OpenID Connect server for one machine. It signs people in under the name that they type, without a
 * password. It listens on this machine only. In production an administrator configures the real issuer.
 */
export async function startIssuer({
  port,
  dataDir,
  hasCors = true,
  ...ofClients
}: IssuerOptions): Promise<DevelopmentIssuer> {
  // Imported here, because it is a development dependency: no production bundle has it.
  const library = await import("oidc-provider")
  const { createMemoryAdapter } = await import("oidc-provider/lib/adapters/memory_adapter.js")
  const jwks = { keys: [await signingKey(dataDir)] }
  const server = createServer()
  server.listen(port, "127.0.0.1")
  await new Promise<void>((resolve, reject) => server.once("listening", resolve).once("error", reject))
  const issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const policy = library.interactionPolicy.base()
  // Without this check a browser would sign in under the name that it used before.
  const isNamed = ({ oidc }: OidcContext): boolean =>
    oidc.result?.login !== undefined || (oidc.params?.["prompt"] === "none" && oidc.session.accountId !== undefined)
  policy.get("login").checks.add(new library.interactionPolicy.Check("name", "a name", (ctx) => !isNamed(ctx)))
  // The console's reload signs in again without a question. It is the same client as the command line.
  policy.get("consent").checks.remove("native_client_prompt")
  const interactions = { policy, url: (_: unknown, { uid }: { uid: string }) => `${SIGN_IN_PATH}${uid}` }
  // These options cover everything that the library would warn about: its warnings would mix with Berth's output.
  const adapter = createMemoryAdapter()
  const provider = new library.default(issuer, { ...configurationOf(ofClients), adapter, jwks, interactions })
  server.on("request", hasCors ? withSignIn(provider) : withoutCors(withSignIn(provider)))
  return {
    issuer,
    audience: AUDIENCE,
    close: async () => {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

/** Serves the provider's own addresses, and the name page. */
function withSignIn(provider: Provider): RequestListener {
  const rest = provider.callback()
  return (req, res) => {
    if (!req.url?.startsWith(SIGN_IN_PATH)) return rest(req, res)
    signIn(provider, req, res).catch((error: unknown) => {
      show(res, 400, faultPage(error instanceof Error ? error.message : String(error)))
    })
  }
}

/** Makes the provider answer as to programs, which send no Origin. */
function withoutCors(listener: RequestListener): RequestListener {
  return (req, res) => {
    delete req.headers.origin
    listener(req, res)
  }
}

async function signIn(provider: Provider, req: IncomingMessage, res: ServerResponse): Promise<void> {
  const { uid } = await provider.interactionDetails(req, res)
  const action = `${SIGN_IN_PATH}${uid}`
  if (req.method !== "POST") return show(res, 200, namePage(action))
  const accountId = nameIn(new URLSearchParams(await text(req)).get("login") ?? "")
  if (accountId === undefined) return show(res, 400, namePage(action, NAME_RULE))
  // The name is the consent: there are no choices.
  await provider.interactionFinished(req, res, { login: { accountId, remember: false }, consent: {} })
}

function show(res: ServerResponse, status: number, html: string): void {
  res.writeHead(status, { "Content-Type": "text/html; charset=utf-8", "Cache-Control": "no-store" }).end(html)
}

/**
 * Returns the signing key. It is kept, so that tokens stay valid after a restart. Throws an Error that says how to
 * repair a bad file.
 */
async function signingKey(dataDir: string): Promise<JWK> {
  const path = join(dataDir, "issuer-key.json")
  try {
    return JSON.parse(await readFile(path, "utf8")) as JWK
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") {
      throw new Error(
        `${path} can't be read as the issuer's key: remove it; everyone then signs in again, as the same user`,
        { cause: error },
      )
    }
  }
  const { privateKey } = await generateKeyPair("ES256", { extractable: true })
  const key = { ...(await exportJWK(privateKey)), alg: "ES256", use: "sig" }
  await mkdir(dataDir, { recursive: true, mode: 0o700 })
  await writeFile(path, JSON.stringify(key), { mode: 0o600 })
  return key
}

const emailOf = (accountId: string): string => `${accountId}@localhost`

function render(ctx: OidcContext, html: string): void {
  ctx.type = "html"
  ctx.body = html
}

const DEVICE_FLOW = {
  enabled: true,
  userCodeInputSource: (ctx: OidcContext, form: string, _out: unknown, error?: Error) =>
    render(ctx, codePage(form, error !== undefined)),
  userCodeConfirmSource: (ctx: OidcContext, form: string, _client: unknown, _device: unknown, code: string) =>
    render(ctx, confirmPage(form, code)),
  successSource: (ctx: OidcContext) => render(ctx, donePage()),
}

/** Makes access tokens JWTs for Berth only (RFC 9068). */
const resourceIndicators = (tokenSeconds: number) => ({
  enabled: true,
  defaultResource: () => RESOURCE,
  useGrantedResource: () => true,
  getResourceServerInfo: (_context: unknown, _resource: string, { clientId }: { clientId: string }) => ({
    scope: SCOPE,
    audience: AUDIENCE,
    accessTokenFormat: clientId === CLIENT_ID ? "jwt" : "opaque",
    accessTokenTTL: tokenSeconds,
    jwt: { sign: { alg: "ES256" } },
  }),
})

/** A user who signs in consents to everything that the only client requests. */
async function grantAll({ oidc }: OidcContext): Promise<unknown> {
  const grant = new oidc.provider.Grant({ accountId: oidc.session.accountId, clientId: oidc.client.clientId })
  grant.addOIDCScope(SCOPE)
  grant.addResourceScope(RESOURCE, SCOPE)
  await grant.save()
  return grant
}

const CLIENT = {
  application_type: "native",
  response_types: ["code"],
  id_token_signed_response_alg: "ES256",
}

// For a native client, any port of the loopback address is allowed (RFC 8252).
const CONSOLES = ["http://127.0.0.1/console/signed-in", "http://localhost/console/signed-in"]

const confidential = ({ clientId, secret }: ConfidentialClient) => ({
  ...CLIENT,
  client_id: clientId,
  client_secret: secret,
  token_endpoint_auth_method: "client_secret_basic",
  grant_types: ["authorization_code", "refresh_token"],
  redirect_uris: CONSOLES,
})

const configurationOf = ({
  tokenSeconds = TOKEN_SECONDS,
  consoleClient,
  groupClaimsOf = () => ({}),
}: Pick<IssuerOptions, "tokenSeconds" | "consoleClient" | "groupClaimsOf">) => ({
  clients: [
    {
      ...CLIENT,
      client_id: CLIENT_ID,
      token_endpoint_auth_method: "none",
      grant_types: ["urn:ietf:params:oauth:grant-type:device_code", "authorization_code", "refresh_token"],
      redirect_uris: ["http://127.0.0.1/callback", ...CONSOLES],
    },
    ...(consoleClient === undefined ? [] : [confidential(consoleClient)]),
  ],
  features: {
    devInteractions: { enabled: false },
    deviceFlow: DEVICE_FLOW,
    resourceIndicators: resourceIndicators(tokenSeconds),
  },
  extraTokenClaims: (_context: unknown, { accountId }: { accountId?: string }) =>
    accountId === undefined ? {} : { email: emailOf(accountId), ...groupClaimsOf(accountId) },
  findAccount: (_context: unknown, accountId: string) => ({
    accountId,
    claims: () => ({ sub: accountId, email: emailOf(accountId), ...groupClaimsOf(accountId) }),
  }),
  claims: { openid: ["sub", "groups"], email: ["email"] },
  // An ID token has them too, for a client whose access tokens are opaque.
  conformIdTokenClaims: false,
  // The console is on another port, and has no secret.
  clientBasedCORS: () => true,
  issueRefreshToken: () => true,
  loadExistingGrant: grantAll,
  renderError: (ctx: OidcContext, out: { error: string; error_description?: string }) =>
    render(ctx, faultPage(out.error_description ?? out.error)),
  ttl: {
    AccessToken: tokenSeconds,
    DeviceCode: SIGN_IN_SECONDS,
    Grant: RENEWAL_SECONDS,
    IdToken: TOKEN_SECONDS,
    Interaction: SIGN_IN_SECONDS,
    RefreshToken: RENEWAL_SECONDS,
    Session: TOKEN_SECONDS,
  },
})
