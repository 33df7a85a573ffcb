import { spawn } from "node:child_process"
import { once } from "node:events"
import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterEach, beforeEach, describe, expect, it } from "vitest"
import { AgentBusyError, acquireLock } from "./disk.ts"
import { processIdentity } from "./processes.ts"

let folder: string

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "berth-lock-"))
})
afterEach(() => rm(folder, { recursive: true, force: true }))

/** Process that tries once, prints `held` or `busy`, and holds its lock until its input ends. */
function contender() {
  const script = `
    import { acquireLock } from ${JSON.stringify(join(import.meta.dirname, "disk.ts"))}
    let said = "held"
    try { acquireLock(${JSON.stringify(folder)}) } catch { said = "busy" }
    process.stdout.write(said)
    process.stdin.resume()`
  const child = spawn(process.execPath, ["--input-type=module", "-e", script], { stdio: ["pipe", "pipe", "inherit"] })
  const gone = once(child, "exit")
  return {
    said: once(child.stdout, "data").then(([data]) => String(data)),
    end: async () => {
      child.kill("SIGKILL")
      await gone
    },
  }
}

describe("acquireLock", () => {
  it("gives the folder to one of many processes, also after a holder was killed", async () => {
    for (let round = 0; round < 3; round++) {
      const contenders = Array.from({ length: 6 }, contender)
      const said = await Promise.all(contenders.map(({ said }) => said))
      expect(said.filter((word) => word === "held")).toEqual(["held"])
      await Promise.all(contenders.map(({ end }) => end()))
    }
  })

  it("holds the lock within one process, too, until it is disposed of", () => {
    const lock = acquireLock(folder)
    expect(() => acquireLock(folder)).toThrow(AgentBusyError)
    expect(() => acquireLock(folder)).toThrow(`process ${process.pid} is the agent of ${folder} already`)
    lock[Symbol.dispose]()
    acquireLock(folder)[Symbol.dispose]()
  })

  it("takes the lock of a dead holder, although another process has its number", async () => {
    await writeFile(join(folder, "lock.7"), JSON.stringify({ pid: process.pid, identity: "an earlier boot" }))
    using _lock = acquireLock(folder)
    expect(await readdir(folder)).toEqual(["lock.8"])
  })
})

describe("processIdentity", () => {
  it("is constant while a process lives, and different for each process", async () => {
    expect(processIdentity(process.pid)).toBe(processIdentity(process.pid))
    const { said, end } = contender()
    await said
    expect(processIdentity(process.ppid)).not.toBe(processIdentity(process.pid))
    await end()
    expect(processIdentity(2 ** 22 + 1)).toBeUndefined()
  })
})
