import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { setTimeout as delay } from "node:timers/promises"
import { KubeConfig } from "@kubernetes/client-node"
import { installBase } from "../dev/base.ts"
import { findBinaries } from "../dev/controlplane/binaries.ts"
import { startControlPlane } from "../dev/controlplane/control-plane.ts"
import { cacheDirectory } from "../dev/controlplane/programs.ts"
import { openAws } from "../src/clouds/aws/aws.ts"
import { createClouds } from "../src/clouds/provider.ts"
import { systemClock, timestamp } from "../src/core/apis/clock.ts"
import { isTerminal, type StoredJob } from "../src/core/apis/job.ts"
import { isOver, type StoredLaunch } from "../src/core/apis/launch.ts"
import { API_VERSION } from "../src/core/apis/meta.ts"
import type { Offer } from "../src/core/apis/offer.ts"
import { KubeClient } from "../src/core/kube/client.ts"
import { NAMESPACES } from "../src/core/kube/core.ts"
import { isConflict } from "../src/core/kube/errors.ts"
import { Reflector } from "../src/core/kube/reflector.ts"
import { JOBS, LAUNCHES } from "../src/core/resources.ts"
import { createLogger } from "../src/core/telemetry/logger.ts"
import { fixedOffers } from "../src/market/catalogue/offers.ts"
import { startOperator } from "../src/operator/main.ts"
import { Ec2Console, isGone } from "../test/cloud/ec2-console.ts"
import { Ec2Proxy } from "../test/cloud/ec2-proxy.ts"
import { startMoto } from "../test/moto.ts"
import { type BenchContext, type BenchResult, within } from "./result.ts"

const REGION = "eu-central-1"
const PROJECT = "bench"
const SYSTEM = "bench-system"
const JOB_COUNT = 500
/** Poll interval of VMs in production, seconds. */
const OBSERVE_SECONDS = 10

/** Goal for the calls of a whole job's life. One call creates its VM; describes, terminations and lists are shared. */
const MOST_CALLS_A_JOB = 2

/** Moto has none of EC2's limits (two launches a second), and the benchmark must not wait for them. */
const UNPACED = { capacity: 1e6, perSecond: 1e6 }
const ALLOWANCES = { "": UNPACED, RunInstances: UNPACED, TerminateInstances: UNPACED, CreateSecurityGroup: UNPACED }

const OFFER: Offer = {
  cloud: "aws",
  region: REGION,
  instanceType: "m6i.large",
  architecture: "amd64",
  provisioning: "onDemand",
  cpu: 2,
  memoryGib: 8,
  hourlyPriceUsd: 0.115,
  minimumBilledSeconds: 60,
}

/**
 * Measures the calls to AWS per job, from queued to deleted. Submits all jobs at once and runs them on moto's EC2. The
 * operator's own controllers run on a real API server. Writes the agents' reports like the gateway would. Leaves out
 * EC2's own rate limits.
 */
export async function run(context: BenchContext): Promise<BenchResult> {
  const dataDir = await mkdtemp(join(tmpdir(), "berth-bench-"))
  const { assetsDir, report } = context
  const binaries = await findBinaries({ assetsDir, cacheDir: cacheDirectory(context.cacheHome), report })
  const controlPlane = await startControlPlane({ binaries, dataDir, durable: false })
  const moto = await startMoto()
  const proxy = await Ec2Proxy.start(moto)
  process.env["AWS_ENDPOINT_URL"] = proxy.url
  const ec2 = new Ec2Console(moto, REGION)
  try {
    const kubeConfig = new KubeConfig()
    kubeConfig.loadFromFile(controlPlane.kubeconfigPath)
    return await measure(kubeConfig, { proxy, ec2, context })
  } finally {
    ec2.close()
    await proxy.stop()
    await moto.stop()
    await controlPlane.stop()
    await rm(dataDir, { recursive: true, force: true })
  }
}

interface Parts {
  proxy: Ec2Proxy
  ec2: Ec2Console
  context: BenchContext
}

