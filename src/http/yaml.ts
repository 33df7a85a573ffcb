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
import { type FieldError, MOST_ERRORS, shownText } from "../apis/field-error.ts"
import { Positions } from "./json.ts"
import { badRequest, invalidRequest } from "./problem.ts"

/** Pattern of plain scalars that YAML 1.2's core schema reads as null, boolean or number (YAML 1.2.2, 10.3.2). */
const NO_STRING =
  /^(?:|~|null|Null|NULL|true|True|TRUE|false|False|FALSE|0o[0-7]+|0x[0-9a-fA-F]+|[-+]?(?:\.\d+|\d+(?:\.\d*)?)(?:[eE][-+]?\d+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$/

/** Pattern of a number with a leading zero. `010` is 8 in YAML 1.1, 10 in YAML 1.2, and may be meant as a file mode. */
const LEADING_ZERO = /^[-+]?0\d+(?:\.\d*)?(?:[eE][-+]?\d+)?$/

/** Characters that separate values. A text without them has few values. */
const SEPARATOR = /[\n,:[\]{}]/g

/** Largest number of separators. Ordinary texts of 64 KiB, the largest spec of a job, have half of them. */
const MOST_SEPARATORS = 8000

/**
 * Parses one document of YAML 1.2's core schema. Rejects YAML that parsers read differently, or that expands to a large
 * value. This means anchors, aliases, tags, merge keys, duplicate keys and keys that are no strings. It also means
 * numbers with leading zeros, and nesting deeper than `maxDepth`.
 * @throws Problem 400 with the line and column of each
 */
export function parseYaml(text: string, maxDepth: number): unknown {
  const separators = text.match(SEPARATOR)?.length ?? 0
  if (separators > MOST_SEPARATORS) {
    const detail = `The YAML has ${separators} line ends and characters , : [ ] { }; the maximum is ${MOST_SEPARATORS}.`
    throw badRequest(`${detail} Send fewer values, or send the body as JSON.`)
  }
  try {
    const events = parseEvents(text, { maxDepth })
    const errors = errorsOf(events, text)
    if (errors.length > 0) throw invalidRequest(errors, "The body")
    return constructFromEvents(events, { source: text, schema: CORE_SCHEMA })[0]
  } catch (error) {
    if (!(error instanceof YAMLException)) throw error
    const place = error.mark === undefined ? "" : `line ${error.mark.line + 1}, column ${error.mark.column + 1}: `
    throw badRequest(`The body is not supported YAML: ${place}${shownText(error.reason, 160)}.`)
  }
}

/** Collection that is not closed yet. In mappings, keys and values alternate. */
interface Open {
  mapping: boolean
  atKey: boolean
}

function errorsOf(events: readonly Event[], text: string): FieldError[] {
  const errors = events.flatMap(directiveErrors)
  const positions = new Positions(text)
  const open: Open[] = []
  for (const event of events) {
    if (errors.length < MOST_ERRORS)
      errors.push(...eventErrors(event, { text, positions }, open.at(-1)?.atKey ?? false))
    if (event.type === EVENT_ID.POP) open.pop()
    if (opens(event)) open.push({ mapping: event.type === EVENT_ID.MAPPING, atKey: event.type === EVENT_ID.MAPPING })
    else turn(open.at(-1))
  }
  const documents = events.filter(({ type }) => type === EVENT_ID.DOCUMENT).length
  if (documents !== 1) errors.push({ pointer: "", detail: `the body must have one document, not ${documents}` })
  return errors
}

/** Finds the directive of YAML 1.1, in which `yes` and `12:30` are no strings. */
function directiveErrors(event: Event): FieldError[] {
  const directives = event.type === EVENT_ID.DOCUMENT ? event.directives : []
  return directives.flatMap((directive) => {
    if (directive.kind !== "yaml" || directive.version === "1.2") return []
    const detail = `%YAML ${shownText(directive.version)} is not supported: the body is read as YAML 1.2; remove the line`
    return [{ pointer: "", detail }]
  })
}

function opens({ type }: Event): boolean {
  return type === EVENT_ID.DOCUMENT || type === EVENT_ID.MAPPING || type === EVENT_ID.SEQUENCE
}

/** Switches a mapping between key and value. */
function turn(collection: Open | undefined): void {
  if (collection?.mapping) collection.atKey = !collection.atKey
}

/** Text, and the positions in it. */
interface Source {
  text: string
  positions: Positions
}

function eventErrors(event: Event, { text, positions }: Source, isKey: boolean): FieldError[] {
  if (event.type === EVENT_ID.DOCUMENT || event.type === EVENT_ID.POP) return []
  const errors: FieldError[] = []
  const error = (offset: number, detail: string): void => {
    errors.push({ pointer: "", detail: `${positions.at(offset)}: ${detail}` })
  }
  if (event.type === EVENT_ID.ALIAS) {
    error(event.anchorStart - 1, "aliases are not supported: write out the value")
    return errors
  }
  if (event.anchorStart >= 0) error(event.anchorStart - 1, "anchors are not supported: write out the value")
  if (event.tagStart >= 0) error(event.tagStart, "tags are not supported: remove it")
  if (event.type === EVENT_ID.SCALAR && event.style === SCALAR_STYLE.PLAIN) {
    const detail = plainScalarError(event, text, isKey)
    if (detail !== undefined) error(event.valueStart, detail)
  }
  return errors
}

function plainScalarError(event: ScalarEvent, text: string, isKey: boolean): string | undefined {
  const value = getScalarValue(text, event)
  if (isKey && value === "<<") return "merge keys are not supported: write out the fields"
  if (isKey && NO_STRING.test(value)) return `a key must be a string: quote it (${shownText(`"${value}"`)})`
  if (LEADING_ZERO.test(value))
    return `a number with a leading zero is ambiguous: quote it (${shownText(`"${value}"`)}) or drop the zero`
  return undefined
}
