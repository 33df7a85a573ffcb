import { createHash, randomUUID } from "node:crypto"
import type { JobStatus, Placement, StoredJob } from "../../src/core/apis/job.ts"
import type { StoredJobArray } from "../../src/core/apis/jobarray.ts"
import { type LaunchStatus, launchName, type StoredLaunch } from "../../src/core/apis/launch.ts"
import type { Host } from "../../src/core/apis/machine.ts"
import { LABELS } from "../../src/core/apis/meta.ts"
import { roundUsd } from "../../src/core/apis/money.ts"
import type { Offer } from "../../src/core/apis/offer.ts"
import { monthOf, type StoredStatement, statementName } from "../../src/core/apis/statement.ts"
import type { UsagePoint } from "../../src/core/apis/usage.ts"
import type { WebhookStatus } from "../../src/core/apis/webhook.ts"
import { JOB_ARRAYS, JOBS, LAUNCHES, MACHINES, PROJECTS, STATEMENTS, WEBHOOKS } from "../../src/core/resources.ts"
import { agentOf, launchOf } from "../harness/builders.ts"
import { type Caller, created } from "../harness/caller.ts"
import { eventually } from "../harness/eventually.ts"
import type { Replica } from "../harness/facade.ts"
import { type ProjectFixture, setStatus } from "../harness/facade-project.ts"
import { SYSTEM_NAMESPACE } from "../harness/system-namespace.ts"

/** A project with jobs in each state, as operator and agents leave them. */
export interface SampleProject {
  fixture: ProjectFixture
  replica: Replica
  call: Caller
}

/** Minutes after its creation at which a test looks at the project: the API server sets the time of creation. */
export const SHOWN_AFTER_MINUTES = 42

const minutesAgo = (minutes: number): string => `${new Date(Date.now() - minutes * 60_000).toISOString().slice(0, 19)}Z`

const L4: Offer = {
  cloud: "gcp",
  region: "europe-west4",
  instanceType: "g2-standard-4",
  architecture: "amd64",
  provisioning: "onDemand",
  cpu: 4,
  memoryGib: 16,
  gpu: { model: "L4", count: 1, vramGib: 24 },
  hourlyPriceUsd: 0.7548,
  minimumBilledSeconds: 60,
}
const SMALL: Offer = {
  cloud: "aws",
  region: "us-east-1",
  instanceType: "t4g.small",
  architecture: "arm64",
  provisioning: "spot",
  cpu: 2,
  memoryGib: 2,
  hourlyPriceUsd: 0.0061,
  minimumBilledSeconds: 60,
}

const placed = (offer: Offer): Placement => ({
  offer,
  connection: offer.cloud === "gcp" ? "research-gcp" : "aws-prod",
  reason: `${offer.cloud} ${offer.instanceType} in ${offer.region} is the cheapest of 41 matching offers; the next one costs 5 % more.`,
})

/** Submits a job, and writes the status that the job controller would. Returns its id. */
async function job({ fixture, call }: SampleProject, name: string, body: object, status: JobStatus): Promise<string> {
  const { job_id } = await created(await call("/1/jobs", { body: { name, image: "ghcr.io/acme/train:3.2", ...body } }))
  await setStatus(fixture, name, status)
  return job_id
}

/** Creates a Launch of a job with this status. */
export async function launch(
  { fixture }: SampleProject,
  name: string,
  number: number,
  more: { offer: Offer; status: LaunchStatus },
) {
  const { spec } = launchOf(await fixture.client.get(JOBS, { namespace: fixture.namespace, name }), number)
  const ref = { namespace: SYSTEM_NAMESPACE, name: launchName(spec.job.uid, number) }
  await fixture.client.create(LAUNCHES, {
    kind: "Launch",
    metadata: ref,
    spec: { ...spec, offer: more.offer },
  } as StoredLaunch)
  await fixture.client.patchStatus(LAUNCHES, ref, { merge: { status: more.status } })
}

