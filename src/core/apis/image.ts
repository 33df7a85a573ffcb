import type { Architecture } from "./offer.ts"

/**
 * Grammar of an image reference (https://github.com/distribution/reference): `[host[:port]/]name[:tag][@digest]`. Every
 * part matches in one way only, so that a long text takes linear time.
 */
const HOST = "([a-zA-Z0-9]+(-+[a-zA-Z0-9]+)*([.][a-zA-Z0-9]+(-+[a-zA-Z0-9]+)*)*|\\[[a-fA-F0-9:]+\\])(:[0-9]+)?"
const COMPONENT = "[a-z0-9]+(([.]|__?|-+)[a-z0-9]+)*"
const TAG = "[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
const DIGEST = "(sha256:[a-f0-9]{64}|sha384:[a-f0-9]{96}|sha512:[a-f0-9]{128})"

/** Pattern of the image references that a container engine accepts. */
export const IMAGE_PATTERN = `^(${HOST}/)?${COMPONENT}(/${COMPONENT})*(:${TAG})?(@${DIGEST})?$`

/** Parts of an image reference (https://github.com/distribution/reference). */
export interface ImageName {
  /** Host with its optional port. Default: `docker.io`. */
  registry: string
  /** Path in the registry, such as library/alpine. */
  repository: string
  /** Tag or digest. Default: `latest`. */
  reference: string
}

/** Facts about an image that a placement needs, from its manifest. */
export interface ImageFacts {
  /** CPU architectures that Berth supports. */
  architectures: readonly Architecture[]
  /** Compressed size of the layers, GiB. Absent if it is unknown. */
  sizeGib?: number
}

/** Registry of image references without a host. */
export const DOCKER_HUB = "docker.io"

/** Returns the parts of an image reference. Pure: it does not check that the image exists. */
export function parseImage(image: string): ImageName {
  const [named = "", digest] = image.split("@", 2)
  const first = named.slice(0, Math.max(0, named.indexOf("/")))
  const isHost = /[.:A-Z]/.test(first) || first === "localhost"
  const registry = isHost ? first : DOCKER_HUB
  const rest = isHost ? named.slice(first.length + 1) : named
  const colon = rest.lastIndexOf(":")
  const repository = colon === -1 ? rest : rest.slice(0, colon)
  const reference = digest ?? (colon === -1 ? "latest" : rest.slice(colon + 1))
  if (registry !== DOCKER_HUB && registry !== `index.${DOCKER_HUB}`) return { registry, repository, reference }
  return {
    registry: DOCKER_HUB,
    repository: repository.includes("/") ? repository : `library/${repository}`,
    reference,
  }
}
