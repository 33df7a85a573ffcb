import { execFile } from "node:child_process"
import { mkdtemp, readFile, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import { CreateBucketCommand, GetObjectCommand, S3Client } from "@aws-sdk/client-s3"
import { expect } from "vitest"
import { awsAccounts } from "../../src/clouds/aws/account.ts"
import { openAws } from "../../src/clouds/aws/aws.ts"
import { awsBuckets } from "../../src/clouds/aws/bucket-credentials.ts"
import type { Providers } from "../../src/clouds/provider.ts"
import { connect } from "../../src/connect.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import type { Offer } from "../../src/core/apis/offer.ts"
import { CONNECTIONS } from "../../src/core/resources.ts"
import { fixedOffers } from "../../src/market/catalogue/offers.ts"
import { docker } from "../agent/images.ts"
import { MetadataService } from "../agent/metadata-service.ts"
import { buildRcloneImage, engineVolumes, removeSharedDisk, sharedDisk } from "../agent/mounts.ts"
import { Ec2Console } from "../cloud/ec2-console.ts"
import { Ec2Proxy } from "../cloud/ec2-proxy.ts"
import { kubeconfigPath, kubectl } from "../control-plane.ts"
import { openWhole } from "../harness/closing.ts"
import { containerRuntime } from "../harness/container-runtime.ts"
import { eventually } from "../harness/eventually.ts"
import { Installation } from "../harness/installation.ts"
import type { AgentConfig } from "../harness/processes/agent.ts"
import { Programs } from "../harness/programs.ts"
import { startMoto } from "../moto.ts"
import { randomFrom } from "../random.ts"
import { Hypervisor } from "./ec2-hypervisor.ts"

const AGENT = join(import.meta.dirname, "..", "harness", "processes", "agent.ts")
const REGION = "us-east-1"
/** Timeout of each wait in seconds, far above the time that it takes. */
const PATIENCE = 100
const BUCKET = "training"

/** More machine types than preemptions, because a preempted offer is in cooldown. */
const TYPES = ["m5.large", "m5a.large", "m6i.large", "m6a.large", "m7i.large", "m7a.large", "r5.large", "r5a.large"]

const offer = (instanceType: string, provisioning: Offer["provisioning"], hourlyPriceUsd: number): Offer => ({
  cloud: "aws",
  region: REGION,
  instanceType,
  architecture: "amd64",
  provisioning,
  cpu: 2,
  memoryGib: 8,
  hourlyPriceUsd,
  minimumBilledSeconds: 60,
})
const OFFERS = [
  ...TYPES.map((type, index) => offer(type, "spot", 0.1 + index / 100)),
  ...TYPES.map((type, index) => offer(type, "onDemand", 1 + index / 100)),
]

/**
 * Shell program like a training: each step depends on all steps before it. It saves its state every fifth step. It does
 * not take the last step before it was preempted as often as PREEMPTIONS says.
 */
const TRAINING = `
n=0 x=seed stop=
[ ! -e $BERTH_CHECKPOINT_DIR/state ] || read n x < $BERTH_CHECKPOINT_DIR/state
echo "launch $BERTH_LAUNCH resumes at step $n after $BERTH_PREEMPTIONS preemptions"
save() { echo "$n $x" > $BERTH_CHECKPOINT_DIR/state.tmp && busybox mv $BERTH_CHECKPOINT_DIR/state.tmp $BERTH_CHECKPOINT_DIR/state; }
trap stop=1 TERM
while [ $n -lt $STEPS ]; do
  if [ $n -lt $((STEPS - 1)) ] || [ $BERTH_PREEMPTIONS -ge $PREEMPTIONS ]; then
    x=$(echo "$n $x" | busybox md5sum | busybox cut -c 1-32)
    n=$((n + 1))
    echo "step $n"
    [ $((n % 5)) -ne 0 ] || save
  fi
  if [ "$stop" ]; then save; echo "saved step $n"; exit 9; fi
  busybox sleep 0.1
done
echo $x > $OUT/result
`

/** Returns the result of the same program, run without any disturbance on this host. */
export async function undisturbed(steps: number): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "berth-training-"))
  const own = { BERTH_LAUNCH: "1", BERTH_PREEMPTIONS: "0", BERTH_CHECKPOINT_DIR: folder }
  const env = { PATH: "/bin", STEPS: String(steps), PREEMPTIONS: "0", OUT: folder, ...own }
  await promisify(execFile)("/bin/busybox", ["sh", "-c", TRAINING], { env })
  const result = await readFile(join(folder, "result"), "utf8")
  await rm(folder, { recursive: true, force: true })
  return result
}

