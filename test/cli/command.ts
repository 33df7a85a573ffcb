import { mkdtempSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { PassThrough } from "node:stream"
import type { Environment } from "../../src/cli/context.ts"
import { runCommand } from "../../src/cli/program.ts"

/** End of a command, with its output. */
export interface Ended {
  code: number
  out: string
  err: string
}

/** Command that runs in this process, with streams that aren't a terminal. */
export interface Running {
  ended: Promise<Ended>
  /** Resolves when standard output contains the text. */
  printed: (text: string) => Promise<void>
  /** Resolves when standard error contains the text. */
  noted: (text: string) => Promise<void>
  /** Standard output so far. */
  out: () => string
  /** Standard error so far. */
  err: () => string
  /** Ends it as Ctrl-C does. */
  interrupt: () => void
}

/** Folder without a configuration. */
const NO_CONFIG = mkdtempSync(join(tmpdir(), "berth-cli-"))

/** Starts a command. @param input its standard input */
export function start(argv: readonly string[], environment: Environment, input = ""): Running {
  const stdin = new PassThrough()
  stdin.end(input)
  const [stdout, stderr] = [new PassThrough(), new PassThrough()]
  const said = { out: "", err: "" }
  const listeners = new Set<() => void>()
  for (const [name, stream] of [["out", stdout] as const, ["err", stderr] as const])
    stream.setEncoding("utf8").on("data", (piece: string) => {
      said[name] += piece
      for (const listener of listeners) listener()
    })
  const stop = new AbortController()
  const streams = { stdin, stdout, stderr } as never
  const ended = runCommand({
    argv,
    environment: { XDG_CONFIG_HOME: NO_CONFIG, XDG_STATE_HOME: NO_CONFIG, ...environment },
    streams,
    signal: stop.signal,
    version: "0.0.0",
  }).then((code) => ({ code, ...said }))
  const saidIn = (name: keyof typeof said) => (text: string) => {
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    const look = () => void (said[name].includes(text) && resolve())
    listeners.add(look)
    look()
    ended.then(({ out, err }) => reject(new Error(`ended without ${text}: ${out}${err}`)), reject)
    return promise.finally(() => listeners.delete(look))
  }
  return {
    ended,
    printed: saidIn("out"),
    noted: saidIn("err"),
    out: () => said.out,
    err: () => said.err,
    interrupt: () => stop.abort(),
  }
}

export function run(argv: readonly string[], environment: Environment, input?: string): Promise<Ended> {
  return start(argv, environment, input).ended
}
