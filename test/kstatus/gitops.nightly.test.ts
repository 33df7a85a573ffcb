import { execFile } from "node:child_process"
import { mkdtemp, readFile, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import { loadAll } from "js-yaml"
import { afterAll, beforeAll, expect, inject, it } from "vitest"
import { installBase } from "../../dev/base.ts"
import { compileCache } from "../../dev/compile-cache.ts"
import type { ControlPlane } from "../../dev/controlplane/control-plane.ts"
import { LocalCloud, localClouds } from "../../dev/local-cloud/local.ts"
import { LOCAL_REGION, localOffers } from "../../dev/local-cloud/offers.ts"
import { connect } from "../../src/connect.ts"
import { API_KEY } from "../../src/core/apis/apikey.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import { CONNECTION } from "../../src/core/apis/connection.ts"
import { CRON_JOB } from "../../src/core/apis/cronjob.ts"
import { JOB } from "../../src/core/apis/job.ts"
import { JOB_ARRAY } from "../../src/core/apis/jobarray.ts"
import { LAUNCH } from "../../src/core/apis/launch.ts"
import { MACHINE } from "../../src/core/apis/machine.ts"
import { API_VERSION, type ResourceType } from "../../src/core/apis/meta.ts"
import { ORGANIZATION } from "../../src/core/apis/organization.ts"
import { PROJECT } from "../../src/core/apis/project.ts"
import { WEBHOOK } from "../../src/core/apis/webhook.ts"
import { makeApiKey } from "../../src/core/identity/apikeys.ts"
import type { KubeClient } from "../../src/core/kube/client.ts"
import { SECRETS } from "../../src/core/kube/core.ts"
import { Reflector } from "../../src/core/kube/reflector.ts"
import type { ApiObject, ManagedFields, Resource } from "../../src/core/kube/resource.ts"
import { fixedOffers } from "../../src/market/catalogue/offers.ts"
import { startPrivateControlPlane } from "../control-plane.ts"
import { agentProgram } from "../harness/agent-program.ts"
import { eventually } from "../harness/eventually.ts"
import { Programs } from "../harness/programs.ts"
import { silentLogger } from "../harness/silent-logger.ts"
import { SimProvider } from "../harness/sim-provider.ts"
import { SYSTEM_NAMESPACE } from "../harness/system-namespace.ts"
import { missingTool, needing } from "../needing.ts"
import { kstatusOf, type Verdict } from "./kstatus.ts"

const NAMESPACE = "acme"
/** Timeout of each wait in seconds, far above the time that it takes. */
const PATIENCE = 90
const MANIFESTS = join(import.meta.dirname, "..", "..", "manifests")
const KINDS: readonly ResourceType[] = [
  ...[ORGANIZATION, PROJECT, API_KEY, CONNECTION],
  ...[CRON_JOB, JOB, JOB_ARRAY, WEBHOOK, LAUNCH, MACHINE],
]

/** Object as any tool sees it. */
interface Seen extends ApiObject {
  metadata: ApiObject["metadata"] & { managedFields?: ManagedFields[] }
  spec?: object
  status?: { observedGeneration?: number; conditions?: { reason: string }[]; phase?: string; agent?: object }
}

const kstatus = needing(missingTool("kstatus"))

const stop = new AbortController()
const seen: Seen[] = []
let controlPlane: ControlPlane
let client: KubeClient
let cloud: LocalCloud
let folder: string
let programs: Programs | undefined
const running: Promise<unknown>[] = []

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "berth-gitops-"))
  controlPlane = await startPrivateControlPlane()
  client = connect({ kubeconfig: controlPlane.kubeconfigPath })
  await installBase(client, AbortSignal.timeout(60_000))
  for (const kind of KINDS) running.push(watch(kind as Resource<Seen>))
  await startPrograms()
})
afterAll(async () => {
  await programs?.stop()
  stop.abort()
  await Promise.allSettled(running)
  await cloud?.close()
  await client?.close()
  await controlPlane?.stop()
  await rm(folder, { recursive: true, force: true })
})

/** Records each version of each object of the kind. */
function watch(resource: Resource<Seen>): Promise<void> {
  const versions = new Reflector({ client, resource, logger: silentLogger })
  versions.onChange(({ current }) => {
    if (current !== undefined) seen.push(current)
  })
  return versions.run(stop.signal)
}

