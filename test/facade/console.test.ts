import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { caller, problemIn } from "../harness/caller.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { projectFixture } from "../harness/facade-project.ts"

/** Content long enough to be worth an encoding. */
const SCRIPT = `console.log(${JSON.stringify("berth ".repeat(200))})`

describe("the files of the console", () => {
  const fixture = projectFixture("facade-console")
  let folder: string
  let replica: Replica
  const call = caller(() => replica, fixture)
  const get = (path: string, headers: Record<string, string> = {}) =>
    call(path, { key: "", headers, redirect: "manual" })

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "berth-console-files-"))
    await mkdir(join(folder, "assets"))
    await writeFile(join(folder, "index.html"), "<!doctype html><title>Berth</title>")
    await writeFile(join(folder, "assets", "main-ABC123.js"), SCRIPT)
    const signIn = { issuer: "https://login.example.com/realms/acme", audience: "berth", clientId: "berth-cli" }
    replica = await startReplica({ consoleFolder: folder, settings: { signIn } })
  })
  afterAll(async () => {
    await replica.close()
    await rm(folder, { recursive: true })
  })

  it.each(["/console/", "/console/projects/acme", "/console/projects/acme/jobs/a?tab=log"])(
    "has the same page at %s, which is checked each time",
    async (path) => {
      const page = await get(path)
      expect(page.status).toBe(200)
      expect(await page.text()).toContain("<title>Berth")
      expect(page.headers.get("content-type")).toBe("text/html; charset=utf-8")
      expect(page.headers.get("cache-control")).toBe("no-cache")
      expect(page.headers.get("content-security-policy")).toBe(
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self' " +
          "https://login.example.com; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
          "require-trusted-types-for 'script'",
      )
      const tag = page.headers.get("etag") ?? ""
      expect((await get(path, { "If-None-Match": tag })).status).toBe(304)
    },
  )

  it.each([
    ["br", "br"],
    ["gzip", "gzip"],
    ["gzip, br", "br"],
    ["identity", null],
  ])("sends a hashed file for ever, to a client that accepts %s in the encoding %s", async (accepted, encoding) => {
    const file = await get("/console/assets/main-ABC123.js", { "Accept-Encoding": accepted })
    expect(file.headers.get("cache-control")).toBe("public, max-age=31536000, immutable")
    expect(file.headers.get("content-encoding")).toBe(encoding)
    expect(await file.text()).toBe(SCRIPT)
  })

  it("finds no file beside its own, and takes no other method", async () => {
    for (const path of ["/console/assets/main-OLD.js", "/console/assets/%2e%2e%2fx"])
      expect((await problemIn(await get(path))).status, path).toBe(404)
    expect((await call("/console/", { key: "", method: "POST" })).status).toBe(405)
  })

  it("leads browsers from the root and from /console to the page", async () => {
    expect((await get("/console")).headers.get("location")).toBe("/console/")
    expect((await get("/", { Accept: "text/html" })).headers.get("location")).toBe("/console/")
  })

  it("is not there without a folder", async () => {
    const without = await startReplica()
    const answer = await caller(() => without, fixture)("/console/", { key: "" })
    expect((await problemIn(answer)).status).toBe(404)
    await without.close()
  })
})
