import type { Clock } from "../apis/clock.ts"
import type { StoredConnection } from "../apis/connection.ts"
import { newestFirst } from "../apis/creation-times.ts"
import type { CredentialFields } from "../apis/credentials.ts"
import { fromMetadataName } from "../apis/names.ts"
import type { OpenAccount, ReachedBucket } from "../cloud/account.ts"
import { CloudError } from "../cloud/errors.ts"
import type { Logger } from "../kube/logger.ts"
import { scrubbed } from "../sealing/scrub.ts"
import type { CredentialsOf } from "./discoverer.ts"
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

interface Lookup {
  /** Absent while it is asked for. */
  answer?: Answer
  /** Monotonic seconds. */
  until: number
}

/**
 * Finds by which connection of a project a bucket is reached: the first, by creation, that can read it. All are asked at
 * the same time, and none for long; one that fails is passed over. Never waits: who asks again gets what has come.
 */
export class BucketFinder {
  readonly #options: BucketFinderOptions
  readonly #settings: BucketSettings
  readonly #lookups = new Map<string, Lookup>()
  readonly #waiting: (() => Promise<void>)[] = []
  #running = 0

  constructor(options: BucketFinderOptions) {
    this.#options = options
    this.#settings = { ...BUCKET_DEFAULTS, ...options.settings }
  }

  /** @param named a connection's name, as the object's or as REST tells it; then that one alone is asked */
  find(namespace: string, bucket: string, named?: string): BucketState {
    this.#forgetOld()
    const candidates = this.#options
      .connections(namespace)
      .filter(({ spec, metadata }) => TYPES_WITH_BUCKETS.includes(spec.type) && isNamed(metadata.name, named))
      .toSorted(newestFirst)
      .reverse()
    const answers = candidates.map((connection) => ({ connection, answer: this.#answer(connection, bucket) }))
    for (const { connection, answer } of answers) {
      if (answer === undefined) return { state: "looking" }
      if ("reached" in answer) return reachedBy(connection, answer.reached)
    }
    if (answers.length === 0) return { state: "notReached", why: noCandidate(named) }
    const why = answers.map(
      ({ connection, answer }) => `${shownName(connection)}: ${answer && "why" in answer && answer.why}`,
    )
    return { state: "notReached", why: why.join("; ") }
  }

  /** What is known; has the connection asked where nothing is. */
  #answer(connection: StoredConnection, bucket: string): Answer | undefined {
    const { uid, resourceVersion } = connection.metadata
    const key = JSON.stringify([uid, resourceVersion, bucket])
    const known = this.#lookups.get(key)
    if (known !== undefined) return known.answer
    const lookup: Lookup = { until: Number.POSITIVE_INFINITY }
    this.#lookups.set(key, lookup)
    this.#waiting.push(async () => {
      const answer = await this.#ask(connection, bucket)
      lookup.answer = answer
      lookup.until = this.#options.clock.monotonic() + this.#secondsOf(answer)
    })
    this.#next()
    return undefined
  }

  #next(): void {
    if (this.#running >= this.#settings.atOnce) return
    const work = this.#waiting.shift()
    if (work === undefined) return
    this.#running++
    void work().finally(() => {
      this.#running--
      this.#next()
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
      return { why: this.#explained(error, connection, credentials), failed: true }
    }
  }

  #explained(error: unknown, { metadata }: StoredConnection, credentials: CredentialFields): string {
    const message = scrubbed(error instanceof Error ? error.message : String(error), credentials)
    if (error instanceof CloudError) return message
    const { namespace, name: connection } = metadata
    this.#options.logger.error(
      { namespace, connection, error: message },
      "a bucket was not looked for by a fault of ours",
    )
    return "it could not be asked, by a fault of ours"
  }

  #secondsOf(answer: Answer): number {
    if ("reached" in answer) return this.#settings.reachedSeconds
    return answer.failed ? this.#settings.failedSeconds : this.#settings.notReachedSeconds
  }

  #forgetOld(): void {
    const now = this.#options.clock.monotonic()
    for (const [key, { until }] of this.#lookups) if (until <= now) this.#lookups.delete(key)
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
