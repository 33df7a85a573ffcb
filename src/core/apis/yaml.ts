import {
  CORE_SCHEMA,
  constructFromEvents,
  EVENT_ID,
  type Event,
  getScalarValue,
  parseEvents,
  SCALAR_STYLE,
  YAMLException,
} from "js-yaml"
import { escapePointer, type FieldError, MOST_ERRORS, quote, shownText, toFieldPath } from "./field-error.ts"
import { Positions } from "./positions.ts"

/** Deepest nesting of a document. The API's schemas need 5 levels; the limit bounds every later recursion. */
const MOST_DEPTH = 32

/** Rejection of a text that isn't YAML, or that programs read differently. */
export class YamlError extends Error {
  override readonly name = "YamlError"
  /** Values that programs read differently. Empty: the text isn't YAML, and the message says why. */
  readonly errors: readonly FieldError[]

  constructor(message: string, errors: readonly FieldError[] = []) {
    super(message)
    this.errors = errors
  }
}

/**
 * Parses the documents of a text, by YAML 1.2's core schema. Returns only values that kubectl reads alike. It reads YAML
 * 1.1, in which 0600 is 384 and `yes` is true. Rejects the rest, so that a file means one thing everywhere. Also rejects
 * anchors, aliases, tags, merge keys, duplicate keys and keys that aren't strings.
 * @throws YamlError with the line, column and field of each
 */
export function readYaml(text: string, maxDepth = MOST_DEPTH): unknown[] {
  const source = text.startsWith("\uFEFF") ? text.slice(1) : text
  try {
    const events = parseEvents(source, { maxDepth })
    const errors = [...errorsIn(events, source)].slice(0, MOST_ERRORS)
    if (errors.length > 0) throw new YamlError(errors.map(({ detail }) => detail).join("; "), errors)
    return constructFromEvents(events, { source, schema: CORE_SCHEMA })
  } catch (error) {
    if (!(error instanceof YAMLException)) throw error
    const place = error.mark === undefined ? "" : `line ${error.mark.line + 1}, column ${error.mark.column + 1}: `
    throw new YamlError(`${place}${shownText(error.reason, 160)}`)
  }
}

/** Collection that is not closed yet, with the place of its next value. */
interface Open {
  isMapping: boolean
  /** True if a key comes next. */
  atKey: boolean
  key: string
  index: number
}

function* errorsIn(events: readonly Event[], text: string): Generator<FieldError> {
  const positions = new Positions(text)
  const open: Open[] = []
  for (const event of events) {
    if (event.type === EVENT_ID.DOCUMENT) yield* directiveErrors(event.directives)
    const inside = open.at(-1)
    for (const { offset, detailAt } of eventErrors(event, text, inside?.atKey ?? false)) {
      const pointer = open.map(placeOf).join("")
      yield { pointer, detail: `${positions.at(offset)}: ${detailAt(pointer)}` }
    }
    advance(open, event, text)
  }
}

/** Moves on by an event, to the place of the next one. */
function advance(open: Open[], event: Event, text: string): void {
  if (opens(event)) {
    const isMapping = event.type === EVENT_ID.MAPPING
    open.push({ isMapping, atKey: isMapping, key: "", index: 0 })
    return
  }
  if (event.type === EVENT_ID.POP) open.pop()
  const inside = open.at(-1)
  if (inside === undefined) return
  if (inside.atKey && event.type === EVENT_ID.SCALAR) inside.key = getScalarValue(text, event)
  if (inside.isMapping) inside.atKey = !inside.atKey
  else inside.index++
}

/** Finds the directive of YAML 1.1, by which `yes` and `12:30` aren't strings. */
function directiveErrors(directives: (Event & { type: typeof EVENT_ID.DOCUMENT })["directives"]): FieldError[] {
  return directives.flatMap((directive) => {
    if (directive.kind !== "yaml" || directive.version === "1.2") return []
    const detail = `%YAML ${shownText(directive.version)} is not supported: Berth reads YAML 1.2; remove the line`
    return [{ pointer: "", detail }]
  })
}

function opens({ type }: Event): boolean {
  return type === EVENT_ID.DOCUMENT || type === EVENT_ID.MAPPING || type === EVENT_ID.SEQUENCE
}

/** Returns the last part of the pointer to the next value. A document has none. */
function placeOf({ isMapping, atKey, key, index }: Open, depth: number): string {
  if (depth === 0) return ""
  if (!isMapping) return `/${index}`
  return atKey ? "" : `/${escapePointer(key)}`
}

interface Found {
  offset: number
  detailAt: (pointer: string) => string
}

