import { cp, mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { isDeepStrictEqual } from "node:util"
import { afterAll, beforeAll, describe, expect, test } from "vitest"
import type { StoredJob } from "../../src/core/apis/job.ts"
import { isOver, type StoredLaunch } from "../../src/core/apis/launch.ts"
import { ensureInstallation, readInstallation } from "../../src/core/identity/installation.ts"
import { CONFIG_MAPS, NAMESPACES, SECRETS } from "../../src/core/kube/core.ts"
import { ifFound } from "../../src/core/kube/errors.ts"
import { events } from "../../src/core/kube/events.ts"
import { JOBS, LAUNCHES } from "../../src/core/resources.ts"
import { fixedOffers } from "../../src/market/catalogue/offers.ts"
import { INSTALLATION_CONFIG_MAP } from "../../src/operator/installation/copy-guard.ts"
import { OFFERS } from "../harness/builders.ts"
import { Cluster, startServers } from "../harness/cluster.ts"
import { confirmedProject } from "../harness/confirmed-project.ts"
import { until } from "../harness/eventually.ts"
import { ShiftedClock } from "../harness/shifted-clock.ts"
import { SimCloud } from "../harness/sim-cloud.ts"
import { SYSTEM_NAMESPACE } from "../harness/system-namespace.ts"

const PROJECT = "team"
const DAY = 86_400

/** The only thing that the clusters share, besides the network. */
const cloudClock = new ShiftedClock()
const cloud = new SimCloud(cloudClock)

/** A cluster that may be a copy of another one, with one project. */
class CopiedCluster extends Cluster {
  static async start(dataDir: string): Promise<CopiedCluster> {
    const cluster = new CopiedCluster(await startServers(dataDir), {
      clock: new ShiftedClock(),
      logsDir: join(dataDir, "logs"),
      market: { offers: fixedOffers(OFFERS), ownAccounts: [{ cloud: "sim", region: "here" }] },
      operator: { clouds: cloud, copyCheckSeconds: 0.5 },
      facade: { clouds: ["sim"], ownAccounts: [] },
    })
    await cluster.install()
    return cluster
  }

  async submit(name: string): Promise<void> {
    await this.client.create(JOBS, { metadata: { name, namespace: PROJECT }, spec: { image: "busybox" } } as StoredJob)
  }

  async launchOf(job: string): Promise<StoredLaunch | undefined> {
    return (await this.launchesOf(job))[0]
  }

  /** Resolves with the VM of the job's first Launch. */
  async vmOf(job: string): Promise<string> {
    await until(`${job} has a VM`, async () => (await this.launchOf(job))?.status?.vm?.id !== undefined)
    return (await this.launchOf(job))?.status?.vm?.id ?? ""
  }

  async cancel(name: string): Promise<void> {
    await this.client.patch(JOBS, { namespace: PROJECT, name }, { merge: { spec: { cancelled: true } } })
  }

  async copyOf(): Promise<string | undefined> {
    const ref = { namespace: SYSTEM_NAMESPACE, name: INSTALLATION_CONFIG_MAP }
    return (await ifFound(this.client.get(CONFIG_MAPS, ref)))?.data?.["copyOf"]
  }

  /** Returns what /readyz and the metric of the copy say. */
  async health(): Promise<[number, string | undefined]> {
    const { metricsUrl } = this.operator
    const ready = await fetch(`${metricsUrl}/readyz`)
    const metrics = await (await fetch(`${metricsUrl}/metrics`)).text()
    return [ready.status, /^berth_cluster_is_copy.* (\d)$/m.exec(metrics)?.[1]]
  }

  /**
   * Resolves after the operator has checked its gateways several times more. Its lease is renewed, and every controller
   * that ran would have acted.
   */
  async checks(): Promise<void> {
    const held = () => this.lines.filter((line) => line.includes("this cluster is a copy")).length
    const before = held()
    await until("three more checks", async () => held() >= before + 3)
  }
}

let folder: string
let gatewayUrl: string
let original: CopiedCluster
let copy: CopiedCluster
const vms = new Map<string, string>()

function alive(): string[] {
  return cloud.alive.map(({ id }) => id).sort()
}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "berth-copied-"))
  const before = await CopiedCluster.start(join(folder, "original"))
  gatewayUrl = await before.startFacade()
  await before.client.create(NAMESPACES, { metadata: { name: PROJECT } })
  await confirmedProject(before.client, { name: PROJECT, organization: "o", namespace: PROJECT })
  await before.startOperator(gatewayUrl)
  for (const job of ["running", "cancelled", "booting"]) {
    await before.submit(job)
    vms.set(job, await before.vmOf(job))
  }
  for (const job of ["running", "cancelled"]) {
    const launch = (await before.launchOf(job))?.metadata.name ?? ""
    await before.reports.register(launch)
    await before.reports.start(launch)
  }
  await before.stop()
  await cp(join(folder, "original"), join(folder, "copy"), { recursive: true })
  original = await CopiedCluster.start(join(folder, "original"))
  expect(await original.startFacade(Number(new URL(gatewayUrl).port))).toBe(gatewayUrl)
  await original.startOperator(gatewayUrl)
  await original.submit("later")
  vms.set("later", await original.vmOf("later"))
  copy = await CopiedCluster.start(join(folder, "copy"))
  // A VM's lifetime, its time to boot and the age of an orphan are over in the copy.
  copy.clock.advance(DAY)
})
afterAll(async () => {
  await copy?.stop()
  await original?.stop()
  await rm(folder, { recursive: true, force: true })
})

