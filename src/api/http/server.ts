import { randomUUID } from "node:crypto"
import { once } from "node:events"
import { type IncomingMessage, type RequestListener, Server, type ServerResponse } from "node:http"
import type { AddressInfo, Socket } from "node:net"
import type { Duplex } from "node:stream"
import { systemClock } from "../../core/apis/clock.ts"
import { jsonText } from "./json-text.ts"
import { Problem } from "./problem.ts"

/** Limits of the time and the headers of one client, so that slow or broken clients don't block the server. */
export interface ServerLimits {
  /** Longest time from a request's first byte to the end of its headers, seconds. */
  headersSeconds: number
  /** Longest time from a request's first byte to the end of its body, seconds. */
  requestSeconds: number
  /** Longest time without traffic during a request or response, seconds. Followed logs are exempt. */
  idleSeconds: number
  /** Longest time that a connection waits for its next request, seconds. */
  keepAliveSeconds: number
  /** Interval at which the limits of headers and requests are checked, seconds. */
  checkSeconds: number
  /** Largest number of headers of one request. */
  headers: number
}

/** Default limits. `keepAliveSeconds` exceeds the 60 s of load balancers, which must close idle connections first. */
export const SERVER_LIMITS: ServerLimits = {
  headersSeconds: 10,
  requestSeconds: 60,
  idleSeconds: 60,
  keepAliveSeconds: 75,
  checkSeconds: 5,
  headers: 100,
}

/** Longest time of any request, milliseconds. */
const LONGEST_REQUEST_MS = 3_600_000

/** Server that closes each connection after its current response once `close` is called. */
class DrainingServer extends Server {
  readonly #underWay = new Set<ServerResponse>()
  readonly #latest = new WeakMap<Socket, ServerResponse>()

  /** Registers a response. Must be called before the response begins. */
  begin(answer: ServerResponse): void {
    const { socket } = answer.req
    if (!this.listening) answer.setHeader("Connection", "close")
    this.#underWay.add(answer)
    this.#latest.set(socket, answer)
    answer.once("close", () => {
      this.#underWay.delete(answer)
      // Thousands of idle connections must not keep their last request and its response in memory.
      if (this.#latest.get(socket) === answer) this.#latest.delete(socket)
    })
  }

  /** Returns the response to the last request of a connection, until the response is closed. */
  answerOn(socket: Socket): ServerResponse | undefined {
    return this.#latest.get(socket)
  }

  override close(callback?: (error?: Error) => void): this {
    for (const answer of this.#underWay) if (!answer.headersSent) answer.setHeader("Connection", "close")
    return super.close(callback)
  }
}

/** Ends of requests that are not complete in time, by request. */
const deadlines = new WeakMap<IncomingMessage, (seconds: number) => void>()

/** Gives a request another time for its body, in seconds from now. It is for bodies that are much larger than others. */
export function allowSeconds(req: IncomingMessage, seconds: number): void {
  deadlines.get(req)?.(seconds)
}

/** Calls `end` if the body of a request is not complete in time. */
function limitBody(req: IncomingMessage, seconds: number, end: () => void): void {
  if (req.headers["content-length"] === undefined && req.headers["transfer-encoding"] === undefined) return
  let timer: NodeJS.Timeout | undefined
  const arm = (after: number): void => {
    clearTimeout(timer)
    timer = setTimeout(() => !req.complete && end(), after * 1000)
  }
  arm(seconds)
  deadlines.set(req, arm)
  req.once("close", () => clearTimeout(timer))
}

function late(): Error {
  return Object.assign(new Error("the request did not arrive in time"), { code: "ERR_HTTP_REQUEST_TIMEOUT" })
}

/** Returns an HTTP server that slow clients can't block. Late requests and invalid HTTP get a problem document. */
export function createHttpServer(app: RequestListener, limits: Partial<ServerLimits> = {}): Server {
  const { headersSeconds, requestSeconds, idleSeconds, keepAliveSeconds, checkSeconds, headers } = {
    ...SERVER_LIMITS,
    ...limits,
  }
  const times = {
    headersTimeout: headersSeconds * 1000,
    // Each request has its own time (limitBody). Node.js' one is for all, and must be at least that of headers.
    requestTimeout: LONGEST_REQUEST_MS,
    keepAliveTimeout: keepAliveSeconds * 1000,
    connectionsCheckingInterval: checkSeconds * 1000,
    // TCP keep-alive finds clients that disappeared without closing the connection.
    keepAlive: true,
  }
  const server = new DrainingServer(times, (req, res) => {
    server.begin(res)
    limitBody(req, requestSeconds, () => server.emit("clientError", late(), req.socket))
    if (req.rawHeaders.length <= headers * 2) return app(req, res)
    const { head, body } = answerOf(tooManyHeaders(`it has more than ${headers}`))
    res.writeHead(431, head).end(body)
  })
  // Node.js silently drops headers over its limit. One more is accepted, so that the request can be rejected.
  server.maxHeadersCount = headers + 1
  server.timeout = idleSeconds * 1000
  server.on("clientError", (error: NodeJS.ErrnoException, socket: Socket) => {
    const answer = server.answerOn(socket)
    const isUnderWay = answer?.headersSent === true && !answer.writableEnded
    if (!socket.writable || isUnderWay || error.code === "ECONNRESET") socket.destroy()
    else refuse(socket, brokenRequest(error.code))
  })
  return server
}

/** Listens, and returns the server's URL. An empty host is every address, and port 0 any free port. */
export async function listen(server: Server, { port, host }: { port: number; host: string }): Promise<string> {
  server.listen(port, host)
  await once(server, "listening")
  const at = server.address() as AddressInfo
  return `http://${at.address.includes(":") ? `[${at.address}]` : at.address}:${at.port}`
}

/** Closes the server when its requests have ended, and breaks off those that take longer than `drainSeconds`. */
export async function drain(server: Server, drainSeconds: number): Promise<void> {
  const cancel = systemClock.setTimer(drainSeconds, () => server.closeAllConnections())
  await new Promise<void>((resolve) => {
    server.close(() => resolve())
    server.closeIdleConnections()
  })
  cancel()
}

function brokenRequest(code: string | undefined): Problem {
  if (code === "ERR_HTTP_REQUEST_TIMEOUT")
    return new Problem({
      type: "request-timeout",
      status: 408,
      detail: "The request did not arrive completely in time.",
    })
  if (code === "HPE_HEADER_OVERFLOW") return tooManyHeaders("they are longer than 16 KiB")
  return new Problem({ type: "invalid-request", status: 400, detail: "The request is not valid HTTP." })
}

function tooManyHeaders(detail: string): Problem {
  return new Problem({
    type: "headers-too-large",
    status: 431,
    detail: `The request's headers are too large: ${detail}.`,
  })
}

function answerOf(problem: Problem): { head: Record<string, string | number>; body: string } {
  const id = randomUUID()
  const body = jsonText(problem.toDocument(id))
  const head = {
    "Content-Type": "application/problem+json; charset=utf-8",
    "Content-Length": Buffer.byteLength(body),
    "Cache-Control": "no-store",
    "X-Request-Id": id,
    Connection: "close",
  }
  return { head, body }
}

/** Sends a problem on a connection that has no response object. */
export function refuse(socket: Duplex, problem: Problem): void {
  const { head, body } = answerOf(problem)
  const lines = Object.entries(head).map(([name, value]) => `${name}: ${value}`)
  const status = `HTTP/1.1 ${problem.status} ${problem.toDocument("").title}`
  socket.end([status, ...lines, "", body].join("\r\n"), () => socket.destroy())
}
