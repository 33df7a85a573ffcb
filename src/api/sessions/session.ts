import type { Duplex } from "node:stream"
import type { WebSocket } from "ws"
import type { Clock } from "../../core/apis/clock.ts"
import { frameOf, NORMAL_CLOSURE } from "../../core/apis/remote-command.ts"
import type { SessionTarget, StreamOrder } from "../../core/protocol/sessions.ts"
import { hold } from "./hold.ts"
import type { SessionFacts } from "./lease.ts"
import { portStream, StreamBroken } from "./port-stream.ts"
import { type Counted, closeSocket, relay } from "./relay.ts"
import { Token } from "./token.ts"

/** Time in which the agent must have opened a stream, seconds. It learns of a session by its next report. */
export const JOIN_SECONDS = 75

/** Largest number of streams of a session at a time: a browser opens many connections to one port. */
const MOST_STREAMS = 64

/** Codes with which a socket is closed (https://www.iana.org/assignments/websocket). */
export const CLOSES = {
  done: NORMAL_CLOSURE,
  restart: 1012,
  policy: 1008,
  tryLater: 1013,
} as const

const PERSON_LEFT = "its person has left"

export interface SessionOptions {
  facts: SessionFacts
  target: SessionTarget
  clock: Clock
}

/** Client of a stream. */
interface Client {
  /** Joins it with the agent's socket. */
  join: (agent: WebSocket) => void
  refuse: (code: number, reason: string) => void
}

/** Stream whose client waits for the agent. */
interface Waiting extends Client {
  order: StreamOrder
  cancel: () => void
}

/** A session that this replica holds: it joins each client's socket with one of the agent. */
export class Session {
  readonly facts: SessionFacts
  /** Secret of the clients. */
  readonly token = new Token()
  readonly #target: SessionTarget
  readonly #clock: Clock
  #agent: WebSocket | undefined
  #streams = 0
  readonly #waiting = new Map<number, Waiting>()
  readonly #sockets = new Set<WebSocket>()
  /** Agent's sockets of the streams that have a client. */
  readonly #joined = new Set<WebSocket>()
  readonly #ended = Promise.withResolvers<string>()
  #reason: string | undefined
  /** Reason of the first close of a command's two sockets. */
  #whyLeft: string | undefined
  /** Bytes from and to the person. */
  readonly bytes = { sent: 0, received: 0 }
  /** Monotonic time of the last byte. */
  #usedAt: number

  constructor({ facts, target, clock }: SessionOptions) {
    this.facts = facts
    this.#target = target
    this.#clock = clock
    this.#usedAt = clock.monotonic()
  }

  /** Resolves with the reason when the session has ended. */
  get ended(): Promise<string> {
    return this.#ended.promise
  }

  /** Reason of the end; undefined before it. */
  get reason(): string | undefined {
    return this.#reason
  }

  /** Seconds without a byte. */
  get idleSeconds(): number {
    return this.#clock.monotonic() - this.#usedAt
  }

  /** Returns why no further client may connect now; undefined if one may. */
  whyFull(): string | undefined {
    const most = this.#target.exec === undefined ? MOST_STREAMS : 1
    const open = this.#waiting.size + this.#joined.size
    return open < most ? undefined : `the session has ${most} of ${most} streams`
  }

  /** Takes a client's socket, and orders its stream from the agent. */
  addClient(client: WebSocket): void {
    client.on("error", () => undefined)
    const release = hold(client)
    const stream = this.#order({
      join: (agent) => {
        this.#keep(client, () => PERSON_LEFT)
        relay(client, agent, (bytes) => this.#count(bytes))
        // As in Kubernetes, an empty message says that the other end is there.
        client.send(frameOf("stdout", ""))
        release()
      },
      refuse: (code, reason) => closeSocket(client, code, reason),
    })
    client.once("close", () => this.#giveUp(stream, CLOSES.done, PERSON_LEFT))
  }

