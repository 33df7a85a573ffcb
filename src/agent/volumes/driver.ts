import { randomBytes } from "node:crypto"
import { mkdirSync, readdirSync, rmSync, statfsSync } from "node:fs"
import { createServer } from "node:net"
import { join } from "node:path"
import type Docker from "dockerode"
import { Client, request } from "undici"
import { systemClock } from "../../core/apis/clock.ts"
import type { Volume } from "../../core/apis/job.ts"
import type { Logger } from "../../core/apis/logger.ts"
import { type ProxySettings, proxyOfProcess } from "../../core/apis/proxy.ts"
import type { Buckets, RunOrder } from "../../core/protocol/protocol.ts"
import { readIfThere, replaceFile } from "../disk.ts"
import { RunError } from "../runtimes/runtime.ts"
import { waitUnlessAborted } from "../timers.ts"
import { isTransientFault } from "./faults.ts"
import { CONFIG_DIR, driverConfig, isRefused, type UploadState } from "./remotes.ts"

/**
 * Folder in which the engine finds the sockets of volume drivers (https://docs.docker.com/engine/extend/plugin_api/).
 */
const PLUGINS_DIR = "/run/docker/plugins"

/**
 * Name of the driver, the same on all VMs. A VM runs one job. For every request about volumes, an engine asks every
 * driver that it has seen since its start.
 */
const DRIVER = "berth-rclone"

/** Socket at which the engine finds the driver. */
export const DRIVER_SOCKET = join(PLUGINS_DIR, `${DRIVER}.sock`)

/**
 * Id under which the agent holds each volume mounted. rclone forgets a mount's uploads when its last user has ended.
 */
const HOLDER = "berth-agent"

const START_SECONDS = 60
const POLL_SECONDS = 0.5
const STOP_SECONDS = 10

/** Variable in the container's environment with the address of its remote control. */
const RC_ADDRESS = "RCLONE_RC_ADDR"
const RC_PASSWORD = "RCLONE_RC_PASS"
const RC_USER = "agent"

/** Volume of a run, as on the agent's disk. */
interface Mounted {
  /** Bucket and folder in it. */
  path: string
  isCheckpoint: boolean
  isReadOnly: boolean
  /** Options of this volume's mount. They stay, since an existing volume of the engine can't get others. */
  options: Record<string, string>
}

export interface VolumeDriverOptions {
  docker: Docker
  launch: string
  /** Labels of the driver's container, as of all containers of this Launch. */
  labels: Record<string, string>
  dataDir: string
  /** PEM of authorities to trust in addition to the public ones. */
  ca?: string | undefined
  /** Image with `rclone`, `fusermount3` and `sh`. Without it no volume can be mounted. */
  image: string | undefined
  logger: Logger
}

