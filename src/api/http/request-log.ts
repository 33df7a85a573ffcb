import { randomUUID } from "node:crypto"
import type { IncomingMessage } from "node:http"
import type { RequestHandler } from "express"
import { pinoHttp } from "pino-http"
import type { Logger } from "../../core/telemetry/logger.ts"

/** Pattern of the request ids that a caller may choose. Other ids are replaced. */
const REQUEST_ID = /^[A-Za-z0-9._-]{1,128}$/

/** Returns the id of a request: the caller's X-Request-Id if it is valid, or a new one. */
export function readRequestId({ headers }: Pick<IncomingMessage, "headers">): string {
  const given = headers["x-request-id"]
  return typeof given === "string" && REQUEST_ID.test(given) ? given : randomUUID()
}

/** Hides the code of a sign-in, which an issuer writes into the address of the page to return to. */
function withoutCode(url: string): string {
  return url.replace(/([?&]code=)[^&]*/g, "$1[redacted]")
}

/** Paths that machines request every few seconds, which are not logged. */
const QUIET = ["/livez", "/readyz", "/healthz", "/metrics", "/agent/"]

/**
 * Gives each request an id (the caller's X-Request-Id if it is valid) and sends the id in the response. Logs one line
 * per finished request, without headers, bodies and codes of sign-ins: these hold credentials and users' values.
 */
export function requestLog(logger: Logger): RequestHandler {
  return pinoHttp({
    logger,
    genReqId: (req, res) => {
      const id = readRequestId(req)
      res.setHeader("X-Request-Id", id)
      return id
    },
    serializers: {
      req: (req: { id: string; method: string; url: string; remoteAddress: string }) => ({
        id: req.id,
        method: req.method,
        url: withoutCode(req.url),
        remoteAddress: req.remoteAddress,
      }),
      res: (res: { statusCode: number }) => ({ statusCode: res.statusCode }),
    },
    autoLogging: { ignore: ({ url }) => QUIET.some((prefix) => url?.startsWith(prefix)) },
    customLogLevel: (_req, res) => (res.statusCode >= 500 ? "warn" : "info"),
  })
}
