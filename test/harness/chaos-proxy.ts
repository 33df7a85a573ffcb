import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http"
import { request as httpsRequest, type RequestOptions } from "node:https"
import type { AddressInfo, Socket } from "node:net"
import { KubeConfig } from "@kubernetes/client-node"

/** A response that replaces the API server's. */
export interface InjectedAnswer {
  code: number
  retryAfter?: number
  body: unknown
}

/** Kind of requests that a fault affects. */
export type RequestKind = "watch" | "list" | "any"

/**
 * A proxy between a client and a real API server. The proxy passes everything on, except for the faults that a test
 * requests. It speaks plain HTTP to the client and TLS to the server.
 */
export class ChaosProxy {
  readonly #upstream: RequestOptions
  readonly #server: Server
  readonly #sockets = new Set<Socket>()
  readonly #watches = new Set<{ from: IncomingMessage; to: ServerResponse }>()
  readonly #injected: { kind: RequestKind; answer: InjectedAnswer }[] = []
  readonly #held: (() => void)[] = []
  #mustWait: (url: string) => boolean = () => false
  #answersToLose = 0
  /** Number of watches passed on to the API server. */
  watchesOpened = 0
  /** Number of other requests passed on. */
  otherRequests = 0

  private constructor(upstream: RequestOptions) {
    this.#upstream = upstream
    this.#server = createServer((incoming, outgoing) => this.#handle(incoming, outgoing))
    this.#server.on("connection", (socket) => {
      this.#sockets.add(socket)
      socket.once("close", () => this.#sockets.delete(socket))
    })
  }

  /** Starts a proxy for the current cluster of this kubeconfig, with its user's credentials. */
  static async start(kubeConfig: KubeConfig): Promise<ChaosProxy> {
    const cluster = kubeConfig.getCurrentCluster()
    if (cluster === null) throw new Error("the kubeconfig names no cluster")
    const { hostname, port } = new URL(cluster.server)
    const upstream: RequestOptions = { hostname, port }
    await kubeConfig.applyToHTTPSOptions(upstream)
    const proxy = new ChaosProxy(upstream)
    await new Promise<void>((resolve) => proxy.#server.listen(0, "127.0.0.1", resolve))
    return proxy
  }

  /** Returns a kubeconfig of the proxy. */
  kubeConfig(): KubeConfig {
    const { port } = this.#server.address() as AddressInfo
    const config = new KubeConfig()
    // client-node allows plain HTTP only together with skipTLSVerify.
    const cluster = { name: "proxy", server: `http://127.0.0.1:${port}`, skipTLSVerify: true }
    config.loadFromClusterAndUser(cluster, { name: "proxy" })
    return config
  }

  /** Resets all connections (TCP RST), streams included. */
  reset(): void {
    for (const socket of this.#sockets) socket.resetAndDestroy()
  }

  /** Number of open watches: a watch that was opened again counts once. */
  get openWatches(): number {
    return this.#watches.size
  }

  /** Makes the open watches half-open: they deliver nothing more and don't end. */
  stall(): number {
    for (const { from, to } of this.#watches) {
      from.unpipe(to)
      from.resume()
    }
    return this.#watches.size
  }

  /** Ends the open watches with a proper end of stream, but in the middle of an event. */
  truncate(): number {
    for (const { from, to } of this.#watches) {
      from.unpipe(to)
      from.resume()
      to.end('{"type":"MODIFIED","object":{"kind":"ConfigMap","metadata":{"name":"cut')
    }
    return this.#watches.size
  }

  /** Responds to the next request of this kind itself. */
  inject(kind: RequestKind, answer: InjectedAnswer): void {
    this.#injected.push({ kind, answer })
  }

  /** Passes the next request on, and resets the connection instead of returning the response. */
  loseAnswer(): void {
    this.#answersToLose++
  }

  /** Passes on no request whose path and query `mustWait` accepts, until `letPass`. */
  hold(mustWait: (url: string) => boolean): void {
    this.#mustWait = mustWait
  }

  /** Number of requests that wait. */
  get held(): number {
    return this.#held.length
  }

  /** Passes on the requests that wait, and all later ones. */
  letPass(): void {
    this.#mustWait = () => false
    for (const pass of this.#held.splice(0)) pass()
  }

  /** Removes all requested faults. */
  calm(): void {
    this.#injected.length = 0
    this.#answersToLose = 0
  }

  async close(): Promise<void> {
    this.reset()
    await new Promise((resolve) => this.#server.close(resolve))
  }

  #handle(incoming: IncomingMessage, outgoing: ServerResponse): void {
    const { searchParams } = new URL(incoming.url ?? "", "http://proxy")
    const kind = searchParams.has("watch") ? "watch" : "list"
    const found = this.#injected.findIndex((fault) => fault.kind === kind || fault.kind === "any")
    if (found !== -1) {
      const [fault] = this.#injected.splice(found, 1)
      answer(outgoing, fault?.answer)
      return
    }
    const pass = (): void => this.#pass(incoming, outgoing, kind)
    if (this.#mustWait(incoming.url ?? "")) this.#held.push(pass)
    else pass()
  }

  #pass(incoming: IncomingMessage, outgoing: ServerResponse, kind: RequestKind): void {
    const headers = { ...incoming.headers, ...this.#upstream.headers }
    const options = { ...this.#upstream, path: incoming.url, method: incoming.method, headers }
    const passed = httpsRequest(options, (from) => {
      if (this.#answersToLose > 0) {
        this.#answersToLose--
        incoming.socket.resetAndDestroy()
        return
      }
      outgoing.writeHead(from.statusCode ?? 502, from.headers)
      outgoing.flushHeaders()
      const watch = { from, to: outgoing }
      if (kind === "list") this.otherRequests++
      else {
        this.watchesOpened++
        this.#watches.add(watch)
      }
      from.pipe(outgoing)
      from.on("error", () => outgoing.destroy())
      outgoing.on("close", () => {
        this.#watches.delete(watch)
        passed.destroy()
      })
    })
    passed.on("error", () => outgoing.destroy())
    incoming.pipe(passed)
  }
}

function answer(outgoing: ServerResponse, fault: InjectedAnswer | undefined): void {
  const headers: Record<string, string> = { "content-type": "application/json" }
  if (fault?.retryAfter !== undefined) headers["retry-after"] = String(fault.retryAfter)
  outgoing.writeHead(fault?.code ?? 500, headers)
  outgoing.end(typeof fault?.body === "string" ? fault.body : JSON.stringify(fault?.body))
}

/** Returns a `Status` like the API server's. */
export function status(code: number, reason: string): object {
  return {
    kind: "Status",
    apiVersion: "v1",
    metadata: {},
    status: "Failure",
    message: `injected ${reason}`,
    reason,
    code,
  }
}
