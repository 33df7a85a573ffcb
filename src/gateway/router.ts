import express, {
  type ErrorRequestHandler,
  type Request,
  type RequestHandler,
  type Response,
  type Router,
} from "express"
import { JWS_CONTENT_TYPE, LOG_CHUNK_BYTES, type MessageKind } from "../agent/protocol.ts"
import { FailureLimit } from "../http/limits.ts"
import { notFound, Problem } from "../http/problem.ts"
import { bootFailureHandlers } from "./boot-failure.ts"
import { type AdmittedKind, Gateway, type GatewayOptions, type Message } from "./gateway.ts"

/** Largest body of a registration or report, bytes: keys and a finish message are all that is in it. */
const MESSAGE_BYTES = 32 * 1024

/** Largest body with a piece of log: base64 in JSON, and that in base64url again. */
const LOGS_BYTES = Math.ceil((LOG_CHUNK_BYTES * 16) / 9) + 4096

/** Answers to messages that are forged or broken, and how many of them one address gets per minute. */
const FAILURES = { statuses: [400, 401, 404, 413, 415], perMinute: 300, failures: "unauthenticated messages" }

const LAUNCH_NAME = /^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$/

/**
 * What agents talk to, to be mounted at GATEWAY_PATH. Errors go to the app's own error handler as Problems, so
 * `problemHandler` has to stand behind it. Limits count per replica.
 */
export function gatewayRouter(options: GatewayOptions): Router {
  const gateway = new Gateway(options)
  const failures = new FailureLimit(FAILURES)
  const router = express.Router()
  router.param("launch", (_req, _res, next, name: string) => {
    next(LAUNCH_NAME.test(name) ? undefined : notFound("There is no Launch of this name."))
  })
  const admit = (kind: AdmittedKind): RequestHandler => {
    return async (req, res, next) => {
      const sender = { token: bearerToken(req), isSuspect: await failures.areTooMany(req) }
      noteFromVm(res, await gateway.admit(kind, launchOf(req), sender))
      next()
    }
  }
  const take = (kind: MessageKind, limit: number, act: (message: Message) => Promise<object>) => {
    router.post(`/launches/:launch/${kind}`, admit(kind), jwsBody(limit), async (req: Request, res: Response) => {
      const sender = { isFromVm: isFromVm(res), isSuspect: await failures.areTooMany(req) }
      answer(res, await act({ launch: launchOf(req), jws: typeof req.body === "string" ? req.body : "", ...sender }))
    })
  }
  take("register", MESSAGE_BYTES, (message) => gateway.register(message))
  take("report", MESSAGE_BYTES, (message) => gateway.report(message))
  take("logs", LOGS_BYTES, (message) => gateway.appendLogs(message))
  take("volumes", MESSAGE_BYTES, (message) => gateway.renewVolumes(message))
  router.post("/launches/:launch/boot-failure", admit("boot-failure"), bootFailureHandlers(options))
  router.use((_req, _res, next) =>
    next(notFound("Agents POST to launches/{launch}/register, report, logs or volumes; VMs to boot-failure.")),
  )
  const countFailure: ErrorRequestHandler = async (error: unknown, req, res, next) => {
    next(isFromVm(res) ? error : await failures.answerTo(error, req))
  }
  router.use(countFailure)
  return router
}

/** Notes that the sender has shown the Launch's token: then neither its address nor others' failures matter. */
function noteFromVm(res: Response, isProven: boolean): void {
  res.locals["fromVm"] = isProven
}

function isFromVm(res: Response): boolean {
  return res.locals["fromVm"] === true
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

function launchOf(req: Request): string {
  return String(req.params["launch"])
}

function bearerToken(req: Request): string | undefined {
  return /^Bearer ([\w-]+)$/.exec(req.get("Authorization") ?? "")?.[1]
}