export function writeLog(
  { fixture, replica }: SampleProject,
  uid: string,
  text: string | Uint8Array,
  offset = 0,
  time = "2026-11-24T10:00:00Z",
): Promise<unknown> {
  const data = typeof text === "string" ? new TextEncoder().encode(text) : text
  const log = { job: { namespace: fixture.namespace, uid }, launch: 1 }
  return replica.logStore.append(log, offset, data, [{ offset, time: Date.parse(time) }])
}

/** Stores what a training run of two hours used: data first, then the GPU. */
function writeUsage({ fixture, replica }: SampleProject, uid: string): Promise<void> {
  const points = Array.from({ length: 120 }, (_, minute): UsagePoint => {
    const trains = minute >= 15
    const wave = Math.sin(minute / 4)
    return {
      time: Date.parse("2026-11-24T10:00:00Z") + minute * 60_000,
      ...{ seconds: 60, cpu: trains ? 1.2 + 0.2 * wave : 3.6, memoryMib: Math.min(11_200, 2400 + 500 * minute) },
      ...{ diskGib: 31, receivedMib: trains ? 0 : 900, sentMib: 1 },
      ...{ gpu: trains ? 88 + 6 * wave : 0, vramMib: trains ? 20_400 : 0 },
    }
  })
  return replica.usageStore.add({ namespace: fixture.namespace, uid }, 2, points)
}

/** Log of a training run with colors, a progress bar and text of other scripts. */
export function sampleLog(epochs: number): string {
  const lines = [
    "\x1b[1mtrain\x1b[0m 3.2 · 1 GPU (NVIDIA L4, 23034 MiB)",
    "loading data from /data/corpus … 数据加载完成",
  ]
  for (let epoch = 1; epoch <= epochs; epoch++) {
    const loss = (2.4 / Math.sqrt(epoch)).toFixed(4)
    lines.push(
      `step 0/500\rstep 250/500\repoch ${String(epoch).padStart(3)}  \x1b[36mloss ${loss}\x1b[0m  lr 3.0e-04  412 samples/s`,
    )
    if (epoch % 7 === 0)
      lines.push(`\x1b[33mWARN\x1b[0m gradient norm ${(3 + epoch / 10).toFixed(2)} was clipped to 3.00`)
    if (epoch % 10 === 0) lines.push(`\x1b[32mcheckpoint\x1b[0m written to /out/epoch-${epoch}.pt (412 MiB)`)
  }
  return `${lines.join("\n")}\n`
}

/** Archive of the files of jobs. Nothing unpacks it here. */
const WORKDIR = new Uint8Array(183_204).fill(7)
const sha256 = createHash("sha256").update(WORKDIR).digest("hex")

const TRAIN = {
  args: ["--epochs", "40", "--data", "/data"],
  resources: { cpu: 4, memory: "15Gi", gpu: { model: "L4", count: 1 } },
  region: ["eu"],
  labels: { team: "vision", run: "a17" },
  tags: ["nightly"],
  timeoutSeconds: 21_600,
  maxRetries: 1,
  env: { SEED: "7" },
  workdir: { sha256 },
}

const CLOUDS = [
  { cloud: "gcp", provisioning: "onDemand", usd: 2.6 },
  { cloud: "gcp", provisioning: "spot", usd: 1.1 },
  { cloud: "aws", provisioning: "spot", usd: 1.9 },
  { cloud: "azure", provisioning: "onDemand", usd: 0.7 },
]

