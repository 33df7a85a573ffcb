import { randomUUID } from "node:crypto"
import { setTimeout as delay } from "node:timers/promises"
import { generateAgentKeys, publicKey } from "../src/agent/messages.ts"
import type { JobStatus, StoredJob } from "../src/apis/job.ts"
import { launchName, type StoredLaunch } from "../src/apis/launch.ts"
import { Etcd, sumOf, WRITTEN_GROUPS, writesBetween } from "./api-server.ts"
import { BerthStack, JOBS, PROJECT, type Programs } from "./berth-stack.ts"
import { measureFirstLine } from "./first-line.ts"
import { type Program, SYSTEM_NAMESPACE, usageOf } from "./program.ts"
import { type BenchContext, type BenchResult, compare, type Measured, spreadOf, within } from "./result.ts"
import type { Resumption } from "./simulated-cloud.ts"

const RUNNING_JOBS = 10_000
const FINISHED_JOBS = 100_000
/** Alone it runs as long as the aim says; among all benchmarks four minutes have to do. */
const SECONDS = 600
/** After a start code is compiled and caches are filled: what memory grows by then is no leak. */
const WARM_UP_PART = 0.25
const SAMPLE_SECONDS = 2

/** The aims of the project; those of the issue first, then our own. */
const MEMORY_MIB = 512
const SLOPE_MIB_A_MINUTE = 1
const DELAY_P99_MS = 50
/** Of a VM that is well: its heartbeat on the Launch, and carried on to the Job. */
const WRITES_A_MINUTE = 2
const KIB_AN_OBJECT = 5
const SYNC_SECONDS = 30

/** In this part of an interval of rest a process may still be working. */
const REST_SECONDS = 3
const REST_PART = 0.1
const PATIENCE_SECONDS = 300

/** What falls or stays is shown as this. */
const LEAST_SLOPE = 0.01
/** Some are under way when they are counted. */
const ANSWERED_PART = 0.999

const DELAY_METRIC = "nodejs_eventloop_lag_p99_seconds"
const PROGRAMS = ["operator", "facade"] as const

type Report = BenchContext["report"]

/**
 * What many jobs cost while nothing happens to them: running ones, whose agents report over HTTP every fifteen seconds,
 * and ended ones, which only lie in the caches. They are copies of one job that went the whole way, put into etcd as the
 * API server had stored it; from then on all is real.
 */
