import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { setTimeout as delay } from "node:timers/promises"
import { KubeConfig } from "@kubernetes/client-node"
import { Pool } from "undici"
import { installBase } from "../dev/base.ts"
import { findBinaries } from "../dev/controlplane/binaries.ts"
import { type ControlPlane, startControlPlane } from "../dev/controlplane/control-plane.ts"
import { freePort } from "../dev/controlplane/ports.ts"
import { cacheDirectory } from "../dev/controlplane/programs.ts"
import { isBound, type StoredApiKey } from "../src/core/apis/apikey.ts"
import { systemClock } from "../src/core/apis/clock.ts"
import { ANNOTATIONS } from "../src/core/apis/meta.ts"
import { makeApiKey } from "../src/core/identity/apikeys.ts"
import { ensureInstallation, type Installation } from "../src/core/identity/installation.ts"
import { ensureSealingKeys } from "../src/core/identity/sealing-keys.ts"
import { KubeClient } from "../src/core/kube/client.ts"
import { NAMESPACES } from "../src/core/kube/core.ts"
import { EventRecorder } from "../src/core/kube/events.ts"
import { Reflector } from "../src/core/kube/reflector.ts"
import { API_KEYS, ORGANIZATIONS, PROJECTS } from "../src/core/resources.ts"
import { createLogger } from "../src/core/telemetry/logger.ts"
import { createApiKeyController } from "../src/operator/apikey/controller.ts"
import { BINDING_CACHE, MACHINE_USER_CACHE } from "../src/operator/caches.ts"
import { asInImage } from "./image.ts"
import { kubeconfigOf, type Program, SYSTEM_NAMESPACE, startProgram } from "./program.ts"
import type { BenchContext } from "./result.ts"

/** Entry point of all programs. */
export const MAIN = join(import.meta.dirname, "..", "src", "main.ts")

const READY_SECONDS = 120

/** A project, which is a namespace of the same name, and the headers for calling it over REST. */
export interface BenchProject {
  name: string
  /** Has an admin's key. */
  headers: Record<string, string>
}

/** An API server, and a façade as in a deployment: a separate process with the rights of its ServiceAccount. */
export interface FacadeStack {
  /** The API server's administrator. */
  client: KubeClient
  /** URL of the façade, without `/1`. */
  url: string
  /** Connections to the façade. */
  facade: Pool
  facadeUrl: string
  /** Process of the façade. */
  facadePid: number
  controlPlane: ControlPlane
  /** Id and bootstrap key of the installation. */
  installation: Installation
  makeProject(name: string, owner?: string): Promise<BenchProject>
  /** Makes another admin's key of a project. */
  makeKey(project: string, key: string): Promise<BenchProject>
  stop(): Promise<void>
}

/**
 * Starts a stack without an operator, so that jobs stay unchanged. By default the façade has no rate limit, and room
 * for all jobs.
 * @param limits command-line options of the façade's limits
 */
export async function startFacadeStack(
  context: BenchContext,
  connections: number,
  limits: readonly string[] = ["--requests-per-minute", "0", "--project-limits", '{"unfinishedJobs":1000000}'],
): Promise<FacadeStack> {
  const { assetsDir, cacheHome, report } = context
  const folder = await mkdtemp(join(tmpdir(), "berth-bench-"))
  const binaries = await findBinaries({ assetsDir, cacheDir: cacheDirectory(cacheHome), report })
  const controlPlane = await startControlPlane({ binaries, dataDir: join(folder, "control-plane"), durable: false })
  const kubeConfig = new KubeConfig()
  kubeConfig.loadFromFile(controlPlane.kubeconfigPath)
  const client = new KubeClient(kubeConfig, { maxConcurrent: connections })
  await installBase(client, AbortSignal.timeout(READY_SECONDS * 1000))
  const installation = await ensureInstallation(client, SYSTEM_NAMESPACE)
  await ensureSealingKeys(client, SYSTEM_NAMESPACE)
  const tended = startKeyController(client)
  const program = await startFacade(controlPlane, client, { folder, limits })
  const facade = new Pool(program.url, { connections })
  return {
    client,
    url: program.url,
    facade,
    facadeUrl: program.url,
    facadePid: program.pid,
    controlPlane,
    installation,
    makeProject: (name, owner) => makeProject(client, name, owner),
    makeKey: (project, key) => makeKey(client, project, key),
    stop: async () => {
      await facade.close()
      await program.stop()
      await tended.stop()
      await client.close()
      await controlPlane.stop()
      await rm(folder, { recursive: true, force: true })
    },
  }
}

/** Gives API keys their machine users, like the operator. */
function startKeyController(client: KubeClient): { stop(): Promise<void> } {
  const logger = createLogger({ level: "warn", name: "bench" })
  const apiKeys = new Reflector({ client, resource: API_KEYS, logger })
  const users = new Reflector({ client, ...MACHINE_USER_CACHE, logger })
  const bindings = new Reflector({ client, ...BINDING_CACHE, logger })
  const recorder = new EventRecorder({ client, component: "berth-operator", instance: "bench", logger })
  const controller = createApiKeyController({ client, apiKeys, users, bindings, clock: systemClock, recorder, logger })
  const stop = new AbortController()
  const loops = [apiKeys, users, bindings].map((reflector) => reflector.run(stop.signal))
  const running = controller.run(stop.signal, { abort: stop.signal })
  return {
    stop: async () => {
      stop.abort()
      await Promise.all([running, ...loops])
      await recorder.flush()
    },
  }
}

async function startFacade(
  controlPlane: ControlPlane,
  client: KubeClient,
  { folder, limits }: { folder: string; limits: readonly string[] },
): Promise<Program & { url: string }> {
  const kubeconfig = await kubeconfigOf("berth-facade", { controlPlane, client, folder })
  const port = await freePort()
  const url = `http://127.0.0.1:${port}`
  const args = ["--kubeconfig", kubeconfig, "--port", String(port), "--logs-dir", join(folder, "logs")]
  const program = await startProgram({
    name: "facade",
    ...(await asInImage(MAIN)),
    args: ["facade", ...args, ...limits],
    url,
    folder,
  })
  return { ...program, url }
}

/**
 * Creates a project with an admin's key. A controller of keys must run.
 * @param owner id of the person who created its organization; default: unknown
 */
export async function makeProject(client: KubeClient, name: string, owner?: string): Promise<BenchProject> {
  await client.create(NAMESPACES, { metadata: { name } })
  if (owner !== undefined) {
    const metadata = { name, annotations: { [ANNOTATIONS.createdBy]: owner } }
    const members = [{ userId: owner, role: "owner" as const }]
    await client.apply(ORGANIZATIONS, { metadata, spec: { displayName: name, members } })
  }
  await client.apply(PROJECTS, { metadata: { name }, spec: { displayName: name, organization: name, namespace: name } })
  await client.applyStatus(PROJECTS, { metadata: { name }, status: { namespace: name } })
  return makeKey(client, name, "admin")
}

async function makeKey(client: KubeClient, project: string, name: string): Promise<BenchProject> {
  const { value, keyId, tokenHash } = makeApiKey()
  const key = { metadata: { namespace: project, name }, spec: { role: "admin", keyId, tokenHash } }
  await client.create(API_KEYS, key as StoredApiKey)
  const signal = AbortSignal.timeout(READY_SECONDS * 1000)
  while (!isBound(await client.get(API_KEYS, key.metadata))) await delay(50, undefined, { signal })
  return { name: project, headers: { host: `${project}.localhost`, "x-service-api-key": value } }
}
