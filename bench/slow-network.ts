import { once } from "node:events"
import { type AddressInfo, connect, createServer, type Socket } from "node:net"

/** Bytes that wait in one direction of a connection, at most. */
const MOST_WAITING = 4 * 1024 * 1024

export interface Network {
  roundTripMs: number
  /** Bytes per second from the server: of one connection, and of all. */
  ofConnection: number
  ofAll: number
}

/** Way to a server of this machine. */
export interface SlowNetwork {
  port: number
  /** First lines of all HTTP requests. */
  requests: string[]
  close: () => Promise<void>
}

/** Starts a proxy that delays all bytes by half a round trip, and those of the server by their rates too. */
export async function startSlowNetwork(target: number, network: Network): Promise<SlowNetwork> {
  const requests: string[] = []
  const sockets = new Set<Socket>()
  const all = new Rate(network.ofAll)
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (client) => {
    const upstream = connect({ port: target, host: "127.0.0.1", allowHalfOpen: true, noDelay: true })
    for (const socket of [client, upstream]) sockets.add(socket.once("close", () => sockets.delete(socket)))
    client.on("data", (data: Buffer) => {
      const [, line] = /^((?:GET|HEAD|PUT|POST) \S+)/.exec(data.toString("latin1", 0, 512)) ?? []
      if (line !== undefined) requests.push(line)
    })
    const half = network.roundTripMs / 2
    pass([client, upstream], () => half)
    const one = new Rate(network.ofConnection)
    pass([upstream, client], (bytes) => half + Math.max(one.delay(bytes), all.delay(bytes)))
  }).listen(0, "127.0.0.1")
  await once(server, "listening")
  return {
    port: (server.address() as AddressInfo).port,
    requests,
    close: async () => {
      for (const socket of sockets) socket.destroy()
      server.close()
      await once(server, "close")
    },
  }
}

/** Bytes per second, shared by all that use it. */
class Rate {
  readonly #bytesPerMs: number
  #freeAt = 0

  constructor(bytesPerSecond: number) {
    this.#bytesPerMs = bytesPerSecond / 1000
  }

  /** Takes the time of these bytes. Returns milliseconds until they have passed. */
  delay(bytes: number): number {
    const now = performance.now()
    this.#freeAt = Math.max(this.#freeAt, now) + bytes / this.#bytesPerMs
    return this.#freeAt - now
  }
}

/** Passes all bytes on in their order, each piece after its delay. */
function pass([from, to]: [Socket, Socket], delayOf: (bytes: number) => number): void {
  const queue: { at: number; data: Buffer | undefined }[] = []
  let waiting = 0
  let isTimed = false
  const send = (): void => {
    isTimed = false
    for (let [first] = queue; first !== undefined && first.at <= performance.now(); [first] = queue) {
      queue.shift()
      waiting -= first.data?.length ?? 0
      if (first.data === undefined) to.end()
      else to.write(first.data)
    }
    if (waiting < MOST_WAITING) from.resume()
    schedule()
  }
  const schedule = (): void => {
    const [first] = queue
    if (first === undefined || isTimed) return
    isTimed = true
    setTimeout(send, Math.max(0, first.at - performance.now()))
  }
  const put = (data: Buffer | undefined): void => {
    queue.push({ at: performance.now() + delayOf(data?.length ?? 0), data })
    waiting += data?.length ?? 0
    if (waiting >= MOST_WAITING) from.pause()
    schedule()
  }
  from.on("data", put)
  from.on("end", () => put(undefined))
  from.on("error", () => to.destroy())
}
