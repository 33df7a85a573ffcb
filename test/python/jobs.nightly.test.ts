import { execFile } from "node:child_process"
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import { afterAll, beforeAll, expect } from "vitest"
import { kubeconfigPath } from "../control-plane.ts"
import { containerRuntime } from "../harness/container-runtime.ts"
import { GATE_WAIT, Installation } from "../harness/installation.ts"
import { Program } from "../harness/program-process.ts"
import { missingTool, needing } from "../needing.ts"
import { IMAGE, pythonBlocks } from "./blocks.ts"
import { installPackage, notebookPython } from "./package.ts"

/** The package for Python against a whole installation, whose jobs run. */
const here = needing(missingTool("openapi-python-client", "wheels of berth-jobs", "a Python for notebooks"))

let folder: string
let python: string
let berth: Installation

here.describe("the package for Python on an installation", () => {
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "berth-python-"))
    const runtime = await containerRuntime()
    berth = await Installation.create({ name: "python", kubeconfig: kubeconfigPath(), runtime })
    await berth.startOperator()
    python = (await installPackage(folder)).python
  })
  afterAll(async () => {
    await berth?.close()
    await rm(folder, { recursive: true, force: true })
  })

  here.it("runs all examples of docs/python.md in a notebook", async () => {
    const cells = await notebook()
    const shown = (text: string) => {
      const found = cells.find(({ source }) => source.includes(text))
      if (found === undefined) throw new Error(`no example has ${text}`)
      return found.shown
    }
    expect(shown("plan = berth.plan")).toMatch(/<table>.*local-2.*100 % more/s)
    expect(shown("job = plan.run()")).toMatch(/Ahoy.*<table>.*succeeded, exit code 0/s)
    expect(shown("job.timeline()")).toMatch(/The job was submitted/)
    expect(shown("hello.txt")).toContain("['Ahoy from a file']")
    expect(shown("berth.map").match(/^\d 0\.\d+ succeeded 0/gm)).toEqual(
      ["0 0.1", "1 0.1", "2 0.01", "3 0.01"].map((start) => `${start} succeeded 0`),
    )
    expect(shown("out of luck")).toMatch(/^3 exit code 3: out of luck/m)
    expect(shown("gather")).toContain("0\n")
    expect(shown("client.get")).toContain("succeeded")
    expect(cells.map(({ shown: text }) => text).join("")).not.toContain(berth.apiKey)
  })

  here.it("cancels jobs and arrays, and gives up a wait after its timeout", async () => {
    const { code } = await start("control.py").ended
    expect(code).toBe(0)
    const jobs = berth.jobs.store.list().filter(({ spec }) => spec.labels?.["made-by"] === "control")
    expect(jobs.map(({ status }) => status?.phase)).toEqual(["cancelled", "cancelled", "cancelled"])
  })

  here.it.each(["threads", "tasks"])(
    "loses and repeats no line, and waits on, when the façade is killed: by %s",
    async (way) => {
      const facade = berth.programs.findLast(({ name, running }) => name === "facade" && running)
      const script = `seq 1 5000; ${GATE_WAIT}; seq 5001 10000`
      const following = start("follow.py", way, script)
      const [, name = ""] = await following.printed(/^first half of (\S+)$/m)
      await facade?.kill()
      await following.printed(/this waits for the API/)
      const [launch] = berth.launchesOf(name)
      await berth.openGate(launch?.metadata.name ?? "")
      await berth.startFacade()
      const [, lines = ""] = await following.printed(/^lines (.*)$/m)
      expect(JSON.parse(lines)).toEqual({ count: 10_000, in_order: true, status: "succeeded" })
    },
  )
})

interface Cell {
  source: string
  /** Texts and HTML that the notebook shows below it. */
  shown: string
}

/** Executes the examples as cells of one notebook. */
async function notebook(): Promise<Cell[]> {
  const blocks = (await pythonBlocks()).map((block) => block.replaceAll(IMAGE, berth.runtime.image))
  const cwd = join(folder, "notebook")
  await mkdir(cwd)
  await writeFile(join(cwd, "cells.json"), JSON.stringify(blocks))
  const { stdout: packages } = await promisify(execFile)(python, [
    "-c",
    "import sysconfig; print(sysconfig.get_path('purelib'))",
  ])
  const program = join(await notebookPython(), "python")
  const env = { ...environment(), PYTHONPATH: packages.trim(), HOME: cwd }
  const script = join(import.meta.dirname, "notebook.py")
  const { stdout } = await promisify(execFile)(program, [script, "cells.json"], { cwd, env }).catch(
    (error: { stderr: string }) => {
      throw new Error(error.stderr.slice(-4000))
    },
  )
  return JSON.parse(stdout) as Cell[]
}

function environment(): NodeJS.ProcessEnv {
  return { PATH: process.env["PATH"], BERTH_URL: berth.url, BERTH_API_KEY: berth.apiKey }
}

function start(script: string, ...args: string[]): Program {
  const env = { ...environment(), BERTH_IMAGE: berth.runtime.image }
  return new Program(script, [join(import.meta.dirname, script), ...args], env, python)
}
