import type { Request } from "express"
import type { Fault } from "../apis/validate.ts"
import type { Json } from "./json-schema.ts"
import { invalidRequest } from "./problem.ts"

/** The largest page and the one that a request gets which doesn't ask (contract, "Limits"). */
export const PAGE: PageSizes = { defaultLimit: 50, maxLimit: 200 }

/** The same of the account scope. */
export const ACCOUNT_PAGE: PageSizes = { defaultLimit: 100, maxLimit: 100 }

/** The page that a request gets which asks for none, and the largest. */
export interface PageSizes {
  defaultLimit: number
  maxLimit: number
}

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
  return { schema: { type: "string" }, description, read: (query, name) => query.filter(name) }
}

/** True or false; without a default it may be left undefined. */
export function flag<const Default extends boolean | undefined = undefined>(
  description: string,
  byDefault?: Default,
): QueryParameter<boolean | Default> {
  const schema = { type: "boolean", ...(byDefault !== undefined && { default: byDefault }) }
  return { schema, description, read: (query, name) => query.boolean(name) ?? (byDefault as Default) }
}

/** One of a list of words; without a default it may be left undefined. */
export function choice<const Word extends string, const Default extends Word | undefined = undefined>(
  words: readonly Word[],
  byDefault?: Default,
): QueryParameter<Word | Default> {
  const schema = { type: "string", enum: words, ...(byDefault !== undefined && { default: byDefault }) }
  return { schema, read: (query, name) => query.choice(name, words) ?? (byDefault as Default) }
}

/** A whole number within bounds. */
export function wholeNumber(
  bounds: { minimum: number; maximum: number },
  description: string,
): QueryParameter<number | undefined> {
  return { schema: { type: "integer", ...bounds }, description, read: (query, name) => query.integer(name, bounds) }
}

/** All values of a repeatable parameter. */
export function repeated(): QueryParameter<string[]> {
  const schema = { type: "array", items: { type: "string" } }
  return { schema, read: (query, name) => query.all(name) }
}

/** The parameters of a list that comes in pages. */
export function paging({ defaultLimit, maxLimit }: PageSizes = PAGE) {
  const count = (minimum: number, maximum: number, byDefault: number): QueryParameter<number> => ({
    schema: { type: "integer", minimum, maximum, default: byDefault },
    read: (query, name) => query.integer(name, { minimum, maximum }) ?? byDefault,
  })
  return { limit: count(1, maxLimit, defaultLimit), offset: count(0, Number.MAX_SAFE_INTEGER, 0) }
}

/**
 * The parameters of a request's query string. Each is asked for by name; `check` then refuses what was wrong, and
 * what nobody asked for: a filter that is mistyped must not become a list of everything.
 */
export class Query {
  readonly #parameters: URLSearchParams
  readonly #known = new Set<string>()
  readonly #faults: Fault[] = []

  constructor(req: Request) {
    const start = req.originalUrl.indexOf("?")
    this.#parameters = new URLSearchParams(start === -1 ? "" : req.originalUrl.slice(start + 1))
  }

  /** The values of declared parameters. @throws Problem 400 with all faults, unknown parameters included */
  values<Q extends QueryParameters>(parameters: Q): QueryValues<Q> {
    const values = Object.entries(parameters).map(([name, { read }]) => [name, read(this, name)])
    this.check()
    return Object.fromEntries(values) as QueryValues<Q>
  }

  /** All values of a repeatable parameter. */
  all(name: string): string[] {
    this.#known.add(name)
    return this.#parameters.getAll(name)
  }

  /** The value of a parameter that may be given once. */
  one(name: string): string | undefined {
    const values = this.all(name)
    if (values.length > 1) this.fault(name, `may be given once, not ${values.length} times`)
    return values[0]
  }

  /** The value of a filter; an empty one is none. */
  filter(name: string): string | undefined {
    const value = this.one(name)
    return value === "" ? undefined : value
  }

  /** A whole number from `minimum` to `maximum`; out of range is a fault, never clamped. */
  integer(name: string, bounds: { minimum: number; maximum: number }): number | undefined {
    const text = this.one(name)
    if (text === undefined) return undefined
    const value = Number(text)
    if (/^\d+$/.test(text) && value >= bounds.minimum && value <= bounds.maximum) return value
    this.fault(name, `must be a whole number from ${bounds.minimum} to ${bounds.maximum}, not "${text}"`)
    return undefined
  }

  boolean(name: string): boolean | undefined {
    const text = this.one(name)
    if (text === undefined) return undefined
    if (text !== "true" && text !== "false") this.fault(name, `must be true or false, not "${text}"`)
    return text === "true"
  }

  /** One of a list of words. */
  choice<const Word extends string>(name: string, words: readonly Word[]): Word | undefined {
    const text = this.one(name)
    const chosen = words.find((word) => word === text)
    if (text !== undefined && chosen === undefined) {
      this.fault(name, `must be one of ${words.join(", ")}, not "${text}"`)
    }
    return chosen
  }

  page({ defaultLimit, maxLimit }: PageSizes = PAGE): Page {
    const limit = this.integer("limit", { minimum: 1, maximum: maxLimit }) ?? defaultLimit
    const offset = this.integer("offset", { minimum: 0, maximum: Number.MAX_SAFE_INTEGER }) ?? 0
    return { limit, offset }
  }

  /** Notes a fault of a parameter; parameters have no JSON pointer, so the detail names them. */
  fault(name: string, detail: string): void {
    this.#faults.push({ pointer: "", detail: `query parameter "${name}" ${detail}` })
  }

  /** @throws Problem 400 with all faults. Call it when every parameter was asked for. */
  check(): void {
    for (const name of new Set(this.#parameters.keys())) {
      if (!this.#known.has(name)) this.fault(name, `is not known: known are ${[...this.#known].join(", ")}`)
    }
    if (this.#faults.length > 0) throw invalidRequest(this.#faults, "The query")
  }
}
