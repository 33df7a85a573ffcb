import { createHash } from "node:crypto"
import type { ImageName } from "../apis/image.ts"
import { ARCHITECTURES, type Architecture } from "../apis/offer.ts"
import { InvalidRequestError, TransientError } from "../cloud/errors.ts"
import type { Fetch } from "../cloud/guarded-fetch.ts"
import type { RegistryLogin } from "../cloud/registry-access.ts"
import { answered, refusal } from "./http.ts"
import {
  apiHost,
  type CallOptions,
  digestOf,
  MANIFEST_TYPES,
  type PullProof,
  proofHeaders,
  signIn,
} from "./registry.ts"

/** Of what is looked at in manifests and configurations (https://github.com/opencontainers/image-spec). */
interface Content {
  /** Of a list. */
  manifests?: { platform?: Platform }[]
  /** Of one image. */
  config?: { digest?: string }
}

interface Platform {
  os?: string
  architecture?: string
}

/** Digests whose architectures are kept in memory, at most. */
const MOST_KNOWN = 10_000

/**
 * Reads what images run on; undefined where an image is not there, or not for who asks. What a digest stands for never
 * changes, so that its manifest is read once.
 */
export function imageReader(options: Omit<CallOptions, "signal">) {
  const known = new Map<string, readonly Architecture[]>()
  return async (image: ImageName, login: RegistryLogin | undefined, signal: AbortSignal) => {
    const call = { ...options, signal }
    const proof = await signIn(image, login, call)
    const digest = await digestOf(image, proof, call)
    if (digest === undefined) return undefined
    const architectures = known.get(digest) ?? (await architecturesOf(image, digest, { ...call, proof }))
    const [oldest] = known.keys()
    if (oldest !== undefined && known.size >= MOST_KNOWN) known.delete(oldest)
    known.set(digest, architectures)
    return architectures
  }
}

interface ReadOptions {
  signal: AbortSignal
  /** What sends requests, to public addresses only. */
  send: Fetch
}

/**
 * The architectures that the image with this digest runs on, of those that machines are sold with: as its list of
 * manifests says, or the configuration of an image that is for one. @throws CloudError; InvalidRequestError also where it
 * runs on none of them
 */
async function architecturesOf(
  { registry, repository }: Pick<ImageName, "registry" | "repository">,
  digest: string,
  { proof, ...options }: ReadOptions & { proof: PullProof },
): Promise<Architecture[]> {
  const base = `https://${apiHost(registry)}/v2/${repository}`
  const accept = MANIFEST_TYPES.join(", ")
  const headers = proofHeaders(proof)
  const manifest = (await contentOf(`${base}/manifests/${digest}`, { ...headers, accept }, digest, options)) as Content
  const platforms = manifest.manifests?.map(({ platform = {} }) => platform) ?? []
  const { digest: config } = manifest.config ?? {}
  if (config !== undefined) {
    platforms.push((await contentOf(`${base}/blobs/${config}`, headers, config, options)) as Platform)
  }
  const found = ARCHITECTURES.filter((architecture) =>
    platforms.some((platform) => platform.os === "linux" && platform.architecture === architecture),
  )
  if (found.length > 0) return found
  const names = platforms.map(({ os, architecture }) => `${os}/${architecture}`).filter((name) => !/unknown/.test(name))
  throw new InvalidRequestError("OtherPlatform", `it is for ${names.join(", ") || "no platform that it names"}`)
}

/**
 * JSON that a digest names: what has another one is not believed. Registries send for blobs to where they keep them: that
 * is followed once, and nothing of the proof goes there.
 */
async function contentOf(
  url: string,
  headers: Record<string, string>,
  digest: string,
  { signal, send }: ReadOptions,
): Promise<unknown> {
  return await answered(signal, async () => {
    const first = await send(url, { headers, redirect: "manual", signal })
    const elsewhere = first.status >= 300 && first.status < 400 ? first.headers.get("location") : null
    if (elsewhere !== null) await first.body?.cancel()
    const response = elsewhere === null ? first : await send(secure(elsewhere, url), { redirect: "error", signal })
    const { host } = new URL(url)
    if (!response.ok) throw refusal(response, undefined, host)
    const content = Buffer.from(await response.arrayBuffer())
    const hash = `sha256:${createHash("sha256").update(content).digest("hex")}`
    if (hash !== digest) throw new TransientError("OtherDigest", `${host} answers with something else than ${digest}`)
    return JSON.parse(content.toString()) as unknown
  })
}

function secure(location: string, base: string): string {
  const url = new URL(location, base)
  if (url.protocol === "https:") return url.href
  throw new InvalidRequestError("Redirected", `${new URL(base).host} redirects to where nothing is encrypted`)
}
