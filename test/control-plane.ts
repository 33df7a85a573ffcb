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

/** Returns that kubeconfig, loaded. */
export function kubeConfig(): KubeConfig {
  const config = new KubeConfig()
  config.loadFromFile(kubeconfigPath())
  return config
}

/**
 * Creates a namespace for the suite before its tests, and returns its name. The name starts with `prefix`, a DNS label
 * of at most 50 characters. The namespace stays until the control plane ends: finalizers of stopped controllers would
 * keep the API server retrying its deletion. Call it where `beforeAll` may be called.
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
 * Error with its standard error if it fails.
 */
export async function kubectl(args: readonly string[], input = ""): Promise<string> {
  const command = ["--kubeconfig", kubeconfigPath(), ...args]
  const running = run(inject("kubectlPath"), command, { maxBuffer: 64 * 1024 * 1024 })
  // If kubectl fails before it has read this, the promise below reports the error.
  running.child.stdin?.on("error", () => undefined).end(input)
  return (await running).stdout
}

/**
 * Starts a control plane for one suite, which may restart or kill its parts. The suite must call its stop(), which also
 * removes its data.
 */
export function startPrivateControlPlane(options: ThrowawayOptions = {}): Promise<ControlPlane> {
  return startThrowaway(inject("controlPlaneBinaries"), (error) => console.error(error), options)
}
