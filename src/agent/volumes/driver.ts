import { randomBytes } from "node:crypto"
import { mkdirSync, readdirSync, rmSync } from "node:fs"
import { createServer } from "node:net"
import { join } from "node:path"
import type Docker from "dockerode"
import { Client, request } from "undici"
import { systemClock } from "../../apis/clock.ts"
import type { Logger } from "../../apis/logger.ts"
import { readIfThere, replaceFile } from "../disk.ts"
import type { Buckets, RunOrder } from "../protocol.ts"
import { RunError } from "../runtimes/runtime.ts"
import { waitUnlessAborted } from "../timers.ts"
import { CONFIG_DIR, driverConfig, isRefused, type UploadState } from "./remotes.ts"

/** Where the engine looks for the sockets of volume drivers (https://docs.docker.com/engine/extend/plugin_api/). */
const PLUGINS_DIR = "/run/docker/plugins"

/**
 * The driver's name, one for all: a VM runs one job, and an engine asks every driver that it ever knew, until it is
 * started again, whenever it is asked for volumes.
 */
const DRIVER = "berth-rclone"

/** Under this id we hold each volume mounted: rclone forgets a mount's uploads when its last user is gone. */
const HOLDER = "berth-agent"

const START_SECONDS = 60
const POLL_SECONDS = 0.5
const STOP_SECONDS = 10

/** Of the container, whose environment has them: where its remote control listens. */
const RC_ADDRESS = "RCLONE_RC_ADDR"
const RC_PASSWORD = "RCLONE_RC_PASS"
const RC_USER = "agent"

export interface VolumeDriverOptions {
  docker: Docker
  launch: string
  /** On the driver's container, as on all of this Launch's. */
  labels: Record<string, string>
  dataDir: string
  /** An image with `rclone`, `fusermount3` and `sh`; without it no volume can be mounted. */
  image: string | undefined
  logger: Logger
}

/**
 * The buckets of a run as volumes of the engine: rclone's Docker volume driver, in a container of its own that outlives
 * the agent, so that the mounts do too. Written files go to the VM's disk first and are uploaded when they are closed.
 */
export class VolumeDriver {
  readonly #options: VolumeDriverOptions
  readonly #folder: string
  readonly #name: string

  constructor(options: VolumeDriverOptions) {
    this.#options = options
    this.#folder = join(options.dataDir, "volumes")
    this.#name = `berth-${options.launch}`
  }

  /** What a container's volumes are, in the engine's words. */
  mountsOf({ run }: RunOrder): Docker.MountConfig {
    return Object.entries(run.volumes ?? {}).map(([name, { mountPath }]) => ({
      Type: "volume",
      Source: this.#volumeName(name),
      Target: mountPath,
    }))
  }

