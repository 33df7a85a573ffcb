import { once } from "node:events"
import { readFileSync } from "node:fs"
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import { text } from "node:stream/consumers"
import type { Vm as CloudVm } from "../src/clouds/cloud.ts"
import { systemClock, timestamp } from "../src/core/apis/clock.ts"
import { bootVm, type Vm } from "../test/agent/vm.ts"
import type { VmRequest } from "./simulated-cloud.ts"

/** Life of one VM. Times are seconds since this machine's boot. */
export interface VmTimes {
  /** Time of the request for it. */
  requested: number
  vm: Promise<Vm>
  /** Resolves with the time of the first request for its termination. */
  terminated: Promise<number>
}

/** Returns seconds since this machine's boot, in steps of 10 ms, as all its containers read them, too. */
export function uptime(): number {
  return Number(readFileSync("/proc/uptime", "utf8").split(" ")[0])
}

/**
 * A cloud for `simulated-operator.ts` whose VMs boot with a real cloud-init and have a real engine (test/agent/vm.ts). It
 * replaces texts in the user data: names that a VM does not know.
 */
export class VmCloud {
  readonly #server: Server
  readonly #vms = new Map<string, { listed: CloudVm; times: VmTimes; terminate: (time: number) => void }>()
  readonly #replaced: Record<string, string>
  #created = Promise.withResolvers<VmTimes>()

  private constructor(replaced: Record<string, string>) {
    this.#replaced = replaced
    this.#server = createServer((request, response) => {
      this.#answer(request, response).catch((error: unknown) => response.writeHead(500).end(String(error)))
    })
  }

  static async start(replaced: Record<string, string>): Promise<VmCloud> {
    const cloud = new VmCloud(replaced)
    cloud.#server.listen(0, "127.0.0.1")
    await once(cloud.#server, "listening")
    return cloud
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  /** Resolves with the next VM that is requested. */
  next(): Promise<VmTimes> {
    this.#created = Promise.withResolvers<VmTimes>()
    return this.#created.promise
  }

  async stop(): Promise<void> {
    await Promise.all([...this.#vms.values()].map(async ({ times }) => await (await times.vm).remove()))
    this.#server.close()
    this.#server.closeAllConnections()
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { pathname, searchParams } = new URL(request.url ?? "/", this.url)
    const answer = (content: object): void =>
      void response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(content))
    if (request.method === "PUT") return answer(this.#launch(JSON.parse(await text(request)) as VmRequest))
    if (request.method === "GET") {
      const region = searchParams.get("region")
      return answer([...this.#vms.values()].map(({ listed }) => listed).filter((vm) => vm.region === region))
    }
    const name = decodeURIComponent(pathname.slice(1))
    const found = this.#vms.get(name)
    found?.terminate(uptime())
    this.#vms.delete(name)
    await (await found?.times.vm)?.remove()
    answer({})
  }

  #launch({ name, installation, region, userData }: VmRequest): CloudVm {
    const known = this.#vms.get(name)
    if (known !== undefined) return known.listed
    const requested = uptime()
    const userText = Object.entries(this.#replaced).reduce((all, [from, to]) => all.replaceAll(from, to), userData)
    const { promise: terminated, resolve: terminate } = Promise.withResolvers<number>()
    const times = { requested, vm: bootVm(userText, { images: false }), terminated }
    const createTime = timestamp(systemClock.now())
    const listed: CloudVm = { id: name, launch: name, installation, region, state: "running", createTime }
    this.#vms.set(name, { listed, times, terminate })
    this.#created.resolve(times)
    return listed
  }
}
