import { once } from "node:events"
import { type AddressInfo, connect, createServer } from "node:net"

/** Passes each connection on to the next of its targets, as a load balancer does. Without a target it closes them. */
export class Balancer {
  targets: string[]
  readonly #server = createServer((near) => {
    const target = this.targets[this.#count++ % this.targets.length]
    if (target === undefined) {
      near.destroy()
      return
    }
    const { hostname, port } = new URL(target)
    const far = connect({ host: hostname, port: Number(port) })
    for (const socket of [near, far]) socket.on("error", () => undefined)
    near.pipe(far).pipe(near)
    near.once("close", () => far.destroy())
    far.once("close", () => near.destroy())
  })
  #count = 0

  private constructor(targets: string[]) {
    this.targets = targets
  }

  static async start(targets: string[]): Promise<Balancer> {
    const balancer = new Balancer(targets)
    balancer.#server.listen(0, "127.0.0.1")
    await once(balancer.#server, "listening")
    return balancer
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.close()
  }
}
