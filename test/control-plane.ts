import { execFile } from "node:child_process"
import { randomBytes } from "node:crypto"
import { promisify } from "node:util"
import { CoreV1Api, KubeConfig } from "@kubernetes/client-node"
import { beforeAll, inject } from "vitest"
import type { ControlPlane } from "../dev/controlplane/control-plane.ts"
import { startThrowaway, type ThrowawayOptions } from "./control-plane.setup.ts"

const run = promisify(execFile)

/** Path of the administrator's kubeconfig of the control plane that all suites of a run share. */
export function kubeconfigPath(): string {
  return inject("kubeconfigPath")
}

/** That kubeconfig, loaded. */
export function kubeConfig(): KubeConfig {
  const config = new KubeConfig()
  config.loadFromFile(kubeconfigPath())
  return config
}

/**
 * Gives the suite a namespace of its own, made before its tests. It stays until the control plane ends: the finalizers of
 * controllers that have stopped would keep the API server retrying its deletion. Call it where beforeAll may be called.
 * Returns its name, which starts with `prefix` (a DNS label of at most 50 characters).
 */
export function testNamespace(prefix: string): string {
  const name = `${prefix}-${randomBytes(4).toString("hex")}`
  beforeAll(async () => {
    await kubeConfig()
      .makeApiClient(CoreV1Api)
      .createNamespace({ body: { metadata: { name } } })
  })
  return name
}

/**
 * Runs kubectl as the administrator; `input` is its standard input (`-f -`). Returns its standard output. Throws an
 * Error whose message holds its standard error when it fails.
 */
export async function kubectl(args: readonly string[], input = ""): Promise<string> {
  const command = ["--kubeconfig", kubeconfigPath(), ...args]
  const running = run(inject("kubectlPath"), command, { maxBuffer: 64 * 1024 * 1024 })
  // One that fails before it has read this says so itself.
  running.child.stdin?.on("error", () => undefined).end(input)
  return (await running).stdout
}

/**
 * Starts a control plane for one suite alone, which may restart or kill its parts. The suite must call its stop(),
 * which also removes its data.
 */
export function startPrivateControlPlane(options: ThrowawayOptions = {}): Promise<ControlPlane> {
  return startThrowaway(inject("controlPlaneBinaries"), (error) => console.error(error), options)
}
