import { readFileSync } from "node:fs"
import { join, posix } from "node:path"
import { describe, expect, it } from "vitest"
import { ROOMS, violations, violationsIn } from "../scripts/imports.ts"

const ROOT = join(import.meta.dirname, "..")

/** File, its import, and true if the rule allows it. */
const CASES: [file: string, specifier: string, allowed: boolean][] = [
  ["src/core/apis/a.ts", "./b.ts", true],
  ["src/core/apis/a.ts", "../kube/b.ts", false],
  ["src/core/kube/a.ts", "../apis/b.ts", true],
  ["src/core/kube/deeper/a.ts", "../../runtime/b.ts", false],
  ["src/core/runtime/a.ts", "../kube/b.ts", true],
  ["src/core/runtime/a.ts", "../identity/b.ts", false],
  ["src/core/identity/a.ts", "../sealing/b.ts", true],
  ["src/core/identity/a.ts", "../../market/b.ts", false],
  ["src/core/protocol/a.ts", "../kube/b.ts", false],
  ["src/core/apis/a.ts", "../../clouds/definitions.ts", true],
  ["src/core/apis/a.ts", "../../clouds/cloud.ts", false],
  ["src/clouds/cloud.ts", "../core/apis/b.ts", true],
  ["src/clouds/cloud.ts", "./aws/b.ts", false],
  ["src/clouds/registry.ts", "./aws/b.ts", true],
  ["src/clouds/definitions.ts", "./aws/definition.ts", true],
  ["src/clouds/aws/definition.ts", "node:fs", false],
  ["src/clouds/registry.ts", "../market/router/b.ts", false],
  ["src/clouds/definitions.ts", "./aws/definition.ts", true],
  ["src/clouds/rejections.ts", "./aws/rejections.ts", false],
  ["src/clouds/rejections.ts", "node:fs", false],
  ["src/clouds/aws/rejections.ts", "node:fs", false],
  ["src/clouds/aws/a.ts", "../cloud.ts", true],
  ["src/clouds/aws/a.ts", "../gcp/b.ts", false],
  ["src/clouds/aws/a.ts", "@aws-sdk/client-ec2", true],
  ["src/clouds/gcp/a.ts", "@aws-sdk/client-ec2", false],
  ["src/clouds/cloudflare/a.ts", "@aws-sdk/client-s3", true],
  ["src/clouds/cloudflare/a.ts", "@aws-sdk/client-ec2", false],
  ["src/clouds/gcp/a.ts", "@google-cloud/compute", true],
  ["src/clouds/aws/a.ts", "@azure/identity", false],
  ["src/clouds/aws/a.ts", "dockerode", false],
  ["test/cloud/conformance.ts", "@aws-sdk/client-ec2", false],
  ["test/cloud/aws-faults.nightly.test.ts", "@aws-sdk/client-ec2", true],
  ["dev/local-cloud/a.ts", "dockerode", true],
  ["dev/local-cloud/decide.ts", "node:fs", false],
  ["src/clouds/machines/a.ts", "node:fs", false],
  ["src/market/catalogue/a.ts", "../router/b.ts", true],
  ["src/market/catalogue/a.ts", "../../core/kube/b.ts", true],
  ["src/market/router/a.ts", "../../clouds/machines/b.ts", true],
  ["src/market/router/a.ts", "../placement/b.ts", false],
  ["src/market/router/a.ts", "../../core/kube/store.ts", false],
  ["src/market/placement/a.ts", "../router/b.ts", true],
  ["src/market/placement/a.ts", "../catalogue/offers.ts", true],
  ["src/market/placement/a.ts", "../../clouds/rejections.ts", true],
  ["src/market/placement/a.ts", "../../clouds/aws/rejections.ts", false],
  ["src/market/placement/a.ts", "../../clouds/registry.ts", false],
  ["src/market/placement/a.ts", "../catalogue/b.ts", false],
  ["src/market/placement/a.ts", "../../operator/job/b.ts", false],
  ["src/market/placement/a.ts", "node:fs", false],
  ["src/accounts/a.ts", "../clouds/account.ts", true],
  ["src/accounts/a.ts", "../clouds/aws/b.ts", false],
  ["src/accounts/a.ts", "../operator/b.ts", false],
  ["src/operator/job/a.ts", "../launch/b.ts", true],
  ["src/operator/job/a.ts", "../../clouds/cloud.ts", true],
  ["src/operator/job/a.ts", "../../clouds/aws/b.ts", false],
  ["src/operator/job/a.ts", "../../api/b.ts", false],
  ["src/operator/job/a.ts", "node:fs/promises", true],
  ["src/operator/job/decide.ts", "node:fs/promises", false],
  ["src/operator/job/decide.ts", "../../core/kube/client.ts", false],
  ["src/operator/cronjob/schedule.ts", "cron-parser", true],
  ["src/operator/job/a.ts", "../../options.ts", false],
  ["src/operator/main.ts", "../options.ts", true],
  ["src/api/main.ts", "../accounts/b.ts", true],
  ["src/api/main.ts", "../operator/b.ts", false],
  ["src/api/app.ts", "../accounts/b.ts", false],
  ["src/api/app.ts", "../clouds/cloud.ts", false],
  ["src/api/app.ts", "../client/b.ts", false],
  ["src/api/app.ts", "../console/b.ts", false],
  ["src/api/app.ts", "./console/b.ts", true],
  ["src/api/http/a.ts", "../../core/identity/b.ts", true],
  ["src/api/http/a.ts", "../resources/jobs/b.ts", false],
  ["src/api/logs/a.ts", "../app.ts", false],
  ["src/api/logs/s3-store.ts", "@aws-sdk/client-s3", true],
  ["src/api/logs/s3-store.ts", "@aws-sdk/client-sts", false],
  ["src/api/logs/file-store.ts", "@aws-sdk/client-s3", false],
  ["src/api/gateway/a.ts", "../http/b.ts", true],
  ["src/api/gateway/a.ts", "../resources/jobs/b.ts", false],
  ["src/api/gateway/a.ts", "../../agent/b.ts", false],
  ["src/api/resources/jobs/routes.ts", "../../../market/placement/b.ts", true],
  ["src/api/resources/jobs/jobs.ts", "../../../core/kube/client.ts", true],
  ["src/api/resources/keys/translate.ts", "../../../core/kube/client.ts", false],
  ["src/core/records/job.ts", "express", false],
  ["src/agent/a.ts", "../core/apis/b.ts", true],
  ["src/agent/a.ts", "../core/kube/b.ts", false],
  ["src/agent/a.ts", "../clouds/b.ts", false],
  ["src/agent/a.ts", "../clouds/definitions.ts", true],
  ["src/client/a.ts", "../core/apis/trouble.ts", true],
  ["src/client/a.ts", "../core/apis/job.ts", false],
  ["src/client/a.ts", "node:crypto", false],
  ["src/console/pages/a.tsx", "../../client/b.ts", true],
  ["src/console/pages/a.tsx", "../parts/b.tsx", true],
  ["src/console/a.ts", "../core/apis/b.ts", false],
  ["src/console/a.ts", "node:fs", false],
  ["src/console/parts/a.tsx", "preact", true],
  ["src/cli/commands/a.ts", "../../client/b.ts", true],
  ["src/cli/commands/a.ts", "../../smoke/b.ts", true],
  ["src/cli/a.ts", "../core/apis/job.ts", true],
  ["src/cli/a.ts", "../core/kube/client.ts", false],
  ["src/cli/a.ts", "../console/b.ts", false],
  ["src/smoke/a.ts", "../core/apis/b.ts", false],
  ["src/smoke/a.ts", "../client/providers.ts", true],
  ["src/main.ts", "./operator/main.ts", true],
  ["src/main.ts", "../dev/b.ts", false],
  ["src/api/a.ts", "../../dev/b.ts", false],
  ["dev/a.ts", "../src/options.ts", true],
]

