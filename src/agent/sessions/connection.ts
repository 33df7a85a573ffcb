import { once } from "node:events"
import { rootCertificates } from "node:tls"
import { WebSocket } from "ws"
import { systemClock } from "../../core/apis/clock.ts"
import { keepAlive } from "../../core/apis/keep-alive.ts"
import { proxiedAgentFor } from "../../core/apis/proxy.ts"
import { CLOSE_MS, SESSION_PROTOCOL } from "../../core/apis/remote-command.ts"
import { type AgentKeys, check, signMessage } from "../../core/protocol/messages.ts"
import type { BootConfig } from "../../core/protocol/protocol.ts"
import { SESSION_MESSAGE_BYTES, SessionChallengeSchema, sessionPath } from "../../core/protocol/sessions.ts"

/** Time for the connection and the challenge, seconds. */
const OPEN_SECONDS = 20

/** Connection of a session, or of one of its streams. */
export interface SessionAddress {
  session: string
  /** 0: the session's own connection. */
  stream: number
}

/** Opens a WebSocket to the gateway, and proves that it is this agent's. That of a stream is paused. @throws Error */
export async function openSessionSocket(
  { launch, gatewayUrl, gatewayCa, bootstrapToken }: BootConfig,
  { signing }: AgentKeys,
  { session, stream }: SessionAddress,
): Promise<WebSocket> {
  const url = `${gatewayUrl.replace(/^http/, "ws").replace(/\/+$/, "")}${sessionPath(launch, session, stream)}`
  const trust = gatewayCa === undefined ? {} : { ca: [...rootCertificates, gatewayCa] }
  const socket = new WebSocket(url, SESSION_PROTOCOL, {
    headers: { authorization: `Bearer ${bootstrapToken}` },
    ...{ handshakeTimeout: OPEN_SECONDS * 1000, closeTimeout: CLOSE_MS },
    maxPayload: SESSION_MESSAGE_BYTES * 2,
    perMessageDeflate: false,
    agent: proxiedAgentFor(url),
    ...trust,
  })
  keepAlive(socket, systemClock)
  try {
    const [data] = (await once(socket, "message", { signal: AbortSignal.timeout(OPEN_SECONDS * 1000) })) as [Buffer]
    const { challenge } = check(SessionChallengeSchema, JSON.parse(data.toString()), "the gateway's challenge")
    // What comes after the proof waits until its reader is there.
    if (stream !== 0) socket.pause()
    socket.send(await signMessage("session", { launch, session, stream, challenge }, signing))
    // Its close was seen before there was a listener for it.
    if (socket.readyState !== socket.OPEN) throw new Error("the gateway has closed the connection")
    return socket
  } catch (error) {
    socket.on("error", () => undefined)
    socket.terminate()
    throw error
  }
}
