import { execFile } from "node:child_process"
import { copyFile, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { promisify } from "node:util"
import { afterAll, beforeAll, describe, expect, it } from "vitest"

/** File, its import, and true if the rule allows it. */
const CASES: [file: string, specifier: string, allowed: boolean][] = [
  ["src/apis/a.ts", "./b.ts", true],
  ["src/apis/a.ts", "../kube/b.ts", false],
  ["src/kube/a.ts", "../apis/b.ts", true],
  ["src/kube/a.ts", "../runtime/b.ts", false],
  ["src/kube/deeper/a.ts", "../../runtime/b.ts", false],
  ["src/kube/deeper/a.ts", "../b.ts", true],
  ["src/runtime/a.ts", "../kube/b.ts", true],
  ["src/runtime/a.ts", "../controllers/job/b.ts", false],
  ["src/controllers/job/a.ts", "../../runtime/b.ts", true],
  ["src/controllers/job/a.ts", "../launch/b.ts", true],
  ["src/controllers/job/a.ts", "../../cloud/cloud.ts", true],
  ["src/controllers/job/a.ts", "../../cloud/aws/b.ts", false],
  ["src/controllers/job/a.ts", "../../facade/b.ts", false],
  ["src/controllers/job/a.ts", "../../gateway/b.ts", false],
  ["src/controllers/job/a.ts", "node:fs/promises", true],
  ["src/controllers/job/decide.ts", "node:fs/promises", false],
  ["src/controllers/job/decide.ts", "../../kube/client.ts", false],
  ["src/controllers/cronjob/schedule.ts", "undici", false],
  ["src/controllers/cronjob/schedule.ts", "cron-parser", true],
  ["src/cloud/cloud.ts", "../apis/b.ts", true],
  ["src/cloud/cloud.ts", "./aws/b.ts", false],
  ["src/cloud/cloud.ts", "../controllers/b.ts", false],
  ["src/cloud/aws/a.ts", "../cloud.ts", true],
  ["src/cloud/aws/a.ts", "../gcp/b.ts", false],
  ["src/cloud/aws/a.ts", "../../kube/b.ts", false],
  ["src/cloud/aws/a.ts", "@aws-sdk/client-ec2", true],
  ["src/cloud/gcp/a.ts", "@aws-sdk/client-ec2", false],
  ["test/cloud/aws.test.ts", "@aws-sdk/client-ec2", true],
  ["test/cloud/conformance.ts", "@aws-sdk/client-ec2", false],
  ["src/cloud/cloudflare/a.ts", "@aws-sdk/client-s3", true],
  ["src/cloud/cloudflare/a.ts", "@aws-sdk/client-ec2", false],
  ["src/logs/s3-store.ts", "@aws-sdk/client-s3", true],
  ["src/logs/s3-store.ts", "@aws-sdk/client-sts", false],
  ["src/logs/file-store.ts", "@aws-sdk/client-s3", false],
  ["src/cloud/cloudflare/a.ts", "../aws/b.ts", false],
  ["src/cloud/account.ts", "./cloudflare/b.ts", false],
  ["src/registries/a.ts", "../cloud/account.ts", true],
  ["src/registries/a.ts", "../cloud/aws/b.ts", false],
  ["src/registries/a.ts", "../kube/b.ts", false],
  ["src/discovery/a.ts", "../cloud/account.ts", true],
  ["src/discovery/a.ts", "../cloud/aws/b.ts", false],
  ["src/discovery/a.ts", "../facade/b.ts", false],
  ["src/discovery/a.ts", "../controllers/b.ts", false],
  ["src/cloud/gcp/a.ts", "@google-cloud/compute", true],
  ["src/operator.ts", "@google-cloud/compute", false],
  ["src/cloud/aws/a.ts", "@azure/identity", false],
  ["src/cloud/local/a.ts", "dockerode", true],
  ["src/cloud/aws/a.ts", "dockerode", false],
  ["src/cloud/local/decide.ts", "node:fs", false],
  ["src/machines/a.ts", "../apis/b.ts", true],
  ["src/machines/a.ts", "../router/b.ts", false],
  ["src/machines/a.ts", "node:fs", false],
  ["src/cloud/aws/a.ts", "../../machines/b.ts", true],
  ["src/catalogue/a.ts", "../machines/b.ts", true],
  ["src/router/a.ts", "../apis/b.ts", true],
  ["src/router/a.ts", "../machines/b.ts", true],
  ["src/placement/a.ts", "../machines/b.ts", true],
  ["src/router/a.ts", "node:fs", false],
  ["src/router/a.ts", "../catalogue/b.ts", false],
  ["src/limits/a.ts", "../kube/store.ts", true],
  ["src/limits/a.ts", "../controllers/job/b.ts", false],
  ["src/placement/a.ts", "../limits/b.ts", false],
  ["src/placement/a.ts", "../apis/b.ts", true],
  ["src/placement/a.ts", "../router/b.ts", true],
  ["src/placement/a.ts", "../catalogue/offers.ts", true],
  ["src/placement/a.ts", "../catalogue/b.ts", false],
  ["src/placement/a.ts", "../kube/store.ts", false],
  ["src/placement/a.ts", "../controllers/job/b.ts", false],
  ["src/placement/a.ts", "../facade/b.ts", false],
  ["src/placement/a.ts", "node:fs", false],
  ["src/controllers/job/a.ts", "../../placement/b.ts", true],
  ["src/router/a.ts", "../placement/b.ts", false],
  ["src/catalogue/a.ts", "../router/b.ts", true],
  ["src/catalogue/a.ts", "../kube/b.ts", false],
  ["src/logs/a.ts", "../facade/b.ts", false],
  ["src/uploads/a.ts", "../facade/b.ts", false],
  ["src/uploads/s3-store.ts", "@aws-sdk/client-s3", true],
  ["src/identity/a.ts", "../kube/b.ts", true],
  ["src/identity/a.ts", "../controllers/b.ts", false],
  ["src/telemetry/a.ts", "../cloud/b.ts", false],
  ["src/smoke/a.ts", "./b.ts", true],
  ["src/smoke/a.ts", "../apis/b.ts", false],
  ["src/client/a.ts", "./b.ts", true],
  ["src/client/a.ts", "../apis/b.ts", false],
  ["src/client/a.ts", "../apis/rest-names.ts", true],
  ["src/client/a.ts", "../apis/trouble.ts", true],
  ["src/cli/a.ts", "../client/b.ts", true],
  ["src/cli/commands/a.ts", "../../client/b.ts", true],
  ["src/cli/a.ts", "../apis/quantity.ts", true],
  ["src/cli/commands/a.ts", "../../smoke/b.ts", true],
  ["src/console/a.ts", "../smoke/b.ts", false],
  ["src/cli/a.ts", "../apis/job.ts", true],
  ["src/cli/a.ts", "../kube/client.ts", false],
  ["src/cli/a.ts", "../facade/b.ts", false],
  ["src/facade/a.ts", "../client/b.ts", false],
  ["src/facade/a.ts", "../cli/b.ts", false],
  ["src/client/a.ts", "node:crypto", false],
  ["src/console/a.ts", "../client/b.ts", true],
  ["src/console/pages/a.tsx", "../../client/b.ts", true],
  ["src/console/pages/a.tsx", "../parts/b.tsx", true],
  ["src/console/a.ts", "../apis/b.ts", false],
  ["src/console/a.ts", "../facade/console/b.ts", false],
  ["src/console/a.ts", "node:fs", false],
  ["src/console/parts/a.tsx", "preact", true],
  ["src/cli/a.ts", "../console/b.ts", false],
  ["src/facade/a.ts", "../console/b.ts", false],
  ["src/facade/a.ts", "./console/b.ts", true],
  ["src/agent/a.ts", "../apis/b.ts", true],
  ["src/agent/a.ts", "../kube/b.ts", false],
  ["src/gateway/a.ts", "../agent/protocol.ts", true],
  ["src/gateway/a.ts", "../controllers/b.ts", false],
  ["src/http/a.ts", "../identity/b.ts", true],
  ["src/http/a.ts", "../facade/b.ts", false],
  ["src/http/a.ts", "../gateway/b.ts", false],
  ["src/gateway/a.ts", "../http/b.ts", true],
  ["src/gateway/a.ts", "../facade/b.ts", false],
  ["src/facade/jobs/routes.ts", "../../gateway/b.ts", true],
  ["src/facade/jobs/routes.ts", "../../http/b.ts", true],
  ["src/facade/jobs/routes.ts", "../../placement/b.ts", true],
  ["src/facade/jobs/routes.ts", "../../cloud/cloud.ts", false],
  ["src/facade/jobs/routes.ts", "../../discovery/b.ts", false],
  ["src/facade/keys/translate.ts", "node:crypto", true],
  ["src/facade/keys/translate.ts", "../../kube/client.ts", false],
  ["src/facade/jobs/record.ts", "express", false],
  ["src/facade/jobs/jobs.ts", "../../kube/client.ts", true],
  ["src/facade/a.ts", "../../dev/b.ts", false],
  ["src/main.ts", "../dev/b.ts", false],
  ["src/facade/a.ts", "../options.ts", false],
  ["src/facade/a.ts", "../operator.ts", false],
  ["dev/a.ts", "../src/operator.ts", true],
  ["dev/a.ts", "../src/options.ts", true],
  ["dev/controlplane/a.ts", "../../src/apis/b.ts", true],
]

/** All forms of an import, which the rule must treat alike. */
const FORMS = [
  (from: string) => `import { x } from "${from}"\nx()\n`,
  (from: string) => `import type { X } from "${from}"\nexport type Y = X\n`,
  (from: string) => `export { x } from "${from}"\n`,
  (from: string) => `export * from "${from}"\n`,
  (from: string) => `export const x = await import("${from}")\n`,
]

interface Diagnostic {
  category: string
  location: { path: string | { file: string } }
}

/** Biome's updates may break the plugin, so this suite checks that it still finds each violation. */
describe("linter rule for the direction of imports", () => {
  let folder: string
  let refused: Set<string>
  const root = dirname(import.meta.dirname)
  const pathOf = (index: number, form: number, file: string) => join(`${index}-${form}`, file)

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "berth-imports-"))
    await copyFile(join(root, "scripts", "imports.grit"), join(folder, "imports.grit"))
    await writeFile(
      join(folder, "biome.json"),
      JSON.stringify({ root: true, plugins: ["./imports.grit"], linter: { rules: { preset: "none" } } }),
    )
    for (const [index, [file, specifier]] of CASES.entries()) {
      for (const [form, write] of FORMS.entries()) {
        const path = join(folder, pathOf(index, form, file))
        await mkdir(dirname(path), { recursive: true })
        await writeFile(path, write(specifier))
      }
    }
    refused = await lint(folder)
  })
  afterAll(() => rm(folder, { recursive: true }))

  it.each(CASES)("%s, %s: %s", (file, specifier, allowed) => {
    const index = CASES.findIndex((each) => each[0] === file && each[1] === specifier)
    const found = FORMS.map((_, form) => !refused.has(pathOf(index, form, file)))
    expect(found).toEqual(FORMS.map(() => allowed))
  })

  /** Returns the files that the plugin reports. */
  async function lint(cwd: string): Promise<Set<string>> {
    const biome = join(root, "node_modules", "@biomejs", "biome", "bin", "biome")
    const arguments_ = [biome, "lint", "--reporter=json", "--max-diagnostics=none", "."]
    const options = { cwd, maxBuffer: 64 * 1024 * 1024 }
    const { stdout } = await promisify(execFile)(process.execPath, arguments_, options).catch(
      // With findings, it exits with 1. Only its report matters.
      (error: { stdout: string }) => error,
    )
    const { diagnostics } = JSON.parse(stdout) as { diagnostics: Diagnostic[] }
    return new Set(
      diagnostics
        .filter(({ category }) => category === "plugin")
        .map(({ location: { path } }) => (typeof path === "string" ? path : path.file)),
    )
  }
})
