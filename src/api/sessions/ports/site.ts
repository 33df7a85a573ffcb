import { Agent, type AgentOptions, type ClientRequestArgs, type IncomingMessage } from "node:http"
import type { Duplex } from "node:stream"
import type { Session } from "../session.ts"
import { Token } from "../token.ts"
import { cookiesIn, type Headers } from "./headers.ts"

/** Largest number of requests of a browser to one port at a time. WebSockets have streams of their own beside them. */
const MOST_REQUESTS = 32

/** Path below which Berth answers on the hosts of ports. */
export const OWN_PATH = "/.berth/"

const ENTRY_PATH = `${OWN_PATH}enter`

export interface PortSiteOptions {
  session: Pick<Session, "connect">
  port: number
  /** Address of its pages, such as `https://<label>.ports.example.com`. */
  origin: string
}

/** A port of a job's container as a site of its own, for the one browser that has followed its link. */
export class PortSite {
  readonly port: number
  readonly origin: string
  readonly #kept: Agent
  readonly #fresh: Agent
  readonly #entry = new Token()
  readonly #key = new Token()
  #isEntered = false

  constructor({ session, port, origin }: PortSiteOptions) {
    this.port = port
    this.origin = origin
    this.#kept = new StreamAgent(session, { keepAlive: true, maxSockets: MOST_REQUESTS / 2, maxFreeSockets: 8 })
    this.#fresh = new StreamAgent(session, { keepAlive: false, maxSockets: MOST_REQUESTS / 2 })
  }

  /** Link that works once. */
  get link(): string {
    return `${this.origin}${ENTRY_PATH}?token=${this.#entry.text}`
  }

  /** Name of Berth's cookie. With its prefix browsers take it from this host only, and only by TLS. */
  get cookie(): string {
    return this.#isSecure ? "__Host-berth-port" : "berth-port"
  }

  get #isSecure(): boolean {
    return this.origin.startsWith("https:")
  }

  /**
   * Returns the connections for a request. The program may close one that waits for its next request. So only a request that
   * may be sent twice gets a connection that was used before.
   */
  connectionsFor(isRepeatable: boolean): Agent {
    return isRepeatable ? this.#kept : this.#fresh
  }

  /** Ends all connections. */
  close(): void {
    for (const agent of [this.#kept, this.#fresh]) agent.destroy()
  }

  /** Returns the cookie for a browser that follows the link for the first time; undefined for any other request. */
  enter({ method, url }: Pick<IncomingMessage, "method" | "url">): string | undefined {
    const [path, query] = (url ?? "").split("?")
    const token = new URLSearchParams(query).get("token") ?? ""
    if (this.#isEntered || method !== "GET" || path !== ENTRY_PATH || !this.#entry.matches(token)) return undefined
    this.#isEntered = true
    return `${this.cookie}=${this.#key.text}; Path=/; HttpOnly; SameSite=Lax${this.#isSecure ? "; Secure" : ""}`
  }

  /** Returns true for a request of the browser that has entered. */
  admits({ cookie }: Headers): boolean {
    return cookiesIn(cookie).some(({ name, value }) => name === this.cookie && this.#key.matches(value))
  }

  /**
   * Returns true for a request that another site has caused. Ports of other jobs count as the same site for a browser, which
   * sends the cookie with what their pages ask for. A link that a person follows is allowed.
   */
  isForeign({ method }: Pick<IncomingMessage, "method">, headers: Headers): boolean {
    const [origin] = headers["origin"] ?? []
    if (origin !== undefined && origin !== this.origin) return true
    const [site, mode, dest] = ["site", "mode", "dest"].map((name) => headers[`sec-fetch-${name}`]?.[0])
    const isLink = method === "GET" && mode === "navigate" && dest === "document"
    return site !== undefined && site !== "same-origin" && site !== "none" && !isLink
  }
}

/** Agent whose connections are streams of a session. */
class StreamAgent extends Agent {
  readonly #session: Pick<Session, "connect">

  constructor(session: Pick<Session, "connect">, options: AgentOptions) {
    super(options)
    this.#session = session
  }

  override createConnection(
    _options: ClientRequestArgs,
    done?: (error: Error | null, stream: Duplex) => void,
  ): undefined {
    this.#session.connect().then(
      (stream) => done?.(null, stream),
      // Node.js calls it with an error alone, which its type does not have.
      (error: Error) => done?.(error, undefined as never),
    )
  }
}
