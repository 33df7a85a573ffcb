import { defined } from "../../core/apis/defined.ts"
import { COMPONENT } from "../../core/apis/schema.ts"
import { type DocumentSchema, type Json, publicSchema, referenceTo, withReferences } from "./json-schema.ts"
import { isTagged, problemTypes } from "./mount.ts"
import { statusesOf } from "./problem-types.ts"
import { IDEMPOTENCY_KEY_PATTERN, type Operation, pathNames, type ResponseDeclaration, type Route } from "./route.ts"

/** Builds the part of an OpenAPI document that follows from the routes' declarations. */

/** Part of a route that the document needs. */
export type Described = Pick<Route<never, never>, "method" | "path" | "operation">

/** Returns the paths of the routes, and the schemas that these refer to. @throws Error if two schemas have one name */
export function described(routes: readonly Described[]): { paths: Json; schemas: Json } {
  const paths: Record<string, Json> = {}
  for (const route of routes) {
    const methods = paths[route.path] ?? {}
    methods[route.method.toLowerCase()] = describeOperation(route)
    paths[route.path] = methods
  }
  const schemas: Json = {}
  for (const schema of routes.flatMap(schemasOf)) collect(schema, schemas)
  return { paths, schemas }
}

function schemasOf({ operation }: Described): DocumentSchema[] {
  const contents = Object.values(operation.responses).flatMap(({ content }) => content ?? [])
  return operation.body === undefined ? contents : [operation.body.content, ...contents]
}

function collect({ name, json: whole, parts = [] }: DocumentSchema, schemas: Json): void {
  const { [COMPONENT]: _, ...own } = whole
  const { json, parts: inner } = withReferences(own)
  for (const part of [...parts, ...inner]) collect(part, schemas)
  if (name === undefined) return
  const known = schemas[name]
  if (known !== undefined && JSON.stringify(known) !== JSON.stringify(json)) {
    throw new Error(`two schemas of the document are called ${name}`)
  }
  schemas[name] = json
}

function describeOperation({ method, path, operation }: Described): Json {
  const { id, summary, tag, servers, security, role, body, stream, responses } = operation
  const parameters = describeParameters(method, path, operation)
  // There is no default response, which would hide a forgotten status.
  const refusals = statusesOf(problemTypes({ method, operation })).map((status): [string, Json] => [
    String(status),
    { $ref: `#/components/responses/${problemName(status)}` },
  ])
  return {
    operationId: id,
    summary,
    ...(role !== undefined && { description: `Needs the role ${role}${role === "admin" ? "" : " or higher"}.` }),
    tags: [tag],
    ...defined({ servers, security, "x-required-role": role }),
    ...(parameters.length > 0 && { parameters }),
    ...(body !== undefined && { requestBody: describeRequestBody(body) }),
    ...(stream !== undefined && { requestBody: describeStreamBody(stream) }),
    responses: { ...describeSuccesses(method, responses), ...Object.fromEntries(refusals) },
  }
}

function describeRequestBody({ content, description, isOptional = false }: NonNullable<Operation["body"]>): Json {
  const schema = referenceTo(content)
  return {
    required: !isOptional,
    ...defined({ description }),
    content: { "application/json": { schema, example: content.example }, "application/yaml": { schema } },
  }
}

function describeStreamBody({ mediaType, description }: NonNullable<Operation["stream"]>): Json {
  const schema = { type: "string", format: "binary" }
  return { required: true, description, content: { [mediaType]: { schema } } }
}

function describeParameters(method: Described["method"], path: string, operation: Operation): Json[] {
  const query = Object.entries(operation.query ?? {}).map(([name, { schema, description }]) => ({
    name,
    in: "query",
    schema,
    ...defined({ description }),
  }))
  return [
    ...pathNames(path).map((name) => pathParameter(name, operation.path?.[name])),
    ...query,
    ...(isTagged({ method, operation }) ? [IF_NONE_MATCH] : []),
    ...(operation.idempotent ? [IDEMPOTENCY_KEY] : []),
    ...(operation.ifMatch ? [IF_MATCH] : []),
    ...(operation.resumable ? [LAST_EVENT_ID] : []),
  ]
}

function pathParameter(name: string, declared: NonNullable<Operation["path"]>[string] | undefined): Json {
  const { description = "Id or name.", schema, example } = declared ?? {}
  const json = schema === undefined ? { type: "string", minLength: 1 } : publicSchema(schema)
  const examples = example === undefined ? {} : { examples: [example] }
  return { name, in: "path", required: true, schema: { ...json, ...examples }, description }
}

