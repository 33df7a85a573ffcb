import { randomUUID } from "node:crypto"
import { link, mkdir, readdir, readFile, rename, rm, stat, writeFile } from "node:fs/promises"
import { dirname, join } from "node:path"
import Type, { type Static } from "typebox"
import Value from "typebox/value"
import { TransientError } from "../errors.ts"
import type { LaunchSpec } from "../provider.ts"
import { specDigest } from "../spec-digest.ts"
import { type ProcessIdentity, parseIdentity } from "./processes.ts"

/** What stays the same over a VM's life, written before anything else. */
const VmRecordSchema = Type.Object({
  launch: Type.String(),
  installation: Type.String(),
  region: Type.String(),
  instanceType: Type.String(),
  tags: Type.Record(Type.String(), Type.String()),
  lifetimeSeconds: Type.Integer(),
  createTime: Type.String(),
  /** Tells a replay from another launch of the same name. */
  specDigest: Type.String(),
})
export type VmRecord = Static<typeof VmRecordSchema>

const MomentSchema = Type.Object({ time: Type.String() })

/** The two moments that are recorded once and never change. */
export type Moment = "termination-request" | "termination"

/** Folders of this prefix are being made or removed: no VMs. */
const SCRATCH = ".scratch-"

/** Scratch folders older than this were left by a crash. */
const SCRATCH_SECONDS = 3600

/** Stands in the process file of a VM whose end was asked for before its start. */
const NEVER_BOOTED = "never booted\n"

/**
 * The folder of one VM, which is all that this cloud remembers of it:
 *
 *     vm.json                   VmRecord, there from the first moment
 *     process                   who the agent process is; made once, by whoever starts it (or makes sure that nobody does)
 *     termination-request.json  when its end was asked for
 *     termination.json          when it was over
 *     agent.log                 what the agent printed
 *     disk/                     the agent's own: user-data.json and whatever it keeps
 *
 * Every file appears by one atomic step and none is ever changed, so any number of processes may work on it.
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

  /** The record, or undefined when there is no such VM. Throws TransientError when it can't be read. */
  async record(): Promise<VmRecord | undefined> {
    return await readJson(join(this.path, "vm.json"), VmRecordSchema)
  }

  /** The agent process: undefined before its start, `nobody` when it may never start. */
  async process(): Promise<ProcessIdentity | "nobody" | undefined> {
    const text = await readIfThere(this.processFile)
    if (text === undefined) return undefined
    if (text === NEVER_BOOTED) return "nobody"
    const identity = parseIdentity(text)
    if (identity === undefined) throw corrupt(this.processFile)
    return identity
  }

  /** Makes sure that no agent is ever started here; no effect when one was. */
  async forbidBoot(): Promise<void> {
    await this.#writeOnce("process", NEVER_BOOTED)
  }

  async moment(moment: Moment): Promise<string | undefined> {
    return (await readJson(join(this.path, `${moment}.json`), MomentSchema))?.time
  }

  /** Records when something happened; the first record stays. */
  async recordMoment(moment: Moment, time: string): Promise<void> {
    await this.#writeOnce(`${moment}.json`, JSON.stringify({ time }))
  }

  /** When the agent last wrote anything: the last sign of life of one that died unseen. */
  async lastSignOfLife(): Promise<Date> {
    const kept = (await readdir(this.disk)).map((name) => join(this.disk, name))
    const times = await Promise.all([this.processFile, this.agentLog, this.disk, ...kept].map(changeTime))
    return new Date(Math.max(...times))
  }

  /** Removes it all, in an order in which a crash leaves no half of a VM. */
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

/** Makes the VM's folder, complete, or leaves the one that is there. */
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
    lifetimeSeconds: spec.lifetimeSeconds,
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

/** Every VM's folder, and away with what crashes left half made. */
export async function listFolders(dataDir: string, now: Date): Promise<VmFolder[]> {
  const names = await readdir(dataDir)
  for (const name of names.filter((each) => each.startsWith(SCRATCH))) {
    const path = join(dataDir, name)
    const age = (now.getTime() - (await changeTime(path))) / 1000
    if (age > SCRATCH_SECONDS) await rm(path, { recursive: true, force: true })
  }
  return names.filter((name) => !name.startsWith(SCRATCH)).map((name) => new VmFolder(join(dataDir, name)))
}

/** The file's content as the schema says, or undefined when there is none. */
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

/** Such a VM is not passed over in silence: that would read as "it is gone". */
function corrupt(path: string, cause?: unknown): TransientError {
  const advice = "remove its folder once nothing of that VM runs any more"
  return new TransientError("CorruptRecord", `${path} is not what was written there: ${advice}`, { cause })
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
