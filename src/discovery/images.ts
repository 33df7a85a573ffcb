import type { Clock } from "../apis/clock.ts"
import type { ConnectionType, StoredConnection } from "../apis/connection.ts"
import { newestFirst } from "../apis/creation-times.ts"
import type { CredentialFields } from "../apis/credentials.ts"
import { type ImageName, parseImage } from "../apis/image.ts"
import type { Logger } from "../apis/logger.ts"
import { fromMetadataName } from "../apis/names.ts"
import type { Architecture } from "../apis/offer.ts"
import type { RegistryLogin, RegistryOpener } from "../cloud/registry-access.ts"
import type { CredentialsOf } from "./discoverer.ts"
import { explained } from "./explained.ts"
import { type Lookup, Lookups } from "./lookups.ts"
import { within } from "./time-limit.ts"

/** What is known of what an image runs on. */
export type ImageState =
  | { state: "known"; architectures: readonly Architecture[] }
  | { state: "looking" }
  | { state: "unknown"; why: string }

/**
 * Reads what an image runs on, as who has signed in or as anybody; undefined where it is not there, or not for him.
 * Throws the errors of cloud/errors.ts.
 */
export type ReadImage = (
  image: ImageName,
  login: RegistryLogin | undefined,
  signal: AbortSignal,
) => Promise<readonly Architecture[] | undefined>

export interface ImageFinderOptions {
  /** The connections of a namespace. */
  connections: (namespace: string) => readonly StoredConnection[]
  /** The registries of a type of connection; undefined: it has none. */
  registriesOf: (type: ConnectionType) => RegistryOpener | undefined
  credentialsOf: CredentialsOf
  readImage: ReadImage
  clock: Clock
  logger: Logger
  settings?: Partial<ImageSettings>
}

/** All durations are in seconds. */
export interface ImageSettings {
  /** How long it may take until what an image runs on counts as unknown. */
  limitSeconds: number
  /** How long an answer holds: a tag may be given to another image any time. */
  knownSeconds: number
  unknownSeconds: number
  /** How long after that it is still given while it is asked for anew: a job that waits is not to look busy each time. */
  staleSeconds: number
  /** Images that are asked about at the same time. */
  atOnce: number
}

export const IMAGE_DEFAULTS: ImageSettings = {
  limitSeconds: 10,
  knownSeconds: 300,
  unknownSeconds: 60,
  staleSeconds: 600,
  atOnce: 16,
}

type Answer = Exclude<ImageState, { state: "looking" }>

/** Finds what images run on, by the connections of the project to their registry, else as anybody may. */
export class ImageFinder {
  readonly #options: ImageFinderOptions
  readonly #settings: ImageSettings
  readonly #lookups: Lookups<Answer>

  constructor(options: ImageFinderOptions) {
    const { clock, settings } = options
    this.#options = options
    this.#settings = { ...IMAGE_DEFAULTS, ...settings }
    const { atOnce, knownSeconds, unknownSeconds, staleSeconds } = this.#settings
    const secondsOf = ({ state }: Answer) => (state === "known" ? knownSeconds : unknownSeconds)
    this.#lookups = new Lookups({ clock, atOnce, secondsOf, staleSeconds })
  }

  /** Never waits: who asks again gets what has come. */
  find(namespace: string, image: string): ImageState {
    return this.#judged(this.#lookup(namespace, image))
  }

  /** Waits for an answer that holds, but no longer than the limit. */
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
    return { state: "unknown", why: `its registry gave no answer within ${this.#settings.limitSeconds} seconds` }
  }

  #lookup(namespace: string, image: string): Lookup<Answer> {
    const name = parseImage(image)
    const candidates = this.#options
      .connections(namespace)
      .filter(({ spec }) => this.#options.registriesOf(spec.type)?.serves(name.registry))
      .toSorted(newestFirst)
      .reverse()
    const versions = candidates.map(({ metadata }) => `${metadata.uid}/${metadata.resourceVersion}`)
    return this.#lookups.get(JSON.stringify([namespace, image, ...versions]), () => this.#ask(name, candidates))
  }

  /** Never rejects. */
  async #ask(name: ImageName, candidates: readonly StoredConnection[]): Promise<Answer> {
    const refusals: string[] = []
    for (const connection of [...candidates, undefined]) {
      const found = await this.#read(name, connection)
      if (typeof found !== "string") return { state: "known", architectures: found }
      refusals.push(found)
    }
    return { state: "unknown", why: `registry ${name.registry}: ${refusals.join("; ")}` }
  }

  /** The architectures, or why they can't be had by this connection; without one, by anybody. */
  async #read(name: ImageName, connection: StoredConnection | undefined): Promise<readonly Architecture[] | string> {
    const { clock, readImage } = this.#options
    const who = connection === undefined ? "" : `connection ${fromMetadataName(connection.metadata.name)}: `
    let credentials: CredentialFields = {}
    try {
      const found = await within(clock, this.#settings.limitSeconds, async (signal, race) => {
        credentials = connection === undefined ? {} : await race(this.#options.credentialsOf(connection))
        const login = connection && (await race(this.#signIn(name, connection, { credentials, signal })))
        return await race(readImage(name, login, signal))
      })
      return found ?? `${who}no such image, or no access to it`
    } catch (error) {
      const { logger } = this.#options
      const why = explained(error, credentials, (message) =>
        logger.error({ error: message }, "an image was not looked at by a fault of ours"),
      )
      return who + why
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
 * Looks up the architectures of the agent's image at once, without signing in, as VMs pull it. Logs the answer, or the
 * architectures assumed without one. Returns nothing where there is no such image, or registries are not asked.
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
      const message = "the architectures of the agent's image could not be read; jobs get machines as assumed"
      logger.warn({ agentImage, assumed, why: found.why }, message)
    }
  })
  return { agentImage: () => finder.find("", agentImage) }
}
