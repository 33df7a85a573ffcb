import { randomUUID } from "node:crypto"
import { setTimeout as delay } from "node:timers/promises"
import { timestamp } from "../src/core/apis/clock.ts"
import type { JobStatus, StoredJob } from "../src/core/apis/job.ts"
import { launchName, type StoredLaunch } from "../src/core/apis/launch.ts"
import { type Installation, readInstallation } from "../src/core/identity/installation.ts"
import { IDENTITIES_NAMESPACE } from "../src/core/identity/machine-users.ts"
import { HEARTBEATS_CACHE } from "../src/core/kube/heartbeats.ts"
import { Reflector } from "../src/core/kube/reflector.ts"
import { bootConfig, generateAgentKeys, publicKey } from "../src/core/protocol/messages.ts"
import { JOBS } from "../src/core/resources.ts"
import { createLogger } from "../src/core/telemetry/logger.ts"
import { Etcd, sumOf, WRITTEN_GROUPS, writesBetween } from "./api-server.ts"
import { BerthStack, PROJECT, type Programs } from "./berth-stack.ts"
import { type Program, SYSTEM_NAMESPACE, usageOf } from "./program.ts"
import { type BenchContext, type BenchResult, compare, compareLess, type Measured, spreadOf, within } from "./result.ts"
import type { Resumption } from "./simulated-cloud.ts"

const RUNNING_JOBS = 10_000
const FINISHED_JOBS = 100_000
/** Duration of a run of this benchmark alone, by its goal. In a run of all benchmarks four minutes have to suffice. */
const SECONDS = 600
/** Share of the run in which code is compiled and caches fill: memory growth in it isn't a leak. */
const WARM_UP_PART = 0.25
const SAMPLE_SECONDS = 2

/** Goals of the project: those of the issue first, then Berth's own. */
const MEMORY_MIB = { operator: 400, facade: 450 }
const SLOPE_MIB_A_MINUTE = 1
const DELAY_P99_MS = 60
/** Writes of a VM a minute, at most, from this number of running VMs on. */
const WRITES_A_MINUTE: readonly [vms: number, writes: number][] = [
  [10_000, 0.1],
  [100, 0.5],
  [1, 2],
]
/** Heap of an ended job. The operator keeps none of them, so this is what its measurement differs by. */
const KIB_AN_OBJECT = { operator: 0.1, facade: 2.2 }
/** With an API server that has its caches, as at an upgrade of Berth. */
const WARM_SECONDS = { operator: 5, facade: 20 }
/** Right after the API server has started, whose own start is a part of it. */
const COLD_SECONDS = 60

/** Interval in which a process must use less CPU than this share of it, to count as idle. */
const REST_SECONDS = 3
const REST_PART = 0.1
const PATIENCE_SECONDS = 300

/** Minimum slope that is shown. A falling or constant value is shown as this. */
const LEAST_SLOPE = 0.01
const LEAST_KIB = 0.01
const LEAST_WRITES = 0.001
/** Some reports are in progress when they are counted. */
const ANSWERED_PART = 0.999

const DELAY_METRIC = "nodejs_eventloop_lag_p99_seconds"
const PROGRAMS = ["operator", "facade"] as const

type Report = BenchContext["report"]

/**
 * Measures the cost of many idle jobs. Running ones have agents that report over HTTP every fifteen seconds. Ended ones
 * are only in the caches. All are copies of one job that ran completely, written into etcd as the API server had stored
 * it. Everything after that is real.
 */
export async function run(context: BenchContext): Promise<BenchResult> {
  const [running = RUNNING_JOBS, finished = FINISHED_JOBS] = context.sizes ?? []
  const stack = await BerthStack.start(context)
  const etcd = await Etcd.open(stack.controlPlane)
  try {
    const samples = await sampleJobs(stack, etcd)
    const ended = await measureFinished(stack, { etcd, sample: samples.ended, count: finished }, context.report)
    const live = await measureRunning(stack, { etcd, sample: samples.running, count: running, context })
    const parts = [live, ended]
    return {
      name: "scale",
      rows: parts.flatMap(({ rows }) => rows),
      spread: Object.assign({}, ...parts.map(({ spread }) => spread)) as BenchResult["spread"],
    }
  } finally {
    await etcd.close()
    await stack.stop()
  }
}

