import type { TSchema } from "typebox"
import { PAGE } from "../query.ts"

/** A part of the OpenAPI document. */
export type Json = Record<string, unknown>

/** A reference to a schema of the document. */
export const schemaRef = (name: string): Json => ({ $ref: `#/components/schemas/${name}` })

/** The content of a JSON body. */
export const json = (name: string): Json => ({ "application/json": { schema: schemaRef(name) } })

/** The content of a request's body, which may be JSON or YAML. */
export const jsonOrYaml = (name: string): Json => ({ ...json(name), "application/yaml": { schema: schemaRef(name) } })

/** One method of a path; every one may answer with a problem. */
export function operation(
  operationId: string,
  summary: string,
  rest: { tags: string[]; responses: Json } & Json,
): Json {
  const responses = { ...rest.responses, default: { $ref: "#/components/responses/Problem" } }
  return { operationId, summary, ...rest, responses }
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
