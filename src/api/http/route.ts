import type { Request, Response } from "express"
import Type, { type Static, type TSchema } from "typebox"
import type { Role } from "../../core/apis/apikey.ts"
import type { KubeObject, Stored } from "../../core/apis/meta.ts"
import { findErrors } from "../../core/apis/validate.ts"
import { hasContent, parseBody } from "./body.ts"
import { type Checked, checked, type Rule } from "./checked.ts"
import { namesTag, type Precondition, readPrecondition } from "./entity-tags.ts"
import { bodySchema, type DocumentSchema, type Json } from "./json-schema.ts"
import { jsonText } from "./json-text.ts"
import { badRequest, invalidRequest } from "./problem.ts"
import type { ProblemType } from "./problem-types.ts"
import { Query, type QueryParameters, type QueryValues } from "./query.ts"

/**
 * Declares each REST operation once. From the declaration, `mount` builds the Express route, and `openapi` the part of
 * the OpenAPI document. Thus both always have the same parameters, body, role and responses.
 */

/** Methods in the order of an Allow header. */
export const METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"] as const
export type Method = (typeof METHODS)[number]

/** Names of the parameters in a path: `/jobs/{id}` has `id`. */
type PathNames<Path extends string> = Path extends `${string}{${infer Name}}${infer Rest}`
  ? Name | PathNames<Rest>
  : never

/** Parameter of the path. Default: the id or name of an object. */
export interface PathParameter {
  description: string
  /** Schema of the value. Undefined: any text is allowed. */
  schema?: TSchema
  example?: string
}

/** Request that has passed authentication and the check of its role. */
export interface AuthenticatedRequest<Caller> {
  req: Request
  res: Response
  principal: Caller
  /** Counts the request as `more` further ones under the caller's limit, by a rule in words. @throws Problem 429 */
  countMore: (more: number, rule: string) => Promise<void>
  /** Aborts when the response is closed: the client has all of it, or has disconnected. */
  closed: AbortSignal
  /** Checks the credentials and their role again during a long response. */
  isStillAuthenticated: () => Promise<boolean>
}

/** Request whose parameters and body are valid. */
export interface Call<Caller, Path extends string, Values, Body> extends AuthenticatedRequest<Caller> {
  path: Readonly<Record<PathNames<Path>, string>>
  query: Values
  body: Body
  /** Idempotency-Key of the request. Undefined also if the route is not `idempotent`. */
  idempotencyKey: string | undefined
  /** Versions in If-Match. Undefined also if the route has no `ifMatch`. */
  precondition: Precondition
}

/** Result of a handler, from which `send` builds the response. */
export interface Answer<Body> {
  /** HTTP status. Default: the first status of the route's responses. */
  status?: number
  body: Body
  /** Object in the body. Its version becomes the entity tag. */
  of?: Pick<Stored<KubeObject>, "metadata">
  /** Suffix of the entity tag, if callers see one version differently. */
  view?: string
  /** Path of the new object, below the API's root. */
  location?: string
  headers?: Readonly<Record<string, string>>
}

