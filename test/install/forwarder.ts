import { once } from "node:events"
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net"

/** Target of new connections; undefined if there is none now. */
export type Target = () => { host: string; port: number } | undefined

/** Forwards TCP connections like a cluster's Services: each connects to the current target. */
export class Forwarder {
  readonly port: number
  readonly #server: Server
  readonly #sockets: Set<Socket>

  private constructor(server: Server, sockets: Set<Socket>) {
    this.#server = server
    this.#sockets = sockets
    this.port = (server.address() as AddressInfo).port
  }

  /** Listens at a free port of the address. */
  static async start(address: string, target: Target): Promise<Forwarder> {
    const sockets = new Set<Socket>()
    const server = createServer((inbound) => {
      const to = target()
      // Resets the connection, like a Service without endpoints.
      if (to === undefined) {
        inbound.resetAndDestroy()
        return
      }
      const outbound = connect(to)
      for (const [socket, other] of [
        [inbound, outbound],
        [outbound, inbound],
      ] as const) {
        sockets.add(socket)
        socket.pipe(other)
        // A connection that breaks on one side breaks on the other. It needs no other handling here.
        socket.on("error", () => other.destroy())
        socket.on("close", () => {
          sockets.delete(socket)
          other.destroy()
        })
      }
    })
    server.listen(0, address)
    await once(server, "listening")
    return new Forwarder(server, sockets)
  }

  async close(): Promise<void> {
    const closed = once(this.#server, "close")
    this.#server.close()
    for (const socket of this.#sockets) socket.destroy()
    await closed
  }
}