async function startPrograms(): Promise<void> {
  const accounts = new SimProvider(systemClock)
  accounts.issue("123456789012", "good")
  cloud = new LocalCloud({
    dataDir: join(folder, "vms"),
    agentCommand: [process.execPath, ...agentProgram(), "--runtime", "process"],
    agentEnvironment: compileCache(),
    region: LOCAL_REGION,
    clock: systemClock,
    onError: (error) => console.error(error),
  })
  programs = new Programs({
    systemNamespace: SYSTEM_NAMESPACE,
    clientOf: async () => connect({ kubeconfig: controlPlane.kubeconfigPath }),
    market: {
      offers: fixedOffers(localOffers()),
      providers: { aws: accounts.provider },
      ownAccounts: [{ cloud: "local", region: LOCAL_REGION }],
    },
  })
  const { url } = await programs.startFacade({ logsDir: join(folder, "logs") }, { clouds: ["local"] })
  await programs.startOperator({ gatewayUrl: url }, { clouds: localClouds(cloud), observeSeconds: 0.5 })
}

const job = (name: string, script: string, more: object = {}): Seen =>
  object(JOB, name, { image: "none", command: ["sh", "-c"], args: [script], cloud: ["local"], ...more })

/** Returns an array of jobs that run a script. */
const array = (name: string, script: string, spec: object): Seen =>
  object(JOB_ARRAY, name, {
    ...spec,
    jobDefinition: { image: "none", command: ["sh", "-c"], args: [script], cloud: ["local"] },
  })

/** Schedule that never fires during a test: a job of it would delay the deletion of its project. */
const YEARLY = "0 0 1 1 *"

/** Objects that a repository declares, and the final status of each. */
const DECLARED: readonly [what: string, declared: Seen, end: string][] = [
  ["an organization", object(ORGANIZATION, "sea", { displayName: "Sea", category: "company" }), "Current"],
  ["a project", object(PROJECT, NAMESPACE, { displayName: "Acme", organization: "sea" }), "Current"],
  [
    "a project without its organization",
    object(PROJECT, "lost", { displayName: "Lost", organization: "none" }),
    "InProgress",
  ],
  ["a key", object(API_KEY, "ci", keySpec()), "Current"],
  ["a connection", object(CONNECTION, "good", { type: "aws", credentialsSecretRef: { name: "good" } }), "Current"],
  ["a refused connection", object(CONNECTION, "bad", { type: "aws", credentialsSecretRef: { name: "bad" } }), "Failed"],
  [
    "a cronjob",
    object(CRON_JOB, "yearly", { schedule: YEARLY, jobDefinition: { image: "none" }, active: true }),
    "Current",
  ],
  [
    "a paused cronjob",
    object(CRON_JOB, "paused", { schedule: YEARLY, jobDefinition: { image: "none" }, active: false }),
    "Current",
  ],
  ["a machine that waits for its host", object(MACHINE, "gpu-1", { hourlyPriceUsd: 0.2 }), "InProgress"],
  ["a job", job("good", "sleep 1"), "Current"],
  ["a job that fails", job("bad", "exit 3"), "Failed"],
  ["a job that fits nowhere", job("huge", "true", { resources: { cpu: 4000, memory: "4Gi" } }), "Failed"],
  ["a job that is cancelled", job("cancelled", "sleep 600", { cancelled: true }), "Failed"],
  ["an array", array("sweep", "sleep 1", { size: 3, parallelism: 2 }), "Current"],
  ["an array with a job that fails", array("fails", "exit $N", { matrix: { N: ["0", "3"] } }), "Failed"],
  ["an array that is cancelled", array("ended", "sleep 600", { size: 3, cancelled: true }), "Failed"],
  [
    "an array that can't create a valid job",
    object(JOB_ARRAY, "invalid", { matrix: { A: ["1"] }, jobDefinition: { image: "none", env: { A: "2" } } }),
    "Failed",
  ],
]

function keySpec(): object {
  const { keyId, tokenHash } = makeApiKey()
  return { role: "developer", keyId, tokenHash }
}

function object({ kind, namespaced }: ResourceType, name: string, spec: object): Seen {
  return { apiVersion: API_VERSION, kind, metadata: { name, ...(namespaced && { namespace: NAMESPACE }) }, spec }
}

function kindOf({ kind = "" }: ApiObject): Resource<Seen> {
  const found = KINDS.find((each) => each.kind === kind)
  if (found === undefined) throw new Error(`no kind ${kind}`)
  return found as Resource<Seen>
}

/** Applies the whole declared object under a field manager, as a GitOps tool does. */
function apply(declared: Seen): Promise<Seen> {
  return client.apply(kindOf(declared), declared, { fieldManager: "argocd" })
}

/** Returns the versions of an object in the order of their arrival. */
function versionsOf({ kind, metadata: { name, namespace } }: ApiObject): Seen[] {
  return seen.filter((one) => one.kind === kind && one.metadata.name === name && one.metadata.namespace === namespace)
}

/** Returns the states that an object went through, each once. */
async function storyOf(declared: ApiObject): Promise<string[]> {
  const verdicts = await kstatusOf(versionsOf(declared))
  expect(verdicts.filter(({ error }) => error !== undefined)).toEqual([])
  return verdicts.map(({ status = "" }) => status).filter((status, i, all) => status !== all[i - 1])
}

