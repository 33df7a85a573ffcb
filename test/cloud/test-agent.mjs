// Replaces an agent in tests of its VM. Its user data configures its behaviour:
// {onTerm: "exit" | "ignore", children: ["same" | "own"] (sessions), exitAfterMs}
import { spawn } from "node:child_process"
import { appendFileSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"

const disk = process.argv[process.argv.indexOf("--data-dir") + 1]
const { onTerm = "exit", children = [], exitAfterMs } = JSON.parse(readFileSync(join(disk, "user-data.json"), "utf8"))
process.on("SIGTERM", () => {
  appendFileSync(join(disk, "terms"), "TERM\n")
  if (onTerm === "exit") process.exit(0)
})
const pids = children.map((session) => spawn("sleep", ["600"], { detached: session === "own", stdio: "ignore" }).pid)
writeFileSync(join(disk, "children.json"), JSON.stringify(pids))
writeFileSync(join(disk, "environment.json"), JSON.stringify(process.env))
appendFileSync(join(disk, "boots"), `${process.pid}\n`)
console.log("test agent is up")
if (exitAfterMs !== undefined) setTimeout(() => process.exit(0), exitAfterMs)
setInterval(() => {}, 60_000)
