import { execFile } from "node:child_process"
import { cp, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises"
import { createServer, type Server } from "node:http"
import type { AddressInfo } from "node:net"
import { tmpdir } from "node:os"
import { basename, join } from "node:path"
import { promisify } from "node:util"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { checksums, type ReleaseFile } from "../../scripts/attest.ts"
import { packCli } from "../../scripts/release.ts"
import { kubeconfigPath } from "../control-plane.ts"
import { goProgram } from "../go-program.ts"
import { processRuntime } from "../harness/container-runtime.ts"
import { Installation } from "../harness/installation.ts"
import { missingTool, needing } from "../needing.ts"
import { type Issuer, startIssuer } from "../oidc.ts"
import { ACTIONLINT } from "../tools.ts"
import { GITHUB_CLAIMS } from "../workloads.ts"
import { type Contexts, readAction, runPost, type StepEnd, type StepOptions, startStep } from "./runner.ts"

/** The action runs as on GitHub's runner, with the packed command line of a release, and jobs that really run. */

const ROOT = join(import.meta.dirname, "..", "..")
const BEARER = "the-request-token-of-this-workflow"
const AUDIENCE = "https://berth.example.com"

let berth: Installation
let issuer: Issuer
let github: Server
let folder: string
/** Claims of the tokens that GitHub issues. */
let claims: object = {}
/** Audiences that workflows have asked for. */
const audiences: (string | null)[] = []
/** True: the checksums are those of another archive. */
let isTampered = false

const addressOf = (server: Server) => `http://127.0.0.1:${(server.address() as AddressInfo).port}`

/** Serves the release's files, and tokens of workflows. */
async function startGithub(files: string): Promise<Server> {
  const server = createServer(async (req, res) => {
    const url = new URL(req.url ?? "/", "http://github.test")
    if (url.pathname === "/token") {
      const audience = url.searchParams.get("audience")
      audiences.push(audience)
      if (req.headers.authorization !== `Bearer ${BEARER}`) return void res.writeHead(401).end()
      return void res.end(JSON.stringify({ value: await issuer.token({ ...GITHUB_CLAIMS, aud: audience, ...claims }) }))
    }
    const name = basename(url.pathname)
    const body = await readFile(join(files, name)).catch(() => undefined)
    if (body === undefined || !url.pathname.startsWith("/releases/v")) return void res.writeHead(404).end()
    res.end(isTampered && name === "SHA256SUMS" ? body.toString().replace(/^./, "_") : body)
  })
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))
  return server
}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "berth-action-"))
  const files = join(folder, "release")
  await mkdir(files)
  const archive = await packCli(files)
  const published: ReleaseFile[] = [{ name: basename(archive), content: await readFile(archive) }]
  await writeFile(join(files, "SHA256SUMS"), checksums(published))
  issuer = await startIssuer()
  github = await startGithub(files)
  const workloadIssuers = [{ issuer: issuer.url, audience: AUDIENCE }]
  berth = await Installation.create({
    name: "action",
    kubeconfig: kubeconfigPath(),
    runtime: processRuntime,
    workloadIssuers,
  })
  await berth.startOperator()
  const oidc = { issuer: issuer.url, claims: { repository: "acme/train", environment: "production" } }
  const body = JSON.stringify({ name: "deploys", role: "developer", oidc })
  const created = await berth.fetch("/keys", { method: "POST", body, headers: { "Content-Type": "application/json" } })
  expect(created.status, await created.text()).toBe(201)
})
afterAll(async () => {
  await berth?.close()
  await issuer?.close()
  github?.close()
  await rm(folder, { recursive: true, force: true })
})

let runs = 1000

/** Returns the contexts of a new run of a workflow. */
function newRun(): Contexts {
  return {
    github: { run_id: String(++runs), run_attempt: "1", job: "train" },
    strategy: { "job-index": 0 },
    job: { check_run_id: 1 },
  }
}

/** Returns a step with a key, unless `more` says otherwise. */
function step(inputs: Record<string, string>, more: Partial<StepOptions> = {}): StepOptions {
  const usual = {
    url: berth.url,
    project: berth.namespace,
    "api-key": berth.apiKey,
    releases: `${addressOf(github)}/releases`,
  }
  return { with: { ...usual, image: "none", ...inputs }, contexts: newRun(), folder, ...more }
}

/** Returns a step without a key, in a job with the permission id-token: write. */
function keyless(inputs: Record<string, string> = {}): StepOptions {
  const env = { ACTIONS_ID_TOKEN_REQUEST_URL: `${addressOf(github)}/token?v=1`, ACTIONS_ID_TOKEN_REQUEST_TOKEN: BEARER }
  return step({ "api-key": "", audience: AUDIENCE, ...inputs }, { env })
}

