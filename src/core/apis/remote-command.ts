/**
 * Messages of a session's streams: those of Kubernetes' remote commands. They are binary, and the first byte is the channel
 * (https://github.com/kubernetes/kubernetes/blob/v1.31.0/staging/src/k8s.io/apimachinery/pkg/util/remotecommand/constants.go).
 * On `status` comes a StreamResult, on `resize` a TerminalSize, both as JSON.
 */
export const SESSION_PROTOCOL = "v5.channel.k8s.io"

/** Beginning of the subprotocol that has a session's token. Browsers can send no header of their own with a WebSocket. */
export const TOKEN_PROTOCOL = "berth.session."

/** `close` is followed by the channel that its sender has ended. A stream of a port uses `stdin` and `stdout`. */
export const CHANNELS = { stdin: 0, stdout: 1, stderr: 2, status: 3, resize: 4, close: 255 } as const
export type Channel = keyof typeof CHANNELS

/** Largest content of a frame, bytes. Senders cut what is longer. */
export const FRAME_BYTES = 64 * 1024

/** Bytes that may wait in a socket before its sender reads on. */
export const WAITING_BYTES = 1024 * 1024

/** Largest number of sessions of a job at a time. */
export const MOST_SESSIONS = 4

/** Code of a WebSocket that was closed on purpose (https://datatracker.ietf.org/doc/html/rfc6455#section-7.4.1). */
export const NORMAL_CLOSURE = 1000

/**
 * Time in which a socket that was closed still sends what waits in it, milliseconds. A person at a slow connection reads the
 * end of the output long after the command has ended.
 */
export const CLOSE_MS = 300_000

/** Returns a frame. */
export function frameOf(channel: Channel, content: Uint8Array | string): Uint8Array<ArrayBuffer> {
  const bytes = typeof content === "string" ? new TextEncoder().encode(content) : content
  const frame = new Uint8Array(bytes.byteLength + 1)
  frame[0] = CHANNELS[channel]
  frame.set(bytes, 1)
  return frame
}

/** Returns the frame that says that a channel has ended. */
export function endOf(channel: Channel): Uint8Array<ArrayBuffer> {
  return Uint8Array.of(CHANNELS.close, CHANNELS[channel])
}

/** Returns a frame's channel and content; undefined for one of an unknown channel, which the receiver drops. */
export function readFrame(frame: Uint8Array): { channel: Channel; content: Uint8Array } | undefined {
  const number = frame[0]
  const found = (Object.entries(CHANNELS) as [Channel, number][]).find(([, known]) => known === number)
  return found === undefined ? undefined : { channel: found[0], content: frame.subarray(1) }
}

/** Size of a terminal. */
export interface TerminalSize {
  columns: number
  rows: number
}

/** Result of a stream: the exit code of a command, or why there is none. */
export interface StreamResult {
  exitCode?: number
  error?: string
}

/** Returns the result in the content of a frame of the channel `status`. Of a malformed one it says that. */
export function readResult(content: Uint8Array): StreamResult {
  const { exitCode, error } = parsed(content)
  const isCode = exitCode === undefined || (Number.isInteger(exitCode) && Number(exitCode) >= 0)
  if (!isCode || !(error === undefined || typeof error === "string")) return { error: MALFORMED }
  return { ...(exitCode !== undefined && { exitCode: Number(exitCode) }), ...(error !== undefined && { error }) }
}

const MALFORMED = "the VM's agent sent no valid result"

function parsed(content: Uint8Array): { exitCode?: unknown; error?: unknown } {
  try {
    const value: unknown = JSON.parse(new TextDecoder().decode(content))
    return typeof value === "object" && value !== null ? value : { error: MALFORMED }
  } catch {
    return { error: MALFORMED }
  }
}

/** Part of a WebSocket that sends frames. */
export interface FrameSocket {
  readonly readyState: number
  readonly OPEN: number
  readonly bufferedAmount: number
  send(frame: Uint8Array<ArrayBuffer>, sent?: () => void): void
}

/** Sends a piece on a channel. Resolves when the socket may have more. */
export async function sendPiece(socket: FrameSocket, channel: Channel, piece: Uint8Array): Promise<void> {
  for (let start = 0; start < piece.byteLength; start += FRAME_BYTES) {
    const sent = new Promise<void>((resolve) =>
      socket.send(frameOf(channel, piece.subarray(start, start + FRAME_BYTES)), () => resolve()),
    )
    if (socket.bufferedAmount > WAITING_BYTES) await sent
  }
}

/** Sends all pieces on a channel, as fast as the other end takes them, and then the end of the channel. */
export async function sendAll(socket: FrameSocket, channel: Channel, pieces: AsyncIterable<Uint8Array>): Promise<void> {
  for await (const piece of pieces) await sendPiece(socket, channel, piece)
  if (socket.readyState === socket.OPEN) socket.send(endOf(channel))
}
