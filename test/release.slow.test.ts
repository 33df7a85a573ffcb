import { execFile } from "node:child_process"
import { readFileSync } from "node:fs"
import { readdir, readFile } from "node:fs/promises"
import { join } from "node:path"
import { promisify } from "node:util"
import { load } from "js-yaml"
import { describe, expect, it } from "vitest"
import { fluxRange, pythonVersion } from "../scripts/version.ts"
import { AGENT_VERSION } from "../src/agent/session.ts"
import { CHART } from "./chart/helm.ts"
import { goProgram } from "./go-program.ts"
import { missingTool, needing } from "./needing.ts"
import { ACTIONLINT } from "./tools.ts"

const run = promisify(execFile)
const ROOT = join(import.meta.dirname, "..")

const actionlint = needing(missingTool("actionlint"))

/** A version in a text: of an image, the chart, the action, a tag, a file of the release, or the package for Python. */
const NAMED =
  /(?:berth-dev\/(?:charts\/|\$)?[a-z-]+:|charts\/berth --version |targetRevision: |berth\/action@v|\?ref=v|\/download\/v|\bberth(?:-dev-cli)?-|\b(berth_jobs)-)(\d+\.\d+\.\d+(?:-?rc[.\d]*\d)?)/g

/** Files that name the version for people and for clusters, at the least. */
const NAMING = [
  ...["ci", "cli", "install", "operate", "python"].map((page) => `docs/${page}.md`),
  ...["default/programs.yaml", "default/settings.env"].map((file) => `manifests/overlays/${file}`),
  ...["high-availability/programs.yaml", "high-availability/settings.env"].map((file) => `manifests/overlays/${file}`),
  ...["charts/berth/Chart.yaml", "manifests/gitops/argocd/berth.yaml"],
]

/** The section that names the version before this one. */
const DOWNGRADE = /^## Downgrade$.*?(?=^## )/ms

describe("a release of Berth", async () => {
  const { version } = JSON.parse(await readFile(join(ROOT, "package.json"), "utf8")) as { version: string }

  it("has the version of package.json in its lock, its agent, its chart and the range of Flux", async () => {
    const lock = JSON.parse(await readFile(join(ROOT, "package-lock.json"), "utf8")) as object
    expect(lock).toMatchObject({ version, packages: { "": { version } } })
    expect(AGENT_VERSION).toBe(version)
    expect(load(await readFile(join(CHART, "Chart.yaml"), "utf8"))).toMatchObject({
      ...{ version, appVersion: version },
      annotations: { "artifacthub.io/prerelease": String(version.includes("-")) },
    })
    const flux = await readFile(join(ROOT, "manifests", "gitops", "flux", "berth.yaml"), "utf8")
    expect(flux).toContain(`semver: ${fluxRange(version)}\n`)
  })

  it("has that version in all documents and manifests", async () => {
    const { stdout } = await run("git", ["ls-files", "README.md", "charts", "docs", "manifests"], { cwd: ROOT })
    const files = stdout.split("\n").filter((path) => /\.(?:md|ya?ml|env)$/.test(path))
    const named = files.flatMap((file) =>
      [...readFileSync(join(ROOT, file), "utf8").replace(DOWNGRADE, "").matchAll(NAMED)].map(
        ([place, python, text]) => {
          return { file, place, text, expected: python === undefined ? version : pythonVersion(version) }
        },
      ),
    )
    expect(named.map(({ file }) => file)).toEqual(expect.arrayContaining(NAMING))
    expect(named.filter(({ text, expected }) => text !== expected)).toEqual([])
  })

  actionlint.it("has workflows without findings of actionlint", async () => {
    const folder = join(ROOT, ".github", "workflows")
    const files = (await readdir(folder)).map((file) => join(folder, file))
    // Without shellcheck and pyflakes, which some machines lack. Actionlint fails if it has a finding.
    const args = ["-shellcheck=", "-pyflakes=", ...files]
    expect((await run(await goProgram(ACTIONLINT), args)).stdout).toBe("")
  })
})