  /** Mounts the run's buckets. Rejects with RunError. */
  async mount({ run, buckets = {} }: RunOrder, signal: AbortSignal): Promise<void> {
    const names = Object.keys(run.volumes ?? {})
    if (names.length === 0) return
    const lacking = names.filter((name) => buckets[name] === undefined)
    if (lacking.length > 0) throw mountFailed(`nothing opens the buckets of volumes ${lacking.join(", ")}`)
    if (this.#options.image === undefined) {
      throw mountFailed("the agent was given no image with rclone in it, as volumes need it: name it by --agent-image")
    }
    try {
      await this.renew(buckets)
      replaceFile(this.#namesPath, JSON.stringify(Object.fromEntries(names.map((name) => [name, buckets[name]?.path]))))
      await this.#open(signal)
    } catch (error) {
      throw mountFailed(error instanceof Error ? error.message : String(error), error)
    }
  }

  /** The buckets are opened with this from now on, without any interruption. */
  async renew(buckets: Buckets): Promise<void> {
    for (const part of ["config", "cache", "mnt"]) mkdirSync(join(this.#folder, part), { recursive: true, mode: 0o700 })
    for (const [name, text] of Object.entries(driverConfig(buckets)))
      replaceFile(join(this.#folder, "config", name), text)
  }

  /** Resolves when all that was written is in the buckets. Rejects with RunError when a bucket refuses it. */
  async flush(signal: AbortSignal): Promise<void> {
    if (Object.keys(this.#mounted()).length === 0) return
    // After a reboot: it uploads what it has not yet.
    await this.#open(signal)
    let since = await this.#uploads()
    for (let now = since; now.pending > 0; now = await this.#uploads()) {
      if (now.pending < since.pending) since = now
      else if (isRefused(since, now)) throw await this.#flushFailed(now, "the bucket refuses them")
      if (signal.aborted) throw await this.#flushFailed(now, "there was no more time")
      await waitUnlessAborted(systemClock, POLL_SECONDS, signal)
    }
  }

  /** Unmounts everything and removes what is left; what is not uploaded is lost. What can't go keeps nothing else. */
  async clear(): Promise<void> {
    const container = this.#options.docker.getContainer(this.#driverName)
    for (const name of Object.keys(this.#mounted())) await this.#unmount(this.#volumeName(name))
    const isOurs = (await ifThere(container.inspect())) !== undefined
    await ifThere(container.stop({ t: STOP_SECONDS }))
    await ifThere(container.remove({ force: true, v: true }))
    // Who had no driver leaves the socket alone: it is that of another agent on the same host.
    if (isOurs) rmSync(this.#socket, { force: true })
    rmSync(this.#folder, { recursive: true, force: true })
  }

  async #unmount(volume: string): Promise<void> {
    try {
      await this.#call("VolumeDriver.Unmount", { Name: volume, ID: HOLDER })
    } catch (err) {
      this.#options.logger.warn({ err, volume }, "volume not unmounted")
    }
    try {
      await ifThere(this.#options.docker.getVolume(volume).remove({ force: true }))
    } catch (err) {
      this.#options.logger.warn({ err, volume }, "volume not removed")
    }
  }

  get #driverName(): string {
    return `${this.#name}-volumes`
  }

  get #socket(): string {
    return join(PLUGINS_DIR, `${DRIVER}.sock`)
  }

  get #namesPath(): string {
    return join(this.#folder, "volumes.json")
  }

  #volumeName(name: string): string {
    return `${this.#name}-${name}`
  }

  /** The volumes of this run, with their paths in the bucket. */
  #mounted(): Record<string, string> {
    return JSON.parse(readIfThere(this.#namesPath) ?? "{}") as Record<string, string>
  }

  /** Starts the driver where it doesn't run, and holds all volumes mounted. */
  async #open(signal: AbortSignal): Promise<void> {
    const { docker } = this.#options
    const container = docker.getContainer(this.#driverName)
    const found = await ifThere(container.inspect())
    if (found === undefined) await (await this.#create()).start()
    else if (!found.State.Running) await container.start()
    await this.#whenListening(signal)
    for (const [name, path] of Object.entries(this.#mounted())) {
      const Name = this.#volumeName(name)
      await docker.createVolume({ Name, Driver: DRIVER, DriverOpts: { remote: `${name}:${path}` } })
      await this.#hold(Name)
      await this.#list(name, path)
    }
  }

  /** An earlier agent may hold it already: it is the same to us. */
  async #hold(Name: string): Promise<void> {
    try {
      await this.#call("VolumeDriver.Mount", { Name, ID: HOLDER })
    } catch (error) {
      if (!/already mounted by this id/.test(String(error))) throw error
    }
  }

  async #create(): Promise<Docker.Container> {
    const { docker, labels, image } = this.#options
    const mounts = join(this.#folder, "mnt")
    return await docker.createContainer({
      name: this.#driverName,
      ...(image !== undefined && { Image: image }),
      Labels: labels,
      // It mounts; the image's own user is nobody.
      User: "0",
      Entrypoint: ["rclone", "serve", "docker", ...FLAGS],
      Cmd: ["--socket-addr", this.#socket, "--base-dir", mounts],
      Env: [`${RC_ADDRESS}=127.0.0.1:${await freePort()}`, `${RC_PASSWORD}=${randomBytes(24).toString("base64url")}`],
      HostConfig: {
        // The remote control is for the agent alone: it listens where no container of another network gets.
        NetworkMode: "host",
        CapAdd: ["SYS_ADMIN"],
        SecurityOpt: ["apparmor=unconfined"],
        Devices: [{ PathOnHost: "/dev/fuse", PathInContainer: "/dev/fuse", CgroupPermissions: "rwm" }],
        Binds: [
          `${PLUGINS_DIR}:${PLUGINS_DIR}`,
          `${join(this.#folder, "config")}:${CONFIG_DIR}:ro`,
          `${join(this.#folder, "cache")}:/cache`,
          // What is mounted in there appears on the VM, for the engine to give it to other containers.
          `${mounts}:${mounts}:rshared`,
        ],
        LogConfig: { Type: "local", Config: { "max-size": "10m", "max-file": "2" } },
      },
    })
  }

  async #whenListening(signal: AbortSignal): Promise<void> {
    const deadline = systemClock.monotonic() + START_SECONDS
    for (;;) {
      try {
        await this.#call("Plugin.Activate", {})
        await this.#control("core/version", {})
        return
      } catch (error) {
        if (signal.aborted || systemClock.monotonic() > deadline) {
          throw new Error(`rclone does not answer: ${await this.#lastWords()}`, { cause: error })
        }
        await waitUnlessAborted(systemClock, POLL_SECONDS / 2, signal)
      }
    }
  }

  /** What rclone complained of, where it has ended. */
  async #lastWords(): Promise<string> {
    const container = this.#options.docker.getContainer(this.#driverName)
    const output = await ifThere(container.logs({ stdout: true, stderr: true, tail: 3 }))
    return output === undefined ? "its container is gone" : printable(output)
  }

  /** Fails where the bucket can't be read. A folder in it may well not be there yet. */
  async #list(name: string, path: string): Promise<void> {
    const [bucket = ""] = path.split("/")
    try {
      await this.#control("operations/list", {
        fs: `${name}:${path}`,
        remote: "",
        opt: { noModTime: true, noMimeType: true },
      })
    } catch (error) {
      if (path !== bucket && /directory not found/.test(String(error))) return
      throw new Error(`volume ${name}: ${error instanceof Error ? error.message : String(error)}`, { cause: error })
    }
  }

  async #uploads(): Promise<UploadState> {
    const { errors = 0 } = (await this.#control("core/stats", {})) as { errors?: number }
    return { pending: dirtyFiles(join(this.#folder, "cache", "vfsMeta")).length, failures: errors }
  }

  async #flushFailed({ pending }: UploadState, why: string): Promise<RunError> {
    const { lastError } = (await this.#control("core/stats", {})) as { lastError?: string }
    const files = pending === 1 ? "1 file is" : `${pending} files are`
    const cause = lastError === undefined ? "" : ` (${printable(Buffer.from(lastError))})`
    return new RunError("VolumeFlushFailed", `${files} not in the bucket, ${why}${cause}`)
  }

  /** A call of the volume driver, as the engine makes it. */
  async #call(method: string, body: object): Promise<void> {
    const client = new Client("http://driver", { socketPath: this.#socket })
    try {
      const answer = await client.request({ path: `/${method}`, method: "POST", body: JSON.stringify(body) })
      const { Err } = (await answer.body.json()) as { Err?: string }
      if (Err !== undefined && Err !== "") throw new Error(Err)
    } finally {
      await client.close()
    }
  }

  /** A call of rclone's remote control (https://rclone.org/rc/). */
  async #control(method: string, body: object): Promise<unknown> {
    const { Config } = await this.#options.docker.getContainer(this.#driverName).inspect()
    const variable = (name: string) =>
      Config.Env.find((line) => line.startsWith(`${name}=`))?.slice(name.length + 1) ?? ""
    const authorization = `Basic ${Buffer.from(`${RC_USER}:${variable(RC_PASSWORD)}`).toString("base64")}`
    const headers = { "content-type": "application/json", authorization }
    const url = `http://${variable(RC_ADDRESS)}/${method}`
    const answer = await request(url, { method: "POST", headers, body: JSON.stringify(body) })
    const value = (await answer.body.json()) as { error?: string }
    if (answer.statusCode !== 200) throw new Error(value.error ?? `rclone answers ${answer.statusCode} to ${method}`)
    return value
  }
}

const FLAGS = [
  ...["--config", `${CONFIG_DIR}/rclone.conf`, "--cache-dir", "/cache"],
  // A file's upload begins soon after it is closed, and is tried again as soon.
  ...["--vfs-cache-mode", "writes", "--vfs-write-back", "1s"],
  // Containers run as any user.
  ...["--allow-other", "--umask", "0", "--dir-perms", "0777", "--file-perms", "0666"],
  ...["--rc", "--rc-user", RC_USER],
]

/** Files whose last content is on this disk only, by what rclone itself keeps of each. */
function dirtyFiles(folder: string): string[] {
  return entriesOf(folder).filter((path) => {
    const text = readIfThere(path)
    // It is written in place: half of it is as good as changed.
    if (text === undefined) return false
    try {
      return (JSON.parse(text) as { Dirty?: boolean }).Dirty === true
    } catch {
      return true
    }
  })
}

function entriesOf(folder: string): string[] {
  try {
    const entries = readdirSync(folder, { recursive: true, withFileTypes: true })
    return entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name))
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return []
    throw error
  }
}

function mountFailed(why: string, cause?: unknown): RunError {
  return new RunError("VolumeMountFailed", `volumes can't be mounted: ${why}`, cause)
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1")
  await new Promise((resolve) => server.once("listening", resolve))
  const address = server.address()
  await new Promise((resolve) => server.close(resolve))
  return typeof address === "object" && address !== null ? address.port : 0
}

/** Undefined where the engine knows of no such thing (404) or has nothing to do (304). */
async function ifThere<Result>(result: Promise<Result>): Promise<Result | undefined> {
  try {
    return await result
  } catch (error) {
    const status = (error as { statusCode?: number }).statusCode
    if (status === 404 || status === 304) return undefined
    throw error
  }
}

function printable(output: Uint8Array): string {
  return Buffer.from(output)
    .toString()
    .replace(/[^\x20-\x7e]+/g, " ")
    .trim()
}
