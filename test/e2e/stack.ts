import { execFile } from "node:child_process"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { promisify } from "node:util"
import { afterAll, beforeAll, type ExpectStatic as Expect, inject } from "vitest"
import { Program } from "../harness/program-process.ts"
import { processesNaming } from "../harness/traces.ts"

const run = promisify(execFile)
const ROOT = join(import.meta.dirname, "..", "..")

/** Folder of the data of a suite. */
export let folder: string
const programs: Program[] = []

/** Makes the folder of a suite, and after it ends what it has started. */
export function prepareStacks(): void {
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "berth-stack-"))
  })
  afterAll(async () => {
    await Promise.all(programs.filter(({ running }) => running).map((program) => program.stop()))
    await rm(folder, { recursive: true, force: true, maxRetries: 3 })
  })
}

/** Starts a command of berth as a user would, with another place for programs and data. */
export function start(
  command: "demo" | "serve",
  dataDir: string,
  more: string[] = [],
  env: NodeJS.ProcessEnv = {},
): Program {
  const assetsDir = dirname(inject("controlPlaneBinaries").etcd)
  // As a user's own VMs, those of the demo run the sources.
  const bundled = inject("agentProgram")
  const agents = command === "serve" && bundled !== undefined ? ["--agent-program", bundled] : []
  const options = ["--data-dir", dataDir, "--runtime", "process", "--assets-dir", assetsDir, ...agents, ...more]
  const program = new Program(command, [join(ROOT, "dev", "main.ts"), command, ...options], {
    ...process.env,
    ...env,
  })
  programs.push(program)
  return program
}

/** Runs a shell script in an environment from the stack's file. */
export async function inShell(environmentFile: string, script: string): Promise<string> {
  const setup = `set -eu; . "$1"; kubectl() { env "$KUBECTL" "$@"; }; api() { node -e "$CALL" "$@"; }`
  const path = `${dirname(process.execPath)}:${process.env["PATH"]}`
  // Kubectl keeps a cache in its home.
  const env = { PATH: path, HOME: folder, KUBECTL: inject("kubectlPath"), CALL }
  const { stdout } = await run("sh", ["-c", `${setup}\n${script}`, "sh", environmentFile], { env, cwd: ROOT })
  return stdout
}

/**
 * Expects the exit code of a complete stop. On a machine that is too busy, code 1 with the reason is also fine. In both
 * cases no process is left: the servers end with the process that started them.
 */
export async function expectStopped(
  program: Program,
  { code, dataDir }: { code: number; dataDir: string },
  expect: Expect,
) {
  const ending = await program.ended
  const isLate = program.output.includes("not everything ended within 9 s")
  expect(ending, program.output).toEqual({ code: isLate ? 1 : code, signal: null })
  await expect.poll(() => processesNaming(dataDir), { timeout: 30_000 }).toEqual([])
}

/** Answer with the log of the sample that is submitted over REST. */
export const SUBMITTED_LOG = "200 this job came by REST, from curl\nand is done\n"

/** Small replacement for curl, which some machines lack: METHOD PATH [FILE of YAML]. */
const CALL = `
const [method, path, file] = process.argv.slice(1)
const headers = { "X-Service-Api-Key": process.env.BERTH_API_KEY, "Content-Type": "application/yaml" }
const body = file && require("node:fs").readFileSync(file)
fetch(process.env.BERTH_URL + path, { method, headers, body })
  .then(async (answer) => console.log(answer.status, (await answer.text()).trimEnd()))`
