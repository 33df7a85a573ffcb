import express, { type Request, type RequestHandler, type Response, type Router } from "express"
import { ipKeyGenerator, rateLimit } from "express-rate-limit"
import { JWS_CONTENT_TYPE, LOG_CHUNK_BYTES, REFUSALS } from "../agent/protocol.ts"
import { notFound, Problem } from "../facade/problem.ts"
import { Gateway, type GatewayOptions, type Message } from "./gateway.ts"

/** Largest body of a registration or report, bytes: keys and a finish message are all that is in it. */
const MESSAGE_BYTES = 32 * 1024

/** Largest body with a piece of log: base64 in JSON, and that in base64url again. */
const LOGS_BYTES = Math.ceil((LOG_CHUNK_BYTES * 16) / 9) + 4096

/** Messages a minute that one Launch may send: 40 MB of log a minute, and its reports. */
const LAUNCH_LIMIT = 600

/** Messages a minute that may fail from one address: what somebody gets who guesses names, keys or tokens. */
const FAILURE_LIMIT = 300

const LAUNCH_NAME = /^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$/

/**
 * What agents talk to, to be mounted at GATEWAY_PATH. Errors go to the app's own error handler as Problems, so
 * `problemHandler` has to stand behind it. Limits count per replica.
 */
export function gatewayRouter(options: GatewayOptions): Router {
  const gateway = new Gateway(options)
  const router = express.Router()
  router.param("launch", (_req, _res, next, name: string) => {
    next(LAUNCH_NAME.test(name) ? undefined : notFound("There is no Launch of this name."))
  })
  const limits = [failureLimit(), launchLimit()]
  router.post("/launches/:launch/register", limits, jwsBody(MESSAGE_BYTES), async (req: Request, res: Response) => {
    answer(res, await gateway.register(messageOf(req), bearerToken(req)))
  })
  router.post("/launches/:launch/report", limits, jwsBody(MESSAGE_BYTES), async (req: Request, res: Response) => {
    answer(res, await gateway.report(messageOf(req)))
  })
  router.post("/launches/:launch/logs", limits, jwsBody(LOGS_BYTES), async (req: Request, res: Response) => {
    answer(res, await gateway.appendLogs(messageOf(req)))
  })
  router.post("/launches/:launch/volumes", limits, jwsBody(MESSAGE_BYTES), async (req: Request, res: Response) => {
    answer(res, await gateway.renewVolumes(messageOf(req)))
  })
  router.use((_req, _res, next) =>
    next(notFound("Agents POST to launches/{launch}/register, report, logs or volumes.")),
  )
  return router
}

function answer(res: Response, body: object): void {
  res.set("Cache-Control", "no-store").json(body)
}

/** The body as text, with its size limited before anything is parsed. */
function jwsBody(limit: number): RequestHandler[] {
  const isJws: RequestHandler = (req, _res, next) => {
    if (req.is(JWS_CONTENT_TYPE) !== false) return next()
    const detail = `Send a compact JWS as ${JWS_CONTENT_TYPE}.`
    next(new Problem({ type: "unsupported-media-type", status: 415, detail }))
  }
  return [isJws, express.text({ type: JWS_CONTENT_TYPE, limit, inflate: false })]
}

function messageOf(req: Request): Message {
  return { launch: launchOf(req), jws: typeof req.body === "string" ? req.body : "" }
}

function launchOf(req: Request): string {
  return String(req.params["launch"])
}

function bearerToken(req: Request): string | undefined {
  return /^Bearer ([\w-]+)$/.exec(req.get("Authorization") ?? "")?.[1]
}

function launchLimit(): RequestHandler {
  return rateLimit({ windowMs: 60_000, limit: LAUNCH_LIMIT, keyGenerator: launchOf, ...limited("Launch") })
}

function failureLimit(): RequestHandler {
  const finalStatuses: readonly number[] = [400, 413, 415, ...Object.values(REFUSALS)]
  return rateLimit({
    windowMs: 60_000,
    limit: FAILURE_LIMIT,
    keyGenerator: (req) => ipKeyGenerator(req.ip ?? ""),
    skipSuccessfulRequests: true,
    requestWasSuccessful: (_req, res) => !finalStatuses.includes(res.statusCode),
    ...limited("address"),
  })
}

function limited(what: string) {
  const detail = `Too many messages from this ${what}; go on after Retry-After.`
  return {
    standardHeaders: "draft-8" as const,
    legacyHeaders: false,
    handler: ((_req, _res, next) => next(new Problem({ type: "rate-limited", status: 429, detail }))) as RequestHandler,
  }
}