/** Header with which a GET of one record returns 304 if the record has not changed. */
const IF_NONE_MATCH: Json = {
  name: "If-None-Match",
  in: "header",
  schema: { type: "string" },
  example: 'W/"4711"',
  description: "ETag of an earlier response: 304 if nothing has changed since.",
}

/** Header that makes a change conditional. */
const IF_MATCH: Json = {
  name: "If-Match",
  in: "header",
  schema: { type: "string" },
  example: 'W/"4711"',
  description: "ETag of an earlier response: 412 if the object has changed since.",
}

/** Header that resumes a stream of events. */
const LAST_EVENT_ID: Json = {
  name: "Last-Event-ID",
  in: "header",
  schema: { type: "string" },
  description: "id of the last event of an earlier response. The stream continues after it.",
}

/** Header that makes a POST safe to repeat. */
const IDEMPOTENCY_KEY: Json = {
  name: "Idempotency-Key",
  in: "header",
  schema: { type: "string", pattern: IDEMPOTENCY_KEY_PATTERN },
}

const ETAG: Json = {
  ETag: { description: "Version of the record.", required: true, schema: { type: "string", pattern: '^W/"[^"]+"$' } },
}
const LOCATION: Json = { Location: { required: true, schema: { type: "string", format: "uri-reference" } } }

/** Header of every response. */
const REQUEST_ID: Json = { "X-Request-Id": { $ref: "#/components/headers/RequestId" } }

function describeSuccesses(method: Described["method"], responses: Operation["responses"]): Json {
  const entries = Object.entries(responses).map(([status, response]) => [status, describeResponse(response)])
  const unchanged = { description: "Nothing has changed.", headers: REQUEST_ID }
  return { ...Object.fromEntries(entries), ...(isTagged({ method, operation: { responses } }) && { 304: unchanged }) }
}

function describeResponse(response: ResponseDeclaration): Json {
  const {
    description,
    content,
    mediaType = "application/json",
    otherMediaType,
    hasTag,
    hasLocation,
    headers,
    links,
  } = response
  const example = content?.example === undefined ? {} : { example: content.example }
  return {
    description,
    headers: { ...(hasTag && ETAG), ...(hasLocation && LOCATION), ...headers, ...REQUEST_ID },
    ...(content !== undefined && {
      content: {
        [mediaType]: { schema: referenceTo(content), ...example },
        ...(otherMediaType !== undefined && { [otherMediaType]: { schema: { type: "string" } } }),
      },
    }),
    ...(links !== undefined && { links: describeLinks(links) }),
  }
}

function describeLinks(links: NonNullable<ResponseDeclaration["links"]>): Json {
  const entries = Object.entries(links).map(([operationId, parameters]) => [operationId, { operationId, parameters }])
  return Object.fromEntries(entries)
}

/** Error responses by status, with their meaning and the headers that they always have. */
const PROBLEMS: Readonly<Record<number, { description: string; headers?: readonly string[] }>> = {
  400: { description: "The request is not valid. The response lists all its errors." },
  401: {
    description: "The request has no credentials, or they are not valid for this project.",
    headers: ["WWW-Authenticate"],
  },
  403: { description: "The caller's role does not allow this request." },
  404: { description: "No object has this id or name." },
  409: { description: "The name is in use, or the object's state does not allow this request." },
  412: { description: "The object is not at the version in If-Match." },
  413: { description: "The body is too large." },
  415: { description: "The media type of the body is not supported.", headers: ["Accept-Post"] },
  422: { description: "The Idempotency-Key was used with another body." },
  429: { description: "Too many requests.", headers: ["Retry-After", "RateLimit", "RateLimit-Policy"] },
  500: { description: "Internal error. The server's log has it under the request's id." },
  503: { description: "The Kubernetes API is unavailable. Retry after `Retry-After`.", headers: ["Retry-After"] },
}

const problemName = (status: number): string => `Problem${status}`

/** Returns the parts of the document that operations refer to, except schemas. */
export function sharedParts(): { headers: Json; responses: Json } {
  const content = { "application/problem+json": { schema: { $ref: "#/components/schemas/Problem" } } }
  const responses = Object.entries(PROBLEMS).map(([status, { description, headers = [] }]) => {
    const own = Object.fromEntries(headers.map((name) => [name, { required: true, schema: { type: "string" } }]))
    return [problemName(Number(status)), { description, headers: { ...own, ...REQUEST_ID }, content }]
  })
  const RequestId = {
    description: "Id of the request: the caller's X-Request-Id, or a generated one.",
    required: true,
    schema: { type: "string", pattern: "^[A-Za-z0-9._-]{1,128}$" },
  }
  return { headers: { RequestId }, responses: Object.fromEntries(responses) }
}
