import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, beforeAll, expect, it } from "vitest"
import { packChart } from "../../scripts/release.ts"
import { JOB } from "../../src/core/apis/job.ts"
import { API_VERSION, LABELS } from "../../src/core/apis/meta.ts"
import { declareResource } from "../../src/core/kube/resource.ts"
import { missingForContainers } from "../agent/images.ts"
import { helmProgram } from "../chart/helm.ts"
import { isGone, launchOf } from "../cloud/ec2-console.ts"
import { eventually } from "../harness/eventually.ts"
import { missingTool, needing } from "../needing.ts"
import { isNightly } from "../nightly.ts"
import { auditOf, grantsOf, inWords, unused } from "./audit.ts"
import { NAMESPACE } from "./cluster.ts"
import { sourcesImage } from "./image.ts"
import { type Answer, type Caller, type CallOptions, installRelease, REGIONS, type Release } from "./release.ts"

const PROJECT = "acme"
/** Timeout of each wait in seconds, far above the time that it takes. */
const PATIENCE = 240
/** Jobs that run during an upgrade, in the nightly tier. */
const MANY = 100

/** Users that get rights from the chart. */
const USERS = ["berth:berth-operator", "berth:berth-facade", "berth-identities:berth-accounts"].map(
  (name) => `system:serviceaccount:${name}`,
)

/** Rights that are needed although no test uses them, with their purpose. */
const RARELY_USED = {
  "berth:berth-operator: delete launches.berth.dev in berth":
    "the record of a VM that its job needed longer is deleted by itself",
  "berth:berth-operator: deletecollection launches.berth.dev in berth":
    "the records of other VMs are deleted an hour after their end",
  "berth:berth-operator: delete statements.berth.dev in berth": "a Statement is kept for 13 months after its own",
  "berth:berth-operator: get apikeys.berth.dev":
    "a machine user whose key is not in the cache is taken away only after a live look",
  "berth:berth-operator: get machines.berth.dev": "a machine is read live when a job gets it, and no host joins here",
  "berth:berth-facade: patch machines/status.berth.dev": "the same: it has what a host reports",
  "berth:berth-operator: patch secrets berth-sealing-keys in berth":
    "a former key is deleted when nothing has needed it for ten minutes",
  "berth:berth-operator: get secrets berth-identity-keys in berth":
    "only an installation with an identity issuer has these keys",
  "berth:berth-facade: get secrets berth-identity-keys in berth": "the same",
  "berth:berth-facade: get launches.berth.dev in berth": "a registration reads the Launch only if the cache is stale",
  "berth:berth-facade: get leases.coordination.k8s.io in berth-identities":
    "of two requests with one Idempotency-Key the later one looks how long it has been waiting for another replica",
  "berth:berth-facade: patch leases.coordination.k8s.io in berth-identities":
    "a request with an Idempotency-Key renews its Lease when it takes longer than 4 s",
  "berth:berth-facade: create events": "no one opens a session here",
  "berth:berth-facade: patch events": "the same",
  "berth:berth-operator: create configmaps berth-installation in berth":
    "the first apply needs it, which the audit log shows as patch",
  "berth:berth-operator: get configmaps berth-spending in berth": "only an installation with a monthly cap has it",
  "berth:berth-operator: create configmaps berth-spending in berth": "the same",
  "berth:berth-operator: patch configmaps berth-spending in berth": "the same",
  "berth:berth-operator: create configmaps berth-prices in berth": "prices come from price lists, which moto has not",
  "berth:berth-operator: patch configmaps berth-prices in berth": "the same",
}

const containers = needing((await missingForContainers()) ?? missingTool("moto", "helm"))

let release: Release
let folder: string
/** Chart, packaged as for a release. */
let chart: string
/** Key that GitOps creates. */
let admin: Caller = { key: "" }

interface JobRecord {
  id: string
  name: string
  status: string
  vm_status: string
}