/** Writes the Statement of this month, with costs of each day until today, and a cap of the project. */
export async function spend({ fixture: { client, namespace, project } }: Pick<SampleProject, "fixture">) {
  const month = monthOf(new Date())
  const daily = Array.from({ length: new Date().getUTCDate() }, (_, index) => index + 1).flatMap((day) =>
    CLOUDS.filter((_, at) => (day + at) % 5 !== 0).map(({ cloud, provisioning, usd }, at) => {
      const machineUsd = roundUsd(usd * (1 + Math.sin(day * (at + 1)) / 2))
      return { day, cloud, provisioning, vmSeconds: 7200, machineUsd, diskUsd: 0.08, addressUsd: 0.02 }
    }),
  )
  const usdOf = (of: typeof daily): number => roundUsd(of.reduce((sum, one) => sum + one.machineUsd + 0.1, 0))
  const byCloud = Object.fromEntries([...Map.groupBy(daily, ({ cloud }) => cloud)].map(([key, of]) => [key, usdOf(of)]))
  const spentUsd = usdOf(daily)
  const parts = [
    { key: "team", value: "vision", usd: roundUsd(spentUsd * 0.55) },
    { key: "team", value: "speech", usd: roundUsd(spentUsd * 0.3) },
  ]
  const metadata = { namespace: SYSTEM_NAMESPACE, name: statementName(namespace, month) }
  const statement = { metadata, spec: { namespace, month } } as unknown as StoredStatement
  const { spec, kind, apiVersion, metadata: stored } = await client.create(STATEMENTS, statement)
  const status = { spentUsd, byCloud, daily, byLabel: parts }
  await client.replaceStatus(STATEMENTS, { apiVersion, kind, metadata: stored, spec, status } as StoredStatement)
  const caps = { maxMonthlyUsd: 250, maxVms: 10 }
  await client.patch(PROJECTS, { name: project }, { merge: { spec: { caps } } })
  return { spentUsd, byCloud }
}

/** Creates an array that has run for a while, and one without a job so far. */
async function sweep({ call, fixture: { client, namespace } }: SampleProject): Promise<void> {
  const matrix = {
    LEARNING_RATE: ["0.1", "0.01", "0.001"],
    FOLD: Array.from({ length: 40 }, (_, fold) => String(fold)),
  }
  const job_definition = { image: "ghcr.io/acme/train:3.2", ...TRAIN, region: "eu" }
  await made(call, "/1/arrays", { name: "lr-sweep", job_definition, matrix, parallelism: 20, max_failed: 10 })
  await made(call, "/1/arrays", {
    ...{ name: "render", job_definition: { image: "ghcr.io/acme/render:1" }, size: 2400 },
    after: [{ job: "fine-tune" }],
  })
  const status = {
    observedGeneration: 1,
    phase: "running",
    size: 120,
    counts: { pending: 31, queued: 2, booting: 3, running: 15, succeeded: 66, failed: 2, cancelled: 1 },
    activeIndexes: "69-88",
    succeededIndexes: "0-11,13-40,42-50,52-68",
    failedIndexes: "12,41",
    cancelledIndexes: "51",
    costUsd: 48.31,
    startTime: minutesAgo(130),
  }
  const merge = { status }
  await client.patchStatus(JOB_ARRAYS, { namespace, name: "lr-sweep" }, { merge: merge as Partial<StoredJobArray> })
}

/** Makes the nightly jobs runs of the cronjob, and creates some jobs of the array, of which one has failed. */
async function origins(sample: SampleProject): Promise<void> {
  const { call, fixture } = sample
  const { client, namespace } = fixture
  const idOf = async (path: string): Promise<string> => ((await (await call(path)).json()) as { id: string }).id
  const merge = { metadata: { labels: { [LABELS.cronJobUid]: await idOf("/1/cronjobs/nightly-train") } } }
  for (let number = 1; number <= 7; number++)
    await client.patch(JOBS, { namespace, name: `nightly-${number}` }, { merge })
  const arrayUid = await idOf("/1/arrays/lr-sweep")
  for (const index of [40, 41]) {
    const marks = { [LABELS.array]: "lr-sweep", [LABELS.arrayUid]: arrayUid, [LABELS.arrayIndex]: String(index) }
    const metadata = { namespace, name: `lr-sweep-${index}`, labels: marks }
    const spec = { image: "ghcr.io/acme/train:3.2" }
    const stored = await client.create(JOBS, { metadata, spec } as unknown as StoredJob)
    const ended = {
      startTime: minutesAgo(60 - index),
      completionTime: minutesAgo(52 - index),
      cost: { actualUsd: 0.11 },
    }
    await setStatus(fixture, metadata.name, {
      ...{ ...ended, placement: placed(L4) },
      ...(index === 41
        ? { phase: "failed", reason: "ContainerFailed", message: "The container ended with exit code 1.", exitCode: 1 }
        : { phase: "succeeded", reason: "Succeeded", message: "exit code 0", exitCode: 0 }),
    })
    if (index === 41) await writeLog(sample, stored.metadata.uid, "epoch 12\nRuntimeError: loss is nan at step 4180\n")
  }
}