export async function run(context: BenchContext): Promise<BenchResult> {
  const [running = RUNNING_JOBS, finished = FINISHED_JOBS] = context.sizes ?? []
  // Alone on the machine: thousands of agents beside it would be measured, too.
  const lines = await measureFirstLine(context)
  const stack = await BerthStack.start(context)
  const etcd = await Etcd.open(stack.controlPlane)
  try {
    const samples = await sampleJobs(stack, etcd)
    const ended = await measureFinished(stack, { etcd, sample: samples.ended, count: finished }, context.report)
    const live = await measureRunning(stack, { etcd, sample: samples.running, count: running, context })
    const parts = [live, ended, lines]
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

/** A job as the API server stored it, by path, and what has to become another's in a copy. */
interface Sample {
  objects: ReadonlyMap<string, string>
  name: string
  uid: string
}

/** Has one job run and one end, and reads how they are stored. */
async function sampleJobs(stack: BerthStack, etcd: Etcd): Promise<{ running: Sample; ended: Sample }> {
  const [name, endedName] = ["sample-running", "sample-ended"]
  const job = { image: "busybox", labels: { team: "team-1" } }
  await stack.submitAll([
    { ...job, name, command: ["sleep", "infinity"] },
    { ...job, name: endedName, command: ["sleep", "0"] },
  ])
  const uid = await until(stack, name, (status) => status?.phase === "running" && status.vm?.state === "running")
  // Its cost is the last that is written of a job.
  const endedUid = await until(stack, endedName, (status) => status?.cost?.actualUsd !== undefined)
  const read = async (paths: string[]): Promise<ReadonlyMap<string, string>> =>
    new Map(await Promise.all(paths.map(async (path) => [path, await etcd.read(path)] as const)))
  const launch = `launches/${SYSTEM_NAMESPACE}/${launchName(uid, 1)}`
  return {
    running: { name, uid, objects: await read([`jobs/${PROJECT}/${name}`, launch]) },
    // A launch's record is deleted after an hour.
    ended: { name: endedName, uid: endedUid, objects: await read([`jobs/${PROJECT}/${endedName}`]) },
  }
}

/** Resolves with the job's uid when its status is as it shall be. */
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

/** The sample under another name and uid, wherever these stand. */
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

/** What jobs cost that have ended: memory of each, and the start of the programs, which are stopped after it. */
async function measureFinished(stack: BerthStack, { etcd, sample, count }: Filling, report: Report): Promise<Measured> {
  const empty = await restart(stack, async () => undefined)
  const full = await restart(stack, () => etcd.write(copiesOf(sample, count)))
  const rows = PROGRAMS.flatMap((program) => {
    const kibibytes = ((full[program].residentMiB - empty[program].residentMiB) * 1024) / count
    const about = `${count.toLocaleString("en")} ended jobs`
    report(
      `${program} with ${about}: ${full[program].residentMiB.toFixed(0)} MiB, ${full[program].startSeconds.toFixed(1)} s`,
    )
    return [
      within(`memory of the ${program} for each of ${about}, KiB`, [kibibytes], KIB_AN_OBJECT),
      within(`start of the ${program} with ${about}, until it is ready, s`, [full[program].startSeconds], SYNC_SECONDS),
    ]
  })
  await stack.stopPrograms()
  await etcd.remove(`jobs/${PROJECT}/copy-`)
  return { rows, spread: {} }
}

type Restarted = Record<(typeof PROGRAMS)[number], { startSeconds: number; residentMiB: number }>

/** Starts both programs anew, after a change, and looks at them when they have come to rest. */
async function restart(stack: BerthStack, change: () => Promise<void>): Promise<Restarted> {
  await stack.stopPrograms()
  await change()
  await stack.restartApiServer()
  const { operator, facade } = await stack.startPrograms()
  const rested = async ({ pid, startSeconds }: Program) => ({ startSeconds, residentMiB: await restedMiB(pid) })
  return { operator: await rested(operator), facade: await rested(facade) }
}

/** Memory once a process has hardly anything to do any more. */
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

/** What running jobs cost: memory and its slope, the event loop's delays, writes. The programs are stopped before. */
async function measureRunning(stack: BerthStack, running: Running): Promise<Measured> {
  const { count, context } = running
  const seconds = context.seconds ?? SECONDS
  const resumptions = await fillRunning(running)
  await stack.restartApiServer()
  // First the VMs: an operator that finds none of them, and no fresh heartbeat, is right to give them up.
  for (const resumption of resumptions) stack.cloud.resume(resumption)
  const programs = await stack.startPrograms()
  await delay(seconds * WARM_UP_PART * 1000)
  const { sent, answered } = stack.cloud.counts
  const before = await stack.api.writes(WRITTEN_GROUPS)
  // Whoever reads a program's metrics makes its histogram of delays begin anew.
  for (const program of PROGRAMS) await stack.metric(program, DELAY_METRIC)
  const startedAt = performance.now()
  const samples = await sample(programs, seconds * (1 - WARM_UP_PART))
  const delays = await Promise.all(PROGRAMS.map((program) => stack.metric(program, DELAY_METRIC)))
  const writes = sumOf(writesBetween(before, await stack.api.writes(WRITTEN_GROUPS)))
  const minutes = (performance.now() - startedAt) / 60_000
  const heard = { sent: stack.cloud.counts.sent - sent, answered: stack.cloud.counts.answered - answered }
  await assertAllRun(stack, count)
  const about = `${count.toLocaleString("en")} running jobs`
  context.report(
    `${about}: ${(writes / minutes / 60).toFixed(0)} API writes a second, ${(heard.sent / minutes / 60).toFixed(0)} reports`,
  )
  const rows = await Promise.all(
    PROGRAMS.map(async (program, index) => {
      const of = samples[program]
      const slope = Math.max(LEAST_SLOPE, slopeOf(of) * 60)
      context.report(`${program}: ${spreadOf(of.map(({ mib }) => mib)).join(" to ")} MiB`)
      return [
        within(
          `peak memory of the ${program} with ${about}, MiB`,
          [(await usageOf(programs[program].pid)).peakMiB],
          MEMORY_MIB,
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
      within(`API writes a minute for each of ${about}`, [writes / minutes / count], WRITES_A_MINUTE),
      compare("reports of agents that were answered", [heard.answered], [heard.sent], ANSWERED_PART),
    ],
    spread: {},
  }
}

/** Puts running jobs and their launches into etcd, each launch bound to the key that all agents here sign with. */
async function fillRunning({ etcd, sample, count }: Running): Promise<Resumption[]> {
  const keys = await generateAgentKeys()
  const resumptions: Resumption[] = []
  const objects = [...copiesOf(sample, count)].map(([path, json]): readonly [string, string] => {
    if (!path.startsWith("launches/")) return [path, json]
    const launch = JSON.parse(json) as StoredLaunch
    const { agent } = launch.status ?? {}
    if (agent === undefined) throw new Error(`launch ${launch.metadata.name} has no agent`)
    agent.signingKey = publicKey(keys.signing, "Ed25519")
    agent.encryptionKey = publicKey(keys.encryption, "X25519")
    resumptions.push({ launch, keys })
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

/** MiB a second, by least squares. */
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
  throw new Error(`${others.length} of ${copies.length} jobs (of ${count}) run no more, the first: ${first}`)
}
