import { Agent, type Dispatcher, EnvHttpProxyAgent } from "undici"
import { proxyOfProcess } from "./proxy.ts"

/**
 * Returns a dispatcher of undici that uses the proxies of this process. `connect` is for the connection to the host itself,
 * also within a proxy's tunnel; its `lookup` is not: a proxy looks up names.
 */
export function createDispatcher(options: Agent.Options): Dispatcher {
  const proxy = proxyOfProcess()
  if (proxy === undefined) return new Agent(options)
  const connect = typeof options.connect === "object" ? options.connect : {}
  const none = { httpProxy: "", httpsProxy: "" }
  return new EnvHttpProxyAgent({ ...options, ...none, ...proxy, requestTls: connect } as EnvHttpProxyAgent.Options)
}
