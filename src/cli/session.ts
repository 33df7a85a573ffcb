import { once } from "node:events"
import { WebSocket } from "ws"
import { type BerthClient, readBody, type Schemas } from "../client/client.ts"
import { systemClock } from "../core/apis/clock.ts"
import { keepAlive } from "../core/apis/keep-alive.ts"
import { proxiedAgentFor } from "../core/apis/proxy.ts"
import { CLOSE_MS, SESSION_PROTOCOL, TOKEN_PROTOCOL } from "../core/apis/remote-command.ts"
import { EXIT, Failure } from "./exit.ts"

/** Largest answer to a failed connection that is read, characters. */
const ANSWER_LENGTH = 10_000

/** A session that was opened. */
export interface OpenSession {
  url: string
  token: string
}

/** Opens a session into a job's container. @throws ApiError, Unreachable */
export async function openSession(
  client: BerthClient,
  job: string,
  body: Schemas["SessionRequest"],
  signal: AbortSignal,
): Promise<OpenSession> {
  const params = { path: { id: job } }
  const opened = await readBody(client.api.POST("/jobs/{id}/sessions", { params, body, signal }))
  const url = `${client.baseUrl.replace(/^http/, "ws")}/jobs/${encodeURIComponent(job)}/sessions/${opened.session_id}`
  return { url, token: opened.token }
}

/** Connects to a session. @throws Failure with the server's words */
export async function connectStream({ url, token }: OpenSession, signal: AbortSignal): Promise<WebSocket> {
  const options = { perMessageDeflate: false, closeTimeout: CLOSE_MS, agent: proxiedAgentFor(url) }
  const socket = new WebSocket(url, [SESSION_PROTOCOL, `${TOKEN_PROTOCOL}${token}`], options)
  const refused = Promise.withResolvers<never>()
  socket.once("unexpected-response", (_request, response) => {
    let text = ""
    response.on("data", (piece: Buffer) => {
      if (text.length < ANSWER_LENGTH) text += piece.toString()
    })
    response.once("close", () => refused.reject(new Failure(EXIT.berth, detailOf(text, response.statusCode))))
  })
  try {
    // The first messages may come with the answer. They wait until the caller listens.
    socket.once("open", () => socket.pause())
    await Promise.race([once(socket, "open", { signal }), refused.promise])
    setImmediate(() => socket.resume())
    socket.on("error", () => undefined)
    keepAlive(socket, systemClock)
    return socket
  } catch (error) {
    socket.on("error", () => undefined)
    socket.terminate()
    throw error
  }
}

function detailOf(text: string, status = 0): string {
  try {
    return String((JSON.parse(text) as { detail?: unknown }).detail)
  } catch {
    return `the session's connection was answered with ${status}`
  }
}
