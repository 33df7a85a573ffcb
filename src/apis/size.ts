import { escapePointer, type FieldError, MOST_FAULTS, tooManyFault } from "./fault.ts"

/**
 * Cuts a value down before its validation. Ajv finds every fault of a value, and needs 100 ms for a list of 60,000 wrong
 * items.
 */

type Json = Record<string, unknown>

/** Value whose lists and maps are not too long. */
export interface CutValue {
  /** Faults of the lists and maps that were too long. */
  faults: FieldError[]
  /** The value itself, or a copy with less in it. */
  rest: unknown
}

/**
 * Empties lists and maps that have more items than the schema allows. Of unknown fields, only the first MOST_FAULTS
 * stay.
 */
export function cutToSize(schema: object, value: unknown): CutValue {
  const faults: FieldError[] = []
  return { faults, rest: cut(schema as Json, value, { pointer: "", faults }) }
}

interface Place {
  pointer: string
  faults: FieldError[]
}

function cut(schema: Json, value: unknown, place: Place): unknown {
  if (Array.isArray(value)) return cutList(schema, value, place)
  if (typeof value !== "object" || value === null) return value
  return cutObject(schema, value as Json, place)
}

function cutList(schema: Json, list: unknown[], { pointer, faults }: Place): unknown[] {
  const { maxItems, minItems = 0, items } = schema
  if (typeof maxItems === "number" && list.length > maxItems) {
    note(faults, tooManyFault(pointer, `at most ${maxItems} items, not ${list.length}`))
    return list.slice(0, minItems as number)
  }
  if (!isSchema(items)) return list
  const kept = list.map((item, index) => cut(items, item, { pointer: `${pointer}/${index}`, faults }))
  return kept.every((item, index) => item === list[index]) ? list : kept
}

function cutObject(schema: Json, value: Json, { pointer, faults }: Place): Json {
  const { properties, additionalProperties, maxProperties, minProperties = 0 } = schema
  const entries = Object.entries(value)
  if (typeof maxProperties === "number" && entries.length > maxProperties) {
    note(faults, tooManyFault(pointer, `at most ${maxProperties} entries, not ${entries.length}`))
    return Object.fromEntries(entries.slice(0, minProperties as number))
  }
  const known = isSchema(properties) ? properties : undefined
  const isClosed = known !== undefined && !isSchema(additionalProperties) && additionalProperties !== true
  let unknown = 0
  const kept = entries.flatMap(([name, field]): [string, unknown][] => {
    const isKnown = known !== undefined && Object.hasOwn(known, name)
    if (!isKnown && isClosed && ++unknown > MOST_FAULTS) return []
    const inside = isKnown ? known[name] : additionalProperties
    if (!isSchema(inside)) return [[name, field]]
    return [[name, cut(inside, field, { pointer: `${pointer}/${escapePointer(name)}`, faults })]]
  })
  const isSame = kept.length === entries.length && kept.every(([name, field]) => field === value[name])
  return isSame ? value : Object.fromEntries(kept)
}

function note(faults: FieldError[], fault: FieldError): void {
  if (faults.length < MOST_FAULTS) faults.push(fault)
}

function isSchema(schema: unknown): schema is Json {
  return typeof schema === "object" && schema !== null
}
