import { createHash, createPrivateKey, X509Certificate } from "node:crypto"
import { once } from "node:events"
import { existsSync } from "node:fs"
import { mkdtemp, rm, writeFile } from "node:fs/promises"
import { createServer as createHttpServer, type IncomingMessage, request, type ServerResponse } from "node:http"
import { createServer } from "node:https"
import type { AddressInfo } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { SignJWT } from "jose"
import { Agent, fetch as dispatchedFetch } from "undici"
import { newCertificateAuthority } from "../dev/controlplane/certificates.ts"
import type { Fetch } from "../src/core/outbound/guarded-fetch.ts"
import { startTied } from "./tied-process.ts"

/** Debian's package docker-registry. */
const REGISTRY_PROGRAM = "/usr/bin/docker-registry"

/** Returns why no registry can be started here; undefined if one can. */
export function missingForRegistry(): string | undefined {
  return existsSync(REGISTRY_PROGRAM) ? undefined : `${REGISTRY_PROGRAM} is missing (Debian's package docker-registry)`
}

/** Rights of users: pull repositories by prefix of their names, or push all. */
export type Users = Readonly<Record<string, { password: string; pulls?: readonly string[]; pushes?: boolean }>>

/**
 * Registry (https://github.com/distribution/distribution) behind TLS on 127.0.0.1, an address for which engines check
 * no certificate.
 */
export interface TestRegistry {
  /** Prefix of image names. */
  host: string
  /** Sends requests to this registry only. */
  send: Fetch
  /** Requests as `<method> <path> <user or scheme>`. */
  requests: string[]
  stop(): Promise<void>
}

/** Starts a registry with one user, given as a line of htpasswd. */
export function startPasswordRegistry(htpasswd: string): Promise<TestRegistry> {
  return startRegistry(async ({ folder }) => {
    await writeFile(join(folder, "htpasswd"), `${htpasswd}\n`)
    return { auth: { htpasswd: { realm: "registry", path: join(folder, "htpasswd") } } }
  })
}

/**
 * Starts a registry that checks tokens (https://distribution.github.io/distribution/spec/auth/token/). This module
 * issues the tokens. User `anybody` may pull what is below `public/`.
 */
export function startTokenRegistry(users: Users): Promise<TestRegistry> {
  return startRegistry(async ({ folder, origin }) => {
    const authority = newCertificateAuthority("tokens")
    const { certificate, key } = authority.issue({ commonName: "tokens" })
    await writeFile(join(folder, "tokens.pem"), authority.certificate)
    const signer = { key, x5c: [new X509Certificate(certificate).raw.toString("base64")] }
    const token = {
      realm: `${origin}/token`,
      service: "yard",
      issuer: "tokens",
      rootcertbundle: join(folder, "tokens.pem"),
    }
    return { auth: { token }, tokens: (req) => tokenFor(req, users, signer) }
  })
}

/** Registry that anybody may push to and pull from, without TLS, on 127.0.0.1. */
export interface OpenRegistry {
  /** Prefix of image names. */
  host: string
  /** Returns the registry's own answer to a request without a body. */
  fetch(req: IncomingMessage): Promise<IncomingMessage>
  stop(): Promise<void>
}

/** Starts an open registry. `gate` returns true for requests that it answers itself. */
export async function startOpenRegistry(
  gate: (req: IncomingMessage, res: ServerResponse) => boolean | Promise<boolean>,
): Promise<OpenRegistry> {
  const folder = await mkdtemp(join(tmpdir(), "berth-registry-"))
  const registry = await serveImages(folder, {})
  const front = createHttpServer(async (req, res) => {
    if (!(await gate(req, res))) forward(registry.port, req, res)
  }).listen(0, "127.0.0.1")
  await once(front, "listening")
  return {
    host: `127.0.0.1:${(front.address() as AddressInfo).port}`,
    fetch: async ({ url: path, headers }) => {
      const asked = request({ host: "127.0.0.1", port: registry.port, path, headers }).end()
      const [answered] = (await once(asked, "response")) as [IncomingMessage]
      return answered
    },
    stop: async () => {
      front.closeAllConnections()
      front.close()
      await registry.stop()
      await rm(folder, { recursive: true, force: true })
    },
  }
}

