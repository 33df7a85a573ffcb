import { once } from "node:events"
import { connect as connectTcp } from "node:net"
import { type Duplex, PassThrough } from "node:stream"
import type Docker from "dockerode"
import type { StreamResult } from "../../core/apis/remote-command.ts"
import type { SessionTarget } from "../../core/protocol/sessions.ts"
import { framesOf } from "./docker-frames.ts"
import { CALL_SECONDS, errorMessage, withTimeout } from "./engine.ts"
import { type Entrance, type Entry, EntryError } from "./runtime.ts"

/** Time for a connection to a port of the container, seconds. */
const CONNECT_SECONDS = 5

const STDERR = 2

/** Ctrl-D. */
const END_OF_INPUT = "\u0004"

/** Exit codes of a command that could not be started, as in a shell. */
const NOT_STARTED = [126, 127]

/** Ways into a container of the engine. */
export class DockerEntrance implements Entrance {
  readonly #container: Docker.Container

  constructor(container: Docker.Container) {
    this.#container = container
  }

  async exec({ command, tty, size }: NonNullable<SessionTarget["exec"]>): Promise<Entry> {
    try {
      const exec = await withTimeout(
        CALL_SECONDS,
        this.#container.exec({
          Cmd: command,
          Tty: tty,
          ...{ AttachStdin: true, AttachStdout: true, AttachStderr: true },
          ...(tty && { Env: ["TERM=xterm-256color"] }),
        } as Docker.ExecCreateOptions),
      )
      const stream = await withTimeout(CALL_SECONDS, exec.start({ hijack: true, stdin: true, Tty: tty }))
      const resize: Entry["resize"] = async ({ columns: w, rows: h }) => void (await exec.resize({ w, h }))
      // Engines may ignore the size of the start.
      if (tty && size !== undefined) await withTimeout(CALL_SECONDS, resize(size)).catch(() => undefined)
      const result = () => resultOf(exec, command)
      const leave = async (): Promise<void> => {
        if (tty) await endInput(stream)
        stream.destroy()
      }
      return { input: stream, ...(tty ? { output: stream } : apart(stream)), resize, result, leave }
    } catch (error) {
      throw new EntryError(`the command can't be started in the container: ${errorMessage(error)}`)
    }
  }

  async connect(port: number): Promise<Entry> {
    const { NetworkSettings, State } = await withTimeout(CALL_SECONDS, this.#container.inspect())
    const hosts = Object.values(NetworkSettings.Networks).map(({ IPAddress }) => IPAddress)
    const host = hosts.find((address) => address !== "")
    if (!State.Running || host === undefined) throw new EntryError("the container does not run now")
    const socket = connectTcp({ host, port, allowHalfOpen: true })
    try {
      await once(socket, "connect", { signal: AbortSignal.timeout(CONNECT_SECONDS * 1000) })
    } catch (error) {
      socket.destroy()
      const why = error instanceof Error && "code" in error ? String(error.code) : "no answer"
      throw new EntryError(
        `port ${port} of the container can't be reached (${why}): let the program listen on 0.0.0.0:${port}`,
      )
    }
    const leave = async (): Promise<void> => void socket.destroy()
    return { input: socket, output: socket, resize: async () => undefined, result: async () => ({}), leave }
  }
}

/**
 * Sends a terminal the end of its input, which ends a shell at its prompt. The engine keeps the terminal open, and sends no
 * signal to the command.
 */
async function endInput(stream: Duplex): Promise<void> {
  if (!stream.writable) return
  const sent = new Promise<void>((resolve) => stream.end(END_OF_INPUT, resolve))
  await withTimeout(CALL_SECONDS, sent).catch(() => undefined)
}

async function resultOf(exec: Docker.Exec, command: readonly string[]): Promise<StreamResult> {
  const { ExitCode: exitCode } = await withTimeout(CALL_SECONDS, exec.inspect())
  if (exitCode === null) return { error: "the connection to the command broke off; it may still run" }
  if (!NOT_STARTED.includes(exitCode)) return { exitCode }
  return { exitCode, error: `the container has no program ${command[0]}, or it can't be started` }
}

/** Separates the output of a command without a terminal. */
function apart(stream: Duplex): Pick<Entry, "output" | "errors"> {
  const [output, errors] = [new PassThrough(), new PassThrough()]
  const split = async (): Promise<void> => {
    for await (const frames of framesOf(stream))
      for (const { source, payload } of frames) {
        const to = source === STDERR ? errors : output
        if (!to.write(payload)) await once(to, "drain")
      }
  }
  split()
    .catch(() => undefined)
    .finally(() => {
      output.end()
      errors.end()
    })
  return { output, errors }
}
