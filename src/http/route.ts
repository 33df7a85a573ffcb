import type { Request, Response } from "express"
import type { Static, TSchema } from "typebox"
import type { Role } from "../apis/apikey.ts"
import type { KubeObject, Stored } from "../apis/meta.ts"
import { faultsOf } from "../apis/validate.ts"
import { parseBody } from "./body.ts"
import { type Checked, checked, type Rule } from "./checked.ts"
import { namesTag, type Precondition, preconditionOf } from "./entity-tags.ts"
import { bodySchema, type DocumentSchema, type Json } from "./json-schema.ts"
import { jsonText } from "./json-text.ts"
import { badRequest, invalidRequest } from "./problem.ts"
import { Query, type QueryParameters, type QueryValues } from "./query.ts"

/**
 * A REST operation, declared once: `mount` makes its Express route from the declaration, `openapi` its part of the
 * OpenAPI document. Both have the same parameters, body, role and responses, because there is no second place.
 */

/** In the order in which an Allow header has them. */
export const METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"] as const
export type Method = (typeof METHODS)[number]

/** Names of the parameters in a path: `/jobs/{id}` has `id`. */
type PathNames<Path extends string> = Path extends `${string}{${infer Name}}${infer Rest}`
  ? Name | PathNames<Rest>
  : never

/** A parameter of the path. Default: the id or name of an object. */
export interface PathParameter {
  description: string
  /** Validates the value, where not every text is allowed. */
  schema?: TSchema
  example?: string
}

/** A request that passed authentication and the check of its role. */
export interface Admitted<Caller> {
  req: Request
  res: Response
  principal: Caller
  /** Checks the credentials again during a long answer. */
  isStillAdmitted: () => Promise<boolean>
}

/** A request whose parameters and body are valid. */
export interface Call<Caller, Path extends string, Values, Body> extends Admitted<Caller> {
  path: Readonly<Record<PathNames<Path>, string>>
  query: Values
  body: Body
  /** Undefined also where the route is not `idempotent`. */
  idempotencyKey: string | undefined
  /** Undefined also where the route has no `ifMatch`. */
  precondition: Precondition
}

/** What a handler returns; `send` makes the response of it. */
export interface Answer<Body> {
  /** Default: the first status of the route's responses. */
  status?: number
  body: Body
  /** The object that the body shows: its version becomes the entity tag. */
  of?: Pick<Stored<KubeObject>, "metadata">
  /** Tells apart what different callers see of one version. */
  view?: string
  /** Path of the new object, below the API's root. */
  location?: string
  headers?: Readonly<Record<string, string>>
}

/** A response of a route, as the document has it. */
export interface ResponseDeclaration<Body = unknown> {
  description: string
  content?: DocumentSchema<Body>
  /** Default: application/json. */
  mediaType?: string
  /** It shows one object and has its entity tag. */
  hasTag?: boolean
  hasLocation?: boolean
  headers?: Json
  /** Operations that can follow, with their parameters as runtime expressions into this response. */
  links?: Readonly<Record<string, Readonly<Record<string, string>>>>
}

type Responses = Readonly<Record<number, ResponseDeclaration>>
type ResponseBody<R extends Responses> = {
  [Status in keyof R]: R[Status] extends ResponseDeclaration<infer Body> ? Body : never
}[keyof R]

type ResponseExtras = Pick<ResponseDeclaration, "headers" | "links">

/** A JSON response. */
export function json<Body>(
  content: DocumentSchema<Body>,
  description: string,
  extras: ResponseExtras & Pick<ResponseDeclaration, "hasLocation"> = {},
): ResponseDeclaration<Body> {
  return { description, content, ...extras }
}

/** A response with the record of one object. */
export function record<Body>(
  content: DocumentSchema<Body>,
  description: string,
  extras: ResponseExtras = {},
): ResponseDeclaration<Body> {
  return { description, content, hasTag: true, ...extras }
}

/** The response to a POST that made an object. */
export function created<Body>(
  content: DocumentSchema<Body>,
  description: string,
  extras: ResponseExtras = {},
): ResponseDeclaration<Body> {
  return { description, content, hasTag: true, hasLocation: true, ...extras }
}

/** A response without a body: the handler returns nothing. */
export function noContent(description: string): ResponseDeclaration<never> {
  return { description }
}

