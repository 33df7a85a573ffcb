import type { IRoute, Request, RequestHandler, Response, Router } from "express"
import { type Role, roleAllows } from "../../core/apis/apikey.ts"
import { nextTurn } from "../../core/kube/flow.ts"
import { noteRoute } from "../../core/telemetry/http.ts"
import { forbidden, methodNotAllowed, problemTypeIn } from "./problem.ts"
import { collectProblemTypes } from "./problem-types.ts"
import { METHODS, type Method, type Operation, type Route } from "./route.ts"

/** Checks before every handler: authentication, and a limit of requests. */
export interface Guard<Caller> {
  authenticate: RequestHandler
  limit: RequestHandler
  /** Reads the body into memory. It runs last, so that a caller without rights can't make the server read one. */
  readBody: RequestHandler
  /** Counts a request as `more` further ones under the limit, by a rule in words. @throws Problem 429 */
  countMore: (req: Request, more: number, rule: string) => Promise<void>
  principalOf: (req: Request) => Caller
  /** Returns false if the credentials of an authenticated request are no longer valid, or no longer have the role. */
  isStillAuthenticated: (req: Request, needed?: Role) => Promise<boolean>
}

/** Root of the API's paths on every host. */
export const API_ROOT = "/1"

/**
 * Adds a path to a router. Its label in metrics is the path below API_ROOT, wherever the router is mounted. So a project's
 * id in the address makes no label of its own.
 */
export function routeAt(router: Router, pattern: string): IRoute {
  const route: IRoute = router.route(pattern)
  route.all((_req, res, next) => {
    noteRoute(res, API_ROOT + pattern)
    next()
  })
  return route
}

/** Headers that keep shared caches from storing a response of one caller. Caches don't know X-Service-Api-Key. */
const FOR_THIS_CALLER = { "Cache-Control": "private, no-cache", Vary: "X-Service-Api-Key, Authorization" }

/**
 * Adds routes to a router. Any other method of their paths is a 405 that names the allowed ones. OPTIONS returns the
 * allowed methods. The body is read last, so that a caller without rights can't make the server read one.
 */
export function mount<Caller, Services>(
  router: Router,
  routes: readonly Route<Caller, Services>[],
  guard: Guard<Caller>,
  services: Services,
): void {
  const byPath = Map.groupBy(routes, ({ path }) => path)
  for (const [path, ofPath] of byPath) {
    const pattern = path.replaceAll(/\{(\w+)\}/g, ":$1")
    const route = routeAt(router, pattern)
    route.all((_req, res, next) => {
      res.set(FOR_THIS_CALLER)
      next()
    })
    for (const one of ofPath) put(route, one, guard, services)
    const others = routes.filter((one) => one.path !== path && matches(one.path, path))
    passOn(route, withHead(others.map(({ method }) => method)))
    allowNoOther(route, withHead([...ofPath, ...others].map(({ method }) => method)))
  }
}

/** Returns true if a path with a parameter, such as /jobs/{id}, matches a path without one. */
function matches(pattern: string, path: string): boolean {
  return new RegExp(`^${pattern.replaceAll(/\{\w+\}/g, "[^/{}]+")}$`).test(path)
}

/** Returns the methods in the order of an Allow header. */
function withHead(methods: readonly Method[]): string[] {
  const ordered = METHODS.filter((method) => methods.includes(method))
  return ordered.flatMap((method) => (method === "GET" ? [method, "HEAD"] : [method]))
}

/** Leaves these methods of a path to the next path that matches: an object may have the path's last part as its name. */
function passOn(route: IRoute, methods: readonly string[]): void {
  if (methods.length === 0) return
  route.all((req, _res, next) => (methods.includes(req.method) ? next("route") : next()))
}

function put<Caller, Services>(
  route: IRoute,
  { method, operation, run }: Route<Caller, Services>,
  { authenticate, limit, readBody, countMore, principalOf, isStillAuthenticated }: Guard<Caller>,
  services: Services,
): void {
  const name = method.toLowerCase() as Lowercase<Method>
  route[name](requireDeclared({ method, operation }), authenticate, limit)
  if (operation.role !== undefined) route[name](requireRole(operation.role, principalOf))
  if (readsBody(method) && operation.stream === undefined) route[name](readBody)
  route[name](async (req, res) => {
    const closed = closing(res)
    await nextTurn()
    await run(
      {
        req,
        res,
        principal: principalOf(req),
        countMore: (more, rule) => countMore(req, more, rule),
        closed,
        isStillAuthenticated: () => isStillAuthenticated(req, operation.role),
      },
      services,
    )
  })
}

/** Returns a signal that aborts when a response is closed. */
function closing(res: Response): AbortSignal {
  const closed = new AbortController()
  if (res.closed) closed.abort()
  else res.once("close", () => closed.abort())
  return closed.signal
}

/** Words of the log line about a response that an operation does not declare. Tests look for them. */
export const UNDECLARED = "the operation does not declare this response"

/** Logs an error if the response is none that the operation declares: the OpenAPI document lacks it. */
function requireDeclared(route: Pick<Route<never, never>, "method" | "operation">): RequestHandler {
  const { id, responses } = route.operation
  const problems = problemTypes(route)
  return (req, res, next) => {
    res.once("finish", () => {
      const { statusCode: status } = res
      const type = problemTypeIn(res)
      const isDeclared = type === undefined ? status in responses : problems.has(type)
      if (isDeclared || (status === 304 && isTagged(route))) return
      req.log.error({ operation: id, status, type }, UNDECLARED)
    })
    next()
  }
}

/** Returns the types of the problems of an operation. */
export function problemTypes({ method, operation }: Pick<Route<never, never>, "method" | "operation">): Set<string> {
  return collectProblemTypes({ ...operation, readsBody: readsBody(method) })
}

/** Returns true for an operation whose response may be a 304, because the record has not changed. */
export function isTagged({ method, operation }: { method: Method; operation: Pick<Operation, "responses"> }): boolean {
  return method === "GET" && Object.values(operation.responses).some(({ hasTag }) => hasTag)
}

/**
 * True for the methods whose body is read. An operation that takes none rejects it. That of a GET can't change its
 * meaning (RFC 9110, section 9.3.1), so it is ignored.
 */
export function readsBody(method: Method): boolean {
  return method !== "GET"
}

/** Handles all other methods of a path: OPTIONS returns the allowed ones, the rest are a 405 that names them. */
export function allowNoOther(route: IRoute, methods: readonly string[]): void {
  const allow = [...methods, "OPTIONS"].join(", ")
  route.options((_req, res) => {
    res.set("Allow", allow).status(204).end()
  })
  route.all((req) => {
    throw methodNotAllowed(req.method, allow)
  })
}

function requireRole(needed: Role, principalOf: (req: Request) => unknown): RequestHandler {
  return (req, _res, next) => {
    const { role } = principalOf(req) as { role: Role }
    if (!roleAllows(role, needed)) throw forbidden(`This request needs the role ${needed} or higher; yours is ${role}.`)
    next()
  }
}
