import type { Request } from "express"
import { defined } from "../../core/apis/defined.ts"
import { type FieldError, quote, shownText } from "../../core/apis/field-error.ts"
import { Time } from "../../core/apis/schema.ts"
import { findErrors } from "../../core/apis/validate.ts"
import type { Json } from "./json-schema.ts"
import { invalidRequest } from "./problem.ts"

/** Sizes of a page: the default and the maximum. */
export interface PageSizes {
  defaultLimit: number
  maxLimit: number
}

/** Page sizes of a project's lists (contract, "Limits"). */
const PAGE: PageSizes = { defaultLimit: 50, maxLimit: 200 }

/** Page sizes of the account scope's lists. */
export const ACCOUNT_PAGE: PageSizes = { defaultLimit: 100, maxLimit: 100 }

export interface Page {
  limit: number
  offset: number
}

/** Bytes of JSON after which a page ends. */
const PAGE_BYTES = 4 * 1024 * 1024

/**
 * Returns the first records of a page, up to 4 MiB, and the page's `limit`: the number of records if the size has cut
 * them. So a client that adds `limit` to `offset` misses none.
 */
export function withinBytes<T>(records: readonly T[], { limit, offset }: Page): { records: T[]; page: Page } {
  let bytes = 0
  const over = records.findIndex((record) => {
    bytes += Buffer.byteLength(JSON.stringify(record))
    return bytes > PAGE_BYTES
  })
  if (over === -1) return { records: [...records], page: { limit, offset } }
  const count = Math.max(1, over)
  return { records: records.slice(0, count), page: { limit: count, offset } }
}

/** Parameter of the query: its description in the document, and a function that reads it. */
export interface QueryParameter<Value = unknown> {
  schema: Json
  description?: string
  read: (query: Query, name: string) => Value
}

export type QueryParameters = Readonly<Record<string, QueryParameter>>

/** Values of declared parameters. */
export type QueryValues<Q extends QueryParameters> = { [Name in keyof Q]: ReturnType<Q[Name]["read"]> }

/** Declares a filter by text. An empty value means no filter. */
export function filter(description: string): QueryParameter<string | undefined> {
  return { schema: { type: "string" }, description, read: (query, name) => query.one(name) || undefined }
}

const TIME = Time("")

/** Declares a filter by time, RFC 3339. An empty value means no filter. */
export function time(description: string): QueryParameter<string | undefined> {
  const read = (query: Query, name: string): string | undefined => {
    const text = query.one(name)
    if (text === undefined || text === "") return undefined
    // RFC 3339 allows t and z too.
    const upper = text.toUpperCase()
    if (findErrors(TIME, upper).length === 0) return upper
    const hint = text.includes(" ") ? "; write the + of a zone as %2B" : ""
    query.error(name, `must be a time with a zone, such as 2026-01-31T12:00:00Z, not ${quote(text)}${hint}`)
    return undefined
  }
  const schema = {
    anyOf: [
      { type: "string", format: "date-time" },
      { type: "string", enum: [""] },
    ],
  }
  return { schema, description: `${description} RFC 3339 with a zone. Empty: any.`, read }
}

/** Declares a parameter that is true or false. Without a default, the value of an omitted one is undefined. */
export function flag<const Default extends boolean | undefined = undefined>(
  description: string,
  byDefault?: Default,
): QueryParameter<boolean | Default> {
  const read = (query: Query, name: string): boolean | Default => {
    const text = query.one(name)
    if (text === undefined) return byDefault as Default
    if (text !== "true" && text !== "false") query.error(name, `must be true or false, not ${quote(text)}`)
    return text === "true"
  }
  return { schema: { type: "boolean", ...defined({ default: byDefault }) }, description, read }
}

/** Declares a parameter with one of these words. Without a default it is a filter, and an empty value means no filter. */
export function choice<const Word extends string, const Default extends Word | undefined = undefined>(
  words: readonly Word[],
  byDefault?: Default,
): QueryParameter<Word | Default> {
  const read = (query: Query, name: string): Word | Default => {
    const text = query.one(name)
    const chosen = words.find((word) => word === text)
    const isNone = text === undefined || (text === "" && byDefault === undefined)
    if (!isNone && chosen === undefined) {
      query.error(name, `must be one of ${words.join(", ")}, not ${quote(text)}`)
    }
    return chosen ?? (byDefault as Default)
  }
  const schema =
    byDefault === undefined
      ? { type: "string", enum: [...words, ""] }
      : { type: "string", enum: words, default: byDefault }
  return { schema, read, ...(byDefault === undefined && { description: "Empty: any." }) }
}