/** Way in which the cloud takes a VM back: with a notice before, or at once. */
export type Preemption = "notice" | "at once"

/** Installation on moto's EC2 and S3, whose spot VMs the test preempts. Its agents are real and mount real buckets. */
export interface SpotCloud {
  berth: Installation
  /** Starts the training. It uses spot VMs only. */
  train(name: string, size: { steps: number; preemptions: number }): Promise<void>
  /** Preempts the current VM of a job. */
  preempt(job: string, how: Preemption): Promise<void>
  /** Resolves when the n-th container of the job runs, with its Launch. */
  started(job: string, number: number): Promise<StoredLaunch>
  /** Returns the log of a job. */
  log(job: string): Promise<string>
  /** Returns the record of a job in the REST API. */
  record(job: string): Promise<Record<string, unknown>>
  result(job: string): Promise<string>
  /** Returns the state of the jobs and what the machines printed last. */
  situation(): string
  /** Messages of parts that saw something wrong. */
  faults(): unknown[]
  close(): Promise<void>
}

/** Starts a moto, an installation and its machines. It holds this engine's volumes until it is closed. */
export function startSpotCloud(name: string): Promise<SpotCloud> {
  return openWhole((closing) => spotCloud(name, closing))
}

async function spotCloud(name: string, closing: AsyncDisposableStack): Promise<SpotCloud> {
  closing.use(await engineVolumes())
  const runtime = await containerRuntime()
  const image = `berth-test/rclone-spot:${process.pid}`
  await buildRcloneImage(image)
  closing.defer(() => docker.getImage(image).remove({ force: true }))
  const moto = closing.adopt(await startMoto(), (server) => server.stop())
  const proxy = closing.adopt(await Ec2Proxy.start(moto), (server) => server.stop())
  setEndpoint(proxy.url, closing)
  const berth = closing.adopt(
    await Installation.create({ name, kubeconfig: kubeconfigPath(), runtime }),
    (installation) => installation.close(),
  )
  const console_ = closing.adopt(new Ec2Console(moto, REGION), (ec2) => ec2.close())
  const machines = new Machines()
  closing.defer(() => machines.close())
  const hypervisor = closing.adopt(
    new Hypervisor({
      console: console_,
      installation: berth.id,
      folder: berth.folder,
      runtime,
      prepare: (id) => machines.prepare(id),
    }),
    (all) => all.close(),
  )
  const s3 = new S3Client({
    endpoint: moto.url,
    region: REGION,
    forcePathStyle: true,
    credentials: { accessKeyId: "test", secretAccessKey: "test" },
  })
  await s3.send(new CreateBucketCommand({ Bucket: BUCKET }))
  const url = await startPrograms(berth, { image, motoUrl: moto.url }, closing)
  await connectAws(berth)
  const call = (path: string) => fetch(`${url}/1${path}`, { headers: { "X-Service-Api-Key": berth.apiKey } })
  const started = async (job: string, number: number): Promise<StoredLaunch> => {
    const launch = () => berth.launchesOf(job)[number - 1]
    await berth.untilLaunches(`container ${number} of ${job}`, () => launch()?.status?.agent?.startTime !== undefined)
    return launch() as StoredLaunch
  }
  return {
    berth,
    started,
    train: (job, { steps, preemptions }) =>
      berth.submit(job, TRAINING, {
        cloud: ["aws"],
        provisioning: "spot",
        terminationGraceSeconds: 60,
        env: { STEPS: String(steps), PREEMPTIONS: String(preemptions), OUT: "/out" },
        volumes: {
          state: { bucket: BUCKET, prefix: "runs", mountPath: "/state", checkpoint: true },
          out: { bucket: BUCKET, prefix: `out/${job}`, mountPath: "/out" },
        },
      }),
    preempt: async (job, how) => {
      const id = berth.launchesOf(job).at(-1)?.status?.vm?.id ?? ""
      if (how === "notice") machines.announce(id)
      else await proxy.takeBack(id, REGION)
    },
    log: async (job) => await (await call(`/jobs/${job}/logs`)).text(),
    record: async (job) => (await (await call(`/jobs/${job}`)).json()) as Record<string, unknown>,
    result: async (job) => {
      const { Body } = await s3.send(new GetObjectCommand({ Bucket: BUCKET, Key: `out/${job}/result` }))
      return (await Body?.transformToString()) ?? ""
    },
    situation: () => {
      const launches = berth.launches.store.list().map(({ metadata, status }) => [metadata.name, status?.phase])
      return `${JSON.stringify(launches)}\n${hypervisor.output}`
    },
    faults: () => [...proxy.breaches, ...hypervisor.faults],
    close: () => closing.disposeAsync(),
  }
}

