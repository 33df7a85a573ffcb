import type { KubeObject } from "../../src/core/apis/meta.ts"

/** Returns the parts of an object that the models have. They leave out a Launch's conditions, for people. */
export function partsOf(object: KubeObject<object, object> | undefined) {
  if (object === undefined) return undefined
  const { labels = {}, annotations = {}, finalizers = [], generation, deletionTimestamp } = object.metadata
  const { conditions: _, ...status } = (object.status ?? {}) as Record<string, unknown>
  const isDeleting = deletionTimestamp !== undefined
  return { labels, annotations, finalizers, generation, isDeleting, spec: object.spec, status }
}
