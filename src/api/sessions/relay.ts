import type { WebSocket } from "ws"
import { NORMAL_CLOSURE, WAITING_BYTES } from "../../core/apis/remote-command.ts"

/** Time for what waits in a socket that is closed for another reason than the end of what it was for, milliseconds. */
const LAST_WORDS_MS = 30_000

/** Bytes that went through a relay. */
export interface Counted {
  /** Bytes from the first socket to the second. */
  sent: number
  /** Bytes from the second socket to the first. */
  received: number
}

/** Copies messages between two sockets, each as fast as the other takes them, until one is closed. Both are closed then. */
export function relay(one: WebSocket, other: WebSocket, count: (bytes: Counted) => void): void {
  copy(one, other, (sent) => count({ sent, received: 0 }))
  copy(other, one, (received) => count({ sent: 0, received }))
}

function copy(from: WebSocket, to: WebSocket, count: (bytes: number) => void): void {
  from.on("message", (data: Buffer, isBinary) => {
    count(data.byteLength)
    if (to.readyState !== to.OPEN) return
    to.send(data, { binary: isBinary }, () => {
      if (to.bufferedAmount <= WAITING_BYTES) from.resume()
    })
    if (to.bufferedAmount > WAITING_BYTES) from.pause()
  })
  from.once("close", (code, reason) => {
    // What the other end has not read yet is sent before the close.
    closeSocket(to, code, reason.toString())
  })
}

/** Closes a socket, with a code that one may send. One that is closing already still sends what waits in it. */
export function closeSocket(socket: WebSocket, code: number, reason: string): void {
  socket.resume()
  if (socket.readyState === socket.OPEN) socket.close(isSendable(code) ? code : 1011, cut(reason))
  if (code === NORMAL_CLOSURE) return
  const timer = setTimeout(() => socket.terminate(), LAST_WORDS_MS).unref()
  socket.once("close", () => clearTimeout(timer))
}

/** Codes 1004 to 1006 and 1015 say what happened here, and are never sent (https://datatracker.ietf.org/doc/html/rfc6455#section-7.4.1). */
function isSendable(code: number): boolean {
  return (code >= 1000 && code <= 1014 && ![1004, 1005, 1006].includes(code)) || (code >= 3000 && code <= 4999)
}

/** Longest reason of a close, bytes. */
const REASON_BYTES = 123

function cut(reason: string): string {
  let text = reason
  while (Buffer.byteLength(text) > REASON_BYTES) text = text.slice(0, -1)
  return text
}
