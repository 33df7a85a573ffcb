import { once } from "node:events"
import { createServer, type IncomingMessage } from "node:http"
import type { AddressInfo } from "node:net"

/** Status and body of an answer. */
type Answer = [status: number, body: string]

/**
 * The parts of the clouds' metadata services that announce preemptions, with the errors that their documents describe.
 * `breaches` lists the requests that a real one would have rejected.
 */
export class MetadataService {
  /** True from the notice on. */
  preempted = false
  failing = false
  readonly breaches: string[] = []
  readonly #tokens = new Map<string, number>()
  readonly #server = createServer((req, res) => {
    const [status, body] = this.failing ? [500, "internal"] : this.#answer(req)
    res.writeHead(status).end(body)
  })

  async start(): Promise<string> {
    this.#server.listen(0, "127.0.0.1")
    await once(this.#server, "listening")
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  stop(): void {
    this.#server.closeAllConnections()
    this.#server.close()
  }

  /** Makes AWS' tokens invalid, as after they expired. */
  forgetTokens(): void {
    this.#tokens.clear()
  }

  #answer(req: IncomingMessage): Answer {
    switch (`${req.method} ${req.url}`) {
      case "PUT /latest/api/token":
        return this.#token(req)
      case "GET /latest/meta-data/spot/instance-action":
        if (!this.#tokens.has(String(req.headers["x-aws-ec2-metadata-token"]))) return [401, "Unauthorized"]
        return this.preempted ? [200, '{"action": "terminate", "time": "2026-09-18T08:22:00Z"}'] : [404, "Not Found"]
      case "GET /computeMetadata/v1/instance/preempted":
        if (req.headers["metadata-flavor"] !== "Google") return [403, "Missing Metadata-Flavor:Google header."]
        return [200, this.preempted ? "TRUE" : "FALSE"]
      case "GET /metadata/scheduledevents?api-version=2020-07-01":
        if (req.headers["metadata"] !== "true")
          return [400, '{"error": "Bad request. Required metadata header missing"}']
        return [200, JSON.stringify({ DocumentIncarnation: 1, Events: this.#events() })]
      default:
        this.breaches.push(`${req.method} ${req.url}`)
        return [404, "Not Found"]
    }
  }

  #token(req: IncomingMessage): Answer {
    const seconds = Number(req.headers["x-aws-ec2-metadata-token-ttl-seconds"])
    if (!(seconds >= 1 && seconds <= 21_600)) return [400, "Bad Request"]
    const token = `token-${this.#tokens.size}-${Math.random()}`
    this.#tokens.set(token, seconds)
    return [200, token]
  }

  #events(): object[] {
    const event = (EventType: string) => ({ EventId: "1", EventStatus: "Scheduled", EventType, NotBefore: "" })
    return this.preempted ? [event("Freeze"), event("Preempt")] : [event("Freeze")]
  }
}
