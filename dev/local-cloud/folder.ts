import { randomUUID } from "node:crypto"
import { link, mkdir, readdir, readFile, rename, rm, stat, writeFile } from "node:fs/promises"
import { dirname, join } from "node:path"
import Type, { type Static } from "typebox"
import Value from "typebox/value"
import type { LaunchSpec } from "../../src/clouds/cloud.ts"
import { specDigest } from "../../src/clouds/spec-digest.ts"
import { TransientError } from "../../src/core/outbound/errors.ts"
import { type ProcessIdentity, parseIdentity } from "./processes.ts"

/** Constant facts of a VM, written before anything else. */
const VmRecordSchema = Type.Object({
  launch: Type.String(),
  installation: Type.String(),
  region: Type.String(),
  instanceType: Type.String(),
  tags: Type.Record(Type.String(), Type.String()),
  createTime: Type.String(),
  /** Distinguishes a repeated launch from another one of the same name. */
  specDigest: Type.String(),
})
export type VmRecord = Static<typeof VmRecordSchema>

const MomentSchema = Type.Object({ time: Type.String() })

/** Moments that are recorded once and never change. */
export type Moment = "power-off" | "termination-request" | "termination"

/** Prefix of folders that are being created or removed. They aren't VMs. */
const SCRATCH = ".scratch-"

/** Age after which a scratch folder counts as left by a crash, seconds. */
const SCRATCH_SECONDS = 3600

/** Content of the process file of a VM that was terminated before its start. */
const NEVER_BOOTED = "never booted\n"

/**
 * The folder of one VM. It holds everything that this cloud knows of the VM:
 *
 *     vm.json                   VmRecord, exists from the start
 *     process                   identity of the agent process; created once: by the start, or to prevent any start
 *     power-off.json            time of a stop of Berth on this machine, which ends the VM as planned
 *     termination-request.json  time of the request to terminate the VM
 *     termination.json          time when the VM ended
 *     agent.log                 output of the agent
 *     disk/                     the agent's own: user-data.json and its further files; deleted some time after the end
 *
 * Every file is created by one atomic step and never changes, so any number of processes may use the folder.
 */
export class VmFolder {
  readonly path: string

  constructor(path: string) {
    this.path = path
  }

  get disk(): string {
    return join(this.path, "disk")
  }

  get processFile(): string {
    return join(this.path, "process")
  }

  get agentLog(): string {
    return join(this.path, "agent.log")
  }

  /** Returns the record; undefined if there is no such VM. Throws TransientError if it can't be read. */
  async record(): Promise<VmRecord | undefined> {
    return await readJson(join(this.path, "vm.json"), VmRecordSchema)
  }

  /** Returns the agent process; undefined before its start, `nobody` if it must never start. */
  async process(): Promise<ProcessIdentity | "nobody" | undefined> {
    const text = await readIfThere(this.processFile)
    if (text === undefined) return undefined
    if (text === NEVER_BOOTED) return "nobody"
    const identity = parseIdentity(text)
    if (identity === undefined) throw corrupt(this.processFile)
    return identity
  }

  /** Prevents the start of an agent. Has no effect if one was started. */
  async forbidBoot(): Promise<void> {
    await this.#writeOnce("process", NEVER_BOOTED)
  }

  async moment(moment: Moment): Promise<string | undefined> {
    return (await readJson(join(this.path, `${moment}.json`), MomentSchema))?.time
  }

  /** Records the time of an event; the first record stays. */
  async recordMoment(moment: Moment, time: string): Promise<void> {
    await this.#writeOnce(`${moment}.json`, JSON.stringify({ time }))
  }

  /** Returns the time of the agent's last write: the last sign of life if it died unseen. */
  async lastSignOfLife(): Promise<Date> {
    const kept = (await readdir(this.disk)).map((name) => join(this.disk, name))
    const times = await Promise.all([this.processFile, this.agentLog, this.disk, ...kept].map(changeTime))
    return new Date(Math.max(...times))
  }

