import { execFile } from "node:child_process"
import { mkdtemp, readFile, rm, stat } from "node:fs/promises"
import { tmpdir } from "node:os"
import { dirname, join, relative } from "node:path"
import { promisify } from "node:util"
import { afterAll, beforeAll, describe, type ExpectStatic as Expect, inject, it } from "vitest"
import { Program } from "./program.ts"
import { processesNaming } from "./traces.ts"

const run = promisify(execFile)
const ROOT = join(import.meta.dirname, "..", "..")

let folder: string
const programs: Program[] = []

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "berth-stack-"))
})
afterAll(async () => {
  await Promise.all(programs.filter(({ running }) => running).map((program) => program.stop()))
  await rm(folder, { recursive: true, force: true, maxRetries: 3 })
})

/** Starts a command of berth as a user would, with another place for programs and data. */
function start(command: "demo" | "serve", dataDir: string, more: string[] = []): Program {
  const assetsDir = dirname(inject("controlPlaneBinaries").etcd)
  const options = ["--data-dir", dataDir, "--runtime", "process", "--assets-dir", assetsDir, ...more]
  const program = new Program(command, [join(ROOT, "dev", "main.ts"), command, ...options])
  programs.push(program)
  return program
}

/** Runs a shell script in an environment from the stack's file. */
async function inShell(environmentFile: string, script: string): Promise<string> {
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
async function expectStopped(program: Program, { code, dataDir }: { code: number; dataDir: string }, expect: Expect) {
  const ending = await program.ended
  const isLate = program.output.includes("not everything ended within 9 s")
  expect(ending, program.output).toEqual({ code: isLate ? 1 : code, signal: null })
  await expect.poll(() => processesNaming(dataDir), { timeout: 30_000 }).toEqual([])
}

const SUBMITTED_LOG = "200 this job came by REST, from curl\nand is done\n"

/** Small replacement for curl, which some machines lack: METHOD PATH [FILE of YAML]. */
const CALL = `
const [method, path, file] = process.argv.slice(1)
const headers = { "X-Service-Api-Key": process.env.BERTH_API_KEY, "Content-Type": "application/yaml" }
const body = file && require("node:fs").readFileSync(file)
fetch(process.env.BERTH_URL + path, { method, headers, body })
  .then(async (answer) => console.log(answer.status, (await answer.text()).trimEnd()))`

describe("everything on one machine", { timeout: 300_000, concurrent: true }, () => {
  it("demo: prints each job's end in plain lines, exits with 0 and leaves no process", async ({ expect }) => {
    const dataDir = join(folder, "demo")
    const demo = start("demo", dataDir)
    const ending = await demo.ended
    expect(ending, demo.output).toEqual({ code: 0, signal: null })
    expect(demo.output).not.toContain("\u001b")
    for (const end of [
      "hello: succeeded, as expected",
      "primes: succeeded, as expected",
      "retries: failed, as expected",
      "timeout: failed, as expected",
      "cancelled: cancelled, as expected",
      "submitted: succeeded, as expected",
      "6 of 6 jobs ended as expected",
    ]) {
      expect(demo.output).toContain(end)
    }
    expect(demo.output.match(/^JOB +PHASE/gm)).toHaveLength(1)
    expect(await processesNaming(dataDir)).toEqual([])

    // Runs the command that the demo's last lines print.
    expect(demo.output).toContain(`npm start -- --data-dir ${relative(process.cwd(), dataDir)}`)
    const again = start("serve", dataDir, ["--port", "0"])
    try {
      await again.printed(/Berth is up at/, 120)
      const env = join(dataDir, "env")
      expect(await inShell(env, "kubectl describe bj hello")).toContain(
        "cheapest of 4 matching offers on local, out of ",
      )
      expect(await inShell(env, "api GET /1/jobs/submitted/logs")).toBe(SUBMITTED_LOG)
    } finally {
      await again.stop("SIGINT")
    }
  })

  it("demo: ends by Ctrl-C while jobs run, leaves no process and prints no results", async ({ expect }) => {
    const dataDir = join(folder, "stopped-demo")
    const demo = start("demo", dataDir)
    await demo.printed(/ {2}timeout running/, 120)
    await demo.stop("SIGINT")
    await expectStopped(demo, { code: 130, dataDir }, expect)
    expect(demo.output).toContain("stopped before all jobs had ended; ending what runs ...")
    expect(demo.output).not.toMatch(/as expected|npm start|JOB +PHASE/)
  })

  it("serve: works with its env file, ends by Ctrl-C, and continues after a restart", async ({ expect }) => {
    const dataDir = join(folder, "serve")
    const env = join(dataDir, "env")
    const first = start("serve", dataDir, ["--port", "0"])
    try {
      await first.printed(/Berth is up at/, 120)
      expect((await stat(env)).mode & 0o777).toBe(0o600)
      expect(await inShell(env, "kubectl apply -f manifests/samples/hello.yaml")).toBe("job.berth.dev/hello created\n")
      const planned = await inShell(env, "api POST '/1/jobs?dry_run=true' manifests/samples/rest/submit.yaml")
      expect(planned).toMatch(/^200 .*"name":"submitted","verdict":"placeable".*"instance_type":"local-\d"/)
      const submitted = await inShell(env, "api POST /1/jobs manifests/samples/rest/submit.yaml")
      expect(submitted).toMatch(/^201 .*"name":"submitted"/)
      await inShell(env, "kubectl wait --for=condition=Complete bj/hello bj/submitted --timeout=100s")
      expect(await inShell(env, "api GET /1/jobs/submitted")).toMatch(/^200 .*"status":"succeeded"/)
      const log = await inShell(env, "api GET /1/jobs/submitted/logs")
      expect(log).toBe(SUBMITTED_LOG)
      await inShell(env, "kubectl apply -f manifests/samples/cancelled.yaml")
      await inShell(env, "kubectl wait --for=condition=Started bj/cancelled --timeout=100s")
      expect(await inShell(env, "api POST /1/jobs/cancelled/cancel")).toMatch(/^200 .*"status":"cancelled"/)
    } finally {
      await first.stop("SIGINT")
    }
    await expectStopped(first, { code: 0, dataDir }, expect)

    const [, key] = /^BERTH_API_KEY=(\S+)$/m.exec(await readFile(env, "utf8")) ?? []
    const second = start("serve", dataDir, ["--port", "0"])
    try {
      await second.printed(/Berth is up at/, 120)
      expect(await readFile(env, "utf8")).toContain(`BERTH_API_KEY=${key}\n`)
      const kept = await inShell(env, "api GET /1/jobs")
      for (const job of ["hello", "submitted", "cancelled"]) expect(kept).toContain(`"name":"${job}"`)
      expect(await inShell(env, "api GET /1/jobs/submitted/logs")).toBe(SUBMITTED_LOG)
    } finally {
      await second.stop("SIGINT")
    }
    await expectStopped(second, { code: 0, dataDir }, expect)
  })
})
