import { type ChildProcess, spawn } from "node:child_process"
import { open } from "node:fs/promises"
import { join } from "node:path"
import { timestamp } from "../src/core/apis/clock.ts"
import type { KubeClient } from "../src/core/kube/client.ts"
import { isConflict, isNotFound } from "../src/core/kube/errors.ts"
import { Reflector } from "../src/core/kube/reflector.ts"
import { type ApiObject, declareResource } from "../src/core/kube/resource.ts"
import { createLogger } from "../src/core/telemetry/logger.ts"
import { sumOf, writesBetween } from "./api-server.ts"
import { BerthStack, cpuOfJob, JobWatch, PROJECT } from "./berth-stack.ts"
import { stop, usageOf } from "./program.ts"
import { type BenchContext, type BenchResult, compare, compareLess, spreadOf } from "./result.ts"
import { JobRunner } from "./throughput.ts"

const JOB_COUNT = 2000
const ROUNDS = 5
const WARM_UP_JOBS = 100
const CONCURRENCY = 32
const PATIENCE_SECONDS = 600
/** Far above the actual rate, so that no rate limit slows the peer. */
const PEER_REQUESTS_A_SECOND = 5000

/**
 * Floors: Berth must not get worse than this. Kubernetes' own control loop for jobs does less: it chooses no machine,
 * calls no cloud and receives no agent reports. Its kinds are built in, so each write costs the API server less.
 */
const AS_FAST = 0.3
const SERVER_CPU_TIMES = 3.1
/** Writes and CPU of the operator are shown beside it. They have goals of their own in `throughput`. */
const SHOWN = 0.1

interface BatchJob extends ApiObject {
  spec: object
  status?: { conditions?: { type: string; status: string }[] }
}

interface Pod extends ApiObject {
  spec: { nodeName?: string }
  status?: { phase?: string }
}

const BATCH_JOBS = declareResource<BatchJob>({
  group: "batch",
  version: "v1",
  kind: "Job",
  plural: "jobs",
  namespaced: true,
})
const PODS = declareResource<Pod>({ group: "", version: "v1", kind: "Pod", plural: "pods", namespaced: true })

/**
 * Compares Berth with the controller of Kubernetes' own batch/v1 Jobs, from the same release as the API server. Both
 * run the same number of jobs on the same server, in turns. There are no nodes. This process makes the writes of
 * scheduler and kubelet for each pod, as the simulated cloud's agents report for Berth.
 */
export async function run(context: BenchContext): Promise<BenchResult> {
  const stack = await BerthStack.start(context)
  const watch = new JobWatch(stack)
  const peer = await BatchJobs.start(stack)
  try {
    return await measure(new JobRunner(stack, watch), peer, context)
  } finally {
    await peer.stop()
    await watch.stop()
    await stack.stop()
  }
}

