import { once } from "node:events"
import { createServer, type IncomingMessage, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import { text } from "node:stream/consumers"
import type { Fetch } from "../../src/core/outbound/guarded-fetch.ts"

/** A request to a provider, as its server received it. */
export interface ApiRequest {
  method: string
  /** Host to which the request was addressed. */
  host: string
  path: string
  query: URLSearchParams
  headers: IncomingMessage["headers"]
  body: string
}

/** Response; `hang` never responds, `reset` resets the connection. */
export type ApiAnswer =
  | { status?: number; json?: unknown; text?: string; headers?: Record<string, string> }
  | "hang"
  | "reset"

/** One operation of a provider's published API, with the required form of a request and the response. */
export interface Operation {
  method: string
  host: string
  path: RegExp
  /** Query parameters with the required value of each; those that begin with `?` are optional. */
  query?: Record<string, RegExp>
  headers?: Record<string, RegExp>
  body?: RegExp
  answer: (request: ApiRequest, match: RegExpExecArray) => ApiAnswer | Promise<ApiAnswer>
}

/** A small server for some providers' APIs. It rejects and records every request that their documents don't define. */
export interface ApiServer {
  /** Sends requests to this server, for any host. */
  send: Fetch
  requests: ApiRequest[]
  /** Returns all faults of requests; at the end of a test there must be none. */
  faults: string[]
  /** Changes a response from now on. */
  override(path: RegExp, answer: Operation["answer"] | undefined): void
  stop(): Promise<void>
}

export async function startApiServer(operations: readonly Operation[]): Promise<ApiServer> {
  const requests: ApiRequest[] = []
  const faults: string[] = []
  const overrides = new Map<string, Operation["answer"]>()
  const server = createServer(async (req, res) => {
    const request = await requestOf(req)
    requests.push(request)
    const [answer, ...wrong] = await answerTo(request, operations, overrides)
    faults.push(...wrong)
    reply(req, res, answer)
  })
  server.listen(0, "127.0.0.1")
  await once(server, "listening")
  const { port } = server.address() as AddressInfo
  return {
    send: redirectTo(() => `http://127.0.0.1:${port}`),
    requests,
    faults,
    override: (path, answer) => {
      if (answer === undefined) overrides.delete(path.source)
      else overrides.set(path.source, answer)
    },
    stop: async () => {
      server.closeAllConnections()
      server.close()
      await once(server, "close")
    },
  }
}

/** Returns a fetch that sends requests to another origin, with the original origin in a header. */
export function redirectTo(originOf: (host: string) => string): Fetch {
  return (input, init) => {
    const request = new Request(input, init)
    const { host, pathname, search } = new URL(request.url)
    const headers = new Headers(request.headers)
    headers.set("x-meant-host", host)
    const { method, signal, redirect } = request
    const body = init?.body ?? undefined
    return fetch(`${originOf(host)}${pathname}${search}`, { method, headers, signal, redirect, ...(body && { body }) })
  }
}

async function requestOf(req: IncomingMessage): Promise<ApiRequest> {
  const url = new URL(req.url ?? "/", "http://localhost")
  const host = String(req.headers["x-meant-host"] ?? "")
  const body = await text(req)
  return { method: req.method ?? "", host, path: url.pathname, query: url.searchParams, headers: req.headers, body }
}

async function answerTo(
  request: ApiRequest,
  operations: readonly Operation[],
  overrides: ReadonlyMap<string, Operation["answer"]>,
): Promise<[ApiAnswer, ...string[]]> {
  const { method, host, path } = request
  for (const operation of operations) {
    const match = operation.path.exec(path)
    if (operation.method !== method || operation.host !== host || match === null) continue
    const wrong = errorsOf(request, operation)
    if (wrong.length > 0) return [{ status: 400, json: { message: wrong.join("; ") } }, ...wrong]
    const overriding = [...overrides].find(([source]) => new RegExp(source).test(path))?.[1]
    return [await (overriding ?? operation.answer)(request, match)]
  }
  const unknown = `no operation ${method} ${host}${path}`
  return [{ status: 404, json: { message: unknown } }, unknown]
}

function errorsOf(request: ApiRequest, { query = {}, headers = {}, body }: Operation): string[] {
  const known = new Map(Object.entries(query).map(([key, pattern]) => [key.replace(/^[?]/, ""), pattern]))
  const wrong = [...new Set(request.query.keys())]
    .filter((name) => !known.get(name)?.test(request.query.get(name) ?? ""))
    .map((name) => `${name}=${request.query.get(name)}`)
  const missing = Object.keys(query).filter((name) => !name.startsWith("?") && !request.query.has(name))
  const headersWrong = Object.entries(headers)
    .filter(([name, pattern]) => !pattern.test(String(request.headers[name] ?? "")))
    .map(([name]) => `header ${name}: ${request.headers[name]}`)
  const bodyWrong = body === undefined || body.test(request.body) ? [] : [`body ${request.body}`]
  const where = `${request.method} ${request.host}${request.path}`
  return [...wrong, ...missing.map((name) => `no ${name}`), ...headersWrong, ...bodyWrong].map(
    (fault) => `${where}: ${fault}`,
  )
}

function reply(req: IncomingMessage, res: ServerResponse, answer: ApiAnswer): void {
  if (answer === "hang") return
  if (answer === "reset") {
    req.socket.destroy()
    return
  }
  const { status = 200, json, text: plain, headers = {} } = answer
  const type = json === undefined ? "text/html" : "application/json"
  res.writeHead(status, { "content-type": type, ...headers }).end(json === undefined ? plain : JSON.stringify(json))
}

/** Returns all results of a discovery: its items, and the error that ended it. */
export async function collect<T>(pages: AsyncIterable<T[]> | undefined): Promise<{ items: T[]; error?: unknown }> {
  const items: T[] = []
  try {
    for await (const page of pages ?? []) items.push(...page)
    return { items }
  } catch (error) {
    return { items, error }
  }
}

/** A signal that is never aborted. */
export const unending = (): AbortSignal => new AbortController().signal
