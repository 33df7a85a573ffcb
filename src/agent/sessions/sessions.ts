import type { WebSocket } from "ws"
import type { Clock } from "../../core/apis/clock.ts"
import type { Logger } from "../../core/apis/logger.ts"
import { NORMAL_CLOSURE } from "../../core/apis/remote-command.ts"
import { type AgentKeys, check } from "../../core/protocol/messages.ts"
import type { BootConfig } from "../../core/protocol/protocol.ts"
import { type StreamOrder, StreamOrderSchema } from "../../core/protocol/sessions.ts"
import type { Container } from "../runtimes/runtime.ts"
import { openSessionSocket } from "./connection.ts"
import { serveStream } from "./stream.ts"

/** Largest number of sessions at a time. Berth allows fewer. */
const MOST_SESSIONS = 16

/** A container that people can enter, if it has an entrance. */
export type Enterable = Pick<Container, "entrance">

export interface SessionsOptions {
  config: BootConfig
  keys: AgentKeys
  clock: Pick<Clock, "monotonic">
  logger: Logger
  /** Called at the first stream: a person has entered the container. */
  onEntered: () => void
  /** Called when a session's connection breaks off: the next report asks at once whether there is another session. */
  onLost: () => void
}

/** After a connection broke off, people open another session: reports come this often for a while, seconds. */
const ASK_SECONDS = 2
const ASK_FOR_SECONDS = 60

/** Lets people into the container, for as long as their sessions last. Nothing listens: the agent opens all connections. */
export class Sessions {
  readonly #options: SessionsOptions
  readonly #open = new Map<string, WebSocket | undefined>()
  readonly #streams = new Set<WebSocket>()
  #container: Enterable | undefined
  #isClosed = false
  #askSeconds = Number.POSITIVE_INFINITY
  /** Monotonic time until which another session is expected. */
  #expectedUntil = Number.NEGATIVE_INFINITY

  constructor(options: SessionsOptions) {
    this.#options = options
  }

  /**
   * Lets sessions into this container. The returned function ends that.
   * @param askSeconds longest time between two reports meanwhile, because people wait for each
   */
  admitTo(container: Enterable, askSeconds = Number.POSITIVE_INFINITY): () => void {
    this.#container = container
    this.#askSeconds = askSeconds
    return () => {
      if (this.#container === container) this.#container = undefined
    }
  }

  /** Connects to the sessions of an answer to a report. Returns the longest time until the next one, seconds. */
  join(ids: readonly string[]): number {
    for (const id of ids) {
      if (this.#isClosed || this.#open.has(id) || this.#open.size >= MOST_SESSIONS) continue
      this.#open.set(id, undefined)
      void this.#serve(id)
    }
    return this.#options.clock.monotonic() < this.#expectedUntil ? ASK_SECONDS : this.#askSeconds
  }

  /** Ends all sessions. */
  close(): void {
    this.#isClosed = true
    for (const socket of [...this.#open.values(), ...this.#streams]) socket?.terminate()
  }

  async #serve(session: string): Promise<void> {
    const { config, keys, logger } = this.#options
    let isEnded = false
    try {
      const socket = await openSessionSocket(config, keys, { session, stream: 0 })
      this.#open.set(session, socket)
      const ended = new Promise<void>((resolve) =>
        socket.once("close", (code) => {
          isEnded = code === NORMAL_CLOSURE
          resolve()
        }),
      )
      socket.on("error", () => undefined)
      socket.on("message", (data: Buffer) => void this.#openStream(session, data))
      if (this.#isClosed) socket.terminate()
      await ended
    } catch (err) {
      logger.warn({ err, session }, "failed to join a session")
    } finally {
      this.#open.delete(session)
      if (!isEnded) this.#expectAnother()
    }
  }

  #expectAnother(): void {
    const { clock, onLost } = this.#options
    this.#expectedUntil = clock.monotonic() + ASK_FOR_SECONDS
    if (!this.#isClosed) onLost()
  }

  async #openStream(session: string, message: Buffer): Promise<void> {
    const { config, keys, logger, onEntered } = this.#options
    try {
      const order: StreamOrder = check(StreamOrderSchema, JSON.parse(message.toString()), "the order")
      const socket = await openSessionSocket(config, keys, { session, stream: order.stream })
      this.#streams.add(socket)
      socket.once("close", () => this.#streams.delete(socket))
      if (this.#isClosed) return socket.terminate()
      onEntered()
      await serveStream(socket, order.target, this.#container)
    } catch (err) {
      logger.warn({ err, session }, "failed to open a stream of a session")
    }
  }
}