/** A job as the API server stored it, by path, and the values to replace in a copy. */
interface Sample {
  objects: ReadonlyMap<string, string>
  name: string
  uid: string
}

/** Lets one job run and another end, and reads their stored objects. */
async function sampleJobs(stack: BerthStack, etcd: Etcd): Promise<{ running: Sample; ended: Sample }> {
  const [name, endedName] = ["sample-running", "sample-ended"]
  const job = { image: "busybox", labels: { team: "team-1" } }
  await stack.submitAll([
    { ...job, name, command: ["sleep", "infinity"] },
    { ...job, name: endedName, command: ["sleep", "0"] },
  ])
  const uid = await until(stack, name, (status) => status?.phase === "running" && status.vm?.state === "running")
  // The cost is the last write of a job.
  const endedUid = await until(stack, endedName, (status) => status?.cost?.actualUsd !== undefined)
  const read = async (paths: string[]): Promise<ReadonlyMap<string, string>> =>
    new Map(await Promise.all(paths.map(async (path) => [path, await etcd.read(path)] as const)))
  const launch = `launches/${SYSTEM_NAMESPACE}/${launchName(uid, 1)}`
  return {
    running: { name, uid, objects: await read([`jobs/${PROJECT}/${name}`, launch]) },
    // A launch's record is deleted after an hour.
    ended: { name: endedName, uid: endedUid, objects: aged(await read([`jobs/${PROJECT}/${endedName}`])) },
  }
}

/** Returns the objects of jobs that were created an hour ago: the operator remembers jobs of the last minutes. */
function aged(objects: ReadonlyMap<string, string>): ReadonlyMap<string, string> {
  const creationTimestamp = timestamp(new Date(Date.now() - 3 * 3_600_000))
  const entries = [...objects].map(([path, json]) => {
    const object = JSON.parse(json) as StoredJob
    return [path, JSON.stringify({ ...object, metadata: { ...object.metadata, creationTimestamp } })] as const
  })
  return new Map(entries)
}

/** Resolves with the job's uid when its status meets the condition. */
async function until(
  { client }: BerthStack,
  name: string,
  condition: (status: JobStatus | undefined) => boolean,
): Promise<string> {
  const signal = AbortSignal.timeout(PATIENCE_SECONDS * 1000)
  for (;;) {
    const { metadata, status } = await client.get(JOBS, { namespace: PROJECT, name })
    if (condition(status)) return metadata.uid
    await delay(200, undefined, { signal })
  }
}

/** Yields the sample with another name and uid in all places. */
function* copiesOf({ objects, name, uid }: Sample, count: number): Generator<readonly [path: string, json: string]> {
  for (let n = 0; n < count; n++) {
    const [otherName, otherUid] = [`copy-${n}`, randomUUID()]
    const copy = (text: string): string => text.replaceAll(uid, otherUid).replaceAll(name, otherName)
    for (const [path, json] of objects) yield [copy(path), copy(json)]
  }
}

interface Filling {
  etcd: Etcd
  sample: Sample
  count: number
}

/**
 * Measures the cost of ended jobs: the memory of each, and the start of the programs. Stops the programs afterwards.
 */
async function measureFinished(stack: BerthStack, { etcd, sample, count }: Filling, report: Report): Promise<Measured> {
  const empty = await restart(stack, () => stack.restartApiServer())
  const cold = await restart(stack, async () => {
    await etcd.write(copiesOf(sample, count))
    await stack.restartApiServer()
  })
  const warm = await restart(stack, async () => undefined)
  const rows = PROGRAMS.flatMap((program) => {
    const kibibytes = ((warm[program].heapMiB - empty[program].heapMiB) * 1024) / count
    const about = `${count.toLocaleString("en")} ended jobs`
    const { residentMiB, heapMiB, startSeconds } = warm[program]
    report(
      `${program} with ${about}: ${residentMiB.toFixed(0)} MiB, of which ${heapMiB.toFixed(0)} are live objects; ` +
        `ready after ${startSeconds.toFixed(1)} s, ${cold[program].startSeconds.toFixed(1)} s with a cold API server`,
    )
    const start = `start of the ${program} with ${about}, until it is ready, s`
    return [
      within(
        `heap of the ${program} for each of ${about}, KiB`,
        [Math.max(LEAST_KIB, kibibytes)],
        KIB_AN_OBJECT[program],
      ),
      within(`${start}, API server warm`, [startSeconds], WARM_SECONDS[program]),
      within(`${start}, API server cold`, [cold[program].startSeconds], COLD_SECONDS),
    ]
  })
  await stack.stopPrograms()
  await etcd.remove(`jobs/${PROJECT}/copy-`)
  return { rows, spread: {} }
}