/** Declares a whole number from `minimum` to `maximum`. A number out of range is an error, and is not clamped. */
export function wholeNumber<const Default extends number | undefined = undefined>(
  { minimum, maximum }: { minimum: number; maximum: number },
  { description, byDefault }: { description?: string; byDefault?: Default } = {},
): QueryParameter<number | Default> {
  const read = (query: Query, name: string): number | Default => {
    const text = query.one(name)
    if (text === undefined) return byDefault as Default
    const value = Number(text)
    if (/^\d+$/.test(text) && value >= minimum && value <= maximum) return value
    query.error(name, `must be a whole number from ${minimum} to ${maximum}, not ${quote(text)}`)
    return byDefault as Default
  }
  const schema = { type: "integer", minimum, maximum, ...defined({ default: byDefault }) }
  return { schema, ...defined({ description }), read }
}

/** Declares a filter that may be repeated. Empty values mean no filter. */
export function repeatedFilter(description?: string): QueryParameter<string[]> {
  return {
    schema: { type: "array", items: { type: "string" } },
    ...defined({ description }),
    read: (query, name) => query.all(name).filter(Boolean),
  }
}

/** Declares a filter of these words that may be repeated. Empty values mean no filter. */
export function choices<const Word extends string>(words: readonly Word[]): QueryParameter<Word[]> {
  return {
    schema: { type: "array", items: { type: "string", enum: [...words, ""] } },
    description: "Empty: any.",
    read: (query, name) =>
      query.all(name).flatMap((text) => {
        const chosen = words.find((word) => word === text)
        if (chosen !== undefined || text === "") return chosen ?? []
        query.error(name, `must be one of ${words.join(", ")}, not ${quote(text)}`)
        return []
      }),
  }
}

/** Declares the parameters of a list with pages. */
export function paging({ defaultLimit, maxLimit }: PageSizes = PAGE) {
  return {
    limit: wholeNumber<number>({ minimum: 1, maximum: maxLimit }, { byDefault: defaultLimit }),
    offset: wholeNumber<number>({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }, { byDefault: 0 }),
  }
}

/** Query string of a request. An unknown parameter is an error, because a mistyped filter must not list everything. */
export class Query {
  readonly #parameters: URLSearchParams
  readonly #errors: FieldError[] = []

  constructor(req: Request) {
    const start = req.originalUrl.indexOf("?")
    this.#parameters = new URLSearchParams(start === -1 ? "" : req.originalUrl.slice(start + 1))
  }

  /** Returns the values of declared parameters. @throws Problem 400 with all errors */
  values<Q extends QueryParameters>(parameters: Q): QueryValues<Q> {
    const values = Object.entries(parameters).map(([name, { read }]) => [name, read(this, name)])
    const known = Object.keys(parameters)
    for (const name of new Set(this.#parameters.keys())) {
      if (known.includes(name)) continue
      this.error(name, known.length > 0 ? `is unknown; known parameters: ${known.join(", ")}` : "is unknown: send none")
    }
    if (this.#errors.length > 0) throw invalidRequest(this.#errors, "The query")
    return Object.fromEntries(values) as QueryValues<Q>
  }

  /** Returns all values of a parameter that may be repeated. */
  all(name: string): string[] {
    return this.#parameters.getAll(name)
  }

  /** Returns the value of a parameter. A repeated one is an error. */
  one(name: string): string | undefined {
    const values = this.all(name)
    if (values.length > 1) this.error(name, `must be given once, not ${values.length} times`)
    return values[0]
  }

  /** Adds an error of a parameter. Parameters have no JSON pointer, so the detail names them. */
  error(name: string, detail: string): void {
    this.#errors.push({ pointer: "", detail: `query parameter "${shownText(name)}" ${detail}` })
  }
}
