import { mkdtemp, readdir, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import type { TestProject } from "vitest/node"
import { findBinaries, findKubectl, type SearchOptions } from "../dev/controlplane/binaries.ts"
import { type ControlPlane, type ControlPlaneOptions, startControlPlane } from "../dev/controlplane/control-plane.ts"
import { LockHeldError, takeLock } from "../dev/controlplane/lock.ts"
import { type Binaries, cacheDirectory } from "../dev/controlplane/programs.ts"

const DIRECTORY_PREFIX = "berth-test-control-plane-"

declare module "vitest" {
  interface ProvidedContext {
    /** Administrator's kubeconfig of the run's control plane. */
    readonly kubeconfigPath: string
    /** Path of kubectl. */
    readonly kubectlPath: string
    /** The servers' executables, for suites that start a control plane of their own. */
    readonly controlPlaneBinaries: Binaries
  }
}

let shared: Promise<Shared> | undefined
let users = 0

/**
 * Provides a tier's suites with the only control plane of this run. Returns a function that stops it after the last
 * suite.
 */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  users++
  shared ??= startShared()
  const { controlPlane, binaries, kubectlPath } = await shared
  project.provide("kubeconfigPath", controlPlane.kubeconfigPath)
  project.provide("kubectlPath", kubectlPath)
  project.provide("controlPlaneBinaries", binaries)
  return async () => {
    if (--users === 0) await controlPlane.stop()
  }
}

interface Shared {
  controlPlane: ControlPlane
  binaries: Binaries
  kubectlPath: string
}

/** @throws Error with advice if the servers or kubectl are missing: no test could run */
async function startShared(): Promise<Shared> {
  const search: SearchOptions = {
    assetsDir: process.env["KUBEBUILDER_ASSETS"] || undefined,
    cacheDir: cacheDirectory(process.env["XDG_CACHE_HOME"]),
    report: (line) => console.log(`control plane: ${line}`),
  }
  await removeAbandoned()
  const binaries = await findBinaries(search)
  const kubectlPath = await findKubectl(search)
  return { controlPlane: await startThrowaway(binaries, (error) => console.error(error)), binaries, kubectlPath }
}

/** Options of a control plane that single suites need. */
export type ThrowawayOptions = Pick<ControlPlaneOptions, "audit" | "controllers">

/** Starts a control plane with temporary data; its stop() removes the data. */
export async function startThrowaway(
  binaries: Binaries,
  onFailure: (error: Error) => void,
  more: ThrowawayOptions = {},
): Promise<ControlPlane> {
  const dataDir = await mkdtemp(join(tmpdir(), DIRECTORY_PREFIX))
  const controlPlane = await startControlPlane({ binaries, dataDir, durable: false, onFailure, ...more })
  const { stop } = controlPlane
  controlPlane.stop = async () => {
    await stop()
    await rm(dataDir, { recursive: true, force: true })
  }
  return controlPlane
}

/** Removes the data of runs that were killed. */
async function removeAbandoned(): Promise<void> {
  for (const name of await readdir(tmpdir())) {
    if (!name.startsWith(DIRECTORY_PREFIX)) continue
    const dataDir = join(tmpdir(), name)
    try {
      // A directory without a lock file may belong to a run that is just starting.
      if (!(await readdir(dataDir)).includes("lock")) continue
      await takeLock(join(dataDir, "lock"))
      await rm(dataDir, { recursive: true, force: true })
    } catch (error) {
      // Another run may have removed it meanwhile.
      const isGone = error instanceof Error && "code" in error && error.code === "ENOENT"
      if (!isGone && !(error instanceof LockHeldError)) throw error
    }
  }
}
