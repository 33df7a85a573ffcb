import { spawn } from "node:child_process"
import { access, mkdir, rm, writeFile } from "node:fs/promises"
import { dirname, join } from "node:path"
import { createInterface } from "node:readline"
import { setTimeout as delay } from "node:timers/promises"
import { type Lock, LockHeldError, takeLock } from "../dev/controlplane/lock.ts"
import { cacheDirectory } from "../dev/controlplane/programs.ts"

const LOCK_POLL_MS = 500
const COMPLETE = ".complete"

/** Directory in Berth's cache that is created once and then kept. */
export interface Cached {
  /** Name that includes all dependencies, such as a version: another name is another directory. */
  readonly name: string
  /** File in the directory that proves its completeness. */
  readonly proof: string
  /** Fills the directory, which exists and is empty. */
  readonly make: (directory: string) => Promise<void>
}

/** Returns the directory, and creates it if it doesn't exist. Other callers wait meanwhile, in any process. */
export async function cached({ name, proof, make }: Cached): Promise<string> {
  const directory = directoryOf(name)
  if (await isCached(name, proof)) return directory
  const lock = await waitForLock(`${directory}.lock`)
  try {
    if (await isCached(name, proof)) return directory
    await rm(directory, { recursive: true, force: true })
    await mkdir(directory, { recursive: true })
    await make(directory)
    await writeFile(join(directory, COMPLETE), "")
    return directory
  } finally {
    lock.release()
  }
}

/** Returns true if the directory exists and is complete. */
export async function isCached(name: string, proof: string): Promise<boolean> {
  return (await exists(join(directoryOf(name), COMPLETE))) && (await exists(join(directoryOf(name), proof)))
}

function directoryOf(name: string): string {
  return join(cacheDirectory(process.env["XDG_CACHE_HOME"]), name)
}

/** Runs a long program and reports each line of its output. @throws Error with its last lines if it fails */
export async function runLogged(command: string, args: readonly string[], say: (line: string) => void): Promise<void> {
  const child = spawn(command, [...args], { stdio: ["ignore", "pipe", "pipe"] })
  const lines: string[] = []
  for (const output of [child.stdout, child.stderr]) {
    createInterface({ input: output }).on("line", (line) => {
      lines.push(line)
      say(line)
    })
  }
  await new Promise<void>((resolve, reject) => {
    child.once("error", reject)
    child.once("close", (code, signal) => {
      if (code === 0) return resolve()
      reject(
        new Error(
          `${command} ${args.join(" ")} ended with ${signal ?? `exit code ${code}`}:\n${lines.slice(-15).join("\n")}`,
        ),
      )
    })
  })
}

async function exists(path: string): Promise<boolean> {
  return await access(path).then(
    () => true,
    () => false,
  )
}

async function waitForLock(path: string): Promise<Lock> {
  await mkdir(dirname(path), { recursive: true })
  for (let told = false; ; told = true) {
    try {
      return await takeLock(path)
    } catch (error) {
      if (!(error instanceof LockHeldError)) throw error
      if (!told) console.log(`waiting for process ${error.holder}, which makes ${path.replace(/[.]lock$/, "")}`)
    }
    await delay(LOCK_POLL_MS)
  }
}