/** A response in plain text, which the handler writes itself. */
export function text(description: string): ResponseDeclaration<never> {
  return { description, mediaType: "text/plain", content: { json: { type: "string" } } }
}

/** The body that a route takes. */
export interface BodyDeclaration<Body, Caller = unknown, Services = unknown> {
  content: DocumentSchema
  /** The body in words, for the message of a 400, such as "The key". */
  what: string
  description?: string
  check: (value: unknown, context: { principal: Caller; services: Services }) => Checked<Body>
}

interface BodyOptions {
  what: string
  example: unknown
  description?: string
  rules?: readonly Rule<never>[]
}

/** A body of which its schema says everything. */
export function bodyOf<Schema extends TSchema>(
  name: string,
  schema: Schema,
  options: Omit<BodyOptions, "rules">,
): BodyDeclaration<Static<Schema>> {
  const check = (value: unknown) => checked<Static<Schema>>(value, { schema, rules: [], context: undefined })
  return checkedBody(name, schema, { ...options, check })
}

/** A body that code checks, too. Its rules' keywords are in the document. */
export function checkedBody<Body, Caller, Services>(
  name: string,
  schema: TSchema,
  { example, rules = [], ...rest }: BodyOptions & Pick<BodyDeclaration<Body, Caller, Services>, "check">,
): BodyDeclaration<Body, Caller, Services> {
  const keywords = rules.map((rule) => rule.keywords ?? {})
  return { content: { name, json: bodySchema(schema, keywords), example }, ...rest }
}

/** What the document says of an operation. */
export interface Operation {
  id: string
  /** One line, without the role: the document adds it. */
  summary: string
  tag: string
  /** Default: that of the document. */
  security?: readonly Json[] | undefined
  /** The least role in the project that may call it. */
  role?: Role | undefined
  path?: Readonly<Record<string, PathParameter>> | undefined
  query?: QueryParameters | undefined
  body?: Pick<BodyDeclaration<unknown>, "content" | "description"> | undefined
  /** Takes an Idempotency-Key. */
  idempotent?: boolean | undefined
  /** Takes If-Match. */
  ifMatch?: boolean | undefined
  /** Successes by status. */
  responses: Responses
  /** Statuses of its problems, beside those that follow from the rest of the declaration. */
  problems?: readonly number[] | undefined
}

/** The declaration of one operation. */
export type Declaration<
  Caller,
  Services,
  Path extends string,
  Q extends QueryParameters,
  Body,
  R extends Responses,
> = Omit<Operation, "tag" | "security" | "role" | "path" | "body"> & {
  path?: Readonly<Partial<Record<PathNames<Path>, PathParameter>>>
  query?: Q
  body?: BodyDeclaration<Body, Caller, Services>
  responses: R
  /** Returns the answer, or nothing where there is no body or the handler has written it. */
  handle: (call: Call<Caller, Path, QueryValues<Q>, Body>, services: Services) => Handled<Answer<ResponseBody<R>>>
  /**
   * Finds what the same request made before its body was refused by the time or the catalogue.
   * Returns undefined when there is nothing: the body is refused.
   */
  replay?: (call: Call<Caller, Path, QueryValues<Q>, Body>, services: Services) => Handled<Answer<ResponseBody<R>>>
} & (Caller extends { role: Role } ? { role: Role } : { role?: never })

// biome-ignore lint/suspicious/noConfusingVoidType: a handler that answers nothing needs no return statement
type Handled<Result> = Promise<Result | undefined | void> | Result | undefined | void

/** An operation that can be mounted and documented. */
export interface Route<Caller, Services> {
  method: Method
  /** As OpenAPI writes it: `/keys/{key_id}`. */
  path: string
  operation: Operation
  run: (request: Admitted<Caller>, services: Services) => Promise<void>
}

/** Returns `route`, by which the operations of one group are declared. */
export function routesOf<Caller, Services>(group: Pick<Operation, "tag" | "security">) {
  return <
    const Endpoint extends `${Method} /${string}`,
    Body = undefined,
    const Q extends QueryParameters = Record<never, never>,
    R extends Responses = Responses,
  >(
    endpoint: Endpoint,
    declaration: Declaration<Caller, Services, Endpoint, Q, Body, R>,
  ): Route<Caller, Services> => {
    const [method, path] = endpoint.split(" ") as [Method, string]
    const operation: Operation = { ...(declaration as Omit<Operation, "tag">), ...group }
    return { method, path, operation, run: (request, services) => run(path, declaration, request, services) }
  }
}

