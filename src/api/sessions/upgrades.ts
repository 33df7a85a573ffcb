import { randomBytes } from "node:crypto"
import { once } from "node:events"
import type { IncomingMessage, Server } from "node:http"
import type { Duplex } from "node:stream"
import { type WebSocket, WebSocketServer } from "ws"
import type { Clock } from "../../core/apis/clock.ts"
import { keepAlive } from "../../core/apis/keep-alive.ts"
import { CLOSE_MS, SESSION_PROTOCOL, TOKEN_PROTOCOL } from "../../core/apis/remote-command.ts"
import { GATEWAY_PATH } from "../../core/protocol/protocol.ts"
import { SESSION_MESSAGE_BYTES } from "../../core/protocol/sessions.ts"
import type { Logger } from "../../core/telemetry/logger.ts"
import type { Gateway } from "../gateway/gateway.ts"
import { bearerTokenIn } from "../gateway/messages.ts"
import { forbidden, notFound, toProblem, unauthorized, unavailable } from "../http/problem.ts"
import { refuse } from "../http/server.ts"
import { type Forwarder, isForwarded, type Upgrade } from "./forward.ts"
import { hold } from "./hold.ts"
import type { SessionHub } from "./hub.ts"
import type { SessionLeases } from "./lease.ts"
import type { PortSites } from "./ports/sites.ts"
import { closeSocket } from "./relay.ts"
import { CLOSES, type Session } from "./session.ts"

/** Path of a person's connection. The token, not the path, says who connects. */
const CLIENT_PATH = /^(?:\/projects\/[^/?]+)?\/1\/jobs\/[^/?]+\/sessions\/([0-9a-f-]{36})$/

const AGENT_PATH = new RegExp(
  `^${GATEWAY_PATH}/launches/([a-z0-9.-]{1,253})/sessions/([0-9a-f-]{36})(?:/streams/([1-9]\\d{0,8}))?$`,
)

/** Time for an agent's proof, seconds. */
const WAIT_SECONDS = 10

/** Time for the last messages and the closes when this replica stops, milliseconds. */
const LAST_WORDS_MS = 1000

export interface UpgradesOptions {
  hub: SessionHub
  leases: Pick<SessionLeases, "holderOf">
  forwarder: Forwarder
  /** Ports that browsers reach. Absent: the installation has no domain for them. */
  ports: PortSites | undefined
  /** Returns the gateway; undefined while it can't take messages. */
  gateway: () => Gateway | undefined
  clock: Clock
  logger: Logger
}

