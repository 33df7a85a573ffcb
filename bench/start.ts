import { createHash, randomBytes } from "node:crypto"
import { once } from "node:events"
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises"
import { connect, createServer, type Server, type Socket } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { pipeline } from "node:stream/promises"
import { setTimeout as delay } from "node:timers/promises"
import { KubeConfig } from "@kubernetes/client-node"
import { findBinaries } from "../dev/controlplane/binaries.ts"
import { startControlPlane } from "../dev/controlplane/control-plane.ts"
import { freePort } from "../dev/controlplane/ports.ts"
import { cacheDirectory } from "../dev/controlplane/programs.ts"
import { DEFAULT_NAME } from "../dev/install.ts"
import { findCondition } from "../src/core/apis/conditions.ts"
import { CONNECTIONS } from "../src/core/resources.ts"
import { BUSYBOX, buildImage, docker, followProgress } from "../test/agent/images.ts"
import { missingForVms, prepareVms, removeVms, type Vm } from "../test/agent/vm.ts"
import { missingForRegistry } from "../test/registry.ts"
import { startTied, type TiedProcess } from "../test/tied-process.ts"
import { kubeconfigOf, startProgram } from "./program.ts"
import { type BenchContext, type BenchResult, compareLess, spreadOf, within } from "./result.ts"
import { uptime, VmCloud } from "./vm-cloud.ts"

const ROOT = join(import.meta.dirname, "..")
const ROUNDS = 7
/** Goals against a baseline: 30 % less time for a start. An end is a few requests and writes, and must not take longer. */
const GOALS = { start: 1 / 0.7, end: 1 }
/** Goals without a baseline, seconds. */
const START_SECONDS = 20
const END_SECONDS = 3
const PATIENCE_SECONDS = 300

/** Jobs on an idle VM, and the goals of the time from POST to their first line, seconds. */
const WARM_JOBS = 100
const WARM_SECONDS = { p50: 1.5, p99: 3 }
const WARM = { reuse: { idleSeconds: 600 }, timeoutSeconds: 600 }

/** Replicas of the façade. */
const REPLICAS = 2

/** Bytes of the job's image that no compression shortens. */
const IMAGE_BYTES = 64 * 1024 * 1024

/** Name of the agent's image in `simulated-operator.ts`. */
const AGENT_IMAGE = "registry.test/berth:1"

/** Times of one job without those of its cloud, seconds. */
interface Round {
  /** From the request to the first line, without the time from the request for a VM until its cloud-init has begun. */
  start: number
  /** From the container's last action to the request for the VM's termination. */
  end: number
}

/**
 * Measures Berth's own share of the time from POST to the container's first line, and from its end to the request for the VM's
 * termination. Each job has a VM of its own with a real cloud-init and a real engine, which pulls both images from a
 * registry on this machine. With a baseline both versions take turns, each with its own control plane, programs and
 * image of the agent. Then jobs run one after the other on one VM, which waits for them.
 */
export async function run(context: BenchContext): Promise<BenchResult> {
  const missing = (await missingForVms()) ?? missingForRegistry()
  if (missing !== undefined) throw new Error(missing)
  const { address } = await prepareVms()
  const registry = await Registry.start(address)
  const stacks: Stack[] = []
  try {
    const jobImage = await registry.push("job", pushJobImage)
    const ours = await Stack.start(ROOT, { context, registry, address })
    stacks.push(ours)
    const peer =
      context.baseline === undefined ? undefined : await Stack.start(context.baseline, { context, registry, address })
    if (peer !== undefined) stacks.push(peer)
    const rounds: { ours: Round; peer: Round | undefined }[] = []
    // The first round warms up.
    for (let round = 0; round <= (context.sizes?.[0] ?? ROUNDS); round++) {
      const before = await peer?.measure(jobImage)
      const after = await ours.measure(jobImage)
      context.report(`round ${round}: ${JSON.stringify({ before, after })}`)
      if (round > 0) rounds.push({ ours: after, peer: before })
    }
    const result = resultOf(rounds)
    const warm = await ours.measureWarm(jobImage, context.sizes?.[1] ?? WARM_JOBS)
    for (const [name, goal] of Object.entries(WARM_SECONDS)) {
      const value = quantile(warm, Number(name.slice(1)) / 100)
      result.rows.push(within(`POST to the first line on an idle VM, ${name}, s`, [value], goal))
    }
    result.spread["POST to the first line on an idle VM, s"] = spreadOf(warm)
    return result
  } finally {
    await Promise.all(stacks.map((stack) => stack.stop()))
    await registry.stop()
    await removeVms([])
  }
}

