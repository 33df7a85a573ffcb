import type { Request } from "express"
import type { Fault } from "../apis/validate.ts"
import type { Json } from "./json-schema.ts"
import { invalidRequest } from "./problem.ts"

/** Sizes of a page: of one that a request gets without asking, and the largest. */
export interface PageSizes {
  defaultLimit: number
  maxLimit: number
}

/** Sizes of a project's lists (contract, "Limits"). */
const PAGE: PageSizes = { defaultLimit: 50, maxLimit: 200 }

/** Sizes of the account scope's lists. */
export const ACCOUNT_PAGE: PageSizes = { defaultLimit: 100, maxLimit: 100 }

export interface Page {
  limit: number
  offset: number
}

/** A parameter of the query: how the document describes it, and how it is read. */
export interface QueryParameter<Value = unknown> {
  schema: Json
  description?: string
  read: (query: Query, name: string) => Value
}

export type QueryParameters = Readonly<Record<string, QueryParameter>>

/** The values of declared parameters. */
export type QueryValues<Q extends QueryParameters> = { [Name in keyof Q]: ReturnType<Q[Name]["read"]> }

/** A filter by text; an empty one is none. */
export function filter(description: string): QueryParameter<string | undefined> {
  return { schema: { type: "string" }, description, read: (query, name) => query.one(name) || undefined }
}

/** True or false; without a default it may be left undefined. */
export function flag<const Default extends boolean | undefined = undefined>(
  description: string,
  byDefault?: Default,
): QueryParameter<boolean | Default> {
  const read = (query: Query, name: string): boolean | Default => {
    const text = query.one(name)
    if (text === undefined) return byDefault as Default
    if (text !== "true" && text !== "false") query.fault(name, `must be true or false, not "${text}"`)
    return text === "true"
  }
  return { schema: { type: "boolean", ...(byDefault !== undefined && { default: byDefault }) }, description, read }
}

/** One of a list of words; without a default it may be left undefined. */
export function choice<const Word extends string, const Default extends Word | undefined = undefined>(
  words: readonly Word[],
  byDefault?: Default,
): QueryParameter<Word | Default> {
  const read = (query: Query, name: string): Word | Default => {
    const text = query.one(name)
    const chosen = words.find((word) => word === text)
    if (text !== undefined && chosen === undefined) {
      query.fault(name, `must be one of ${words.join(", ")}, not "${text}"`)
    }
    return chosen ?? (byDefault as Default)
  }
  return { schema: { type: "string", enum: words, ...(byDefault !== undefined && { default: byDefault }) }, read }
}

/** A whole number from `minimum` to `maximum`. One out of range is a fault, never clamped. */
export function wholeNumber<const Default extends number | undefined = undefined>(
  { minimum, maximum }: { minimum: number; maximum: number },
  { description, byDefault }: { description?: string; byDefault?: Default } = {},
): QueryParameter<number | Default> {
  const read = (query: Query, name: string): number | Default => {
    const text = query.one(name)
    if (text === undefined) return byDefault as Default
    const value = Number(text)
    if (/^\d+$/.test(text) && value >= minimum && value <= maximum) return value
    query.fault(name, `must be a whole number from ${minimum} to ${maximum}, not "${text}"`)
    return byDefault as Default
  }
  const schema = { type: "integer", minimum, maximum, ...(byDefault !== undefined && { default: byDefault }) }
  return { schema, ...(description !== undefined && { description }), read }
}

/** All values of a repeatable parameter. */
export function repeated(): QueryParameter<string[]> {
  return { schema: { type: "array", items: { type: "string" } }, read: (query, name) => query.all(name) }
}

/** The parameters of a list that comes in pages. */
export function paging({ defaultLimit, maxLimit }: PageSizes = PAGE) {
  return {
    limit: wholeNumber<number>({ minimum: 1, maximum: maxLimit }, { byDefault: defaultLimit }),
    offset: wholeNumber<number>({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }, { byDefault: 0 }),
  }
}

/** The query string of a request. A parameter that no declaration knows is a fault: a mistyped filter must not list everything. */
export class Query {
  readonly #parameters: URLSearchParams
  readonly #faults: Fault[] = []

  constructor(req: Request) {
    const start = req.originalUrl.indexOf("?")
    this.#parameters = new URLSearchParams(start === -1 ? "" : req.originalUrl.slice(start + 1))
  }

  /** Returns the values of declared parameters. @throws Problem 400 with all faults */
  values<Q extends QueryParameters>(parameters: Q): QueryValues<Q> {
    const values = Object.entries(parameters).map(([name, { read }]) => [name, read(this, name)])
    const known = Object.keys(parameters)
    for (const name of new Set(this.#parameters.keys())) {
      if (!known.includes(name)) this.fault(name, `is unknown; known parameters: ${known.join(", ")}`)
    }
    if (this.#faults.length > 0) throw invalidRequest(this.#faults, "The query")
    return Object.fromEntries(values) as QueryValues<Q>
  }

  /** All values of a repeatable parameter. */
  all(name: string): string[] {
    return this.#parameters.getAll(name)
  }

  /** The value of a parameter that may be given once. */
  one(name: string): string | undefined {
    const values = this.all(name)
    if (values.length > 1) this.fault(name, `must be given once, not ${values.length} times`)
    return values[0]
  }

  /** Notes a fault of a parameter. Parameters have no JSON pointer, so the detail names them. */
  fault(name: string, detail: string): void {
    this.#faults.push({ pointer: "", detail: `query parameter "${name}" ${detail}` })
  }
}
