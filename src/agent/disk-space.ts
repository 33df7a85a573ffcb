import { statfs } from "node:fs/promises"

const GIB = 1024 ** 3

/** Part of a disk that is free at most when the disk counts as full. */
const FULL_PART = 0.01

/**
 * Returns a message if an error or the disk itself says that the VM's disk is full; undefined otherwise.
 * @param path any path on the disk
 * @param error message of an error; absent: only the disk is asked
 */
export async function whyDiskFull(path: string, error = ""): Promise<string | undefined> {
  try {
    const { blocks, bavail, bsize } = await statfs(path)
    // An engine that fails for lack of space frees what it had written.
    if (bavail > blocks * FULL_PART && !/no space left/i.test(error)) return undefined
    return `the VM's disk of ${Math.ceil((blocks * bsize) / GIB)} GiB is full; request more by resources.disk`
  } catch {
    return undefined
  }
}

/** Returns the used part of the disk of this path, GiB; undefined if it can't be read. */
export async function usedDiskGib(path: string): Promise<number | undefined> {
  try {
    const { blocks, bfree, bsize } = await statfs(path)
    return ((blocks - bfree) * bsize) / GIB
  } catch {
    return undefined
  }
}
