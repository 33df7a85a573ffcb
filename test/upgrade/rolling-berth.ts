import { execFile } from "node:child_process"
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import { expect, inject } from "vitest"
import { compileCache } from "../../dev/compile-cache.ts"
import { clusterOf, programCredentials } from "../../dev/program-credentials.ts"
import { whenReady } from "../../dev/rest.ts"
import { connect } from "../../src/connect.ts"
import { isBound } from "../../src/core/apis/apikey.ts"
import type { StoredJob } from "../../src/core/apis/job.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import { ensureInstallation } from "../../src/core/identity/installation.ts"
import type { KubeClient } from "../../src/core/kube/client.ts"
import { NAMESPACES } from "../../src/core/kube/core.ts"
import { API_KEYS, JOBS, LAUNCHES, ORGANIZATIONS, PROJECTS } from "../../src/core/resources.ts"
import { Ec2Console } from "../cloud/ec2-console.ts"
import { Ec2Proxy } from "../cloud/ec2-proxy.ts"
import { startPrivateControlPlane } from "../control-plane.ts"
import { Hypervisor } from "../e2e/ec2-hypervisor.ts"
import { freePair } from "../e2e/stops.ts"
import { makeKey } from "../harness/api-keys.ts"
import { Balancer } from "../harness/balancer.ts"
import { openWhole } from "../harness/closing.ts"
import { type ContainerRuntime, processRuntime } from "../harness/container-runtime.ts"
import { eventually, until } from "../harness/eventually.ts"
import { Program } from "../harness/program-process.ts"
import { SYSTEM_NAMESPACE } from "../harness/system-namespace.ts"
import { startMoto } from "../moto.ts"
import { unpackManifests, unpackProgram } from "./recorded.ts"
import { World } from "./world.ts"

const ROOT = join(import.meta.dirname, "..", "..")
const run = promisify(execFile)

/** Region of VMs whose containers are processes of this host. */
export const REGION = "eu-central-1"
/** Region of VMs whose containers the Docker engine runs. */
export const DOCKER_REGION = "us-east-1"
export const PROJECT = "acme"
const BUCKET = "logs-of-jobs"
/** Policies of now that 0.1.0 lacks. */
const LATER_POLICIES = ["berth-abilities", "berth-machine-sharing"].flatMap((name) => [
  `validatingadmissionpolicies/${name}`,
  `validatingadmissionpolicybindings/${name}`,
])
/** Grace of the chart's pods, seconds. */
const GRACE_SECONDS = 30

/** Phases of jobs and Launches after which nothing of them runs. */
const OVER: readonly string[] = ["succeeded", "failed", "cancelled", "terminated", "refused", "handedOver"]

/** Version of a program: the recorded one, or the one of this checkout. */
export type Version = "0.1.0" | "now"
export type Kind = "operator" | "facade"

/** Replica of a Deployment. */
export interface Replica {
  kind: Kind
  version: Version
  program: Program
  url: string
}

/** Response of the REST API: its status, and its JSON. */
export interface Answer {
  status: number
  body: Record<string, unknown>
  text: string
}

export interface CallOptions {
  /** URL of a façade. Default: that of the balancer. */
  url?: string
  key?: string
  headers?: Record<string, string>
}

/**
 * A whole Berth as a cluster has it: API server and etcd, two operators, two façades behind a load balancer, AWS by moto,
 * and VMs with the agent of the image that their user data names. Each program has the rights of its ServiceAccount.
 */
export class RollingBerth {
  readonly replicas: Replica[] = []
  /** Programs that have ended, too. */
  readonly programs: Program[] = []
  readonly client: KubeClient
  readonly balancer: Balancer
  readonly world: World
  readonly folder: string
  readonly proxy: Ec2Proxy
  readonly hypervisors: readonly Hypervisor[]
  /** Admin's key of the project, made before the first operator started. */
  key = ""
  readonly #parts: Parts
  readonly #closing: AsyncDisposableStack

  /** Starts it with all programs of 0.1.0. */
  static start(runtime: ContainerRuntime): Promise<RollingBerth> {
    return openWhole(async (closing) => {
      const berth = new RollingBerth(await openParts(runtime, closing), closing)
      closing.defer(() => berth.#stopAll())
      await berth.#install()
      return berth
    })
  }

  private constructor(parts: Parts, closing: AsyncDisposableStack) {
    this.#parts = parts
    this.#closing = closing
    this.client = parts.client
    this.balancer = parts.balancer
    this.world = parts.world
    this.folder = parts.folder
    this.proxy = parts.proxy
    this.hypervisors = parts.hypervisors
  }

  close(): Promise<void> {
    return this.#closing.disposeAsync()
  }

  async #stopAll(): Promise<void> {
    await Promise.allSettled(this.programs.filter(({ running }) => running).map((program) => program.stop()))
  }

