import { execFile } from "node:child_process"
import { access } from "node:fs/promises"
import { join } from "node:path"
import { promisify } from "node:util"
import { type GoProgram, goProgram } from "../go-program.ts"

const run = promisify(execFile)

/** Pinned version: the rendered chart depends on it. */
const HELM: GoProgram = { name: "helm", package: "helm.sh/helm/v3/cmd/helm", version: "v3.22.0" }

/** Folder of the chart as users get it. */
export const CHART = join(import.meta.dirname, "..", "..", "charts", "berth")

/** Returns the path of the real helm: beside the Kubernetes programs if it is there, else built by Go once. */
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

/** Runs helm and returns its output. @throws Error with helm's message */
export async function helm(args: readonly string[], env: Record<string, string> = {}): Promise<string> {
  const { stdout } = await run(await helmProgram(), args, {
    env: { ...process.env, ...env },
    maxBuffer: 64 * 1024 ** 2,
  })
  return stdout
}
