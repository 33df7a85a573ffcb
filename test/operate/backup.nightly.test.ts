import { mkdir, mkdtemp, readFile, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, beforeAll, expect, inject, it } from "vitest"
import { FileLogStore } from "../../src/api/logs/file-store.ts"
import { isBound } from "../../src/core/apis/apikey.ts"
import { findCondition } from "../../src/core/apis/conditions.ts"
import type { StoredJob } from "../../src/core/apis/job.ts"
import { KINDS } from "../../src/core/apis/kinds.ts"
import { declareKey } from "../../src/core/identity/key-manifest.ts"
import { API_KEYS, CONNECTIONS, CRON_JOBS, JOB_ARRAYS, JOBS, MACHINES, STATEMENTS } from "../../src/core/resources.ts"
import { LEASE_TIMES } from "../harness/cluster.ts"
import { eventually } from "../harness/eventually.ts"
import { ShiftedClock } from "../harness/shifted-clock.ts"
import { SimProvider } from "../harness/sim-provider.ts"
import { SYSTEM_NAMESPACE } from "../harness/system-namespace.ts"
import { missingTool, needing } from "../needing.ts"
import { Berth, connectionManifests, etcdEnvironment, TEAM } from "./berth.ts"
import { linkEtcdTools } from "./etcd-tools.ts"
import { commandsOf, Shell } from "./page.ts"

/** The commands of docs/operate.md for backups, on a real API server and etcd. */

const HOUR = 3600
const clock = new ShiftedClock()
const provider = new SimProvider(clock)
const cloud = provider.issue("account", "the-secret-of-the-first-key")
const { value: key, manifest } = declareKey({ name: "ci", role: "admin", namespace: "team" })

/** A full hour that is at least an hour away, so that it does not pass before the CronJobs exist. */
const FIRST_TICK = new Date((Math.ceil(clock.now().getTime() / 1000 / HOUR) + 1) * HOUR * 1000)
const SCHEDULE = `0 ${FIRST_TICK.getUTCHours()},${(FIRST_TICK.getUTCHours() + 2) % 24} * * *`
const IN_NAMESPACE = `
${connectionManifests("from-secret", "the-secret-of-the-first-key")}---
apiVersion: berth.dev/v1alpha1
kind: CronJob
metadata: {name: patient, namespace: team}
spec: {schedule: "${SCHEDULE}", concurrencyPolicy: Allow, jobDefinition: {image: busybox}}
---
apiVersion: berth.dev/v1alpha1
kind: CronJob
metadata: {name: punctual, namespace: team}
spec: {schedule: "${SCHEDULE}", concurrencyPolicy: Allow, startingDeadlineSeconds: 60, jobDefinition: {image: busybox}}
`
const ARRAY = `
apiVersion: berth.dev/v1alpha1
kind: JobArray
metadata: {name: sweep, namespace: team}
spec: {size: 3, parallelism: 1, jobDefinition: {image: busybox}}
`
const MACHINE = `
apiVersion: berth.dev/v1alpha1
kind: Machine
metadata: {name: desk, namespace: team}
spec: {hourlyPriceUsd: 0.2, region: office, joinNumber: 1}
`
/** An array that waits when the backups are made. */
const DEPENDENTS = `
apiVersion: berth.dev/v1alpha1
kind: JobArray
metadata: {name: dependents, namespace: team}
spec: {size: 2, after: [{job: running}], jobDefinition: {image: busybox}}
`

let folder: string
let berth: Berth
let shell: Shell
let endedBefore: StoredJob
/** Jobs of both CronJobs when the backups were made. */
let runs: string[]
const around = () => ({ clock, provider, logsDir: join(folder, "logs") })

function jobManifest(name: string, spec = "image: busybox"): string {
  return `apiVersion: berth.dev/v1alpha1\nkind: Job\nmetadata: {name: ${name}, namespace: team}\nspec: {${spec}}`
}

async function apply(manifests: string): Promise<void> {
  await shell.run(`kubectl apply --server-side -f - <<'END'\n${manifests}\nEND`)
}