  async #install(): Promise<void> {
    const { client } = this
    await client.create(NAMESPACES, {
      metadata: { name: PROJECT, annotations: { "berth.dev/adopt-by-project": PROJECT } },
    })
    await client.apply(ORGANIZATIONS, { metadata: { name: "o" }, spec: { displayName: "O" } })
    await client.apply(PROJECTS, { metadata: { name: PROJECT }, spec: { displayName: PROJECT, organization: "o" } })
    for (const kind of ["operator", "facade"] as const)
      for (let count = 0; count < 2; count++) this.#admit(await this.#startReplica(kind, "0.1.0"))
    await eventually(async () => {
      const { status } = await client.get(PROJECTS, { name: PROJECT })
      expect(status?.namespace).toBe(PROJECT)
    })
    this.key = await makeKey(client, PROJECT, "admin", { name: "first" })
    await this.untilUsable("first", this.key)
  }

  /** Resolves when a key works at each façade, for writes too. */
  async untilUsable(name: string, key: string): Promise<void> {
    await eventually(async () =>
      expect(isBound(await this.client.get(API_KEYS, { namespace: PROJECT, name }))).toBe(true),
    )
    for (const { url } of this.facades())
      await eventually(async () => {
        const { status, text } = await this.call("POST", "/jobs?dry_run=true", { image: "a" }, { url, key })
        expect(status, text).toBe(200)
      })
  }

  facades(): Replica[] {
    return this.replicas.filter(({ kind }) => kind === "facade")
  }

  /**
   * Installs rights and policies of a version, as Helm does: those that it lacks are deleted.
   * @param kinds version of the kinds. Default: the same
   */
  async applyManifests(version: Version, kinds: Version = version): Promise<void> {
    await this.#parts.applyManifests(version, kinds)
  }

  /** Runs kubectl as the administrator. */
  kubectl(args: readonly string[], input = ""): Promise<string> {
    return this.#parts.kubectl(args, input)
  }

  /**
   * Replaces the first replica of another version, as a Deployment does: the new one is ready before the old one gets SIGTERM.
   * @param pause awaited between the two
   */
  async replace(kind: Kind, version: Version, pause: () => Promise<void>): Promise<void> {
    const old = this.replicas.find((replica) => replica.kind === kind && replica.version !== version)
    if (old === undefined) throw new Error(`each ${kind} is of ${version}`)
    const next = await this.#startReplica(kind, version)
    this.#admit(next)
    await pause()
    await this.#end(old)
  }

  /** Ends a replica as a pod ends. It gets no new connection, then SIGTERM, and it must end within its grace. */
  async #end(replica: Replica): Promise<void> {
    this.replicas.splice(this.replicas.indexOf(replica), 1)
    this.#route()
    const { program } = replica
    program.send("SIGTERM")
    const late = setTimeout(() => program.send("SIGKILL"), GRACE_SECONDS * 1000)
    const ending = await program.ended
    clearTimeout(late)
    expect(ending, `${program.name}: ${program.output.slice(-2000)}`).toMatchObject({ signal: null })
  }

  #admit(replica: Replica): void {
    this.replicas.push(replica)
    this.#route()
  }

  #route(): void {
    this.balancer.targets = this.facades().map(({ url }) => url)
  }

  async #startReplica(kind: Kind, version: Version): Promise<Replica> {
    const { programOf, kubeconfigs, proxy, motoUrl } = this.#parts
    const port = await freePair()
    const receivers = ["--private-receivers", "127.0.0.0/8"]
    const shared = ["--kubeconfig", kubeconfigs[kind], "--log-level", "debug", ...receivers]
    const own = version === "now" ? ["--sessions", "true"] : []
    // Every operator names the agent of its own version, which VMs then pull.
    const agent = ["--agent-image", `registry.test/berth:${version}`]
    const options = {
      operator: [
        ...["--gateway-url", this.balancer.url, ...agent, "--volumes-image", "none", "--metrics-port", String(port)],
      ],
      facade: [
        ...["--port", String(port), "--default-project", PROJECT, "--requests-per-minute", "0"],
        ...["--logs-bucket", BUCKET, "--logs-endpoint", motoUrl, "--logs-region", REGION],
        ...(version === "now" ? ["--gateway-url", this.balancer.url, ...agent] : []),
      ],
    }[kind]
    const env = {
      ...{ PATH: process.env["PATH"], AWS_ENDPOINT_URL: proxy.url, ...compileCache() },
      ...{ AWS_ACCESS_KEY_ID: "key", AWS_SECRET_ACCESS_KEY: "secret" },
      // Moto has no price list.
      ...{ BERTH_PRICE_REFRESH_HOURS: "0", BERTH_SPOT_PRICE_REFRESH_HOURS: "0" },
    }
    const name = `${kind} ${this.programs.length} of ${version}`
    const program = new Program(name, [programOf[version], kind, ...shared, ...options, ...own], env)
    this.programs.push(program)
    const url = `http://127.0.0.1:${port}`
    await whenReady(url, 100, AbortSignal.timeout(110_000)).catch((error: unknown) => {
      throw new Error(`${name} is not ready: ${String(error)}\n${program.output.slice(-3000)}`)
    })
    return { kind, version, program, url }
  }

  /** Starts the agent of an own machine, which joins by the token. */
  startHost(token: string): Program {
    const options = ["--gateway", this.balancer.url, "--token", token, "--runtime", "process"]
    const argv = [
      this.#parts.programOf.now,
      "host",
      ...options,
      "--data-dir",
      join(this.folder, "host"),
      "--log-level",
      "debug",
    ]
    const host = new Program("host", argv, { PATH: process.env["PATH"], ...compileCache() })
    this.programs.push(host)
    return host
  }

  /** Starts a command of `berth`, as the project's administrator does. */
  command(...args: string[]): Program {
    const env = { PATH: process.env["PATH"], HOME: this.folder, BERTH_URL: this.balancer.url, BERTH_API_KEY: this.key }
    const program = new Program(`berth ${args[0]}`, [join(ROOT, "src", "cli", "main.ts"), ...args], env)
    this.programs.push(program)
    return program
  }

  /** Runs commands of a page in a shell whose kubectl is the administrator's. */
  async shell(script: string): Promise<string> {
    const env = { PATH: process.env["PATH"], HOME: this.folder, KUBECONFIG: this.#parts.kubeconfigPath }
    const kubectl = `kubectl() { env '${inject("kubectlPath")}' "$@"; }`
    return (await run("sh", ["-euc", `${kubectl}; ${script}`], { env, maxBuffer: 64 * 1024 * 1024 })).stdout
  }

  /** Calls the REST API once. @throws what fetch throws */
  async call(method: string, path: string, body?: object, more: CallOptions = {}): Promise<Answer> {
    const { url = this.balancer.url, key = this.key, headers = {} } = more
    const response = await fetch(`${url}/1${path}`, {
      method,
      headers: { "X-Service-Api-Key": key, "Content-Type": "application/json", Connection: "close", ...headers },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    })
    const text = await response.text()
    const isJson = response.headers.get("content-type")?.includes("json") ?? false
    return { status: response.status, text, body: isJson ? (JSON.parse(text) as Record<string, unknown>) : {} }
  }

  /** Calls the REST API like a client that repeats a call without an answer, or with 429 or 5xx. @throws Error for another 4xx */
  async rest(method: string, path: string, body?: object, more: CallOptions = {}): Promise<Answer> {
    return await eventually(async () => {
      const answer = await this.call(method, path, body, more)
      if (answer.status === 429 || answer.status >= 500) throw new Error(`${method} ${path}: ${answer.text}`)
      return answer
    }).then((answer) => {
      if (answer.status >= 400) throw new Error(`${method} ${path}: ${answer.status} ${answer.text}`)
      return answer
    })
  }

  /** Returns the body of a job for REST, which runs a script of the world. */
  definition(name: string, body: string, more: object = {}): Record<string, unknown> {
    const command = ["sh", "-c", this.world.script(name, body)]
    return { image: "none", command, cloud: ["aws"], region: [REGION], ...more }
  }

  /** Submits a job by REST, with an Idempotency-Key. Returns its id. */
  async submit(name: string, body: string, more: object = {}, options: CallOptions = {}): Promise<string> {
    const job = { name, ...this.definition(name, body, more) }
    const headers = { "Idempotency-Key": `key-of-${name}` }
    return String((await this.rest("POST", "/jobs", job, { ...options, headers })).body["id"])
  }

  /** Submits a job by kubectl. */
  async apply(name: string, body: string, more: object = {}): Promise<void> {
    const { command, cloud, image } = this.definition(name, body)
    const spec = { image, command, cloud, region: [REGION], ...more }
    const manifest = { apiVersion: "berth.dev/v1alpha1", kind: "Job", metadata: { name, namespace: PROJECT }, spec }
    await this.kubectl(["apply", "--server-side", "-f", "-"], JSON.stringify(manifest))
  }

  async record(name: string, collection = "jobs"): Promise<Record<string, unknown>> {
    return (await this.rest("GET", `/${collection}/${name}`)).body
  }

  /** Resolves when a job has this status, or an array. */
  async until(name: string, status: string, seconds = 120, collection: "jobs" | "arrays" = "jobs"): Promise<void> {
    const has = async (): Promise<boolean> => (await this.record(name, collection))["status"] === status
    await until(`${name} ${status}`, has, seconds).catch(async (error: unknown) => {
      throw new Error(`${String(error)}\n${await this.situation()}`)
    })
  }

  async job(name: string): Promise<StoredJob> {
    return await this.client.get(JOBS, { namespace: PROJECT, name })
  }

  async jobs(): Promise<StoredJob[]> {
    return (await this.client.list(JOBS, { namespace: PROJECT })).items
  }

  async launches(): Promise<StoredLaunch[]> {
    return (await this.client.list(LAUNCHES, { namespace: SYSTEM_NAMESPACE })).items
  }

  async launchesOf(job: string): Promise<StoredLaunch[]> {
    const all = (await this.launches()).filter(({ spec }) => spec.job.name === job)
    return all.sort((a, b) => a.spec.number - b.spec.number)
  }

  /** Resolves when all jobs and Launches have ended. */
  async untilOver(): Promise<void> {
    const isDone = async (): Promise<boolean> => {
      const phases = [...(await this.jobs()), ...(await this.launches())].map(({ status }) => status?.phase ?? "queued")
      return phases.every((phase) => OVER.includes(phase))
    }
    await until("all jobs and Launches have ended", isDone, 120).catch(async (error: unknown) => {
      throw new Error(`${String(error)}\n${await this.situation()}`)
    })
  }

  /** Returns all instances that the clouds ever created. */
  async instances(): ReturnType<Ec2Console["instances"]> {
    const installation = (await ensureInstallation(this.client, SYSTEM_NAMESPACE)).id
    const lists = await Promise.all(this.#parts.consoles.map((ec2) => ec2.instances("installation", installation)))
    return lists.flat()
  }

  /** Ids of the VMs whose agent runs. */
  get running(): string[] {
    return this.hypervisors.flatMap((hypervisor) => hypervisor.running)
  }

  /** Returns the state of jobs and Launches, for the message of a failed test. */
  async situation(): Promise<string> {
    const jobs = (await this.jobs()).map(
      ({ metadata, status }) => `${metadata.name}: ${status?.phase} ${status?.reason ?? ""} ${status?.message ?? ""}`,
    )
    const launches = (await this.launches()).map(
      ({ metadata, spec, status }) =>
        `${spec.job.name} ${metadata.name} ended=${spec.ended} ${status?.phase} ${status?.message} ${status?.vm?.id} ${JSON.stringify(status?.loss)}`,
    )
    return [...jobs, ...launches].join("\n")
  }
}

interface Parts {
  kubeconfigPath: string
  client: KubeClient
  balancer: Balancer
  world: World
  folder: string
  proxy: Ec2Proxy
  motoUrl: string
  hypervisors: Hypervisor[]
  /** Views of the clouds that are independent of Berth. */
  consoles: Ec2Console[]
  kubeconfigs: Record<Kind, string>
  programOf: Record<Version, string>
  applyManifests: (version: Version, kinds?: Version) => Promise<void>
  kubectl: (args: readonly string[], input?: string) => Promise<string>
}

async function openParts(runtime: ContainerRuntime, closing: AsyncDisposableStack): Promise<Parts> {
  const folder = await mkdtemp(join(tmpdir(), "berth-rolling-"))
  closing.defer(() => rm(folder, { recursive: true, force: true, maxRetries: 3 }))
  const [program, manifests] = await Promise.all([unpackProgram("0.1.0", folder), unpackManifests("0.1.0", folder)])
  const programOf = { "0.1.0": program, now: join(ROOT, "src", "main.ts") }
  const installed = { "0.1.0": manifests, now: { crds: join(ROOT, "crds"), base: join(ROOT, "manifests", "base") } }
  const controlPlane = closing.adopt(await startPrivateControlPlane(), (servers) => servers.stop())
  const { kubeconfigPath } = controlPlane
  const client = closing.adopt(connect({ kubeconfig: kubeconfigPath }), (open) => open.close())
  const kubectl = async (args: readonly string[], input = ""): Promise<string> => {
    const command = ["--kubeconfig", kubeconfigPath, ...args]
    const running = run(inject("kubectlPath"), command, { maxBuffer: 64 * 1024 * 1024 })
    running.child.stdin?.on("error", () => undefined).end(input)
    return (await running).stdout
  }
  const applyManifests = async (version: Version, kinds = version): Promise<void> => {
    const apply = ["apply", "--server-side", "--force-conflicts"]
    // The kinds first: kubectl knows a kind only once the API server serves it.
    await kubectl([...apply, "-k", installed[kinds].crds])
    await kubectl(["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"])
    const objects = await kubectl(["kustomize", installed[version].base])
    const others = objects.split(/^---$/m).filter((object) => !/^kind: CustomResourceDefinition$/m.test(object))
    await kubectl([...apply, "-f", "-"], others.join("---"))
    // Helm deletes what the version before has and this one lacks.
    if (version === "0.1.0") await kubectl(["delete", "--ignore-not-found", ...LATER_POLICIES])
  }
  await applyManifests("0.1.0")
  const moto = closing.adopt(await startMoto(), (server) => server.stop())
  const proxy = closing.adopt(await Ec2Proxy.start(moto), (server) => server.stop())
  await makeBucket(moto.url)
  const installation = (await ensureInstallation(client, SYSTEM_NAMESPACE)).id
  const consoles: Ec2Console[] = []
  const hypervisors = [
    { region: REGION, used: processRuntime },
    { region: DOCKER_REGION, used: runtime },
  ].map(({ region, used }) => {
    const ec2 = closing.adopt(new Ec2Console(moto, region), (view) => view.close())
    consoles.push(ec2)
    const machines = join(folder, region)
    const hypervisor: Hypervisor = new Hypervisor({
      ...{ console: ec2, installation, folder: machines, runtime: used },
      prepare: async (id) => {
        const version = /registry\.test\/berth:(0\.1\.0|now)/.exec(hypervisor.userData.get(id) ?? "")?.[1] as Version
        const disk = join(machines, id)
        await mkdir(disk, { recursive: true })
        const agent = ["agent", "--data-dir", disk, "--runtime", used.name, "--log-level", "debug"]
        return { disk, program: [programOf[version], ...agent] }
      },
    })
    return closing.adopt(hypervisor, (machine) => machine.close())
  })
  const balancer = closing.use(await Balancer.start([]))
  return {
    ...{
      client,
      balancer,
      folder,
      proxy,
      hypervisors,
      consoles,
      programOf,
      kubeconfigPath,
      applyManifests,
      kubectl,
      motoUrl: moto.url,
    },
    world: await World.create(join(folder, "world")),
    kubeconfigs: {
      operator: await programKubeconfig("operator", { client, kubeconfigPath, folder }),
      facade: await programKubeconfig("facade", { client, kubeconfigPath, folder }),
    },
  }
}

/** Writes a kubeconfig with the rights of a program's ServiceAccount, for an hour. */
async function programKubeconfig(
  kind: Kind,
  { client, kubeconfigPath, folder }: { client: KubeClient; kubeconfigPath: string; folder: string },
): Promise<string> {
  const credentials = await programCredentials({
    client,
    cluster: clusterOf(kubeconfigPath),
    serviceAccount: { namespace: SYSTEM_NAMESPACE, name: `berth-${kind}` },
    onError: (error) => console.error(error),
  })
  credentials.stop()
  const path = join(folder, `kubeconfig-${kind}`)
  await writeFile(path, credentials.kubeConfig.exportConfig(), { mode: 0o600 })
  return path
}

async function makeBucket(motoUrl: string): Promise<void> {
  const authorization = `AWS4-HMAC-SHA256 Credential=root/20260101/${REGION}/s3/aws4_request, Signature=none`
  const body = `<CreateBucketConfiguration><LocationConstraint>${REGION}</LocationConstraint></CreateBucketConfiguration>`
  const made = await fetch(`${motoUrl}/${BUCKET}`, { method: "PUT", headers: { authorization }, body })
  expect(made.status).toBe(200)
}
