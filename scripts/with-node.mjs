// Runs a program of this project on the project's own Node.js version, whatever Node.js the machine has: `node
// scripts/with-node.mjs FILE ARGS...`. Plain JavaScript without imports from node_modules, so that `npm run demo` works
// in a clone that has none yet.
import { spawn } from "node:child_process"
import { existsSync, readFileSync } from "node:fs"
import { constants } from "node:os"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"
import { installPackages } from "./packages.mjs"

const root = dirname(dirname(fileURLToPath(import.meta.url)))
const MINIMUM_MAJOR = 24

endWithShell()
await install()
run(nodeBinary(), process.argv.slice(2))

async function install() {
  try {
    await installPackages(root, process.argv.slice(2))
  } catch (error) {
    console.error(`berth: ${error.message}`)
    process.exit(1)
  }
}

/**
 * Ends this process with its shell. npm sends SIGTERM only to the shell that runs a script. The shell ends without a
 * signal to its child.
 */
function endWithShell() {
  if (process.env["npm_lifecycle_event"] === undefined) return
  const shell = process.ppid
  // The shell may have ended before this check.
  const isGone = shell === 1 && !isNpm(shell)
  const timer = setInterval(() => {
    if (process.ppid === shell && !isGone) return
    clearInterval(timer)
    process.kill(process.pid, "SIGTERM")
  }, 200)
  timer.unref()
}

/** In a container npm may be process 1, and its shell may have become this process. */
function isNpm(pid) {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("npm")
  } catch {
    return false
  }
}

function nodeBinary() {
  const own = join(root, "node_modules", "node", "bin", "node")
  if (existsSync(own)) return own
  if (Number.parseInt(process.versions.node, 10) >= MINIMUM_MAJOR) return process.execPath
  console.error(
    `berth: Node.js ${MINIMUM_MAJOR} or newer is needed, this is ${process.versions.node}, and the npm package "node" has not put one ` +
      "into node_modules. Its install script may have been blocked: run `npm rebuild node`, or install Node.js 24.",
  )
  process.exit(1)
}

function run(node, args) {
  // Caches compiled code: stripping types and compiling is most of a program's start. Programs that it starts use the
  // cache too.
  const env = { NODE_COMPILE_CACHE: join(root, "node_modules", ".cache", "compiled"), ...process.env }
  const child = spawn(node, args, { cwd: root, stdio: "inherit", env })
  // A terminal sends SIGINT to the whole group. Other senders may signal only this process.
  for (const signal of ["SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal))
  process.on("SIGINT", () => process.stdin.isTTY || child.kill("SIGINT"))
  child.on("error", (error) => {
    console.error(`berth: could not start ${node}: ${error.message}`)
    process.exit(1)
  })
  child.on("exit", (code, signal) => process.exit(signal ? 128 + constants.signals[signal] : (code ?? 1)))
}
