import type { WebSocket } from "ws"
import { FRAME_BYTES } from "../../core/apis/remote-command.ts"

/**
 * Holds the messages of a socket that has no reader yet. The socket is read until they are more than a frame, so that its
 * close is seen. The returned function gives them to the listeners that the socket has then, and reads on.
 */
export function hold(socket: WebSocket): () => void {
  const held: [data: Buffer, isBinary: boolean][] = []
  let bytes = 0
  const keep = (data: Buffer, isBinary: boolean): void => {
    held.push([data, isBinary])
    bytes += data.byteLength
    if (bytes > FRAME_BYTES) socket.pause()
  }
  socket.on("message", keep)
  return () => {
    socket.off("message", keep)
    for (const message of held) socket.emit("message", ...message)
    socket.resume()
  }
}