type Restarted = Record<(typeof PROGRAMS)[number], { startSeconds: number; residentMiB: number; heapMiB: number }>

/** Restarts both programs after a change, and measures them when they are idle. */
async function restart(stack: BerthStack, change: () => Promise<void>): Promise<Restarted> {
  await stack.stopPrograms()
  await change()
  const { operator, facade } = await stack.startPrograms()
  const rested = async ({ pid, startSeconds, heapMiB }: Program) => {
    const residentMiB = await restedMiB(pid)
    return { startSeconds, residentMiB, heapMiB: await heapMiB() }
  }
  return { operator: await rested(operator), facade: await rested(facade) }
}

/** Returns the memory of a process once it is almost idle. */
async function restedMiB(pid: number): Promise<number> {
  const signal = AbortSignal.timeout(PATIENCE_SECONDS * 1000)
  for (let before = await usageOf(pid); ; ) {
    await delay(REST_SECONDS * 1000, undefined, { signal })
    const now = await usageOf(pid)
    if (now.cpuSeconds - before.cpuSeconds < REST_SECONDS * REST_PART) return now.residentMiB
    before = now
  }
}

interface Running extends Filling {
  context: BenchContext
}

/**
 * Measures the cost of running jobs: memory and its slope, the event loop's delays, writes. The programs must be
 * stopped before.
 */
async function measureRunning(stack: BerthStack, running: Running): Promise<Measured> {
  const { count, context } = running
  const seconds = context.seconds ?? SECONDS
  const resumptions = await fillRunning(running, await readInstallation(stack.client, SYSTEM_NAMESPACE))
  await stack.restartApiServer()
  // The VMs start first: an operator that finds neither VM nor fresh heartbeat correctly gives the job up.
  for (const resumption of resumptions) stack.cloud.resume(resumption)
  const programs = await stack.startPrograms()
  await delay(seconds * WARM_UP_PART * 1000)
  const { sent, answered } = stack.cloud.counts
  const before = await stack.api.writes(WRITTEN_GROUPS)
  const heartbeats = await HeartbeatWrites.count(stack)
  // Reading a program's metrics resets its histogram of delays.
  for (const program of PROGRAMS) await stack.metric(program, DELAY_METRIC)
  const startedAt = performance.now()
  const samples = await sample(programs, seconds * (1 - WARM_UP_PART))
  const delays = await Promise.all(PROGRAMS.map((program) => stack.metric(program, DELAY_METRIC)))
  const others = writesBetween(before, await stack.api.writes(WRITTEN_GROUPS))
  const minutes = (performance.now() - startedAt) / 60_000
  const writes = sumOf(others) + (await heartbeats.stop())
  const heard = { sent: stack.cloud.counts.sent - sent, answered: stack.cloud.counts.answered - answered }
  const usage = await measureUsage(stack, programs, { count, seconds, report: context.report })
  await assertAllRun(stack, count)
  const about = `${count.toLocaleString("en")} running jobs`
  context.report(
    `${about}: ${(writes / minutes).toFixed(0)} API writes a minute, ${(heard.sent / minutes / 60).toFixed(0)} reports a second`,
  )
  for (const [kind, made] of others) context.report(`${kind}: ${(made / minutes).toFixed(0)} a minute`)
  const rows = await Promise.all(
    PROGRAMS.map(async (program, index) => {
      const of = samples[program]
      const slope = Math.max(LEAST_SLOPE, slopeOf(of) * 60)
      context.report(`${program}: ${spreadOf(of.map(({ mib }) => mib)).join(" to ")} MiB`)
      return [
        within(
          `peak memory of the ${program} with ${about}, MiB`,
          [(await usageOf(programs[program].pid)).peakMiB],
          MEMORY_MIB[program],
        ),
        within(
          `growth of the ${program} with ${about} over ${(minutes * 60).toFixed(0)} s, MiB a minute`,
          [slope],
          SLOPE_MIB_A_MINUTE,
        ),
        within(`event-loop delay of the ${program}, p99 in ms`, [(delays[index] ?? 0) * 1000], DELAY_P99_MS),
      ]
    }),
  )
  return {
    rows: [
      ...rows.flat(),
      within(
        `API writes a minute for each of ${about}`,
        [Math.max(LEAST_WRITES, writes / minutes / count)],
        writesGoal(count),
      ),
      compare("reports of agents that were answered", [heard.answered], [heard.sent], ANSWERED_PART),
      ...usage.rows,
    ],
    spread: usage.spread,
  }
}

