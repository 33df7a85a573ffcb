import { type IncomingMessage, ServerResponse } from "node:http"
import { Socket } from "node:net"
import { type Duplex, pipeline } from "node:stream"
import { exchange, isRepeatable, passAnswer, send } from "../exchange.ts"
import type { Upgrade } from "../forward.ts"
import { StreamBroken } from "../port-stream.ts"
import { requestHeaders, responseHeaders } from "./headers.ts"
import { showPage, unreachable } from "./pages.ts"
import type { PortSite } from "./site.ts"

/** Passes a request on to the port, and its response back. */
export function passRequest(site: PortSite, req: IncomingMessage, res: ServerResponse): void {
  const { method, url, headersDistinct } = req
  const headers = requestHeaders(headersDistinct, site)
  // Node.js frames the body of a DELETE by this header only.
  if (req.headers["transfer-encoding"] !== undefined) headers["transfer-encoding"] = "chunked"
  exchange({
    ...{ req, res },
    options: { agent: site.connectionsFor(isRepeatable(req)), method, path: url, headers },
    headersOf: (answer) => responseHeaders(answer, site),
    onError: (error) => showPage(res, unreachable(reasonOf(error))),
  })
}

/** Passes a WebSocket on to the port. */
export function passUpgrade(site: PortSite, { req, socket, head }: Upgrade): void {
  const { method, url, headersDistinct } = req
  const headers = { ...requestHeaders(headersDistinct, site), ...SWITCH }
  if (socket instanceof Socket) socket.setTimeout(0)
  const outgoing = send(
    { agent: site.connectionsFor(false), method, path: url, headers },
    {
      onAnswer: (answer) => passAnswer(answer, responseOn(req, socket), (ofAnswer) => responseHeaders(ofAnswer, site)),
      onUpgrade: (answer, stream, first) => {
        socket.write(headOf({ ...responseHeaders(answer.headersDistinct, site), ...SWITCH }))
        socket.write(first)
        stream.write(head)
        pipeline(socket, stream, socket, () => socket.destroy())
      },
      onError: (error) => {
        if (socket.destroyed || socket.writableEnded) socket.destroy()
        else showPage(responseOn(req, socket), unreachable(reasonOf(error)))
      },
    },
  )
  socket.once("close", () => outgoing?.destroy())
  outgoing?.end()
}

const SWITCH = { connection: "Upgrade", upgrade: "websocket" }

/** Returns the beginning of a response that accepts an upgrade. */
function headOf(headers: ReturnType<typeof responseHeaders>): string {
  const lines = Object.entries(headers).flatMap(([name, value]) => [value ?? []].flat().map((one) => `${name}: ${one}`))
  return ["HTTP/1.1 101 Switching Protocols", ...lines, "", ""].join("\r\n")
}

function reasonOf(error: Error): string {
  return error instanceof StreamBroken ? error.message : "the program has closed the connection without an answer"
}

/** Returns a response on a connection that asked for an upgrade and gets none. It is closed after it. */
export function responseOn(req: IncomingMessage, socket: Duplex): ServerResponse {
  const res = new ServerResponse(req)
  res.shouldKeepAlive = false
  res.assignSocket(socket as Socket)
  res.once("finish", () => socket.end())
  return res
}
