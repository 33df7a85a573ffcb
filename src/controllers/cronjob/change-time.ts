import type { ObjectMeta } from "../../apis/meta.ts"
import type { ServerMeta } from "../../kube/resource.ts"

const CHANGED_AT = Symbol("when the spec of an object was last changed")

interface Remembering {
  [CHANGED_AT]?: Date | undefined
}

/**
 * For a reflector's `transform`: keeps when the spec was last changed before managedFields is stripped. Under a symbol,
 * so that no copy of the object that is sent anywhere carries it.
 */
export function keepChangeTime<T extends { metadata: ObjectMeta }>(object: T): T {
  return Object.assign(object, { [CHANGED_AT]: changeTime(object.metadata as ServerMeta) })
}

/**
 * When the spec was last changed, or somewhat later (an owner of its fields has written other fields since);
 * undefined when the object does not say, as one that did not come through `keepChangeTime`.
 */
export function changeTimeOf(object: { metadata: ObjectMeta }): Date | undefined {
  return (object as Remembering)[CHANGED_AT]
}

/** managedFields has for each writer which fields are his and when he wrote last, to the second. */
function changeTime({ managedFields = [] }: ServerMeta): Date | undefined {
  const times = managedFields
    .filter(({ fieldsV1 }) => typeof fieldsV1 === "object" && fieldsV1 !== null && "f:spec" in fieldsV1)
    .flatMap(({ time }) => (time === undefined ? [] : Date.parse(time)))
  return times.length === 0 ? undefined : new Date(Math.max(...times))
}