/** Returns the value that this part of the values does not exceed. */
function quantile(values: readonly number[], part: number): number {
  const sorted = values.toSorted((a, b) => a - b)
  return sorted[Math.max(0, Math.ceil(sorted.length * part) - 1)] ?? Number.NaN
}

function resultOf(rounds: { ours: Round; peer: Round | undefined }[]): BenchResult {
  const goals = { start: START_SECONDS, end: END_SECONDS }
  const names = { start: "POST to the first line, Berth's share, s", end: "end to the terminate call, s" }
  const result: BenchResult = { name: "start", rows: [], spread: {} }
  for (const part of ["start", "end"] as const) {
    const ours = rounds.map((round) => round.ours[part])
    const peer = rounds.flatMap((round) => (round.peer === undefined ? [] : [round.peer[part]]))
    const what = names[part]
    result.rows.push(peer.length === 0 ? within(what, ours, goals[part]) : compareLess(what, ours, peer, GOALS[part]))
    result.spread[what] = spreadOf(ours)
    if (peer.length > 0) result.spread[`${what} (baseline)`] = spreadOf(peer)
  }
  return result
}

/** Registry without TLS. This machine's engine pushes by 127.0.0.1, and VMs pull by its address on the bridge. */
class Registry {
  readonly #folder: string
  readonly #process: TiedProcess
  readonly #address: string

  private constructor(folder: string, process: TiedProcess, address: string) {
    this.#folder = folder
    this.#process = process
    this.#address = address
  }

  static async start(address: string): Promise<Registry> {
    const folder = await mkdtemp(join(tmpdir(), "berth-bench-registry-"))
    const config = {
      version: 0.1,
      log: { level: "info" },
      storage: { filesystem: { rootdirectory: join(folder, "images") } },
      http: { addr: "0.0.0.0:0", secret: "of a benchmark" },
    }
    await writeFile(join(folder, "config.yml"), JSON.stringify(config))
    const ready = /listening on .*:([0-9]+)/
    const process = await startTied("/usr/bin/docker-registry", ["serve", join(folder, "config.yml")], { ready })
    return new Registry(folder, process, address)
  }

  /** Pushes an image that `build` builds by the given name. Returns its name for VMs. */
  async push(name: string, build: (name: string) => Promise<void>): Promise<string> {
    const local = `127.0.0.1:${this.#process.address}/${name}:1`
    await build(local)
    await followProgress(await docker.getImage(local).push({ authconfig: {} }))
    await docker.getImage(local).remove({ force: true, noprune: true })
    return `${this.#address}:${this.#process.address}/${name}:1`
  }

  async stop(): Promise<void> {
    await this.#process.stop()
    await rm(this.#folder, { recursive: true, force: true })
  }
}

async function pushJobImage(name: string): Promise<void> {
  const dockerfile = ["FROM scratch", "COPY . /", 'ENTRYPOINT ["/bin/busybox", "sh", "-c"]']
  const busybox = await readFile(BUSYBOX)
  await buildImage(name, { Dockerfile: dockerfile.join("\n"), "bin/busybox": busybox, data: randomBytes(IMAGE_BYTES) })
}

interface StackParts {
  context: BenchContext
  registry: Registry
  address: string
}

/** Control plane, operator, façade and cloud of one checkout. */
class Stack {
  readonly #url: string
  readonly #headers: Record<string, string>
  readonly #cloud: VmCloud
  readonly #stops: (() => Promise<unknown>)[]
  readonly #report: (line: string) => void

  private constructor(parts: {
    url: string
    headers: Record<string, string>
    cloud: VmCloud
    stops: (() => Promise<unknown>)[]
    report: (line: string) => void
  }) {
    this.#url = parts.url
    this.#headers = parts.headers
    this.#cloud = parts.cloud
    this.#stops = parts.stops
    this.#report = parts.report
  }

