import { type Clock, timestamp } from "../../core/apis/clock.ts"
import { cutTo } from "../../core/apis/conditions.ts"
import { DOCKER_HUB, type ImageName } from "../../core/apis/image.ts"
import { CredentialsError, InvalidRequestError } from "../../core/outbound/errors.ts"
import { type Fetch, guardedFetch } from "../../core/outbound/guarded-fetch.ts"
import type { RegistryLogin } from "../registry-access.ts"
import { ask, callHttp, numberIn, refusal, textIn } from "./http.ts"

/** Hosts of Docker Hub: its API and its token service have other hosts than its name. */
const HUB_API = "registry-1.docker.io"
const HUB_TOKENS = "auth.docker.io"

/** Default validity of a token, seconds (https://distribution.github.io/distribution/spec/auth/token/). */
const TOKEN_SECONDS = 60

/** Media types of manifests, indexes first. */
export const MANIFEST_TYPES = [
  "application/vnd.oci.image.index.v1+json",
  "application/vnd.docker.distribution.manifest.list.v2+json",
  "application/vnd.oci.image.manifest.v1+json",
  "application/vnd.docker.distribution.manifest.v2+json",
]

/** Proof that an image may be pulled. */
export type PullProof =
  | { by: "nothing" }
  | { by: "password"; username: string; password: string; expiration?: string }
  /** Token for pulling from this repository only, with an expiration. */
  | { by: "token"; token: string; expiration: string }

export interface CallOptions {
  signal: AbortSignal
  clock: Clock
  /** Sends requests to hosts that were checked. */
  send: Fetch
}

/**
 * Signs in for pulling an image, like `docker pull`. It uses the registry's token service if there is one, or else the
 * login itself. Without a login it signs in anonymously. The login is sent to the registry's own hosts only. @throws
 * CloudError
 */
export async function signIn(
  image: ImageName,
  login: RegistryLogin | undefined,
  { signal, clock, send }: CallOptions,
): Promise<PullProof> {
  refuseMalformed(image)
  const { registry, repository } = image
  const host = apiHost(registry)
  const challenge = await challengeOf(host, { signal, send })
  if (challenge === undefined || (challenge.scheme === "basic" && login === undefined)) return { by: "nothing" }
  if (challenge.scheme === "basic") return { by: "password", ...(login as RegistryLogin) }
  const realm = new URL(challenge.realm)
  const isForeign = realm.host !== host && !(registry === DOCKER_HUB && realm.host === HUB_TOKENS)
  if (login !== undefined && isForeign) {
    throw new InvalidRequestError("ForeignHost", `${host} requests credentials for ${realm.host}`)
  }
  realm.searchParams.set("service", challenge.service)
  realm.searchParams.set("scope", `repository:${repository}:pull`)
  const fetch = guardedFetch({ isOwn: (other) => other === realm.host, signal, send })
  const headers = login === undefined ? {} : { authorization: basic(login) }
  const { body } = await ask(fetch, realm.href, { headers }, signal)
  const token = textIn(body, "token") ?? textIn(body, "access_token")
  if (token === undefined) throw new CredentialsError("NoToken", `${realm.host} answered without a token`)
  const seconds = numberIn(body, "expires_in") ?? TOKEN_SECONDS
  return { by: "token", token, expiration: timestamp(new Date(clock.now().getTime() + seconds * 1000)) }
}

/**
 * Returns the current digest of an image's name, or the registry's words if it says that there is no such image.
 * Undefined if the login has no access to it. @throws CloudError
 */
