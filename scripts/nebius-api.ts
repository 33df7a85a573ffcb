import { execFileSync } from "node:child_process"
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"

/**
 * Writes `src/clouds/nebius/api.json`: Nebius' published description of the services that Berth calls, with the rules for
 * their fields. Needs `protoc` on the path, a clone of https://github.com/nebius/api, and folders with
 * `buf/validate/validate.proto` (https://github.com/bufbuild/protovalidate) and `google/rpc/status.proto`.
 *
 * Usage: node scripts/nebius-api.ts CLONE FOLDER...
 */

/** Files whose services are called, or whose messages are in answers as `Any`. */
const FILES = [
  ...["compute/v1/instance_service", "compute/v1/disk_service", "compute/v1/image_service"],
  ...["common/v1/operation_service", "common/v1/error"],
  ...["iam/v1/token_exchange_service", "iam/v1/project_service"],
  ...["vpc/v1/subnet_service", "vpc/v1/security_group_service", "vpc/v1/security_rule_service"],
  ...["billing/v1/calculator_service", "quotas/v1/quota_allowance_service"],
].map((name) => `nebius/${name}.proto`)

const [clone = "", ...includes] = process.argv.slice(2)
const folder = mkdtempSync(join(tmpdir(), "nebius-api-"))
try {
  const output = join(folder, "api.binpb")
  const paths = [clone, ...includes].map((path) => `-I${path}`)
  execFileSync("protoc", [...paths, "--include_imports", `--descriptor_set_out=${output}`, ...FILES])
  const commit = execFileSync("git", ["-C", clone, "rev-parse", "HEAD"], { encoding: "utf8" }).trim()
  const api = {
    source: "https://github.com/nebius/api",
    commit,
    license: "MIT, Copyright (c) 2024 Nebius B.V.; the imported files of Buf and Google: Apache 2.0",
    madeBy: "scripts/nebius-api.ts",
    fileDescriptorSet: readFileSync(output).toString("base64"),
  }
  writeFileSync(join(import.meta.dirname, "../src/clouds/nebius/api.json"), `${JSON.stringify(api, null, 2)}\n`)
} finally {
  rmSync(folder, { recursive: true })
}
