import type { RegistryLogin, RegistryOpener } from "../clouds/registry-access.ts"
import type { Clock } from "../core/apis/clock.ts"
import type { ConnectionType, StoredConnection } from "../core/apis/connection.ts"
import { newestFirst } from "../core/apis/creation-times.ts"
import type { CredentialFields } from "../core/apis/credentials.ts"
import { type ImageFacts, type ImageName, parseImage } from "../core/apis/image.ts"
import type { Logger } from "../core/apis/logger.ts"
import { fromMetadataName } from "../core/apis/names.ts"
import type { Architecture } from "../core/apis/offer.ts"
import type { CredentialsOf } from "./discoverer.ts"
import { errorMessage } from "./error-message.ts"
import { type Lookup, Lookups } from "./lookups.ts"
import { withTimeLimit } from "./timeout.ts"

/** State of the lookup of an image's architectures. */
export type ImageState =
  | ({ state: "known" } & ImageFacts)
  | { state: "looking" }
  /** The registry says that there is no such image. */
  | { state: "missing"; why: string }
  | { state: "unknown"; why: string }

/** Registry's answer that it has no such image, in its own words. */
export interface NoImage {
  missing: string
}

/**
 * Reads the manifest of an image, with a login or anonymously. Undefined if the login has no access to it. Throws the errors of core/outbound/errors.ts.
 */
export type ReadImage = (
  image: ImageName,
  login: RegistryLogin | undefined,
  signal: AbortSignal,
) => Promise<ImageFacts | NoImage | undefined>

export interface ImageFinderOptions {
  /** Returns the connections of a namespace. */
  connections: (namespace: string) => readonly StoredConnection[]
  /** Returns the registries of a type of connection; undefined if it has none. */
  registriesOf: (type: ConnectionType) => RegistryOpener | undefined
  credentialsOf: CredentialsOf
  readImage: ReadImage
  clock: Clock
  logger: Logger
  settings?: Partial<ImageSettings>
}

/** All durations are in seconds. */
export interface ImageSettings {
  /** Time after which the architectures of an image count as unknown. */
  limitSeconds: number
  /** Time for which an answer is cached: a tag may move to another image at any time. */
  knownSeconds: number
  unknownSeconds: number
  /** Short: such an answer ends a job, and its image may be pushed at any time. */
  missingSeconds: number
  /**
   * Time for which a stale answer is used while a new one is read. Otherwise a waiting job would often show the lookup.
   */
  staleSeconds: number
  /** Maximum number of images that are read at the same time, of which a project has a quarter. */
  atOnce: number
}

export const IMAGE_DEFAULTS: ImageSettings = {
  limitSeconds: 10,
  knownSeconds: 300,
  unknownSeconds: 60,
  missingSeconds: 5,
  staleSeconds: 600,
  atOnce: 16,
}

type Answer = Exclude<ImageState, { state: "looking" }>

/** Reason why one login can't read an image: the registry has none, gives it no access, or did not answer. */
interface Refusal {
  is: "missing" | "denied" | "failed"
  why: string
}

/** Finds the architectures of images, by the project's connections to their registry, or else anonymously. */
export class ImageFinder {
  readonly #options: ImageFinderOptions
  readonly #settings: ImageSettings
  readonly #lookups: Lookups<Answer>

