import { type Clock, timestamp } from "../apis/clock.ts"
import { DOCKER_HUB, type ImageName } from "../apis/image.ts"
import { CredentialsError, InvalidRequestError } from "../cloud/errors.ts"
import { type Fetch, guardedFetch } from "../cloud/guarded-fetch.ts"
import type { RegistryLogin } from "../cloud/registry-access.ts"
import { answered, ask, numberIn, refusal, textIn } from "./http.ts"

/** Docker Hub's API is on another host than its name, and signs in on a third. */
const HUB_API = "registry-1.docker.io"
const HUB_TOKENS = "auth.docker.io"

/** How long a token is good for that doesn't say, seconds (https://distribution.github.io/distribution/spec/auth/token/). */
const TOKEN_SECONDS = 60

/** The forms of manifests that images are kept in, lists of them first. */
export const MANIFEST_TYPES = [
  "application/vnd.oci.image.index.v1+json",
  "application/vnd.docker.distribution.manifest.list.v2+json",
  "application/vnd.oci.image.manifest.v1+json",
  "application/vnd.docker.distribution.manifest.v2+json",
]

/** What proves to a registry that an image may be pulled. */
export type PullProof =
  | { by: "nothing" }
  | { by: "password"; username: string; password: string; expiration?: string }
  /** For pulling from this repository only, and for a while. */
  | { by: "token"; token: string; expiration: string }

export interface CallOptions {
  signal: AbortSignal
  clock: Clock
  /** What sends requests, whose hosts were checked. */
  send: Fetch
}

/**
 * Signs in for pulling an image, as `docker pull` does: by a token of the registry's token service where it has one, else
 * by the login itself. Without a login as anybody. The login goes to the registry's own hosts only. @throws CloudError
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
    throw new InvalidRequestError("ForeignHost", `${host} would have credentials sent to ${realm.host}`)
  }
  realm.searchParams.set("service", challenge.service)
  realm.searchParams.set("scope", `repository:${repository}:pull`)
  const fetch = guardedFetch({ isOwn: (asked) => asked === realm.host, signal, send })
  const headers = login === undefined ? {} : { authorization: basic(login) }
  const { body } = await ask(fetch, realm.href, { headers }, signal)
  const token = textIn(body, "token") ?? textIn(body, "access_token")
  if (token === undefined) throw new CredentialsError("NoToken", `${realm.host} answered without a token`)
  const seconds = numberIn(body, "expires_in") ?? TOKEN_SECONDS
  return { by: "token", token, expiration: timestamp(new Date(clock.now().getTime() + seconds * 1000)) }
}

/** The digest that an image's name means now; undefined where it is not there, or not for who asks. @throws CloudError */
export async function digestOf(
  image: ImageName,
  proof: PullProof,
  { signal, send }: Omit<CallOptions, "clock">,
): Promise<string | undefined> {
  const host = apiHost(image.registry)
  const fetch = guardedFetch({ isOwn: (asked) => asked === host, signal, send })
  const url = `https://${host}/v2/${image.repository}/manifests/${image.reference}`
  return await answered(signal, async () => {
    const response = await fetch(url, {
      method: "HEAD",
      headers: { ...proofHeaders(proof), accept: MANIFEST_TYPES.join(", ") },
    })
    await response.body?.cancel()
    if ([400, 401, 403, 404].includes(response.status)) return undefined
    if (!response.ok) throw refusal(response, undefined, host)
    return response.headers.get("docker-content-digest") ?? image.reference
  })
}

/** Nothing but names gets into an address (https://github.com/distribution/reference). */
const HOST = /^([A-Za-z0-9.-]+|\[[0-9a-fA-F:]+\])(:[0-9]+)?$/
const REPOSITORY = /^[a-z0-9]+([._-]+[a-z0-9]+)*(\/[a-z0-9]+([._-]+[a-z0-9]+)*)*$/
const REFERENCE = /^(\w[\w.-]{0,127}|[a-z0-9]+:[0-9a-f]{32,})$/

function refuseMalformed({ registry, repository, reference }: ImageName): void {
  if (HOST.test(registry) && REPOSITORY.test(repository) && REFERENCE.test(reference)) return
  const message = `${registry}/${repository}:${reference} is no image: give [host/]repository[:tag|@digest]`
  throw new InvalidRequestError("MalformedImage", message)
}

/** Where a registry's API is. */
export function apiHost(registry: string): string {
  return registry === DOCKER_HUB ? HUB_API : registry
}

/** The headers of a request that is to be let through by this proof. */
export function proofHeaders(proof: PullProof): Record<string, string> {
  if (proof.by === "nothing") return {}
  return { authorization: proof.by === "token" ? `Bearer ${proof.token}` : basic(proof) }
}

function basic({ username, password }: { username: string; password: string }): string {
  return `Basic ${Buffer.from(`${username}:${password}`).toString("base64")}`
}

type Challenge = { scheme: "basic" } | { scheme: "bearer"; realm: string; service: string }

/** How a registry wants to be asked; undefined: just so. */
async function challengeOf(host: string, { signal, send }: Omit<CallOptions, "clock">): Promise<Challenge | undefined> {
  const fetch = guardedFetch({ isOwn: (asked) => asked === host, signal, send })
  return await answered(signal, async () => {
    const response = await fetch(`https://${host}/v2/`)
    await response.body?.cancel()
    if (response.ok) return undefined
    const challenge = challengeIn(response.headers.get("www-authenticate") ?? "")
    if (response.status === 401 && challenge !== undefined) return challenge
    throw refusal(response, undefined, host)
  })
}

/** The one that can be met, of the header's possibly several (RFC 9110, 11.6.1). */
export function challengeIn(header: string): Challenge | undefined {
  const [, parameters] = /(?:^|[\s,])Bearer\s+(.*)$/i.exec(header) ?? []
  if (parameters === undefined) return /(?:^|[\s,])Basic\b/i.test(header) ? { scheme: "basic" } : undefined
  const parameter = (name: string) => new RegExp(`\\b${name}="([^"]*)"`, "i").exec(parameters)?.[1]
  const realm = parameter("realm")
  if (realm === undefined || !URL.canParse(realm)) return undefined
  return { scheme: "bearer", realm, service: parameter("service") ?? "" }
}