  /** Orders a stream of a port for this replica itself. @throws StreamBroken */
  connect(): Promise<Duplex> {
    const full = this.whyFull()
    if (full !== undefined || this.#reason !== undefined) throw new StreamBroken(full ?? "the session has ended")
    return new Promise((resolve, reject) => {
      this.#order({
        join: (agent) => resolve(portStream(agent, (bytes) => this.#count(bytes))),
        refuse: (_code, reason) => reject(new StreamBroken(reason)),
      })
    })
  }

  /** Orders a stream from the agent, and returns its number. */
  #order(client: Client): number {
    const order = { stream: ++this.#streams, target: this.#target }
    const late = `the agent of the VM did not connect within ${JOIN_SECONDS} s`
    const cancel = this.#clock.setTimer(JOIN_SECONDS, () => this.#giveUp(order.stream, CLOSES.tryLater, late))
    this.#waiting.set(order.stream, { ...client, order, cancel })
    this.#agent?.send(JSON.stringify(order))
    return order.stream
  }

  /** Takes the agent's own connection, in place of an earlier one. */
  addAgent(agent: WebSocket): void {
    agent.on("error", () => undefined)
    const { reason } = this
    if (reason !== undefined) {
      closeSocket(agent, CLOSES.done, reason)
      return
    }
    this.#agent?.close(CLOSES.done)
    this.#agent = agent
    agent.once("close", () => {
      if (this.#agent === agent) this.#agent = undefined
    })
    for (const { order } of this.#waiting.values()) agent.send(JSON.stringify(order))
  }

  /** Returns true if a client waits for the agent's stream of this number. */
  awaits(stream: number): boolean {
    return this.#waiting.has(stream)
  }

  /** Joins the agent's stream with its client. The first one has it. */
  addStream(stream: number, agent: WebSocket): void {
    const waiting = this.#waiting.get(stream)
    if (waiting === undefined) {
      closeSocket(agent, CLOSES.policy, "no client waits for this stream")
      return
    }
    this.#waiting.delete(stream)
    waiting.cancel()
    agent.on("error", () => undefined)
    this.#joined.add(agent)
    this.#keep(agent, whyAgentEnded)
    waiting.join(agent)
  }

  /** @param why returns the reason of the socket's close, by its code */
  #keep(socket: WebSocket, why: (code: number) => string): void {
    this.#sockets.add(socket)
    socket.once("close", (code) => this.#remove(socket, why(code)))
  }

  #count({ sent, received }: Counted): void {
    this.#usedAt = this.#clock.monotonic()
    this.bytes.sent += sent
    this.bytes.received += received
  }

  /** Ends the session and all its streams. The first reason counts. */
  end(reason: string, code: number = CLOSES.policy): void {
    if (this.#reason !== undefined) return
    this.#reason = reason
    this.#ended.resolve(reason)
    for (const stream of this.#waiting.keys()) this.#drop(stream, code, reason)
    for (const socket of this.#sockets) closeSocket(socket, code, reason)
    // The agent looks for the next session if this replica stops.
    if (this.#agent !== undefined) closeSocket(this.#agent, code === CLOSES.restart ? code : CLOSES.done, reason)
  }

  /** A command has one stream, with which its session ends. */
  #remove(socket: WebSocket, why: string): void {
    this.#sockets.delete(socket)
    this.#joined.delete(socket)
    // The first of the two closes the other one.
    this.#whyLeft ??= why
    if (this.#target.exec !== undefined && this.#sockets.size === 0) this.end(this.#whyLeft, CLOSES.done)
  }

  /** Ends the wait for the agent's stream. A command has no other one. */
  #giveUp(stream: number, code: number, reason: string): void {
    if (!this.#waiting.has(stream)) return
    if (this.#target.exec === undefined) this.#drop(stream, code, reason)
    else this.end(reason, code)
  }

  #drop(stream: number, code: number, reason: string): void {
    const waiting = this.#waiting.get(stream)
    if (waiting === undefined) return
    this.#waiting.delete(stream)
    waiting.cancel()
    waiting.refuse(code, reason)
  }
}

function whyAgentEnded(code: number): string {
  return code === CLOSES.done ? "the command has ended" : "the connection to the VM's agent broke off"
}
