import { creationTimeOf } from "../apis/creation-times.ts"
import { ANNOTATIONS, GATEWAY_FIELD_MANAGER, type KubeObject, type ObjectMeta, type Stored } from "../apis/meta.ts"
import { keptFact } from "../kube/kept-fact.ts"
import type { ServerMeta } from "../kube/resource.ts"

/** Time of the last change by a client other than an agent, RFC 3339. Undefined if it is unknown. */
export const { keep: keepUpdateTime, of: updateTimeOf } = keptFact("time of an object's last update", newestUpdate)

/** Returns the text of an object, with the time of its last update, for `withUpdateTime`. */
export function textWithUpdateTime(object: { metadata: ObjectMeta }): string {
  return `${updateTimeOf(object) ?? ""}\n${JSON.stringify(object)}`
}

/** Returns the object of a text of `textWithUpdateTime`. */
export function withUpdateTime<T extends { metadata: ObjectMeta }>(text: string): T {
  const end = text.indexOf("\n")
  return keepUpdateTime(JSON.parse(text.slice(end + 1)) as T, text.slice(0, end) || undefined)
}

/** Returns the time of the last change for a record. managedFields has whole seconds, so creation may look later. */
export function lastUpdateTime(object: Pick<Stored<KubeObject>, "metadata">): string {
  const created = creationTimeOf(object)
  const updated = updateTimeOf(object)
  return updated === undefined || Date.parse(updated) < Date.parse(created) ? created : updated
}

/** Times of the API server and of Berth's annotation. A person may write another text there. */
const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/

/** Compares times as text, because all have one format. */
function newestUpdate({ managedFields = [], annotations }: ServerMeta): string | undefined {
  const written = managedFields.filter(({ manager }) => manager !== GATEWAY_FIELD_MANAGER).map(({ time }) => time)
  return [...written, annotations?.[ANNOTATIONS.updatedAt]]
    .filter((time) => time !== undefined && TIME.test(time))
    .toSorted()
    .at(-1)
}
