import type { OpenAccount, ReachedBucket } from "../clouds/account.ts"
import { findDefinition } from "../clouds/definitions.ts"
import type { Clock } from "../core/apis/clock.ts"
import type { StoredConnection } from "../core/apis/connection.ts"
import { newestFirst } from "../core/apis/creation-times.ts"
import type { CredentialFields } from "../core/apis/credentials.ts"
import { defined } from "../core/apis/defined.ts"
import type { Logger } from "../core/apis/logger.ts"
import { fromMetadataName } from "../core/apis/names.ts"
import type { CredentialsOf } from "./discoverer.ts"
import { errorMessage } from "./error-message.ts"
import { Lookups } from "./lookups.ts"
import { withTimeLimit } from "./timeout.ts"

/** State of the search for a connection that can read a bucket. */
export type BucketState =
  | { state: "reached"; connection: string; type: string; region?: string }
  | { state: "looking" }
  | { state: "notReached"; why: string }

export interface BucketFinderOptions {
  /** Returns the connections of a namespace. */
  connections: (namespace: string) => readonly StoredConnection[]
  openAccount: OpenAccount
  credentialsOf: CredentialsOf
  clock: Clock
  logger: Logger
  settings?: Partial<BucketSettings>
}

/** All durations are in seconds. */
export interface BucketSettings {
  /** Timeout for the answer of one connection. */
  limitSeconds: number
  /** Time for which an answer is cached. */
  reachedSeconds: number
  notReachedSeconds: number
  /** Time for which a failure of the connection is cached, whatever its cause. */
  failedSeconds: number
  /** Maximum number of connections that are called at the same time. */
  atOnce: number
}

export const BUCKET_DEFAULTS: BucketSettings = {
  limitSeconds: 15,
  reachedSeconds: 300,
  notReachedSeconds: 60,
  failedSeconds: 30,
  atOnce: 16,
}

/** Answer of a connection about a bucket. */
type Answer = { reached: ReachedBucket } | { why: string; failed: boolean }

/**
 * Finds the connection of a project that can read a bucket: the oldest one that can. All are called at the same time,
 * each with a timeout. A connection that fails is skipped.
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
   * Returns the cached state, and starts the search if there is none. Never waits.
   * @param named name of the only connection to call, as of the object or as in the REST API
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

  /**
   * Returns the state after the decisive answers have come. A search that waits too long for its turn stays without an
   * answer.
   */
  async whenFound(namespace: string, bucket: string, named?: string): Promise<BucketState> {
    const lookups = this.#lookUp(namespace, bucket, named)
    const decided = async (): Promise<void> => {
      for (const { lookup } of lookups) {
        await lookup.answered
        if (lookup.answer !== undefined && "reached" in lookup.answer) return
      }
    }
    const late = Promise.withResolvers<void>()
    // Time for one search that waits before this one, and for one connection that times out.
    const cancel = this.#options.clock.setTimer(2 * this.#settings.limitSeconds, () => late.resolve())
    await Promise.race([decided(), late.promise])
    cancel()
    return this.find(namespace, bucket, named)
  }

  /**
   * Returns the cached state of each connection that may reach the bucket, the oldest first. Starts missing searches.
   */
  #lookUp(namespace: string, bucket: string, named: string | undefined) {
    const candidates = this.#options
      .connections(namespace)
      .filter(({ spec, metadata }) => findDefinition(spec.type)?.buckets !== undefined && isNamed(metadata.name, named))
      .toSorted(newestFirst)
      .reverse()
    return candidates.map((connection) => {
      const { uid, resourceVersion } = connection.metadata
      const key = JSON.stringify([uid, resourceVersion, bucket])
      return { connection, lookup: this.#lookups.get(namespace, key, () => this.#ask(connection, bucket)) }
    })
  }

  /** Asks one connection. Never rejects. */
  async #ask(connection: StoredConnection, bucket: string): Promise<Answer> {
    let credentials: CredentialFields = {}
    try {
      const reached = await withTimeLimit(this.#options.clock, this.#settings.limitSeconds, async (signal, race) => {
        credentials = await race(this.#options.credentialsOf(connection))
        return await race(
          this.#options.openAccount(connection.spec.type, credentials)?.bucket?.(bucket, signal) ?? none(),
        )
      })
      return reached === undefined ? { why: "no such bucket, or no access to it", failed: false } : { reached }
    } catch (error) {
      const { namespace, name } = connection.metadata
      const why = errorMessage(error, credentials, (message) =>
        this.#options.logger.error(
          { namespace, connection: name, error: message },
          "internal error in the search for a bucket",
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
  return { state: "reached", connection: metadata.name, type: spec.type, ...defined({ region }) }
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
