import type { KubeConfig } from "@kubernetes/client-node"
import { Agent, type Dispatcher, ProxyAgent, Socks5ProxyAgent } from "undici"
import type { Credentials } from "./credentials.ts"

/** The API server closes idle connections after 90 s (IdleTimeout of its secure serving): leave first. */
const KEEP_ALIVE_SECONDS = 60
/** TCP probes find a dead peer about 40 s after its last packet (libuv: 10 probes, one a second). */
const TCP_KEEP_ALIVE_SECONDS = 30
const CONNECT_TIMEOUT_SECONDS = 10

/** Two pools: a watch keeps its connection for minutes, so it must not take one that requests wait for. */
interface Pools {
  requests: Dispatcher
  streams: Dispatcher
}

/** The connections to one API server, made anew when the credentials that they carry have changed. */
export class Connections {
  readonly #kubeConfig: KubeConfig
  readonly #size: number
  #pools: Pools | undefined
  #tlsVersion = 0

  /** `size`: connections that requests share; each stream has one of its own. */
  constructor(kubeConfig: KubeConfig, size: number) {
    this.#kubeConfig = kubeConfig
    this.#size = size
  }

  get(credentials: Credentials): Pools {
    if (this.#pools !== undefined && this.#tlsVersion === credentials.tlsVersion) return this.#pools
    // Lets what runs on the old certificate finish, then closes; a failure to close has no consequence.
    this.close().catch(() => undefined)
    this.#tlsVersion = credentials.tlsVersion
    this.#pools = {
      // Without a limit undici opens one more whenever a connection has just been, but is not quite, freed.
      requests: makeDispatcher(this.#kubeConfig, credentials, this.#size),
      streams: makeDispatcher(this.#kubeConfig, credentials, null),
    }
    return this.#pools
  }

  /** Waits for what is running, then closes all. */
  async close(): Promise<void> {
    await Promise.all([this.#pools?.requests.close(), this.#pools?.streams.close()])
  }
}

function makeDispatcher(kubeConfig: KubeConfig, { tls }: Credentials, connections: number | null): Dispatcher {
  // The types differ between node:https and undici only in how they spell "undefined".
  const connect = {
    ...tls,
    keepAlive: true,
    keepAliveInitialDelay: TCP_KEEP_ALIVE_SECONDS * 1000,
    timeout: CONNECT_TIMEOUT_SECONDS * 1000,
  } as Exclude<Agent.Options["connect"], undefined>
  // HTTP/2 was measured: not faster, and one lost connection would take everything with it.
  const pool = { connections, allowH2: false, keepAliveTimeout: KEEP_ALIVE_SECONDS * 1000 }
  const proxyUrl = kubeConfig.getCurrentCluster()?.proxyUrl
  if (proxyUrl === undefined) return new Agent({ ...pool, connect })
  const requestTls = connect as Exclude<ProxyAgent.Options["requestTls"], undefined>
  if (proxyUrl.startsWith("socks")) return new Socks5ProxyAgent(proxyUrl, { ...pool, requestTls })
  return new ProxyAgent({ ...pool, uri: proxyUrl, requestTls })
}
