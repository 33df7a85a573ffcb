import { escapePointer, type FieldError, MOST_ERRORS, tooManyError } from "./field-error.ts"

/**
 * Cuts a value down before its validation. Ajv finds every error of a value, and needs 100 ms for a list of 60,000 wrong
 * items.
 */

type Json = Record<string, unknown>

/** Value whose lists and maps are not too long. */
export interface CutValue {
  /** Errors of the lists and maps that were too long. */
  errors: FieldError[]
  /** The value itself, or a copy with less in it. */
  rest: unknown
}

/**
 * Empties lists and maps that have more items than the schema allows. Of unknown fields, only the first MOST_ERRORS
 * stay.
 */
export function cutToSize(schema: object, value: unknown): CutValue {
  const errors: FieldError[] = []
  return { errors, rest: cutValue(schema as Json, value, { pointer: "", errors }) }
}

interface Place {
  pointer: string
  errors: FieldError[]
}

function cutValue(schema: Json, value: unknown, place: Place): unknown {
  if (Array.isArray(value)) return cutList(schema, value, place)
  if (typeof value !== "object" || value === null) return value
  return cutObject(schema, value as Json, place)
}

function cutList(schema: Json, list: unknown[], { pointer, errors }: Place): unknown[] {
  const { maxItems, minItems = 0, items } = schema
  if (typeof maxItems === "number" && list.length > maxItems) {
    note(errors, tooManyError(pointer, `at most ${maxItems} items, not ${list.length}`))
    return list.slice(0, minItems as number)
  }
  if (!isSchema(items)) return list
  const kept = list.map((item, index) => cutValue(items, item, { pointer: `${pointer}/${index}`, errors }))
  return kept.every((item, index) => item === list[index]) ? list : kept
}

function cutObject(schema: Json, value: Json, { pointer, errors }: Place): Json {
  const { properties, additionalProperties, maxProperties, minProperties = 0 } = schema
  const entries = Object.entries(value)
  if (typeof maxProperties === "number" && entries.length > maxProperties) {
    note(errors, tooManyError(pointer, `at most ${maxProperties} entries, not ${entries.length}`))
    return Object.fromEntries(entries.slice(0, minProperties as number))
  }
  const known = isSchema(properties) ? properties : undefined
  const isClosed = known !== undefined && !isSchema(additionalProperties) && additionalProperties !== true
  let unknown = 0
  const kept = entries.flatMap(([name, field]): [string, unknown][] => {
    const isKnown = known !== undefined && Object.hasOwn(known, name)
    if (!isKnown && isClosed && ++unknown > MOST_ERRORS) return []
    const inside = isKnown ? known[name] : additionalProperties
    if (!isSchema(inside)) return [[name, field]]
    return [[name, cutValue(inside, field, { pointer: `${pointer}/${escapePointer(name)}`, errors })]]
  })
  const isSame = kept.length === entries.length && kept.every(([name, field]) => field === value[name])
  return isSame ? value : Object.fromEntries(kept)
}

function note(errors: FieldError[], error: FieldError): void {
  if (errors.length < MOST_ERRORS) errors.push(error)
}

function isSchema(schema: unknown): schema is Json {
  return typeof schema === "object" && schema !== null
}
