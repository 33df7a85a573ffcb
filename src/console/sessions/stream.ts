import {
  type FrameSocket,
  frameOf,
  NORMAL_CLOSURE,
  readFrame,
  readResult,
  SESSION_PROTOCOL,
  type StreamResult,
  sendPiece,
  type TerminalSize,
  TOKEN_PROTOCOL,
  WAITING_BYTES,
} from "../../core/apis/remote-command.ts"

/** Interval of looks at what waits in a socket, milliseconds: browsers have no event for that. */
const LOOK_MS = 20

export interface StreamOptions {
  url: string
  token: string
  /** The VM's agent has joined. */
  onJoin: () => void
  onOutput: (output: Uint8Array) => void
  onEnd: (end: StreamEnd) => void
}

/** End of a stream. */
export interface StreamEnd extends StreamResult {
  /** Reason of the server; empty if the command has ended by itself. */
  reason: string
}

/** A person's connection to the command of a session. */
export class CommandStream {
  readonly #socket: WebSocket
  readonly #frames: FrameSocket
  readonly #opened = Promise.withResolvers<void>()
  #sending = this.#opened.promise

  constructor({ url, token, onJoin, onOutput, onEnd }: StreamOptions) {
    const socket = new WebSocket(url, [SESSION_PROTOCOL, `${TOKEN_PROTOCOL}${token}`])
    socket.binaryType = "arraybuffer"
    this.#socket = socket
    this.#frames = framesOn(socket)
    let isOpen = false
    let result: StreamResult = {}
    socket.addEventListener("open", () => {
      isOpen = true
      this.#opened.resolve()
    })
    socket.addEventListener("message", onJoin, { once: true })
    socket.addEventListener("message", ({ data }: MessageEvent<ArrayBuffer>) => {
      const frame = readFrame(new Uint8Array(data))
      if (frame?.channel === "status") result = readResult(frame.content)
      if (frame?.channel === "stdout" || frame?.channel === "stderr") onOutput(frame.content)
    })
    socket.addEventListener("close", (event) => onEnd({ ...result, reason: reasonOf(event, isOpen) }))
  }

  /** Sends input after all that was sent before, as fast as the command takes it. */
  send(input: Uint8Array): void {
    this.#sending = this.#sending.then(() => sendPiece(this.#frames, "stdin", input)).catch(() => undefined)
  }

  resize(size: TerminalSize): void {
    if (this.#socket.readyState === this.#socket.OPEN) this.#socket.send(frameOf("resize", JSON.stringify(size)))
  }

  close(): void {
    this.#socket.close(NORMAL_CLOSURE)
  }
}

function reasonOf({ code, reason }: CloseEvent, wasOpen: boolean): string {
  if (reason !== "" || code === NORMAL_CLOSURE) return reason
  if (!wasOpen) return "Berth did not accept the connection"
  return "the connection broke off: the network, a proxy or the replica of Berth has ended it"
}

/** Returns the socket with the callbacks of `send`, which those of browsers lack. */
function framesOn(socket: WebSocket): FrameSocket {
  const whenTaken = (sent: () => void): void => {
    if (socket.bufferedAmount <= WAITING_BYTES || socket.readyState !== socket.OPEN) sent()
    else setTimeout(whenTaken, LOOK_MS, sent)
  }
  return {
    OPEN: socket.OPEN,
    get readyState() {
      return socket.readyState
    },
    get bufferedAmount() {
      return socket.bufferedAmount
    },
    send: (frame, sent) => {
      socket.send(frame)
      if (sent !== undefined) whenTaken(sent)
    },
  }
}