  async hasDisk(): Promise<boolean> {
    return (await changeTime(this.disk)) > 0
  }

  /** Deletes the disk of a terminated VM. After a crash the next call deletes the rest. */
  async deleteDisk(): Promise<void> {
    await rm(this.disk, { recursive: true, force: true })
  }

  /** Removes the folder, in an order in which a crash leaves no half of a VM. */
  async remove(): Promise<void> {
    const scratch = join(dirname(this.path), `${SCRATCH}${randomUUID()}`)
    try {
      await rename(this.path, scratch)
    } catch (error) {
      if (hasCode(error, "ENOENT")) return
      throw error
    }
    await rm(scratch, { recursive: true, force: true })
  }

  async #writeOnce(name: string, content: string): Promise<void> {
    const draft = join(this.path, `${SCRATCH}${randomUUID()}`)
    await writeFile(draft, content)
    try {
      await link(draft, join(this.path, name))
    } catch (error) {
      if (!hasCode(error, "EEXIST")) throw error
    } finally {
      await rm(draft)
    }
  }
}

/** Creates the VM's folder in one step, or keeps an existing one. */
export async function createFolder(dataDir: string, spec: LaunchSpec, createTime: string): Promise<void> {
  const scratch = join(dataDir, `${SCRATCH}${randomUUID()}`)
  const draft = new VmFolder(scratch)
  await mkdir(draft.disk, { recursive: true, mode: 0o700 })
  const record: VmRecord = {
    launch: spec.name,
    installation: spec.installation,
    region: spec.offer.region,
    instanceType: spec.offer.instanceType,
    tags: spec.tags,
    createTime,
    specDigest: specDigest(spec),
  }
  await writeFile(join(scratch, "vm.json"), JSON.stringify(record, undefined, 2))
  await writeFile(join(draft.disk, "user-data.json"), spec.userData, { mode: 0o600 })
  try {
    await rename(scratch, join(dataDir, spec.name))
  } catch (error) {
    await rm(scratch, { recursive: true, force: true })
    if (!hasCode(error, "ENOTEMPTY", "EEXIST")) throw error
  }
}

/** Returns every VM's folder, and removes incomplete folders that crashes left. */
export async function listFolders(dataDir: string, now: Date): Promise<VmFolder[]> {
  const names = await readdir(dataDir)
  for (const name of names.filter((each) => each.startsWith(SCRATCH))) {
    const path = join(dataDir, name)
    const age = (now.getTime() - (await changeTime(path))) / 1000
    if (age > SCRATCH_SECONDS) await rm(path, { recursive: true, force: true })
  }
  return names.filter((name) => !name.startsWith(SCRATCH)).map((name) => new VmFolder(join(dataDir, name)))
}

/** Returns the file's content by the schema; undefined if there is no file. */
export async function readJson<T extends Type.TSchema>(path: string, schema: T): Promise<Static<T> | undefined> {
  const text = await readIfThere(path)
  if (text === undefined) return undefined
  try {
    const value: unknown = JSON.parse(text)
    if (Value.Check(schema, value)) return value
  } catch (error) {
    throw corrupt(path, error)
  }
  throw corrupt(path)
}

/** Reports a corrupt record instead of skipping it: skipping would look like a deleted VM. */
function corrupt(path: string, cause?: unknown): TransientError {
  const advice = "remove its folder after all processes of that VM have ended"
  return new TransientError("CorruptRecord", `${path} is corrupt: ${advice}`, { cause })
}

async function readIfThere(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, "utf8")
  } catch (error) {
    if (hasCode(error, "ENOENT", "ENOTDIR")) return undefined
    throw error
  }
}

async function changeTime(path: string): Promise<number> {
  try {
    return (await stat(path)).mtimeMs
  } catch (error) {
    if (hasCode(error, "ENOENT")) return 0
    throw error
  }
}

function hasCode(error: unknown, ...codes: string[]): boolean {
  return error instanceof Error && "code" in error && codes.includes(String(error.code))
}
