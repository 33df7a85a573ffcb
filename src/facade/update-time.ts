import { GATEWAY_FIELD_MANAGER, type ObjectMeta } from "../apis/meta.ts"
import type { ManagedFields, ServerMeta } from "../kube/resource.ts"

const UPDATED_AT = Symbol("newest time of an object's managedFields")

interface Remembering {
  [UPDATED_AT]?: string | undefined
}

/**
 * For a reflector's `transform`: keeps the time of the last update before managedFields is stripped. Under a symbol,
 * so that no copy of the object that is sent anywhere carries it.
 */
export function keepUpdateTime<T extends { metadata: ObjectMeta }>(object: T): T {
  const time = newestUpdate((object.metadata as ServerMeta).managedFields)
  return Object.assign(object, { [UPDATED_AT]: time })
}

/** When the object was last changed by anybody but an agent, RFC 3339; undefined when it does not say. */
export function updateTimeOf(object: { metadata: ObjectMeta }): string | undefined {
  const { managedFields } = object.metadata as ServerMeta
  return managedFields === undefined ? (object as Remembering)[UPDATED_AT] : newestUpdate(managedFields)
}

/** The API server writes these times in one format, whose order is that of its letters. */
function newestUpdate(managedFields: readonly ManagedFields[] | undefined): string | undefined {
  return managedFields
    ?.filter(({ manager }) => manager !== GATEWAY_FIELD_MANAGER)
    .flatMap(({ time }) => time ?? [])
    .toSorted()
    .at(-1)
}
