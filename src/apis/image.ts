/** Where an image is kept, as the name of it is understood everywhere (https://github.com/distribution/reference). */
export interface ImageName {
  /** Host, with its port where it has one; `docker.io` for names without any. */
  registry: string
  /** Such as library/alpine. */
  repository: string
  /** A tag or a digest; `latest` for names without any. */
  reference: string
}

/** The registry of names that name none. */
export const DOCKER_HUB = "docker.io"

/** The parts of an image's name. Pure; whether there is such an image only its registry knows. */
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
