import { once } from "node:events"
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from "node:http"
import { createServer as createTlsServer } from "node:https"
import type { AddressInfo, Socket } from "node:net"
import { createSecureContext } from "node:tls"
import type { KeyPair } from "../../dev/controlplane/certificates.ts"

/** Message that a receiver accepted or rejected. */
export interface Received {
  id: string
  path: string
  headers: IncomingHttpHeaders
  body: string
  /** Status of the response; 0 if the connection was closed. */
  status: number
}

/** Response to a message. `reset` closes the connection, `silent` never answers. */
export type Reply = number | "reset" | "silent" | { status: number; headers?: Record<string, string>; afterMs?: number }

/** Addresses to which Berth may send nothing: internal ones, in several spellings, and a public one without TLS. */
export const FORBIDDEN_RECEIVERS = [
  "https://169.254.169.254/latest/meta-data",
  "https://10.0.0.1",
  "https://[::1]",
  "https://[fd00::1]",
  "https://[::ffff:10.0.0.1]",
  "https://0.0.0.0",
  "https://localhost.localdomain.invalid",
  "http://93.184.216.34",
  "https://3232235777",
]

/** Failure that is shown for FORBIDDEN_RECEIVERS. */
export const FORBIDDEN =
  /no public address|must have a public address|only for receivers that an operator|host was not found/

/** Returns the certificate for the next connection. */
export type Certificates = () => KeyPair

/** Requests of one connection with TLS. Then the client connects again, and gets another certificate. */
const REQUESTS_OF_CONNECTION = 10

/** HTTP server that receives the messages of webhooks. */
export class WebhookReceiver {
  /** In the order of their arrival. */
  readonly received: Received[] = []
  /** Decides the response to a message. Default: 204. */
  reply: (message: Omit<Received, "status">) => Reply = () => 204
  readonly #server: Server
  readonly #origin: string
  /** Connections by the port of their client. The sockets of requests with TLS can't be reset. */
  readonly #connections = new Map<number, Socket>()

  private constructor(certificates?: Certificates) {
    const listener = (req: IncomingMessage, res: ServerResponse): void => this.#receive(req, res)
    this.#origin = certificates === undefined ? "http://127.0.0.1" : "https://localhost"
    this.#server = certificates === undefined ? createServer(listener) : tlsServer(certificates, listener)
    this.#server.on("connection", (socket: Socket) => {
      const { remotePort = 0 } = socket
      this.#connections.set(remotePort, socket)
      socket.once("close", () => this.#connections.delete(remotePort))
    })
  }

  /** Starts a receiver on the loopback network. With certificates it has TLS, and its host is localhost. */
  static async start(certificates?: Certificates): Promise<WebhookReceiver> {
    const receiver = new WebhookReceiver(certificates)
    receiver.#server.listen(0, "127.0.0.1")
    await once(receiver.#server, "listening")
    return receiver
  }

  get url(): string {
    return `${this.#origin}:${(this.#server.address() as AddressInfo).port}`
  }

  /** Messages that were answered with a status of 2xx. */
  get accepted(): Received[] {
    return this.received.filter(({ status }) => status >= 200 && status < 300)
  }

  #receive(req: IncomingMessage, res: ServerResponse): void {
    const chunks: Buffer[] = []
    req.on("data", (chunk: Buffer) => chunks.push(chunk))
    req.on("error", () => undefined)
    req.on("end", () => {
      const message = {
        id: String(req.headers["webhook-id"]),
        path: req.url ?? "",
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
      if (reply === "reset") this.#connections.get(req.socket.remotePort ?? 0)?.resetAndDestroy()
      else if (reply !== "silent") setTimeout(() => res.writeHead(status, headers).end(), afterMs)
    })
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections()
    this.#server.close()
    await once(this.#server, "close")
  }
}

function tlsServer(certificates: Certificates, listener: (req: IncomingMessage, res: ServerResponse) => void): Server {
  const contextOf = ({ certificate: cert, key }: KeyPair) => createSecureContext({ cert, key })
  const server = createTlsServer({ SNICallback: (_, done) => done(null, contextOf(certificates())) }, listener)
  server.maxRequestsPerSocket = REQUESTS_OF_CONNECTION
  return server
}
