import { execFileSync, spawnSync } from "node:child_process"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import fc from "fast-check"
import { afterAll, beforeAll, expect } from "vitest"
import { parseEnvFile } from "../../src/cli/env-file.ts"
import { missingForContainers } from "../agent/images.ts"
import { needing } from "../needing.ts"

/** `--env-file` means the same for `berth run` and for `docker run`: Docker's own command is the oracle. */

const containers = needing(await missingForContainers())
const FILES = 200
const ENVIRONMENT = { PATH: process.env["PATH"] ?? "", SHELL_ONLY: "from the shell", EMPTY: "" }

const name = fc.constantFrom("A", "B", "SHELL_ONLY", "EMPTY", "MISSING", "export A", "a.b", "ä", "A ", "", "1")
const value = fc.constantFrom("1", "", " x ", `"q"`, "a=b", "1 # x", "#", "ü", "\\n", "'", "$A", "x\ty")
const line = fc.oneof(
  { weight: 6, arbitrary: fc.tuple(name, value).map(([key, text]) => `${key}=${text}`) },
  { weight: 2, arbitrary: name },
  { weight: 1, arbitrary: fc.constantFrom("", "# note", "  # note", "\t", "#A=1") },
)
const file = fc
  .record({
    mark: fc.constantFrom("", "\ufeff"),
    lines: fc.array(fc.tuple(fc.constantFrom("", " ", "\t "), line), { maxLength: 5 }),
    end: fc.constantFrom("\n", "\r\n"),
    isClosed: fc.boolean(),
    tail: fc.constantFrom<number[]>([], [], [], [0x41, 0x3d, 0xff]),
  })
  .map(({ mark, lines, end, isClosed, tail }) => {
    const text = mark + lines.map((parts) => parts.join("")).join(end) + (isClosed || tail.length > 0 ? end : "")
    return Buffer.concat([Buffer.from(text), Buffer.from(tail)])
  })

containers.describe("an env file", () => {
  const folder = mkdtempSync(join(tmpdir(), "berth-env-"))
  const image = `berth-env-file:${process.pid}`
  const made: string[] = []
  const docker = (...args: string[]) => spawnSync("docker", args, { env: ENVIRONMENT, encoding: "utf8" })

  beforeAll(() => {
    // An archive without files.
    execFileSync("docker", ["import", "-", image], { input: Buffer.alloc(1024), stdio: ["pipe", "ignore", "pipe"] })
  })
  afterAll(() => {
    if (made.length > 0) docker("rm", ...made)
    docker("rmi", image)
    rmSync(folder, { recursive: true })
  })

  /** Returns the variables of a container that Docker makes with the file; undefined if Docker rejects the file. */
  function byDocker(path: string): Record<string, string> | undefined {
    const { status, stdout, stderr } = docker("create", "--env-file", path, image, "x")
    if (status !== 0) expect(stderr).toMatch(/invalid env file|whitespaces|variable name|utf8/)
    if (status !== 0) return undefined
    const id = stdout.trim()
    made.push(id)
    const found = JSON.parse(docker("inspect", "--format", "{{json .Config.Env}}", id).stdout) as string[] | null
    return Object.fromEntries(
      (found ?? []).map((each) => [each.slice(0, each.indexOf("=")), each.slice(each.indexOf("=") + 1)]),
    )
  }

  function byBerth(path: string, content: Uint8Array): Record<string, string> | undefined {
    try {
      return parseEnvFile(path, content, ENVIRONMENT)
    } catch {
      return undefined
    }
  }

  containers.it("has the same variables for berth and for docker, or both reject it", () => {
    let rejected = 0
    for (const [index, content] of fc.sample(file, { numRuns: FILES, seed: 20_261_127 }).entries()) {
      const path = join(folder, `${index}.env`)
      writeFileSync(path, content)
      const expected = byDocker(path)
      if (expected === undefined) rejected++
      expect(byBerth(path, content), JSON.stringify(content.toString())).toEqual(expected)
    }
    expect(rejected).toBeGreaterThan(FILES / 10)
    expect(FILES - rejected).toBeGreaterThan(FILES / 10)
  })
})