const ended = async (options: StepOptions): Promise<StepEnd> => (await startStep(options)).ended
const jobNames = () => berth.jobs.store.list().map(({ metadata }) => metadata.name)

needing(missingTool("actionlint")).it("has the inputs and outputs of the example in the documents", async () => {
  const text = await readFile(join(ROOT, "docs", "ci.md"), "utf8")
  const [, example = ""] = /```yaml\n(on: push[\s\S]*?)```/.exec(text) ?? []
  expect(example).toContain("uses: berth-dev/berth/action@v")
  const project = join(folder, "example")
  // Actionlint looks for local actions from the root of a repository.
  for (const path of [".git", ".github/workflows"]) await mkdir(join(project, path), { recursive: true })
  await cp(join(ROOT, "action"), join(project, "action"), { recursive: true })
  const file = join(project, ".github", "workflows", "example.yml")
  await writeFile(file, example.replace(/berth-dev\/berth\/action@v\S+/, "./action"))
  const args = ["-shellcheck=", "-pyflakes=", file]
  expect((await promisify(execFile)(await goProgram(ACTIONLINT), args, { cwd: project })).stdout).toBe("")
})

describe("the action", { timeout: 200_000 }, () => {
  it("runs a job with a key: its log is the step's, and outputs and summary have machine, price and cost", async () => {
    const given = { cpu: "1", memory: "1Gi", cloud: "local", region: "local", "max-cost": "2", timeout: "10m" }
    const workdir = join(folder, "checkout")
    await mkdir(workdir)
    await writeFile(join(workdir, "data.txt"), "from the checkout\n")
    const { code, outputs, summary, log, errors } = await ended(
      step({ ...given, workdir, command: "echo ahoy\ncat data.txt", name: "first", flags: "--tag=ci\n--label=a=b" }),
    )
    expect([code, errors], log).toEqual([0, []])
    expect(log).toMatch(/^ahoy$/m)
    expect(log).toMatch(/^from the checkout$/m)
    expect(log).toContain("local-")
    const { metadata, status, spec } = berth.job("first")
    expect(spec).toMatchObject({
      tags: ["ci"],
      labels: { a: "b" },
      command: ["sh"],
      args: ["-ec", "echo ahoy\ncat data.txt"],
      resources: { cpu: "1", memory: "1Gi" },
      cloud: ["local"],
      region: ["local"],
      maxCostUsd: 2,
      timeoutSeconds: 600,
    })
    expect(status?.phase).toBe("succeeded")
    expect(outputs).toEqual({
      "job-id": metadata.uid,
      status: "succeeded",
      "exit-code": "0",
      cost: expect.stringMatching(/^[\d.e-]+$/),
      url: `${berth.url}/console/projects/${berth.namespace}/jobs/${metadata.uid}`,
    })
    expect(Object.keys(outputs).sort()).toEqual(Object.keys((await readAction()).outputs).sort())
    for (const row of [
      "| Machine | local local",
      "| Price | &#36;0&#46;02&#47;h",
      "| Cost |",
      "<summary>Plan</summary>",
    ])
      expect(summary).toContain(row)
    expect(log.replace(`::add-mask::${berth.apiKey}\n`, "")).not.toContain(berth.apiKey)
  })

  it("reads each input that it declares, and no other", async () => {
    const sources = await Promise.all(
      ["main.mjs", "berth.mjs"].map((name) => readFile(join(ROOT, "action", name), "utf8")),
    )
    const text = sources.join("")
    const flags = /const FLAGS = \{([^}]*)\}/.exec(text)?.[1] ?? ""
    const read = [
      ...[...flags.matchAll(/^ *"?([a-z-]+)"?: "--/gm)].map(([, name]) => name),
      ...[...text.matchAll(/input\("([a-z-]+)"\)/g)].map(([, name]) => name),
    ]
    expect([...new Set(read)].sort()).toEqual(Object.keys((await readAction()).inputs).sort())
  })

  it("fails with the cause in the API's words, and the log of the job runs no command of the runner", async () => {
    const job = {
      image: "none",
      command: ["sh", "-c"],
      args: ["echo '::error::forged'; echo 'no `data` | here'; exit 3"],
    }
    const file = join(folder, "job.json")
    await writeFile(file, JSON.stringify(job))
    const { code, outputs, summary, errors } = await ended(step({ file, image: "", name: "broken" }))
    expect([code, outputs["status"], outputs["exit-code"]]).toEqual([1, "failed", "3"])
    expect(errors).toEqual(["broken: failed, exit code 3: no `data` | here"])
    expect(summary).toContain("| Cause | exit code 3&#58; no &#96;data&#96; &#124; here |")
  })

  it.each<[string, Record<string, string>, RegExp]>([
    ["a field that is wrong", { memory: "much" }, /--memory|resources[./]memory/],
    ["a machine that there is not", { cpu: "9000" }, /No machine|Nothing|fits/],
    ["a GPU that there is not", { gpu: "L4", spot: "true" }, /gpu.model "L4" is unknown; the catalogue has none/],
    ["a key that is wrong", { "api-key": "berth_wrong" }, /The API key is not valid for this project/],
    ["a flag that there is not", { flags: "--no-such-flag" }, /unknown option '--no-such-flag'/],
  ])("submits nothing for %s, and says why", async (_what, inputs, words) => {
    const before = jobNames()
    const { code, errors } = await ended(step(inputs))
    expect(code).toBe(1)
    expect(errors.join()).toMatch(words)
    expect(jobNames()).toEqual(before)
  })

  it("cancels the job if the workflow is cancelled, and the step after that finds nothing to do", async () => {
    const options = step({ command: "echo begun; while true; do sleep 0.2; done", name: "endless" })
    const { program, ended: end } = await startStep(options)
    await program.printed(/^begun$/m)
    program.send("SIGINT")
    const result = await end
    expect([result.code, result.outputs["status"]], result.log).toEqual([1, "cancelled"])
    expect(result.errors.join()).toContain("endless: cancelled, the workflow was cancelled")
    await berth.reached("cancelled", "endless")
    expect(await runPost(options, result)).toMatchObject({ code: 0 })
  })

  it("cancels the job of a step that the runner has killed", async () => {
    const options = step({ command: "while true; do sleep 0.2; done", name: "orphan", wait: "false" })
    const submitted = await ended(options)
    expect([submitted.code, submitted.outputs["job-id"]], submitted.log).toEqual([0, berth.job("orphan").metadata.uid])
    expect(await runPost(options, submitted)).toMatchObject({ code: 0 })
    await berth.reached("cancelled", "orphan")
  })

  it("follows the job of its first try if the step is repeated, and makes another one in another run, attempt or step", async () => {
    const options = step({ command: "echo once" })
    const first = await ended(options)
    const again = await ended(options)
    expect([first.code, again.code, again.outputs["job-id"]]).toEqual([0, 0, first.outputs["job-id"]])
    const named = { ...options, with: { ...options.with, name: "named" }, step: "named" }
    const ofName = [await ended(named), await ended(named)].map(({ code, outputs }) => [code, outputs["job-id"]])
    expect(ofName).toEqual([0, 0].map((code) => [code, berth.job("named").metadata.uid]))
    const taken = await ended({ ...named, step: "another" })
    expect([taken.code, taken.errors]).toEqual([1, [expect.stringContaining("named")]])
    const github = { ...options.contexts["github"], run_attempt: "2" }
    const others = [
      { ...options, contexts: { ...options.contexts, github } },
      { ...options, step: "other" },
    ]
    const ids = (await Promise.all(others.map(ended))).map(({ outputs }) => outputs["job-id"])
    expect(new Set([first.outputs["job-id"], ...ids]).size).toBe(3)
  })

  it("runs a job without a key, by the tokens of the workflow for this audience", async () => {
    const { code, outputs, log } = await ended(keyless({ command: "echo keyless" }))
    expect([code, outputs["status"]], log).toEqual([0, "succeeded"])
    expect(log).toMatch(/^keyless$/m)
    expect(new Set(audiences)).toEqual(new Set([AUDIENCE]))
  })

  it("is refused in plain words in another repository, and without the permission for a token", async () => {
    claims = { repository: "mallory/train" }
    try {
      const { code, errors } = await ended(keyless({ command: "echo never" }))
      expect([code, errors]).toEqual([1, [expect.stringContaining("No key of this project trusts this token")]])
      expect(errors[0]).toContain('repository "mallory/train"')
      expect(errors[0]).not.toContain("berth login")
    } finally {
      claims = {}
    }
    const { errors } = await ended(step({ "api-key": "" }))
    expect(errors).toEqual([expect.stringContaining("permissions: {id-token: write}")])
  })

  it("runs no command line whose checksum is another", async () => {
    isTampered = true
    try {
      const { code, errors } = await ended(step({ command: "echo never" }))
      expect([code, errors]).toEqual([1, [expect.stringMatching(/has the SHA-256 .*: it is not used$/)]])
    } finally {
      isTampered = false
    }
  })
})
