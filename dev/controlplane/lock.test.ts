import { spawn } from "node:child_process"
import { once } from "node:events"
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { beforeEach, expect, it, onTestFinished } from "vitest"
import { LockHeldError, takeLock } from "./lock.ts"
import { isRunning, parseRecord, recordOf } from "./process-record.ts"

let path: string

beforeEach(async () => {
  const directory = await mkdtemp(join(tmpdir(), "berth-lock-"))
  path = join(directory, "made", "lock")
  return () => rm(directory, { recursive: true })
})

it("a lock is held by one process at a time, and is free after its release", async () => {
  const takers = await Promise.allSettled(Array.from({ length: 20 }, () => takeLock(path)))
  const held = takers.filter((taker) => taker.status === "fulfilled")
  expect(held).toHaveLength(1)
  await expect(takeLock(path)).rejects.toThrow(LockHeldError)
  await expect(takeLock(path)).rejects.toThrow(`held by process ${process.pid}`)
  held[0]?.value.release()
  const next = await takeLock(path)
  next.release()
})

it("the error names the file and the remedy if the file is not a lock", async () => {
  await mkdir(dirname(path), { recursive: true })
  await writeFile(path, "garbage, and enough of it to be no empty database ".repeat(20))
  await expect(takeLock(path)).rejects.toThrow(`${path} is not a lock of Berth's: remove that file`)
})

it("a lock excludes other processes, and is free after its holder is killed", async () => {
  const module = new URL("./lock.ts", import.meta.url).href
  const script = `
    const { takeLock } = await import(${JSON.stringify(module)})
    globalThis.lock = await takeLock(${JSON.stringify(path)})
    setInterval(() => {}, 1000)
    console.log("held")`
  const holder = spawn(process.execPath, ["--input-type=module", "-e", script], {
    stdio: ["ignore", "pipe", "inherit"],
  })
  onTestFinished(() => void holder.kill("SIGKILL"))
  await once(holder.stdout, "data")
  await expect(takeLock(path)).rejects.toThrow(`held by process ${holder.pid}`)
  holder.kill("SIGKILL")
  await once(holder, "exit")
  const lock = await takeLock(path)
  lock.release()
})

it("a lock distinguishes a process from an ended one, and from another with its pid", async () => {
  const child = spawn("sleep", ["60"])
  onTestFinished(() => void child.kill("SIGKILL"))
  const record = recordOf(child.pid ?? 0)
  if (!record) throw new Error("sleep has no record")
  expect(isRunning(record)).toBe(true)
  expect(isRunning({ ...record, startedAt: "1" })).toBe(false)
  child.kill("SIGKILL")
  await once(child, "exit")
  expect(isRunning(record)).toBe(false)
})

it("the record of a lock is read as written, and not at all from a truncated file", () => {
  const record = { pid: 7, startedAt: "99" }
  const text = JSON.stringify(record)
  expect(parseRecord(text)).toEqual(record)
  for (const broken of [text.slice(0, -1), "", "null", "{}"]) {
    expect(parseRecord(broken)).toBeUndefined()
  }
})
