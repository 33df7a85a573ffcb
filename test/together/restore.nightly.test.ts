import { execFile } from "node:child_process"
import { cp, mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import { afterAll, beforeAll, expect } from "vitest"
import { installBase } from "../../dev/base.ts"
import type { ControlPlane } from "../../dev/controlplane/control-plane.ts"
import { connect } from "../../src/connect.ts"
import type { KubeClient } from "../../src/core/kube/client.ts"
import { JOBS } from "../../src/core/resources.ts"
import { startServers } from "../harness/cluster.ts"
import { eventually } from "../harness/eventually.ts"
import { missingTool, needing } from "../needing.ts"
import { linkEtcdTools } from "../operate/etcd-tools.ts"
import { randomFrom } from "../random.ts"
import { type Ran, runScenario, type StoppableRun, type Stoppage } from "./run.ts"
import { scenarioOf } from "./scenario.ts"

/** Number of clusters, and the first seed. Each cluster has some projects at the same time. */
const [CLUSTERS, FIRST] = [Number(process.env["BERTH_CLUSTERS"] ?? 10), Number(process.env["BERTH_SCENARIO"] ?? 1)]
const PROJECTS = 4
/** Looks of all projects until the backup, at most, and until the restore after that. */
const LOOKS = 30

/** Servers of a cluster, which are stopped for a backup and come back from it later, while all projects wait. */
class RestoredCluster implements Stoppage {
  readonly #dataDir: string
  readonly #backup: string
  /** Runs that wait. A stop needs all that have not ended, also those that still submit their jobs. */
  readonly #waiting = new Set<StoppableRun>()
  #unended = PROJECTS
  /** Number of projects that came back from the backup. */
  restored = 0
  #servers: ControlPlane
  #isStopping = false
  #running = Promise.withResolvers<void>()
  /** Looks until what happens next, and whether the programs live through it. */
  readonly #next: { looks: number; isLivedThrough: boolean; act: () => Promise<void> }[]

  constructor(servers: ControlPlane, random: () => number) {
    this.#servers = servers
    this.#dataDir = servers.dataDir
    this.#backup = `${servers.dataDir}-backup`
    const drawn = () => ({ looks: 10 + Math.floor(random() * LOOKS), isLivedThrough: random() < 0.5 })
    this.#next = [
      { ...drawn(), act: () => cp(this.#dataDir, this.#backup, { recursive: true }) },
      { ...drawn(), act: () => this.#restore() },
    ]
  }

  async pass(run: StoppableRun): Promise<void> {
    const [next] = this.#next
    if (!this.#isStopping && next !== undefined && --next.looks <= 0) this.#isStopping = true
    if (!this.#isStopping) return
    this.#waiting.add(run)
    const { promise } = this.#running
    await this.#stopOnceAllWait()
    await promise
  }

  /** Takes note that a run has ended. */
  async leave(): Promise<void> {
    this.#unended--
    await this.#stopOnceAllWait()
  }

  async stop(): Promise<void> {
    await this.#servers.stop()
    for (const folder of [this.#dataDir, this.#backup]) await rm(folder, { recursive: true, force: true })
  }

  async #stopOnceAllWait(): Promise<void> {
    if (!this.#isStopping || this.#waiting.size < this.#unended || this.#waiting.size === 0) return
    const next = this.#next.shift()
    if (next?.isLivedThrough === false) for (const run of this.#waiting) run.kill()
    await this.#servers.stop()
    await next?.act()
    this.#servers = await startServers(this.#dataDir)
    const client = connect({ kubeconfig: this.#servers.kubeconfigPath })
    await eventually(() => client.list(JOBS))
    await client.close()
    this.#isStopping = false
    this.#waiting.clear()
    this.#running.resolve()
    this.#running = Promise.withResolvers()
  }

  /** Restores etcd as docs/operate.md says. The copy of a stopped etcd has no hash, unlike a snapshot. */
  async #restore(): Promise<void> {
    const etcd = join(this.#dataDir, "etcd")
    await rm(etcd, { recursive: true })
    const snapshot = join(this.#backup, "etcd", "member", "snap", "db")
    const programs = ["--bump-revision", "1000000000", "--mark-compacted"]
    const restore = ["snapshot", "restore", snapshot, "--skip-hash-check=true", "--data-dir", etcd, ...programs]
    await promisify(execFile)(join(folder, "bin", "etcdutl"), restore)
    for (const run of this.#waiting) run.forget()
    this.restored += this.#waiting.size
  }
}

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "berth-together-"))
  await linkEtcdTools(join(folder, "bin"))
})
afterAll(() => rm(folder, { recursive: true, force: true }))

async function runCluster(index: number): Promise<{ ran: Ran[]; restored: number }> {
  const servers = await startServers(join(folder, `cluster-${index}`))
  const cluster = new RestoredCluster(servers, randomFrom(index))
  const client: KubeClient = connect({ kubeconfig: servers.kubeconfigPath })
  try {
    await installBase(client, AbortSignal.timeout(100_000))
    const seeds = Array.from({ length: PROJECTS }, (_, project) => index * PROJECTS + project)
    const run = (seed: number) => runScenario(scenarioOf(seed), client, cluster).finally(() => cluster.leave())
    const ran = await Promise.all(seeds.map(run))
    return { ran, restored: cluster.restored }
  } finally {
    await client.close()
    await cluster.stop()
  }
}

needing(missingTool("etcd-tools")).it(
  `${CLUSTERS} clusters lose no job and leave no VM after the restore of a backup`,
  async () => {
    const all: Ran[] = []
    let projects = 0
    for (let index = FIRST; index < FIRST + CLUSTERS; index++) {
      const { ran, restored } = await runCluster(index)
      all.push(...ran)
      projects += restored
      for (const { breaches, report } of ran) if (breaches.length > 0) console.error(report)
    }
    console.info(
      `${CLUSTERS} clusters: ${projects} projects restored, ${all.reduce((sum, { jobs }) => sum + jobs, 0)} jobs`,
    )
    expect(all.flatMap(({ breaches }) => breaches)).toEqual([])
  },
  10 * 3600_000,
)
