import { mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, beforeAll, expect } from "vitest"
import { CLIENT_ID, type DevelopmentIssuer, startIssuer } from "../../dev/issuer.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import { TokenVerifier } from "../../src/core/identity/oidc.ts"
import { PROJECTS } from "../../src/core/resources.ts"
import { start } from "../cli/command.ts"
import { type Fault, type FaultyProxy, startFaultyProxy } from "../cli/faulty-proxy.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { jobsOf, projectFixture, setStatus } from "../harness/facade-project.ts"
import { Program } from "../harness/program-process.ts"
import { missingTool, needing } from "../needing.ts"
import { Browser } from "../sign-in.ts"
import { installPackage } from "./package.ts"

/** The package for Python against a façade, behind a proxy with faults. No job runs. */
const fixture = projectFixture("python-calls")
const TOKEN_SECONDS = 3
/** Text that a notebook must not run. */
const CAUSE = "exit code 3: <script>out of luck</script>"
/** Tokens are accepted for this time after their end, because clocks differ. Here the clock is so much ahead. */
const TOLERANCE_MS = 30_000
const here = needing(missingTool("openapi-python-client", "wheels of berth-jobs"))

let folder: string
let python: string
let issuer: DevelopmentIssuer
let replica: Replica
let proxy: FaultyProxy

here.describe("the package for Python", () => {
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "berth-python-"))
    python = (await installPackage(folder)).python
    issuer = await startIssuer({ port: 0, dataDir: folder, tokenSeconds: TOKEN_SECONDS })
    const clock = { ...systemClock, now: () => new Date(Date.now() + TOLERANCE_MS) }
    const tokens = new TokenVerifier({ issuers: [issuer], clock })
    const signIn = { issuer: issuer.issuer, audience: issuer.audience, clientId: CLIENT_ID }
    replica = await startReplica({ tokens, settings: { signIn } })
    proxy = await startFaultyProxy(() => replica.port)
    const members = [{ userId: `${issuer.issuer}#ada`, role: "developer" }]
    await fixture.client.patch(PROJECTS, { name: fixture.project }, { merge: { spec: { members } } })
  })
  afterAll(async () => {
    await proxy.close()
    await Promise.all([replica.close(), issuer.close()])
    await rm(folder, { recursive: true })
  })

  here.it("submits each of 50 jobs once, by threads and by tasks, though answers are lost", async () => {
    for (const way of ["threads", "tasks"]) {
      const lost = Array.from({ length: 25 }, (_, at): Fault => (at % 2 === 0 ? "lose the response" : { status: 503 }))
      proxy.next("POST /", ...lost)
      const names = JSON.parse(lastLine(await print("many.py", [way])))
      expect(new Set(names).size).toBe(50)
    }
    const jobs = (await jobsOf(fixture)).filter(({ metadata }) => metadata.name.startsWith("many-"))
    expect(jobs).toHaveLength(100)
    expect(new Set(proxy.keys).size).toBe(100)
  })

  here.it("waits as long as a 429 says", async () => {
    proxy.requests.length = 0
    proxy.next("GET /", { status: 429, headers: { "retry-after": "2" } })
    const [, seconds] = /answered 429; the request is sent again in ([\d.]+) s/.exec(await print("paused.py")) ?? []
    // Without Retry-After it would be half a second.
    expect(seconds).toBe("2.0")
    expect(proxy.requests).toHaveLength(2)
  })

  here.it("raises errors with the words of the API, and shows no credential", async () => {
    expect(JSON.parse(lastLine(await print("errors.py")))).toEqual({
      unknown: expect.stringMatching(/no field 'memmory'.*memory/),
      bad: {
        type: "BadRequest",
        field: expect.stringContaining("mountPath"),
        text: expect.stringMatching(/^The job has .*:\n.*mountPath/),
      },
      gpu: expect.stringContaining("is no GPU"),
      missing: "NotFound",
      conflict: "Conflict",
      key: "Unauthorized",
      unreachable: expect.stringContaining("can't be reached"),
      shows_key: false,
    })
  })

  here.it("takes over the sign-in of the command line, renews it, and stores it for both", async () => {
    await logIn("short")
    const before = await config()
    const XDG_CONFIG_HOME = folder
    const isListed = async () => (await start(["ps", "-a"], { XDG_CONFIG_HOME }).ended).code === 0
    // Processes at the same time: an issuer revokes all tokens if a refresh token is used twice.
    const both = Promise.all([1, 2].map(() => print("signed-in.py", [], { XDG_CONFIG_HOME })))
    const listed = await Promise.all([1, 2, 3].map(isListed))
    expect([await both, listed]).toEqual([
      ["True", "True"],
      [true, true, true],
    ])
    const after = await config()
    expect(after.contexts.short.signIn.refreshToken).not.toBe(before.contexts.short.signIn.refreshToken)
    expect((await stat(join(folder, "berth", "config.json"))).mode & 0o777).toBe(0o600)
    expect(await isListed()).toBe(true)
  })

  here.it("renews a token that the API rejects before its end", async () => {
    await logIn("short")
    const { current, contexts } = await config()
    contexts.short.signIn = { ...contexts.short.signIn, accessToken: "rejected", expiresAt: "2099-01-01T00:00:00Z" }
    await writeFile(join(folder, "berth", "config.json"), JSON.stringify({ current, contexts }))
    expect(await print("signed-in.py", [], { XDG_CONFIG_HOME: folder })).toBe("True")
    expect((await config()).contexts.short.signIn.accessToken).not.toBe("rejected")
  })

  here.it("says that a sign-in has ended that can't be renewed", async () => {
    await logIn("ended")
    const file = join(folder, "berth", "config.json")
    const { current, contexts } = await config()
    contexts.ended.signIn.refreshToken = "unknown"
    await writeFile(file, JSON.stringify({ current, contexts }))
    const printed = await print("signed-out.py", [], { XDG_CONFIG_HOME: folder })
    expect(printed).toMatch(/^SignedOut: .*invalid_grant.*Run `berth login`/)
    expect(printed).not.toContain(contexts.ended.signIn.accessToken)
    // An issuer that is down ends no sign-in.
    contexts.ended.signIn.issuer = "http://127.0.0.1:9"
    await writeFile(file, JSON.stringify({ current, contexts }))
    expect(await print("signed-out.py", [], { XDG_CONFIG_HOME: folder })).toMatch(/^Unavailable: The issuer/)
  })

  here.it("waits for the end of a job through an outage, and raises its cause, which notebooks escape", async () => {
    const waiting = program("waiting.py")
    const [, name = ""] = await waiting.printed(/^job (\S+)$/m)
    proxy.next(
      `GET /projects/${fixture.project}/1/jobs/`,
      ...Array.from({ length: 10 }, (): Fault => ({ status: 502 })),
    )
    await waiting.printed(/answered 502.*this waits for the API/)
    await setStatus(fixture, name, {
      ...{ phase: "failed", reason: "ContainerFailed", message: CAUSE, exitCode: 3 },
      completionTime: "2026-01-01T00:00:00Z",
    })
    const [, said = ""] = await waiting.printed(/^end (.*)$/m)
    expect(JSON.parse(said)).toEqual({ type: "JobFailed", exit_code: 3, cause: CAUSE, escaped: true })
    expect(waiting.output.match(/waits for the API/g)).toHaveLength(1)
  })
})

