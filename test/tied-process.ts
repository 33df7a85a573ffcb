import { type ChildProcessByStdio, spawn } from "node:child_process"
import { once } from "node:events"
import { createInterface } from "node:readline"
import type { Readable, Writable } from "node:stream"

/** Runs "$@" and ends it when standard input ends. Standard input ends with the parent process, for any reason. */
const TIED = `
exec 3<&0
"$@" </dev/null 3<&- &
server=$!
{ read -r _ <&3; kill -KILL "$server"; } >/dev/null 2>&1 &
wait "$server"
`

/** Server that never outlives this process. */
export interface TiedProcess {
  /** First group of the first line that matched `ready`. */
  readonly address: string
  stop(): Promise<void>
}

/** Starts a server and waits until it prints that it listens. @throws Error with its whole output if it ends earlier */
export async function startTied(command: string, args: readonly string[], options: TiedOptions): Promise<TiedProcess> {
  const child = spawn("sh", ["-c", TIED, "sh", command, ...args], {
    stdio: ["pipe", "pipe", "pipe"],
    env: { PATH: process.env["PATH"], HOME: process.env["HOME"], ...options.env },
  })
  const ended = once(child, "exit")
  const printed: string[] = []
  const address = await Promise.race([
    addressIn(child, options.ready, printed),
    ended.then(() => Promise.reject(new Error(`${command} did not start:\n${printed.join("\n")}`))),
  ])
  return {
    address,
    stop: async () => {
      child.stdin.end()
      if (child.exitCode === null && child.signalCode === null) await ended
    },
  }
}

export interface TiedOptions {
  /** Matches the line with the address. */
  ready: RegExp
  env?: Readonly<Record<string, string>>
}

async function addressIn(
  child: ChildProcessByStdio<Writable, Readable, Readable>,
  ready: RegExp,
  printed: string[],
): Promise<string> {
  return await new Promise((resolve) => {
    for (const output of [child.stdout, child.stderr]) {
      createInterface({ input: output }).on("line", (line) => {
        if (printed.length < 100) printed.push(line)
        const found = ready.exec(line)?.[1]
        if (found !== undefined) resolve(found)
      })
    }
  })
}
