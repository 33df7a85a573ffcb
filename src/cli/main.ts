import { EXIT } from "./exit.ts"
import { runCommand } from "./program.ts"
import { version } from "./version.ts"

// Entry of the command `berth`. A single executable needs a file without top-level await.

const stop = new AbortController()

// A reader such as head may stop to read. What a person wants then is silence.
for (const stream of [process.stdout, process.stderr])
  stream.on("error", (error: NodeJS.ErrnoException) =>
    process.exit(error.code === "EPIPE" ? EXIT.brokenPipe : EXIT.failed),
  )
process.once("SIGINT", () => stop.abort())
process.once("SIGTERM", () => process.exit(128 + 15))

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