/** Rounds without and with usage. Every second one begins with usage, because other load of the machine changes with time. */
const USAGE_ROUNDS = 6

/** Share of the run that each turn takes. */
const USAGE_PART = 0.1

/**
 * Pace of the agents' time while usage is measured. At their own pace the façade needs a seventh of a core, most of it for
 * other work than reports: then two turns without usage differ by more than usage costs.
 */
const USAGE_PACE = 4

/** Shortest turn. All VMs report their use in two minutes of their time: two shorter turns would compare different VMs. */
const LEAST_TURN_SECONDS = 60

/** CPU of the façade with usage, at most, as a part of that without. */
const USAGE_CPU = 1.1

/** Measures what usage in the agents' reports costs: CPU of the façade, and writes. */
async function measureUsage(
  stack: BerthStack,
  { facade }: Programs,
  { count, seconds, report }: { count: number; seconds: number; report: Report },
): Promise<Measured> {
  const shortest = Math.max(LEAST_TURN_SECONDS, seconds * USAGE_PART)
  const turn = async (isReported: boolean, turnSeconds = shortest) => {
    stack.cloud.usage.isReported = isReported
    const before = await stack.api.writes(WRITTEN_GROUPS)
    const heartbeats = await HeartbeatWrites.count(stack)
    const { cpuSeconds } = await usageOf(facade.pid)
    await delay(turnSeconds * 1000)
    const after = await usageOf(facade.pid)
    const used = after.cpuSeconds - cpuSeconds
    const writes = sumOf(writesBetween(before, await stack.api.writes(WRITTEN_GROUPS))) + (await heartbeats.stop())
    return { used, writes, mib: after.residentMiB }
  }
  const texts = (...turns: Awaited<ReturnType<typeof turn>>[]) =>
    turns.map(({ used, writes, mib }) => `${used.toFixed(1)} s of CPU, ${writes} writes, ${mib.toFixed(0)} MiB`)
  report(`usage: the façade's memory was ${(await usageOf(facade.pid)).peakMiB.toFixed(0)} MiB at most before`)
  stack.cloud.clock.pace = USAGE_PACE
  // A façade that has just started holds no points: the first report of each VM has all of them. It comes at the old pace.
  report(`usage, first reports: ${texts(await turn(true, 2 * shortest))[0]}`)
  const without: Awaited<ReturnType<typeof turn>>[] = []
  const having: typeof without = []
  for (let round = 1; round <= USAGE_ROUNDS; round++) {
    const isFirst = round % 2 === 0
    const [first, second] = [await turn(isFirst), await turn(!isFirst)]
    const [plain, more] = isFirst ? [second, first] : [first, second]
    without.push(plain)
    having.push(more)
    const [one, other] = texts(plain, more)
    report(`usage, round ${round} of ${USAGE_ROUNDS}: without ${one}; with ${other}`)
  }
  stack.cloud.usage.isReported = false
  stack.cloud.clock.pace = 1
  const cpu = (rounds: typeof without) => rounds.map(({ used }) => used)
  const writes = (rounds: typeof without) => rounds.map((round) => Math.max(1, round.writes))
  const about = `with usage of ${count.toLocaleString("en")} running jobs, and without`
  return {
    rows: [
      compareLess(`CPU of the façade ${about}, s`, cpu(having), cpu(without), 1 / USAGE_CPU),
      // Heartbeats are in batches, whose number varies by a few.
      compareLess(`API writes in a turn ${about}`, writes(having), writes(without), 1 / USAGE_CPU),
    ],
    spread: { "with usage": spreadOf(cpu(having)), "without usage": spreadOf(cpu(without)) },
  }
}

