import { execFile } from "node:child_process"
import { access } from "node:fs/promises"
import { join } from "node:path"
import { promisify } from "node:util"
import { type GoProgram, goProgram } from "../go-program.ts"

const run = promisify(execFile)

/** Pinned: what a chart renders to depends on it. */
const HELM: GoProgram = { name: "helm", package: "helm.sh/helm/v3/cmd/helm", version: "v3.22.0" }

/** The chart, as users get it. */
export const CHART = join(import.meta.dirname, "..", "..", "charts", "berth")

/** The real helm: beside the Kubernetes programs where it is there, else built by Go once. */
export async function helmProgram(): Promise<string> {
  const assets = process.env["KUBEBUILDER_ASSETS"]
  const beside = assets === undefined ? undefined : join(assets, "helm")
  if (beside !== undefined && (await isThere(beside))) return beside
  return await goProgram(HELM)
}

async function isThere(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  )
}

/** Runs helm; what it prints. @throws Error with its own words */
export async function helm(args: readonly string[], env: Record<string, string> = {}): Promise<string> {
  const { stdout } = await run(await helmProgram(), args, {
    env: { ...process.env, ...env },
    maxBuffer: 64 * 1024 ** 2,
  })
  return stdout
}