/** Fills the project. */
export async function fillProject(sample: SampleProject): Promise<void> {
  const { call } = sample
  const upload = { method: "PUT", type: "application/gzip", body: WORKDIR }
  await expectStatus(201, await call(`/1/uploads/${sha256}`, upload))
  for (const [index, minutes] of [1300, 1100, 900, 620, 400, 250, 130].entries()) {
    await job(sample, `nightly-${index + 1}`, TRAIN, {
      phase: index === 4 ? "failed" : "succeeded",
      reason: index === 4 ? "ContainerFailed" : "Succeeded",
      message: index === 4 ? "The container ended with exit code 137: it was out of memory." : "exit code 0",
      exitCode: index === 4 ? 137 : 0,
      placement: placed(L4),
      startTime: minutesAgo(minutes),
      completionTime: minutesAgo(minutes - 95 - index * 12),
      cost: { estimatedUsd: 1.4, actualUsd: 1.21 + index * 0.15 },
    })
  }
  await job(
    sample,
    "fit-nothing",
    { resources: { gpu: { model: "L4", count: 1 }, cpu: 900 } },
    {
      phase: "failed",
      reason: "NoOffer",
      message: "No offer has 900 vCPU; the largest with an L4 has 192. Lower resources.cpu.",
      completionTime: minutesAgo(50),
    },
  )
  await waitingJobs(sample)
  await runningJobs(sample)
  const definition = { image: "ghcr.io/acme/train:3.2", ...TRAIN, region: "eu" }
  await made(call, "/1/cronjobs", { name: "nightly-train", cron_spec: "30 3 * * MON-FRI", job_definition: definition })
  const report = { image: "ghcr.io/acme/report:1" }
  await made(call, "/1/cronjobs", { name: "report", cron_spec: "0 * * * *", is_active: false, job_definition: report })
  await sweep(sample)
  await origins(sample)
  const secrets = { access_key_id: "AKIAEXAMPLE", secret_access_key: "very-secret" }
  await made(call, "/1/connections", { name: "aws-prod", type: "aws", ...secrets })
  const receiver = { url: "https://ci.example.com/berth", events: ["job.*"] }
  await made(call, "/1/webhooks", { name: "ci-server", ...receiver })
  await ownMachine(sample)
  const slack = { url: "https://hooks.slack.com/services/T0/B0/secret", format: "slack", labels: { team: "vision" } }
  await made(call, "/1/webhooks", { name: "alarms", ...slack, events: ["job.failed", "budget.threshold"] })
  await deliveries(sample)
}

/** Creates a machine whose host has joined, as gateway and operator leave it. */
async function ownMachine({ call, fixture: { client, namespace } }: SampleProject): Promise<void> {
  const name = "workstation-1"
  await made(call, "/1/machines", { name, hourly_price_usd: 0.2, region: "office" })
  const { generation = 1 } = (await client.get(MACHINES, { namespace, name })).metadata
  const gpu = { model: "NVIDIA GeForce RTX 4090", count: 2, vramGib: 24 }
  const host: Host = {
    ...{ joinNumber: 1, joinTime: minutesAgo(600), signingKey: "{}", encryptionKey: "{}", version: "0.1.0" },
    facts: { cpu: 32, memoryGib: 125.6, diskGib: 811.4, architecture: "amd64", gpu },
    ...{ sequence: 1, lastHeartbeatTime: minutesAgo(1 - SHOWN_AFTER_MINUTES), leaseSeconds: 900 },
  }
  const ready = {
    type: "Ready",
    status: "True" as const,
    reason: "Joined",
    message: "the host takes jobs at 0.2 USD/h",
  }
  const conditions = [{ ...ready, lastTransitionTime: minutesAgo(600), observedGeneration: generation }]
  const status = { observedGeneration: generation, conditions, host }
  await client.patchStatus(MACHINES, { namespace, name }, { merge: { status } })
}