interface ConfigFile {
  current: string
  contexts: { short: StoredContext; ended: StoredContext }
}

interface StoredContext {
  signIn: { accessToken: string; refreshToken: string; issuer: string; expiresAt?: string }
}

async function config(): Promise<ConfigFile> {
  return JSON.parse(await readFile(join(folder, "berth", "config.json"), "utf8")) as ConfigFile
}

async function logIn(context: string): Promise<void> {
  const args = ["login", proxy.url, "--device", "--project", fixture.project, "--context", context]
  const login = start(args, { XDG_CONFIG_HOME: folder })
  await login.noted("and confirm")
  const [, address = ""] = /Open (\S+)/.exec(login.err()) ?? []
  await new Browser().agree(address, { login: "ada" })
  expect(await login.ended).toMatchObject({ code: 0 })
}

/** Starts a script of this folder. Its environment names the project, unless `env` has a configuration. */
function program(script: string, args: readonly string[] = [], env: Record<string, string> = {}): Program {
  const named = {
    BERTH_URL: proxy.url,
    BERTH_PROJECT: fixture.project,
    BERTH_API_KEY: fixture.keys.developer,
  }
  const all = { PATH: process.env["PATH"], ...(env["XDG_CONFIG_HOME"] === undefined ? named : env) }
  return new Program(script, [join(import.meta.dirname, script), ...args], all as NodeJS.ProcessEnv, python)
}

/** Returns the result of a script, after its warnings. */
function lastLine(output: string): string {
  return output.slice(output.lastIndexOf("\n") + 1)
}

/** Runs a script to its end. @returns what it has printed */
async function print(...of: Parameters<typeof program>): Promise<string> {
  const running = program(...of)
  const { code } = await running.ended
  if (code !== 0) throw new Error(`${of[0]} ended with ${code}: ${running.output}`)
  return running.output.trim()
}
