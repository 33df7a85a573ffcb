import express, {
  type ErrorRequestHandler,
  type Request,
  type RequestHandler,
  type Response,
  type Router,
} from "express"
import { rateLimit } from "express-rate-limit"
import { JWS_CONTENT_TYPE, LOG_CHUNK_BYTES } from "../agent/protocol.ts"
import { FailureLimit } from "../facade/limits.ts"
import { notFound, Problem } from "../facade/problem.ts"
import { bootFailureHandlers } from "./boot-failure.ts"
import { Gateway, type GatewayOptions, type Message } from "./gateway.ts"
import type { Launches } from "./launches.ts"

/** Largest body of a registration or report, bytes: keys and a finish message are all that is in it. */
const MESSAGE_BYTES = 32 * 1024

/** Largest body with a piece of log: base64 in JSON, and that in base64url again. */
const LOGS_BYTES = Math.ceil((LOG_CHUNK_BYTES * 16) / 9) + 4096

/** Messages a minute that one Launch may send: 40 MB of log a minute, and its reports. */
const LAUNCH_LIMIT = 600

/** What the messages of somebody who guesses names, keys or tokens are answered, and how many a minute of one address. */
const GUESSES = { statuses: [400, 401, 404, 413, 415], perMinute: 300, failures: "messages that are nobody's" }

const LAUNCH_NAME = /^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$/

/**
 * What agents talk to, to be mounted at GATEWAY_PATH. Errors go to the app's own error handler as Problems, so
 * `problemHandler` has to stand behind it. Limits count per replica.
 */
export function gatewayRouter(options: GatewayOptions): Router {
  const gateway = new Gateway(options)
  const guesses = new FailureLimit(GUESSES)
  const fromKnown: RequestHandler = async (req, _res, next) => {
    if (gateway.cachedBound(launchOf(req)) === undefined) await guesses.refuseSuspect(req)
    next()
  }
  const countGuesses: ErrorRequestHandler = async (error: unknown, req, _res, next) => {
    next(await guesses.answerTo(error, req))
  }
  const router = express.Router()
  router.param("launch", (_req, _res, next, name: string) => {
    next(LAUNCH_NAME.test(name) ? undefined : notFound("There is no Launch of this name."))
  })
  const perLaunch = launchLimit(options.launches)
  const limits = [fromKnown, perLaunch]
  // Whether a token is good costs no read.
  router.post("/launches/:launch/register", perLaunch, jwsBody(MESSAGE_BYTES), async (req: Request, res: Response) => {
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
  router.post("/launches/:launch/boot-failure", perLaunch, bootFailureHandlers(options))
  router.use((_req, _res, next) =>
    next(notFound("Agents POST to launches/{launch}/register, report, logs or volumes; VMs to boot-failure.")),
  )
  router.use(countGuesses)
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

/** Names that are no Launch's are left to the limit of guesses, and take no memory here. */
function launchLimit(launches: Pick<Launches, "get">): RequestHandler {
  const detail = "Too many messages from this Launch; go on after Retry-After."
  return rateLimit({
    windowMs: 60_000,
    limit: LAUNCH_LIMIT,
    keyGenerator: launchOf,
    skip: (req) => launches.get(launchOf(req)) === undefined,
    standardHeaders: "draft-8",
    legacyHeaders: false,
    handler: (_req, _res, next) => next(new Problem({ type: "rate-limited", status: 429, detail })),
  })
}