async function measure(berth: JobRunner, peer: BatchJobs, { sizes = [JOB_COUNT], report }: BenchContext) {
  const perRound = Math.ceil((sizes[0] ?? JOB_COUNT) / ROUNDS)
  const rates = { berth: [] as number[], peer: [] as number[] }
  const writes = { berth: [] as number[], peer: [] as number[] }
  const cpu = { berth: [] as number[], peer: [] as number[] }
  const serverCpu = { berth: [] as number[], peer: [] as number[] }
  // The first round warms up.
  for (let round = 0; round <= ROUNDS; round++) {
    const jobs = round === 0 ? Math.min(WARM_UP_JOBS, perRound) : perRound
    const turns = ["berth", "peer"] as const
    const line: string[] = []
    for (const turn of round % 2 === 0 ? turns : turns.toReversed()) {
      const result = await { berth, peer }[turn].run(jobs)
      const written = sumOf(result.writes) / jobs
      line.push(
        `${turn} ${result.jobsPerSecond.toFixed(1)} jobs/s, ${written.toFixed(1)} writes a job, CPU ms a job: operator ${result.cpu.operator.toFixed(1)}, server ${result.cpu.server.toFixed(1)}`,
      )
      if (round === 0) continue
      rates[turn].push(result.jobsPerSecond)
      writes[turn].push(written)
      cpu[turn].push(result.cpu.operator)
      serverCpu[turn].push(result.cpu.server)
    }
    report(`round ${round} of ${ROUNDS}: ${line.join("; ")}`)
  }
  const peerName = "the batch Job controller"
  const all = (perRound * ROUNDS).toLocaleString("en")
  return {
    name: "peer",
    rows: [
      compareLess(
        `CPU ms a job of API server and etcd, against ${peerName}`,
        serverCpu.berth,
        serverCpu.peer,
        1 / SERVER_CPU_TIMES,
      ),
      compare(`jobs a second, ${all} of each, against ${peerName}`, rates.berth, rates.peer, AS_FAST),
      compareLess(
        `API writes a job, against ${peerName} with what scheduler and kubelet write`,
        writes.berth,
        writes.peer,
        SHOWN,
      ),
      compareLess(`CPU ms a job of the operator, against ${peerName}`, cpu.berth, cpu.peer, SHOWN),
    ],
    spread: {
      "jobs a second": spreadOf(rates.berth),
      [`jobs a second of ${peerName}`]: spreadOf(rates.peer),
    },
  } satisfies BenchResult
}

/** Kubernetes' controller of batch/v1 Jobs in a process of its own, and a substitute for scheduler and kubelets. */
class BatchJobs {
  readonly #stack: BerthStack
  readonly #controller: ChildProcess
  readonly #jobs: Reflector<BatchJob>
  readonly #kubelet: Kubelet
  readonly #stop = new AbortController()
  readonly #running: Promise<unknown>
  #made = 0
  #complete = 0
  #check = (): void => undefined

