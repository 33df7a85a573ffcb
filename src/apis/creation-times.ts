import type { Clock } from "./clock.ts"
import { ANNOTATIONS, type KubeObject, type Stored } from "./meta.ts"

/**
 * Gives the times of ANNOTATIONS.createdAt, with microseconds, each later than the one before: what one process makes
 * one after the other sorts so.
 */
export class CreationTimes {
  readonly #clock: Clock
  #lastMicroseconds = 0

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Now, RFC 3339 with six decimals. */
  next(): string {
    const microseconds = Math.max(this.#clock.now().getTime() * 1000, this.#lastMicroseconds + 1)
    this.#lastMicroseconds = microseconds
    const fraction = String(microseconds % 1_000_000).padStart(6, "0")
    return new Date(Math.floor(microseconds / 1000)).toISOString().replace(/\.\d{3}Z$/, `.${fraction}Z`)
  }
}

const MICROSECOND_TIME = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{6}Z$/

/** Any object as the API server returned it. */
type StoredObject = Pick<Stored<KubeObject>, "metadata">

const sortKeys = new WeakMap<StoredObject, string>()

/** Newest first: by the time of ANNOTATIONS.createdAt, or creationTimestamp where there is none; then that, then uid. */
export function newestFirst(a: StoredObject, b: StoredObject): number {
  return creationKey(a) > creationKey(b) ? -1 : 1
}

/** What `newestFirst` compares, unique: the higher, the newer. */
export function creationKey(object: StoredObject): string {
  const known = sortKeys.get(object)
  if (known !== undefined) return known
  const { creationTimestamp, uid, annotations } = object.metadata
  const annotated = annotations?.[ANNOTATIONS.createdAt]
  const time =
    annotated !== undefined && MICROSECOND_TIME.test(annotated)
      ? annotated
      : creationTimestamp.replace(/Z$/, ".000000Z")
  const key = `${time} ${creationTimestamp} ${uid}`
  sortKeys.set(object, key)
  return key
}
