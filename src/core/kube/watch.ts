import { CLIENT_REASONS, errorFromStatus, KubeError } from "./errors.ts"
import type { ApiObject } from "./resource.ts"

/** Change as the API server reports it. A BOOKMARK's object has only kind and resourceVersion. */
export interface WatchEvent<T extends ApiObject = ApiObject> {
  type: "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK"
  object: T
}

const NEWLINE = 0x0a

/**
 * Yields the lines of a byte stream. It splits bytes and decodes whole lines, because a chunk may end within a
 * character. A line of any length is joined once. Text after the last newline is a line, too.
 */
export async function* lines(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<string, void, void> {
  let pending: Uint8Array[] = []
  for await (const chunk of chunks) {
    let start = 0
    for (let end = chunk.indexOf(NEWLINE); end !== -1; end = chunk.indexOf(NEWLINE, start)) {
      pending.push(chunk.subarray(start, end))
      yield Buffer.concat(pending).toString("utf8")
      pending = []
      start = end + 1
    }
    if (start < chunk.length) pending.push(chunk.subarray(start))
  }
  if (pending.length > 0) yield Buffer.concat(pending).toString("utf8")
}

/** Parses a watch's byte stream. @throws KubeError for an ERROR event, and for a line that was cut off */
export async function* watchEvents<T extends ApiObject>(
  path: string,
  chunks: AsyncIterable<Uint8Array>,
): AsyncGenerator<WatchEvent<T>, void, void> {
  for await (const line of lines(chunks)) {
    if (line === "") continue
    const event = parseEvent<T>(path, line)
    if (event.type === "ERROR") throw errorFromStatus(path, event.object)
    yield event as WatchEvent<T>
  }
}

function parseEvent<T extends ApiObject>(path: string, line: string): { type: string; object: T } {
  try {
    return JSON.parse(line) as { type: string; object: T }
  } catch {
    // The parser's own message would quote the object, which may hold a secret.
    throw new KubeError({
      code: 0,
      reason: CLIENT_REASONS.invalidResponse,
      message: `WATCH ${path}: the stream ended within an event`,
    })
  }
}
