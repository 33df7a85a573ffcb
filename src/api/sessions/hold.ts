import type { WebSocket } from "ws"
import { FRAME_BYTES } from "../../core/apis/remote-command.ts"

/**
 * Holds the messages of a socket that has no reader yet, and its close. The socket is read until they are more than a frame,
 * so that those who wait for its close see it. The returned function gives all to the listeners that the socket has then, and
 * reads on.
 */
export function hold(socket: WebSocket): () => void {
  const held: [data: Buffer, isBinary: boolean][] = []
  let close: [code: number, reason: Buffer] | undefined
  let bytes = 0
  const keep = (data: Buffer, isBinary: boolean): void => {
    held.push([data, isBinary])
    bytes += data.byteLength
    if (bytes > FRAME_BYTES) socket.pause()
  }
  const keepClose = (code: number, reason: Buffer): void => {
    close = [code, reason]
  }
  socket.on("message", keep)
  socket.once("close", keepClose)
  return () => {
    socket.off("message", keep)
    socket.off("close", keepClose)
    for (const message of held) socket.emit("message", ...message)
    // A short command may have ended before its agent's proof was checked.
    if (close === undefined) socket.resume()
    else socket.emit("close", ...close)
  }
}
