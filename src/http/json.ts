import { badRequest, invalidRequest } from "./problem.ts"

/** More places than this help nobody, and each costs a look at the whole text. */
export const MOST_FAULTS = 50

/** A JSON token of RFC 8259 after white space, or the end of the text. */
const TOKEN =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: RFC 8259 forbids exactly these inside strings
  /[ \t\r\n]*(?:(?<string>"[^"\\\u0000-\u001f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\u0000-\u001f]*)*")|(?<scalar>-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)|(?<sign>[{}[\],:])|(?<end>$))/y

/** What may come next. */
type Expectation = "value" | "value or ]" | "key or }" | "key" | ":" | ", or end"

interface Container {
  closer: "}" | "]"
  /** The keys of an object so far; JSON.parse would take the last of two without a word. */
  keys: Set<string>
}

/**
 * Parses JSON strictly: a broken text is a 400 that names line and column (JSON.parse's own messages often don't),
 * and so are duplicate keys and values nested deeper than `maxDepth`.
 */
export function parseJson(text: string, maxDepth: number): unknown {
  const scanner = new Scanner(text, maxDepth)
  scanner.run()
  return JSON.parse(text) as unknown
}

class Scanner {
  readonly #text: string
  readonly #maxDepth: number
  readonly #open: Container[] = []
  readonly #duplicates: { pointer: string; detail: string }[] = []
  #expected: Expectation = "value"

  constructor(text: string, maxDepth: number) {
    this.#text = text
    this.#maxDepth = maxDepth
  }

  /** @throws Problem at the first place that is no JSON, else for all duplicate keys together */
  run(): void {
    const token = new RegExp(TOKEN)
    for (;;) {
      const start = token.lastIndex
      const groups = token.exec(this.#text)?.groups
      if (groups === undefined) throw this.#broken(this.#skipSpace(start))
      const offset = token.lastIndex - (groups["string"] ?? groups["scalar"] ?? groups["sign"] ?? "").length
      if (groups["end"] !== undefined) {
        if (this.#expected !== ", or end" || this.#open.length > 0) throw this.#broken(offset)
        break
      }
      this.#take(groups, offset)
    }
    if (this.#duplicates.length > 0) throw invalidRequest(this.#duplicates, "The body")
  }

  #take(groups: Record<string, string | undefined>, offset: number): void {
    const { string, scalar, sign } = groups
    if (sign !== undefined) this.#takeSign(sign, offset)
    else if (string !== undefined && this.#expected.startsWith("key")) this.#takeKey(string, offset)
    else if ((string ?? scalar) !== undefined && this.#expected.startsWith("value")) this.#expected = ", or end"
    else throw this.#broken(offset)
  }

  #takeKey(source: string, offset: number): void {
    const key = JSON.parse(source) as string
    const keys = this.#open.at(-1)?.keys
    if (keys?.has(key) && this.#duplicates.length < MOST_FAULTS) {
      this.#duplicates.push({ pointer: "", detail: `${positionOf(this.#text, offset)}: duplicate key ${source}` })
    }
    keys?.add(key)
    this.#expected = ":"
  }

  #takeSign(sign: string, offset: number): void {
    const closer = this.#open.at(-1)?.closer
    if (sign === "{" || sign === "[") this.#enter(sign, offset)
    else if (sign === "}" || sign === "]") this.#leave(sign, offset)
    else if (sign === ":" && this.#expected === ":") this.#expected = "value"
    else if (sign === "," && this.#expected === ", or end" && closer) this.#expected = closer === "}" ? "key" : "value"
    else throw this.#broken(offset)
  }

  #enter(sign: "{" | "[", offset: number): void {
    if (!this.#expected.startsWith("value")) throw this.#broken(offset)
    if (this.#open.length === this.#maxDepth) throw tooDeep(positionOf(this.#text, offset), this.#maxDepth)
    this.#open.push({ closer: sign === "{" ? "}" : "]", keys: new Set() })
    this.#expected = sign === "{" ? "key or }" : "value or ]"
  }

  #leave(sign: "}" | "]", offset: number): void {
    const mayClose = this.#expected === ", or end" || this.#expected.endsWith(`or ${sign}`)
    if (!mayClose || this.#open.at(-1)?.closer !== sign) throw this.#broken(offset)
    this.#open.pop()
    this.#expected = ", or end"
  }

  #skipSpace(offset: number): number {
    return offset + (/^[ \t\r\n]*/.exec(this.#text.slice(offset))?.[0].length ?? 0)
  }

  #broken(offset: number): Error {
    const closer = this.#open.at(-1)?.closer
    const wanted = {
      value: "a value",
      "value or ]": 'a value or "]"',
      "key or }": 'a key in double quotes or "}"',
      key: "a key in double quotes",
      ":": '":"',
      ", or end": closer === undefined ? "the end" : `"," or "${closer}"`,
    }[this.#expected]
    const found = offset >= this.#text.length ? "the text ends" : JSON.stringify(this.#text.at(offset))
    return badRequest(
      `The body is not valid JSON: ${positionOf(this.#text, offset)}: expected ${wanted}, but found ${found}.`,
    )
  }
}

/** 400 for a body nested deeper than anything in the API. */
export function tooDeep(position: string, maxDepth: number): Error {
  return badRequest(`The body is nested deeper than ${maxDepth} levels (${position}).`)
}

/** Where a character stands, as editors count: `line 3, column 8`, both from 1. */
export function positionOf(text: string, offset: number): string {
  const before = text.slice(0, offset)
  const line = before.split("\n").length
  return `line ${line}, column ${offset - before.lastIndexOf("\n")}`
}
