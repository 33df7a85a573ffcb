import { MOST_ERRORS, shownText } from "../../core/apis/field-error.ts"
import { Positions } from "../../core/apis/positions.ts"
import { badRequest, invalidRequest } from "./problem.ts"

/** Texts that JSON.parse accepts as a string, with its quotes. */
const STRING =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: RFC 8259 forbids exactly these inside strings
  /"[^"\\\u0000-\u001f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\u0000-\u001f]*)*"/y

/** Texts that JSON.parse accepts as a number or a word. */
const SCALAR = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null/y

const SPACES = " \t\r\n"
const SIGNS = "{}[],:"

/** Largest number of keys of a body. The schemas need 1,000; objects with many keys are the slowest part of a check. */
const MOST_KEYS = 2000

/** Largest number of values of a body: numbers, texts, words, lists and objects. The schemas need 2,000. */
const MOST_VALUES = 5000

/** Tokens that may come next. */
type Expectation = "value" | "value or ]" | "key or }" | "key" | ":" | ", or end"

interface Container {
  closer: "}" | "]"
  /** Keys of the object so far, to find duplicates. JSON.parse would silently take the last one. */
  keys: Set<string>
}

/**
 * Parses JSON strictly. The problem names line and column, which the messages of JSON.parse often lack.
 * @throws Problem 400 for invalid JSON, duplicate keys, more than MOST_KEYS keys or MOST_VALUES values, and values nested deeper than `maxDepth`
 */
export function parseJson(text: string, maxDepth: number): unknown {
  const scanner = new Scanner(text, maxDepth)
  scanner.run()
  return JSON.parse(text) as unknown
}

/** Finds one token at a time. A regular expression for all kinds of tokens would take ten times as long. */
class Scanner {
  readonly #text: string
  readonly #maxDepth: number
  readonly #open: Container[] = []
  readonly #duplicates: { offset: number; source: string }[] = []
  #expected: Expectation = "value"
  #offset = 0
  #keys = 0
  #values = 0

  constructor(text: string, maxDepth: number) {
    this.#text = text
    this.#maxDepth = maxDepth
  }

  /** @throws Problem 400 at the first place that isn't JSON, else for all duplicate keys together */
  run(): void {
    this.#skipSpaces()
    while (this.#offset < this.#text.length) {
      this.#takeToken()
      this.#skipSpaces()
    }
    if (this.#expected !== ", or end" || this.#open.length > 0) throw this.#broken()
    if (this.#duplicates.length === 0) return
    const positions = new Positions(this.#text)
    const errors = this.#duplicates.map(({ offset, source }) => ({
      pointer: "",
      detail: `${positions.at(offset)}: duplicate key ${shownText(source)}`,
    }))
    throw invalidRequest(errors, "The body")
  }

  #skipSpaces(): void {
    while (this.#offset < this.#text.length && SPACES.includes(this.#text.charAt(this.#offset))) this.#offset++
  }

  #takeToken(): void {
    const first = this.#text.charAt(this.#offset)
    if (SIGNS.includes(first)) this.#takeSign(first)
    else if (first === '"' && this.#expected.startsWith("key")) this.#takeKey()
    else if (this.#expected.startsWith("value")) {
      this.#countValue()
      this.#offset = this.#endOf(first === '"' ? STRING : SCALAR)
      this.#expected = ", or end"
    } else throw this.#broken()
  }

  /** Returns the end of the token at the present offset. @throws Problem 400 if there is no such token */
  #endOf(token: RegExp): number {
    token.lastIndex = this.#offset
    if (!token.test(this.#text)) throw this.#broken()
    return token.lastIndex
  }

  #countValue(): void {
    if (++this.#values > MOST_VALUES) throw this.#tooMany(`${MOST_VALUES} values`)
  }

  #tooMany(most: string): Error {
    return badRequest(`The body has more than ${most} (${describePosition(this.#text, this.#offset)}): send fewer.`)
  }

  #takeKey(): void {
    if (++this.#keys > MOST_KEYS) throw this.#tooMany(`${MOST_KEYS} keys`)
    const source = this.#text.slice(this.#offset, this.#endOf(STRING))
    const key = source.includes("\\") ? (JSON.parse(source) as string) : source.slice(1, -1)
    const keys = this.#open.at(-1)?.keys
    if (keys?.has(key) && this.#duplicates.length < MOST_ERRORS) this.#duplicates.push({ offset: this.#offset, source })
    keys?.add(key)
    this.#offset += source.length
    this.#expected = ":"
  }

  #takeSign(sign: string): void {
    const closer = this.#open.at(-1)?.closer
    if (sign === "{" || sign === "[") this.#enter(sign)
    else if (sign === "}" || sign === "]") this.#leave(sign)
    else if (sign === ":" && this.#expected === ":") this.#expected = "value"
    else if (sign === "," && this.#expected === ", or end" && closer) this.#expected = closer === "}" ? "key" : "value"
    else throw this.#broken()
    this.#offset++
  }

  #enter(sign: "{" | "["): void {
    if (!this.#expected.startsWith("value")) throw this.#broken()
    this.#countValue()
    if (this.#open.length === this.#maxDepth) throw tooDeep(describePosition(this.#text, this.#offset), this.#maxDepth)
    this.#open.push({ closer: sign === "{" ? "}" : "]", keys: new Set() })
    this.#expected = sign === "{" ? "key or }" : "value or ]"
  }

  #leave(sign: "}" | "]"): void {
    const mayClose = this.#expected === ", or end" || this.#expected.endsWith(`or ${sign}`)
    if (!mayClose || this.#open.at(-1)?.closer !== sign) throw this.#broken()
    this.#open.pop()
    this.#expected = ", or end"
  }

  #broken(): Error {
    const offset = this.#offset
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
      `The body is not valid JSON: ${describePosition(this.#text, offset)}: expected ${wanted}, but found ${found}.`,
    )
  }
}

/** Returns the problem 400 for a body with too many levels. */
export function tooDeep(position: string, maxDepth: number): Error {
  return badRequest(`The body is nested deeper than ${maxDepth} levels (${position}).`)
}

/** Returns the position of a character as editors count: `line 3, column 8`, both from 1. */
export function describePosition(text: string, offset: number): string {
  return new Positions(text).at(offset)
}
