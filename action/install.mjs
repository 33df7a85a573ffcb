// Downloads the command line of this version, checks it, and prints its path.

import { execFileSync } from "node:child_process"
import { createHash } from "node:crypto"
import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { temporaryFolder } from "./berth.mjs"

const [releases] = process.argv.slice(2)
// The runner has the whole repository at the ref of the action, so a tag and a commit name the same version.
const { version } = JSON.parse(readFileSync(join(import.meta.dirname, "..", "package.json"), "utf8"))
const file = `berth-dev-cli-${version}.tgz`

async function download(name) {
  const address = `${releases.replace(/\/+$/, "")}/v${version}/${name}`
  const answer = await fetch(address)
  if (!answer.ok) throw new Error(`${address} answered ${answer.status}`)
  return Buffer.from(await answer.arrayBuffer())
}

try {
  const [sums, archive] = await Promise.all([download("SHA256SUMS"), download(file)])
  const line = sums
    .toString("utf8")
    .split("\n")
    .find((one) => one.endsWith(`  ${file}`))
  const actual = createHash("sha256").update(archive).digest("hex")
  if (line?.split("  ")[0] !== actual)
    throw new Error(
      `${file} has the SHA-256 ${actual}, and SHA256SUMS has ${line?.split("  ")[0] ?? "none"}: it is not used`,
    )
  const folder = mkdtempSync(join(temporaryFolder(), "berth-cli-"))
  mkdirSync(join(folder, "cli"))
  writeFileSync(join(folder, file), archive)
  execFileSync("tar", ["-xzf", file, "-C", "cli"], { cwd: folder, stdio: "inherit" })
  const { bin } = JSON.parse(readFileSync(join(folder, "cli", "package", "package.json"), "utf8"))
  process.stdout.write(join(folder, "cli", "package", bin.berth))
} catch (error) {
  console.error(`berth: the command line could not be installed: ${error instanceof Error ? error.message : error}`)
  process.exit(1)
}