  static async start(root: string, { context, registry, address }: StackParts): Promise<Stack> {
    const { assetsDir, cacheHome, report } = context
    const signal = AbortSignal.timeout(PATIENCE_SECONDS * 1000)
    const id = createHash("sha256").update(root).digest("hex").slice(0, 8)
    const modules = await modulesOf(root)
    const agentImage = await registry.push(`berth-${id}`, (name) => modules.buildBerthImage(name, "agent"))
    const folder = await mkdtemp(join(tmpdir(), "berth-bench-"))
    const binaries = await findBinaries({ assetsDir, cacheDir: cacheDirectory(cacheHome), report })
    const controlPlane = await startControlPlane({ binaries, dataDir: join(folder, "control-plane"), durable: false })
    const kubeConfig = new KubeConfig()
    kubeConfig.loadFromFile(controlPlane.kubeconfigPath)
    const client = new modules.KubeClient(kubeConfig)
    await modules.installBase(client, signal)
    await modules.installDefaults(client)
    const port = await freePort()
    // The address that VMs know: a VM that is taken over learns it from the gateway, not from its user data.
    const url = `http://${address}:${port}`
    const cloud = await VmCloud.start({ [AGENT_IMAGE]: agentImage })
    const programs = await startPrograms(root, { controlPlane, client, folder, url, cloud })
    const key = await modules.installApiKey(client, undefined, signal)
    const headers = { "content-type": "application/json", "x-service-api-key": key }
    const stops = [...programs, cloud, client, controlPlane].map((part) => () => stopPart(part))
    const stack = new Stack({
      ...{ url, headers, cloud },
      report: (line) => report(`${root}: ${line}`),
      stops: [...stops, () => rm(folder, { recursive: true })],
    })
    await stack.#connect(client, signal)
    return stack
  }

  async #connect(client: ProgramParts["client"], signal: AbortSignal): Promise<void> {
    const credentials = { access_key_id: "simulated", secret_access_key: "simulated" }
    await this.#post("/1/connections", { name: "simulated", type: "aws", ...credentials })
    const ref = { namespace: DEFAULT_NAME, name: "simulated" }
    const isReady = async (): Promise<boolean> =>
      findCondition((await client.get(CONNECTIONS, ref)).status?.conditions, "Ready")?.status === "True"
    while (!(await isReady())) await delay(50, undefined, { signal })
  }

