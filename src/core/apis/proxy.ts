import http from "node:http"
import https from "node:https"
import { defined } from "./defined.ts"
import { withoutProxy } from "./vm-proxy.ts"

/** Forward proxies for the requests of a process: the variables that curl and most programs read. */
export interface ProxySettings {
  /** Proxy for http:// URLs. */
  httpProxy?: string
  /** Proxy for https:// URLs. */
  httpsProxy?: string
  /** Hosts that are reached without a proxy, separated by commas. */
  noProxy: string
}

/**
 * Returns the proxies that the environment names; undefined without any. A name in lower case has precedence, as for curl.
 * @throws RangeError for a URL that is none. It names the variable, and not the value, which may have a password.
 */
export function proxySettings(environment: Readonly<Record<string, string | undefined>>): ProxySettings | undefined {
  const read = (name: string) => environment[name.toLowerCase()] || environment[name] || undefined
  const urlOf = (name: string) => {
    const url = read(name)
    if (url === undefined || /^https?:$/.test(URL.parse(url)?.protocol ?? "")) return url
    throw new RangeError(
      `${name} is not the URL of a proxy: give an http or https URL, such as http://proxy.example.com:3128`,
    )
  }
  const [httpProxy, httpsProxy] = [urlOf("HTTP_PROXY"), urlOf("HTTPS_PROXY")]
  if (httpProxy === undefined && httpsProxy === undefined) return undefined
  return {
    ...defined({ httpProxy, httpsProxy }),
    noProxy: withoutProxy(read("NO_PROXY")),
  }
}

let current: ProxySettings | undefined

/** Returns the proxies of this process; undefined without any. */
export function proxyOfProcess(): ProxySettings | undefined {
  return current
}

/** Oldest Node.js with `setGlobalProxyFromEnv` (https://nodejs.org/api/http.html). */
const OLDEST_NODE = "24.14"

/**
 * Sends this process' requests by `fetch`, and by agents of `proxiedAgents`, through the proxies. Call it before the first
 * request. @throws RangeError if this Node.js can't
 */
export function useProxy(settings: ProxySettings | undefined): void {
  if (settings === undefined) return
  if (typeof http.setGlobalProxyFromEnv !== "function") {
    throw new RangeError(`HTTP_PROXY and HTTPS_PROXY need Node.js ${OLDEST_NODE}, and this is ${process.versions.node}`)
  }
  http.setGlobalProxyFromEnv(environmentOf(settings))
  current = settings
}

/** Connections to one host, as AWS' SDK limits them. */
const MAX_SOCKETS = 50

/**
 * Returns agents for clients that would make their own; undefined without a proxy. Node.js sends only requests of its
 * global agents through a proxy.
 */
export function proxiedAgents(): { httpAgent: http.Agent; httpsAgent: https.Agent } | undefined {
  if (current === undefined) return undefined
  const options = { keepAlive: true, maxSockets: MAX_SOCKETS, proxyEnv: environmentOf(current) }
  return { httpAgent: new http.Agent(options), httpsAgent: new https.Agent(options) }
}

/** Returns the agent for requests to a URL, also of a WebSocket; undefined without a proxy. */
export function proxiedAgentFor(url: string): http.Agent | undefined {
  const agents = proxiedAgents()
  return /^(https|wss):/.test(url) ? agents?.httpsAgent : agents?.httpAgent
}

function environmentOf({ httpProxy, httpsProxy, noProxy }: ProxySettings) {
  return {
    ...defined({ http_proxy: httpProxy, https_proxy: httpsProxy }),
    no_proxy: noProxy,
  }
}