containers.describe("a release of the chart", { timeout: 900_000 }, () => {
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), "berth-chart-"))
    chart = await packChart(folder, await helmProgram())
    release = await installRelease(chart, await sourcesImage())
  }, 600_000)
  afterAll(async () => {
    await release?.close()
    await rm(folder, { recursive: true })
  })

  it("passes its own helm test, with all pods under the strictest Pod Security", async () => {
    await release.cluster.helm(["test", "berth", "--timeout", "2m"])
    expect(release.cluster.kubelet.faults).toEqual([])
    expect(release.cluster.kubelet.ran).toHaveLength(4)
  })

  it("runs a job of a project that GitOps created", async () => {
    await organize()
    await connect()
    // Its first tick may take a minute. A test below checks the result.
    await send("/cronjobs", {
      name: "tick",
      cron_spec: "* * * * *",
      job_definition: { image: "none", command: ["true"], cloud: "aws", region: REGIONS[0] },
    })
    await release.apply(secret("greeting", "berth.dev/env", { text: "ahoy" }))
    await submit("hello", "echo $GREETING; sleep 1", { secretEnv: { GREETING: { secret: "greeting", key: "text" } } })
    await until("hello", { status: "succeeded", vm_status: "terminated" })
    expect((await call("/jobs/hello/logs")).text).toBe("ahoy\n")
  })

  it("runs a first job as docs/install.md describes", async () => {
    // This cluster's node runs no commands in its pods.
    const program = "kubectl -n berth exec deploy/berth-operator -- /nodejs/bin/node /berth/berth.mjs"
    const script = (await documented("The first job", "kubectl")).replace(program, "node src/main.ts")
    const { stderr } = await release.cluster.shell(script.replace(/<(access key id|secret access key)>/g, "EXAMPLE"))
    const me = { key: /^berth_\S+$/m.exec(stderr)?.[0] ?? "" }
    await eventually(async () => {
      const { text } = await release.call(me, "/jobs/hello/logs", { project: "first" })
      expect(text).toContain("Ahoy from a berth (3 of 3)\n")
    }, PATIENCE)
  })

  it("performs all other actions with the rights of the chart", async () => {
    await Promise.all([useJobs(), useConnections(), useKeys(), usePeople()])
  })

  if (isNightly) {
    it(`runs each of ${MANY} jobs once, on one VM, during an upgrade`, async () => {
      const ran = join(release.cluster.folder, "ran")
      await writeFile(ran, "")
      const names = Array.from({ length: MANY }, (_, i) => `many-${i}`)
      await Promise.all(names.map((name) => submit(name, `echo ${name} >> ${ran}; sleep 10`, { tags: ["many"] })))
      await eventually(async () => expect((await linesOf(ran)).length).toBeGreaterThan(MANY / 4), PATIENCE)
      await release.cluster.helm(["upgrade", "berth", chart, "--wait", "--timeout", "3m"], {
        ...release.values,
        logLevel: "warn",
      })
      await eventually(async () => {
        const { total } = await read<{ total: number }>("/jobs?tag=many&status=succeeded&limit=1")
        expect(total).toBe(MANY)
      }, PATIENCE)
      await eventually(async () => {
        const { jobs } = await read<{ jobs: JobRecord[] }>(`/jobs?tag=many&limit=${MANY}`)
        expect(counted(jobs.map(({ vm_status }) => vm_status))).toEqual({ terminated: MANY })
      }, PATIENCE)
      expect((await linesOf(ran)).sort()).toEqual(names.sort())
      const { jobs } = await read<{ jobs: JobRecord[] }>(`/jobs?tag=many&limit=${MANY}`)
      const made = (await release.machines.instances()).filter((instance) =>
        jobs.some(({ id }) => launchOf(instance).startsWith(`${id}-`)),
      )
      expect(made.map(launchOf).sort()).toEqual(jobs.map(({ id }) => `${id}-1`).sort())
      expect(made.filter((instance) => !isGone(instance))).toEqual([])
      expect([...release.cluster.kubelet.faults, ...release.machines.faults, ...release.ec2.breaches]).toEqual([])
    })
  }

  it("fires its cronjobs", useCronJob)

  it("runs an array, and deletes it after its TTL", useArray)

  it("has machines that people own", useMachine)

  it("uses every right that it has, and needs no other", async () => {
    const { client, auditLog } = release.cluster
    const grants = await grantsOf(client, USERS)
    const rare = Object.keys(RARELY_USED)
    // Objects of ended jobs are cleaned up in the background.
    await eventually(async () => {
      const { uses } = await auditOf(auditLog, USERS)
      const left = unused(grants, uses).map(inWords)
      expect(left.filter((grant) => !rare.includes(grant))).toEqual([])
    }, PATIENCE)
    expect((await auditOf(auditLog, USERS)).refusals).toEqual([])
    expect(rare.filter((grant) => !grants.map(inWords).includes(grant))).toEqual([])
  })

  if (isNightly) {
    it("restores all its data when it is uninstalled and installed again", async () => {
      const { cluster, values } = release
      await cluster.helm(["uninstall", "berth", "--wait", "--timeout", "2m"])
      await eventually(() =>
        expect(cluster.kubelet.ready("operator").concat(cluster.kubelet.ready("facade"))).toEqual([]),
      )
      await cluster.helm(["install", "berth", chart, "--wait", "--timeout", "3m"], values)
      // Helm may see ready pods before this cluster's stand-in for the Service does.
      await eventually(async () => expect(await read("/jobs/hello")).toMatchObject({ status: "succeeded" }))
      await submit("again", "true")
      await until("again", { status: "succeeded", vm_status: "terminated" })
    })
  }

  it("leaves nothing after the removal commands of its notes and docs/install.md", async () => {
    const notes = await release.cluster.helm(["get", "notes", "berth"])
    const commands = notes.split("\n").flatMap((line) => /^ {2}(\S.*)$/.exec(line)?.[1] ?? [])
    // Indentation would hide the end of a here-document.
    expect(notes).not.toContain("<<")
    const removal = await documented("Uninstall", "kubectl")
    expect(`${commands.join("\n")}\n`).toContain(removal)
    await removeMany()
    await release.cluster.shell(removal)
    const left = await kubectl("get", "crd,ns,clusterrole,validatingadmissionpolicy", "-o", "name")
    expect(left.split("\n").filter((name) => /berth|acme|first/.test(name))).toEqual([])
    expect((await release.machines.instances()).filter((instance) => !isGone(instance))).toEqual([])
  })
})

