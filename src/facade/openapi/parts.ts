import type { TSchema } from "typebox"
import { PAGE } from "../query.ts"

/** A part of the OpenAPI document. */
export type Json = Record<string, unknown>

/** A reference to a schema of the document. */
export const schemaRef = (name: string): Json => ({ $ref: `#/components/schemas/${name}` })

/** The content of a JSON body. */
export const json = (name: string, example?: unknown): Json => ({
  "application/json": { schema: schemaRef(name), ...(example !== undefined && { example }) },
})

/** The content of a request's body, which may be JSON or YAML. */
export const jsonOrYaml = (name: string, example?: unknown): Json => ({
  ...json(name, example),
  "application/yaml": { schema: schemaRef(name) },
})

/** The answers that are no success, by status: what each means, and the headers that come with it. */
const PROBLEMS: Readonly<Record<number, { description: string; headers?: readonly string[] }>> = {
  400: { description: "The request is not valid; all its faults are named." },
  401: { description: "No credentials, or none that are good for this host.", headers: ["WWW-Authenticate"] },
  403: { description: "The key's role does not allow this." },
  404: { description: "There is none of this id or name." },
  409: { description: "The name is taken, or the state does not allow this." },
  412: { description: "It is not at the version that If-Match names." },
  413: { description: "The body is too large." },
  415: { description: "The body is of a media type that is not taken here." },
  422: { description: "The Idempotency-Key was used for another body." },
  429: { description: "Too many requests.", headers: ["Retry-After"] },
  503: { description: "The API server is away; try again.", headers: ["Retry-After"] },
}

const EVERYWHERE = [400, 401, 403, 429, 503]
const WITH_BODY = [413, 415]

const problemName = (status: number): string => `Problem${status}`

/** The answers that operations refer to. */
export function problemResponses(): Json {
  const content = { "application/problem+json": { schema: schemaRef("Problem") } }
  const named = Object.entries(PROBLEMS).map(([status, { description, headers = [] }]) => {
    const described = Object.fromEntries(headers.map((name) => [name, { schema: { type: "string" } }]))
    return [problemName(Number(status)), { description, ...(headers.length > 0 && { headers: described }), content }]
  })
  return { ...Object.fromEntries(named), Problem: { description: "Any other problem.", content } }
}

/** What an operation is, beside its id and summary. */
export interface OperationParts {
  tags: string[]
  parameters?: Json[]
  requestBody?: Json
  responses: Json
  /** Statuses of problems that it may answer, beside those that every operation of its shape may. */
  problems?: readonly number[]
}

/** One method of a path; every one may answer with a problem. */
export function operation(operationId: string, summary: string, parts: OperationParts): Json {
  const { problems = [], responses, ...rest } = parts
  const statuses = [...EVERYWHERE, ...(rest.requestBody === undefined ? [] : WITH_BODY), ...problems]
  const reference = (name: string): Json => ({ $ref: `#/components/responses/${name}` })
  const refusals = Object.fromEntries(
    statuses.toSorted((a, b) => a - b).map((status) => [String(status), reference(problemName(status))]),
  )
  return { operationId, summary, ...rest, responses: { ...responses, ...refusals, default: reference("Problem") } }
}

/** The parameter of a path that finds one object. */
export function pathParameter(name: string, description = "Id or name."): Json {
  return { name, in: "path", required: true, schema: { type: "string", minLength: 1 }, description }
}

/** Makes a GET of one record answer 304 to who has it already. */
export const IF_NONE_MATCH: Json = {
  name: "If-None-Match",
  in: "header",
  schema: { type: "string" },
  description: "ETag of an earlier answer: 304 when nothing has changed since.",
}

/** Makes a change conditional. */
export const IF_MATCH: Json = {
  name: "If-Match",
  in: "header",
  schema: { type: "string" },
  description: "ETag of an earlier answer: 412 when something has changed since.",
}

/** An answer with one record and its entity tag. */
export function recordResponse(description: string, content: Json): Json {
  const headers = { ETag: { description: "The record's version.", schema: { type: "string" } } }
  return { description, headers, content }
}

/** The answers of a GET of one record. */
export function recordResponses(description: string, content: Json): Json {
  return { "200": recordResponse(description, content), "304": { description: "Nothing has changed." } }
}

/** The answer to a POST that has made something. */
export function createdResponse(description: string, content: Json): Json {
  const { headers, ...rest } = recordResponse(description, content)
  return { ...rest, headers: { ...(headers as Json), Location: { schema: { type: "string" } } } }
}

/** The header that makes a POST safe to repeat. */
export const IDEMPOTENCY_KEY: Json = {
  name: "Idempotency-Key",
  in: "header",
  schema: { type: "string", minLength: 1, maxLength: 255 },
}

/** The parameters that every list has. */
export function pageParameters(): Json[] {
  return [
    queryParameter("limit", { type: "integer", minimum: 1, maximum: PAGE.maxLimit, default: PAGE.defaultLimit }),
    queryParameter("offset", { type: "integer", minimum: 0, default: 0 }),
  ]
}

export function queryParameter(name: string, schema: Json): Json {
  return { name, in: "query", schema }
}

/** The schema of a page of a list: `{<items>: […], total, offset, limit}`. */
export function pageSchema(items: string, item: string): Json {
  return {
    type: "object",
    required: [items, "total", "offset", "limit"],
    properties: {
      [items]: { type: "array", items: schemaRef(item) },
      total: { type: "integer" },
      offset: { type: "integer" },
      limit: { type: "integer" },
    },
  }
}

/** A schema without the keywords that only the API server or our own messages know, closed as the validator closes it. */
export function published(schema: TSchema): unknown {
  return withoutInternals(JSON.parse(JSON.stringify(schema)))
}

function withoutInternals(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutInternals)
  if (typeof value !== "object" || value === null) return value
  const entries = Object.entries(value)
    .filter(([key]) => !key.startsWith("x-berth-") && !key.startsWith("x-kubernetes-"))
    .map(([key, item]) => [key, withoutInternals(item)] as const)
  const result: Json = Object.fromEntries(entries)
  if (result["type"] !== undefined && typeof result["properties"] === "object") result["additionalProperties"] ??= false
  return result
}
