import { execFile } from "node:child_process"
import { mkdtemp, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import { afterAll, beforeAll, expect } from "vitest"
import { pythonBuildPrograms } from "../../scripts/python-package.ts"
import { openApiDocument } from "../../src/api/document.ts"
import { kubeconfigPath } from "../control-plane.ts"
import { containerRuntime } from "../harness/container-runtime.ts"
import { Installation } from "../harness/installation.ts"
import { missingTool, needing } from "../needing.ts"
import { openApiTypeScript } from "./openapi-typescript.ts"

const execute = promisify(execFile)

/** Runs a program. @throws Error with all its output */
async function run(program: string, args: readonly string[], options: { env?: NodeJS.ProcessEnv; cwd?: string } = {}) {
  return execute(program, [...args], options).catch((error: { stdout: string; stderr: string }) => {
    throw new Error(`${program} failed: ${error.stdout}${error.stderr}`)
  })
}

/** Clients that programs generate from the OpenAPI document. A warning means that a part of the document is lost. */
let folder: string
let document: string

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "berth-clients-"))
  document = join(folder, "openapi.json")
  await writeFile(document, JSON.stringify(openApiDocument(["aws", "gcp", "azure"])))
})
afterAll(() => rm(folder, { recursive: true, force: true }))

const typescriptNeeded = needing(missingTool("openapi-typescript"))
const pythonNeeded = needing(missingTool("openapi-python-client"))

typescriptNeeded.describe("openapi-typescript", () => {
  typescriptNeeded.it("generates types without a warning, and they have the shapes of the API", async () => {
    const modules = await openApiTypeScript()
    const schema = join(folder, "schema.d.ts")
    const cli = join(modules, "openapi-typescript", "bin", "cli.js")
    const { stdout, stderr } = await run(process.execPath, [
      ...[cli, document, "--default-non-nullable=false", "-o", schema],
    ])
    expect(`${stdout}${stderr}`).not.toMatch(/warn|error/i)
    const use = join(folder, "use.ts")
    await writeFile(
      use,
      `import type { components } from "./schema.d.ts"
       type Schemas = components["schemas"]
       // Fields with defaults stay optional, and shapes have names.
       export const job: Schemas["JobSubmission"] = { image: "a", resources: { gpu: { model: "L4" } } }
       export const volume: Schemas["Volume"] = { bucket: "b", mountPath: "/b" }
       export const resources: Schemas["Resources"] = { cpu: 2, gpu: "24Gi" }
       // @ts-expect-error: a job needs an image
       export const none: Schemas["JobSubmission"] = {}
      `,
    )
    const tsc = join(modules, "typescript", "lib", "tsc.js")
    const flags = ["--noEmit", "--strict", "--allowImportingTsExtensions", "--module", "esnext"]
    // Elsewhere the compiler would read the types of this repository's packages.
    await run(process.execPath, [tsc, ...flags, use], { cwd: folder })
  })
})

pythonNeeded.describe("openapi-python-client", () => {
  pythonNeeded.it(
    "generates a client without a warning, which runs a job to its end",
    { timeout: 300_000 },
    async () => {
      const programs = await pythonBuildPrograms()
      const config = join(import.meta.dirname, "openapi-python-client.yaml")
      const { stdout, stderr } = await run(join(programs, "openapi-python-client"), [
        ...["generate", "--path", document, "--config", config, "--meta", "none"],
        ...["--output-path", join(folder, "berth_client"), "--fail-on-warning"],
      ])
      expect(`${stdout}${stderr}`).not.toMatch(/warn|error|skipping|unsupported/i)
      const runtime = await containerRuntime()
      const berth = await Installation.create({ name: "clients", kubeconfig: kubeconfigPath(), runtime })
      try {
        await berth.startOperator()
        const env = {
          PATH: process.env["PATH"],
          BERTH_URL: `${berth.url}/1`,
          BERTH_API_KEY: berth.apiKey,
          BERTH_IMAGE: runtime.image,
        }
        const script = join(import.meta.dirname, "run_job.py")
        const { stdout: printed } = await run(join(programs, "python"), [script, folder], { env })
        expect(JSON.parse(printed)).toEqual({
          role: expect.stringMatching(/admin|developer/),
          verdict: "placeable",
          status: "failed",
          exit_code: 3,
          resources: { cpu: 1, memory: expect.any(String), gpu: null, disk: null },
          launches: [expect.any(String)],
          timeline: expect.arrayContaining(["Submitted", "Requested", "Created", "Registered", "Started", "Finished"]),
        })
      } finally {
        await berth.close()
      }
    },
  )
})