/** Points AWS' SDK of this process, which runs operator and façade, to the proxy. */
function setEndpoint(url: string, closing: AsyncDisposableStack): void {
  const before = process.env["AWS_ENDPOINT_URL"]
  process.env["AWS_ENDPOINT_URL"] = url
  closing.defer(() => {
    if (before === undefined) delete process.env["AWS_ENDPOINT_URL"]
    else process.env["AWS_ENDPOINT_URL"] = before
  })
}

/** Starts operator and façade in this process. Returns the façade's URL. */
async function startPrograms(
  berth: Installation,
  { image, motoUrl }: { image: string; motoUrl: string },
  closing: AsyncDisposableStack,
): Promise<string> {
  const providers: Providers = {
    aws: {
      account: awsAccounts({ endpoint: motoUrl }),
      region: openAws({ clock: systemClock }),
      buckets: awsBuckets({ endpoint: motoUrl }),
    },
  }
  const programs = new Programs({
    ...{ systemNamespace: berth.systemNamespace, watchNamespace: berth.namespace },
    clientOf: async () => connect({ kubeconfig: kubeconfigPath() }),
    market: { offers: fixedOffers(OFFERS), providers },
  })
  closing.defer(() => programs.stop())
  const logsDir = join(berth.folder, "own-logs")
  const { url } = await programs.startFacade(
    { requestsPerMinute: 0, defaultProject: berth.namespace, logsDir },
    { clouds: ["aws"] },
  )
  await programs.startOperator({ gatewayUrl: url, agentImage: image, volumesImage: image }, { observeSeconds: 0.5 })
  return url
}

async function connectAws(berth: Installation): Promise<void> {
  const metadata = { name: "aws", namespace: berth.namespace }
  const stringData = { access_key_id: "AKIAEXAMPLE", secret_access_key: "secret" }
  const secret = { apiVersion: "v1", kind: "Secret", metadata, type: "berth.dev/connection", stringData }
  await kubectl(["apply", "-f", "-"], JSON.stringify(secret))
  const spec = { type: "aws", credentialsSecretRef: { name: "aws" } }
  const connection = { apiVersion: "berth.dev/v1alpha1", kind: "Connection", metadata, spec }
  await kubectl(["apply", "-f", "-"], JSON.stringify(connection))
  await eventually(async () => {
    const { status } = await berth.client.get(CONNECTIONS, metadata)
    expect(status?.conditions).toContainEqual(expect.objectContaining({ type: "Ready", status: "True" }))
  }, PATIENCE)
}