/**
 * Deletes a hundred jobs and their Launches by one request each. Kubectl would delete them one by one, at five requests
 * a second.
 */
async function removeMany(): Promise<void> {
  const { client } = release.cluster
  await kubectl("delete", "--raw", `/apis/${API_VERSION}/namespaces/${PROJECT}/jobs`)
  await eventually(async () => {
    expect((await client.list(declareResource(JOB), { namespace: PROJECT })).items).toEqual([])
  }, PATIENCE)
  const launches = `labelSelector=${LABELS.jobNamespace}%3D${PROJECT}`
  await kubectl("delete", "--raw", `/apis/${API_VERSION}/namespaces/${NAMESPACE}/launches?${launches}`)
}

/**
 * Returns the commands under a heading of docs/install.md, from all blocks that begin with this program, for this
 * release.
 */
async function documented(heading: string, program: string): Promise<string> {
  const text = await readFile(join(import.meta.dirname, "..", "..", "docs", "install.md"), "utf8")
  const section = text.split(/^## /m).find((one) => one.startsWith(`${heading}\n`)) ?? ""
  const blocks = [...section.matchAll(/^```sh\n([\s\S]*?)^```$/gm)].map(([, block = ""]) => block)
  const chosen = blocks.filter((block) => block.startsWith(program))
  expect(chosen, heading).not.toEqual([])
  return chosen.join("").replaceAll("berth-system", NAMESPACE)
}

function call(path: string, options: Omit<CallOptions, "project"> & { by?: Caller } = {}): Promise<Answer> {
  return release.call(options.by ?? admin, path, { ...options, project: PROJECT })
}

function read<T>(path: string): Promise<T> {
  return release.json<T>(admin, path, { project: PROJECT })
}

function send<T>(path: string, body: object, method = "POST"): Promise<T> {
  return release.json<T>(admin, path, { method, body, project: PROJECT })
}

/** Creates an organization whose owner may sign in, its project, and a key made by `berth key`. */
async function organize(): Promise<void> {
  const members = [{ userId: `${release.issuer.url}#ada`, role: "owner" }]
  await release.apply(
    object("Organization", "sea", { displayName: "Sea", members }),
    object("Project", PROJECT, { displayName: "Acme", organization: "sea" }),
  )
  await kubectl("wait", "--for=condition=Ready", `project/${PROJECT}`, "--timeout=120s")
  const { stdout, stderr } = await release.berth("key", "--name", "ci", "--role", "admin", "--namespace", PROJECT)
  await release.cluster.kubectl(["apply", "--server-side", "-f", "-"], stdout)
  admin = { key: /^berth_\S+$/m.exec(stderr)?.[0] ?? "" }
}

async function connect(): Promise<void> {
  const fields = { access_key_id: "AKIAEXAMPLE", secret_access_key: "very-secret" }
  // The API server notices the key's rights a moment later.
  await eventually(() => send("/connections", { name: "main", type: "aws", ...fields }), PATIENCE)
}

async function useJobs(): Promise<void> {
  expect((await call("/jobs?dry_run=true", { body: job("dry", "true") })).status).toBe(200)
  const once = { body: job("once", "true"), headers: { "Idempotency-Key": "once" } }
  expect([(await call("/jobs", once)).status, (await call("/jobs", once)).status]).toEqual([201, 201])
  await submit("cancelled", "sleep 600")
  await until("cancelled", { status: "running" })
  await send("/jobs/cancelled/cancel", {})
  await submit("passing", "true", { ttlSecondsAfterFinished: 1 })
  await eventually(async () => expect((await call("/jobs/passing")).status).toBe(404), PATIENCE)
  await until("cancelled", { status: "cancelled", vm_status: "terminated" })
}

async function useConnections(): Promise<void> {
  const fields = { access_key_id: "AKIAOTHER", secret_access_key: "secret" }
  await release.apply(
    secret("spare", "berth.dev/connection", fields),
    object("Connection", "spare", { type: "aws", credentialsSecretRef: { name: "spare" } }),
  )
  await kubectl("wait", "--for=condition=Ready", "connection/spare", "-n", PROJECT, "--timeout=120s")
  expect((await call("/resources/storages?connection_id=spare")).status).toBe(200)
  expect((await call("/connections/unknown")).status).toBe(404)
  // Of successes it hears nothing: no receiver is there, and an end that waits for one holds its job beyond the TTL.
  await send("/webhooks", { name: "build-bot", url: "https://ci.example.com/berth", events: ["job.failed"] })
  await kubectl("wait", "--for=condition=Ready", "webhook/build-bot", "-n", PROJECT, "--timeout=120s")
  expect((await call("/webhooks/unknown")).status).toBe(404)
  const textOf = (object: string, field: string) =>
    kubectl("get", object, "-n", PROJECT, "-o", `jsonpath={.spec.${field}}`)
  const sealed = () =>
    Promise.all([textOf("connection/main", "sealedCredentials"), textOf("webhook/build-bot", "sealedSecret")])
  const before = await sealed()
  const { kubeconfigPath } = release.cluster
  await release.berth("rotate-sealing-key", "--kubeconfig", kubeconfigPath, "--system-namespace", NAMESPACE)
  await eventually(async () => {
    const after = await sealed()
    expect(after.map((text, index) => text !== before[index])).toEqual([true, true])
  }, PATIENCE)
}

async function useKeys(): Promise<void> {
  const { id, value: key } = await send<{ id: string; value: string }>("/keys", { name: "reader", role: "viewer" })
  expect((await call("/jobs", { by: { key } })).status).toBe(200)
  const ref = ["-n", PROJECT, "-l", `berth.dev/apikey-uid=${id}`]
  const subjects = () => kubectl("get", "rolebinding", ...ref, "-o", "jsonpath={.items[*].subjects[*].name}")
  const before = await subjects()
  const [binding = ""] = (await kubectl("get", "rolebinding", ...ref, "-o", "name")).trim().split("\n")
  await kubectl("patch", binding, "-n", PROJECT, "--type=merge", "-p", JSON.stringify({ subjects: [] }))
  await eventually(async () => expect(await subjects()).toBe(before), PATIENCE)
  await call(`/keys/${id}`, { method: "DELETE" })
  await eventually(async () => expect((await call("/jobs", { by: { key } })).status).toBe(401), PATIENCE)
  expect((await call("/keys/unknown")).status).toBe(404)
}

async function usePeople(): Promise<void> {
  const ada = { token: await release.issuer.token({ sub: "ada" }) }
  expect((await call("/jobs", { by: ada })).status).toBe(200)
  const { id: organization } = await release.json<{ id: string }>(ada, "/organizations", { body: { name: "Lake" } })
  const path = `/organizations/${organization}/projects`
  const { id: project } = await release.json<{ id: string }>(ada, path, { body: { name: "Boat" } })
  await release.json(ada, `/projects/${project}`, { method: "PATCH", body: { displayName: "Ship" } })
  await release.json(ada, `/organizations/${organization}`, { method: "PATCH", body: { displayName: "Sea" } })
  await kubectl("wait", "--for=condition=Ready", `project/${project}`, "--timeout=120s")
  await useMembers()
  await kubectl("delete", "project", project, "--timeout=100s")
  await kubectl("delete", "organization", organization, "--timeout=100s")
}

/** Uses roles that people have in only one project. */
async function useMembers(): Promise<void> {
  for (const subjects of [["bob"], ["bob", "eve"], []]) {
    const members = subjects.map((subject) => ({ userId: `${release.issuer.url}#${subject}`, role: "viewer" }))
    await release.apply(object("Project", PROJECT, { displayName: "Acme", organization: "sea", members }))
    await eventually(async () => {
      const bindings = await kubectl("get", "rolebinding", "-n", PROJECT, "-o", "jsonpath={.items[*].subjects[*].name}")
      const bound = ["bob", "eve"].filter((subject) => bindings.includes(`#${subject}`))
      expect(bound).toEqual(subjects)
    }, PATIENCE)
  }
}

async function useCronJob(): Promise<void> {
  await eventually(async () => {
    const { jobs } = await read<{ jobs: JobRecord[] }>("/jobs?limit=100")
    expect(jobs.filter(({ name }) => name.startsWith("tick-"))).not.toEqual([])
  }, PATIENCE)
  expect((await call("/cronjobs/unknown")).status).toBe(404)
  expect((await call("/cronjobs/tick?cascade=true", { method: "DELETE" })).status).toBe(204)
}

/** A machine whose host has not joined. test/agent/ has hosts. */
async function useMachine(): Promise<void> {
  await send("/machines", { name: "workstation" })
  await eventually(
    async () => expect(await read("/machines/workstation")).toMatchObject({ reason: "NotJoined" }),
    PATIENCE,
  )
  expect((await call("/machines/unknown")).status).toBe(404)
  expect((await call("/machines/workstation", { method: "DELETE" })).status).toBe(204)
  await eventually(async () => expect((await call("/machines/workstation")).status).toBe(404), PATIENCE)
}

async function useArray(): Promise<void> {
  const job_definition = { image: "none", command: ["true"], cloud: "aws", region: REGIONS[0] }
  const limits = { successful_jobs_history_limit: 0, ttl_seconds_after_finished: 1 }
  await send("/arrays", { name: "pair", size: 2, parallelism: 1, job_definition, ...limits })
  expect((await call("/arrays/unknown")).status).toBe(404)
  await eventually(async () => expect((await call("/arrays/pair")).status).toBe(404), PATIENCE)
}

function object(kind: string, name: string, spec: object): object {
  const isNamespaced = !["Organization", "Project"].includes(kind)
  return { apiVersion: API_VERSION, kind, metadata: { name, ...(isNamespaced && { namespace: PROJECT }) }, spec }
}

function secret(name: string, type: string, stringData: object): object {
  return { apiVersion: "v1", kind: "Secret", metadata: { name, namespace: PROJECT }, type, stringData }
}

let submitted = 0

function job(name: string, script: string): object {
  const region = REGIONS[submitted++ % REGIONS.length]
  return { name, image: "none", command: ["sh", "-c"], args: [script], cloud: ["aws"], region }
}

async function submit(name: string, script: string, more: object = {}): Promise<void> {
  await send("/jobs", { ...job(name, script), ...more })
}

async function until(name: string, state: Partial<JobRecord>): Promise<void> {
  await eventually(async () => expect(await read(`/jobs/${name}`)).toMatchObject(state), PATIENCE).catch(
    async (cause: unknown) => {
      throw new Error(`job ${name} does not get there:\n${await release.cluster.kubelet.output()}`, { cause })
    },
  )
}

function kubectl(...args: string[]): Promise<string> {
  return release.cluster.kubectl(args)
}

async function linesOf(path: string): Promise<string[]> {
  return (await readFile(path, "utf8")).split("\n").filter((line) => line !== "")
}

function counted(values: readonly string[]): { [value: string]: number } {
  const counts: { [value: string]: number } = {}
  for (const value of values) counts[value] = (counts[value] ?? 0) + 1
  return counts
}
