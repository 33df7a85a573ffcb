import { spawnSync } from "node:child_process"
import { dirname, join } from "node:path"
import { wrongSubjects } from "./commits.ts"

/** Paths that scripts/generate.ts writes. They are committed, and never edited by hand. */
const GENERATED = [
  "crds",
  "charts/berth/files/crds",
  "charts/berth/files/base",
  "docs/values.md",
  "src/client/schema.d.ts",
  "src/client/providers.ts",
]

const root = dirname(import.meta.dirname)
const packages = join(root, "node_modules")

/**
 * Two threads check types: each checks most of the shared types again, so the compiler's four take half as much CPU time
 * more, and no less time on two cores.
 */
const TYPES = [join(packages, "typescript", "bin", "tsc"), "--noEmit", "--checkers", "2"]

/** Checks before a merge, in their order. */
const STEPS: [name: string, program: string, ...args: string[]][] = [
  ["generate", process.execPath, join(root, "scripts", "generate.ts")],
  ["lint and format", process.execPath, join(packages, "@biomejs", "biome", "bin", "biome"), "check"],
  ["imports", process.execPath, join(root, "scripts", "imports.ts")],
  ["prose", process.execPath, join(root, "scripts", "prose.ts")],
  ["types", process.execPath, ...TYPES, "--project", root],
  ["types of the console", process.execPath, ...TYPES, "--project", join(root, "src", "console")],
]

/**
 * The compiler is a program of Go, whose heap may double before the next collection. Then the collector takes two thirds
 * of its time. So the heap may grow fivefold, up to a soft limit (https://go.dev/doc/gc-guide).
 */
const COLLECTOR = { GOGC: "400", GOMEMLIMIT: "3GiB" }

const failed = STEPS.filter(([name, program, ...args]) => {
  console.log(`verify: ${name}`)
  const { status, error } = spawnSync(program, args, {
    ...{ cwd: root, stdio: "inherit" },
    env: { ...COLLECTOR, ...process.env },
  })
  if (error) console.error(`verify: ${name} could not be started: ${error.message}`)
  return status !== 0
}).map(([name]) => name)

console.log("verify: commit subjects")
const wrong = wrongSubjects(root)
if ("skipped" in wrong) console.log(`verify: commit subjects: skipped, ${wrong.skipped}`)
else if (wrong.length > 0) {
  console.error(`${wrong.join("\n")}\nverify: reword these commits (CONTRIBUTING.md, Commits)`)
  failed.push("commit subjects")
}

const status = ["status", "--porcelain", "--untracked-files=all", "--", ...GENERATED]
const { stdout: stale, error: withoutGit } = spawnSync("git", status, { cwd: root, encoding: "utf8" })
if (withoutGit) console.log("verify: nothing generated differs: skipped, there is no git")
else if (stale !== "") {
  console.error(`verify: generated files differ from what is committed; commit these:\n${stale.trimEnd()}`)
  failed.push("nothing generated differs")
}

if (failed.length > 0) {
  console.error(`verify: failed: ${failed.join(", ")}`)
  process.exitCode = 1
} else {
  console.log("verify: passed")
}