  private constructor(stack: BerthStack, controller: ChildProcess) {
    const { client } = stack
    const logger = createLogger({ level: "warn", name: "bench" })
    this.#stack = stack
    this.#controller = controller
    this.#jobs = new Reflector({ client, resource: BATCH_JOBS, namespace: PROJECT, logger })
    this.#jobs.onChange(({ old, current }) => {
      if (!isComplete(current) || isComplete(old)) return
      this.#complete++
      this.#check()
    })
    this.#kubelet = new Kubelet(client)
    this.#running = Promise.all([this.#jobs.run(this.#stop.signal), this.#kubelet.run(this.#stop.signal)])
  }

  static async start(stack: BerthStack): Promise<BatchJobs> {
    const { binaries, controlPlane, folder } = stack
    const log = await open(join(folder, "job-controller.log"), "w")
    const flags = [
      `--kubeconfig=${controlPlane.kubeconfigPath}`,
      "--controllers=job-controller",
      "--leader-elect=false",
      "--secure-port=0",
      `--kube-api-qps=${PEER_REQUESTS_A_SECOND}`,
      `--kube-api-burst=${PEER_REQUESTS_A_SECOND}`,
      `--concurrent-job-syncs=${CONCURRENCY}`,
    ]
    const controller = spawn(binaries["kube-controller-manager"], flags, { stdio: ["ignore", log.fd, log.fd] })
    await log.close()
    const end = (): void => void controller.kill("SIGTERM")
    process.once("exit", end)
    controller.once("exit", () => process.off("exit", end))
    return new BatchJobs(stack, controller)
  }

  /** Creates this many jobs and waits until all are complete. */
  async run(jobs: number) {
    const { api } = this.#stack
    const before = await api.writes(PEER_GROUPS)
    const controllerBefore = (await usageOf(this.#controller.pid ?? 0)).cpuSeconds
    const cpuBefore = await this.#stack.cpuSeconds()
    const names = Array.from({ length: jobs }, () => `batch-${this.#made++}`)
    const startedAt = performance.now()
    const worker = async (): Promise<void> => {
      for (let name = names.pop(); name !== undefined; name = names.pop()) {
        await this.#stack.client.create(BATCH_JOBS, batchJob(name))
      }
    }
    await Promise.all(Array.from({ length: CONCURRENCY }, worker))
    await this.#untilComplete()
    const elapsed = (performance.now() - startedAt) / 1000
    const operator = (((await usageOf(this.#controller.pid ?? 0)).cpuSeconds - controllerBefore) * 1000) / jobs
    const { server } = cpuOfJob(cpuBefore, await this.#stack.cpuSeconds(), jobs)
    return {
      jobsPerSecond: jobs / elapsed,
      writes: writesBetween(before, await api.writes(PEER_GROUPS)),
      cpu: { operator, server },
    }
  }

  async #untilComplete(): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    const late = (): void => reject(new Error(`${this.#complete} of ${this.#made} batch jobs are complete: too slow`))
    const timer = setTimeout(late, PATIENCE_SECONDS * 1000)
    this.#check = () => {
      if (this.#complete === this.#made) resolve()
    }
    this.#check()
    await promise.finally(() => clearTimeout(timer))
  }

  async stop(): Promise<void> {
    this.#stop.abort()
    await this.#running
    await stop(this.#controller)
  }
}

/** Its own kind, pods and events. */
const PEER_GROUPS = ["batch", ""]

/** Makes the writes of a scheduler and a kubelet for a pod whose container succeeds at once. */
class Kubelet {
  readonly #client: KubeClient
  readonly #pods: Reflector<Pod>
  readonly #lives = new Set<Promise<void>>()

  constructor(client: KubeClient) {
    this.#client = client
    const logger = createLogger({ level: "warn", name: "bench" })
    this.#pods = new Reflector({ client, resource: PODS, namespace: PROJECT, logger })
    this.#pods.onChange(({ old, current }) => {
      if (old !== undefined || current === undefined || current.spec.nodeName !== undefined) return
      const life = this.#live(current).finally(() => this.#lives.delete(life))
      this.#lives.add(life)
    })
  }

  async run(signal: AbortSignal): Promise<void> {
    await this.#pods.run(signal)
    await Promise.all(this.#lives)
  }

  async #live({ metadata: { namespace, name } }: Pod): Promise<void> {
    const ref = { namespace, name }
    const target = { apiVersion: "v1", kind: "Node", name: "node" }
    const binding = { apiVersion: "v1", kind: "Binding", metadata: ref, target }
    try {
      await this.#client.createSubresource(PODS, ref, binding, { subresource: "binding" })
      const startedAt = timestamp(new Date())
      await this.#client.patchStatus(PODS, ref, { merge: { status: podStatus("Running", { running: { startedAt } }) } })
      const terminated = { exitCode: 0, reason: "Completed", startedAt, finishedAt: timestamp(new Date()) }
      await this.#client.patchStatus(PODS, ref, { merge: { status: podStatus("Succeeded", { terminated }) } })
    } catch (error) {
      if (!isNotFound(error) && !isConflict(error)) throw error
    }
  }
}

function podStatus(phase: "Running" | "Succeeded", state: object): object {
  const isReady = phase === "Running"
  const container = { name: "main", image: "busybox", imageID: "", restartCount: 0, ready: isReady, state }
  const conditions = [{ type: "Ready", status: isReady ? "True" : "False", lastTransitionTime: timestamp(new Date()) }]
  return { phase, conditions, containerStatuses: [container] }
}

function batchJob(name: string): BatchJob {
  const container = { name: "main", image: "busybox", command: ["sleep", "0"] }
  const template = { spec: { restartPolicy: "Never", containers: [container] } }
  return { metadata: { namespace: PROJECT, name }, spec: { backoffLimit: 0, template } }
}

function isComplete(job: BatchJob | undefined): boolean {
  return job?.status?.conditions?.some(({ type, status }) => type === "Complete" && status === "True") ?? false
}
