import { mkdir, mkdtemp, readdir, readFile, rm, utimes, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, beforeAll, expect, it } from "vitest"
import { CLIENT_ID, type DevelopmentIssuer, startIssuer } from "../../dev/issuer.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import { TokenVerifier } from "../../src/core/identity/oidc.ts"
import { PROJECTS } from "../../src/core/resources.ts"
import { caller, created } from "../harness/caller.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { projectFixture, setStatus } from "../harness/facade-project.ts"
import { Browser } from "../sign-in.ts"
import { run, start } from "./command.ts"
import { type FaultyProxy, startFaultyProxy } from "./faulty-proxy.ts"

/** A person whose tokens live for three seconds, at a real issuer. */
const fixture = projectFixture("cli-sign-in")
const TOKEN_SECONDS = 3
/** Tokens are accepted for this time after their end, because clocks differ. Here the clock is so much ahead. */
const TOLERANCE_MS = 30_000
/** Claims of Entra ID for a person in more than 200 groups. */
const OVERAGE = { _claim_names: { groups: "src1" }, _claim_sources: { src1: { endpoint: "https://graph.example" } } }
let folder: string
let issuer: DevelopmentIssuer
let replica: Replica
let proxy: FaultyProxy
const call = caller(() => replica, fixture)

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "berth-sign-in-"))
  const groupClaimsOf = (name: string) => (name === "gina" ? OVERAGE : {})
  issuer = await startIssuer({ port: 0, dataDir: folder, tokenSeconds: TOKEN_SECONDS, groupClaimsOf })
  const clock = { ...systemClock, now: () => new Date(Date.now() + TOLERANCE_MS) }
  const tokens = new TokenVerifier({ issuers: [issuer], clock })
  const signIn = { issuer: issuer.issuer, audience: issuer.audience, clientId: CLIENT_ID }
  replica = await startReplica({ tokens, settings: { signIn } })
  proxy = await startFaultyProxy(() => replica.port)
  const members = [{ userId: `${issuer.issuer}#ada`, role: "viewer" }]
  await fixture.client.patch(PROJECTS, { name: fixture.project }, { merge: { spec: { members } } })
  const login = start(
    ["login", proxy.url, "--device", "--project", fixture.project, "--context", "short"],
    environment(),
  )
  await login.noted("and confirm")
  const [, address = ""] = /Open (\S+)/.exec(login.err()) ?? []
  await new Browser().agree(address, { login: "ada" })
  expect(await login.ended).toMatchObject({ code: 0, err: expect.stringContaining("viewer of") })
})
afterAll(async () => {
  await proxy.close()
  await Promise.all([replica.close(), issuer.close()])
  await rm(folder, { recursive: true })
})

const environment = () => ({ XDG_CONFIG_HOME: folder })

async function makeJob(): Promise<{ id: string; name: string }> {
  const { job_id, name } = await created(await call("/1/jobs", { body: { image: "a" } }))
  return { id: job_id, name }
}

async function writeLog(id: string, at: number, text: string): Promise<void> {
  await replica.logStore.append({ job: { namespace: fixture.namespace, uid: id }, launch: 1 }, at, Buffer.from(text))
}

const followed = () => proxy.requests.filter((line) => line.includes("/logs?follow=true")).length

it("a token that ends while a log is followed is renewed, and nothing is lost or repeated", async () => {
  const { id, name } = await makeJob()
  await writeLog(id, 0, "first\n")
  const following = start(["logs", name, "-f"], environment())
  await following.printed("first\n")
  await expect.poll(followed, { timeout: 60_000 }).toBeGreaterThan(2)
  await writeLog(id, 6, "second\n")
  await following.printed("second\n")
  await setStatus(fixture, name, { phase: "succeeded", exitCode: 0, completionTime: "2026-01-01T00:00:00Z" })
  expect(await following.ended).toMatchObject({ code: 0, out: "first\nsecond\n" })
})

it("a token that the API rejects before its end is renewed once", async () => {
  const { name } = await makeJob()
  const file = join(folder, "berth", "config.json")
  const rejected = (await readFile(file, "utf8"))
    .replace(/"accessToken": "[^"]*"/, '"accessToken": "rejected"')
    .replace(/"expiresAt": "[^"]*"/, '"expiresAt": "2099-01-01T00:00:00Z"')
  await writeFile(file, rejected)
  const before = proxy.requests.length
  expect(await run(["show", name], environment())).toMatchObject({ code: 0, out: expect.stringContaining(name) })
  const shows = proxy.requests.slice(before).filter((line) => line.includes(`/jobs/${name}`))
  expect(shows.filter((line) => line === shows[0])).toHaveLength(2)
  expect(await readFile(file, "utf8")).not.toContain("rejected")
})

