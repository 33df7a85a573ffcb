import { proxySettings, useProxy } from "../core/apis/proxy.ts"
import { EXIT } from "./exit.ts"
import { CANCEL_SECONDS } from "./leave.ts"
import { runCommand } from "./program.ts"
import { version } from "./version.ts"

// Entry of the command `berth`. A single executable needs a file without top-level await.

/** Oldest Node.js that the command runs on, as in the manifest of its package. */
const OLDEST_NODE = [22, 12] as const

const [major = 0, minor = 0] = process.versions.node.split(".").map(Number)
if (major < OLDEST_NODE[0] || (major === OLDEST_NODE[0] && minor < OLDEST_NODE[1])) {
  console.error(`berth: Node.js ${OLDEST_NODE.join(".")} or newer is needed, and this is ${process.versions.node}.`)
  process.exit(EXIT.berth)
}

const stop = new AbortController()

/** Signals that end a command, with its exit code. A command says what runs on without it. A second one ends it at once. */
const SIGNALS = { SIGHUP: EXIT.hungUp, SIGINT: EXIT.interrupted, SIGTERM: EXIT.terminated } as const

/** Time after which a command that does not end by itself is ended, seconds. */
const END_SECONDS = CANCEL_SECONDS + 5

// A reader such as head may stop to read. What a person wants then is silence.
for (const stream of [process.stdout, process.stderr])
  stream.on("error", (error: NodeJS.ErrnoException) =>
    process.exit(error.code === "EPIPE" ? EXIT.brokenPipe : EXIT.failed),
  )
for (const [name, code] of Object.entries(SIGNALS))
  process.once(name, () => {
    setTimeout(() => process.exit(code), END_SECONDS * 1000).unref()
    stop.abort(code)
  })

try {
  // On an older Node.js its own setting does the same.
  if (process.env["NODE_USE_ENV_PROXY"] !== "1") useProxy(proxySettings(process.env))
} catch (error) {
  // Most commands need no proxy to reach their Berth.
  console.error(`berth: ${error instanceof Error ? error.message : String(error)}.`)
}
runCommand({
  argv: process.argv.slice(2),
  environment: process.env,
  streams: process,
  signal: stop.signal,
  version: version(),
}).then(
  (code) => process.exit(code),
  (error: unknown) => {
    console.error(error)
    process.exit(EXIT.failed)
  },
)