async function verdictOf(declared: ApiObject): Promise<Verdict | undefined> {
  return (await kstatusOf(versionsOf(declared).slice(-1)))[0]
}

/** Expects that the controllers have observed the current spec. */
function expectObserved(declared: ApiObject): void {
  for (const { metadata, status } of versionsOf(declared))
    expect(status?.observedGeneration, metadata.name).toBeLessThanOrEqual(metadata.generation ?? 0)
  const last = versionsOf(declared).at(-1)
  expect(last?.status?.observedGeneration).toBe(last?.metadata.generation)
}

kstatus.describe("an object of a repository", { timeout: 300_000 }, () => {
  beforeAll(async () => {
    await kstatusOf([])
    // GitOps tools retry what can't be applied yet.
    await eventually(async () => {
      const secrets = ["good", "bad"].map((name) => ({
        ...{ metadata: { name, namespace: NAMESPACE }, type: "berth.dev/connection" },
        data: { access_key_id: btoa("AKIAEXAMPLE"), secret_access_key: btoa(name) },
      }))
      for (const [, declared] of DECLARED.slice(0, 2)) await apply(declared)
      for (const secret of secrets) await client.apply(SECRETS, secret)
      for (const [, declared] of DECLARED) await apply(declared)
    }, PATIENCE)
  })

  it.each(DECLARED)(
    "reports an object that is %s as in progress until it has its final status",
    async (_what, declared, end) => {
      await eventually(async () => {
        const verdict = await verdictOf(declared)
        expect(verdict?.status, `${verdict?.message}: ${JSON.stringify(versionsOf(declared).at(-1)?.status)}`).toBe(end)
      }, PATIENCE)
      const [first, ...story] = await storyOf(declared)
      expect(first).toBe("InProgress")
      expect(story.filter((status) => !["InProgress", "Current", "Failed"].includes(status))).toEqual([])
      expectObserved(declared)
    },
  )

  it("keeps a spec with its field manager, however often manager and controller write", async () => {
    for (const [, declared] of DECLARED) {
      const { metadata, spec } = declared
      const resource = kindOf(declared)
      const before = await client.get(resource, metadata)
      // Includes all fields that the API server has filled in: some tools apply an object as they have read it.
      const whole = { ...declared, spec: { ...before.spec, ...spec } }
      for (let round = 0; round < 3; round++) {
        await apply(whole)
        // Makes the controller reconcile the object again.
        const merge = { metadata: { annotations: { "example.com/round": String(round) } } }
        await client.patch(resource, metadata, { merge }, { fieldManager: "somebody" })
      }
      const after = await client.get(resource, metadata)
      expect(after.metadata.generation, metadata.name).toBe(before.metadata.generation)
      expect(after.spec).toEqual(before.spec)
      expect(ownersOfSpec(after), metadata.name).toEqual(["argocd"])
    }
  })

  it("reports a Launch as in progress until its agent has registered, and as current after its end", async () => {
    const names = new Set(seen.filter(({ kind }) => kind === LAUNCH.kind).map(({ metadata }) => metadata.name))
    expect(names).not.toEqual(new Set())
    for (const name of names) {
      const launch = { kind: LAUNCH.kind, metadata: { name, namespace: SYSTEM_NAMESPACE } }
      await eventually(async () => expect((await verdictOf(launch))?.status).toBe("Current"), PATIENCE)
      const versions = versionsOf(launch)
      const verdicts = (await kstatusOf(versions)).map(({ status }) => status)
      const early = verdicts.filter((_, i) => {
        const { agent, phase } = versions[i]?.status ?? {}
        return agent === undefined && phase !== "terminated"
      })
      expect(early.length).toBeGreaterThan(0)
      expect(early.filter((status) => status !== "InProgress")).toEqual([])
    }
  })

  it("reports a deleted object as terminating, then as not found", async () => {
    for (const [, declared] of DECLARED.toReversed()) {
      const { metadata } = declared
      await client.delete(kindOf(declared), metadata)
      await eventually(
        () => expect(client.get(kindOf(declared), metadata)).rejects.toMatchObject({ code: 404 }),
        PATIENCE,
      )
      const deleted = versionsOf(declared).filter((one) => one.metadata.deletionTimestamp !== undefined)
      expect((await kstatusOf(deleted)).filter(({ status }) => status !== "Terminating")).toEqual([])
    }
    const launches = seen.filter(({ kind }) => kind === LAUNCH.kind)
    expect(launches).not.toEqual([])
    const wrong = (await kstatusOf(launches)).filter(
      ({ status = "" }) => !["InProgress", "Current", "Terminating"].includes(status),
    )
    expect(wrong).toEqual([])
  })
})

