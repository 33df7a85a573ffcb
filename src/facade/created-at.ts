export { CreationTimes } from "../apis/creation-times.ts"

import { ANNOTATIONS, type KubeObject, type Stored } from "../apis/meta.ts"

const MICROSECOND_TIME = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{6}Z$/

/** Any object as the API server returned it. */
type StoredObject = Pick<Stored<KubeObject>, "metadata">

const sortKeys = new WeakMap<StoredObject, string>()

/** Newest first: by the façade's own time, or creationTimestamp for what others made; then creationTimestamp, then uid. */
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
