#!/usr/bin/env node
// The command `berth` of this repository: `npx berth ps`. It needs no build. Plain JavaScript, since it also starts on
// Node.js 20, and then runs the command on the project's own version.
import { spawn } from "node:child_process"
import { existsSync } from "node:fs"
import { constants } from "node:os"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"

const root = dirname(dirname(fileURLToPath(import.meta.url)))
const own = join(root, "node_modules", "node", "bin", "node")
const node = existsSync(own) ? own : process.execPath
const env = { NODE_COMPILE_CACHE: join(root, "node_modules", ".cache", "compiled"), ...process.env }

const child = spawn(node, [join(root, "src", "cli", "main.ts"), ...process.argv.slice(2)], { stdio: "inherit", env })
// A terminal sends SIGINT to the command, too, which decides what it means.
process.on("SIGINT", () => process.stdin.isTTY || child.kill("SIGINT"))
process.on("SIGTERM", () => child.kill("SIGTERM"))
child.on("error", (error) => {
  console.error(`berth: could not start ${node}: ${error.message}`)
  process.exit(1)
})
child.on("exit", (code, signal) => process.exit(signal ? 128 + constants.signals[signal] : (code ?? 1)))