it("commands that renew a token at the same time take turns, and one that runs on keeps its sign-in", async () => {
  const { id, name } = await makeJob()
  await writeLog(id, 0, "first\n")
  const following = start(["logs", name, "-f"], environment())
  await following.printed("first\n")
  // The issuer revokes all tokens of a person if a refresh token is used twice.
  for (let round = 0; round < 3; round++) {
    const shown = await Promise.all([1, 2, 3].map(() => run(["show", name], environment())))
    expect(shown.map(({ code, err }) => [code, err])).toEqual([1, 2, 3].map(() => [0, ""]))
  }
  const before = followed()
  await expect.poll(followed, { timeout: 60_000 }).toBeGreaterThan(before + 1)
  await setStatus(fixture, name, { phase: "succeeded", exitCode: 0, completionTime: "2026-01-01T00:00:00Z" })
  expect(await following.ended).toMatchObject({ code: 0, out: "first\n" })
  expect(await readdir(join(folder, "berth"))).toEqual(["config.json"])
})

it("a process that died in its turn delays the others only", async () => {
  const { name } = await makeJob()
  const turn = join(folder, "berth", "config.json.turn")
  await mkdir(turn)
  const begun = new Date(Date.now() - 58_000)
  await utimes(turn, begun, begun)
  expect(await run(["show", name], environment())).toMatchObject({ code: 0 })
  expect(await readdir(join(folder, "berth"))).toEqual(["config.json"])
})

it("an issuer that is down ends no sign-in", async () => {
  const { name } = await makeJob()
  const file = join(folder, "berth", "config.json")
  const config = await readFile(file, "utf8")
  await writeFile(file, config.replace(/"issuer": "[^"]*"/, '"issuer": "http://127.0.0.1:9"'))
  const { code, err } = await run(["show", name], environment())
  expect([code, err]).toEqual([75, expect.stringContaining("http://127.0.0.1:9 does not answer")])
  await writeFile(file, config)
  expect(await run(["show", name], environment())).toMatchObject({ code: 0 })
})

it("a token that can't be renewed ends the command with 6, and says what to do", async () => {
  const { id, name } = await makeJob()
  await writeLog(id, 0, "first\n")
  expect((await run(["show", name], environment())).code).toBe(0)
  const file = join(folder, "berth", "config.json")
  await writeFile(file, (await readFile(file, "utf8")).replace(/"refreshToken": "[^"]*",/, ""))
  const following = start(["logs", name, "-f"], environment())
  await following.printed("first\n")
  const { code, err } = await following.ended
  expect([code, err]).toEqual([6, expect.stringContaining("berth login")])
})

it("a person whose groups the token leaves out reads it at the sign-in, in the lists and in check", async () => {
  const warned = expect.stringContaining("it has _claim_names instead")
  const config = { XDG_CONFIG_HOME: join(folder, "of-gina") }
  const logIn = async (...more: string[]) => {
    const login = start(["login", proxy.url, "--device", "--context", "groups", ...more], config)
    await login.noted("and confirm")
    const [, address = ""] = /Open (\S+)/.exec(login.err()) ?? []
    await new Browser().agree(address, { login: "gina" })
    return login.ended
  }
  const first = await logIn()
  expect(first).toMatchObject({ code: 0, err: warned })
  expect(first.err).toContain("You are a member of no project yet.")
  for (const list of ["org", "project"]) expect((await run([list, "ls"], config)).err).toEqual(warned)
  expect(await run(["ps", "--project", fixture.project], config)).toMatchObject({ code: 7, err: warned })
  const members = [{ userId: `${issuer.issuer}#gina`, role: "viewer" }]
  await fixture.client.patch(PROJECTS, { name: fixture.project }, { merge: { spec: { members } } })
  expect(await logIn("--project", fixture.project)).toMatchObject({ code: 0, err: warned })
  expect((await run(["check"], config)).out).toMatch(/! groups +Your token lists none of your groups/)
})
