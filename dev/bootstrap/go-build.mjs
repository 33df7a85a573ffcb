// @ts-check
import { execFile, spawn } from "node:child_process"
import { mkdir, mkdtemp, rename, rm, stat, writeFile } from "node:fs/promises"
import { join } from "node:path"
import { createInterface } from "node:readline"
import { promisify } from "node:util"
import { progressOf } from "./progress.mjs"
import { ETCD_VERSION, KUBERNETES_VERSION } from "./releases.mjs"

/** @typedef {import("../controlplane/programs.ts").ProgramName} ProgramName */

/**
 * @typedef {object} GoBuildOptions
 * @property {(progress: import("./progress.mjs").Progress) => void} progress called about once a second
 * @property {AbortSignal | undefined} [signal] ends the build; what is compiled stays in Go's cache
 */

/**
 * The used part of the output of `go mod edit -json`.
 * @typedef {object} GoModJson
 * @property {string} Go
 * @property {readonly { readonly Old: { readonly Path: string } }[] | null} Replace
 */

/**
 * One `go build` in a module created for it.
 * @typedef {object} Build
 * @property {string} directory
 * @property {readonly string[]} packages the main packages
 * @property {readonly string[]} flags
 * @property {string} output
 */

/**
 * The packages that a build has to compile, by import path: their directory and the size of their source in bytes.
 * @typedef {Map<string, { directory: string, bytes: number }>} Sources
 */

const run = promisify(execFile)

/** Name prefix of a directory, next to the programs, in which one is being built. */
export const WORKSHOP_PREFIX = ".making-"

const PROGRESS_INTERVAL_MS = 1_000
const ERROR_TAIL_LINES = 15
const MOST_OUTPUT_BYTES = 64 * 1024 * 1024

const KUBERNETES_MODULE = "k8s.io/kubernetes"
const ETCD_MODULE = "go.etcd.io/etcd/server/v3"

/** Linking a server takes about as long as compiling this many bytes of source. */
const LINK_BYTES = 2_000_000
/** A compiler's start takes about as long as compiling this many bytes of source. */
const START_BYTES = 5_000

/**
 * Builds the named programs with the Go toolchain in PATH, from their official modules. Moves each into `directory` by
 * one rename, when it is complete. Takes about 8 minutes on 2 cores the first time. After an interruption, Go's build
 * cache lets the next build continue.
 *
 * Throws an Error with the reason if there is no `go`, if a download or the build fails, or if it was aborted.
 * @param {readonly ProgramName[]} names
 * @param {string} directory
 * @param {GoBuildOptions} options
 */
export async function buildWithGo(names, directory, { progress, signal }) {
  const version = await goVersion()
  await mkdir(directory, { recursive: true })
  const workshop = await mkdtemp(join(directory, WORKSHOP_PREFIX))
  try {
    const output = join(workshop, "out")
    await mkdir(output)
    progress({ what: `fetching the sources of ${names.join(", ")} for ${version}`, done: 0 })
    const kubernetes = names.filter((name) => name !== "etcd")
    const builds = await Promise.all([
      ...(names.includes("etcd") ? [etcdBuild(workshop, output)] : []),
      ...(kubernetes.length > 0 ? [kubernetesBuild(kubernetes, workshop, output, signal)] : []),
    ])
    const sources = await Promise.all(builds.map((build) => staleSources(build, signal)))
    const meter = new Meter(`building ${names.join(", ")} with ${version}`, sources, names.length, progress)
    try {
      for (const [index, build] of builds.entries()) {
        await goBuild(build, (path) => meter.compiling(sources[index]?.get(path)?.directory), signal)
      }
    } finally {
      meter.stop()
    }
    for (const name of names) {
      await rename(join(output, name), join(directory, name))
    }
  } finally {
    await rm(workshop, { recursive: true, force: true, maxRetries: 3 })
  }
}

/**
 * Measures several builds by the size of the compiled source: the sizes of packages differ too much to count packages.
 */
