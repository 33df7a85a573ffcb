import { mkdtemp, rm } from "node:fs/promises"
import type { RequestOptions } from "node:https"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { CoreV1Api, KubeConfig } from "@kubernetes/client-node"
import { Pool } from "undici"
import { findBinaries } from "../dev/controlplane/binaries.ts"
import { startControlPlane } from "../dev/controlplane/control-plane.ts"
import { cacheDirectory } from "../dev/controlplane/programs.ts"
import { KubeClient } from "../src/kube/client.ts"
import { CONFIG_MAPS, type ConfigMap } from "../src/kube/core.ts"
import type { ApiObject } from "../src/kube/resource.ts"
import { type BenchContext, type BenchResult, compare, spreadOf } from "./result.ts"

const CONCURRENCY = 32
const ROUNDS = 11
const SECONDS_PER_TURN = 2
const NAMESPACE = "bench"

type Name = "ours" | "client-node" | "bare pool"

/** All orders, so that no contender always runs after the same one: the server still cleans up after it. */
const ORDERS = [
  [0, 1, 2],
  [2, 1, 0],
  [1, 0, 2],
  [2, 0, 1],
  [1, 2, 0],
  [0, 2, 1],
]

/** One way to create a ConfigMap. Resolves with the stored object's name. */
interface Contender {
  name: Name
  create(object: ConfigMap): Promise<string | undefined>
  close(): Promise<void>
}

/**
 * Measures creates a second on a real API server. Contenders are Berth's client, @kubernetes/client-node with its
 * defaults, and an undici pool that only posts and parses. They take turns, so that other load of the machine affects
 * all of them. The controller manager is suspended meanwhile.
 */
export async function run(context: BenchContext): Promise<BenchResult> {
  const dataDir = await mkdtemp(join(tmpdir(), "berth-bench-"))
  const binaries = await findBinaries({
    assetsDir: context.assetsDir,
    cacheDir: cacheDirectory(context.cacheHome),
    report: context.report,
  })
  const controlPlane = await startControlPlane({ binaries, dataDir, durable: false })
  try {
    const kubeConfig = new KubeConfig()
    kubeConfig.loadFromFile(controlPlane.kubeconfigPath)
    // The controller manager reacts to every change of the namespace with work that is not the clients'.
    process.kill(controlPlane.pids["kube-controller-manager"], "SIGSTOP")
    return await measureAll(kubeConfig, context)
  } finally {
    process.kill(controlPlane.pids["kube-controller-manager"], "SIGCONT")
    await controlPlane.stop()
    await rm(dataDir, { recursive: true, force: true })
  }
}

async function measureAll(kubeConfig: KubeConfig, context: BenchContext): Promise<BenchResult> {
  await kubeConfig.makeApiClient(CoreV1Api).createNamespace({ body: { metadata: { name: NAMESPACE } } })
  const contenders = [ours(kubeConfig), stock(kubeConfig), await bare(kubeConfig)]
  const rates: Record<Name, number[]> = { ours: [], "client-node": [], "bare pool": [] }
  // The first round warms up connections, code and the server's caches.
  for (let round = 0; round <= ROUNDS; round++) {
    const line: string[] = []
    for (const turn of ORDERS[round % ORDERS.length] ?? []) {
      const contender = contenders[turn] as Contender
      const rate = await createsPerSecond(contender)
      if (round > 0) rates[contender.name].push(rate)
      line.push(`${contender.name} ${Math.round(rate)}`)
    }
    context.report(`round ${round} of ${ROUNDS}, creates a second: ${line.join(", ")}`)
    await deleteAll(kubeConfig)
  }
  await Promise.all(contenders.map((contender) => contender.close()))
  return {
    name: "client",
    rows: [
      compare("creates a second, against stock client-node", rates.ours, rates["client-node"], 5),
      compare("creates a second, against a bare undici pool", rates.ours, rates["bare pool"], 0.85),
    ],
    spread: Object.fromEntries(Object.entries(rates).map(([name, values]) => [name, spreadOf(values)])),
  }
}

async function createsPerSecond(contender: Contender): Promise<number> {
  const startedAt = performance.now()
  const endsAt = startedAt + SECONDS_PER_TURN * 1000
  let created = 0
  const worker = async (id: number): Promise<void> => {
    for (let n = 0; performance.now() < endsAt; n++) {
      const name = `c-${Math.round(startedAt)}-${id}-${n}`
      const stored = await contender.create({ metadata: { namespace: NAMESPACE, name }, data: { key: "value" } })
      if (stored !== name) throw new Error(`${contender.name} stored ${stored} instead of ${name}`)
      created++
    }
  }
  await Promise.all(Array.from({ length: CONCURRENCY }, (_, id) => worker(id)))
  return created / ((performance.now() - startedAt) / 1000)
}

function ours(kubeConfig: KubeConfig): Contender {
  const client = new KubeClient(kubeConfig, { maxConcurrent: CONCURRENCY })
  return {
    name: "ours",
    create: async (object) => (await client.create(CONFIG_MAPS, object)).metadata.name,
    close: () => client.close(),
  }
}

function stock(kubeConfig: KubeConfig): Contender {
  const api = kubeConfig.makeApiClient(CoreV1Api)
  return {
    name: "client-node",
    create: async ({ metadata: { namespace = NAMESPACE, name }, data = {} }) => {
      const stored = await api.createNamespacedConfigMap({ namespace, body: { metadata: { namespace, name }, data } })
      return stored.metadata?.name
    },
    close: async () => undefined,
  }
}

async function bare(kubeConfig: KubeConfig): Promise<Contender> {
  const tls: RequestOptions = {}
  await kubeConfig.applyToHTTPSOptions(tls)
  const { ca, cert, key } = tls as { ca: Buffer; cert: Buffer; key: Buffer }
  const server = kubeConfig.getCurrentCluster()?.server ?? ""
  const pool = new Pool(server, { connections: CONCURRENCY, allowH2: false, connect: { ca, cert, key } })
  const path = `/api/v1/namespaces/${NAMESPACE}/configmaps`
  return {
    name: "bare pool",
    create: async (object) => {
      const body = JSON.stringify({ apiVersion: "v1", kind: "ConfigMap", ...object })
      const answer = await pool.request({ method: "POST", path, headers: { "content-type": "application/json" }, body })
      return ((await answer.body.json()) as ApiObject).metadata.name
    },
    close: () => pool.close(),
  }
}

/** Keeps the store small, so that all turns have the same conditions. */
async function deleteAll(kubeConfig: KubeConfig): Promise<void> {
  await kubeConfig.makeApiClient(CoreV1Api).deleteCollectionNamespacedConfigMap({ namespace: NAMESPACE })
}
