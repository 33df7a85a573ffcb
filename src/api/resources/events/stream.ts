import { once } from "node:events"
import type { Clock } from "../../../core/apis/clock.ts"
import type { Principal } from "../../../core/identity/principal.ts"
import type { AuthenticatedRequest } from "../../http/route.ts"
import { untilRefused } from "../../long-responses.ts"
import type { Batch, ChangeFeed, Subscriber } from "./feed.ts"
import type { Kind, Position } from "./position.ts"

/** Bytes that a client may leave unread when the next events come. A client with more misses these, and gets a reset. */
const MOST_UNREAD_BYTES = 256 * 1024

/** Delay after which a browser connects again, milliseconds. */
const RETRY_MS = 2000

/** Selection of a project's events. */
export interface EventFilter {
  /** Empty: all. */
  kinds: readonly Kind[]
  /** Names or ids. Empty: all. */
  names: readonly string[]
}

export interface EventStreams {
  feed: ChangeFeed
  clock: Clock
  /** Signal that aborts at shutdown, which ends the streams. Clients may reconnect. */
  shutdown: AbortSignal
}

/** Sends the events of a project until the client disconnects, loses access, or the server stops. */
export async function streamEvents(
  { req, res, principal, isStillAuthenticated }: AuthenticatedRequest<Principal>,
  { after, filter }: { after: Partial<Position> | undefined; filter: EventFilter },
  { feed, clock, shutdown }: EventStreams,
): Promise<void> {
  // X-Accel-Buffering: a proxy that buffers the response would delay the events. no-transform: nor may it compress them.
  res.set({ "Cache-Control": "no-store, no-transform", "X-Accel-Buffering": "no" }).type("text/event-stream")
  if (req.method === "HEAD") {
    res.end()
    return
  }
  const ended = new AbortController()
  const end = (): void => ended.abort()
  res.once("close", end)
  shutdown.addEventListener("abort", end, { once: true })
  if (shutdown.aborted) end()
  const client = new Client({ req, res }, filter, () => feed.idOf(principal.project.namespace))
  try {
    const unsubscribe = await feed.subscribe(principal.project, after, client)
    untilRefused(isStillAuthenticated, clock, ended.signal).then(end, end)
    if (!ended.signal.aborted) await once(ended.signal, "abort")
    unsubscribe()
    res.end()
  } finally {
    shutdown.removeEventListener("abort", end)
    end()
  }
}

/** Writes events to one client. What the client does not read is bounded. */
class Client implements Subscriber {
  readonly #http: Pick<AuthenticatedRequest<unknown>, "req" | "res">
  readonly #filter: EventFilter
  readonly #latestId: () => string
  readonly #idleMs: number
  #hasMissed = false

  constructor(http: Pick<AuthenticatedRequest<unknown>, "req" | "res">, filter: EventFilter, latestId: () => string) {
    this.#http = http
    this.#filter = filter
    this.#latestId = latestId
    this.#idleMs = http.req.socket.timeout ?? 0
    // A project may be silent for long: the idle timeout only runs while the client reads too slowly.
    http.req.setTimeout(0)
  }

  send({ frames, bytes }: Batch): void {
    const { kinds, names } = this.#filter
    if (kinds.length === 0 && names.length === 0) {
      this.#write(bytes)
      return
    }
    const wanted = frames.filter(
      ({ changed: { kind, name, uid } }) =>
        (kinds.length === 0 || kinds.includes(kind)) &&
        (names.length === 0 || names.includes(name) || names.includes(uid)),
    )
    if (wanted.length > 0) this.#write(wanted.map(({ text }) => text).join(""))
  }

  sendText(text: string): void {
    this.#write(text)
  }

  reset(id: string): void {
    this.#write(`event: reset\nid: ${id}\ndata: {}\n\n`)
  }

  #write(content: string | Buffer): void {
    const { req, res } = this.#http
    if (!res.headersSent) res.write(`retry: ${RETRY_MS}\n`)
    if (this.#hasMissed || res.writableEnded) return
    if (res.writableLength <= MOST_UNREAD_BYTES) {
      res.write(content)
      return
    }
    this.#hasMissed = true
    req.setTimeout(this.#idleMs)
    res.once("drain", () => {
      req.setTimeout(0)
      this.#hasMissed = false
      this.reset(this.#latestId())
    })
  }
}
