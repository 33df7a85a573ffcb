import { runCommand } from "../../src/cli/program.ts"

/** Runs commands one after the other on the streams of this process. Each is between lines of its own. */
const [commands = "[]"] = process.argv.slice(2)
for (const argv of JSON.parse(commands) as string[][]) {
  process.stdout.write(`\n@@ ${argv.join(" ")}\n`)
  const { signal } = new AbortController()
  const code = await runCommand({ argv, environment: process.env, streams: process, signal, version: "0.0.0" })
  process.stdout.write(`\n@= ${code}\n`)
}
process.exit(0)
