import { once } from "node:events"
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import { text } from "node:stream/consumers"
import { MOTO_ACCOUNT } from "../moto.ts"
import type { Life, LostAnswer } from "./crash-gate.ts"

/** Operator process that calls, and its account in moto. */
interface Guest {
  life: Life
  account: string
}

/** Actions that change nothing. */
const READS = /^(Describe|Get|List)/

interface Answer {
  status: number
  type: string
  body: string
}

/**
 * Endpoint for AWS' SDK. It identifies the calling process by the access key, and passes its requests through its gate.
 */
export class AwsProxy {
  readonly url: string
  readonly #server: Server
  readonly #behind: string
  readonly #guests = new Map<string, Guest>()

  private constructor(server: Server, behind: string) {
    this.#server = server
    this.#behind = behind
    this.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
    server.on("request", (request, response) => void this.#serve(request, response))
  }

  /** @param behind the endpoint that answers */
  static async start(behind: string): Promise<AwsProxy> {
    const server = createServer()
    server.listen(0, "127.0.0.1")
    await once(server, "listening")
    return new AwsProxy(server, behind)
  }

  admit(accessKey: string, guest: Guest): void {
    this.#guests.set(accessKey, guest)
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections()
    this.#server.close()
    await once(this.#server, "close")
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const body = await text(request)
    const guest = this.#guests.get(/Credential=([^/]*)\//.exec(request.headers.authorization ?? "")?.[1] ?? "")
    if (guest === undefined) {
      response.writeHead(403).end()
      return
    }
    const target = String(request.headers["x-amz-target"] ?? "").split(".")[1]
    const action = target ?? new URLSearchParams(body).get("Action") ?? ""
    const { life, account } = guest
    const effect = READS.test(action) ? "read" : "cloud"
    const ask = (): Promise<Answer> => this.#ask(request, body, account)
    try {
      const { status, type, body: answer } = await life.pass(action, effect, ask, lost)
      response.writeHead(status, { "content-type": type }).end(answer)
    } catch {
      // The SDK sees a broken connection for every kind of fault.
      request.socket.destroy()
    }
  }

  async #ask(request: IncomingMessage, body: string, account: string): Promise<Answer> {
    const { method = "GET", url = "/", headers } = request
    const kept = Object.entries(headers).flatMap(([name, value]) =>
      typeof value === "string" && !/^(host|connection|content-length|expect)$/.test(name) ? [[name, value]] : [],
    )
    const inAccount = { ...(Object.fromEntries(kept) as Record<string, string>), [MOTO_ACCOUNT]: account }
    const init = { method, headers: inAccount, ...(body !== "" && { body }) }
    const answer = await fetch(this.#behind + url, init)
    return { status: answer.status, type: answer.headers.get("content-type") ?? "text/xml", body: await answer.text() }
  }
}

const lost: LostAnswer = (call) => new Error(`the answer to ${call} is lost`)
