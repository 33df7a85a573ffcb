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

/** Part of a disk that is used at most when another job may get it. The rest is for that job's image and files. */
const REUSABLE_PART = 0.5

/** Returns a message if the disk of this path has too little room for another job; undefined otherwise. Rejects without it. */
export async function whyTooFull(path: string): Promise<string | undefined> {
  const { blocks, bfree, bsize } = await statfs(path)
  const used = (blocks - bfree) / blocks
  if (used <= REUSABLE_PART) return undefined
  const size = `the VM's disk of ${Math.ceil((blocks * bsize) / GIB)} GiB`
  return `${size} is ${Math.round(used * 100)} % full without its job; another job gets it up to ${REUSABLE_PART * 100} %`
}

/** Free space of a machine's disk below which it gets no job, GiB. */
const LEAST_FREE_GIB = 1

/** Returns a message if the disk of this path has no room for a job; undefined otherwise. Rejects without that disk. */
export async function whyNoSpace(path: string): Promise<string | undefined> {
  const { blocks, bavail, bsize } = await statfs(path)
  const free = (bavail * bsize) / GIB
  if (free >= LEAST_FREE_GIB) return undefined
  const size = Math.ceil((blocks * bsize) / GIB)
  return `the machine's disk of ${size} GiB has ${free.toFixed(1)} GiB free; a job needs at least ${LEAST_FREE_GIB} GiB`
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