async function measure(kubeConfig: KubeConfig, { proxy, ec2, context }: Parts): Promise<BenchResult> {
  const count = context.sizes?.[0] ?? JOB_COUNT
  const client = new KubeClient(kubeConfig)
  const stop = new AbortController()
  await installBase(client, AbortSignal.timeout(60_000))
  for (const name of [PROJECT, SYSTEM]) await client.apply(NAMESPACES, { metadata: { name } })
  const logger = createLogger({ level: "error", name: "bench" })
  const launches = new Reflector<StoredLaunch>({ client, resource: LAUNCHES, namespace: SYSTEM, logger })
  const jobs = new Reflector<StoredJob>({ client, resource: JOBS, namespace: PROJECT, logger })
  const loops = [launches.run(stop.signal), jobs.run(stop.signal)]
  const operator = await startOperator(
    {
      systemNamespace: SYSTEM,
      watchNamespace: PROJECT,
      gatewayUrl: "https://gateway.test",
      agentImage: "registry.test/berth:1",
    },
    {
      client,
      clouds: createClouds({ aws: ({ region }) => Promise.resolve(openRegion(region)) }),
      providers: {},
      offers: fixedOffers([OFFER]),
      ownAccounts: [{ cloud: "aws", region: REGION }],
      architectures: [],
      observeSeconds: OBSERVE_SECONDS,
      logger,
    },
    stop.signal,
  )
  const startedAt = performance.now()
  await Promise.all(Array.from({ length: count }, (_, number) => submit(client, number)))
  context.report(`${count} jobs submitted after ${seconds(startedAt)} s`)
  const agents = new Agents(client, launches)
  while (!isAllOver(jobs, launches, count)) {
    await agents.step()
    await delay(200)
  }
  const elapsed = seconds(startedAt)
  context.report(`${count} jobs succeeded and their VMs are deleted after ${elapsed} s`)
  const left = (await ec2.instances("installation", installationOf(launches))).filter((instance) => !isGone(instance))
  stop.abort()
  await Promise.all([operator.ended, ...loops])
  await client.close()
  if (left.length > 0) throw new Error(`${left.length} instances are left`)
  return told(proxy, count, context)
}

const openRegion = (() => {
  const open = openAws({ clock: systemClock, allowances: ALLOWANCES })
  return (region: string) => open({ access_key_id: "bench", secret_access_key: "bench" }, region)
})()

function submit(client: KubeClient, number: number): Promise<StoredJob> {
  return client.create(JOBS, {
    apiVersion: API_VERSION,
    kind: "Job",
    metadata: { name: `job-${number}`, namespace: PROJECT },
    spec: { image: "busybox" },
  } as StoredJob)
}

function isAllOver(jobs: Reflector<StoredJob>, launches: Reflector<StoredLaunch>, count: number): boolean {
  const ended = jobs.store.list().filter(({ status }) => isTerminal(status?.phase))
  const failed = ended.find(({ status }) => status?.phase !== "succeeded")
  if (failed !== undefined) throw new Error(`${failed.metadata.name} did not succeed: ${failed.status?.message}`)
  return ended.length === count && launches.store.list().every(isOver)
}

function installationOf(launches: Reflector<StoredLaunch>): string {
  return launches.store.list()[0]?.spec.installation ?? ""
}

/** Writes the reports of agents, like the gateway would. */
class Agents {
  readonly #client: KubeClient
  readonly #launches: Reflector<StoredLaunch>

  constructor(client: KubeClient, launches: Reflector<StoredLaunch>) {
    this.#client = client
    this.#launches = launches
  }

  /** Writes one report for each VM that has one to make. */
  async step(): Promise<void> {
    const live = this.#launches.store.list().filter((launch) => launch.status?.vm?.id !== undefined && !isOver(launch))
    const due = live.filter(({ status }) => status?.agent?.finish === undefined)
    await Promise.all(due.map((launch) => this.#report(launch)))
  }

  async #report({ metadata, status }: StoredLaunch): Promise<void> {
    const now = timestamp(new Date())
    const before = status?.agent ?? {
      signingKey: "{}",
      encryptionKey: "{}",
      registrationTime: now,
      sequence: 0,
      retryCount: 0,
    }
    const done =
      before.startTime === undefined ? { startTime: now } : { finish: { reason: "Succeeded", exitCode: 0, time: now } }
    const agent = { ...before, ...done, sequence: before.sequence + 1 }
    const merge = { metadata: { resourceVersion: metadata.resourceVersion }, status: { agent } }
    const ref = { namespace: SYSTEM, name: metadata.name }
    try {
      await this.#client.patchStatus(LAUNCHES, ref, { merge }, { fieldManager: "berth-gateway" })
    } catch (error) {
      if (!isConflict(error)) throw error
    }
  }
}

function told(proxy: Ec2Proxy, count: number, { report }: BenchContext): BenchResult {
  const counts = new Map<string, number>()
  for (const { service, action } of proxy.requests) {
    const name = `${service}:${action}`
    counts.set(name, (counts.get(name) ?? 0) + 1)
  }
  for (const [name, calls] of [...counts].sort(([, a], [, b]) => b - a)) {
    report(`${name}: ${calls} calls, ${(calls / count).toFixed(3)} a job`)
  }
  if (proxy.breaches.length > 0) throw new Error(`EC2 would have rejected: ${proxy.breaches.join("; ")}`)
  const perJob = proxy.requests.length / count
  const lists = (counts.get("ec2:DescribeInstances") ?? 0) / count
  return {
    name: "aws",
    rows: [
      within("calls of AWS for each job, from queued to deleted", [perJob], MOST_CALLS_A_JOB),
      within("of these, calls that look at VMs", [lists], MOST_CALLS_A_JOB - 1),
    ],
    spread: {},
  }
}

function seconds(since: number): number {
  return Math.round((performance.now() - since) / 100) / 10
}
