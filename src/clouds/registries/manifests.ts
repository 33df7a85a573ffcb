import { createHash } from "node:crypto"
import { defined } from "../../core/apis/defined.ts"
import type { ImageFacts, ImageName } from "../../core/apis/image.ts"
import { ARCHITECTURES, type Architecture } from "../../core/apis/offer.ts"
import { InvalidRequestError, TransientError } from "../../core/outbound/errors.ts"
import type { Fetch } from "../../core/outbound/guarded-fetch.ts"
import type { RegistryLogin } from "../registry-access.ts"
import { callHttp, refusal } from "./http.ts"
import {
  apiHost,
  type CallOptions,
  MANIFEST_TYPES,
  type PullProof,
  proofHeaders,
  readDigest,
  signIn,
} from "./registry.ts"

/** Fields of manifests and configurations that are read (https://github.com/opencontainers/image-spec). */
interface Content {
  /** Field of an index. */
  manifests?: { digest?: string; platform?: Platform }[]
  /** Fields of one image's manifest. */
  config?: { digest?: string }
  layers?: { size?: number }[]
}

interface Platform {
  os?: string
  architecture?: string
}

/** Maximum number of digests whose facts are kept in memory. */
const MOST_KNOWN = 10_000

/**
 * Returns a reader of images' architectures and sizes. It returns the registry's words if there is no such image, and
 * undefined if the login has no access to it. The content of a digest never changes, so its manifest is read once.
 */
export function imageReader(options: Omit<CallOptions, "signal">) {
  const known = new Map<string, ImageFacts>()
  return async (image: ImageName, login: RegistryLogin | undefined, signal: AbortSignal) => {
    const call = { ...options, signal }
    const proof = await signIn(image, login, call)
    const found = await readDigest(image, proof, call)
    if (found === undefined || "missing" in found) return found
    const { digest } = found
    const facts = known.get(digest) ?? (await factsOf(image, digest, { ...call, proof }))
    const [oldest] = known.keys()
    if (oldest !== undefined && known.size >= MOST_KNOWN) known.delete(oldest)
    known.set(digest, facts)
    return facts
  }
}

interface ReadOptions {
  signal: AbortSignal
  /** Sends requests to public addresses only. */
  send: Fetch
}

/**
 * Returns the size of the image with this digest, and its architectures that Berth supports. They are in its index, or in
 * the configuration of an image for one platform. @throws CloudError; InvalidRequestError also if the image supports none
 * of them
 */
async function factsOf(
  { registry, repository }: Pick<ImageName, "registry" | "repository">,
  digest: string,
  { proof, ...options }: ReadOptions & { proof: PullProof },
): Promise<ImageFacts> {
  const base = `https://${apiHost(registry)}/v2/${repository}`
  const accept = MANIFEST_TYPES.join(", ")
  const headers = proofHeaders(proof)
  const manifestOf = async (of: string) =>
    (await contentOf(`${base}/manifests/${of}`, { ...headers, accept }, of, options)) as Content
  const manifest = await manifestOf(digest)
  const platforms = manifest.manifests?.map(({ platform = {} }) => platform) ?? []
  const { digest: config } = manifest.config ?? {}
  if (config !== undefined) {
    platforms.push((await contentOf(`${base}/blobs/${config}`, headers, config, options)) as Platform)
  }
  const found = ARCHITECTURES.filter((architecture) => platforms.some((platform) => isFor(platform, architecture)))
  if (found.length > 0) {
    // Registries count each manifest that is read as a pull. So one architecture's stands for all.
    const first = manifest.manifests?.find(({ platform = {} }) => isFor(platform, found[0]))?.digest
    const size = sizeOf(first === undefined ? manifest : await manifestOf(first).catch(() => undefined))
    return { architectures: found, ...defined({ sizeGib: size }) }
  }
  const names = platforms.map(({ os, architecture }) => `${os}/${architecture}`).filter((name) => !/unknown/.test(name))
  throw new InvalidRequestError("OtherPlatform", `it is for ${names.join(", ") || "an unknown platform"}`)
}

function isFor({ os, architecture }: Platform, wanted: Architecture | undefined): boolean {
  return os === "linux" && architecture === wanted
}

/** Returns the compressed size of the layers, GiB; undefined if the manifest has none. */
function sizeOf({ layers = [] }: Content = {}): number | undefined {
  const bytes = layers.reduce((sum, { size }) => sum + (Number(size) || 0), 0)
  return bytes > 0 ? bytes / 2 ** 30 : undefined
}

/**
 * Returns the JSON with a digest. Content with another digest is rejected. Registries redirect requests for blobs to
 * their storage: one redirect is followed, without the headers of the proof.
 */
async function contentOf(
  url: string,
  headers: Record<string, string>,
  digest: string,
  { signal, send }: ReadOptions,
): Promise<unknown> {
  return await callHttp(signal, async () => {
    const first = await send(url, { headers, redirect: "manual", signal })
    const elsewhere = first.status >= 300 && first.status < 400 ? first.headers.get("location") : null
    if (elsewhere !== null) await first.body?.cancel()
    const response = elsewhere === null ? first : await send(secure(elsewhere, url), { redirect: "error", signal })
    const { host } = new URL(url)
    if (!response.ok) throw refusal(response, undefined, host)
    const content = Buffer.from(await response.arrayBuffer())
    const hash = `sha256:${createHash("sha256").update(content).digest("hex")}`
    if (hash !== digest)
      throw new TransientError("OtherDigest", `${host} returned content without the digest ${digest}`)
    return JSON.parse(content.toString()) as unknown
  })
}

function secure(location: string, base: string): string {
  const url = new URL(location, base)
  if (url.protocol === "https:") return url.href
  throw new InvalidRequestError("Redirected", `${new URL(base).host} redirects to an unencrypted address`)
}