/** Opens the shell of a cluster. */
async function shellOf(of: Berth, replacements = {}): Promise<Shell> {
  const kubectl = `${inject("kubectlPath")} --kubeconfig ${of.controlPlane.kubeconfigPath}`
  const env = await etcdEnvironment(of)
  return await new Shell({ folder: join(folder, "shell"), programs: { kubectl }, replacements, env }).open()
}

async function vmOf(job: string): Promise<string> {
  return await eventually(async () => {
    const [launch] = await berth.launchesOf(job)
    expect(launch?.status?.vm?.id).toBeDefined()
    return launch?.status?.vm?.id ?? ""
  })
}

async function started(job: string): Promise<string> {
  const vm = await vmOf(job)
  const [launch] = await berth.launchesOf(job)
  await berth.reports.register(launch?.metadata.name ?? "")
  await berth.reports.start(launch?.metadata.name ?? "")
  await eventually(async () => expect((await berth.job("team", job)).status?.phase).toBe("running"))
  return vm
}

async function finished(job: string): Promise<void> {
  await started(job)
  const [launch] = await berth.launchesOf(job)
  await berth.reports.finish(launch?.metadata.name ?? "", "Succeeded")
  await eventually(async () => expect((await berth.job("team", job)).status?.settled).toBe(true))
}

async function jobsOf(cronJob: string): Promise<string[]> {
  const { items } = await berth.client.list(JOBS, { namespace: "team" })
  return items.map(({ metadata }) => metadata.name).filter((name) => name.startsWith(`${cronJob}-`))
}

const alive = () => cloud.alive.map(({ id }) => id)

/** Expects that no request was against the cloud's contract, and that no job has two VMs. */
function expectOneVmEach(): void {
  expect(cloud.breaches).toEqual([])
  const jobs = cloud.alive.map(({ launch }) => launch.replace(/-\d+$/, ""))
  expect(new Set(jobs).size).toBe(jobs.length)
}

async function expectTheSameTeam(): Promise<void> {
  const { spec } = await berth.client.get(MACHINES, { namespace: "team", name: "desk" })
  expect(spec).toEqual(expect.objectContaining({ hourlyPriceUsd: 0.2, region: "office", joinNumber: 1 }))
  await eventually(async () => {
    expect(isBound(await berth.client.get(API_KEYS, { namespace: "team", name: "ci" }))).toBe(true)
    for (const name of ["from-secret", "by-rest"]) {
      const { status } = await berth.client.get(CONNECTIONS, { namespace: "team", name })
      expect(findCondition(status?.conditions, "Ready")?.status).toBe("True")
    }
  })
  const record = await berth.rest("team", key, "/jobs/ended")
  expect([record.status, ((await record.json()) as { status: string }).status]).toEqual([200, "succeeded"])
  expect(await (await berth.rest("team", key, "/jobs/ended/logs")).text()).toBe("all done\n")
  const { status } = await berth.job("team", "ended")
  expect(status?.cost).toEqual(endedBefore.status?.cost)
  const { items } = await berth.client.list(STATEMENTS, { namespace: SYSTEM_NAMESPACE })
  expect(items.map((statement) => statement.status?.spentUsd ?? 0)).toContainEqual(expect.closeTo(spent, 6))
}
let spent = 0

const { describe: describeBackups } = needing(missingTool("etcd-tools"))