kstatus.describe("an example", { timeout: 300_000 }, () => {
  it("applies each step of the Flux example as a whole, once the former step is ready", async () => {
    const [first, second] = await fluxSteps()
    await tryAll(first)
    // For this reason the example has two steps.
    await expect(tryAll(second)).rejects.toThrow(/namespaces .*acme-nightly.* not found/)
    await kubectl(["apply", "--server-side", "-f", "-"], listOf(first))
    await eventually(() => expectCurrent(first), PATIENCE)
    await tryAll(second)
    await kubectl(["apply", "--server-side", "-f", "-"], listOf(second))
    const connection = { kind: CONNECTION.kind, metadata: { name: "main", namespace: "acme-nightly" } }
    const reason = async () =>
      (await client.get(kindOf(connection), connection.metadata)).status?.conditions?.[0]?.reason
    await eventually(async () => expect(await reason()).toBe("SecretNotFound"), PATIENCE)
    // External Secrets creates the Secrets some seconds later.
    await client.apply(SECRETS, {
      ...{ metadata: { name: "aws-main", namespace: "acme-nightly" }, type: "berth.dev/connection" },
      data: { access_key_id: btoa("AKIAEXAMPLE"), secret_access_key: btoa("good") },
    })
    await client.apply(SECRETS, {
      ...{ metadata: { name: "slack-alarms", namespace: "acme-nightly" }, type: "berth.dev/webhook" },
      data: { url: btoa("https://hooks.slack.example/services/1") },
    })
    await eventually(() => expectCurrent(second), PATIENCE)
    expect(await storyOf(connection)).toEqual(["InProgress", "Current"])
    const webhook = { kind: WEBHOOK.kind, metadata: { name: "slack-alarms", namespace: "acme-nightly" } }
    expect(await storyOf(webhook)).toEqual(["InProgress", "Current"])
  })

  it("lends a Secret of one namespace to a project", async () => {
    const path = join(MANIFESTS, "overlays", "single-namespace", "project.yaml")
    await kubectl(["apply", "--server-side", "-f", path])
    await kubectl(["wait", "--for=condition=Ready", "project/default", "--timeout=100s"])
    expect(await kubectl(["get", "project", "default", "-o", "jsonpath={.status.namespace}"])).toBe("default")
  })
})

interface FluxKustomization {
  kind: string
  metadata: { name: string }
  spec: { path: string; wait?: boolean; dependsOn?: { name: string }[] }
}

/** Returns the objects of the example's two Kustomizations, in their order, without kinds of other projects. */
async function fluxSteps(): Promise<[Seen[], Seen[]]> {
  const documents = loadAll(await readFile(join(MANIFESTS, "gitops", "flux", "acme.yaml"), "utf8"))
  const steps = (documents as FluxKustomization[]).filter(({ kind }) => kind === "Kustomization")
  const first = steps.find(({ spec }) => spec.dependsOn === undefined)
  const second = steps.find(({ spec }) => spec.dependsOn?.some(({ name }) => name === first?.metadata.name))
  expect([steps.length, first?.spec.wait]).toEqual([2, true])
  return [await objectsOf(first), await objectsOf(second)]
}

async function objectsOf(step: FluxKustomization | undefined): Promise<Seen[]> {
  const folder = step?.spec.path.replace("./berth", "acme") ?? ""
  const objects = loadAll(await kubectl(["kustomize", join(MANIFESTS, "gitops", folder)])) as Seen[]
  return objects.filter(({ apiVersion }) => apiVersion === API_VERSION)
}

/** Does a dry run of all objects, as kustomize-controller does before it applies them. */
function tryAll(objects: readonly Seen[]): Promise<string> {
  return kubectl(["apply", "--server-side", "--dry-run=server", "-f", "-"], listOf(objects))
}

async function expectCurrent(objects: readonly Seen[]): Promise<void> {
  const verdicts = await Promise.all(objects.map(verdictOf))
  expect(verdicts.map((verdict) => verdict?.status)).toEqual(objects.map(() => "Current"))
}

function listOf(items: readonly Seen[]): string {
  return JSON.stringify({ apiVersion: "v1", kind: "List", items })
}

async function kubectl(args: readonly string[], input = ""): Promise<string> {
  const all = ["--kubeconfig", controlPlane.kubeconfigPath, ...args]
  const running = promisify(execFile)(inject("kubectlPath"), all)
  running.child.stdin?.end(input)
  return (await running).stdout
}

/** Returns the field managers that have written a field of the spec. */
function ownersOfSpec({ metadata: { managedFields = [] } }: Seen): (string | undefined)[] {
  return managedFields
    .filter(({ fieldsV1, subresource }) => subresource === undefined && Object.hasOwn(fieldsV1 ?? {}, "f:spec"))
    .map(({ manager }) => manager)
}