class Meter {
  /** Bytes of source by directory. Two builds share their common packages, such as Go's own library. */
  #bytes = new Map()
  #total
  #done = 0
  #started = performance.now()
  #timer

  /**
   * @param {string} what
   * @param {Sources[]} sources by build
   * @param {number} links how many programs are linked at the end
   * @param {GoBuildOptions["progress"]} progress
   */
  constructor(what, sources, links, progress) {
    for (const { directory, bytes } of sources.flatMap((each) => [...each.values()])) this.#bytes.set(directory, bytes)
    this.#total = [...this.#bytes.values()].reduce((sum, bytes) => sum + bytes, links * LINK_BYTES)
    const show = () => progress(progressOf(what, this.#done / this.#total, (performance.now() - this.#started) / 1000))
    show()
    this.#timer = setInterval(show, PROGRESS_INTERVAL_MS)
  }

  /** @param {string | undefined} directory */
  compiling(directory) {
    this.#done += this.#bytes.get(directory) ?? 0
    this.#bytes.delete(directory)
  }

  stop() {
    clearInterval(this.#timer)
  }
}

async function goVersion() {
  try {
    return (await run("go", ["env", "GOVERSION"])).stdout.trim()
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") {
      throw new Error("there is no go in PATH", { cause: error })
    }
    throw error
  }
}

/**
 * Returns a go.mod that builds Kubernetes' main packages outside its repository. There the staging modules (k8s.io/api,
 * …) are replaced by folders that the published module lacks. Here they are replaced by their published versions, which
 * are v0.X.Y for Kubernetes v1.X.Y. `default` keeps Go's behaviour switches of the official build.
 * @param {GoModJson} upstream
 * @param {string} version
 */
export function kubernetesGoMod(upstream, version) {
  const staging = version.replace(/^v1\./, "v0.")
  const replaced = (upstream.Replace ?? []).map(({ Old }) => `replace ${Old.Path} => ${Old.Path} ${staging}`)
  const [, major, minor] = /^(\d+)\.(\d+)/.exec(upstream.Go) ?? []
  return [
    "module controlplane.invalid/kubernetes",
    `go ${upstream.Go}`,
    `godebug default=go${major}.${minor}`,
    `require ${KUBERNETES_MODULE} ${version}`,
    ...replaced,
    "",
  ].join("\n")
}

/**
 * Returns the linker flags of the official build (hack/lib/version.sh): stripped, with the version linked in.
 * @param {string} version
 */
export function kubernetesLinkerFlags(version) {
  const [, major, minor] = /^v(\d+)\.(\d+)/.exec(version) ?? []
  const values = { gitVersion: version, gitMajor: major, gitMinor: minor }
  const packages = ["k8s.io/client-go/pkg/version", "k8s.io/component-base/version"]
  const variables = Object.entries(values).flatMap(([name, value]) =>
    packages.map((path) => `-X ${path}.${name}=${value}`),
  )
  return ["-s", "-w", ...variables].join(" ")
}

/**
 * @param {readonly ProgramName[]} names
 * @param {string} workshop
 * @param {string} output
 * @param {AbortSignal | undefined} signal
 * @returns {Promise<Build>}
 */
async function kubernetesBuild(names, workshop, output, signal) {
  const directory = join(workshop, "kubernetes")
  await mkdir(directory)
  const module = JSON.parse(
    await go(["mod", "download", "-json", `${KUBERNETES_MODULE}@${KUBERNETES_VERSION}`], { signal }),
  )
  const upstream = JSON.parse(await go(["mod", "edit", "-json", module.GoMod], { signal }))
  await writeFile(join(directory, "go.mod"), kubernetesGoMod(upstream, KUBERNETES_VERSION))
  return {
    directory,
    packages: names.map((name) => `${KUBERNETES_MODULE}/cmd/${name}`),
    flags: ["-tags", "selinux,notest,grpcnotrace", "-ldflags", kubernetesLinkerFlags(KUBERNETES_VERSION)],
    output: `${output}/`,
  }
}

/**
 * @param {string} workshop
 * @param {string} output
 * @returns {Promise<Build>}
 */
async function etcdBuild(workshop, output) {
  const directory = join(workshop, "etcd")
  await mkdir(directory)
  await writeFile(
    join(directory, "go.mod"),
    ["module controlplane.invalid/etcd", "go 1.24", `require ${ETCD_MODULE} ${ETCD_VERSION}`, ""].join("\n"),
  )
  return { directory, packages: [ETCD_MODULE], flags: ["-ldflags", "-s -w"], output: join(output, "etcd") }
}

/** For each package that Go's cache does not hold: import path, directory, source files. */
const STALE = '{{if .Stale}}{{.ImportPath}}\t{{.Dir}}\t{{join .GoFiles "\t"}}{{end}}'

/**
 * Fetches the modules of a build and finds the packages that are not compiled yet.
 * @param {Build} build
 * @param {AbortSignal | undefined} signal
 * @returns {Promise<Sources>}
 */
async function staleSources({ directory, packages, flags }, signal) {
  const listed = await go(["list", "-mod=mod", "-trimpath", ...flags, "-deps", "-f", STALE, ...packages], {
    cwd: directory,
    signal,
  })
  const lines = listed.split("\n").filter((line) => line !== "")
  const sources = lines.map(async (line) => {
    const [path = "", folder = "", ...files] = line.split("\t")
    const sizes = await Promise.all(files.map(async (file) => (await stat(join(folder, file))).size))
    const bytes = sizes.reduce((sum, size) => sum + size, START_BYTES)
    return /** @type {const} */ ([path, { directory: folder, bytes }])
  })
  return new Map(await Promise.all(sources))
}

/**
 * @param {Build} build
 * @param {(path: string) => void} compiling called with the import path of each package when its turn comes
 * @param {AbortSignal | undefined} signal
 */
async function goBuild({ directory, packages, flags, output }, compiling, signal) {
  const args = ["build", "-mod=mod", "-trimpath", ...flags, "-v", "-o", output, ...packages]
  const child = spawn("env", [...GO_ENVIRONMENT, "go", ...args], {
    cwd: directory,
    stdio: ["ignore", "ignore", "pipe"],
    ...ABORTED_GENTLY,
    signal,
  })
  /** @type {string[]} */
  const tail = []
  createInterface({ input: child.stderr }).on("line", (line) => {
    compiling(line)
    if (tail.push(line) > ERROR_TAIL_LINES) tail.shift()
  })
  await /** @type {Promise<void>} */ (
    new Promise((resolve, reject) => {
      child.once("error", reject)
      child.once("close", (code, by) => {
        if (code === 0) return resolve()
        reject(new Error(`go build ended with ${by ?? `exit code ${code}`}:\n${tail.join("\n")}`))
      })
    })
  )
}

/** `env` sets these. Go keeps the rest of the environment (proxies, GOPROXY, …). */
const GO_ENVIRONMENT = ["CGO_ENABLED=0", "GOWORK=off"]

/** At SIGINT Go lets running compilers end, keeps their results and removes its temporary files. */
const ABORTED_GENTLY = /** @type {const} */ ({ killSignal: "SIGINT" })

/**
 * Runs a command of Go, and returns its standard output.
 * @param {readonly string[]} args
 * @param {{ cwd?: string, signal: AbortSignal | undefined }} options
 * @returns {Promise<string>}
 */
async function go(args, options) {
  try {
    const command = [...GO_ENVIRONMENT, "go", ...args]
    return (await run("env", command, { maxBuffer: MOST_OUTPUT_BYTES, ...ABORTED_GENTLY, ...options })).stdout
  } catch (error) {
    if (options.signal?.aborted) throw error
    const stderr = error instanceof Error && "stderr" in error ? String(error.stderr) : String(error)
    const tail = stderr.trim().split("\n").slice(-ERROR_TAIL_LINES).join("\n")
    throw new Error(`go ${args.slice(0, 2).join(" ")} failed:\n${tail}`, { cause: error })
  }
}
