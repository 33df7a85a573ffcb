import type { TSchema } from "typebox"
import { PAGE, type PageSizes } from "../../http/query.ts"
import { IDEMPOTENCY_KEY_PATTERN } from "../../http/route.ts"
import type { Additions } from "../../http/json-schema.ts"

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

/** The answers that are no success, by status: what each means, and the headers that always come with it. */
const PROBLEMS: Readonly<Record<number, { description: string; headers?: readonly string[] }>> = {
  400: { description: "The request is not valid; all its faults are named." },
  401: { description: "No credentials, or none that are good for this host.", headers: ["WWW-Authenticate"] },
  403: { description: "The key's role does not allow this." },
  404: { description: "There is none of this id or name." },
  409: { description: "The name is taken, or the state does not allow this." },
  412: { description: "It is not at the version that If-Match names." },
  413: { description: "The body is too large." },
  415: { description: "The body is of a media type that is not taken here.", headers: ["Accept-Post"] },
  422: { description: "The Idempotency-Key was used for another body." },
  429: { description: "Too many requests.", headers: ["Retry-After", "RateLimit", "RateLimit-Policy"] },
  500: { description: "A fault on our side; the log has it under the request's id." },
  503: { description: "The API server is away; try again.", headers: ["Retry-After"] },
}

const EVERYWHERE = [400, 401, 403, 429, 500, 503]
const WITH_BODY = [413, 415]

const problemName = (status: number): string => `Problem${status}`

/** The answers that operations refer to. */
export function problemResponses(): Json {
  const content = { "application/problem+json": { schema: schemaRef("Problem") } }
  const named = Object.entries(PROBLEMS).map(([status, { description, headers = [] }]) => {
    const described = Object.fromEntries(headers.map((name) => [name, { required: true, schema: { type: "string" } }]))
    return [problemName(Number(status)), { description, headers: { ...described, ...REQUEST_ID }, content }]
  })
  return Object.fromEntries(named)
}

/** A header of every answer there is. */
const REQUEST_ID: Json = { "X-Request-Id": { $ref: "#/components/headers/RequestId" } }