/** Starts the registry's program with its images in this folder. */
async function serveImages(
  folder: string,
  { host, auth }: { host?: string; auth?: object },
): Promise<{ port: number; stop(): Promise<void> }> {
  const config = {
    version: 0.1,
    log: { level: "info" },
    storage: { filesystem: { rootdirectory: join(folder, "images") } },
    http: { addr: "127.0.0.1:0", ...(host !== undefined && { host }), secret: "of a test" },
    ...(auth !== undefined && { auth }),
  }
  await writeFile(join(folder, "config.yml"), JSON.stringify(config))
  const registry = await startTied(REGISTRY_PROGRAM, ["serve", join(folder, "config.yml")], {
    ready: /listening on 127\.0\.0\.1:([0-9]+)/,
  })
  return { port: Number(registry.address), stop: () => registry.stop() }
}

interface Setup {
  auth: object
  tokens?: (req: IncomingMessage) => Promise<object | undefined>
}

async function startRegistry(
  setUp: (place: { folder: string; origin: string }) => Promise<Setup>,
): Promise<TestRegistry> {
  const folder = await mkdtemp(join(tmpdir(), "berth-registry-"))
  const authority = newCertificateAuthority("registry")
  const { certificate: cert, key } = authority.issue({ commonName: "registry", hosts: ["127.0.0.1"] })
  const requests: string[] = []
  let handle = (_req: IncomingMessage, res: ServerResponse): void => void res.destroy()
  const front = createServer({ cert, key }, (req, res) => {
    requests.push(`${req.method} ${req.url} ${/^\w*/.exec(req.headers.authorization ?? "")}`.trim())
    handle(req, res)
  }).listen(0, "127.0.0.1")
  await once(front, "listening")
  const host = `127.0.0.1:${(front.address() as AddressInfo).port}`
  const { auth, tokens } = await setUp({ folder, origin: `https://${host}` })
  const registry = await serveImages(folder, { host: `https://${host}`, auth })
  const { port } = registry
  handle = (req, res) => {
    if (tokens !== undefined && req.url?.startsWith("/token")) void tokens(req).then((body) => answer(res, body))
    else forward(port, req, res)
  }
  const dispatcher = new Agent({ connect: { ca: authority.certificate } })
  return {
    host,
    requests,
    send: async (input, init) =>
      (await dispatchedFetch(String(input), { ...(init as object), dispatcher })) as unknown as Response,
    stop: async () => {
      await dispatcher.destroy()
      front.closeAllConnections()
      front.close()
      await registry.stop()
      await rm(folder, { recursive: true, force: true })
    },
  }
}

function forward(port: number, req: IncomingMessage, res: ServerResponse): void {
  const { method, url: path, headers } = req
  const onward = request({ host: "127.0.0.1", port, method, path, headers }, (found) => {
    res.writeHead(found.statusCode ?? 502, found.headers)
    found.pipe(res)
  })
  onward.on("error", () => res.destroy())
  req.pipe(onward)
}

function answer(res: ServerResponse, body: object | undefined): void {
  res.writeHead(body === undefined ? 401 : 200, { "content-type": "application/json" })
  res.end(JSON.stringify(body ?? { details: "incorrect username or password" }))
}

