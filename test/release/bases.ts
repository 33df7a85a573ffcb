import { execFile } from "node:child_process"
import { existsSync } from "node:fs"
import { cp, mkdir, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises"
import { dirname, join } from "node:path"
import { promisify } from "node:util"
import { cached } from "../cached.ts"
import { packageFiles } from "../image/berth-image.ts"
import { RCLONE } from "../rclone.ts"

/**
 * Bases of Berth's images for both architectures, from packages of Debian and npm. The images of Docker Hub and of
 * distroless have the same packages.
 */

const run = promisify(execFile)

/** Sources of this machine's own Debian. */
const SOURCES = "/etc/apt/sources.list.d/debian.sources"

/** Architectures by Docker's names, which are Debian's too: the name of npm, and of the linker's folder. */
const ARCHITECTURES = {
  amd64: { npm: "x64", triplet: "x86-64-linux-gnu" },
  arm64: { npm: "arm64", triplet: "aarch64-linux-gnu" },
} as const
type Architecture = keyof typeof ARCHITECTURES

const LIBRARIES = ["libc6", "libgcc-s1", "libstdc++6"]

/** Packages that the Dockerfile's stages would install, with their libraries. */
const TOOLS = ["fuse3", "busybox-static", "binutils", "libbinutils", "zlib1g", "libzstd1", "libjansson4"]

const DOCKERFILE = `
FROM scratch AS libraries
ARG TARGETARCH
COPY \${TARGETARCH}/libraries/ /
FROM libraries AS nodejs
ARG TARGETARCH
COPY \${TARGETARCH}/nodejs/ /nodejs/
FROM nodejs AS build
ARG TARGETARCH
COPY \${TARGETARCH}/tools/ /
RUN ["/bin/busybox", "--install", "-s", "/bin"]
RUN ln -s /nodejs/bin/node /usr/bin/node
COPY build/ /build/
COPY out/ /out/
`

/** Arguments of Berth's Dockerfile that name a base, each with the target here. */
const BASES = {
  BUILD_IMAGE: "build",
  GO_IMAGE: "build",
  TOOLS_IMAGE: "build",
  RUNTIME_IMAGE: "nodejs",
  VM_RUNTIME_IMAGE: "libraries",
} as const

/** Returns why the bases can't be made here; undefined if they can. */
export function missingForBases(): string | undefined {
  return existsSync(SOURCES) ? undefined : `${SOURCES} is missing: the bases come from packages of Debian 12 or newer`
}

/**
 * Builds the bases, and pushes them into this registry. Returns the arguments that make the Dockerfile use them, each as
 * `NAME=image`.
 */
export async function pushBases(folder: string, registry: string, env: NodeJS.ProcessEnv): Promise<string[]> {
  await mkdir(folder, { recursive: true })
  for (const name of Object.keys(ARCHITECTURES) as Architecture[])
    await cp(await filesOf(name), join(folder, name), { recursive: true, verbatimSymlinks: true })
  for (const [path, content] of Object.entries(await packageFiles())) {
    await mkdir(dirname(join(folder, path)), { recursive: true })
    await writeFile(join(folder, path), content, { mode: 0o755 })
  }
  for (const name of Object.keys(ARCHITECTURES)) await buildRclone(name, join(folder, "out", name))
  await writeFile(join(folder, "Dockerfile"), DOCKERFILE)
  const platforms = Object.keys(ARCHITECTURES).map((name) => `linux/${name}`)
  for (const target of new Set(Object.values(BASES))) {
    const output = `type=image,name=${registry}/bases/${target},push=true`
    const args = ["buildx", "build", "--platform", platforms.join(","), "--target", target, "--output", output, folder]
    await run("docker", args, { env, maxBuffer: 64 * 1024 ** 2 })
  }
  return Object.entries(BASES).map(([name, target]) => `${name}=${registry}/bases/${target}`)
}

/** Builds rclone into a folder, as the Dockerfile does. Go keeps what it has compiled. */
async function buildRclone(architecture: string, folder: string): Promise<void> {
  const env = { ...process.env, CGO_ENABLED: "0", GOARCH: architecture, GOFLAGS: "-buildvcs=false" }
  await run("go", ["build", "-trimpath", "-ldflags=-s -w", "-o", `${folder}/`, "."], { cwd: RCLONE.folder, env })
}

/** Returns the folder with the files of an architecture. They are downloaded once. */
function filesOf(architecture: Architecture): Promise<string> {
  const { npm, triplet } = ARCHITECTURES[architecture]
  const node = `node-linux-${npm}@${process.versions.node}`
  const make = async (directory: string): Promise<void> => {
    console.log(`downloading Debian's and Node.js' packages for ${architecture} into ${directory}, this once`)
    const into = (name: string) => join(directory, name)
    await unpackDebs(architecture, LIBRARIES, into("libraries"))
    await unpackDebs(architecture, [...TOOLS, `binutils-${triplet}`], into("tools"))
    await symlink("busybox", into("tools/bin/sh"))
    // An installed Debian has one folder for both.
    if (existsSync(into("tools/bin/fusermount3")))
      await symlink("../../bin/fusermount3", into("tools/usr/bin/fusermount3"))
    const { stdout } = await run("npm", ["pack", "--silent", node, "--pack-destination", directory], { cwd: directory })
    await mkdir(into("nodejs/bin"), { recursive: true })
    await run("tar", ["-xzf", stdout.trim(), "--strip-components=2", "-C", "nodejs/bin", "package/bin/node"], {
      cwd: directory,
    })
    await rm(into(stdout.trim()))
  }
  const name = `image-bases-${architecture}-${process.versions.node}`
  return cached({ name, proof: "nodejs/bin/node", make })
}

/** Downloads packages by an apt of its own, which leaves this machine's as it is, and unpacks them. */
async function unpackDebs(architecture: Architecture, packages: readonly string[], folder: string): Promise<void> {
  const state = join(folder, ".apt")
  await mkdir(join(state, "lists", "partial"), { recursive: true })
  await mkdir(join(state, "archives", "partial"), { recursive: true })
  await writeFile(join(state, "status"), "")
  const config = [
    `APT::Architecture "${architecture}";`,
    `APT::Architectures { "${architecture}"; };`,
    `Dir::State "${state}";`,
    `Dir::State::status "${join(state, "status")}";`,
    `Dir::Cache "${state}";`,
    `Dir::Etc::sourcelist "${SOURCES}";`,
    `Dir::Etc::sourceparts "-";`,
    `APT::Sandbox::User "root";`,
  ]
  await writeFile(join(state, "apt.conf"), config.join("\n"))
  const env = { ...process.env, APT_CONFIG: join(state, "apt.conf") }
  await run("apt-get", ["update", "-q"], { env, maxBuffer: 16 * 1024 ** 2 })
  await run("apt-get", ["download", "-q", ...packages], { env, cwd: state })
  for (const deb of (await readdir(state)).filter((name) => name.endsWith(".deb")))
    await run("dpkg-deb", ["--extract", join(state, deb), folder])
  await rm(state, { recursive: true })
}

/** Returns true if this machine runs programs of arm64, natively or by emulation. */
export async function runsArm64(): Promise<boolean> {
  if (process.arch === "arm64") return true
  const emulator = "/proc/sys/fs/binfmt_misc/qemu-aarch64"
  return (await readFile(emulator, "utf8").catch(() => "")).startsWith("enabled")
}
