export { CreationTimes } from "../apis/creation-times.ts"

import { ANNOTATIONS, type KubeObject, type Stored } from "../apis/meta.ts"

const MICROSECOND_TIME = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{6}Z$/

/** Any object as the API server returned it. */
type StoredObject = Pick<Stored<KubeObject>, "metadata">

const sortKeys = new WeakMap<StoredObject, string>()

/** Newest first: by the façade's own time, or creationTimestamp for what others made; then creationTimestamp, then uid. */
export function newestFirst(a: StoredObject, b: StoredObject): number {
  return sortKeyOf(a) > sortKeyOf(b) ? -1 : 1
}

/** The `count` newest, newest first: without sorting all, as a page is usually far smaller than a project. */
export function newest<T extends StoredObject>(objects: readonly T[], count: number): T[] {
  if (count > objects.length / 4) return objects.toSorted(newestFirst).slice(0, count)
  const found: T[] = []
  for (const object of objects) {
    const last = found.at(-1)
    if (found.length === count && (last === undefined || newestFirst(last, object) < 0)) continue
    if (found.length === count) found.pop()
    found.splice(placeOf(object, found), 0, object)
  }
  return found
}

/** Where an object belongs among those that are sorted already. */
function placeOf(object: StoredObject, sorted: readonly StoredObject[]): number {
  let low = 0
  let high = sorted.length
  while (low < high) {
    const middle = (low + high) >> 1
    if (newestFirst(sorted[middle] as StoredObject, object) < 0) low = middle + 1
    else high = middle
  }
  return low
}

function sortKeyOf(object: StoredObject): string {
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