/** Disks and metadata services of the machines. */
class Machines {
  readonly #services = new Map<string, MetadataService>()
  readonly #disks: string[] = []

  async prepare(id: string): Promise<{ disk: string; program: string[] }> {
    const disk = await sharedDisk()
    this.#disks.push(disk)
    const service = new MetadataService()
    this.#services.set(id, service)
    const config: AgentConfig = { dataDir: disk, metadataUrl: await service.start() }
    return { disk, program: [AGENT, JSON.stringify(config)] }
  }

  /** Announces the preemption of a machine. */
  announce(id: string): void {
    const service = this.#services.get(id)
    if (service === undefined) throw new Error(`there is no machine ${id}`)
    service.preempted = true
  }

  async close(): Promise<void> {
    for (const service of this.#services.values()) service.stop()
    for (const disk of this.#disks) await removeSharedDisk(disk)
  }
}

/** Preempts a training this often at random steps, and expects the result that it has without any disturbance. */
export async function expectSameResult(
  cloud: SpotCloud,
  { preemptions, steps, seed }: { preemptions: readonly Preemption[]; steps: number; seed: number },
): Promise<void> {
  const job = `training-${preemptions.length}`
  const random = randomFrom(seed)
  await cloud.train(job, { steps, preemptions: preemptions.length })
  for (const [index, how] of preemptions.entries()) {
    await cloud.started(job, index + 1)
    const more = 1 + Math.floor(random() * 14)
    await eventually(async () => {
      const log = await cloud.log(job)
      const { resumedAt = 0, last = 0 } = livesIn(log)[index] ?? {}
      expect(last, `seed ${seed}, life ${index + 1}\n${log}\n${cloud.situation()}`).toBeGreaterThanOrEqual(
        Math.min(resumedAt + more, steps - 1),
      )
    }, PATIENCE)
    await cloud.preempt(job, how)
  }
  await cloud.berth.reached("succeeded", job)
  await cloud.berth.allOver()
  expect(await cloud.result(job)).toBe(await undisturbed(steps))
  const { launches } = cloud.berth.job(job).status ?? {}
  expect(launches).toMatchObject({ count: preemptions.length + 1, lost: 0, preempted: preemptions.length })
  const lives = livesIn(await cloud.log(job))
  expect(lives.map(({ launch, preempted }) => [launch, preempted])).toEqual(
    Array.from({ length: preemptions.length + 1 }, (_, index) => [index + 1, index]),
  )
  for (const [index, { last }] of lives.slice(0, -1).entries()) {
    const next = lives[index + 1]?.resumedAt ?? 0
    // After a notice nothing is lost. Without one, work since a checkpoint is, which may not have been uploaded yet.
    if (preemptions[index] === "notice") expect(next, `seed ${seed}`).toBe(last)
    else expect(next, `seed ${seed}`).toBeLessThanOrEqual(last)
    expect(next, `seed ${seed}`).toBeGreaterThanOrEqual(lives[index]?.resumedAt ?? 0)
  }
}

interface Life {
  launch: number
  preempted: number
  resumedAt: number
  /** Last step in the log. */
  last: number
}

/** Returns the runs of the training, each on a VM of its own. */
function livesIn(log: string): Life[] {
  return log.split(/^(?=launch )/m).flatMap((text) => {
    const found = /^launch (\d+) resumes at step (\d+) after (\d+) preemptions/.exec(text)
    if (found === null) return []
    const [launch = 0, resumedAt = 0, preempted = 0] = found.slice(1).map(Number)
    const last = [...text.matchAll(/^step (\d+)$/gm)].reduce(
      (most, [, step]) => Math.max(most, Number(step)),
      resumedAt,
    )
    return [{ launch, resumedAt, preempted, last }]
  })
}
