import { readTail, TAIL_LINES } from "../core/apis/output.ts"
import { joinBytes, lastIndexOf, readPieces } from "./bytes.ts"
import type { BerthClient } from "./client.ts"
import { delay } from "./delay.ts"
import { isEnded, readJob } from "./jobs.ts"

export interface LogOptions {
  /** Follows the log until the job has ended. */
  follow: boolean
  /** Number of last lines; undefined: all. */
  tail?: number | undefined
  /** Puts the time before each line, or `-`, and a space. */
  timestamps?: boolean | undefined
  signal?: AbortSignal
  /** Called when a stream was cut and is opened again, but not after silence. */
  onReconnect?: () => void
}

/** Bytes that are kept to find the place in the log again. */
const OVERLAP_BYTES = 4096
/** Delay before a stream that gave nothing is opened again, seconds. */
const RECONNECT_SECONDS = 1

/**
 * Returns a job's log in pieces. A follow that was cut, by a proxy or a restart of the API, continues with the next byte.
 * It ends when the job has ended. @throws ApiError, such as 401 after the credential has expired
 */
export async function* readLog(
  client: BerthClient,
  id: string,
  { follow, tail, timestamps = false, signal, onReconnect }: LogOptions,
): AsyncGenerator<Uint8Array, void, void> {
  const options = { follow, timestamps, ...(signal !== undefined && { signal }) }
  if (!follow) return yield* withoutCut(client, id, { ...options, tail })
  // Position in the whole log; undefined as long as only the last lines are known.
  let position = tail === undefined ? 0 : undefined
  let last = new Uint8Array()
  for (let isFirst = true; ; isFirst = false) {
    if (!isFirst) position ??= await positionAfter(client, id, last, { ...options, follow: false })
    const from = position
    let isFruitful = false
    const end = yield* followed(client, id, { ...options, tail: isFirst ? tail : undefined }, from ?? 0, (piece) => {
      if (position !== undefined) position += piece.length
      last = lastBytes(last, piece)
      isFruitful = true
    })
    signal?.throwIfAborted()
    // A follow also ends when the API stops. Then the job runs on.
    if (end === "whole" && isEnded(await readJob(client, id, signal))) return
    report(end, onReconnect)
    if (!isFruitful) await delay(RECONNECT_SECONDS * 1000, signal)
  }
}

/** Returns the last lines of a job's log, at most 2 KiB, as plain text. */
export async function readLogTail(client: BerthClient, id: string, signal?: AbortSignal): Promise<string> {
  return await readTail(withoutCut(client, id, { follow: false, tail: TAIL_LINES, ...(signal && { signal }) }))
}

/** A stream that was opened again after silence isn't news. */
function report(end: StreamEnd, onReconnect: LogOptions["onReconnect"]): void {
  if (end !== "silent") onReconnect?.()
}

type ReadOptions = Pick<LogOptions, "follow" | "tail" | "timestamps" | "signal">

/** End of a stream: by itself, by a cut, or by fetch, which gives up a stream that is silent for five minutes. */
type StreamEnd = "whole" | "cut" | "silent"

/** Yields the bytes after `skip`. */
async function* followed(
  client: BerthClient,
  id: string,
  options: ReadOptions,
  skip: number,
  note: (piece: Uint8Array) => void,
): AsyncGenerator<Uint8Array, StreamEnd, void> {
  const body = await open(client, id, options)
  let rest = skip
  try {
    for await (const piece of readPieces(body)) {
      const fresh = piece.subarray(Math.min(rest, piece.length))
      rest -= piece.length - fresh.length
      if (fresh.length === 0) continue
      note(fresh)
      yield fresh
    }
    return "whole"
  } catch (error) {
    // fetch gives no reason for a cut. Its repetition shows if the API still answers.
    options.signal?.throwIfAborted()
    const { code } = (error as { cause?: { code?: unknown } }).cause ?? {}
    return code === "UND_ERR_BODY_TIMEOUT" ? "silent" : "cut"
  }
}

async function* withoutCut(client: BerthClient, id: string, options: ReadOptions): AsyncGenerator<Uint8Array> {
  yield* readPieces(await open(client, id, options))
}

async function open(client: BerthClient, id: string, { follow, tail, timestamps, signal }: ReadOptions) {
  const query = { ...(follow && { follow }), ...(tail !== undefined && { tail }), ...(timestamps && { timestamps }) }
  const { data, response } = await client.api.GET("/jobs/{id}/logs", {
    params: { path: { id }, query },
    parseAs: "stream",
    ...(signal !== undefined && { signal }),
  })
  const body = (data ?? response.body) as ReadableStream<Uint8Array> | null
  return body ?? new ReadableStream<Uint8Array>({ start: (controller) => controller.close() })
}

/** Returns the position after the last occurrence of these bytes in the log; 0 if they are not in it. */
async function positionAfter(client: BerthClient, id: string, last: Uint8Array, options: ReadOptions) {
  const pieces: Uint8Array[] = []
  const note = (piece: Uint8Array) => void pieces.push(piece)
  let whole = followed(client, id, options, 0, note)
  for (let next = await whole.next(); !(next.done && next.value === "whole"); next = await whole.next()) {
    if (!next.done) continue
    pieces.length = 0
    whole = followed(client, id, options, 0, note)
  }
  const at = lastIndexOf(joinBytes(pieces), last)
  return at < 0 ? 0 : at + last.length
}

function lastBytes(before: Uint8Array, piece: Uint8Array): Uint8Array<ArrayBuffer> {
  return joinBytes([before, piece]).slice(-OVERLAP_BYTES)
}
