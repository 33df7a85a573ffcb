import { randomUUID } from "node:crypto"
import { type RequestListener, Server, type ServerResponse } from "node:http"
import type { Socket } from "node:net"
import { jsonText } from "./json-text.ts"
import { Problem } from "./problem.ts"

/** What a client may take of a server, however slow or broken it is. */
export interface ServerLimits {
  /** From a request's first byte to the end of its headers, seconds. */
  headersSeconds: number
  /** From a request's first byte to the end of its body, seconds. */
  requestSeconds: number
  /** How long nothing may move, seconds, while a client sends a request or reads an answer; following a log may wait. */
  idleSeconds: number
  /** How long a connection waits for its next request, seconds. */
  keepAliveSeconds: number
  /** How often the first two are looked at, seconds. */
  checkSeconds: number
  /** Headers of one request. */
  headers: number
}

/** Connections live a little longer than load balancers keep theirs (60 s), so that these are never the ones to be cut. */
export const SERVER_LIMITS: ServerLimits = {
  headersSeconds: 10,
  requestSeconds: 60,
  idleSeconds: 60,
  keepAliveSeconds: 75,
  checkSeconds: 5,
  headers: 100,
}

/** A server whose connections, once it closes, end with the answers that are under way: no client sends more on them. */
class DrainingServer extends Server {
  readonly #underWay = new Set<ServerResponse>()
  readonly #latest = new WeakMap<Socket, ServerResponse>()

  /** To be told of each answer before it begins. */
  begin(answer: ServerResponse): void {
    const { socket } = answer.req
    if (!this.listening) answer.setHeader("Connection", "close")
    this.#underWay.add(answer)
    this.#latest.set(socket, answer)
    answer.once("close", () => {
      this.#underWay.delete(answer)
      // A connection that waits for its next request must not hold the last one and its answer: there are thousands.
      if (this.#latest.get(socket) === answer) this.#latest.delete(socket)
    })
  }

  /** The answer to the last request of a connection, while it is under way. */
  answerOn(socket: Socket): ServerResponse | undefined {
    return this.#latest.get(socket)
  }

  override close(callback?: (error?: Error) => void): this {
    for (const answer of this.#underWay) if (!answer.headersSent) answer.setHeader("Connection", "close")
    return super.close(callback)
  }
}

/** An HTTP server that slow clients can't hold up: what comes too late, or is no HTTP, gets a problem document. */
export function createHttpServer(app: RequestListener, limits: Partial<ServerLimits> = {}): Server {
  const { headersSeconds, requestSeconds, idleSeconds, keepAliveSeconds, checkSeconds, headers } = {
    ...SERVER_LIMITS,
    ...limits,
  }
  const times = {
    headersTimeout: headersSeconds * 1000,
    requestTimeout: requestSeconds * 1000,
    keepAliveTimeout: keepAliveSeconds * 1000,
    connectionsCheckingInterval: checkSeconds * 1000,
    // Who vanished without a word is found out by TCP.
    keepAlive: true,
  }
  const server = new DrainingServer(times, (req, res) => {
    server.begin(res)
    if (req.rawHeaders.length <= headers * 2) return app(req, res)
    const { head, body } = answerOf(tooManyHeaders(`it has more than ${headers}`))
    res.writeHead(431, head).end(body)
  })
  // Node drops what is beyond without a word: one more is let in to be noticed.
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

/** Answers on a connection on which there is no request to answer. */
function refuse(socket: Socket, problem: Problem): void {
  const { head, body } = answerOf(problem)
  const lines = Object.entries(head).map(([name, value]) => `${name}: ${value}`)
  const status = `HTTP/1.1 ${problem.status} ${problem.toDocument("").title}`
  socket.write([status, ...lines, "", body].join("\r\n"))
  socket.destroySoon()
}