/** Response of a route in the document. */
export interface ResponseDeclaration<Body = unknown> {
  description: string
  content?: DocumentSchema<Body>
  /** Media type of the body. Default: application/json. */
  mediaType?: string
  /** Other media type, in text, which the handler writes itself. */
  otherMediaType?: string
  /** True if the response shows one object and has its entity tag. */
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

/** Declares a JSON response. */
export function json<Body>(
  content: DocumentSchema<Body>,
  description: string,
  extras: ResponseExtras & Pick<ResponseDeclaration, "hasLocation" | "otherMediaType"> = {},
): ResponseDeclaration<Body> {
  return { description, content, ...extras }
}

/** Declares a response with the record of one object. */
export function record<Body>(
  content: DocumentSchema<Body>,
  description: string,
  extras: ResponseExtras = {},
): ResponseDeclaration<Body> {
  return { description, content, hasTag: true, ...extras }
}

/** Declares the response to a POST that created an object. */
export function created<Body>(
  content: DocumentSchema<Body>,
  description: string,
  extras: ResponseExtras = {},
): ResponseDeclaration<Body> {
  return { description, content, hasTag: true, hasLocation: true, ...extras }
}

/** Declares a response without a body. The handler returns nothing. */
export function noContent(description: string): ResponseDeclaration<never> {
  return { description }
}

/** Declares a response in plain text, which the handler writes itself. */
export function text(description: string): ResponseDeclaration<never> {
  return { description, mediaType: "text/plain", content: { json: { type: "string" } } }
}

/** Declares a stream of server-sent events, which the handler writes itself. */
export function eventStream(description: string): ResponseDeclaration<never> {
  return { description, mediaType: "text/event-stream", content: { json: { type: "string" } } }
}

/** Body of a route's requests. */
export interface BodyDeclaration<Body, Caller = unknown, Services = unknown> {
  content: DocumentSchema
  /** Words for the body in the message of a 400, such as "The key". */
  what: string
  description?: string
  /** True if a request may come without content, which counts as an empty object. */
  isOptional?: boolean
  check: (value: unknown, context: { principal: Caller; services: Services }) => Checked<Body>
}

interface BodyOptions {
  what: string
  example: unknown
  description?: string
  isOptional?: boolean
  rules?: readonly Rule<never>[]
}

/** Declares a body that only its schema checks. */
export function declareBody<Schema extends TSchema>(
  name: string,
  schema: Schema,
  options: Omit<BodyOptions, "rules">,
): BodyDeclaration<Static<Schema>> {
  const check = (value: unknown) => checked<Static<Schema>>(value, { schema, rules: [], context: undefined })
  return checkedBody(name, schema, { ...options, check })
}

/** Declares a body that code checks, too. The document has the keywords of its rules. */
export function checkedBody<Body, Caller, Services>(
  name: string,
  schema: TSchema,
  { example, rules = [], ...rest }: BodyOptions & Pick<BodyDeclaration<Body, Caller, Services>, "check">,
): BodyDeclaration<Body, Caller, Services> {
  const keywords = rules.map((rule) => rule.keywords ?? {})
  return { content: { name, json: bodySchema(schema, keywords), example }, ...rest }
}

const NOTHING = Type.Object({})

/** Body of a route that declares none: no content, or an empty object. Other content would be dropped, so it is rejected. */
const NO_BODY: Pick<BodyDeclaration<undefined>, "what" | "isOptional" | "check"> = {
  what: "The body, which this operation does not take,",
  isOptional: true,
  check: (value) => {
    const nothing = checked(value, { schema: NOTHING, rules: [], context: undefined })
    return "errors" in nothing ? { errors: nothing.errors } : { body: undefined }
  },
}

/** Body that the handler reads as a stream of bytes. */
export interface StreamDeclaration {
  mediaType: string
  description: string
}

/** Part of an operation that is in the document. */
export interface Operation {
  id: string
  /** One line without the role, which the document adds. */
  summary: string
  tag: string
  /** Servers. Default: those of the document. */
  servers?: readonly Json[] | undefined
  /** Security requirements. Default: those of the document. */
  security?: readonly Json[] | undefined
  /** Lowest role in the project that may call the operation. */
  role?: Role | undefined
  path?: Readonly<Record<string, PathParameter>> | undefined
  query?: QueryParameters | undefined
  body?: Pick<BodyDeclaration<unknown>, "content" | "description" | "isOptional"> | undefined
  /** Body in place of `body`. It is not read into memory, and may be larger than any other. */
  stream?: StreamDeclaration | undefined
  /** True if the operation accepts an Idempotency-Key. */
  idempotent?: boolean | undefined
  /** True if the operation accepts If-Match. */
  ifMatch?: boolean | undefined
  /** True if the operation accepts Last-Event-ID, which its handler reads. */
  resumable?: boolean | undefined
  /** Successful responses by status. */
  responses: Responses
  /** True if the operation creates an object of the project. Its problems follow (`collectProblemTypes`). */
  creates?: boolean | undefined
  /** Types of its problems, in addition to those that follow from the rest of the declaration. */
  problems?: readonly ProblemType[] | undefined
}

/** Declaration of one operation. */
export type Declaration<
  Caller,
  Services,
  Path extends string,
  Q extends QueryParameters,
  Body,
  R extends Responses,
> = Omit<Operation, "tag" | "servers" | "security" | "role" | "path" | "body"> & {
  path?: Readonly<Partial<Record<PathNames<Path>, PathParameter>>>
  query?: Q
  body?: BodyDeclaration<Body, Caller, Services>
  responses: R
  /** Returns the answer, or nothing if there is no body or the handler has written the body. */
  handle: (call: Call<Caller, Path, QueryValues<Q>, Body>, services: Services) => Handled<Answer<ResponseBody<R>>>
  /**
   * Finds the object that the same request created before, when the time or the catalogue did not yet forbid its body.
   * Returns undefined if there is none: the body is rejected.
   */
  replay?: (call: Call<Caller, Path, QueryValues<Q>, Body>, services: Services) => Handled<Answer<ResponseBody<R>>>
} & (Caller extends { role: Role } ? { role: Role } : { role?: never })

// biome-ignore lint/suspicious/noConfusingVoidType: a handler that answers nothing needs no return statement
type Handled<Result> = Promise<Result | undefined | void> | Result | undefined | void

/** Operation that can be mounted and documented. */
export interface Route<Caller, Services> {
  method: Method
  /** Path as OpenAPI writes it: `/keys/{key_id}`. */
  path: string
  operation: Operation
  run: (request: AuthenticatedRequest<Caller>, services: Services) => Promise<void>
}

/** Returns the function `route`, which declares the operations of one group. */
export function routeDeclarer<Caller, Services>(group: Pick<Operation, "tag" | "servers" | "security">) {
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
  request: AuthenticatedRequest<Caller>,
  services: Services,
): Promise<void> {
  const { req, principal } = request
  const { idempotent = false, ifMatch = false } = declaration
  const taken = bodyTakenBy(declaration, req)
  const call = {
    ...request,
    query: new Query(req).values(declaration.query ?? ({} as Q)),
    path: pathOf(req, path, declaration.path) as Call<Caller, Path, unknown, Body>["path"],
    idempotencyKey: idempotent ? idempotencyKeyOf(req) : undefined,
    precondition: ifMatch ? readPrecondition(req) : undefined,
  }
  const body = taken?.check(contentOf(req, taken.isOptional), { principal, services }) ?? { body: undefined as Body }
  if (!("errors" in body)) {
    send(request, (await declaration.handle({ ...call, ...body }, services)) || undefined, declaration.responses)
    return
  }
  const { errors, once } = body
  const isRepeated = once !== undefined && call.idempotencyKey !== undefined
  const answer = isRepeated ? await declaration.replay?.({ ...call, body: once }, services) : undefined
  if (!answer) throw invalidRequest(errors, taken?.what)
  send(request, answer, declaration.responses)
}

/** Returns the body that a route takes. Undefined: the handler reads it, or `mount` reads none for this method. */
function bodyTakenBy<Body, Caller, Services>(
  { body, stream }: { body?: BodyDeclaration<Body, Caller, Services>; stream?: StreamDeclaration | undefined },
  { body: read }: Request,
) {
  if (stream !== undefined || read === undefined) return undefined
  return body ?? (NO_BODY as Omit<BodyDeclaration<Body, Caller, Services>, "content">)
}

/** @throws Problem 400, 415 */
function contentOf(req: Request, isOptional = false): unknown {
  return isOptional && !hasContent(req) ? {} : parseBody(req)
}

/** @throws Problem 400 */
function pathOf(req: Request, path: string, declared: Readonly<Record<string, PathParameter | undefined>> = {}) {
  const values = pathNames(path).map((name): [string, string] => [name, String(req.params[name])])
  const errors = values.flatMap(([name, value]) => {
    const schema = declared[name]?.schema
    if (schema === undefined) return []
    return findErrors(schema, value).map(({ detail }) => ({ pointer: "", detail: `${name}: ${detail}` }))
  })
  if (errors.length > 0) throw invalidRequest(errors, "The path")
  return Object.fromEntries(values)
}

/** Returns the names of the parameters in a path, in their order. */
export function pathNames(path: string): string[] {
  return [...path.matchAll(/\{(\w+)\}/g)].map(([, name = ""]) => name)
}

/** Pattern of an Idempotency-Key. The length is limited, because an object stores the key. */
export const IDEMPOTENCY_KEY_PATTERN = "^[!-~]([ -~]{0,253}[!-~])?$"
const ALLOWED_KEY = new RegExp(IDEMPOTENCY_KEY_PATTERN)

/** @throws Problem 400 */
function idempotencyKeyOf(req: Request): string | undefined {
  const header = req.get("Idempotency-Key")
  if (header === undefined || ALLOWED_KEY.test(header)) return header
  throw badRequest("Idempotency-Key must have 1 to 255 printable ASCII characters.")
}

function send(
  { req, res }: Pick<AuthenticatedRequest<unknown>, "req" | "res">,
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

/** Sets a weak entity tag from the object's version. Returns true if If-None-Match names this tag. */
function hasVersion(req: Request, res: Response, resourceVersion: string, view: string | undefined): boolean {
  const tag = view === undefined ? resourceVersion : `${resourceVersion}.${view}`
  res.set("ETag", `W/"${tag}"`)
  // Express's own check ignores the tag if the request has no-cache, which fetch sends with every If-None-Match.
  return (req.method === "GET" || req.method === "HEAD") && namesTag(req.get("If-None-Match"), tag)
}
