/** Part of Docker's multiplexed output. */
export interface OutputFrame {
  /** 1: stdout, 2: stderr. */
  source: number
  /** A frame may come in several parts. */
  payload: Buffer
}

/**
 * Yields the frames of Docker's multiplexed stream, those of each chunk together: an 8-byte header (source, then the length at
 * byte 4, big-endian) and a payload. Unlike docker-modem's demuxStream it waits for its reader.
 */
export async function* framesOf(stream: AsyncIterable<string | Buffer>): AsyncGenerator<OutputFrame[], void, void> {
  let buffer: Buffer = Buffer.alloc(0)
  let source = 1
  let left = 0
  for await (const chunk of stream) {
    buffer = Buffer.concat([buffer, chunk as Buffer])
    const found: OutputFrame[] = []
    while (left > 0 ? buffer.byteLength > 0 : buffer.byteLength >= 8) {
      if (left === 0) {
        source = buffer.readUInt8(0)
        left = buffer.readUInt32BE(4)
        buffer = buffer.subarray(8)
      }
      const payload = buffer.subarray(0, left)
      buffer = buffer.subarray(payload.byteLength)
      left -= payload.byteLength
      found.push({ source, payload })
    }
    yield found
  }
}
