import type { IRoute, Request, RequestHandler, Response, Router } from "express"
import type { Role } from "../apis/apikey.ts"
import { roleAllows } from "../apis/apikey.ts"
import type { KubeObject, Stored } from "../apis/meta.ts"
import { readBody } from "../http/body.ts"
import { namesTag } from "../http/entity-tags.ts"
import { forbidden, methodNotAllowed } from "../http/problem.ts"
import type { Principal } from "../identity/principal.ts"
import { noteRoute } from "../telemetry/http.ts"

/** A request whose caller is known and may make it. */
export interface Call<Caller = Principal> {
  req: Request
  res: Response
  principal: Caller
}

/** What one method of a path does. Where callers have a role in the project, it says the least one that may. */
export type Operation<Caller = Principal> = {
  handle: (call: Call<Caller>) => Promise<void> | void
} & (Caller extends { role: Role } ? { role: Role } : { role?: never })

export type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE"

/** What every operation passes first: who calls, and not too often. */
export interface Admission<Caller = Principal> {
  authenticate: RequestHandler
  limit: RequestHandler
  principalOf: (req: Request) => Caller
  /** Asked during a long answer: false when the credentials are not good any more. */
  isStillAdmitted: (req: Request) => Promise<boolean>
}

/** What is answered depends on the caller, and no cache between may keep it: its key is in a header of our own. */
const FOR_THIS_CALLER = { "Cache-Control": "private, no-cache", Vary: "X-Service-Api-Key, Authorization" }

/**
 * Puts a path's operations on a router. Any other method is a 405 that names them, OPTIONS answers the same without a
 * fault. The body is read last, so that nobody unknown makes us read one.
 */
export function endpoint<Caller = Principal>(
  router: Router,
  path: string,
  operations: Partial<Record<Method, Operation<Caller>>>,
  { authenticate, limit, principalOf }: Admission<Caller>,
): void {
  const route = router.route(path)
  const allowed: string[] = []
  route.all((req, res, next) => {
    noteRoute(res, req.baseUrl + path)
    res.set(FOR_THIS_CALLER)
    next()
  })
  for (const [method, operation] of Object.entries(operations)) {
    const name = method.toLowerCase() as Lowercase<Method>
    route[name](authenticate, limit)
    if (operation.role !== undefined) route[name](requireRole(operation.role, principalOf))
    if (method !== "GET" && method !== "DELETE") route[name](readBody)
    route[name]((req, res) => operation.handle({ req, res, principal: principalOf(req) }))
    allowed.push(method)
    if (method === "GET") allowed.push("HEAD")
  }
  allowNoOther(route, allowed)
}

/** Answers all other methods of a path: OPTIONS with those that there are, the rest with a 405 that names them. */
export function allowNoOther(route: IRoute, methods: readonly string[]): void {
  const allow = [...methods, "OPTIONS"].join(", ")
  route.options((_req, res) => {
    res.set("Allow", allow).status(204).end()
  })
  route.all((req) => {
    throw methodNotAllowed(req.method, allow)
  })
}

function requireRole(needed: Role, principalOf: (req: Request) => { role?: Role } | unknown): RequestHandler {
  return (req, _res, next) => {
    const { role } = principalOf(req) as Pick<Principal, "role">
    if (!roleAllows(role, needed)) throw forbidden(`This needs the role ${needed} or higher; yours is ${role}.`)
    next()
  }
}

/**
 * Answers with the record of one object, under a weak entity tag made of its version, so that If-None-Match gets a 304
 * for what the client has already. `view` tells apart what different callers see of the same version.
 */
export function sendRecord(
  { req, res }: Pick<Call, "req" | "res">,
  { metadata }: Pick<Stored<KubeObject>, "metadata">,
  { record, status = 200, view }: SentRecord,
): void {
  const tag = view === undefined ? metadata.resourceVersion : `${metadata.resourceVersion}.${view}`
  res.set("ETag", `W/"${tag}"`)
  // Not left to express, which looks away when the request says no-cache: fetch adds that to every If-None-Match.
  const isKnown = (req.method === "GET" || req.method === "HEAD") && namesTag(req.get("If-None-Match"), tag)
  if (isKnown) res.status(304).end()
  else res.status(status).json(record)
}

export interface SentRecord {
  record: object
  /** Default 200. */
  status?: number
  view?: string
}

/** The value of a parameter in the path. */
export function pathParameter(req: Request, name: string): string {
  return String(req.params[name])
}
