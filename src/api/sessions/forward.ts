import { once } from "node:events"
import type { IncomingMessage, OutgoingHttpHeaders } from "node:http"
import { connect, Socket } from "node:net"
import type { Duplex } from "node:stream"
import { unavailable } from "../http/problem.ts"
import { type Exchange, exchange } from "./exchange.ts"

/** Header of a request that another replica has passed on. */
const FORWARDED = "berth-forwarded"

/** Time for a connection to another replica, seconds. */
const WAIT_SECONDS = 10

/** Request of a client for another protocol than HTTP. */
export interface Upgrade {
  req: IncomingMessage
  socket: Duplex
  head: Buffer
}

/** Returns true for a request that another replica has passed on. It is passed on no further. */
export function isForwarded({ headers }: IncomingMessage): boolean {
  return headers[FORWARDED] !== undefined
}

/** Passes on what has come to this replica, and is for a session of another one. */
export class Forwarder {
  readonly #sockets = new Set<Duplex>()

  /** Ends all connections that were passed on: this replica stops. */
  close(): void {
    for (const socket of this.#sockets) socket.destroy()
  }

  /** Passes a connection on, as it came. @throws Problem 503 */
  async upgrade(holder: string, { req, socket, head }: Upgrade): Promise<void> {
    this.#sockets.add(socket)
    socket.once("close", () => this.#sockets.delete(socket))
    const other = connect(addressOf(holder))
    other.on("error", () => socket.destroy())
    try {
      await once(other, "connect", { signal: AbortSignal.timeout(WAIT_SECONDS * 1000) })
    } catch (error) {
      other.destroy()
      const detail = "The replica of Berth that holds the session does not answer: open the session again."
      throw unavailable(detail, 1, error)
    }
    const lines = [`${req.method} ${req.url} HTTP/1.1`, `${FORWARDED}: 1`]
    for (let index = 0; index < req.rawHeaders.length; index += 2)
      lines.push(`${req.rawHeaders[index]}: ${req.rawHeaders[index + 1]}`)
    for (const each of [socket, other]) if (each instanceof Socket) each.setTimeout(0)
    other.write(`${lines.join("\r\n")}\r\n\r\n`)
    other.write(head)
    socket.pipe(other).pipe(socket)
    socket.once("close", () => other.destroy())
    other.once("close", () => socket.destroy())
  }

  /** Passes a request on, and its response back, as they came. */
  request(holder: string, { req, res, onError }: Pick<Exchange, "req" | "res" | "onError">): void {
    const { method, url, headersDistinct } = req
    const headers: OutgoingHttpHeaders = { ...headersDistinct, host: req.headers.host, [FORWARDED]: "1" }
    exchange({
      ...{ req, res, onError },
      options: { ...addressOf(holder), method, path: url, headers },
      headersOf: (answer) => answer,
    })
  }
}

function addressOf(replica: string): { host: string; port: number } {
  const { hostname, port } = new URL(replica)
  return { host: hostname.replace(/^\[|\]$/g, ""), port: Number(port) }
}
