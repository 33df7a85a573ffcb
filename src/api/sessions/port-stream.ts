import { Duplex } from "node:stream"
import type { WebSocket } from "ws"
import { CHANNELS, endOf, NORMAL_CLOSURE, readFrame, readResult, sendPiece } from "../../core/apis/remote-command.ts"
import type { Counted } from "./relay.ts"

/** End of a stream before its time, such as a port where no program listens. Its message is for people. */
export class StreamBroken extends Error {
  override readonly name = "StreamBroken"
}

/** Parts of a socket that Node.js' HTTP client calls while a connection waits for its next request. A stream needs none. */
const OF_SOCKETS = {
  timeout: 0,
  ...Object.fromEntries(["ref", "unref", "setKeepAlive", "setTimeout"].map((name) => [name, () => undefined])),
}

/** Returns the connection to a port of a container that an agent's socket carries. */
export function portStream(socket: WebSocket, count: (bytes: Counted) => void): Duplex {
  let isComplete = false
  const end = (): void => {
    if (!isComplete) stream.push(null)
    isComplete = true
  }
  const stream = new Duplex({
    read: () => socket.resume(),
    write: (piece: Buffer, _encoding, done) => {
      count({ sent: piece.byteLength, received: 0 })
      sendPiece(socket, "stdin", piece).then(() => done(), done)
    },
    final: (done) => {
      if (socket.readyState === socket.OPEN) socket.send(endOf("stdin"))
      done()
    },
    destroy: (error, done) => {
      socket.resume()
      socket.close(NORMAL_CLOSURE)
      done(error)
    },
  })
  const take = (content: Uint8Array): void => {
    count({ sent: 0, received: content.byteLength })
    if (!stream.push(content)) socket.pause()
  }
  socket.on("message", (data: Buffer) => {
    const { channel, content = new Uint8Array() } = readFrame(data) ?? {}
    const { error } = channel === "status" ? readResult(content) : {}
    if (error !== undefined) stream.destroy(new StreamBroken(error))
    else if (channel === "stdout" && !isComplete) take(content)
    else if (channel === "close" && content[0] === CHANNELS.stdout) end()
  })
  socket.once("close", (code, reason) => {
    if (code === NORMAL_CLOSURE) end()
    else stream.destroy(new StreamBroken(reason.toString() || "the connection to the container broke off"))
  })
  return Object.assign(stream, OF_SOCKETS)
}
