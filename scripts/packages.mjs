// @ts-check
import { spawn } from "node:child_process"
import { existsSync, readFileSync, statSync } from "node:fs"
import { mkdtemp, readdir, rm } from "node:fs/promises"
import { constants, tmpdir } from "node:os"
import { join } from "node:path"
import { buildWithGo } from "../dev/bootstrap/go-build.mjs"
import { progressOf } from "../dev/bootstrap/progress.mjs"
import { cacheDirectory, KUBERNETES_ORIGIN, programsDirectory, SERVERS } from "../dev/bootstrap/releases.mjs"
import { Terminal } from "../dev/bootstrap/terminal.mjs"

const PROGRESS_INTERVAL_MS = 1_000
const CONNECT_TIMEOUT_MS = 5_000
const STOP_SIGNALS = /** @type {const} */ (["SIGINT", "SIGTERM", "SIGHUP"])

/** Variables that set a proxy. Node.js' own fetch ignores them, so it can't test if a host is reachable. */
const PROXY_VARIABLES = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"]

/**
 * Installs the npm packages, if they are missing or outdated. If Kubernetes' programs will be built, Go starts to
 * compile them meanwhile. Go caches its results, so the later build continues from there.
 *
 * Throws an Error with npm's own message if it fails.
 * @param {string} root of this repository
 * @param {readonly string[]} program the program that runs afterwards, with its arguments
 */
export async function installPackages(root, program) {
  if (isInstalled(root)) return
  const terminal = new Terminal(process.stderr)
  const ended = new AbortController()
  const end = () => ended.abort()
  // Ends everything that was started here, however this process ends.
  process.once("exit", end)
  for (const name of STOP_SIGNALS) process.on(name, exitBy)
  const headStart = beginGoBuild(program, ended.signal)
  try {
    await npmCi(root, terminal, ended.signal)
  } finally {
    terminal.clear()
    end()
    await headStart
    process.removeListener("exit", end)
    for (const name of STOP_SIGNALS) process.removeListener(name, exitBy)
  }
}

/** @param {NodeJS.Signals} name */
function exitBy(name) {
  process.exit(128 + constants.signals[name])
}

/**
 * npm writes node_modules/.package-lock.json last, so its age shows if an install is complete and current.
 * @param {string} root
 */
function isInstalled(root) {
  const done = join(root, "node_modules", ".package-lock.json")
  return existsSync(done) && statSync(done).mtimeMs >= statSync(join(root, "package-lock.json")).mtimeMs
}

/**
 * @param {string} root
 * @param {Terminal} terminal
 * @param {AbortSignal} signal
 */
async function npmCi(root, terminal, signal) {
  const npm = process.platform === "win32" ? "npm.cmd" : "npm"
  const child = spawn(npm, ["ci", "--no-audit", "--no-fund", "--loglevel=error", "--no-progress"], {
    cwd: root,
    stdio: ["ignore", "pipe", "pipe"],
    signal,
    // npm takes long to end after SIGTERM, and the next npm ci starts from an empty folder anyway.
    killSignal: "SIGKILL",
  })
  let said = ""
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => (said += data))
  let missing = wantedPackages(root)
  const total = missing.length
  const began = performance.now()
  const show = () => {
    if (missing.length === 0) return
    missing = missing.filter((path) => !existsSync(join(root, path, "package.json")))
    // Afterwards npm shows no progress.
    if (missing.length === 0) return terminal.step("npm has all packages and runs their install scripts ...")
    const done = 1 - missing.length / total
    terminal.progress(progressOf("installing the npm packages, once", done, (performance.now() - began) / 1000))
  }
  const timer = setInterval(show, PROGRESS_INTERVAL_MS)
  try {
    const end = await new Promise((resolve, reject) => {
      child.once("error", reject)
      child.once("close", (code, by) => resolve(by ?? code))
    })
    if (end !== 0) throw new Error(`npm ci failed (${end}); its output:\n${said.trim()}\nNothing was started.`)
  } finally {
    clearInterval(timer)
  }
}

/**
 * Returns the folders of the packages that every platform needs.
 * @param {string} root
 * @returns {string[]}
 */
function wantedPackages(root) {
  /** @type {{ packages: Record<string, { optional?: boolean }> }} */
  const { packages } = JSON.parse(readFileSync(join(root, "package-lock.json"), "utf8"))
  return Object.keys(packages).filter((path) => path !== "" && packages[path]?.optional !== true)
}

/**
 * Makes Go fetch and compile until the signal. Does nothing unless the programs will certainly be built. The later
 * search prefers a download, and reports errors.
 * @param {readonly string[]} program
 * @param {AbortSignal} signal
 */
async function beginGoBuild(program, signal) {
  try {
    if (!needsServers(program) || !(await areToBeBuilt(signal))) return
    const folder = await mkdtemp(join(tmpdir(), "berth-go-"))
    try {
      await buildWithGo(SERVERS, folder, { progress: () => undefined, signal })
    } finally {
      await rm(folder, { recursive: true, force: true, maxRetries: 3 })
    }
  } catch {
    // Ignored: the later build reports its own failure.
  }
}

/** @param {readonly string[]} program */
function needsServers(program) {
  const [file = "", command = ""] = program
  if (process.env["KUBEBUILDER_ASSETS"] || program.includes("--assets-dir")) return false
  const isUnitTest = program.join(" ").endsWith("run --project unit")
  return (
    (file.endsWith("vitest.mjs") && !isUnitTest) || (file.endsWith("main.ts") && ["demo", "serve"].includes(command))
  )
}

/** @param {AbortSignal} signal */
async function areToBeBuilt(signal) {
  if (PROXY_VARIABLES.some((name) => process.env[name])) return false
  const cacheDir = process.env["BERTH_CACHE_DIR"] || cacheDirectory(process.env["XDG_CACHE_HOME"])
  const found = await readdir(programsDirectory(cacheDir)).catch(() => /** @type {string[]} */ ([]))
  if (SERVERS.every((name) => found.includes(name))) return false
  const either = AbortSignal.any([signal, AbortSignal.timeout(CONNECT_TIMEOUT_MS)])
  return fetch(KUBERNETES_ORIGIN, { method: "HEAD", redirect: "manual", signal: either }).then(
    () => false,
    () => !signal.aborted,
  )
}
