import type { WebSocket } from "ws"
import type { Clock } from "./clock.ts"

/** Interval of pings, which keep proxies from closing a silent connection and find dead ones, seconds. */
export const PING_SECONDS = 20

/**
 * Terminates a connection from which nothing has come for two intervals. Both ends call it: one whose reader is slow reads
 * no pings from its socket, and answers none, but still sends its own.
 */
export function keepAlive(socket: WebSocket, clock: Pick<Clock, "setTimer">): void {
  let isAlive = true
  const heard = (): void => {
    isAlive = true
  }
  for (const event of ["message", "ping", "pong"]) socket.on(event, heard)
  let cancel = (): void => undefined
  const look = (): void => {
    if (!isAlive && !socket.isPaused) {
      socket.terminate()
      return
    }
    // What waits in a socket that is not read says nothing.
    isAlive = socket.isPaused
    if (socket.readyState === socket.OPEN) socket.ping()
    cancel = clock.setTimer(PING_SECONDS, look)
  }
  cancel = clock.setTimer(PING_SECONDS, look)
  socket.once("close", () => cancel())
}