export async function readDigest(
  image: ImageName,
  proof: PullProof,
  { signal, send }: Omit<CallOptions, "clock">,
): Promise<{ digest: string } | { missing: string } | undefined> {
  const host = apiHost(image.registry)
  const fetch = guardedFetch({ isOwn: (other) => other === host, signal, send })
  const url = `https://${host}/v2/${image.repository}/manifests/${image.reference}`
  const headers = { ...proofHeaders(proof), accept: MANIFEST_TYPES.join(", ") }
  return await callHttp(signal, async () => {
    const first = await fetch(url, { method: "HEAD", headers })
    // An answer to HEAD has no words. The image may also have been pushed since.
    const response = first.status === 404 ? await fetch(url, { headers }) : first
    if (response.status === 404) return { missing: `HTTP 404${await wordsIn(response)}` }
    await response.body?.cancel()
    if ([400, 401, 403].includes(response.status)) return undefined
    if (!response.ok) throw refusal(response, undefined, host)
    return { digest: response.headers.get("docker-content-digest") ?? image.reference }
  })
}

/**
 * Returns the message of the first error, after a colon; empty without one
 * (https://distribution.github.io/distribution/spec/api/#errors).
 */
async function wordsIn(response: Response): Promise<string> {
  const { errors } = ((await response.json().catch(() => undefined)) ?? {}) as { errors?: unknown }
  const message = Array.isArray(errors) ? textIn(errors[0], "message") : undefined
  return message === undefined ? "" : `: ${cutTo(message, 200)}`
}

/** Patterns that keep anything but names out of URLs (https://github.com/distribution/reference). */
const HOST = /^([A-Za-z0-9.-]+|\[[0-9a-fA-F:]+\])(:[0-9]+)?$/
const REPOSITORY = /^[a-z0-9]+([._-]+[a-z0-9]+)*(\/[a-z0-9]+([._-]+[a-z0-9]+)*)*$/
const REFERENCE = /^(\w[\w.-]{0,127}|[a-z0-9]+:[0-9a-f]{32,})$/

function refuseMalformed({ registry, repository, reference }: ImageName): void {
  if (HOST.test(registry) && REPOSITORY.test(repository) && REFERENCE.test(reference)) return
  const message = `${registry}/${repository}:${reference} is not an image: use [host/]repository[:tag|@digest]`
  throw new InvalidRequestError("MalformedImage", message)
}

/** Returns the host of a registry's API. */
export function apiHost(registry: string): string {
  return registry === DOCKER_HUB ? HUB_API : registry
}

/** Returns the headers of a request with this proof. */
export function proofHeaders(proof: PullProof): Record<string, string> {
  if (proof.by === "nothing") return {}
  return { authorization: proof.by === "token" ? `Bearer ${proof.token}` : basic(proof) }
}

function basic({ username, password }: { username: string; password: string }): string {
  return `Basic ${Buffer.from(`${username}:${password}`).toString("base64")}`
}

type Challenge = { scheme: "basic" } | { scheme: "bearer"; realm: string; service: string }

/** Returns the challenge for a login to a registry; undefined if it requires none. */
async function challengeOf(host: string, { signal, send }: Omit<CallOptions, "clock">): Promise<Challenge | undefined> {
  const fetch = guardedFetch({ isOwn: (other) => other === host, signal, send })
  return await callHttp(signal, async () => {
    const response = await fetch(`https://${host}/v2/`)
    await response.body?.cancel()
    if (response.ok) return undefined
    const challenge = challengeIn(response.headers.get("www-authenticate") ?? "")
    if (response.status === 401 && challenge !== undefined) return challenge
    throw refusal(response, undefined, host)
  })
}

/** Returns the challenge that Berth supports, of possibly several in the header (RFC 9110, 11.6.1). */
export function challengeIn(header: string): Challenge | undefined {
  const [, parameters] = /(?:^|[\s,])Bearer\s+(.*)$/i.exec(header) ?? []
  if (parameters === undefined) return /(?:^|[\s,])Basic\b/i.test(header) ? { scheme: "basic" } : undefined
  const parameter = (name: string) => new RegExp(`\\b${name}="([^"]*)"`, "i").exec(parameters)?.[1]
  const realm = parameter("realm")
  if (realm === undefined || !URL.canParse(realm)) return undefined
  return { scheme: "bearer", realm, service: parameter("service") ?? "" }
}
