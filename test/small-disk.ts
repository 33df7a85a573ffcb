import { execFile } from "node:child_process"
import { mkdtemp, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"

const run = promisify(execFile)

/** Reason why a test can't have a disk of its own, as a suffix of the test's name; empty if it can. */
export const noDisk =
  process.platform === "linux" && process.getuid?.() === 0 ? "" : " (skipped: only root on Linux can mount a disk)"

/** Real disk that can be full without harm to this machine's disk. */
export interface SmallDisk {
  path: string
  /** Uses all remaining space. */
  fill(): Promise<void>
  /** Frees the space. */
  empty(): Promise<void>
  remove(): Promise<void>
}

export async function smallDisk(mebibytes: number): Promise<SmallDisk> {
  const path = await mkdtemp(join(tmpdir(), "berth-disk-"))
  await run("mount", ["-t", "tmpfs", "-o", `size=${mebibytes}m`, "tmpfs", path])
  const filler = join(path, "filler")
  return {
    path,
    fill: async () => {
      for (let block = Buffer.alloc(65_536); ; ) {
        try {
          await writeFile(filler, block, { flag: "a" })
        } catch (error) {
          if ((error as NodeJS.ErrnoException).code !== "ENOSPC") throw error
          if (block.byteLength === 1) return
          block = Buffer.alloc(1)
        }
      }
    },
    empty: () => rm(filler),
    remove: async () => {
      await run("umount", ["--lazy", path])
      await rm(path, { recursive: true, force: true })
    },
  }
}