/**
 * Counts the writes of heartbeats. They are in Leases, as the elections are, and the API server's own counts don't
 * separate the two.
 */
class HeartbeatWrites {
  readonly #end = new AbortController()
  #watching: Promise<void> = Promise.resolve()
  #count = 0

  static async count({ client }: BerthStack): Promise<HeartbeatWrites> {
    const writes = new HeartbeatWrites()
    const logger = createLogger({ level: "error", name: "bench" })
    const leases = new Reflector({ client, logger, ...HEARTBEATS_CACHE, namespace: IDENTITIES_NAMESPACE })
    const { signal } = writes.#end
    writes.#watching = leases.run(signal)
    await leases.whenSynced(signal)
    leases.onChange(() => {
      writes.#count++
    })
    // The handler was called for each Lease that existed.
    writes.#count = 0
    return writes
  }

  /** Returns the number of writes since the start. */
  async stop(): Promise<number> {
    this.#end.abort()
    await this.#watching
    return this.#count
  }
}

function writesGoal(count: number): number {
  return WRITES_A_MINUTE.find(([vms]) => count >= vms)?.[1] ?? Number.NaN
}

/**
 * Writes running jobs and their launches into etcd. Each launch is bound to the key with which all agents sign here.
 */
async function fillRunning(
  { etcd, sample, count }: Running,
  installation: Installation | undefined,
): Promise<Resumption[]> {
  if (installation === undefined) throw new Error("the operator has made no installation")
  const keys = await generateAgentKeys()
  const resumptions: Resumption[] = []
  const objects = [...copiesOf(sample, count)].map(([path, json]): readonly [string, string] => {
    if (!path.startsWith("launches/")) return [path, json]
    const launch = JSON.parse(json) as StoredLaunch
    const { agent } = launch.status ?? {}
    if (agent === undefined) throw new Error(`launch ${launch.metadata.name} has no agent`)
    agent.signingKey = publicKey(keys.signing, "Ed25519")
    agent.encryptionKey = publicKey(keys.encryption, "X25519")
    // No point of usage may be before it.
    agent.registrationTime = timestamp(new Date(Date.now() - 3 * 3_600_000))
    resumptions.push({ launch, config: bootConfig(launch, installation.bootstrapKey), keys })
    return [path, JSON.stringify(launch)]
  })
  await etcd.write(objects)
  return resumptions
}

interface Sampled {
  seconds: number
  mib: number
}

async function sample(programs: Programs, seconds: number): Promise<Record<keyof Programs, Sampled[]>> {
  const samples: Record<keyof Programs, Sampled[]> = { operator: [], facade: [] }
  const startedAt = performance.now()
  for (let at = 0; at < seconds; at = (performance.now() - startedAt) / 1000) {
    for (const program of PROGRAMS) {
      samples[program].push({ seconds: at, mib: (await usageOf(programs[program].pid)).residentMiB })
    }
    await delay(SAMPLE_SECONDS * 1000)
  }
  return samples
}

/** Returns MiB a second, by least squares. */
function slopeOf(samples: readonly Sampled[]): number {
  const mean = (of: (sample: Sampled) => number): number =>
    samples.reduce((sum, each) => sum + of(each), 0) / samples.length
  const [middle, level] = [mean(({ seconds }) => seconds), mean(({ mib }) => mib)]
  const covariance = mean(({ seconds, mib }) => (seconds - middle) * (mib - level))
  return covariance / mean(({ seconds }) => (seconds - middle) ** 2)
}

async function assertAllRun({ client }: BerthStack, count: number): Promise<void> {
  const copies: StoredJob[] = []
  for await (const { items } of client.pages(JOBS, { namespace: PROJECT })) {
    copies.push(...items.filter(({ metadata }) => metadata.name.startsWith("copy-")))
  }
  const others = copies.filter(({ status }) => status?.phase !== "running")
  if (copies.length === count && others.length === 0) return
  const first = JSON.stringify(others[0]?.status)
  throw new Error(`${others.length} of ${copies.length} jobs (of ${count}) no longer run, the first: ${first}`)
}
