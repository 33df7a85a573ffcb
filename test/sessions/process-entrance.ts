import { spawn } from "node:child_process"
import { once } from "node:events"
import { connect as connectTcp } from "node:net"
import type { Container, Entrance, Entry } from "../../src/agent/runtimes/runtime.ts"

/** Way into this machine in place of a container: commands are its processes, and ports its own. */
export const processEntrance: Entrance = {
  async exec({ command: [program = "", ...words] }): Promise<Entry> {
    const child = spawn(program, words)
    await once(child, "spawn")
    const closed = once(child, "close") as Promise<[number | null]>
    return {
      ...{ input: child.stdin, output: child.stdout, errors: child.stderr },
      // As an engine does without a terminal.
      resize: async () => {
        throw new Error("the command has no terminal")
      },
      result: async () => ({ exitCode: (await closed)[0] ?? 137 }),
      leave: async () => void child.kill("SIGKILL"),
    }
  },
  async connect(port): Promise<Entry> {
    const socket = connectTcp({ host: "127.0.0.1", port, allowHalfOpen: true })
    await once(socket, "connect")
    const leave = async () => void socket.destroy()
    return { input: socket, output: socket, resize: async () => undefined, result: async () => ({}), leave }
  },
}

/** Container that people enter by `processEntrance`. */
export const enterable = { entrance: processEntrance } as unknown as Container