async function run<Caller, Services, Path extends string, Q extends QueryParameters, Body, R extends Responses>(
  path: string,
  declaration: Declaration<Caller, Services, Path, Q, Body, R>,
  request: Admitted<Caller>,
  services: Services,
): Promise<void> {
  const { req, principal } = request
  const { body: taken, idempotent = false, ifMatch = false } = declaration
  const call = {
    ...request,
    query: new Query(req).values(declaration.query ?? ({} as Q)),
    path: pathOf(req, path, declaration.path) as Call<Caller, Path, unknown, Body>["path"],
    idempotencyKey: idempotent ? idempotencyKeyOf(req) : undefined,
    precondition: ifMatch ? preconditionOf(req) : undefined,
  }
  const body = taken === undefined ? { body: undefined as Body } : taken.check(parseBody(req), { principal, services })
  if (!("faults" in body)) {
    send(request, (await declaration.handle({ ...call, ...body }, services)) || undefined, declaration.responses)
    return
  }
  const { faults, once } = body
  const isRepeated = once !== undefined && call.idempotencyKey !== undefined
  const answer = isRepeated ? await declaration.replay?.({ ...call, body: once }, services) : undefined
  if (!answer) throw invalidRequest(faults, taken?.what)
  send(request, answer, declaration.responses)
}

/** @throws Problem 400 */
function pathOf(req: Request, path: string, declared: Readonly<Record<string, PathParameter | undefined>> = {}) {
  const values = pathNames(path).map((name): [string, string] => [name, String(req.params[name])])
  const faults = values.flatMap(([name, value]) => {
    const schema = declared[name]?.schema
    if (schema === undefined) return []
    return faultsOf(schema, value).map(({ detail }) => ({ pointer: "", detail: `${name}: ${detail}` }))
  })
  if (faults.length > 0) throw invalidRequest(faults, "The path")
  return Object.fromEntries(values)
}

/** The names of the parameters in a path, in their order. */
export function pathNames(path: string): string[] {
  return [...path.matchAll(/\{(\w+)\}/g)].map(([, name = ""]) => name)
}

/** The values that Idempotency-Key may have. An object keeps it, so its length is limited. */
export const IDEMPOTENCY_KEY_PATTERN = "^[!-~]([ -~]{0,253}[!-~])?$"
const ALLOWED_KEY = new RegExp(IDEMPOTENCY_KEY_PATTERN)

/** The request's Idempotency-Key. @throws Problem 400 */
function idempotencyKeyOf(req: Request): string | undefined {
  const header = req.get("Idempotency-Key")
  if (header === undefined || ALLOWED_KEY.test(header)) return header
  throw badRequest("Idempotency-Key must have 1 to 255 printable ASCII characters.")
}

function send(
  { req, res }: Pick<Admitted<unknown>, "req" | "res">,
  answer: Answer<unknown> | undefined,
  responses: Responses,
) {
  if (!answer) {
    if (204 in responses) res.status(204).end()
    return
  }
  const { status = Number(Object.keys(responses)[0]), body, of, view, location, headers } = answer
  if (location !== undefined) res.location(`${req.baseUrl}${location}`)
  if (headers !== undefined) res.set(headers)
  if (of !== undefined && hasVersion(req, res, of.metadata.resourceVersion, view)) res.status(304).end()
  else res.status(status).type("application/json").send(jsonText(body))
}

/** Sets a weak entity tag made of the object's version. True when If-None-Match says that the client has it already. */
function hasVersion(req: Request, res: Response, resourceVersion: string, view: string | undefined): boolean {
  const tag = view === undefined ? resourceVersion : `${resourceVersion}.${view}`
  res.set("ETag", `W/"${tag}"`)
  // Not left to express, which ignores the tag when the request says no-cache: fetch adds that to every If-None-Match.
  return (req.method === "GET" || req.method === "HEAD") && namesTag(req.get("If-None-Match"), tag)
}
