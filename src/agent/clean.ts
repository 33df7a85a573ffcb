import { readdir, rm } from "node:fs/promises"
import { join } from "node:path"
import { timestamp } from "../core/apis/clock.ts"
import { CLEAN_SECONDS } from "../core/reuse/reuse.ts"
import { type LaunchContext, openRuntime } from "./context.ts"
import { type Disk, LOCK_NAME, OWN_FILES, readIfThere } from "./disk.ts"
import { whyTooFull } from "./disk-space.ts"
import { cutMessage } from "./run.ts"
import { timer } from "./timers.ts"

/** Maximum number of names in a message. */
const NAMES = 5

/**
 * Removes everything of a job from its VM but images, and checks that. Then the disk's state says since when the VM waits.
 * Returns why the VM can have no other job; undefined if it can. Never rejects.
 * @param of.isHostShared true if the host also runs other jobs, whose things stay
 * @param of.signal aborted if the VM ends
 */
export async function whyUnfit(
  context: LaunchContext,
  disk: Disk,
  of: { isHostShared: boolean; signal: AbortSignal },
): Promise<string | undefined> {
  const { clock, dataDir, logger } = context
  // What a person did there is not known. On a shared host only the container was open, and it is removed.
  if (disk.state.entered === true && !of.isHostShared) return "a person was in the container by a session"
  try {
    await withinCleanSeconds(context, clean(context, disk, of))
    const full = of.isHostShared ? undefined : await whyTooFull(dataDir)
    if (full !== undefined) return full
    disk.forgetRun(timestamp(clock.now()))
    return undefined
  } catch (error) {
    logger.error({ err: error }, `failed to clean this ${of.isHostShared ? "machine" : "VM"}; no other job gets it`)
    const why = error instanceof Error ? error.message : String(error)
    return cutMessage(`the ${of.isHostShared ? "machine" : "VM"} could not be cleaned after its job: ${why}`)
  }
}

async function clean(
  context: LaunchContext,
  disk: Disk,
  { isHostShared, signal }: { isHostShared: boolean; signal: AbortSignal },
): Promise<void> {
  const runtime = await openRuntime(context, disk, signal)
  await runtime.wipe(isHostShared)
  await emptyDataDir(context.dataDir)
}

/** Removes everything from the agent's folder but its own files. Rejects if something stays, or is mounted there. */
async function emptyDataDir(dataDir: string): Promise<void> {
  // Before anything is removed: what is mounted may be a bucket.
  const mounts = mountsBelow(dataDir)
  if (mounts.length > 0) throw new Error(`${named(mounts)} ${mounts.length === 1 ? "is" : "are"} still mounted`)
  for (const name of await foreignIn(dataDir)) await rm(join(dataDir, name), { recursive: true, force: true })
  const left = await foreignIn(dataDir)
  if (left.length > 0) throw new Error(`${dataDir} still has ${named(left)}`)
}

async function foreignIn(dataDir: string): Promise<string[]> {
  return (await readdir(dataDir)).filter((name) => !OWN_FILES.includes(name) && !LOCK_NAME.test(name))
}

/** Returns the mount points below a folder (man 5 proc_pid_mountinfo). */
function mountsBelow(folder: string): string[] {
  const lines = (readIfThere("/proc/self/mountinfo") ?? "").split("\n")
  return lines.flatMap((line) => line.split(" ")[4] ?? []).filter((path) => path.startsWith(`${folder}/`))
}

function named(names: readonly string[]): string {
  const more = names.length - NAMES
  return `${names.slice(0, NAMES).join(", ")}${more > 0 ? ` and ${more} more` : ""}`
}

/** Rejects if the clean-up takes longer than the operator waits for it. A hanging engine keeps no VM alive. */
async function withinCleanSeconds({ clock }: LaunchContext, work: Promise<void>): Promise<void> {
  const { promise: late, reject } = Promise.withResolvers<never>()
  const cancel = timer(clock, CLEAN_SECONDS, () => reject(new Error(`it took longer than ${CLEAN_SECONDS} s`)))
  try {
    await Promise.race([work, late])
  } finally {
    cancel()
  }
}