/** Writes deliveries into the status of the webhook, as the operator does. */
async function deliveries({ fixture: { client, namespace } }: SampleProject): Promise<void> {
  const delivery = (minutes: number, job: string) => ({
    ...{ id: randomUUID(), subject: `jobs/${job}`, time: minutesAgo(minutes), attempts: 1 },
  })
  const failed = { type: "job.failed" as const }
  const sent = { type: "job.succeeded" as const, result: "delivered" as const, statusCode: 204, durationMs: 84 }
  const missed = { ...failed, result: "missed" as const, statusCode: 500, error: "the receiver answered 500" }
  const { generation = 1 } = (await client.get(WEBHOOKS, { namespace, name: "ci-server" })).metadata
  const ready = { type: "Ready", status: "True" as const, reason: "Active", message: "sends job.* to ci.example.com" }
  const status: WebhookStatus = {
    observedGeneration: generation,
    conditions: [{ ...ready, lastTransitionTime: minutesAgo(600), observedGeneration: generation }],
    pending: [
      {
        ...{ ...delivery(2, "nightly-5"), ...failed, attempts: 3, jobUid: randomUUID() },
        ...{ nextAttemptTime: minutesAgo(-44), error: "the receiver answered 503" },
      },
    ],
    deliveries: [
      { ...delivery(50, "nightly-7"), ...sent, endTime: minutesAgo(50) },
      { ...delivery(250, "nightly-6"), ...sent, attempts: 2, endTime: minutesAgo(249) },
      { ...delivery(400, "fit-nothing"), ...missed, attempts: 9, endTime: minutesAgo(340) },
    ],
    ...{ pendingCount: 1, deliveredCount: 41, missedCount: 1 },
    ...{ lastSuccessTime: minutesAgo(50), failingSince: minutesAgo(2) },
  }
  await client.patchStatus(WEBHOOKS, { namespace, name: "ci-server" }, { merge: { status } })
}

async function made(call: Caller, path: string, body: object): Promise<void> {
  await expectStatus(201, await call(path, { body }))
}

async function expectStatus(expected: number, answer: Awaited<ReturnType<Caller>>): Promise<void> {
  if (answer.status !== expected) throw new Error(`${answer.url} answered ${answer.status}: ${await answer.text()}`)
}

async function waitingJobs(sample: SampleProject): Promise<void> {
  for (let index = 1; index <= 3; index++)
    await job(
      sample,
      `sweep-${index}`,
      { ...TRAIN, labels: { team: "speech" } },
      {
        phase: "queued",
        reason: "QuotaExceeded",
        message:
          "The quota of gcp for L4 in europe-west4 is used up; the next offer costs more than maxHourlyPriceUsd. Berth retries in 5 min.",
      },
    )
  await job(sample, "too-dear", TRAIN, {
    phase: "queued",
    reason: "SpendCap",
    message: "The month's cap of $250 leaves $0.31.",
  })
  const evaluate = { after: [{ job: "fine-tune" }, { array: "lr-sweep", outcome: "ended" }, { job: "labels" }] }
  await job(sample, "evaluate", evaluate, {
    phase: "queued",
    reason: "JobMissing",
    message: "labels is not there yet. Create it, or cancel this one",
  })
  const merge = { after: [{ job: "split" }] }
  await job(sample, "merge", merge, {
    phase: "queued",
    reason: "DependencyCycle",
    message: "each of these waits for the next one: merge → split → merge. Cancel one of them",
  })
}

