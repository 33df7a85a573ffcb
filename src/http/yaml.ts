import {
  CORE_SCHEMA,
  constructFromEvents,
  EVENT_ID,
  type Event,
  getScalarValue,
  parseEvents,
  SCALAR_STYLE,
  type ScalarEvent,
  YAMLException,
} from "js-yaml"
import type { Fault } from "../apis/validate.ts"
import { MOST_FAULTS, positionOf } from "./json.ts"
import { badRequest, invalidRequest } from "./problem.ts"

/** Plain scalars that YAML 1.2's core schema reads as null, boolean or number (YAML 1.2.2, 10.3.2). */
const NO_STRING =
  /^(?:|~|null|Null|NULL|true|True|TRUE|false|False|FALSE|0o[0-7]+|0x[0-9a-fA-F]+|[-+]?(?:\.\d+|\d+(?:\.\d*)?)(?:[eE][-+]?\d+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$/

/** A number that starts with a zero: eight to YAML 1.1, ten to YAML 1.2, a file mode or postcode to its writer. */
const LEADING_ZERO = /^[-+]?0\d+(?:\.\d*)?(?:[eE][-+]?\d+)?$/

/**
 * Parses one document of YAML 1.2's core schema. What means different things to different parsers, or lets a small
 * text stand for a large value, is refused: anchors, aliases, tags, merge keys, duplicate keys, keys that are no
 * strings, numbers with leading zeros, nesting deeper than `maxDepth`. A 400 names line and column of each.
 */
export function parseYaml(text: string, maxDepth: number): unknown {
  try {
    const events = parseEvents(text, { maxDepth })
    const faults = faultsOf(events, text)
    if (faults.length > 0) throw invalidRequest(faults, "The body")
    return constructFromEvents(events, { source: text, schema: CORE_SCHEMA })[0]
  } catch (error) {
    if (!(error instanceof YAMLException)) throw error
    const place = error.mark === undefined ? "" : `line ${error.mark.line + 1}, column ${error.mark.column + 1}: `
    throw badRequest(`The body is not supported YAML: ${place}${error.reason}.`)
  }
}

/** A collection that is not closed yet; in mappings keys and values alternate. */
interface Open {
  mapping: boolean
  atKey: boolean
}

function faultsOf(events: readonly Event[], text: string): Fault[] {
  const faults: Fault[] = []
  const open: Open[] = []
  for (const event of events) {
    if (faults.length < MOST_FAULTS) faults.push(...eventFaults(event, text, open.at(-1)?.atKey ?? false))
    if (event.type === EVENT_ID.POP) open.pop()
    if (opens(event)) open.push({ mapping: event.type === EVENT_ID.MAPPING, atKey: event.type === EVENT_ID.MAPPING })
    else turn(open.at(-1))
  }
  const documents = events.filter(({ type }) => type === EVENT_ID.DOCUMENT).length
  if (documents !== 1) faults.push({ pointer: "", detail: `the body must have one document, not ${documents}` })
  return faults
}

function opens({ type }: Event): boolean {
  return type === EVENT_ID.DOCUMENT || type === EVENT_ID.MAPPING || type === EVENT_ID.SEQUENCE
}

/** After a key comes its value, after a value the next key. */
function turn(collection: Open | undefined): void {
  if (collection?.mapping) collection.atKey = !collection.atKey
}

function eventFaults(event: Event, text: string, isKey: boolean): Fault[] {
  if (event.type === EVENT_ID.DOCUMENT || event.type === EVENT_ID.POP) return []
  const faults: Fault[] = []
  const fault = (offset: number, detail: string): void => {
    faults.push({ pointer: "", detail: `${positionOf(text, offset)}: ${detail}` })
  }
  if (event.type === EVENT_ID.ALIAS) {
    fault(event.anchorStart - 1, "aliases are not supported: write out the value")
    return faults
  }
  if (event.anchorStart >= 0) fault(event.anchorStart - 1, "anchors are not supported: write out the value")
  if (event.tagStart >= 0) fault(event.tagStart, "tags are not supported: remove it")
  if (event.type === EVENT_ID.SCALAR && event.style === SCALAR_STYLE.PLAIN) {
    const detail = plainScalarFault(event, text, isKey)
    if (detail !== undefined) fault(event.valueStart, detail)
  }
  return faults
}

function plainScalarFault(event: ScalarEvent, text: string, isKey: boolean): string | undefined {
  const value = getScalarValue(text, event)
  if (isKey && value === "<<") return "merge keys are not supported: write out the fields"
  if (isKey && NO_STRING.test(value)) return `a key must be a string: quote it ("${value}")`
  if (LEADING_ZERO.test(value))
    return `a number with a leading zero is ambiguous: quote it ("${value}") or drop the zero`
  return undefined
}
