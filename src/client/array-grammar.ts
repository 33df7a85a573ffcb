import type { Grammar } from "./job-grammar.ts"

/** Number of jobs of an array, or the values of its variables. */
export type ArrayShape = { size: number } | { matrix: Record<string, string[]> }

/** Largest number of values that a range may have: the API rejects more jobs. */
const LONGEST_RANGE = 10_000
/** Values in a row that are printed as a range. */
const SHORTEST_RANGE = 3

/**
 * Jobs of an array as the text of `--array`: a number such as `100`, or variables such as `lr=0.1,0.01 seed=1..50`. A value
 * with blanks, commas or `..` is a JSON string.
 */
export const ARRAY_SHAPE: Grammar<ArrayShape> = {
  parse: (text) => {
    const shape = read(text)
    return typeof shape === "string" ? undefined : shape
  },
  print: (shape) => ("size" in shape ? String(shape.size) : Object.entries(shape.matrix).map(variableText).join("\n")),
  refusal: (text) => {
    const problem = read(text)
    return typeof problem === "string" ? problem : ""
  },
}

const HOW = "Write a number, or NAME=VALUES such as lr=0.1,0.01."

/** Returns the shape of a text, or its problem as a sentence that follows the name of the field. */
function read(text: string): ArrayShape | string {
  if (/^\s*[1-9]\d*\s*$/.test(text)) return { size: Number(text) }
  const matrix = new Map<string, string[]>()
  let rest = text.trimStart()
  if (rest === "") return `is empty. ${HOW}`
  while (rest !== "") {
    const [start, name = ""] = /^([A-Za-z_][A-Za-z0-9_]*)=/.exec(rest) ?? []
    if (start === undefined) return `has ${/^\S*/.exec(rest)?.[0]}, which is not a variable. ${HOW}`
    if (matrix.has(name)) return `has ${name}, which is there twice.`
    const found = readValues(name, rest.slice(start.length))
    if (typeof found === "string") return found
    matrix.set(name, found.values)
    rest = found.rest
  }
  return { matrix: Object.fromEntries(matrix) }
}

/** Reads the values of one variable, up to the next one. Returns a text for a problem. */
function readValues(name: string, text: string): { values: string[]; rest: string } | string {
  const values: string[] = []
  for (let rest = text; ; ) {
    const [item] = /^(?:"(?:[^"\\]|\\.)*"|[^\s,]*)/.exec(rest) ?? [""]
    const found = item.startsWith('"') ? quotedValue(name, item) : valuesOf(item)
    if (typeof found === "string") return found
    for (const value of found) values.push(value)
    rest = rest.slice(item.length)
    const [comma] = /^\s*,\s*/.exec(rest) ?? []
    const problem = problemAfter(name, rest, comma)
    if (problem !== undefined) return problem
    if (comma === undefined) return { values, rest: rest.trimStart() }
    rest = rest.slice(comma.length)
  }
}

/** Returns the problem of the text after a value. @param comma at the start of the text, with its blanks */
function problemAfter(name: string, rest: string, comma = ""): string | undefined {
  if (comma === "" && /^\S/.test(rest))
    return `has text after a quotation mark of ${name}. Write a comma between values.`
  if (/\s$/.test(comma) && /^[A-Za-z_][A-Za-z0-9_]*=/.test(rest.slice(comma.length)))
    return `has a comma after the last value of ${name}. Separate variables by blanks, or quote a value with =.`
  return undefined
}

/** Returns the value of a JSON string, or its problem. */
function quotedValue(name: string, item: string): string[] | string {
  try {
    return [JSON.parse(item) as string]
  } catch {
    return `has a value of ${name} whose quotation marks can't be read. Write it as in JSON, such as "a, b".`
  }
}

/**
 * Returns the values of one item: `1..50` is a range of whole numbers, `01..50` one of two digits each, as in a shell.
 * Anything else without `..` is itself. Returns a text for a problem.
 */
function valuesOf(item: string): string[] | string {
  if (!item.includes("..")) return [item]
  const [, first, last] = /^(-?\d+)\.\.(-?\d+)$/.exec(item) ?? []
  if (first === undefined || last === undefined)
    return `has ${item}, which is not a range of whole numbers such as 1..50. Write the values, with commas.`
  const length = Number(last) - Number(first) + 1
  if (length < 1) return `has the range ${item}, which is empty. Write the lower number first.`
  if (length > LONGEST_RANGE) return `has the range ${item}, which has more than ${LONGEST_RANGE} values.`
  const isPadded = [first, last].some((end) => /^-?0\d/.test(end))
  const width = isPadded ? Math.max(first.length, last.length) : 0
  return Array.from({ length }, (_, index) => padNumber(Number(first) + index, width))
}

/** Returns the number with zeros in front, in at least `width` characters. */
function padNumber(number: number, width: number): string {
  const sign = number < 0 ? "-" : ""
  return sign + String(Math.abs(number)).padStart(width - sign.length, "0")
}

function variableText([name, values]: [string, readonly string[]]): string {
  const range = `${values[0]}..${values.at(-1)}`
  const inRange = valuesOf(range)
  const isRange = values.length >= SHORTEST_RANGE && values.every((value, index) => value === inRange[index])
  return `${name}=${isRange ? range : values.map(valueText).join(",")}`
}

function valueText(value: string): string {
  return /^[^\s,"]+$/.test(value) && !value.includes("..") ? value : JSON.stringify(value)
}
