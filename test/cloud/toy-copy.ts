import { execFile } from "node:child_process"
import { cp, mkdir, mkdtemp, readdir, readFile, writeFile } from "node:fs/promises"
import { join } from "node:path"
import { promisify } from "node:util"

const ROOT = join(import.meta.dirname, "..", "..")

/** Folder of the toy cloud, as a contributor would write it in `src/clouds/`. */
const TOY = join(import.meta.dirname, "toy")

/** Files and folders that a copy needs to be generated, built and run. */
const COPIED = [
  ...["src", "dev", "scripts", "charts", "manifests", "package.json", "tsconfig.json"],
  ...["bench/simulated-cloud.ts", "test/harness"],
]

/** Path of the only list, in the copy. */
const LIST = join("src", "clouds", "definitions.ts")

/** Longest time of a program, milliseconds: no program outlives its test. */
const LIMIT_MS = 60_000

/** Makes an ignored folder inside of the repository, so that programs in it find the packages. Returns its path. */
export async function makeFolder(): Promise<string> {
  const parent = join(ROOT, ".berth")
  await mkdir(parent, { recursive: true })
  return await mkdtemp(join(parent, "toy-"))
}

/** Copies the repository, adds the toy cloud as a contributor would, and generates what derives from the list. */
export async function copyWithToy(root: string): Promise<void> {
  for (const path of COPIED) await cp(join(ROOT, path), join(root, path), { recursive: true })
  await addFolder(join(root, "src", "clouds", "toy"))
  await addLine(join(root, LIST))
  await runIn(root, ["scripts/generate.ts"])
}

async function addFolder(folder: string): Promise<void> {
  await mkdir(folder)
  for (const file of await readdir(TOY)) {
    const source = await readFile(join(TOY, file), "utf8")
    await writeFile(join(folder, file), source.replaceAll('"../../../src/', '"../../'))
  }
}

/** Adds the line: an import and an entry. @throws Error if the list looks otherwise than expected */
async function addLine(file: string): Promise<void> {
  const list = await readFile(file, "utf8")
  const longer = list.replace(/(export const DEFINITIONS = \{[^}]*\w) \}/, "$1, toy }")
  if (longer === list) throw new Error(`${LIST} has no DEFINITIONS in one line: change how this test adds a cloud`)
  await writeFile(file, `import { toy } from "./toy/definition.ts"\n${longer}`)
}

/**
 * The compiler's four threads check shared types four times, and its collector takes much of their time: both together
 * are most of the CPU time of a check.
 */
const THRIFTY = { argv: ["--checkers", "1"], env: { GOGC: "400", GOMEMLIMIT: "3GiB" } }

/** Checks the types of the copy's program and console. @throws Error with the compiler's output */
export async function compile(root: string): Promise<void> {
  const exclude = ["src/console", "src/**/*.test.ts"]
  await writeFile(join(root, "program.json"), JSON.stringify({ extends: "./tsconfig.json", include: ["src"], exclude }))
  const compiler = join(ROOT, "node_modules", "typescript", "bin", "tsc")
  await Promise.all(
    ["program.json", "src/console"].map((project) =>
      runIn(root, [compiler, "--noEmit", ...THRIFTY.argv, "-p", project], { env: THRIFTY.env }),
    ),
  )
}

/** Runs a program of the copy. Returns its standard output. @throws Error with its standard error if it fails */
export async function runIn(
  root: string,
  argv: readonly string[],
  { env = {}, input = "" }: { env?: Record<string, string>; input?: string } = {},
): Promise<string> {
  const own = { PATH: process.env["PATH"], HOME: root, NODE_COMPILE_CACHE: join(root, ".compiled") }
  const options = { cwd: root, timeout: LIMIT_MS, env: { ...own, ...env } }
  const running = promisify(execFile)(process.execPath, argv, options)
  running.child.stdin?.end(input)
  return (await running).stdout
}
