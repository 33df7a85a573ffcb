import { once } from "node:events"
import { connect, createServer, type Server, type Socket } from "node:net"
import { join } from "node:path"

/** Returns the path of the socket that stands for a port of this machine. */
export function socketOf(folder: string, port: number): string {
  return join(folder, `${port}.sock`)
}

/** The two ends of a connection. A far end that is absent was not reached yet. */
interface Connection {
  port: number
  near: Socket
  far?: Socket
}

/**
 * The only way from a network of its own to some ports of this machine: a socket in a folder for each. A pulled cable ends
 * no connection, as in a real network: nothing arrives until it is plugged in again, and then everything does.
 */
export class Cable {
  readonly #connections = new Set<Connection>()
  readonly #servers: Server[] = []
  #isPulled = false

  static async lay(folder: string, ports: readonly number[]): Promise<Cable> {
    const cable = new Cable()
    for (const port of ports) {
      const server = createServer((near) => cable.#accept({ port, near })).listen(socketOf(folder, port))
      await once(server, "listening")
      cable.#servers.push(server)
    }
    return cable
  }

  pull(): void {
    this.#isPulled = true
    for (const { near, far } of this.#connections) {
      for (const end of [near, far]) end?.unpipe().pause()
    }
  }

  plug(): void {
    this.#isPulled = false
    for (const connection of this.#connections) this.#join(connection)
  }

  async remove(): Promise<void> {
    const closed = this.#servers.map((server) => once(server.close(), "close"))
    for (const connection of this.#connections) this.#end(connection)
    await Promise.all(closed)
  }

  #accept(connection: Connection): void {
    this.#connections.add(connection)
    this.#endWith(connection, connection.near)
    if (!this.#isPulled) this.#join(connection)
  }

  #join(connection: Connection): void {
    const { near, port } = connection
    const far = connection.far ?? connect(port, "127.0.0.1")
    if (connection.far === undefined) {
      connection.far = far
      this.#endWith(connection, far)
    }
    near.pipe(far).pipe(near)
  }

  #endWith(connection: Connection, end: Socket): void {
    end.on("error", () => this.#end(connection)).on("close", () => this.#end(connection))
  }

  #end(connection: Connection): void {
    this.#connections.delete(connection)
    for (const end of [connection.near, connection.far]) end?.destroy()
  }
}