function eventErrors(event: Event, text: string, isKey: boolean): Found[] {
  if (event.type === EVENT_ID.DOCUMENT || event.type === EVENT_ID.POP) return []
  const found = (offset: number, detail: string): Found => ({ offset, detailAt: () => detail })
  if (event.type === EVENT_ID.ALIAS)
    return [found(event.anchorStart - 1, "aliases are not supported: write out the value")]
  const errors: Found[] = []
  if (event.anchorStart >= 0)
    errors.push(found(event.anchorStart - 1, "anchors are not supported: write out the value"))
  if (event.tagStart >= 0) errors.push(found(event.tagStart, "tags are not supported: remove it"))
  if (event.type === EVENT_ID.SCALAR && event.style === SCALAR_STYLE.PLAIN) {
    const plain = getScalarValue(text, event)
    const detail = isKey ? keyError(plain) : valueError(plain)
    const field = (pointer: string) => (isKey || pointer === "" ? "" : `${toFieldPath(pointer)}: `)
    if (detail !== undefined)
      errors.push({ offset: event.valueStart, detailAt: (pointer) => `${field(pointer)}${detail}` })
  }
  return errors
}

function keyError(plain: string): string | undefined {
  if (plain === "<<") return "merge keys are not supported: write out the fields"
  if (typeof coreValue(plain) === "string" && typeof kubectlValue(plain) === "string") return undefined
  return `a key must be a string: quote it (${quote(plain)})`
}

function valueError(plain: string): string | undefined {
  const [core, kubectl] = [coreValue(plain), kubectlValue(plain)]
  if (typeof core === "number" && !Number.isFinite(core))
    return `${shownText(plain)} is not a number that can be stored: quote it (${quote(plain)})`
  if (core === kubectl) return undefined
  const ways = [...new Set([kubectl, core])].filter((way) => typeof way !== "string").join(" or ")
  const meaning = `${meaningOf(kubectl)} for kubectl (YAML 1.1) and ${meaningOf(core)} in YAML 1.2`
  return `${shownText(plain)} is ${meaning}: write ${ways}, or quote it (${quote(plain)})`
}

function meaningOf(value: Scalar): string {
  return typeof value === "string" ? "a text" : String(value)
}

type Scalar = string | number | boolean | null

const NULL = /^(?:|~|null|Null|NULL)$/
const TRUE = /^(?:true|True|TRUE)$/
const FALSE = /^(?:false|False|FALSE)$/
const FLOAT = /^[-+]?(?:\.\d+|\d+(?:\.\d*)?)(?:[eE][-+]?\d+)?$/
const INFINITE = /^[-+]?\.(?:inf|Inf|INF)$/

/** Returns the value of a plain scalar by YAML 1.2's core schema (YAML 1.2.2, 10.3.2). */
function coreValue(plain: string): Scalar {
  if (NULL.test(plain)) return null
  if (TRUE.test(plain)) return true
  if (FALSE.test(plain)) return false
  if (/^0o[0-7]+$/.test(plain) || /^0x[0-9a-fA-F]+$/.test(plain)) return Number(plain)
  if (FLOAT.test(plain)) return finite(plain) ?? plain
  if (INFINITE.test(plain)) return plain.startsWith("-") ? Number.NEGATIVE_INFINITY : Number.POSITIVE_INFINITY
  return /^\.(?:nan|NaN|NAN)$/.test(plain) ? Number.NaN : plain
}

/**
 * Returns the value of a plain scalar for kubectl: YAML 1.1 as go-yaml reads it, with the numbers of Go
 * (https://github.com/kubernetes-sigs/yaml/blob/master/goyaml.v2/resolve.go).
 */
function kubectlValue(plain: string): Scalar {
  if (/^(?:y|Y|yes|Yes|YES|on|On|ON)$/.test(plain)) return true
  if (/^(?:n|N|no|No|NO|off|Off|OFF)$/.test(plain)) return false
  if (/^\.\d+(?:_\d+)*(?:[eE][-+]?\d+(?:_\d+)*)?$/.test(plain)) return finite(plain.replaceAll("_", "")) ?? plain
  if (!/^[-+0-9]/.test(plain)) return coreValue(plain)
  // Go's numbers may have underscores between digits; go-yaml removes them anywhere.
  const number = plain.replaceAll("_", "")
  const [, sign = "", digits = ""] = /^([-+]?)(.*)$/.exec(number) ?? []
  if (/^0[xX][0-9a-fA-F]+$|^0[bB][01]+$|^0[oO][0-7]+$/.test(digits))
    return applySign(sign, Number(digits.toLowerCase()))
  // After this prefix go-yaml accepts a sign.
  const [, inner = "", binary] = /^0b([-+])([01]+)$/.exec(number) ?? []
  if (binary !== undefined) return applySign(inner, Number.parseInt(binary, 2))
  if (/^0[0-7]+$/.test(digits)) return applySign(sign, Number.parseInt(digits, 8))
  if (FLOAT.test(number)) return finite(number) ?? plain
  return coreValue(plain)
}

/** Returns the number of a text; undefined if it is too large for a number, which both versions read as a text. */
function finite(text: string): number | undefined {
  const number = Number(text)
  return Number.isFinite(number) ? number : undefined
}

function applySign(sign: string, number: number): number {
  return sign === "-" ? -number : number
}