/** Takes the WebSockets of sessions: those of people, and those of agents. */
export class Upgrades {
  readonly #options: UpgradesOptions
  readonly #sockets = new WebSocketServer({
    ...{ noServer: true, perMessageDeflate: false, maxPayload: SESSION_MESSAGE_BYTES * 2, closeTimeout: CLOSE_MS },
    handleProtocols: () => SESSION_PROTOCOL,
  })

  constructor(options: UpgradesOptions) {
    this.#options = options
  }

  /** Ends all connections: this replica stops. */
  close(): void {
    for (const socket of this.#sockets.clients) setTimeout(() => socket.terminate(), LAST_WORDS_MS).unref()
  }

  /** Handles all upgrades of a server. Those that are none of a session's are rejected. */
  listenOn(server: Server): void {
    server.on("upgrade", (req: IncomingMessage, socket: Duplex, head: Buffer) => {
      socket.on("error", () => undefined)
      const { ports } = this.#options
      const taken = ports?.has(req) ? ports.upgrade({ req, socket, head }) : this.#upgrade(req, socket, head)
      taken.catch((error: unknown) => refuse(socket, toProblem(error)))
    })
  }

  async #upgrade(req: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> {
    const { url = "", headers } = req
    const agent = AGENT_PATH.exec(url)
    const id = agent?.[2] ?? CLIENT_PATH.exec(url)?.[1]
    if (id === undefined || headers.upgrade?.toLowerCase() !== "websocket")
      throw notFound("There is no WebSocket at this path: open a session by POST /jobs/{id}/sessions first.")
    const { hub, leases } = this.#options
    const session = hub.get(id)
    if (session === undefined) {
      const holder = isForwarded(req) ? undefined : leases.holderOf(id)
      if (holder === undefined) throw notFound("There is no such session, or it has ended.")
      return await this.#options.forwarder.upgrade(holder, { req, socket, head })
    }
    if (agent === null) return this.#addClient(session, { req, socket, head })
    await this.#addAgent(session, { launch: agent[1] ?? "", stream: Number(agent[3] ?? 0) }, { req, socket, head })
  }

  #addClient(session: Session, { req, socket, head }: Upgrade): void {
    const { origin, host } = req.headers
    // Another site's page must not use what a browser would send for it.
    if (origin !== undefined && !isOwn(origin, host))
      throw forbidden(`A page of ${origin.slice(0, 100)} may not open sessions here.`)
    const offered = (req.headers["sec-websocket-protocol"] ?? "").split(",").map((one) => one.trim())
    const token = offered.find((one) => one.startsWith(TOKEN_PROTOCOL))?.slice(TOKEN_PROTOCOL.length) ?? ""
    if (!session.token.matches(token)) throw unauthorized("The session's token is missing or wrong.")
    const full = session.whyFull()
    if (full !== undefined) throw unavailable(`No further connection: ${full}.`, 1)
    this.#sockets.handleUpgrade(req, socket, head, (client) => {
      keepAlive(client, this.#options.clock)
      session.addClient(client)
    })
  }

  async #addAgent(session: Session, { launch, stream }: AgentSide, { req, socket, head }: Upgrade): Promise<void> {
    const gateway = this.#options.gateway()
    if (gateway === undefined) throw unavailable("The gateway is not ready.", 2)
    await gateway.admit("session", launch, bearerTokenIn(req.headers.authorization))
    if (launch !== session.facts.launch || (stream !== 0 && !session.awaits(stream)))
      throw notFound("The session has no such connection.")
    this.#sockets.handleUpgrade(req, socket, head, (agent) => {
      keepAlive(agent, this.#options.clock)
      agent.on("error", () => undefined)
      this.#prove(gateway, session, { launch, stream, agent }).catch((err: unknown) => {
        this.#options.logger.warn({ err, launch, session: session.facts.id }, "an agent's proof for a session is wrong")
        closeSocket(agent, CLOSES.policy, "the proof is wrong")
      })
    })
  }

  /** Takes the agent's connection once it has proved who it is. @throws Error */
  async #prove(
    gateway: Gateway,
    session: Session,
    { launch, stream, agent }: AgentSide & { agent: WebSocket },
  ): Promise<void> {
    const challenge = randomBytes(32).toString("base64url")
    agent.send(JSON.stringify({ challenge }))
    const { text: jws, release } = await firstMessage(agent)
    await gateway.checkSessionProof({ launch, jws }, { session: session.facts.id, stream, challenge })
    if (stream === 0) session.addAgent(agent)
    else session.addStream(stream, agent)
    release()
  }
}

interface AgentSide {
  launch: string
  stream: number
}

/** Returns true if an origin is that of the host to which its page connects. A host may name its scheme's own port. */
function isOwn(origin: string, host: string | undefined): boolean {
  const from = URL.parse(origin)
  if (from === null || from.host === "" || host === undefined) return false
  return URL.parse(`${from.protocol}//${host}`)?.host === from.host
}

/** Waits for the first message of a connection. Those that follow are held: they may come in the same packet. */
async function firstMessage(socket: WebSocket): Promise<{ text: string; release: () => void }> {
  let release = (): void => undefined
  socket.once("message", () => {
    release = hold(socket)
  })
  const [data] = (await once(socket, "message", { signal: AbortSignal.timeout(WAIT_SECONDS * 1000) })) as [Buffer]
  return { text: data.toString(), release: () => release() }
}
