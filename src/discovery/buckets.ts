import type { Clock } from "../apis/clock.ts"
import type { StoredConnection } from "../apis/connection.ts"
import { newestFirst } from "../apis/creation-times.ts"
import type { CredentialFields } from "../apis/credentials.ts"
import type { Logger } from "../apis/logger.ts"
import { fromMetadataName } from "../apis/names.ts"
import type { OpenAccount, ReachedBucket } from "../cloud/account.ts"
import type { CredentialsOf } from "./discoverer.ts"
import { explained } from "./explained.ts"
import { Lookups } from "./lookups.ts"
import { within } from "./time-limit.ts"

/** What is known of who reaches a bucket. */
export type BucketState =
  | { state: "reached"; connection: string; type: string; region?: string }
  | { state: "looking" }
  | { state: "notReached"; why: string }

export interface BucketFinderOptions {
  /** The connections of a namespace. */
  connections: (namespace: string) => readonly StoredConnection[]
  openAccount: OpenAccount
  credentialsOf: CredentialsOf
  clock: Clock
  logger: Logger
  settings?: Partial<BucketSettings>
}

/** All durations are in seconds. */
export interface BucketSettings {
  /** How long one connection may take to say whether it reaches a bucket. */
  limitSeconds: number
  /** How long an answer holds. */
  reachedSeconds: number
  notReachedSeconds: number
  /** After a failure of the connection, whatever the bucket. */
  failedSeconds: number
  /** Connections that are asked at the same time. */
  atOnce: number
}

export const BUCKET_DEFAULTS: BucketSettings = {
  limitSeconds: 15,
  reachedSeconds: 300,
  notReachedSeconds: 60,
  failedSeconds: 30,
  atOnce: 16,
}

/** The others hold no buckets. */
const TYPES_WITH_BUCKETS: readonly string[] = ["aws", "gcp", "azure", "cloudflare"]

/** What a connection has said of a bucket. */
type Answer = { reached: ReachedBucket } | { why: string; failed: boolean }

/**
 * Finds by which connection of a project a bucket is reached: the first, by creation, that can read it. All are asked at
 * the same time, and none for long; one that fails is passed over.
 */
export class BucketFinder {
  readonly #options: BucketFinderOptions
  readonly #settings: BucketSettings
  readonly #lookups: Lookups<Answer>

  constructor(options: BucketFinderOptions) {
    const { clock, settings } = options
    this.#options = options
    this.#settings = { ...BUCKET_DEFAULTS, ...settings }
    const { atOnce } = this.#settings
    this.#lookups = new Lookups({ clock, atOnce, secondsOf: (answer) => this.#secondsOf(answer) })
  }

  /**
   * Never waits: who asks again gets what has come.
   * @param named a connection's name, as the object's or as REST tells it; then that one alone is asked
   */
  find(namespace: string, bucket: string, named?: string): BucketState {
    const lookups = this.#lookUp(namespace, bucket, named)
    for (const {
      connection,
      lookup: { answer },
    } of lookups) {
      if (answer === undefined) return { state: "looking" }
      if ("reached" in answer) return reachedBy(connection, answer.reached)
    }
    if (lookups.length === 0) return { state: "notReached", why: noCandidate(named) }
    const why = lookups.map(
      ({ connection, lookup: { answer } }) => `${shownName(connection)}: ${answer && "why" in answer && answer.why}`,
    )
    return { state: "notReached", why: why.join("; ") }
  }

  /** As `find`, after the answers have come that decide; what is asked too much at once has no answer after a while. */
  async whenFound(namespace: string, bucket: string, named?: string): Promise<BucketState> {
    const lookups = this.#lookUp(namespace, bucket, named)
    const decided = async (): Promise<void> => {
      for (const { lookup } of lookups) {
        await lookup.answered
        if (lookup.answer !== undefined && "reached" in lookup.answer) return
      }
    }
    const late = Promise.withResolvers<void>()
    // Time for a turn of others', and for one that is passed over.
    const cancel = this.#options.clock.setTimer(2 * this.#settings.limitSeconds, () => late.resolve())
    await Promise.race([decided(), late.promise])
    cancel()
    return this.find(namespace, bucket, named)
  }

  /** Of each connection that may reach the bucket, the oldest first, what is known; has it asked where nothing is. */
  #lookUp(namespace: string, bucket: string, named: string | undefined) {
    const candidates = this.#options
      .connections(namespace)
      .filter(({ spec, metadata }) => TYPES_WITH_BUCKETS.includes(spec.type) && isNamed(metadata.name, named))
      .toSorted(newestFirst)
      .reverse()
    return candidates.map((connection) => {
      const { uid, resourceVersion } = connection.metadata
      const key = JSON.stringify([uid, resourceVersion, bucket])
      return { connection, lookup: this.#lookups.get(key, () => this.#ask(connection, bucket)) }
    })
  }

  /** Never rejects. */
  async #ask(connection: StoredConnection, bucket: string): Promise<Answer> {
    let credentials: CredentialFields = {}
    try {
      const reached = await within(this.#options.clock, this.#settings.limitSeconds, async (signal, race) => {
        credentials = await race(this.#options.credentialsOf(connection))
        return await race(
          this.#options.openAccount(connection.spec.type, credentials)?.bucket?.(bucket, signal) ?? none(),
        )
      })
      return reached === undefined ? { why: "no such bucket, or no access to it", failed: false } : { reached }
    } catch (error) {
      const { namespace, name } = connection.metadata
      const why = explained(error, credentials, (message) =>
        this.#options.logger.error(
          { namespace, connection: name, error: message },
          "a bucket was not looked for by a fault of ours",
        ),
      )
      return { why, failed: true }
    }
  }

  #secondsOf(answer: Answer): number {
    if ("reached" in answer) return this.#settings.reachedSeconds
    return answer.failed ? this.#settings.failedSeconds : this.#settings.notReachedSeconds
  }
}

const none = (): Promise<undefined> => Promise.resolve(undefined)

function reachedBy({ metadata, spec }: StoredConnection, { region }: ReachedBucket): BucketState {
  return { state: "reached", connection: metadata.name, type: spec.type, ...(region !== undefined && { region }) }
}

function isNamed(name: string, named: string | undefined): boolean {
  return named === undefined || named === name || named === fromMetadataName(name)
}

function shownName({ metadata }: StoredConnection): string {
  return fromMetadataName(metadata.name)
}

function noCandidate(named: string | undefined): string {
  return named === undefined
    ? "the project has no connection to storage"
    : "there is no such connection to storage in the project"
}