async function runningJobs(sample: SampleProject): Promise<void> {
  const since = { since: minutesAgo(40), hourly: { machineUsd: 0.7048, diskUsd: 0.045, addressUsd: 0.005 } }
  const id = await job(sample, "fine-tune", TRAIN, {
    phase: "running",
    placement: placed(L4),
    startTime: minutesAgo(-4),
    vm: { state: "running", id: "3411899231", ipAddress: "192.0.2.17" },
    cost: { estimatedUsd: 1.4, ...since },
    launches: { count: 2 },
  })
  await launch(sample, "fine-tune", 1, {
    offer: { ...L4, region: "europe-west1", hourlyPriceUsd: 0.7307 },
    status: {
      phase: "refused",
      refusal: {
        class: "Capacity",
        code: "ZONE_RESOURCE_POOL_EXHAUSTED",
        message: "europe-west1 has no g2-standard-4 now",
        time: minutesAgo(-0.5),
      },
    },
  })
  await launch(sample, "fine-tune", 2, {
    offer: L4,
    status: {
      phase: "running",
      vm: { state: "running", id: "3411899231", ipAddress: "192.0.2.17", createTime: minutesAgo(-1.2) },
      agent: agentOf({ registrationTime: minutesAgo(-3), startTime: minutesAgo(-4), abilities: ["sessions"] }),
    },
  })
  await made(sample.call, "/1/jobs/fine-tune/sessions", { port: 6006 })
  await writeLog(sample, id, sampleLog(60))
  await writeUsage(sample, id)
  await job(
    sample,
    "convert-images",
    { image: "ghcr.io/acme/convert:1", resources: { cpu: 2, memory: "1.5Gi" }, provisioning: "spot" },
    {
      phase: "booting",
      placement: placed(SMALL),
      vm: { state: "booting", id: "i-0a12b3", ipAddress: "192.0.2.44" },
      cost: { estimatedUsd: 0.01, since: minutesAgo(1) },
    },
  )
  await eventually(() => {
    const found = sample.replica.jobs.store.byIndex("namespace", sample.fixture.namespace)
    if (found.find(({ metadata }) => metadata.name === "convert-images")?.status?.phase !== "booting")
      throw new Error("not yet")
  })
}

/** Machines of the measured jobs, with prices by which advice can be calculated by hand: 0.17 and 0.045 USD an hour. */
export const ADVISED_OFFERS: readonly Offer[] = [
  { ...SMALL, instanceType: "m7g.xlarge", provisioning: "onDemand", cpu: 4, memoryGib: 16, hourlyPriceUsd: 0.17 },
  { ...SMALL, instanceType: "t4g.medium", provisioning: "onDemand", cpu: 0.4, memoryGib: 4, hourlyPriceUsd: 0.045 },
]

/** Creates a cronjob with four runs of eight hours that asked for far more than they used. */
export async function measuredRuns({ fixture, call }: Pick<SampleProject, "fixture" | "call">, name: string) {
  const definition = { image: "ghcr.io/acme/etl:1", resources: { cpu: 4, memory: "12Gi" } }
  const { id } = (await (
    await call("/1/cronjobs", { body: { name, cron_spec: "0 3 * * *", is_active: false, job_definition: definition } })
  ).json()) as { id: string }
  for (const run of [1, 2, 3, 4]) {
    await measuredJob({ fixture, call }, `${name}-${run}`, definition)
    const merge = { metadata: { labels: { [LABELS.cronJobUid]: id } } }
    await fixture.client.patch(JOBS, { namespace: fixture.namespace, name: `${name}-${run}` }, { merge })
  }
  return id
}

/** Creates a job that has run for eight hours, and used little. */
export async function measuredJob(
  { fixture, call }: Pick<SampleProject, "fixture" | "call">,
  name: string,
  body: object,
): Promise<void> {
  await created(await call("/1/jobs", { body: { name, ...body } }))
  await setStatus(fixture, name, {
    phase: "succeeded",
    exitCode: 0,
    startTime: minutesAgo(540),
    completionTime: minutesAgo(60),
    placement: { ...placed({ ...SMALL, cpu: 4 }) },
    usage: { seconds: 28_800, cpuMean: 0.1, cpuPeak: 0.3, memoryPeakMib: 2764.8 },
  })
}
