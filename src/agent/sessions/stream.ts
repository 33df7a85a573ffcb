import type { Readable } from "node:stream"
import type { WebSocket } from "ws"
import {
  CHANNELS,
  type Channel,
  frameOf,
  readFrame,
  type StreamResult,
  sendAll,
} from "../../core/apis/remote-command.ts"
import { check } from "../../core/protocol/messages.ts"
import { type SessionTarget, TerminalSizeSchema } from "../../core/protocol/sessions.ts"
import { type Container, type Entry, EntryError } from "../runtimes/runtime.ts"

/** Serves one stream: a command in the container, or a connection to one of its ports. Resolves at its end. */
export async function serveStream(
  socket: WebSocket,
  target: SessionTarget,
  container: Pick<Container, "entrance"> | undefined,
): Promise<void> {
  socket.on("error", () => undefined)
  try {
    const entry = await enter(target, container)
    await relay(socket, entry)
  } catch (error) {
    socket.resume()
    if (!(error instanceof EntryError)) throw error
    finish(socket, { error: error.message.slice(0, 1024) })
  }
}

async function enter(
  { exec, port }: SessionTarget,
  container: Pick<Container, "entrance"> | undefined,
): Promise<Entry> {
  const entrance = container?.entrance
  if (entrance === undefined) throw new EntryError("the container does not run now")
  if (exec !== undefined) return await entrance.exec(exec)
  if (port !== undefined) return await entrance.connect(port)
  throw new EntryError("the agent of the VM does not know this kind of session")
}

/** Copies both ways until the entry has ended and all its output is sent, or the socket is closed. */
async function relay(socket: WebSocket, entry: Entry): Promise<void> {
  const closed = new Promise<void>((resolve) => socket.once("close", () => resolve()))
  const { input, output, errors } = entry
  const resizeTo = resizer(entry)
  input.on("error", () => undefined)
  for (const event of ["drain", "close"]) input.on(event, () => socket.resume())
  socket.on("message", (data: Buffer) => {
    const frame = readFrame(data)
    if (frame?.channel === "stdin" && input.writable) {
      // The socket is read on when the container has taken the input.
      if (!input.write(frame.content)) socket.pause()
    } else if (frame?.channel === "close" && frame.content[0] === CHANNELS.stdin) input.end()
    else if (frame?.channel === "resize") resizeTo(frame.content)
  })
  socket.resume()
  const copied = Promise.all([
    copy(output, "stdout", socket),
    ...(errors === undefined ? [] : [copy(errors, "stderr", socket)]),
  ])
  try {
    const result = copied.then(() => entry.result())
    const ended = await Promise.race([result, closed.then(() => undefined)])
    if (ended !== undefined) finish(socket, ended)
  } finally {
    await entry.leave()
    copied.catch(() => undefined)
  }
}

/** Returns a function that sets sizes one after another. Of those that wait, only the latest counts. */
function resizer(entry: Entry): (content: Uint8Array) => void {
  let next: Uint8Array | undefined
  let isBusy = false
  const work = async (): Promise<void> => {
    isBusy = true
    while (next !== undefined) {
      const content = next
      next = undefined
      await resize(entry, content).catch(() => undefined)
    }
    isBusy = false
  }
  return (content) => {
    next = content
    if (!isBusy) void work()
  }
}

/** Rejects if the content is no size. It is the person's: a malformed one must not end the agent. */
async function resize(entry: Entry, content: Uint8Array): Promise<void> {
  const size: unknown = JSON.parse(Buffer.from(content).toString())
  await entry.resize(check(TerminalSizeSchema, size, "the size of the terminal"))
}

/** Sends all that a stream yields. A stream that breaks off has ended. */
async function copy(from: Readable, channel: Channel, socket: WebSocket): Promise<void> {
  await sendAll(socket, channel, from as AsyncIterable<Buffer>).catch(() => undefined)
}

function finish(socket: WebSocket, result: StreamResult): void {
  if (socket.readyState !== socket.OPEN) return
  socket.send(frameOf("status", JSON.stringify(result)))
  socket.close(1000)
}
