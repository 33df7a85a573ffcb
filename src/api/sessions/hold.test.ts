import { once } from "node:events"
import type { AddressInfo } from "node:net"
import { expect, it } from "vitest"
import { WebSocket, WebSocketServer } from "ws"
import { hold } from "./hold.ts"

it.each([
  ["before", true],
  ["after", false],
])(
  "a socket's reader gets all messages and the close, also if it was closed %s there was a reader",
  async (_, isEarly) => {
    const server = new WebSocketServer({ host: "127.0.0.1", port: 0 })
    await once(server, "listening")
    const client = new WebSocket(`ws://127.0.0.1:${(server.address() as AddressInfo).port}`)
    const [socket] = (await once(server, "connection")) as [WebSocket]
    const release = hold(socket)
    const arrived = once(socket, "message")
    await once(client, "open")
    client.send("first")
    await arrived
    const closed = once(socket, "close")
    const end = (): void => {
      client.send("last")
      client.close(1000, "done")
    }
    if (isEarly) {
      end()
      await closed
    }
    const received: string[] = []
    socket.on("message", (data: Buffer) => received.push(data.toString()))
    const seen = once(socket, "close")
    release()
    if (!isEarly) end()
    expect([(await seen)[0], received]).toEqual([1000, ["first", "last"]])
    server.close()
  },
)
