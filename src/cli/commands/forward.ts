import { once } from "node:events"
import { createServer, type Server, type Socket } from "node:net"
import type { Command } from "commander"
import type { WebSocket } from "ws"
import type { BerthClient } from "../../client/client.ts"
import { NORMAL_CLOSURE, readFrame, readResult, type StreamResult, sendAll } from "../../core/apis/remote-command.ts"
import type { Call, Commands } from "../command.ts"
import { EXIT, usageError } from "../exit.ts"
import { connectStream, type OpenSession, openSession } from "../session.ts"

/** `forward`: makes a port of a job's container a port of this machine. */
export function addForwardCommand(commands: Commands, program: Command): void {
  commands.add(program, {
    usage: "forward <job> <ports...>",
    summary: "Reach ports of a job's running container at 127.0.0.1, until Ctrl-C.",
    more:
      "A port is REMOTE, or LOCAL:REMOTE; 0:REMOTE takes a free one. The program must listen on 0.0.0.0 in its container.\n" +
      "The VM's agent opens the connections: the VM has no open port. The first one takes up to 15 s.",
    examples: [
      ["berth forward notebook 8888", "http://127.0.0.1:8888 is port 8888 of the container"],
      ["berth forward train 8080:6006", "TensorBoard at http://127.0.0.1:8080"],
    ],
    run: async (call) => {
      const [job = "", ...ports] = call.args
      const client = call.client()
      const forwards = ports.map((text) => new Forward(call, client, { job, ...portsIn(text) }))
      try {
        for (const forward of forwards) await forward.listen()
        await once(call.signal, "abort")
        return EXIT.interrupted
      } finally {
        for (const forward of forwards) forward.close()
      }
    },
  })
}

interface Ports {
  local: number
  remote: number
}

/** @throws Failure for anything but REMOTE or LOCAL:REMOTE */
function portsIn(text: string): Ports {
  const [first = "", second = first, ...more] = text.split(":")
  const [local, remote] = [Number(first), Number(second)]
  const isPort = (port: number, least: number): boolean => Number.isInteger(port) && port >= least && port <= 65_535
  if (more.length === 0 && first !== "" && isPort(local, 0) && isPort(remote, 1)) return { local, remote }
  throw usageError(`${text} is not a port: give REMOTE or LOCAL:REMOTE, numbers from 1 to 65535, such as 8080:80.`)
}

/** One forwarded port. Its session is opened with the first connection, and again after it has ended. */
class Forward {
  readonly #call: Call<object>
  readonly #client: BerthClient
  readonly #target: Ports & { job: string }
  readonly #server: Server
  readonly #sockets = new Set<Socket>()
  #session: Promise<OpenSession> | undefined

  constructor(call: Call<object>, client: BerthClient, target: Ports & { job: string }) {
    this.#call = call
    this.#client = client
    this.#target = target
    this.#server = createServer({ allowHalfOpen: true, pauseOnConnect: true }, (socket) => {
      this.#sockets.add(socket)
      socket.on("error", () => undefined)
      socket.once("close", () => this.#sockets.delete(socket))
      this.#serve(socket).catch((error: unknown) => {
        socket.destroy()
        if (!call.signal.aborted) call.terminal.warn(error instanceof Error ? error.message : String(error))
      })
    })
  }

  /** Opens the session, so that an error is known at once, and listens. */
  async listen(): Promise<void> {
    const { local, remote, job } = this.#target
    await this.#open()
    this.#server.listen(local, "127.0.0.1")
    await once(this.#server, "listening")
    const { port } = this.#server.address() as { port: number }
    await this.#call.terminal.line(`127.0.0.1:${port} is port ${remote} of ${job}`)
  }

  close(): void {
    this.#server.close()
    for (const socket of this.#sockets) socket.destroy()
  }

  #open(): Promise<OpenSession> {
    const { job, remote } = this.#target
    if (this.#session !== undefined) return this.#session
    const opened = openSession(this.#client, job, { port: remote }, this.#call.signal)
    opened.catch(() => this.#forget(opened))
    this.#session = opened
    return opened
  }

  /** Lets the next connection open a session, unless another one has done so already. */
  #forget(session: Promise<OpenSession>): void {
    if (this.#session === session) this.#session = undefined
  }

  async #serve(socket: Socket): Promise<void> {
    const { signal, terminal } = this.#call
    const { stream, session } = await this.#connect()
    let result: StreamResult | undefined
    for (const event of ["drain", "close"]) socket.on(event, () => stream.resume())
    stream.on("message", (data: Buffer) => {
      const frame = readFrame(data)
      if (frame?.channel === "stdout") {
        if (!socket.write(frame.content)) stream.pause()
      } else if (frame?.channel === "close") socket.end()
      else if (frame?.channel === "status") result = readResult(frame.content)
    })
    const stop = (): void => stream.terminate()
    signal.addEventListener("abort", stop, { once: true })
    socket.once("close", () => stream.close(NORMAL_CLOSURE))
    const closed = once(stream, "close") as Promise<[number, Buffer]>
    sendAll(stream, "stdin", socket as AsyncIterable<Buffer>).catch(() => stream.close())
    const [code, reason] = await closed
    signal.removeEventListener("abort", stop)
    socket.end()
    if (result?.error !== undefined) terminal.warn(result.error)
    if (code === NORMAL_CLOSURE || signal.aborted) return
    terminal.warn(`The connection has ended: ${reason.toString() || `closed with ${code}`}.`)
    // The next session is there before the next connection needs it.
    this.#forget(session)
    await this.#open().catch(() => undefined)
  }

  /** Connects by the session, or by a new one if it has ended. */
  async #connect(): Promise<{ stream: WebSocket; session: Promise<OpenSession> }> {
    const { signal, terminal } = this.#call
    const session = this.#open()
    try {
      return { stream: await connectStream(await session, signal), session }
    } catch (error) {
      signal.throwIfAborted()
      this.#forget(session)
      terminal.progress(`Opening another session: ${error instanceof Error ? error.message : String(error)}`)
      const next = this.#open()
      return { stream: await connectStream(await next, signal), session: next }
    }
  }
}