describeBackups("the backups of docs/operate.md", () => {
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "berth-backup-"))
    await mkdir(join(folder, "shell"))
    await linkEtcdTools(join(folder, "shell", "bin"))
    berth = await Berth.start(join(folder, "cluster"), around())
    await berth.install()
    shell = await shellOf(berth)
    await berth.startFacade()
    await berth.startOperator()
    await apply(TEAM)
    await shell.run("kubectl wait --for=condition=Ready project/team --timeout=1m")
    await apply(`${IN_NAMESPACE}---\n${manifest}`)
    await eventually(async () => {
      const fields = { access_key_id: "AKIAIOSFODNN7EXAMPLE", secret_access_key: "the-secret-of-the-first-key" }
      const made = await berth.rest("team", key, "/connections", {
        method: "POST",
        body: { name: "by-rest", type: "aws", ...fields },
      })
      expect([201, 409]).toContain(made.status)
    })
    // The first tick of both CronJobs. They fire while nothing else depends on the clock.
    clock.advance((FIRST_TICK.getTime() - clock.now().getTime()) / 1000 + 1)
    for (const name of ["patient", "punctual"]) await eventually(async () => expect(await jobsOf(name)).toHaveLength(1))
    await apply(jobManifest("ended"))
    await vmOf("ended")
    const logs = new FileLogStore(join(folder, "logs"))
    const job = { namespace: "team", uid: (await berth.job("team", "ended")).metadata.uid }
    await logs.append({ job, launch: 1 }, 0, Buffer.from("all done\n"))
    await finished("ended")
    endedBefore = await berth.job("team", "ended")
    await apply(jobManifest("running"))
    await started("running")
    for (const name of ["patient", "punctual"]) await started((await jobsOf(name))[0] ?? "")
    await apply(ARRAY)
    await eventually(() => berth.job("team", "sweep-0"))
    await finished("sweep-0")
    await eventually(() => berth.job("team", "sweep-1"))
    await started("sweep-1")
    await apply(jobManifest("queued", "image: busybox, secretEnv: {TOKEN: {secret: token, key: token}}"))
    await eventually(async () => expect((await berth.job("team", "queued")).status?.reason).toBe("SecretMissing"))
    await apply(jobManifest("dependent", "image: busybox, after: [{job: running}]"))
    await apply(DEPENDENTS)
    await apply(MACHINE)
    await eventually(async () => expect((await berth.job("team", "dependent")).status?.reason).toBe("WaitsForJob"))
    await eventually(async () => {
      const { items } = await berth.client.list(STATEMENTS, { namespace: SYSTEM_NAMESPACE })
      spent = items.reduce((sum, statement) => sum + (statement.status?.spentUsd ?? 0), 0)
      // Two jobs have ended, each after less than the minute that is billed at least.
      expect(spent).toBeCloseTo(0.02)
    })
  })
  afterAll(async () => {
    await shell?.close()
    await berth?.stop()
    await rm(folder, { recursive: true, force: true })
  })

  it("the backups of docs/operate.md are made", async () => {
    const [variables = "", save = ""] = commandsOf("Snapshot of etcd")
    // Each path of the page is one that the shell has of this cluster.
    const named = [...variables.matchAll(/^export (\w+)=/gm)].map(([, name]) => name)
    expect(named.sort()).toEqual(Object.keys(await etcdEnvironment(berth)).sort())
    await shell.run(save)
    for (const block of commandsOf("Export of the objects")) await shell.run(block)
    const { items } = JSON.parse(await readFile(join(folder, "shell", "berth-backup", "objects.json"), "utf8")) as {
      items: { kind: string }[]
    }
    // Launches are about VMs of one cluster. Webhooks there are none here.
    const kinds = new Set(items.map(({ kind }) => kind))
    expect([...kinds, "Launch", "Webhook"].sort()).toEqual(KINDS.map(({ kind }) => kind).sort())
  })

  it("backups of etcd bring back everything, and double or forget no VM", async () => {
    const before = alive()
    // What happens after the backup, and is lost with it.
    await apply(jobManifest("late"))
    const late = await vmOf("late")
    runs = [...(await jobsOf("patient")), ...(await jobsOf("punctual"))]
    await shell.close()
    await berth.stop()
    const [restore = ""] = commandsOf("From a snapshot")
    await shell.open()
    await shell.run(restore)
    await shell.close()
    berth = await Berth.start(join(folder, "cluster"), around())
    shell = await shellOf(berth)
    await berth.startFacade()
    await berth.startOperator()
    // A tick was missed in the outage. The new operator waits until the lease in the snapshot has expired.
    clock.advance(2 * HOUR)
    await eventually(() => {
      clock.advance(LEASE_TIMES.leaseSeconds)
      expect(berth.lines.filter((line) => line.includes('"leading"'))).not.toEqual([])
    })
    await expectTheSameTeam()

    await eventually(async () => expect(await jobsOf("patient")).toHaveLength(2))
    expect(await jobsOf("punctual")).toHaveLength(1)
    const now = [...(await jobsOf("patient")), ...(await jobsOf("punctual"))]
    expect(now).toEqual(expect.arrayContaining(runs))
    await vmOf(now.find((name) => !runs.includes(name)) ?? "")
    await eventually(() => {
      clock.advance(301)
      expect(alive()).not.toContain(late)
    })
    expect(alive()).toEqual(expect.arrayContaining(before))
    expectOneVmEach()
    await apply(
      "apiVersion: v1\nkind: Secret\nmetadata: {name: token, namespace: team}\ntype: berth.dev/env\nstringData: {token: t}",
    )
    // A job looks for its Secret again after a while.
    await eventually(async () => {
      clock.advance(61)
      expect((await berth.launchesOf("queued"))[0]?.status?.vm?.id).toBeDefined()
    })
    await finished("running")
    expect((await berth.launchesOf("running")).map(({ spec }) => spec.number)).toEqual([1])
    expectOneVmEach()
  })

  it("backups of the objects bring back what ended, and what defines jobs; no job runs by itself", async () => {
    await shell.close()
    await berth.stop()
    const strangers = alive()
    expect(strangers.length).toBeGreaterThan(3)
    berth = await Berth.start(join(folder, "new-cluster"), around())
    const commands: string[] = []
    const replacements = {
      helm: async (command: string) => {
        commands.push(command)
        if (command.startsWith("install ")) await berth.install()
        if (command.startsWith("upgrade ")) await berth.startFacade()
        await berth.startOperator()
        return "done"
      },
      kubectl: async (command: string) => {
        if (command.includes(" scale deployment berth-operator --replicas=0")) await berth.stopOperator()
        // No pods run here.
        return / scale deployment | wait --for=delete pod /.test(command) ? "done" : undefined
      },
    }
    shell = await shellOf(berth, replacements)
    const [functions = "", tenants = "", rest = "", release = ""] = commandsOf("From an export")
    for (const block of [functions, tenants, rest]) await shell.run(block)
    expect(commands[0]).toContain("facade.replicas=0")
    await expectTheSameTeam()

    const held = ["queued", "running", "sweep-1", "dependent"]
    await eventually(async () => {
      for (const name of held) expect((await berth.job("team", name)).status?.reason).toBe("Held")
      for (const name of ["sweep", "dependents"]) {
        const { status } = await berth.client.get(JOB_ARRAYS, { namespace: "team", name })
        expect(status?.phase).toBe("cancelled")
      }
    })
    await eventually(() => {
      clock.advance(301)
      expect(alive().filter((id) => strangers.includes(id))).toEqual([])
    })
    // No index gets another job, and no tick before the CronJob was created again, by the clock of the API server.
    const { items: cronJobs } = await berth.client.list(CRON_JOBS, { namespace: "team" })
    const since = cronJobs[0]?.metadata.creationTimestamp.replace(/[-:]/g, "").toLowerCase() ?? ""
    const names = (await berth.client.list(JOBS, { namespace: "team" })).items
      .map(({ metadata }) => metadata.name)
      .filter(
        (name) => !(/^(patient|punctual)-/.test(name) && name.replace(/^\w+-/, "") > since && !runs.includes(name)),
      )
    const exported = JSON.parse(await readFile(join(folder, "shell", "berth-backup", "objects.json"), "utf8")) as {
      items: { kind: string; metadata: { name: string } }[]
    }
    expect(names.sort()).toEqual(
      exported.items
        .filter(({ kind }) => kind === "Job")
        .map(({ metadata }) => metadata.name)
        .sort(),
    )
    await shell.run(release)
    await vmOf("running")
    expectOneVmEach()
  })
})
