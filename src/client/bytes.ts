/** Returns the pieces of a stream, one by one. Not all browsers can iterate over a stream itself. */
export async function* readPieces(body: ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array, void, void> {
  const reader = body.getReader()
  let isWhole = false
  try {
    for (;;) {
      const { done, value } = await reader.read()
      isWhole = done
      if (done) return
      yield value
    }
  } finally {
    // A reader that stops early must not leave the request open.
    if (!isWhole) await reader.cancel().catch(() => undefined)
  }
}

/** Returns the pieces as one array. */
export function joinBytes(pieces: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const all = new Uint8Array(pieces.reduce((sum, { length }) => sum + length, 0))
  let at = 0
  for (const piece of pieces) {
    all.set(piece, at)
    at += piece.length
  }
  return all
}

/** Returns the position of the last occurrence of bytes in other bytes; -1 if there is none. */
export function lastIndexOf(all: Uint8Array, wanted: Uint8Array): number {
  for (let at = all.length - wanted.length; at >= 0; at--) {
    if (wanted.every((byte, index) => all[at + index] === byte)) return at
  }
  return -1
}
