import type { KubeConfig } from "@kubernetes/client-node"
import { Agent, type Dispatcher, ProxyAgent, Socks5ProxyAgent } from "undici"
import type { Credentials } from "./credentials.ts"

/**
 * Idle time before a connection is closed. The API server closes idle connections after 90 s (IdleTimeout of its secure
 * serving), so Berth closes them first.
 */
const KEEP_ALIVE_SECONDS = 60
/**
 * Idle time before TCP probes. They find a dead peer about 40 s after its last packet (libuv: 10 probes, one a second).
 */
const TCP_KEEP_ALIVE_SECONDS = 30
const CONNECT_TIMEOUT_SECONDS = 10

/** Two pools. A watch keeps its connection for minutes, so it must not take one that requests wait for. */
interface Pools {
  requests: Dispatcher
  streams: Dispatcher
}

/** Connections to one API server. They are opened again after a change of the credentials that they use. */
export class Connections {
  readonly #kubeConfig: KubeConfig
  readonly #size: number
  #pools: Pools | undefined
  #tlsVersion = 0

  /** `size`: maximum number of connections that requests share. Each stream has its own. */
  constructor(kubeConfig: KubeConfig, size: number) {
    this.#kubeConfig = kubeConfig
    this.#size = size
  }

  get(credentials: Credentials): Pools {
    if (this.#pools !== undefined && this.#tlsVersion === credentials.tlsVersion) return this.#pools
    // Requests with the old certificate may finish before the close. A failed close has no effect.
    this.close().catch(() => undefined)
    this.#tlsVersion = credentials.tlsVersion
    this.#pools = {
      // Without a limit undici opens another connection while one is just being freed.
      requests: makeDispatcher(this.#kubeConfig, credentials, this.#size),
      streams: makeDispatcher(this.#kubeConfig, credentials, null),
    }
    return this.#pools
  }

  /** Waits for running requests, then closes all connections. */
  async close(): Promise<void> {
    await Promise.all([this.#pools?.requests.close(), this.#pools?.streams.close()])
  }
}

function makeDispatcher(kubeConfig: KubeConfig, { tls }: Credentials, connections: number | null): Dispatcher {
  // The types of node:https and undici differ only in their form of "undefined".
  const connect = {
    ...tls,
    keepAlive: true,
    keepAliveInitialDelay: TCP_KEEP_ALIVE_SECONDS * 1000,
    timeout: CONNECT_TIMEOUT_SECONDS * 1000,
  } as Exclude<Agent.Options["connect"], undefined>
  // A measurement showed that HTTP/2 is not faster. One lost connection would also break all requests and watches.
  const pool = { connections, allowH2: false, keepAliveTimeout: KEEP_ALIVE_SECONDS * 1000 }
  const proxyUrl = kubeConfig.getCurrentCluster()?.proxyUrl
  if (proxyUrl === undefined) return new Agent({ ...pool, connect })
  const requestTls = connect as Exclude<ProxyAgent.Options["requestTls"], undefined>
  if (proxyUrl.startsWith("socks")) return new Socks5ProxyAgent(proxyUrl, { ...pool, requestTls })
  return new ProxyAgent({ ...pool, uri: proxyUrl, requestTls })
}