describe("a copy of a cluster, beside the original", () => {
  test("neither launches VMs nor ends those of the original, and says what to do", async () => {
    await copy.submit("copied")
    await copy.cancel("cancelled")
    await copy.startOperator(gatewayUrl)
    await copy.checks()

    expect(alive()).toEqual([...vms.values()].sort())
    expect(await copy.launchOf("copied")).toBeUndefined()
    expect(await copy.copyOf()).toBe(gatewayUrl)
    expect(await copy.health()).toEqual([503, "1"])
    expect(await original.health()).toEqual([200, "0"])
    await until("an event", async () => {
      const { items } = await copy.client.list(events, { namespace: SYSTEM_NAMESPACE })
      return items.some(({ reason, message }) => reason === "CopiedCluster" && message.includes("delete the ConfigMap"))
    })
  })

  test("neither launches VMs nor ends those of the original if it has a gateway of its own, too", async () => {
    await copy.stopOperator()
    await copy.startOperator(await copy.startFacade())
    await copy.checks()
    expect(alive()).toEqual([...vms.values()].sort())
    expect(await copy.launchOf("copied")).toBeUndefined()
    await copy.stopFacade()
  })

  test("neither launches nor ends VMs although the gateway of the original stops, and its operator starts again", async () => {
    await original.stopFacade()
    await copy.stopOperator()
    await copy.startOperator(gatewayUrl)
    await copy.checks()
    expect(alive()).toEqual([...vms.values()].sort())
    expect(await copy.launchOf("copied")).toBeUndefined()
    await original.startFacade(Number(new URL(gatewayUrl).port))
  })

  test("neither launches nor ends VMs if only the Secret was copied, as by a GitOps tool", async () => {
    const other = await CopiedCluster.start(join(folder, "other"))
    try {
      const { data = {}, type = "" } = await original.client.get(SECRETS, {
        namespace: SYSTEM_NAMESPACE,
        name: "berth-installation",
      })
      await other.client.create(SECRETS, {
        metadata: { namespace: SYSTEM_NAMESPACE, name: "berth-installation" },
        type,
        data,
      })
      await other.client.create(NAMESPACES, { metadata: { name: PROJECT } })
      await confirmedProject(other.client, { name: PROJECT, organization: "o", namespace: PROJECT })
      await other.submit("first")
      other.clock.advance(DAY)
      await other.startOperator(gatewayUrl)
      await other.checks()
      expect(alive()).toEqual([...vms.values()].sort())
      expect(await other.launchOf("first")).toBeUndefined()
    } finally {
      await other.stop()
    }
  })
})

describe("the original", () => {
  test("launches and ends VMs as before, and sweeps its orphans", async () => {
    await original.submit("next")
    vms.set("next", await original.vmOf("next"))
    await original.cancel("cancelled")
    await until("the VM of the cancelled job is ended", async () => !alive().includes(vms.get("cancelled") ?? ""))
    vms.delete("cancelled")
    const { id } = (await readInstallation(original.client, SYSTEM_NAMESPACE)) ?? { id: "" }
    const orphan = cloud.plant(id, "0b7f-1", new Date(Date.now() - DAY * 1000).toISOString())
    await until("the orphan is ended", async () => {
      original.clock.advance(20)
      return !alive().includes(orphan.id)
    })
    // No agent registers here. So the VMs that were there have been replaced after their time to boot.
    await until("each VM has a Launch that lives, and each such Launch its VM", async () => {
      const { items } = await original.client.list(LAUNCHES, { namespace: SYSTEM_NAMESPACE })
      const known = items.filter((launch) => !isOver(launch)).map(({ status }) => status?.vm?.id ?? "")
      return known.length > 0 && isDeepStrictEqual(alive(), known.sort())
    })
    expect(alive()).not.toContain(orphan.id)
  })

  test("gives its work to the copy when its gateway leads there", async () => {
    await original.stopFacade()
    await copy.startFacade(Number(new URL(gatewayUrl).port))
    await copy.vmOf("copied")
    expect(await copy.copyOf()).toBeUndefined()
    await until("the original notices", async () => (await original.copyOf()) === gatewayUrl)
    await original.checks()
    expect(await copy.health()).toEqual([200, "0"])
  })
})

test("a cluster of its own has a key of its own: its gateway proves nothing to others", async () => {
  const key = (await ensureInstallation(original.client, "default")).bootstrapKey
  const { askGateway } = await import("../../src/operator/installation/ask.ts")
  const { bootstrapKey } = (await readInstallation(copy.client, SYSTEM_NAMESPACE)) ?? { bootstrapKey: key }
  const signal = AbortSignal.timeout(60_000)
  expect(await askGateway(gatewayUrl, key, signal)).toBeUndefined()
  expect(await askGateway(gatewayUrl, bootstrapKey, signal)).toMatch(/./)
})
