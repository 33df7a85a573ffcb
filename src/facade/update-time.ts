import { creationTimeOf } from "../apis/creation-times.ts"
import { ANNOTATIONS, GATEWAY_FIELD_MANAGER, type KubeObject, type ObjectMeta, type Stored } from "../apis/meta.ts"
import type { ServerMeta } from "../kube/resource.ts"

const UPDATED_AT = Symbol("time of an object's last update")

interface Remembering {
  [UPDATED_AT]?: string | undefined
}

/**
 * Keeps the time of the last update before managedFields is stripped, in a reflector's `transform`. The key is a
 * symbol, so that the time is in no JSON of the object.
 */
export function keepUpdateTime<T extends { metadata: ObjectMeta }>(object: T): T {
  return Object.assign(object, { [UPDATED_AT]: newestUpdate(object.metadata) })
}

/** Returns the text of an object, with the time of its last update, for `withUpdateTime`. */
export function textWithUpdateTime(object: { metadata: ObjectMeta }): string {
  return `${(object as Remembering)[UPDATED_AT] ?? ""}\n${JSON.stringify(object)}`
}

/** Returns the object of a text of `textWithUpdateTime`. */
export function withUpdateTime<T extends { metadata: ObjectMeta }>(text: string): T {
  const end = text.indexOf("\n")
  return Object.assign(JSON.parse(text.slice(end + 1)) as T, { [UPDATED_AT]: text.slice(0, end) || undefined })
}

/** Returns the time of the last change for a record. managedFields has whole seconds, so creation may look later. */
export function lastUpdateOf(object: Pick<Stored<KubeObject>, "metadata">): string {
  const created = creationTimeOf(object)
  const updated = updateTimeOf(object)
  return updated === undefined || Date.parse(updated) < Date.parse(created) ? created : updated
}

/** Returns the time of the last change by a client other than an agent, RFC 3339. Undefined if it is unknown. */
export function updateTimeOf(object: { metadata: ObjectMeta }): string | undefined {
  return UPDATED_AT in object ? (object as Remembering)[UPDATED_AT] : newestUpdate(object.metadata)
}

/** Times of the API server and of Berth's annotation. A person may write another text there. */
const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/

/** Compares times as text, because all have one format. */
function newestUpdate(metadata: ObjectMeta): string | undefined {
  const { managedFields = [], annotations } = metadata as ServerMeta
  const written = managedFields.filter(({ manager }) => manager !== GATEWAY_FIELD_MANAGER).map(({ time }) => time)
  return [...written, annotations?.[ANNOTATIONS.updatedAt]]
    .filter((time) => time !== undefined && TIME.test(time))
    .toSorted()
    .at(-1)
}
