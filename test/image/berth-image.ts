import { execFile, spawnSync } from "node:child_process"
import { createHash } from "node:crypto"
import { existsSync } from "node:fs"
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { promisify } from "node:util"
import { bundle } from "../../scripts/bundle.ts"
import { BUSYBOX, buildImage, docker, librariesOf, missingForContainers } from "../agent/images.ts"
import { goProgram } from "../go-program.ts"
import { RCLONE } from "../rclone.ts"

/**
 * Builds Berth's image by its own Dockerfile. Without a registry, its base images are built from this machine's files.
 * They contain what the Dockerfile's stages would install, so the stages install nothing.
 */

const ROOT = join(import.meta.dirname, "..", "..")
const NODE = join(ROOT, "node_modules", "node", "bin", "node")

/** Program of Debian's package fuse3, which the image for volumes gets. */
const FUSERMOUNT = "/usr/bin/fusermount3"

/** Program of Debian's package binutils, which the build uses. */
const STRIP = "/usr/bin/strip"

/** Returns the reason why the image can't be built here, or undefined. */
export async function missingForImage(): Promise<string | undefined> {
  const noContainers = await missingForContainers()
  if (noContainers !== undefined) return noContainers
  if (spawnSync("docker", ["--version"]).status !== 0) return "the program docker is missing"
  const lacking = [FUSERMOUNT, STRIP].filter((path) => !existsSync(path))
  if (lacking.length > 0) return `${lacking.join(", ")} missing (Debian's packages fuse3, binutils)`
  // Benchmarks ask too, without the test runner's list of tools. A program that was built before is there at once.
  return await goProgram(RCLONE).then(
    () => undefined,
    (error: Error) => error.message,
  )
}

/** Targets of the Dockerfile beside the last one, which is operator and façade. */
export type ImageTarget = "agent" | "volumes"

/**
 * Builds a target of the Dockerfile under this name. Each suite has images of its own, so that suites don't disturb each
 * other.
 */
export async function buildBerthImage(name: string, target?: ImageTarget): Promise<void> {
  const { base, nodejs, libraries } = await bases()
  const builtFrom = {
    BUILD_IMAGE: base,
    GO_IMAGE: base,
    TOOLS_IMAGE: base,
    RUNTIME_IMAGE: nodejs,
    VM_RUNTIME_IMAGE: libraries,
  }
  const args = Object.entries(builtFrom).flatMap(([key, value]) => ["--build-arg", `${key}=${value}`])
  if (target !== undefined) args.push("--target", target)
  await promisify(execFile)("docker", ["build", "--tag", name, "--label", `suite=${name}`, ...args, ROOT], {
    maxBuffer: 16 * 1024 ** 2,
  })
}

/** Names of the base images. */
interface Bases {
  base: string
  nodejs: string
  libraries: string
}

let made: Promise<Bases> | undefined

/** Makes the base images once in this process: which files they have, only a whole bundle says. */
function bases(): Promise<Bases> {
  made ??= makeBases()
  return made
}

/** Builds the base images once per content and keeps them, so that the engine's cache of build steps works. */
async function makeBases(): Promise<Bases> {
  const files = await libraryFiles()
  const node = { "nodejs/bin/node": await readFile(NODE) }
  const packages = await packageFiles()
  // Without BuildKit, a Dockerfile knows no name of an architecture.
  const rclone = await readFile(await goProgram(RCLONE))
  const built = { "out/rclone": rclone, [`out/${process.arch === "x64" ? "amd64" : "arm64"}/rclone`]: rclone }
  const digest = digestOf({ ...files, ...node, ...packages, ...built })
  const libraries = `berth-test/library-base:${digest}`
  const nodejs = `berth-test/nodejs-base:${digest}`
  const base = `berth-test/build-base:${digest}`
  if ((await docker.listImages({ filters: { reference: [base] } })).length > 0) return { base, nodejs, libraries }
  console.log(`making the bases of Berth's image out of this machine's files: ${base}`)
  await buildImage(libraries, { Dockerfile: "FROM scratch\nCOPY . /\n", ...files })
  await buildImage(nodejs, { Dockerfile: `FROM ${libraries}\nCOPY nodejs /nodejs\n`, ...node })
  const dockerfile = [
    `FROM ${nodejs}`,
    "COPY . /",
    'RUN ["/bin/sh", "-c", "/bin/busybox --install -s /bin && ln -s /nodejs/bin/node /usr/bin/node"]',
  ]
  const tools = await Promise.all(
    [FUSERMOUNT, STRIP].map(async (path) => [path.slice(1), await readFile(path)] as const),
  )
  const busybox = await readFile(BUSYBOX)
  await buildImage(base, {
    Dockerfile: dockerfile.join("\n"),
    "bin/busybox": busybox,
    "bin/sh": busybox,
    ...Object.fromEntries(tools),
    ...(await librariesOf(STRIP)),
    ...packages,
    ...built,
  })
  return { base, nodejs, libraries }
}

/** Returns the files of the distroless image: libraries of the programs, without a shell. */
async function libraryFiles(): Promise<Record<string, Uint8Array>> {
  const libraries = await Promise.all([NODE, FUSERMOUNT].map(librariesOf))
  const passwd = "root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n"
  return {
    "etc/passwd": Buffer.from(passwd),
    ...Object.assign({}, ...libraries),
  }
}

/** Returns the files of node_modules that the bundle needs. The whole folder is a hundred times larger. */
export async function packageFiles(): Promise<Record<string, Uint8Array>> {
  const folder = await mkdtemp(join(tmpdir(), "berth-image-"))
  const { inputs } = await bundle(folder).finally(() => rm(folder, { recursive: true }))
  const used = inputs.filter((path) => path.startsWith("node_modules/"))
  const compiler = ["esbuild/lib/main.js", `@esbuild/linux-${process.arch}/bin/esbuild`]
  const files = [...used, ...compiler.map((path) => `node_modules/${path}`)]
  const folders = new Set(files.flatMap(foldersOf))
  const beside = await Promise.all([...folders].map(manifestsIn))
  const paths = [...files, ...beside.flat()].sort()
  const contents = paths.map(async (path) => [`build/${path}`, await readFile(join(ROOT, path))] as const)
  return Object.fromEntries(await Promise.all(contents))
}

/** Returns all parent folders of a file up to node_modules. */
function foldersOf(path: string): string[] {
  const folder = dirname(path)
  return folder === "node_modules" ? [] : [folder, ...foldersOf(folder)]
}

/** Returns the files that name a folder's package and its licence. */
async function manifestsIn(folder: string): Promise<string[]> {
  const names = await readdir(join(ROOT, folder))
  return names
    .filter((name) => /^(package.json$|licen[cs]e|copying|notice)/i.test(name))
    .map((name) => `${folder}/${name}`)
}

function digestOf(files: Record<string, Uint8Array>): string {
  const hash = createHash("sha256")
  for (const [path, content] of Object.entries(files)) hash.update(`${path} ${content.length}\n`).update(content)
  return hash.digest("hex").slice(0, 12)
}