  /** Runs one job in a VM of its own. */
  async measure(image: string): Promise<Round> {
    const created = this.#cloud.next()
    const posted = uptime()
    // The container's last action is to print the time.
    const job = { image, command: ["/bin/busybox", "sh", "-c", "echo first; sleep 2; cat /proc/uptime"] }
    const id = await this.#post("/1/jobs", job)
    const { requested, vm, terminated } = await created
    const begins = vm.then(beginOf)
    const signal = AbortSignal.timeout(PATIENCE_SECONDS * 1000)
    const log = await fetch(`${this.#url}/1/jobs/${id}/logs?follow=true`, { headers: this.#headers, signal })
    let text = ""
    let first: number | undefined
    for await (const chunk of log.body ?? []) {
      text += Buffer.from(chunk).toString()
      if (first === undefined && text.includes("first\n")) first = uptime()
    }
    const begun = await begins
    if (first === undefined) throw new Error(`job ${id} wrote ${JSON.stringify(text)} and ended`)
    const ended = Number(/first\n([0-9.]+) /.exec(text)?.[1])
    const [toLaunch, toLine] = [requested - posted, first - begun]
    this.#report(`request ${seconds(toLaunch)} s, cloud ${seconds(begun - requested)} s, VM ${seconds(toLine)} s`)
    return { start: seconds(toLaunch + toLine), end: seconds((await terminated) - ended) }
  }

  /** Runs jobs one after the other on one VM. Returns the times from POST to each first line, seconds. */
  async measureWarm(image: string, jobs: number): Promise<number[]> {
    const times: number[] = []
    for (let number = 0; number <= jobs; number++) {
      const signal = AbortSignal.timeout(PATIENCE_SECONDS * 1000)
      while (number > 0 && (await this.#get<{ idle: unknown[] }>("/1/idle")).idle.length === 0)
        await delay(50, undefined, { signal })
      const posted = performance.now()
      const id = await this.#post("/1/jobs", { ...WARM, image, command: ["/bin/busybox", "echo", "first"] })
      const log = await fetch(`${this.#url}/1/jobs/${id}/logs?follow=true`, { headers: this.#headers, signal })
      let text = ""
      for await (const chunk of log.body ?? []) {
        if (text === "" && number > 0) times.push(seconds((performance.now() - posted) / 1000))
        text += Buffer.from(chunk).toString()
      }
      if (text !== "first\n") throw new Error(`job ${id} wrote ${JSON.stringify(text)}`)
    }
    this.#report(`on an idle VM: ${times.join(" ")} s`)
    return times
  }

  async #get<Answer>(path: string): Promise<Answer> {
    const answer = await fetch(`${this.#url}${path}`, { headers: this.#headers })
    if (answer.status !== 200) throw new Error(`GET ${path}: ${answer.status} ${await answer.text()}`)
    return (await answer.json()) as Answer
  }

  async #post(path: string, content: object): Promise<string> {
    const body = JSON.stringify(content)
    const answer = await fetch(`${this.#url}${path}`, { method: "POST", headers: this.#headers, body })
    const text = await answer.text()
    if (answer.status !== 201) throw new Error(`POST ${path}: ${answer.status} ${text}`)
    return String((JSON.parse(text) as { job_id?: string }).job_id)
  }

  async stop(): Promise<void> {
    for (const stop of this.#stops) await stop()
  }
}

/** Returns the time at which a VM's cloud-init has begun: its first action is to write this file. */
async function beginOf(vm: Vm): Promise<number> {
  const file = "/var/lib/berth/deadline"
  const look = `until [ -e ${file} ]; do sleep 0.1; done; stat -c %.Y ${file}; date +%s.%N`
  const [written, now] = (await vm.exec(["sh", "-c", look])).split("\n")
  return uptime() - (Number(now) - Number(written))
}

function seconds(value: number): number {
  return Math.round(value * 100) / 100
}

/** Loads the parts of a checkout that prepare a control plane for it. */
async function modulesOf(root: string) {
  const load = async <Module>(path: string): Promise<Module> => (await import(join(root, path))) as Module
  return {
    ...(await load<typeof import("../src/core/kube/client.ts")>("src/core/kube/client.ts")),
    ...(await load<typeof import("../dev/base.ts")>("dev/base.ts")),
    ...(await load<typeof import("../dev/install.ts")>("dev/install.ts")),
    ...(await load<typeof import("../test/image/berth-image.ts")>("test/image/berth-image.ts")),
  }
}

async function stopPart(part: { stop(): Promise<unknown> } | { close(): Promise<unknown> }): Promise<void> {
  await ("stop" in part ? part.stop() : part.close())
}

interface ProgramParts {
  controlPlane: Awaited<ReturnType<typeof startControlPlane>>
  client: InstanceType<Awaited<ReturnType<typeof modulesOf>>["KubeClient"]>
  folder: string
  url: string
  cloud: VmCloud
}

async function startPrograms(root: string, { controlPlane, client, folder, url, cloud }: ProgramParts) {
  const where = { controlPlane, client, folder }
  const metrics = { operator: await freePort() }
  await mkdir(join(folder, "logs"), { recursive: true })
  const asFacade = await kubeconfigOf("berth-facade", where)
  const asOperator = await kubeconfigOf("berth-operator", where)
  const operator = await startProgram({
    ...{ name: "operator", folder, url: `http://127.0.0.1:${metrics.operator}` },
    script: join(root, "bench", "simulated-operator.ts"),
    args: ["--kubeconfig", asOperator, "--gateway-url", url, "--cloud-url", cloud.url].concat(
      ...["--metrics-port", String(metrics.operator)],
    ),
  })
  const replicas: Awaited<ReturnType<typeof startProgram>>[] = []
  const ports: number[] = []
  for (let replica = 0; replica < REPLICAS; replica++) {
    const port = await freePort()
    const facade = await startProgram({
      ...{ name: `facade-${replica}`, folder, url: `http://127.0.0.1:${port}` },
      script: join(root, "src", "main.ts"),
      args: ["facade", "--kubeconfig", asFacade, "--port", String(port), "--metrics-port", String(await freePort())]
        .concat("--default-project", DEFAULT_NAME, "--logs-dir", join(folder, "logs"), "--log-level", "warn")
        .concat("--requests-per-minute", "0"),
    })
    replicas.push(facade)
    ports.push(port)
  }
  const balancer = await Balancer.start(Number(new URL(url).port), ports)
  return [balancer, operator, ...replicas]
}

/** Spreads connections over the replicas in turns, as a Service does. */
class Balancer {
  readonly #server: Server
  readonly #sockets = new Set<Socket>()

  private constructor(ports: readonly number[]) {
    let turn = 0
    this.#server = createServer((client) => {
      const replica = connect({ host: "127.0.0.1", port: ports[turn++ % ports.length] ?? 0 })
      for (const socket of [client, replica]) {
        this.#sockets.add(socket)
        socket.once("close", () => this.#sockets.delete(socket))
      }
      pipeline(client, replica, client).catch(() => undefined)
    })
  }

  static async start(port: number, ports: readonly number[]): Promise<Balancer> {
    const balancer = new Balancer(ports)
    balancer.#server.listen(port, "0.0.0.0")
    await once(balancer.#server, "listening")
    return balancer
  }

  async stop(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy()
    this.#server.close()
    await once(this.#server, "close")
  }
}
