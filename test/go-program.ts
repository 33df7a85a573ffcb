import { execFile, spawn } from "node:child_process"
import { createHash } from "node:crypto"
import { once } from "node:events"
import { cp, readdir, readFile } from "node:fs/promises"
import { basename, join } from "node:path"
import { text } from "node:stream/consumers"
import { promisify } from "node:util"
import { cached, runLogged } from "./cached.ts"

const run = promisify(execFile)

/** Program of a Go module of a pinned version, or of a local folder with its go.mod and go.sum. */
export type GoProgram = {
  /** Name of the executable: the package's last part. */
  name: string
} & (
  | {
      package: string
      version: string
      /** True if the module excludes versions of others: `go install` rejects it, so Go builds it from a module here. */
      excludes?: true
    }
  /** `path`: of the package in the folder. Default: the folder itself. */
  | { folder: string; path?: string }
)

/**
 * Returns the executable's path. Go builds it once into the cache directory. Says so on standard error: the standard output
 * of a benchmark is its result. @throws Error with Go's last output
 */
export async function goProgram(program: GoProgram): Promise<string> {
  const { name } = program
  const make = async (directory: string): Promise<void> => {
    const say = (line: string): void => console.error(`${name}: ${line}`)
    say(`building it with Go into ${directory}, this once`)
    await goVersion(name)
    for (const command of commandsFor(program, directory)) await runLogged("env", [...OWN, ...command], say)
  }
  return join(await cached({ name: await cacheName(program), proof: name, make }), name)
}

/** Returns the commands that build a program into a directory. */
function commandsFor(program: GoProgram, directory: string): string[][] {
  const executable = join(directory, program.name)
  if ("folder" in program) return [["go", "build", "-C", program.folder, "-o", executable, program.path ?? "."]]
  const { package: path, version, excludes } = program
  if (excludes !== true) return [[`GOBIN=${directory}`, "go", "install", `${path}@${version}`]]
  const at = ["-C", directory]
  return [
    ["go", "mod", "init", ...at, "tools"],
    ["go", "get", ...at, "-tool", `${path}@${version}`],
    ["go", "build", ...at, "-o", executable, path],
  ]
}

/** Settings that override this machine's Go environment. */
const OWN = ["CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-buildvcs=false"]

/**
 * Runs a program that answers each line of JSON with another one. Returns the answers in the order of the questions.
 * @throws Error if it fails or an answer is missing
 */
export async function answersOf<Answer>(program: GoProgram, questions: readonly object[]): Promise<Answer[]> {
  const child = spawn(await goProgram(program), { stdio: ["pipe", "pipe", "inherit"] })
  const ended = once(child, "close")
  child.stdin.end(questions.map((question) => `${JSON.stringify(question)}\n`).join(""))
  const answers = (await text(child.stdout)).split("\n").filter((line) => line !== "")
  const [code] = (await ended) as [number | null]
  if (code !== 0 || answers.length !== questions.length)
    throw new Error(`${program.name} ended with ${code} after ${answers.length} of ${questions.length} answers`)
  return answers.map((answer) => JSON.parse(answer) as Answer)
}

async function cacheName(program: GoProgram): Promise<string> {
  if ("version" in program) return `${program.name}-${program.version}`
  const sources = (await readdir(program.folder)).filter((file) => /^go[.](mod|sum)$|[.]go$/.test(file)).sort()
  const hash = createHash("sha256")
  for (const source of sources) hash.update(await readFile(join(program.folder, source)))
  return `${program.name}-${hash.digest("hex").slice(0, 12)}`
}

/** Files of a Go module of a pinned version. */
export interface GoModuleFiles {
  /** Name in the cache directory. */
  name: string
  module: string
  version: string
  /** Paths in the module, with different file names. */
  paths: readonly [string, ...string[]]
}

/**
 * Returns the paths of copies of the files. Go downloads them once into the cache directory. @throws Error with Go's
 * output
 */
export async function goModuleFiles({ name, module, version, paths }: GoModuleFiles): Promise<string[]> {
  const make = async (directory: string): Promise<void> => {
    await goVersion(name)
    console.log(`${name}: getting ${version} by Go into ${directory}, this once`)
    const { stdout } = await run("go", ["mod", "download", "-json", `${module}@${version}`])
    const { Dir: source } = JSON.parse(stdout) as { Dir: string }
    for (const path of paths) await cp(join(source, path), join(directory, basename(path)))
  }
  const directory = await cached({ name: `${name}-${version}`, proof: basename(paths[0]), make })
  return paths.map((path) => join(directory, basename(path)))
}

/** @throws Error if Go is missing */
async function goVersion(name: string): Promise<void> {
  await run("go", ["version"]).catch((cause: unknown) => {
    throw new Error(`${name} needs Go`, { cause })
  })
}
