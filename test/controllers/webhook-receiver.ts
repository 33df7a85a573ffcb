import { once } from "node:events"
import { createServer, type IncomingHttpHeaders, type Server } from "node:http"
import type { AddressInfo } from "node:net"

/** Message that a receiver accepted or rejected. */
export interface Received {
  id: string
  headers: IncomingHttpHeaders
  body: string
  /** Status of the response; 0 if the connection was closed. */
  status: number
}

/** Response to a message. `reset` closes the connection, `silent` never answers. */
export type Reply = number | "reset" | "silent" | { status: number; headers?: Record<string, string>; afterMs?: number }

/** HTTP server that receives the messages of webhooks. */
export class WebhookReceiver {
  /** In the order of their arrival. */
  readonly received: Received[] = []
  /** Decides the response to a message. Default: 204. */
  reply: (message: Omit<Received, "status">) => Reply = () => 204
  readonly #server: Server

  private constructor() {
    this.#server = createServer((req, res) => {
      const chunks: Buffer[] = []
      req.on("data", (chunk: Buffer) => chunks.push(chunk))
      req.on("error", () => undefined)
      req.on("end", () => {
        const message = {
          id: String(req.headers["webhook-id"]),
          headers: req.headers,
          body: Buffer.concat(chunks).toString(),
        }
        const reply = this.reply(message)
        const {
          status,
          headers = {},
          afterMs = 0,
        } = typeof reply === "object" ? reply : { status: typeof reply === "number" ? reply : 0 }
        this.received.push({ ...message, status })
        if (reply === "reset") req.socket.resetAndDestroy()
        else if (reply !== "silent") setTimeout(() => res.writeHead(status, headers).end(), afterMs)
      })
    })
  }

  static async start(): Promise<WebhookReceiver> {
    const receiver = new WebhookReceiver()
    receiver.#server.listen(0, "127.0.0.1")
    await once(receiver.#server, "listening")
    return receiver
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  /** Messages that were answered with a status of 2xx. */
  get accepted(): Received[] {
    return this.received.filter(({ status }) => status >= 200 && status < 300)
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections()
    this.#server.close()
    await once(this.#server, "close")
  }
}