/** The headers that answers refer to. */
export function answerHeaders(): Json {
  return {
    RequestId: {
      description: "The request's id: the caller's own X-Request-Id where it sent one, else one that was made.",
      required: true,
      schema: { type: "string", pattern: "^[A-Za-z0-9._-]{1,128}$" },
    },
  }
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

/** One method of a path, with every status that it may answer: there is no default for what was forgotten. */
export function operation(operationId: string, summary: string, parts: OperationParts): Json {
  const { problems = [], responses, ...rest } = parts
  const statuses = [...EVERYWHERE, ...(rest.requestBody === undefined ? [] : WITH_BODY), ...problems]
  const successes = Object.entries(responses).map(([status, response]) => {
    const { headers, ...others } = response as Json
    return [status, { ...others, headers: { ...(headers as Json), ...REQUEST_ID } }]
  })
  const refusals = statuses
    .toSorted((a, b) => a - b)
    .map((status) => [String(status), { $ref: `#/components/responses/${problemName(status)}` }])
  return { operationId, summary, ...rest, responses: Object.fromEntries([...successes, ...refusals]) }
}

/** What can be done next with what an answer holds: parameters of other operations, by runtime expressions into it. */
export function links(operations: Readonly<Record<string, Readonly<Record<string, string>>>>): Json {
  const entries = Object.entries(operations).map(([operationId, parameters]) => [
    operationId,
    { operationId, parameters },
  ])
  return { links: Object.fromEntries(entries) }
}

/** The parameter of a path that finds one object. */
export function pathParameter(
  name: string,
  description = "Id or name.",
  schema: Json = { type: "string", minLength: 1 },
): Json {
  return { name, in: "path", required: true, schema, description }
}

/** Makes a GET of one record answer 304 to who has it already. */
export const IF_NONE_MATCH: Json = {
  name: "If-None-Match",
  in: "header",
  schema: { type: "string" },
  example: 'W/"4711"',
  description: "ETag of an earlier answer: 304 when nothing has changed since.",
}

/** Makes a change conditional. */
export const IF_MATCH: Json = {
  name: "If-Match",
  in: "header",
  schema: { type: "string" },
  example: 'W/"4711"',
  description: "ETag of an earlier answer: 412 when something has changed since.",
}

/** An answer with one record and its entity tag. */
export function recordResponse(description: string, content: Json): Json {
  const headers = {
    ETag: { description: "The record's version.", required: true, schema: { type: "string", pattern: '^W/"[^"]+"$' } },
  }
  return { description, headers, content }
}

/** The answers of a GET of one record. */
export function recordResponses(description: string, content: Json): Json {
  return { "200": recordResponse(description, content), "304": { description: "Nothing has changed." } }
}

/** The answer to a POST that has made something and shows its record. */
export function createdResponse(description: string, content: Json): Json {
  const { headers, ...rest } = recordResponse(description, content)
  return { ...rest, headers: { ...(headers as Json), ...LOCATION } }
}

/** Where what was made is. */
export const LOCATION: Json = { Location: { required: true, schema: { type: "string", format: "uri-reference" } } }

/** The header that makes a POST safe to repeat. */
export const IDEMPOTENCY_KEY: Json = {
  name: "Idempotency-Key",
  in: "header",
  schema: { type: "string", pattern: IDEMPOTENCY_KEY_PATTERN },
}

/** The parameters that every list has. */
export function pageParameters({ maxLimit, defaultLimit }: PageSizes = PAGE): Json[] {
  return [
    queryParameter("limit", { type: "integer", minimum: 1, maximum: maxLimit, default: defaultLimit }),
    queryParameter("offset", { type: "integer", minimum: 0, maximum: Number.MAX_SAFE_INTEGER, default: 0 }),
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

/**
 * The schema of a request's body: as `published`, with what is checked beside it, and null allowed for every field that
 * may be left out, which is the same. Throws when there is nothing at a pointer of `rules`.
 */
export function bodySchema(schema: TSchema, rules: Additions = {}): Json {
  return withNulls(amended(published(schema), rules)) as Json
}

function withNulls(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withNulls)
  if (typeof value !== "object" || value === null) return value
  const result = Object.fromEntries(Object.entries(value).map(([key, item]) => [key, withNulls(item)])) as Json
  const { properties, required = [] } = result as { properties?: Json; required?: string[] }
  if (typeof properties === "object")
    for (const [name, field] of Object.entries(properties))
      if (!required.includes(name)) properties[name] = orNull(field as Json)
  return result
}

function orNull(schema: Json): Json {
  const { anyOf } = schema as { anyOf?: Json[] }
  if (anyOf !== undefined && schema["type"] === undefined) return { ...schema, anyOf: [...anyOf, { type: "null" }] }
  const types = [schema["type"]].flat()
  if (schema["type"] === undefined || types.includes("null")) return schema
  const values = schema["enum"] as unknown[] | undefined
  return { ...schema, type: [...types, "null"], ...(values !== undefined && { enum: [...values, null] }) }
}

/** A schema with keywords set at places within it; undefined takes one away. */
function amended(schema: Json, rules: Additions): Json {
  const copy = structuredClone(schema)
  for (const [pointer, keywords] of Object.entries(rules)) {
    const place = pointer
      .split("/")
      .slice(1)
      .reduce<unknown>((inside, key) => (inside as Json | undefined)?.[key], copy)
    if (typeof place !== "object" || place === null) throw new Error(`the schema has nothing at ${pointer}`)
    Object.assign(place, keywords)
  }
  return copy
}

/** A schema without the keywords that only the API server or our own messages know, closed as the validator closes it. */
export function published(schema: TSchema): Json {
  return withoutInternals(JSON.parse(JSON.stringify(schema))) as Json
}

function withoutInternals(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutInternals)
  if (typeof value !== "object" || value === null) return value
  const entries = Object.entries(value)
    .filter(([key]) => !key.startsWith("x-berth-") && !key.startsWith("x-kubernetes-"))
    .map(([key, item]) => [key, withoutInternals(item)] as const)
  const result: Json = Object.fromEntries(entries)
  if (result["type"] !== undefined && typeof result["properties"] === "object") result["additionalProperties"] ??= false
  return apart(result)
}

/** Keywords that say something of one type of value alone. */
const KEYWORDS_OF: Readonly<Record<string, readonly string[]>> = {
  string: ["minLength", "maxLength", "pattern", "format", "enum"],
  array: ["items", "minItems", "maxItems"],
  object: ["properties", "required", "additionalProperties", "minProperties", "maxProperties", "dependentRequired"],
}

/** A schema of several types as a choice of one for each: readers and generators of code know what to do with that. */
function apart(schema: Json): Json {
  const types = [schema["type"]].flat().filter((type) => typeof type === "string")
  if (!types.includes("string") || !types.some((type) => type === "array" || type === "object")) return schema
  const { type: _, ...all } = schema
  const entries = Object.entries(all)
  const anyOf = types.map((type) => ({
    type,
    ...Object.fromEntries(entries.filter(([keyword]) => KEYWORDS_OF[type]?.includes(keyword))),
  }))
  const specific = Object.values(KEYWORDS_OF).flat()
  return { ...Object.fromEntries(entries.filter(([keyword]) => !specific.includes(keyword))), anyOf }
}
