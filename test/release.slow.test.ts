import { execFile } from "node:child_process"
import { readdir, readFile } from "node:fs/promises"
import { join } from "node:path"
import { promisify } from "node:util"
import { load } from "js-yaml"
import { describe, expect, it } from "vitest"
import { CHART } from "./chart/helm.ts"
import { goProgram } from "./go-program.ts"
import { missingTool, needing } from "./needing.ts"
import { ACTIONLINT } from "./tools.ts"

const ROOT = join(import.meta.dirname, "..")

const actionlint = needing(missingTool("actionlint"))

describe("a release of Berth", () => {
  it("has the same version in all files", async () => {
    const { version } = JSON.parse(await readFile(join(ROOT, "package.json"), "utf8")) as { version: string }
    expect(load(await readFile(join(CHART, "Chart.yaml"), "utf8"))).toMatchObject({ version, appVersion: version })
    const overlays = join(ROOT, "manifests", "overlays")
    const files = (await readdir(overlays, { recursive: true })).filter((path) => /\.(yaml|env)$/.test(path))
    const texts = await Promise.all(files.map((file) => readFile(join(overlays, file), "utf8")))
    const tags = texts.flatMap((text) => [...text.matchAll(/berth-dev\/berth:(\S+)/g)].map(([, tag]) => tag))
    expect(tags.length).toBeGreaterThan(2)
    expect(new Set(tags)).toEqual(new Set([version]))
  })

  actionlint.it("has workflows without findings of actionlint", async () => {
    const folder = join(ROOT, ".github", "workflows")
    const files = (await readdir(folder)).map((file) => join(folder, file))
    // Without shellcheck and pyflakes, which some machines lack. Actionlint fails if it has a finding.
    const args = ["-shellcheck=", "-pyflakes=", ...files]
    expect((await promisify(execFile)(await goProgram(ACTIONLINT), args)).stdout).toBe("")
  })
})