  constructor(options: ImageFinderOptions) {
    const { clock, settings } = options
    this.#options = options
    this.#settings = { ...IMAGE_DEFAULTS, ...settings }
    const {
      atOnce,
      knownSeconds: known,
      unknownSeconds: unknown,
      missingSeconds: missing,
      staleSeconds,
    } = this.#settings
    const seconds = { known, unknown, missing }
    const secondsOf = ({ state }: Answer) => seconds[state]
    this.#lookups = new Lookups({
      ...{ clock, atOnce, secondsOf, staleSeconds },
      mayBeStale: ({ state }) => state !== "missing",
    })
  }

  /** Returns the cached state, and starts the lookup if there is none. Never waits. */
  find(namespace: string, image: string): ImageState {
    return this.#judged(this.#lookup(namespace, image))
  }

  /** Waits for a current answer, at most until the limit. */
  async whenFound(namespace: string, image: string): Promise<Answer> {
    const lookup = this.#lookup(namespace, image)
    const late = Promise.withResolvers<void>()
    const cancel = this.#options.clock.setTimer(this.#settings.limitSeconds, () => late.resolve())
    await Promise.race([lookup.answered, late.promise])
    cancel()
    return lookup.answer ?? this.#unanswered
  }

  #judged({ answer, since }: Lookup<Answer>): ImageState {
    if (answer !== undefined) return answer
    const isLate = this.#options.clock.monotonic() - since >= this.#settings.limitSeconds
    return isLate ? this.#unanswered : { state: "looking" }
  }

  get #unanswered(): Answer {
    return { state: "unknown", why: `its registry did not answer within ${this.#settings.limitSeconds} seconds` }
  }

  #lookup(namespace: string, image: string): Lookup<Answer> {
    const name = parseImage(image)
    const candidates = this.#options
      .connections(namespace)
      .filter(({ spec }) => this.#options.registriesOf(spec.type)?.serves(name.registry))
      .toSorted(newestFirst)
      .reverse()
    const versions = candidates.map(({ metadata }) => `${metadata.uid}/${metadata.resourceVersion}`)
    return this.#lookups.get(namespace, JSON.stringify([namespace, image, ...versions]), () =>
      this.#ask(name, candidates),
    )
  }

  /** Reads the image with each candidate until one succeeds. Never rejects. */
  async #ask(name: ImageName, candidates: readonly StoredConnection[]): Promise<Answer> {
    const refusals: Refusal[] = []
    for (const connection of [...candidates, undefined]) {
      const found = await this.#read(name, connection)
      if ("architectures" in found) return { state: "known", ...found }
      refusals.push(found)
    }
    const why = `registry ${name.registry}: ${refusals.map(({ why }) => why).join("; ")}`
    // A login that could not ask may see the image.
    const isMissing = refusals.some(({ is }) => is === "missing") && refusals.every(({ is }) => is !== "failed")
    return { state: isMissing ? "missing" : "unknown", why }
  }

  /**
   * Returns the facts, or the reason why this connection can't read them. Without a connection it reads
   * anonymously.
   */
  async #read(name: ImageName, connection: StoredConnection | undefined): Promise<ImageFacts | Refusal> {
    const { clock, readImage } = this.#options
    const who = connection === undefined ? "" : `connection ${fromMetadataName(connection.metadata.name)}: `
    let credentials: CredentialFields = {}
    try {
      const found = await withTimeLimit(clock, this.#settings.limitSeconds, async (signal, race) => {
        credentials = connection === undefined ? {} : await race(this.#options.credentialsOf(connection))
        const login = connection && (await race(this.#signIn(name, connection, { credentials, signal })))
        return await race(readImage(name, login, signal))
      })
      if (found === undefined) return { is: "denied", why: `${who}no such image, or no access to it` }
      return "missing" in found ? { is: "missing", why: who + found.missing } : found
    } catch (error) {
      const { logger } = this.#options
      const why = errorMessage(error, credentials, (message) =>
        logger.error({ error: message }, "internal error while reading the architectures of an image"),
      )
      return { is: "failed", why: who + why }
    }
  }

  async #signIn(
    name: ImageName,
    { spec }: StoredConnection,
    { credentials, signal }: { credentials: CredentialFields; signal: AbortSignal },
  ): Promise<RegistryLogin | undefined> {
    return await this.#options.registriesOf(spec.type)?.login(credentials, { ...name, launch: "platforms" }, signal)
  }
}

/**
 * Looks up the architectures of the agent's image immediately and anonymously, as VMs pull it. Logs the answer, or the
 * architectures that are assumed without one. Returns nothing if there is no such image, or no registry is read.
 */
export function agentImagePlatforms({
  agentImage,
  readImage,
  assumed,
  clock,
  logger,
  settings,
}: {
  agentImage: string | undefined
  readImage: ReadImage | undefined
  assumed: readonly Architecture[]
  clock: Clock
  logger: Logger
  settings?: Partial<ImageSettings>
}): { agentImage?: () => ImageState } {
  if (agentImage === undefined || readImage === undefined) return {}
  const finder = new ImageFinder({
    connections: () => [],
    registriesOf: () => undefined,
    credentialsOf: () => Promise.reject(new Error("the agent's image is pulled without signing in")),
    readImage,
    clock,
    logger,
    ...(settings && { settings }),
  })
  void finder.whenFound("", agentImage).then((found) => {
    if (found.state === "known") {
      const { architectures } = found
      logger.info({ agentImage, architectures }, "jobs get machines of the architectures of the agent's image")
    } else {
      const message =
        "the architectures of the agent's image could not be read; jobs get machines of the assumed architectures"
      logger.warn({ agentImage, assumed, why: found.why }, message)
    }
  })
  return { agentImage: () => finder.find("", agentImage) }
}