/** All forms of an import, which the rule must treat alike. */
const FORMS = [
  (from: string) => `import { x } from "${from}"\nx()\n`,
  (from: string) => `import {\n  x,\n  y,\n} from "${from}"\n`,
  (from: string) => `import type { X } from "${from}"\nexport type Y = X\n`,
  (from: string) => `export { x } from "${from}"\n`,
  (from: string) => `export * from "${from}"\n`,
  (from: string) => `import "${from}"\n`,
  (from: string) => `export const x = await import("${from}")\n`,
  (from: string) => `export type X = import("${from}").Y\n`,
]

/** Returns the packages that a file and the files that it imports load. */
function packagesOf(file: string, seen = new Set<string>()): string[] {
  if (seen.has(file)) return []
  seen.add(file)
  const source = readFileSync(join(ROOT, file), "utf8")
  const found = [...source.matchAll(/^(?:import|export) (?!type )[^"]*? from "([^"]+)"$/gm)].flatMap(
    ([, specifier = ""]) =>
      specifier.startsWith(".") ? packagesOf(posix.join(posix.dirname(file), specifier), seen) : [specifier],
  )
  return [...new Set(found)].sort()
}

describe("the rule for the direction of imports", () => {
  it.each(CASES)("decides for %s, %s: %s", (file, specifier, allowed) => {
    const found = FORMS.map((write) => violationsIn(file, write(specifier)).length === 0)
    expect(found).toEqual(FORMS.map(() => allowed))
  })

  it("finds no violation in the repository", () => {
    expect(violations(ROOT)).toEqual([])
  })

  it("keeps packages other than TypeBox out of the clouds' definitions, which agents load too", () => {
    expect(packagesOf("src/clouds/definitions.ts")).toEqual(["typebox"])
  })

  it("is the table of ARCHITECTURE.md", () => {
    const page = readFileSync(join(ROOT, "ARCHITECTURE.md"), "utf8")
    const [, table = ""] = /\| wing \| may import \|\n\|---\|---\|\n((?:\|.*\n)+)/.exec(page) ?? []
    const rows = table
      .trim()
      .split("\n")
      .map((row) =>
        row
          .split("|")
          .slice(1, 3)
          .map((cell) => cell.trim()),
      )
    const wings = Object.entries(ROOMS).filter(([room]) => !room.includes("/"))
    const cell = (may: readonly string[]) => may.map((each) => `\`${each}\``).join(", ") || "nothing"
    expect(rows).toEqual(wings.map(([wing, may]) => [`\`${wing}\``, cell(may)]))
  })
})
