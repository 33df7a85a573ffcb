import type { IncomingMessage, RequestListener, ServerResponse } from "node:http"
import { runIn } from "../../core/kube/flow.ts"
import { GATEWAY_PATH, JWS_CONTENT_TYPE } from "../../core/protocol/protocol.ts"
import { readRequestId } from "../http/request-log.ts"
import type { Gateway } from "./gateway.ts"
import { bearerTokenIn, LAUNCH_NAME, MESSAGE_BYTES } from "./messages.ts"

/** Pattern of a report's target: no query, nothing encoded. */
const TARGET = new RegExp(`^${GATEWAY_PATH}/launches/([^/?%]+)/report$`)

/** Errors of reports whose bodies are read already, for the router to answer. */
const faults = new WeakMap<IncomingMessage, { error: unknown }>()

/** Returns the error of a report that `withReports` has read. */
export function reportFault(req: IncomingMessage): { error: unknown } | undefined {
  return faults.get(req)
}

/** Route of reports in metrics. */
export const REPORT_ROUTE = `${GATEWAY_PATH}/launches/:launch/report`

export interface ReportListenerOptions {
  /** Returns the gateway; undefined while it can't take reports. */
  gateway: () => Gateway | undefined
  /** Called with the seconds that each answer took. */
  onAnswer?: (seconds: number) => void
}

/**
 * Answers the reports of VMs without Express, whose middleware costs more than the report itself. The app answers
 * everything else: other requests, reports without the Launch's token or of an unusual form, and every error.
 */
export function withReports(app: RequestListener, { gateway, onAnswer }: ReportListenerOptions): RequestListener {
  return (req, res) => {
    const launch = launchOfReport(req)
    const current = launch === undefined ? undefined : gateway()
    if (launch === undefined || current === undefined) return app(req, res)
    const token = bearerTokenIn(req.headers.authorization)
    if (!current.isFromVm(launch, token)) return app(req, res)
    const startedAt = performance.now()
    void runIn(current.flowOf(launch), () => answer(current, launch, { req, res })).then(
      () => onAnswer?.((performance.now() - startedAt) / 1000),
      (error: unknown) => {
        // No one waits for an answer.
        if (error instanceof ConnectionEnded) return void res.destroy()
        faults.set(req, { error })
        app(req, res)
      },
    )
  }
}

interface Exchange {
  req: IncomingMessage
  res: ServerResponse
}

async function answer(gateway: Gateway, launch: string, { req, res }: Exchange): Promise<void> {
  await gateway.charge(launch, "report")
  const jws = await bodyOf(req)
  const body = JSON.stringify(await gateway.report({ launch, jws }))
  res.setHeader("X-Request-Id", readRequestId(req))
  res.writeHead(200, {
    "Content-Type": "application/json; charset=utf-8",
    "Content-Length": Buffer.byteLength(body),
    "Cache-Control": "no-store",
  })
  res.end(body)
}

/** Returns the Launch that a report of the usual form names; undefined for any other request. */
function launchOfReport({ method, url = "", headers, rawHeaders }: IncomingMessage): string | undefined {
  if (method !== "POST") return undefined
  const launch = TARGET.exec(url)?.[1]
  if (launch === undefined || !LAUNCH_NAME.test(launch)) return undefined
  const bytes = Number(headers["content-length"] ?? Number.NaN)
  const isUsual =
    headers["content-type"] === JWS_CONTENT_TYPE &&
    bytes <= MESSAGE_BYTES &&
    headers["content-encoding"] === undefined &&
    rawHeaders.filter((name, index) => index % 2 === 0 && name.toLowerCase() === "host").length === 1
  return isUsual ? launch : undefined
}

/** The connection ended within a report. */
class ConnectionEnded extends Error {
  override readonly name = "ConnectionEnded"
}

/** Reads the body, whose size is known. @throws ConnectionEnded */
function bodyOf(req: IncomingMessage): Promise<string> {
  return new Promise((resolve, reject) => {
    const pieces: Buffer[] = []
    req.on("data", (piece: Buffer) => pieces.push(piece))
    req.once("end", () => resolve(Buffer.concat(pieces).toString()))
    const end = (): void => reject(new ConnectionEnded())
    req.once("error", end)
    req.once("close", end)
    if (req.destroyed) end()
  })
}
