import { request } from "undici"
import type { Clock } from "../../core/apis/clock.ts"
import { createDispatcher } from "../../core/apis/dispatcher.ts"

/** Host of the images whose name has none. */
const DOCKER_HUB = "registry-1.docker.io"

const TIMEOUT_MS = 5000

/** Answers in which a registry may say when to ask again: HTTP 429 and 503. */
const BUSY_STATUSES = [429, 503]
const BUSY_ERROR = /too ?many ?requests|\b429\b|\b503\b|service unavailable/i

/** Media types of manifests. Registries that know another one only would answer 404 without them. */
const MANIFEST_TYPES = [
  "application/vnd.oci.image.index.v1+json",
  "application/vnd.oci.image.manifest.v1+json",
  "application/vnd.docker.distribution.manifest.list.v2+json",
  "application/vnd.docker.distribution.manifest.v2+json",
].join(", ")

/** Returns true for a pull error of a registry that is overloaded, or that limits its clients. */
export function isBusy(message: string): boolean {
  return BUSY_ERROR.test(message)
}

/**
 * Asks an image's registry for how long to wait, seconds. The engine doesn't pass that on. Sends no credentials.
 * Returns undefined if the registry doesn't say it, or does not answer.
 */
export async function requestedDelay(image: string, clock: Clock, signal: AbortSignal): Promise<number | undefined> {
  const dispatcher = createDispatcher({})
  try {
    const answer = await request(manifestUrl(image), {
      dispatcher,
      method: "HEAD",
      headers: { accept: MANIFEST_TYPES },
      headersTimeout: TIMEOUT_MS,
      signal: AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)]),
    })
    await answer.body.dump()
    const said = answer.headers["retry-after"]
    if (!BUSY_STATUSES.includes(answer.statusCode) || typeof said !== "string") return undefined
    return parseRetryAfter(said, clock)
  } catch {
    // The pull's own error says what is wrong. Without an answer the usual delay holds.
    return undefined
  } finally {
    await dispatcher.destroy()
  }
}

/** Returns the seconds of a `Retry-After` header, which is a number or a date (RFC 9110, 10.2.3). */
function parseRetryAfter(header: string, clock: Clock): number | undefined {
  if (/^\d+$/.test(header)) return Number(header)
  const time = Date.parse(header)
  return Number.isNaN(time) ? undefined : Math.max(0, Math.ceil((time - clock.now().getTime()) / 1000))
}

/**
 * Returns the URL of an image's manifest, by Docker's rules for names
 * (https://github.com/distribution/reference/blob/main/normalize.go). Engines use HTTP for registries of their own host.
 */
export function manifestUrl(image: string): URL {
  const slash = image.indexOf("/")
  const first = image.slice(0, Math.max(0, slash))
  const hasHost = /[.:]/.test(first) || first === "localhost"
  const host = hasHost && first !== "docker.io" ? first : DOCKER_HUB
  const path = hasHost ? image.slice(slash + 1) : image
  const [, name = "", tag, digest] = /^([^:@]+)(?::([^@]+))?(?:@(.+))?$/.exec(path) ?? []
  const repository = host === DOCKER_HUB && !name.includes("/") ? `library/${name}` : name
  const scheme = /^(localhost|127\.[\d.]+)(:|$)/.test(host) ? "http" : "https"
  return new URL(`${scheme}://${host}/v2/${repository}/manifests/${digest ?? tag ?? "latest"}`)
}
