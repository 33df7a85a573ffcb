import { execFile } from "node:child_process"
import { mkdtemp, readdir, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { compileCache } from "../../dev/compile-cache.ts"
import { kubectl } from "../control-plane.ts"
import { tendedTo } from "../harness/api-keys.ts"
import { caller } from "../harness/caller.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { projectFixture } from "../harness/facade-project.ts"

const run = promisify(execFile)
const ROOT = join(import.meta.dirname, "..", "..")

const fixture = projectFixture("facade-key-command")
let replica: Replica
/** Folder in which the command runs. */
let folder: string
const call = caller(() => replica, fixture)

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "berth-key-"))
  replica = await startReplica()
})
afterAll(async () => {
  await replica.close()
  await rm(folder, { recursive: true })
})

const berthKey = (...args: string[]) =>
  run(process.execPath, [join(ROOT, "src", "main.ts"), "key", ...args], {
    cwd: folder,
    env: { ...compileCache(), PATH: process.env["PATH"] },
  })

describe("berth key", () => {
  it("prints a value, and a manifest that makes the value work when kubectl applies it", async () => {
    const { stdout, stderr } = await berthKey(
      "--name",
      "My_CI",
      "--role",
      "developer",
      "--expires-at",
      "2099-01-01T01:00:00+01:00",
    )
    const value = /^berth_\S+$/m.exec(stderr)?.[0] ?? ""
    expect(stdout).not.toContain(value.slice(-43))
    await kubectl(["apply", "--server-side", "-n", fixture.namespace, "-f", "-"], stdout)
    await tendedTo(fixture.client, { namespace: fixture.namespace, name: "my-ci.ut" })
    expect((await call("/1/jobs", { key: value, body: { image: "a" } })).status).toBe(201)
    const { keys } = (await (await call("/1/keys?name=My_CI")).json()) as { keys: { id: string }[] }
    expect(await (await call(`/1/keys/${keys[0]?.id}`)).json()).toMatchObject({
      name: "My_CI",
      role: "developer",
      expires_at: "2099-01-01T00:00:00Z",
    })
    expect(await readdir(folder)).toEqual([])
  })

  it("writes a namespace into the manifest only if one is given, and creates another key each time", async () => {
    const first = await berthKey("--name", "abc", "--role", "viewer")
    const second = await berthKey("--name", "abc", "--role", "viewer", "--namespace", "shop")
    expect(first.stdout).not.toContain("namespace")
    expect(second.stdout).toContain("namespace: shop")
    expect(first.stderr).not.toBe(second.stderr)
  })

  it.each([
    ["no name", ["--role", "viewer"], /--name/],
    ["no role", ["--name", "abc"], /--role/],
    ["an unknown role", ["--name", "abc", "--role", "owner"], /viewer, developer, admin/],
    ["an invalid name", ["--name", "a b", "--role", "viewer"], /is not allowed as a key's name/],
    [
      "an expiry in the past",
      ["--name", "abc", "--role", "viewer", "--expires-at", "2020-01-01T00:00:00Z"],
      /not a future time/,
    ],
    [
      "an expiry without an offset",
      ["--name", "abc", "--role", "viewer", "--expires-at", "2099-01-01"],
      /not a future time/,
    ],
  ])("rejects %s, and prints no key", async (_what, args, said) => {
    const refused = await berthKey(...args).catch((error: { code: number; stdout: string; stderr: string }) => error)
    expect(refused).toMatchObject({ code: 1, stdout: "" })
    expect(refused.stderr).toMatch(said)
    expect(refused.stderr).not.toContain("berth_")
  })
})
