import type { ObjectMeta } from "../apis/meta.ts"
import type { ServerMeta } from "./resource.ts"

/** Fact about objects that comes from `managedFields`, which a reflector removes. */
export interface KeptFact<Fact> {
  /** Keeps a fact with the object, in a reflector's `transform`. Default: that of its metadata. Returns the object. */
  keep<T extends { metadata: ObjectMeta }>(object: T, fact?: Fact): T
  /** Returns the fact that was kept, or else that of the object's metadata. */
  of(object: { metadata: ObjectMeta }): Fact
}

/**
 * Returns a fact that is calculated from an object's metadata. It is kept under a symbol, which no serialized copy of
 * the object has.
 */
export function keptFact<Fact>(description: string, calculate: (metadata: ServerMeta) => Fact): KeptFact<Fact> {
  const key = Symbol(description)
  return {
    keep: (object, fact = calculate(object.metadata)) => Object.assign(object, { [key]: fact }),
    of: (object) => (key in object ? (object as { [key]: Fact })[key] : calculate(object.metadata)),
  }
}
