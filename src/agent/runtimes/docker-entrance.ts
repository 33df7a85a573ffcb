import { once } from "node:events"
import { connect as connectTcp } from "node:net"
import { type Duplex, PassThrough } from "node:stream"
import { text } from "node:stream/consumers"
import type Docker from "dockerode"
import type { StreamResult } from "../../core/apis/remote-command.ts"
import type { SessionTarget } from "../../core/protocol/sessions.ts"
import { isNotStarted } from "../exit-codes.ts"
import { framesOf } from "./docker-frames.ts"
import { CALL_SECONDS, errorMessage, withTimeout } from "./engine.ts"
import { type Entrance, type Entry, EntryError } from "./runtime.ts"
import type { Toolbox } from "./toolbox.ts"

/** Time for a connection to a port of the container, seconds. */
const CONNECT_SECONDS = 5

const STDERR = 2

/** Ctrl-D. */
const END_OF_INPUT = "\u0004"

/** Parts of an entrance. */
export interface EntranceOptions {
  /** Starts the tools for people, or returns them. Rejects with EntryError. */
  toolbox: () => Promise<Toolbox>
}

/** Ways into a container of the engine. */
export class DockerEntrance implements Entrance {
  readonly #container: Docker.Container
  readonly #options: EntranceOptions

  constructor(container: Docker.Container, options: EntranceOptions) {
    this.#container = container
    this.#options = options
  }

  async exec({ command, tty, size, toolbox = false }: NonNullable<SessionTarget["exec"]>): Promise<Entry> {
    try {
      const { container, env } = toolbox ? await this.#options.toolbox() : { container: this.#container, env: [] }
      const exec = await withTimeout(
        CALL_SECONDS,
        container.exec({
          Cmd: command,
          Tty: tty,
          ...{ AttachStdin: true, AttachStdout: true, AttachStderr: true },
          Env: [...env, ...(tty ? ["TERM=xterm-256color"] : [])],
        } as Docker.ExecCreateOptions),
      )
      const stream = await withTimeout(CALL_SECONDS, exec.start({ hijack: true, stdin: true, Tty: tty }))
      const resize: Entry["resize"] = async ({ columns: w, rows: h }) => void (await exec.resize({ w, h }))
      // Engines may ignore the size of the start.
      if (tty && size !== undefined) await withTimeout(CALL_SECONDS, resize(size)).catch(() => undefined)
      const result = () => resultOf(exec, command, toolbox)
      const leave = async (): Promise<void> => {
        if (tty) await endInput(stream)
        stream.destroy()
      }
      return { input: stream, ...(tty ? { output: stream } : apart(stream)), resize, result, leave }
    } catch (error) {
      if (error instanceof EntryError) throw error
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
      return await this.#connectWithin(port, why)
    }
    const leave = async (): Promise<void> => void socket.destroy()
    return { input: socket, output: socket, resize: async () => undefined, result: async () => ({}), leave }
  }

  /** Connects to a program that listens only on an address within the container's network, as Jupyter does by default. */
  async #connectWithin(port: number, why: string): Promise<Entry> {
    const address = loopbackAddress(await this.#listeners(), port)
    if (address === undefined)
      throw new EntryError(`port ${port} of the container can't be reached (${why}): no program listens on it`)
    const entry = await this.exec({ command: ["nc", address, String(port)], tty: false, toolbox: true })
    entry.errors?.resume()
    const { errors: _, ...others } = entry
    return { ...others, result: async () => ({}) }
  }

  /** Returns the TCP sockets of the container's network (man 5 proc_pid_net). */
  async #listeners(): Promise<string> {
    const tables = ["/proc/net/tcp", "/proc/net/tcp6"]
    const entry = await this.exec({ command: ["cat", ...tables], tty: false, toolbox: true })
    entry.errors?.resume()
    entry.input.end()
    try {
      return await text(entry.output)
    } finally {
      await entry.leave()
    }
  }
}

/** State of a socket that listens (TCP_LISTEN in Linux' include/net/tcp_states.h). */
const LISTENS = "0A"

/** Loopback addresses as the kernel prints them: 32-bit words in the machine's own order, which is little-endian on all clouds. */
const LOOPBACKS: Readonly<Record<string, string>> = {
  "0100007F": "127.0.0.1",
  "00000000000000000000000001000000": "::1",
}

/** Returns the loopback address on which a program listens at a port; undefined: none does. */
export function loopbackAddress(table: string, port: number): string | undefined {
  for (const line of table.split("\n")) {
    const [, local = "", , state] = line.trim().split(/\s+/)
    const [address = "", at = ""] = local.split(":")
    if (state === LISTENS && Number.parseInt(at, 16) === port && LOOPBACKS[address] !== undefined)
      return LOOPBACKS[address]
  }
  return undefined
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

async function resultOf(exec: Docker.Exec, command: readonly string[], isTool: boolean): Promise<StreamResult> {
  const { ExitCode: exitCode } = await withTimeout(CALL_SECONDS, exec.inspect())
  if (exitCode === null) return { error: "the connection to the command broke off; it may still run" }
  if (!isNotStarted(exitCode)) return { exitCode }
  const help = isTool ? "" : ". Without a shell in the image, `berth debug` has one"
  return { exitCode, error: `the container has no program ${command[0]}, or it can't be started${help}` }
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
