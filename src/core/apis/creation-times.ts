import type { Clock } from "./clock.ts"
import { ANNOTATIONS, type KubeObject, type Stored } from "./meta.ts"

/**
 * Generates values for ANNOTATIONS.createdAt with microseconds. Each is later than the one before, so objects that one
 * process creates sort in their order.
 */
export class CreationTimes {
  readonly #clock: Clock
  #lastMicroseconds = 0

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Returns the current time, RFC 3339 with six decimals. */
  next(): string {
    const microseconds = Math.max(this.#clock.now().getTime() * 1000, this.#lastMicroseconds + 1)
    this.#lastMicroseconds = microseconds
    return timeOf(microseconds)
  }
}

/** Returns RFC 3339 with six decimals. @param microseconds since 1970 */
function timeOf(microseconds: number): string {
  const fraction = String(microseconds - Math.floor(microseconds / 1_000_000) * 1_000_000).padStart(6, "0")
  return new Date(Math.floor(microseconds / 1000)).toISOString().replace(/\.\d{3}Z$/, `.${fraction}Z`)
}

const MICROSECOND_TIME = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{6}Z$/

/**
 * Greatest difference between ANNOTATIONS.createdAt and creationTimestamp, milliseconds: clocks of two machines, and a
 * request that waits for its turn. Anybody may set the annotation, so another time in it counts for nothing.
 */
const GREATEST_DIFFERENCE_MS = 5000

/** Any object as the API server returned it. */
type StoredObject = Pick<Stored<KubeObject>, "metadata">

const sortKeys = new WeakMap<StoredObject, string>()

/** Compares two objects, newest first: by `creationTimeOf`, then creationTimestamp, then uid. */
export function newestFirst(a: StoredObject, b: StoredObject): number {
  return creationKey(a) > creationKey(b) ? -1 : 1
}

/** Returns the unique key that `newestFirst` compares. A higher key is newer. */
export function creationKey(object: StoredObject): string {
  const known = sortKeys.get(object)
  if (known !== undefined) return known
  const { creationTimestamp, uid } = object.metadata
  const key = `${creationTimeOf(object).replace(/(:\d\d)Z$/, "$1.000000Z")} ${creationTimestamp} ${uid}`
  sortKeys.set(object, key)
  return key
}

/**
 * Returns the text that `creationKey` of an object created at a time or later is not below, and of one created earlier is
 * below. @param time RFC 3339 with up to nine decimals
 */
export function creationBound(time: string): string {
  // Creation times have microseconds, so a bound between two of them means the later one.
  return timeOf(parseMicroseconds(time))
}

/** Returns the microseconds from 1970 to a time, rounded up. @param time RFC 3339 with up to nine decimals */
export function parseMicroseconds(time: string): number {
  const [, fraction = ""] = /\.(\d+)/.exec(time) ?? []
  const seconds = Date.parse(time.replace(/\.\d+/, "")) / 1000
  return seconds * 1_000_000 + Math.ceil(Number(fraction.padEnd(9, "0")) / 1000)
}

/** Returns the time at which an object was created, with microseconds if the REST API created it. RFC 3339. */
export function creationTimeOf({ metadata: { creationTimestamp, annotations } }: StoredObject): string {
  const annotated = annotations?.[ANNOTATIONS.createdAt]
  if (annotated === undefined || !MICROSECOND_TIME.test(annotated)) return creationTimestamp
  const time = new Date(annotated)
  const isNear = Math.abs(time.getTime() - Date.parse(creationTimestamp)) <= GREATEST_DIFFERENCE_MS
  // JavaScript reads 31 February as 3 March.
  return isNear && annotated.startsWith(time.toISOString().slice(0, 19)) ? annotated : creationTimestamp
}
