import { chmod, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, beforeAll, expect, inject } from "vitest"
import { declareKey } from "../../src/core/identity/key-manifest.ts"
import { CONFIG_MAPS, type ConfigMap } from "../../src/core/kube/core.ts"
import { eventually } from "../harness/eventually.ts"
import { ShiftedClock } from "../harness/shifted-clock.ts"
import { SimProvider } from "../harness/sim-provider.ts"
import { missingTool, needing } from "../needing.ts"
import { Berth, connectionManifests, etcdEnvironment, TEAM } from "./berth.ts"
import { linkEtcdTools } from "./etcd-tools.ts"
import { commandsOf, Shell } from "./page.ts"

/** The way out of docs/operate.md for a real etcd at its quota. */

const QUOTA_BYTES = 24 * 1024 * 1024
const clock = new ShiftedClock()
const provider = new SimProvider(clock)
const cloud = provider.issue("account", "secret")
const { value: key, manifest } = declareKey({ name: "admin", role: "admin", namespace: "team" })
let folder: string
let berth: Berth
let shell: Shell

beforeAll(async () => {
  if (missingTool("etcd-tools") !== undefined) return
  folder = await mkdtemp(join(tmpdir(), "berth-full-"))
  await mkdir(join(folder, "shell"))
  await linkEtcdTools(join(folder, "shell", "bin"))
  const binaries = inject("controlPlaneBinaries")
  const etcd = join(folder, "etcd")
  await writeFile(etcd, `#!/bin/sh\nexec '${binaries.etcd}' "$@" --quota-backend-bytes=${QUOTA_BYTES}\n`)
  await chmod(etcd, 0o700)
  const around = { clock, provider, logsDir: join(folder, "logs"), binaries: { ...binaries, etcd } }
  berth = await Berth.start(join(folder, "cluster"), around)
  await berth.install()
  const kubectl = `${inject("kubectlPath")} --kubeconfig ${berth.controlPlane.kubeconfigPath}`
  const env = await etcdEnvironment(berth)
  shell = await new Shell({ folder: join(folder, "shell"), programs: { kubectl }, replacements: {}, env }).open()
  await berth.startFacade()
  await berth.startOperator()
  await shell.run(`kubectl apply --server-side -f - <<'END'
${TEAM}END
kubectl wait --for=condition=Ready project/team --timeout=1m
kubectl apply --server-side -f - <<'END'
${manifest}---
${connectionManifests("main", "secret")}END`)
})
afterAll(async () => {
  await shell?.close()
  await berth?.stop()
  if (folder !== undefined) await rm(folder, { recursive: true, force: true })
})

function submit(name: string): Promise<Response> {
  return berth.rest("team", key, "/jobs", { method: "POST", body: { name, image: "busybox" } })
}

/** Changes one object until etcd takes no more. Each version stays in etcd's file. @returns the API server's words */
async function fill(): Promise<string> {
  const metadata = { name: "filler", namespace: "default" }
  await berth.client.create(CONFIG_MAPS, { metadata } as ConfigMap)
  for (let round = 0; round < 1000; round++) {
    try {
      const data = { text: String(round).padEnd(900_000, "x") }
      await berth.client.patch(CONFIG_MAPS, metadata, { merge: { data } })
    } catch (error) {
      return String(error)
    }
  }
  throw new Error("etcd has no quota")
}

needing(missingTool("etcd-tools")).it(
  "etcd at its quota: nothing is lost, and the page's commands end it",
  async () => {
    await eventually(async () => expect((await submit("running")).status).toBe(201))
    await submit("ended")
    const launches: string[] = []
    for (const name of ["running", "ended"]) {
      const launch = await eventually(async () => {
        const [found] = await berth.launchesOf(name)
        expect(found?.status?.vm?.id).toBeDefined()
        return found?.metadata.name ?? ""
      })
      await berth.reports.register(launch)
      await berth.reports.start(launch)
      launches.push(launch)
    }
    const [running = "", ended = ""] = launches
    await berth.reports.finish(ended, "Succeeded")
    await eventually(async () => expect((await berth.job("team", "ended")).status?.settled).toBe(true))
    const vms = cloud.alive.map(({ id }) => id)
    expect(vms).toHaveLength(1)

    expect(await fill()).toContain("etcdserver: mvcc: database space exceeded")
    const [look = "", wayOut = "", shorten = ""] = commandsOf("etcd is full")
    expect(await shell.run(look)).toContain("alarm:NOSPACE")
    const refused = await submit("refused")
    expect([refused.status, await refused.text()]).toEqual([
      503,
      expect.stringContaining("(etcd) is full, so nothing was changed"),
    ])
    await expect(berth.reports.finish(running, "Succeeded")).rejects.toThrow(/database space exceeded/)
    expect((await berth.job("team", "running")).status?.phase).toBe("running")

    await shell.run(wayOut)
    expect(await shell.run("etcdctl alarm list")).toBe("")
    await eventually(async () => expect((await submit("later")).status).toBe(201))
    expect(cloud.alive.map(({ id }) => id)).toEqual(expect.arrayContaining(vms))
    await berth.reports.finish(running, "Succeeded")
    await eventually(async () => {
      clock.advance(5)
      expect((await berth.job("team", "running")).status?.phase).toBe("succeeded")
      expect(await berth.launchesOf("later")).toHaveLength(1)
    })
    expect(cloud.breaches).toEqual([])
    expect(await berth.launchesOf("running")).toHaveLength(1)
    await eventually(async () => {
      await shell.run(shorten)
      await expect(berth.job("team", "ended")).rejects.toThrow(/not found/)
    })
  },
)
