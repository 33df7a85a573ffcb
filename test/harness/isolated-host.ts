import { execFileSync } from "node:child_process"
import { randomBytes } from "node:crypto"
import { existsSync, readdirSync, rmdirSync } from "node:fs"
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import Docker from "dockerode"
import { engineAnswers } from "../../src/agent/runtimes/detect.ts"
import { missingForContainers } from "../agent/images.ts"
import { Cable } from "./cable.ts"
import { until } from "./eventually.ts"
import type { ForwardConfig } from "./processes/forward.ts"
import { Program } from "./program-process.ts"

const CGROUPS = "/sys/fs/cgroup"
const MAIN = join(import.meta.dirname, "..", "..", "src", "main.ts")
const FORWARD = join(import.meta.dirname, "processes", "forward.ts")

/** Time for the start of an engine, seconds. */
const ENGINE_SECONDS = 120

/** Namespaces of a host: those of its first process. All of it ends with that process. */
const NAMESPACES = ["--net", "--mount", "--uts", "--pid"]

/** Script of the first process. It has a network without a way out, and the default places of an engine to itself. */
const BOOT = `
set -eu
mount -t tmpfs tmpfs /run
mkdir -p /run/docker/plugins
# Mounts below it appear in the engine, as on a machine whose systemd has mounted its disk.
mount --bind "$1" "$1"
mount --make-shared "$1"
ip link set lo up
# Each boot has another id.
cat /proc/sys/kernel/random/uuid >"$1/boot_id"
mount --bind "$1/boot_id" /proc/sys/kernel/random/boot_id
dockerd --data-root "$1/engine" --host "unix://$1/docker.sock" --cgroup-parent "/$2" >>"$1/dockerd.log" 2>&1 </dev/null &
echo 'READY {}'
read -r _ || true
`

const FIND_PROGRAMS = "for program in dockerd nsenter ip; do command -v $program || exit 1; done"

/** Returns the reason why hosts of their own can't run here, or undefined. */
export async function missingForHosts(): Promise<string | undefined> {
  const missing = await missingForContainers()
  if (missing !== undefined) return missing
  try {
    execFileSync("unshare", [...NAMESPACES, "--fork", "sh", "-c", FIND_PROGRAMS], { stdio: "ignore" })
    return undefined
  } catch {
    return "only root may make namespaces, for which unshare, nsenter, ip and dockerd must be there"
  }
}

/**
 * Host of its own on this machine: namespaces with an engine of their own, whose only way out is a cable to some ports of
 * this machine's 127.0.0.1. It can lose its power, and boot again with its disk.
 */
export class IsolatedHost {
  /** Its disk. */
  readonly folder: string
  readonly docker: Docker
  readonly cable: Cable
  readonly #cgroup = `berth-host-${randomBytes(4).toString("hex")}`
  readonly #ports: readonly number[]
  #first: Program | undefined
  #agent: Program | undefined

  /** Boots one. @param images names of images of this machine's engine, which its engine gets */
  static async create({ ports, images }: { ports: readonly number[]; images: readonly string[] }) {
    const folder = await mkdtemp(join(tmpdir(), "berth-host-"))
    const host = new IsolatedHost(folder, ports, await Cable.lay(folder, ports))
    try {
      await host.boot()
      for (const image of images) await host.#load(image)
      return host
    } catch (error) {
      await host.remove()
      throw error
    }
  }

  private constructor(folder: string, ports: readonly number[], cable: Cable) {
    this.folder = folder
    this.#ports = ports
    this.cable = cable
    this.docker = new Docker({ socketPath: this.dockerSocket })
  }

  get dockerSocket(): string {
    return join(this.folder, "docker.sock")
  }

  /** Folder of its agent. */
  get dataDir(): string {
    return join(this.folder, "machine")
  }

  /** The agent that was started last. @throws Error if there was none */
  get agent(): Program {
    if (this.#agent === undefined) throw new Error("the host has had no agent")
    return this.#agent
  }

  /** Switches it on. Resolves when its engine answers, without an agent. */
  async boot(): Promise<void> {
    const script = ["sh", "-c", BOOT, "sh", this.folder, this.#cgroup]
    const options = [...NAMESPACES, "--fork", "--mount-proc", "--kill-child"]
    this.#first = new Program("host", [...options, ...script], process.env, "unshare")
    await this.#first.ready()
    const config: ForwardConfig = { folder: this.folder, ports: this.#ports }
    await this.#start("forwarder", [FORWARD, JSON.stringify(config)]).ready()
    await until("the host's engine answers", () => engineAnswers(this.dockerSocket), ENGINE_SECONDS)
  }

  /** Starts its agent. It needs a token only to join. */
  startAgent({ gatewayUrl, token }: { gatewayUrl: string; token?: string }): Program {
    const own = ["--runtime", "docker", "--docker-socket", this.dockerSocket, "--data-dir", this.dataDir]
    const joining = token === undefined ? [] : ["--token", token]
    this.#agent = this.#start("host's agent", [MAIN, "host", "--gateway", gatewayUrl, ...own, ...joining])
    return this.#agent
  }

  /** Kills its agent as `kill -9` does. */
  async killAgent(): Promise<void> {
    await killChildOf(this.agent)
  }

  /** Cuts its power: every process ends at once. Its disk stays. */
  async cutPower(): Promise<void> {
    if (this.#first?.running === true) await killChildOf(this.#first)
    await this.#agent?.ended
  }

  async remove(): Promise<void> {
    await this.cutPower()
    await this.cable.remove()
    for (const controller of ["", ...(await readdir(CGROUPS))]) removeGroup(join(CGROUPS, controller, this.#cgroup))
    await rm(this.folder, { recursive: true, force: true, maxRetries: 3 })
  }

  /** Starts a program of Node.js in its namespaces. */
  #start(name: string, argv: readonly string[]): Program {
    const of = `/proc/${this.#first?.pid}/ns`
    const files = { net: "net", mount: "mnt", uts: "uts", pid: "pid_for_children" }
    const entering = Object.entries(files).map(([namespace, file]) => `--${namespace}=${of}/${file}`)
    // A host knows nothing of this machine's environment.
    const env = { PATH: process.env["PATH"] }
    return new Program(name, [...entering, process.execPath, ...argv], env, "nsenter")
  }

  async #load(image: string): Promise<void> {
    const archive = await new Docker().getImage(image).get()
    const progress = await this.docker.loadImage(archive)
    await new Promise<void>((done, fail) =>
      this.docker.modem.followProgress(progress, (error) => (error === null ? done() : fail(error))),
    )
  }
}

/** Kills the process that `unshare` or `nsenter` has started, and waits until both have ended. */
async function killChildOf(program: Program): Promise<void> {
  const [child] = (await readFile(`/proc/${program.pid}/task/${program.pid}/children`, "utf8")).trim().split(" ")
  if (child !== undefined && child !== "") process.kill(Number(child), "SIGKILL")
  await program.ended
}

/** Removes an empty control group, and those in it. */
function removeGroup(path: string): void {
  if (!existsSync(path)) return
  for (const entry of readdirSync(path, { withFileTypes: true })) {
    if (entry.isDirectory()) removeGroup(join(path, entry.name))
  }
  rmdirSync(path)
}
