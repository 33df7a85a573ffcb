import { createParser, type EventSourceMessage } from "eventsource-parser"
import { readPieces } from "./bytes.ts"
import type { BerthClient, JobRecord, Schemas } from "./client.ts"
import { delay } from "./delay.ts"

/** Deleted object. */
export interface Deleted {
  id: string
  name: string
  deleted: true
}

/** Change of one object of the project; `reset`: changes are missing, so read the objects again. */
export type Change =
  | { event: "job"; record: JobRecord | Deleted }
  | { event: "cronjob"; record: Schemas["CronJobRecord"] | Deleted }
  | { event: "array"; record: Schemas["ArrayRecord"] | Deleted }
  | { event: "connection"; record: Schemas["ConnectionRecord"] | Deleted }
  | { event: "reset" }

/** Delay before a stream is opened again, seconds. */
const RECONNECT_SECONDS = 1

/**
 * Returns the changes of the project's objects, from GET /events. A stream that was cut is opened again, after the last
 * change. Never ends by itself; the first item is a `reset`, once the stream is open.
 * @param onOpen called each time the stream is open
 * @throws ApiError, such as 404 from an API without this operation
 */
export async function* readChanges(
  client: BerthClient,
  signal?: AbortSignal,
  onOpen?: () => void,
): AsyncGenerator<Change, never, void> {
  let lastId: string | undefined
  for (;;) {
    const headers = { accept: "text/event-stream", ...(lastId !== undefined && { "last-event-id": lastId }) }
    const init = { headers, ...(signal !== undefined && { signal }) }
    const { body } = await client.send(new Request(`${client.baseUrl}/events`, init))
    onOpen?.()
    // Changes between a reader's last read and the opening of the stream would be missing.
    if (lastId === undefined) yield { event: "reset" }
    try {
      for await (const { id, event, data } of messagesOf(body)) {
        lastId = id ?? lastId
        if (event === "reset") yield { event: "reset" }
        else yield { event, record: JSON.parse(data) } as Change
      }
    } catch {
      // fetch gives no reason for a cut. The next request shows if the API still answers.
      signal?.throwIfAborted()
    }
    await delay(RECONNECT_SECONDS * 1000, signal)
  }
}

async function* messagesOf(body: ReadableStream<Uint8Array> | null): AsyncGenerator<EventSourceMessage, void, void> {
  if (body === null) return
  const messages: EventSourceMessage[] = []
  const parser = createParser({ onEvent: (message) => void messages.push(message) })
  const decoder = new TextDecoder()
  for await (const piece of readPieces(body)) {
    parser.feed(decoder.decode(piece, { stream: true }))
    yield* messages.splice(0)
  }
}
