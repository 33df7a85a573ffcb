import { spawn } from "node:child_process"
import { once } from "node:events"
import type { Environment } from "../../src/cli/context.ts"

/** Command on a terminal, made by script(1) of util-linux. */
export interface OnTerminal {
  /** All that the terminal shows so far. */
  output: () => string
  /** Resolves when the terminal shows the text. */
  shows: (text: string) => Promise<void>
  type: (text: string) => void
  ended: Promise<{ code: number | null; output: string }>
}

/** Starts a shell command on a terminal. */
export function onTerminal(command: string, environment: Environment): OnTerminal {
  const env = { PATH: process.env["PATH"], HOME: process.env["HOME"], TERM: "xterm", ...environment }
  const child = spawn("script", ["--quiet", "--return", "--command", command, "/dev/null"], { env })
  let output = ""
  const listeners = new Set<() => void>()
  const note = (piece: Buffer) => {
    output += piece
    for (const listener of listeners) listener()
  }
  child.stdout.on("data", note)
  child.stderr.on("data", note)
  const ended = once(child, "close").then(([code]) => ({ code: code as number | null, output }))
  return {
    output: () => output,
    shows: (text) => {
      const { promise, resolve, reject } = Promise.withResolvers<void>()
      const look = () => void (output.includes(text) && resolve())
      listeners.add(look)
      look()
      ended.then(() => reject(new Error(`ended without ${text}: ${output}`)), reject)
      return promise.finally(() => listeners.delete(look))
    },
    type: (text) => void child.stdin.write(text),
    ended,
  }
}
