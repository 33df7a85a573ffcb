import { execFile } from "node:child_process"
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { basename, join } from "node:path"
import { promisify } from "node:util"
import { afterAll, beforeAll, expect } from "vitest"
import { pythonBuildPrograms, writePythonSources } from "../../scripts/python-package.ts"
import { pythonVersion } from "../../scripts/version.ts"
import { openApiDocument } from "../../src/api/document.ts"
import { configFolder } from "../../src/cli/context.ts"
import { stateFolder } from "../../src/cli/last.ts"
import { packFolder } from "../../src/cli/workdir.ts"
import { DURATION, GPU } from "../../src/client/job-grammar.ts"
import { retryDelay } from "../../src/client/retry.ts"
import { JOB_CLOUDS } from "../../src/clouds/definitions.ts"
import { missingTool, needing } from "../needing.ts"
import { pythonBlocks } from "./blocks.ts"
import { freshPython, type InstalledPackage, installPackage } from "./package.ts"

/** The package for Python by itself: its files, its types, and decisions that the command line makes too. */
const ROOT = join(import.meta.dirname, "..", "..")
const here = needing(missingTool("openapi-python-client", "wheels of berth-jobs"))
const run = promisify(execFile)

let folder: string
let installed: InstalledPackage

here.describe("the wheel and the sdist of berth-jobs", () => {
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "berth-python-"))
    installed = await installPackage(folder)
  })
  afterAll(() => rm(folder, { recursive: true }))

  here.it("have the version of package.json, and install without Node.js", async () => {
    const { version } = JSON.parse(await readFile(join(ROOT, "package.json"), "utf8")) as { version: string }
    const { wheel, sdist, python } = installed
    const ofPython = pythonVersion(version)
    expect([wheel, sdist].map((path) => basename(path))).toEqual([
      `berth_jobs-${ofPython}-py3-none-any.whl`,
      `berth_jobs-${ofPython}.tar.gz`,
    ])
    const ofSdist = await freshPython(join(folder, "of-sdist"), sdist)
    for (const each of [python, ofSdist]) {
      const code =
        "import berth, berth.aio, importlib.metadata; print(berth.__version__, importlib.metadata.version('berth-jobs'))"
      // A search for programs finds none.
      expect((await run(each, ["-c", code], { env: { PATH: "" } })).stdout.trim()).toBe(`${ofPython} ${ofPython}`)
    }
  })

  here.it("have the types of the API, and so have the examples of docs/python.md", async () => {
    const { sources } = installed
    await writeFile(join(sources, "examples.py"), await examples())
    expect(await mypy(sources)).toBe("")
    const ruff = join(await pythonBuildPrograms(), "ruff")
    const config = ["--config", join(ROOT, "python", "pyproject.toml")]
    const checked = [join(ROOT, "python", "src"), import.meta.dirname]
    await run(ruff, ["check", ...config, ...checked])
    await run(ruff, ["format", "--check", ...config, ...checked])
  })

  here.it("can't be built if the API renames an operation or a field that they use", async () => {
    const text = JSON.stringify(openApiDocument(JOB_CLOUDS))
    const withoutJob = JSON.parse(text.replaceAll('"getJob"', '"readJob"')) as object
    await expect(writePythonSources(join(folder, "a"), withoutJob)).rejects.toThrow(
      "lacks what the Python package calls: getJob",
    )
    const renamed = { exit_code: "code", dry_run: "dry", secretEnv: "secrets" }
    const document = Object.entries(renamed).reduce((all, [old, name]) => all.replaceAll(`"${old}"`, `"${name}"`), text)
    await writePythonSources(join(folder, "b"), JSON.parse(document) as object)
    const errors = await mypy(join(folder, "b"))
    for (const name of ["exit_code", "dry_run", "secret_env"]) expect(errors).toContain(`"${name}"`)
  })

  here.it("read sizes, durations and answers as the command line does", async () => {
    const gpus = ["24Gi", "L4", "L4:2", "A100:80Gi", "L4:0", "L4:", ":2", "80", "A100-SXM:4", "L4:1:2"]
    const durations = ["90s", "2h", "1d", "1h30m", "", "h", "5", "1.5h", "2 h"]
    const attempts = ["GET", "POST"].flatMap((method) =>
      [undefined, 400, 404, 409, 429, 502, 503].flatMap((status) =>
        [null, "7", "200", "nonsense"].flatMap((retryAfter) =>
          [1, 3, 4, 6].flatMap((count) =>
            [true, false].map((hasKey) => ({ method, hasKey, status, retryAfter, count, spentSeconds: count })),
          ),
        ),
      ),
    )
    const asked = JSON.stringify({ gpus, durations, attempts })
    const args = [join(import.meta.dirname, "agreement.py"), asked]
    expect(JSON.parse((await run(installed.python, args)).stdout)).toEqual({
      gpus: gpus.map((text) => GPU.parse(text, {}) ?? null),
      durations: durations.map((text) => DURATION.parse(text, {}) ?? null),
      delays: attempts.map((attempt) => retryDelay(attempt, new Date(), 0.5) ?? null),
    })
  })

  here.it("pack the files of a folder that the command line packs", async () => {
    const root = join(folder, "code")
    const files = {
      "train.py": "a",
      ".gitignore": "*.log\ndata/\n!keep.log\n/only-here\n",
      ".berthignore": "secret*\n!data/\n",
      "a.log": "a",
      "keep.log": "a",
      "only-here": "a",
      "sub/only-here": "a",
      "sub/.gitignore": "!b.log\n*.bin\n",
      "sub/b.log": "a",
      "sub/c.bin": "a",
      "sub/deep/d.bin": "a",
      "secret.txt": "a",
      "data/x": "a",
      ".git/config": "a",
      "ünï/ä b": "a",
      ".config/berth/config.json": "a",
      ".local/state/berth/last/a.json": "a",
    }
    for (const [path, content] of Object.entries(files)) {
      await mkdir(join(root, path, ".."), { recursive: true })
      await writeFile(join(root, path), content, { mode: path.endsWith(".py") ? 0o755 : 0o600 })
    }
    await symlink("../train.py", join(root, "sub", "link"))
    await symlink(join(root, "train.py"), join(root, "absolute"))
    const { archive } = await packFolder(root, {
      bytes: 1e9,
      without: [configFolder({ HOME: root }), stateFolder({ HOME: root })],
    })
    const ours = join(folder, "of-the-command.tar.gz")
    await writeFile(ours, archive)
    const args = [join(import.meta.dirname, "packed.py"), root, ours]
    const env = { HOME: root, PATH: process.env["PATH"] }
    const { same, command, python } = JSON.parse((await run(installed.python, args, { env })).stdout)
    expect(python).toEqual(command)
    expect(python.length).toBeGreaterThan(10)
    expect(same).toBe(true)
    expect(python.map(([path]: [string]) => path).filter((path: string) => path.includes("berth/"))).toEqual([])
    await symlink("../../outside", join(root, "sub", "away"))
    await expect(run(installed.python, args)).rejects.toThrow(/sub\/away is a link to .*outside of the folder/)
  })
})

/** Returns the examples as one module. Those that await are in functions of their own. */
async function examples(): Promise<string> {
  const blocks = await pythonBlocks()
  return blocks
    .map((block, index) => {
      if (!/\bawait\b|async for/.test(block)) return block
      return `async def example_${index}() -> None:\n${block.replace(/^(?=.)/gm, "    ")}`
    })
    .join("\n")
}

/** Returns the findings of mypy; empty: none. */
async function mypy(cwd: string): Promise<string> {
  const program = join(await pythonBuildPrograms(), "mypy")
  const args = ["--cache-dir", join(folder, "mypy"), "-p", "berth"]
  const found = await run(program, args, { cwd }).catch((error: { stdout: string }) => error)
  if (!found.stdout.startsWith("Success")) return found.stdout
  const ofExamples = await run(program, [...args.slice(0, 2), "examples.py"], { cwd }).catch(
    (error: { stdout: string }) => error,
  )
  return ofExamples.stdout.startsWith("Success") ? "" : ofExamples.stdout
}
