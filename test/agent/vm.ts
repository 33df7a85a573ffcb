import { execFile, execFileSync, spawn, spawnSync } from "node:child_process"
import { createHash, randomBytes } from "node:crypto"
import { createWriteStream, existsSync, lstatSync } from "node:fs"
import { mkdtemp, readdir, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { basename, join } from "node:path"
import { buffer, text } from "node:stream/consumers"
import { pipeline } from "node:stream/promises"
import { promisify } from "node:util"
import type Docker from "dockerode"
import { extract, pack } from "tar-stream"
import { until } from "../harness/eventually.ts"
import { buildBerthImage, missingForImage } from "../image/berth-image.ts"
import { bridgeAddress, buildImage, docker, followProgress } from "./images.ts"

/**
 * VMs for tests: containers that boot this machine's own Debian, with its systemd, its cloud-init and a Docker engine
 * each. They get user data like from a cloud.
 */

/** Packages of a VM. Their dependencies are added. */
const PACKAGES = [
  "systemd-sysv",
  "dbus",
  "cloud-init",
  "docker.io",
  "iptables",
  "iproute2",
  "procps",
  "apt",
  "diffutils",
  "busybox-static",
  "curl",
]

/** Packages that every Debian has, and that no package depends on for this reason. */
const ESSENTIAL = [
  "base-files",
  "bash",
  "coreutils",
  "dash",
  "findutils",
  "grep",
  "gzip",
  "hostname",
  "libc-bin",
].concat(["login", "mount", "sed", "tar", "util-linux"])

/** Files of Debian that a VM doesn't need to run. */
const LEFT_OUT = /^\/(\.$|etc\/init\.d|usr\/share\/(doc|man|locale|info|lintian|bug)(\/|$))/

/** Files that the packages' scripts create, so no package lists them. */
const FURTHER = ["/etc/passwd", "/etc/group", "/etc/ld.so.conf", "/etc/ld.so.cache", "/etc/nsswitch.conf"]
const ALTERNATIVES = [
  "/usr/sbin/iptables",
  "/usr/sbin/ip6tables",
  "/etc/alternatives/iptables",
  "/etc/alternatives/ip6tables",
]

/** Capabilities that root of a VM needs. Root of this machine may lack some, so `--privileged` alone is not enough. */
const CAPABILITIES = [
  "SYS_ADMIN",
  "NET_ADMIN",
  "SYS_PTRACE",
  "SYS_BOOT",
  "DAC_READ_SEARCH",
  "IPC_LOCK",
  "SYS_NICE",
  "SYSLOG",
]

const CLOUD_CFG =
  "datasource_list: [NoCloud]\nnetwork: {config: disabled}\nlocale: false\nssh_deletekeys: false\nssh_genkeytypes: []\ngrub_dpkg: {enabled: false}\n"
/** Makes paths writable that systemd and the inner engine need. The engine does so only with all privileges. */
const BOOT =
  "for d in /sys/fs/cgroup /sys/fs/cgroup/*/; do mount -o remount,bind,rw $d; done 2> /dev/null; exec /lib/systemd/systemd"

const LOAD_IMAGES = `[Unit]
Requires=docker.service
After=docker.service
Before=berth-agent.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'for image in /images/*.tar; do docker load -i $image; done'
[Install]
WantedBy=multi-user.target
`

/** Hides the engine; `PUT_ENGINE_BACK` restores it. */
const WITHOUT_ENGINE = [
  "RUN mkdir -p /opt/engine/bin /opt/engine/units",
  "RUN mv /usr/bin/docker /usr/sbin/dockerd /opt/engine/bin/",
  "RUN systemctl disable docker docker.socket load-images && mv /usr/lib/systemd/system/docker.* /opt/engine/units/",
]

/** Lines of a script that stand in for apt on a VM that was booted without an engine. */
export const PUT_ENGINE_BACK = `mv /opt/engine/bin/docker /usr/bin/
mv /opt/engine/bin/dockerd /usr/sbin/
mv /opt/engine/units/* /usr/lib/systemd/system/
systemctl daemon-reload
systemctl start docker
systemctl start --no-block load-images`

/** Returns the reason why no VM can be created here, or undefined. */
export async function missingForVms(): Promise<string | undefined> {
  const noImage = await missingForImage()
  if (noImage !== undefined) return noImage
  if (!existsSync("/usr/bin/dpkg-query")) return "this machine is no Debian"
  const lacking = PACKAGES.filter((name) => !isInstalled(name))
  return lacking.length === 0 ? undefined : `Debian's packages ${lacking.join(", ")} are missing`
}

/** Path of Node.js in Berth's image. */
export const NODE = "/nodejs/bin/node"

/** Parts that all VMs of a test file share. */
export interface VmHost {
  /** Address at which VMs reach this machine. */
  address: string
  /** Image that each VM has: Berth's own, for the agent. Jobs may run its `NODE`, too. */
  agentImage: string
}

export interface Vm {
  isOn(): Promise<boolean>
  reboot(): Promise<void>
  /** Returns a file's text, or undefined if there is no such file. */
  file(path: string): Promise<string | undefined>
  /** Returns the output of a program that runs on the VM. */
  exec(command: string[]): Promise<string>
  /** Returns the text on the VM's serial console. */
  console(): Promise<string>
  /** Returns what the VM itself reads from the metadata service. */
  metadata(): Promise<string>
  cloudInitErrors(): Promise<unknown>
  remove(): Promise<void>
}

const METADATA_NETWORK = "berth-test-metadata"
const METADATA_ADDRESS = "169.254.169.254"

let folder: string | undefined
let agentImage: string | undefined
let vmImage = ""
let bareImage = ""

/** Creates everything that VMs need. The first call takes half a minute. */
export async function prepareVms(): Promise<VmHost> {
  folder = await mkdtemp(join(tmpdir(), "berth-vms-"))
  vmImage = await buildVmImage()
  bareImage = await withoutEngine(vmImage)
  agentImage = `berth-test/berth:${randomBytes(4).toString("hex")}`
  await buildBerthImage(agentImage, "agent")
  await pipeline(await docker.getImage(agentImage).get(), createWriteStream(join(folder, "berth.tar")))
  await serveMetadata(agentImage)
  return { address: await bridgeAddress(), agentImage }
}

/** Removes the VMs and what `prepareVms` created. The VMs' own image stays for the next run. */
export async function removeVms(vms: readonly Vm[]): Promise<void> {
  await Promise.all(vms.map((vm) => vm.remove()))
  await removeMetadataNetwork()
  // Keeps the parent images: another suite may be building on them.
  if (agentImage !== undefined) await docker.getImage(agentImage).remove({ force: true, noprune: true })
  const folders = (await readdir(tmpdir())).filter((name) => folder !== undefined && name.startsWith(basename(folder)))
  await Promise.all(folders.map((name) => rm(join(tmpdir(), name), { recursive: true, force: true })))
}

export interface BootOptions {
  /** False if the VM's image has no Docker engine. */
  engine?: boolean
  /** False if the VM's engine has no images, so that it pulls them. */
  images?: boolean
  /** More programs for its image, by path without the first slash. */
  programs?: Record<string, string>
  /** More files for its image, by path without the first slash. */
  files?: Record<string, string | Uint8Array>
  /** Names that it resolves to an address, as `NAME:ADDRESS`. */
  hosts?: string[]
}

/** Boots a VM with this user data. */
export async function bootVm(userData: string, options: BootOptions = {}): Promise<Vm> {
  const { engine = true, images = true, programs = {}, files = {}, hosts = [] } = options
  const container: Docker.Container = await docker.createContainer({
    Image: engine ? vmImage : bareImage,
    StopSignal: "SIGRTMIN+3",
    // Its terminal is the VM's console.
    Tty: true,
    Env: ["container=docker"],
    HostConfig: {
      CapAdd: CAPABILITIES,
      SecurityOpt: ["seccomp=unconfined", "apparmor=unconfined"],
      ...{ MaskedPaths: [], ReadonlyPaths: [] },
      ...{ CgroupnsMode: "private" },
      Devices: [{ PathOnHost: "/dev/fuse", PathInContainer: "/dev/fuse", CgroupPermissions: "rwm" }],
      ExtraHosts: hosts,
      Tmpfs: { "/run": "", "/run/lock": "", "/tmp": "exec" },
      // No volume: for one, the engine asks all drivers that it ever had, and tests leave some that no longer exist.
      Binds: [...(images ? [`${folder}:/images:ro`] : []), `${await mkdtemp(`${folder}-docker-`)}:/var/lib/docker`],
    },
  })
  const seed = pack()
  seed.entry({ name: "var/lib/cloud/seed/nocloud/user-data", mode: 0o600 }, userData)
  seed.entry({ name: "var/lib/cloud/seed/nocloud/meta-data" }, `instance-id: i-${randomBytes(8).toString("hex")}\n`)
  for (const [name, script] of Object.entries(programs)) seed.entry({ name, mode: 0o755 }, `#!/bin/sh\n${script}\n`)
  for (const [name, content] of Object.entries(files)) seed.entry({ name }, Buffer.from(content))
  seed.entry({ name: "etc/machine-id" }, `${randomBytes(16).toString("hex")}\n`)
  seed.finalize()
  await container.putArchive(await buffer(seed), { path: "/" })
  await docker.getNetwork(METADATA_NETWORK).connect({ Container: container.id })
  await container.start()
  return new ContainerVm(container)
}

class ContainerVm implements Vm {
  readonly #container: Docker.Container

  constructor(container: Docker.Container) {
    this.#container = container
  }

  async isOn(): Promise<boolean> {
    return (await this.#container.inspect()).State.Running
  }

  async reboot(): Promise<void> {
    await this.#container.restart({ t: 20 })
  }

  async file(path: string): Promise<string | undefined> {
    let archive: NodeJS.ReadableStream
    try {
      archive = await this.#container.getArchive({ path })
    } catch (error) {
      if ((error as { statusCode?: number }).statusCode === 404) return undefined
      throw error
    }
    const entries = extract()
    archive.pipe(entries)
    for await (const entry of entries) return await text(entry)
    return undefined
  }

  async console(): Promise<string> {
    return (await this.#container.logs({ stdout: true, stderr: true })).toString()
  }

  async metadata(): Promise<string> {
    const script = `import urllib.request as u; print(u.urlopen("http://${METADATA_ADDRESS}", timeout=60).read().decode())`
    return await this.exec(["python3", "-c", script])
  }

  async exec(command: string[]): Promise<string> {
    const { stdout } = await promisify(execFile)("docker", ["exec", this.#container.id, ...command])
    return stdout.trim()
  }

  async cloudInitErrors(): Promise<unknown> {
    const result = JSON.parse((await this.file("/var/lib/cloud/data/result.json")) ?? "{}") as {
      v1?: { errors: unknown }
    }
    return result.v1?.errors
  }

  async remove(): Promise<void> {
    await this.#container.remove({ force: true, v: true })
  }
}

/** Removes the network of this run, or of a run that was killed: the address can exist only once. */
async function removeMetadataNetwork(): Promise<void> {
  const network = docker.getNetwork(METADATA_NETWORK)
  const found = await network.inspect().catch(() => undefined)
  if (found === undefined) return
  const { Containers } = found as { Containers?: Record<string, unknown> }
  for (const id of Object.keys(Containers ?? {})) await docker.getContainer(id).remove({ force: true, v: true })
  await network.remove()
}

/** Starts a server at the address of the clouds' metadata service, one hop from the VM. */
async function serveMetadata(image: string): Promise<void> {
  await removeMetadataNetwork()
  const IPAM = { Driver: "default", Config: [{ Subnet: "169.254.169.0/24" }] }
  await docker.createNetwork({ Name: METADATA_NETWORK, IPAM, Internal: true })
  const listen = "listen(80, () => console.log('listening'))"
  // Agents of other suites on this machine ask it for preemption notices and get none.
  const answer = "(req, res) => res.writeHead(req.url === '/' ? 200 : 404).end('metadata')"
  const script = `require('http').createServer(${answer}).${listen}`
  const container: Docker.Container = await docker.createContainer({
    Image: image,
    Entrypoint: [NODE, "-e", script],
    User: "0",
    HostConfig: { NetworkMode: METADATA_NETWORK },
    NetworkingConfig: {
      EndpointsConfig: { [METADATA_NETWORK]: { IPAMConfig: { IPv4Address: METADATA_ADDRESS } } },
    },
  })
  await container.start()
  const printed = () => container.logs({ stdout: true, stderr: true })
  await until("the metadata service listens", async () => (await printed()).includes("listening"))
}

/** Returns the name of an image of this machine's Debian. It is built once for each set of package versions. */
async function buildVmImage(): Promise<string> {
  const packages = closureOf([...PACKAGES, ...ESSENTIAL])
  const versions = execFileSync("dpkg-query", ["--show", ...packages], { encoding: "utf8" })
  const setUp = [
    "RUN systemctl enable cloud-init-local cloud-init cloud-config cloud-final docker containerd load-images",
    "RUN systemctl mask systemd-firstboot apt-daily.timer apt-daily-upgrade.timer",
    `ENTRYPOINT ["/bin/sh", "-c", "${BOOT}"]`,
  ]
  const files = {
    // Differs from the network of the outer engine, whose host may have a registry without TLS.
    "etc/docker/daemon.json": '{"bip": "172.31.77.1/24", "insecure-registries": ["172.16.0.0/12"]}',
    "etc/cloud/cloud.cfg.d/99-test.cfg": CLOUD_CFG,
    "etc/systemd/system/load-images.service": LOAD_IMAGES,
  }
  const digest = createHash("sha256")
    .update(JSON.stringify([versions, setUp, files]))
    .digest("hex")
    .slice(0, 12)
  const name = `berth-test/vm:${digest}`
  if ((await docker.listImages({ filters: { reference: [name] } })).length > 0) return name
  console.log(`making the image of test VMs out of this machine's Debian packages: ${name}`)
  const base = `berth-test/vm-base:${digest}`
  await importFiles(filesOf(packages), base)
  const dockerfile = [`FROM ${base}`, "COPY etc /etc", ...setUp].join("\n")
  await buildImage(name, { Dockerfile: dockerfile, ...files })
  return name
}

/** Returns the name of the same image without an engine, which is built once. */
async function withoutEngine(image: string): Promise<string> {
  const digest = createHash("sha256").update(WITHOUT_ENGINE.join()).digest("hex").slice(0, 8)
  const name = `${image.replace("/vm:", "/vm-bare:")}-${digest}`
  if ((await docker.listImages({ filters: { reference: [name] } })).length > 0) return name
  await buildImage(name, { Dockerfile: [`FROM ${image}`, ...WITHOUT_ENGINE].join("\n") })
  return name
}

function isInstalled(name: string): boolean {
  const { stdout } = spawnSync("dpkg-query", ["--status", name], { encoding: "utf8" })
  return stdout.includes("ok installed")
}

/** Returns these packages and all installed packages that they depend on. */
function closureOf(names: readonly string[]): string[] {
  const without = ["recommends", "suggests", "conflicts", "breaks", "replaces", "enhances"].map(
    (what) => `--no-${what}`,
  )
  const args = ["depends", "--recurse", "--installed", ...without, ...names]
  const lines = execFileSync("apt-cache", args, { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).split("\n")
  return [...new Set(lines.filter((line) => /^[a-z0-9]/.test(line)))].filter(isInstalled).sort()
}

/** Returns the paths of their files without the first slash, as on a system whose /bin is /usr/bin. */
function filesOf(packages: readonly string[]): string[] {
  const listed = execFileSync("dpkg-query", ["--listfiles", ...packages], { encoding: "utf8", maxBuffer: 64 << 20 })
  const paths = [...listed.split("\n"), ...FURTHER, ...ALTERNATIVES].filter(
    (path) => path !== "" && !LEFT_OUT.test(path),
  )
  const merged = paths.map((path) => path.slice(1).replace(/^(bin|sbin|lib|lib64)\//, "usr/$1/"))
  const roots = ["bin", "sbin", "lib", "lib64"]
  const rest = [...new Set(merged)].filter((path) => !roots.includes(path)).sort()
  return [...roots, ...rest.filter((path) => lstatSync(`/${path}`, { throwIfNoEntry: false }) !== undefined)]
}

async function importFiles(paths: readonly string[], name: string): Promise<void> {
  const args = ["--create", "--no-recursion", "--directory", "/", "--files-from", "-"]
  const tar = spawn("tar", args, { stdio: ["pipe", "pipe", "inherit"] })
  tar.stdin.end(`${paths.join("\n")}\n`)
  const [repo, tag] = name.split(":")
  const answer = await docker.importImage(tar.stdout, { repo, tag })
  await followProgress(answer)
}