/**
 * Provides the buckets of a run as volumes of the engine, by rclone's Docker volume driver. The driver's container
 * outlives the agent, so that the mounts do too. Written files are first on the VM's disk, and are uploaded after they
 * are closed.
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

  /** Returns a container's volumes in the engine's form. */
  mountsOf({ run }: RunOrder): Docker.MountConfig {
    return Object.entries(run.volumes ?? {}).map(([name, { mountPath, readOnly = false }]) => ({
      Type: "volume",
      Source: this.#volumeName(name),
      Target: mountPath,
      ReadOnly: readOnly,
    }))
  }

  /**
   * Mounts the run's buckets, if it has any. Rejects with RunError, or with errors of `pull`.
   * @param pull makes sure that the engine has the driver's image
   */
  async mount(
    { run, buckets = {} }: RunOrder,
    signal: AbortSignal,
    pull: (image: string) => Promise<void>,
  ): Promise<void> {
    const { volumes = {} } = run
    const names = Object.keys(volumes)
    if (names.length === 0) return
    const lacking = names.filter((name) => buckets[name] === undefined)
    if (lacking.length > 0) throw mountFailed(`the order has no access to the buckets of volumes ${lacking.join(", ")}`)
    if (this.#options.image === undefined) {
      throw mountFailed(
        "volumes need an image with rclone, and the Launch names none: set --volumes-image of the operator",
      )
    }
    await pull(this.#options.image)
    try {
      await this.renew(buckets)
      const caches = Object.values(volumes).filter(({ cache }) => cache === "reads").length
      const cacheBytes = Math.floor(freeBytes(this.#folder) / 2 / caches)
      const mounted = Object.entries(volumes).map(([name, volume]): [string, Mounted] => {
        const { checkpoint: isCheckpoint = false, readOnly: isReadOnly = false } = volume
        const options = mountOptions(volume, cacheBytes)
        return [name, { path: buckets[name]?.path ?? "", isCheckpoint, isReadOnly, options }]
      })
      replaceFile(this.#namesPath, JSON.stringify(Object.fromEntries(mounted)))
      await this.#open(signal)
    } catch (error) {
      throw mountFailed(error instanceof Error ? error.message : String(error), error)
    }
  }

  /** Replaces the access to the buckets without an interruption. */
  async renew(buckets: Buckets): Promise<void> {
    for (const part of ["config", "cache", "mnt"]) mkdirSync(join(this.#folder, part), { recursive: true, mode: 0o700 })
    for (const [name, text] of Object.entries(driverConfig(buckets)))
      replaceFile(join(this.#folder, "config", name), text)
    if (this.#options.ca !== undefined) replaceFile(join(this.#folder, "config", "ca.pem"), this.#options.ca)
  }

  /** Resolves when all written files are in the buckets. Rejects with RunError if a bucket rejects a file. */
  async flush(signal: AbortSignal): Promise<void> {
    if (Object.keys(this.#mounted()).length === 0) return
    // After a reboot the driver uploads the remaining files.
    await this.#open(signal)
    // The container has ended, so no other file changes now. A cache of reads may have very many that never did.
    let files = this.#written().filter(isDirty)
    let since = await this.#uploads(files)
    for (let now = since; now.pending > 0; now = await this.#uploads(files)) {
      if (now.pending < since.pending) since = now
      else if (isRefused(since, now)) throw await this.#flushFailed(now, "the bucket rejects them")
      if (signal.aborted) throw await this.#flushFailed(now, "the time for uploads has ended")
      await waitUnlessAborted(systemClock, POLL_SECONDS, signal)
      files = files.filter(isDirty)
    }
  }

  /** Deletes the objects of the volumes for checkpoints. */
  async deleteCheckpoints(): Promise<void> {
    for (const [name, { path, isCheckpoint }] of Object.entries(this.#mounted())) {
      if (isCheckpoint) await this.#control("operations/delete", { fs: `${name}:${path}` })
    }
  }

  /**
   * Unmounts and removes everything. Files that are not uploaded are lost. Rejects at the end if a volume could not be
   * removed: later the engine can't be asked, because without the driver each answer about its volumes takes 15 s.
   */
  async clear(): Promise<void> {
    const container = this.#options.docker.getContainer(this.#driverName)
    const found = await ifThere(container.inspect())
    // A driver that has ended, as by a power failure, serves no mount, and the engine would wait for it in vain.
    const volumes = found?.State.Running === true ? Object.keys(this.#mounted()) : []
    const left: string[] = []
    for (const name of volumes) {
      if (!(await this.#unmount(this.#volumeName(name)))) left.push(name)
    }
    await ifThere(container.stop({ t: STOP_SECONDS }))
    await ifThere(container.remove({ force: true, v: true }))
    // Without a driver of ours, the socket belongs to another agent on the same host.
    if (found !== undefined) rmSync(DRIVER_SOCKET, { force: true })
    rmSync(this.#folder, { recursive: true, force: true })
    if (left.length > 0) throw new Error(`volumes ${left.join(", ")} could not be unmounted and removed`)
  }

  /** Returns false if the volume could not be unmounted, or removed. */
  async #unmount(volume: string): Promise<boolean> {
    let isGone = true
    try {
      await this.#call("VolumeDriver.Unmount", { Name: volume, ID: HOLDER })
    } catch (err) {
      isGone = false
      this.#options.logger.warn({ err, volume }, "failed to unmount a volume")
    }
    try {
      await ifThere(this.#options.docker.getVolume(volume).remove({ force: true }))
    } catch (err) {
      isGone = false
      this.#options.logger.warn({ err, volume }, "failed to remove a volume")
    }
    return isGone
  }

  get #driverName(): string {
    return `${this.#name}-volumes`
  }

  get #namesPath(): string {
    return join(this.#folder, "volumes.json")
  }

  #volumeName(name: string): string {
    return `${this.#name}-${name}`
  }

  /** Returns the volumes of this run. */
  #mounted(): Record<string, Mounted> {
    return JSON.parse(readIfThere(this.#namesPath) ?? "{}") as Record<string, Mounted>
  }

  /** Starts the driver if it doesn't run, and holds all volumes mounted. */
  async #open(signal: AbortSignal): Promise<void> {
    const { docker } = this.#options
    const container = docker.getContainer(this.#driverName)
    const found = await ifThere(container.inspect())
    if (found === undefined) await (await this.#create()).start()
    else if (!found.State.Running) await container.start()
    await this.#whenListening(signal)
    for (const [name, { path, options }] of Object.entries(this.#mounted())) {
      const Name = this.#volumeName(name)
      await docker.createVolume({ Name, Driver: DRIVER, DriverOpts: { remote: `${name}:${path}`, ...options } })
      await this.#hold(Name)
      await this.#list(name, path)
    }
  }

  /** Holds a volume mounted. If an earlier agent holds it already, that is enough. */
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
      // It mounts file systems, and the image's own user has no rights for that.
      User: "0",
      Entrypoint: ["rclone", "serve", "docker", ...FLAGS],
      Cmd: ["--socket-addr", DRIVER_SOCKET, "--base-dir", mounts],
      Env: [
        `${RC_ADDRESS}=127.0.0.1:${await freePort()}`,
        `${RC_PASSWORD}=${randomBytes(24).toString("base64url")}`,
        ...proxyEnvironment(proxyOfProcess(), this.#options.ca === undefined ? undefined : CONFIG_DIR),
      ],
      HostConfig: {
        // The remote control is for the agent only. Its address can't be reached from containers of other networks.
        NetworkMode: "host",
        CapAdd: ["SYS_ADMIN"],
        SecurityOpt: ["apparmor=unconfined"],
        Devices: [{ PathOnHost: "/dev/fuse", PathInContainer: "/dev/fuse", CgroupPermissions: "rwm" }],
        Binds: [
          `${PLUGINS_DIR}:${PLUGINS_DIR}`,
          `${join(this.#folder, "config")}:${CONFIG_DIR}:ro`,
          `${join(this.#folder, "cache")}:/cache`,
          // Mounts in this folder must appear on the VM, so that the engine can give them to other containers.
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
          throw new Error(`rclone does not answer: ${await this.#lastOutput()}`, { cause: error })
        }
        await waitUnlessAborted(systemClock, POLL_SECONDS / 2, signal)
      }
    }
  }

  /** Returns the last lines of rclone's output, which have its error if it has ended. */
  async #lastOutput(): Promise<string> {
    const container = this.#options.docker.getContainer(this.#driverName)
    const output = await ifThere(container.logs({ stdout: true, stderr: true, tail: 3 }))
    return output === undefined ? "its container was removed" : printable(output)
  }

  /** Rejects if the bucket can't be read. A folder in it need not exist yet. */
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
      const why = (error instanceof Error ? error.message : String(error)).replace(/\s+/g, " ")
      throw new Error(`volume ${name}: ${why}; its connection must be allowed to list and read ${bucket}`, {
        cause: error,
      })
    }
  }

  async #uploads(files: readonly string[]): Promise<UploadState> {
    const { errors = 0 } = (await this.#control("core/stats", {})) as { errors?: number }
    return { pending: files.length, failures: errors }
  }

  /** Returns rclone's own metadata of each file on this disk, but for those of read-only volumes. */
  #written(): string[] {
    const folder = join(this.#folder, "cache", "vfsMeta")
    const readOnly = Object.entries(this.#mounted()).flatMap(([name, { isReadOnly }]) => (isReadOnly ? name : []))
    return listEntries(folder, readOnly)
  }

  async #flushFailed({ pending }: UploadState, why: string): Promise<RunError> {
    const { lastError } = (await this.#control("core/stats", {})) as { lastError?: string }
    const files = pending === 1 ? "1 file is" : `${pending} files are`
    const cause = lastError === undefined ? "" : ` (${printable(Buffer.from(lastError))})`
    return new RunError("VolumeFlushFailed", `${files} not in the bucket, ${why}${cause}`)
  }

  /** Calls the volume driver, as the engine does. */
  async #call(method: string, body: object): Promise<void> {
    const client = new Client("http://driver", { socketPath: DRIVER_SOCKET })
    try {
      const answer = await client.request({ path: `/${method}`, method: "POST", body: JSON.stringify(body) })
      const { Err } = (await answer.body.json()) as { Err?: string }
      if (Err !== undefined && Err !== "") throw new Error(Err)
    } finally {
      await client.close()
    }
  }

  /** Calls rclone's remote control (https://rclone.org/rc/). */
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

/** Returns the variables with which rclone uses a proxy and trusts more authorities, whose PEM is in the folder. */
export function proxyEnvironment(proxy: ProxySettings | undefined, trusted: string | undefined): string[] {
  const { httpProxy, httpsProxy, noProxy } = proxy ?? {}
  const trust = trusted === undefined ? undefined : `/etc/ssl/certs:${trusted}`
  const all = { HTTP_PROXY: httpProxy, HTTPS_PROXY: httpsProxy, NO_PROXY: noProxy, SSL_CERT_DIR: trust }
  return Object.entries(all).flatMap(([name, value]) => (value === undefined ? [] : [`${name}=${value}`]))
}

/** Options of rclone for all volumes. docs/decisions has what was measured. */
const FLAGS = [
  ...["--config", `${CONFIG_DIR}/rclone.conf`, "--cache-dir", "/cache"],
  // A file's upload starts soon after it is closed, and retries start as soon.
  ...["--vfs-cache-mode", "writes", "--vfs-write-back", "1s"],
  // S3 lists no other times. To ask for a file's own time is a second request for each file.
  "--use-server-modtime",
  // Maximum time until others' changes of a folder are seen.
  ...["--dir-cache-time", "1m"],
  // A connection to a bucket is slower than a VM's network. Each open file has these chunks in memory.
  ...["--vfs-read-chunk-streams", "4", "--vfs-read-chunk-size", "8M"],
  // Maximum number of files that are uploaded at the same time.
  ...["--transfers", "8"],
  // Containers may run as any user, and programs of a bucket.
  ...["--allow-other", "--umask", "0", "--dir-perms", "0777", "--file-perms", "0777"],
  ...["--rc", "--rc-user", RC_USER],
]

/** Returns a volume's own options of rclone, by their names. Pure. @param cacheBytes maximum size of its cache of reads */
export function mountOptions({ readOnly, cache }: Volume, cacheBytes: number): Record<string, string> {
  return {
    ...(readOnly === true && { read_only: "true" }),
    ...(cache === "reads" && {
      vfs_cache_mode: "full",
      vfs_cache_max_size: `${cacheBytes}B`,
      // A file is kept until the space is needed. The cache grows beyond its size between two looks.
      vfs_cache_max_age: "720h",
      vfs_cache_poll_interval: "10s",
    }),
  }
}

/** Returns the free bytes of the folder's disk. */
function freeBytes(folder: string): number {
  const { bavail, bsize } = statfsSync(folder)
  return bavail * bsize
}

/** Returns true if the file's last content is on this disk only. @param path of rclone's metadata of the file */
function isDirty(path: string): boolean {
  const text = readIfThere(path)
  // rclone rewrites the metadata in place. An incomplete text means that the file has changed.
  if (text === undefined) return false
  try {
    return (JSON.parse(text) as { Dirty?: boolean }).Dirty === true
  } catch {
    return true
  }
}

/** Returns the paths of all files in a folder, but for those in some of its folders. */
function listEntries(folder: string, without: readonly string[]): string[] {
  try {
    return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
      const path = join(folder, entry.name)
      if (!entry.isDirectory()) return [path]
      return without.includes(entry.name) ? [] : listEntries(path, [])
    })
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return []
    throw error
  }
}

function mountFailed(why: string, cause?: unknown): RunError {
  return new RunError("VolumeMountFailed", `volumes can't be mounted: ${why}`, cause, isTransientFault(why))
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1")
  await new Promise((resolve) => server.once("listening", resolve))
  const address = server.address()
  await new Promise((resolve) => server.close(resolve))
  return typeof address === "object" && address !== null ? address.port : 0
}

/** Returns undefined if the engine does not have the object (404) or has nothing to do (304). */
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