/** Returns a token with the requested rights that the user has, or undefined for a wrong password. */
async function tokenFor(req: IncomingMessage, users: Users, signer: { key: string; x5c: string[] }) {
  const query = new URL(req.url ?? "", "https://127.0.0.1").searchParams
  const basic = /^Basic (.*)$/.exec(req.headers.authorization ?? "")?.[1]
  const [, name = "", password] = /^([^:]*):(.*)$/s.exec(Buffer.from(basic ?? "", "base64").toString()) ?? []
  const user = users[name]
  if (basic !== undefined && user?.password !== password) return undefined
  const access = query.getAll("scope").map((scope) => {
    const [type = "", repository = "", actions = ""] = scope.split(":")
    const mayPull =
      repository.startsWith("public/") || (user?.pulls ?? []).some((start) => repository.startsWith(start))
    const may = { pull: mayPull || user?.pushes === true, push: user?.pushes === true }
    return { type, name: repository, actions: actions.split(",").filter((action) => may[action as keyof typeof may]) }
  })
  const token = await new SignJWT({ access })
    .setProtectedHeader({ alg: "ES256", typ: "JWT", x5c: signer.x5c })
    .setIssuer("tokens")
    .setSubject(name)
    .setAudience(query.get("service") ?? "")
    .setIssuedAt()
    .setNotBefore("-1m")
    .setExpirationTime("5m")
    .setJti(String(Math.random()))
    .sign(createPrivateKey(signer.key))
  return { token, expires_in: 300 }
}

/** Image for these platforms, such as linux/arm64: a list of manifests if there are several, else one manifest. */
export interface PushedImage {
  repository: string
  tag: string
  platforms: readonly string[]
  user: { username: string; password: string }
  /** Size of the only layer. Default: no layer. */
  layerBytes?: number
}

/** Pushes an image into a registry with tokens. Returns its digest. */
export async function putImage({ host, send }: TestRegistry, image: PushedImage): Promise<string> {
  const { repository, tag, platforms, user, layerBytes } = image
  const login = Buffer.from(`${user.username}:${user.password}`).toString("base64")
  const tokenUrl = `https://${host}/token?service=yard&scope=repository:${repository}:pull,push`
  const given = await send(tokenUrl, { headers: { authorization: `Basic ${login}` } })
  const authorization = `Bearer ${((await given.json()) as { token: string }).token}`
  const put = async (path: string, type: string, content: string): Promise<string> => {
    const headers = { authorization, "content-type": type }
    const made = await send(`https://${host}/v2/${repository}/${path}`, { method: "PUT", headers, body: content })
    if (!made.ok) throw new Error(`PUT ${path}: ${made.status} ${await made.text()}`)
    return digestOf(content)
  }
  /** Pushes a blob, and returns its descriptor. */
  const blob = async (mediaType: string, content: string): Promise<object> => {
    const begun = await send(`https://${host}/v2/${repository}/blobs/uploads/`, {
      method: "POST",
      headers: { authorization },
    })
    const { pathname, search } = new URL(begun.headers.get("location") ?? "", `https://${host}`)
    const digest = digestOf(content)
    const upload = `${pathname.replace(`/v2/${repository}/`, "")}${search}&digest=${digest}`
    await put(upload, "application/octet-stream", content)
    return { mediaType, digest, size: content.length }
  }
  const layers =
    layerBytes === undefined ? [] : [await blob("application/vnd.oci.image.layer.v1.tar", "0".repeat(layerBytes))]
  const manifests: object[] = []
  for (const platform of platforms) {
    const [os = "", architecture = ""] = platform.split("/")
    const config = JSON.stringify({ os, architecture, rootfs: { type: "layers", diff_ids: [] } })
    const described = await blob("application/vnd.oci.image.config.v1+json", config)
    const manifest = JSON.stringify({ schemaVersion: 2, mediaType: MANIFEST, config: described, layers })
    const reference = platforms.length === 1 ? tag : digestOf(manifest)
    const digest = await put(`manifests/${reference}`, MANIFEST, manifest)
    if (platforms.length === 1) return digest
    manifests.push({ mediaType: MANIFEST, digest, size: manifest.length, platform: { os, architecture } })
  }
  return await put(`manifests/${tag}`, INDEX, JSON.stringify({ schemaVersion: 2, mediaType: INDEX, manifests }))
}

const MANIFEST = "application/vnd.oci.image.manifest.v1+json"
const INDEX = "application/vnd.oci.image.index.v1+json"

function digestOf(content: string): string {
  return `sha256:${createHash("sha256").update(content).digest("hex")}`
}
