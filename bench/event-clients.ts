import { once } from "node:events"
import { connect, type Socket } from "node:net"
import { setTimeout as delay } from "node:timers/promises"
import type { Job, StoredJob } from "../src/core/apis/job.ts"
import { API_VERSION } from "../src/core/apis/meta.ts"
import { JOBS } from "../src/core/resources.ts"
import { type BenchProject, type FacadeStack, startFacadeStack } from "./facade-stack.ts"
import { usageOf } from "./program.ts"
import { type BenchContext, type BenchResult, compare, within } from "./result.ts"

const CLIENTS = 1000
const SECONDS = 30
const CHANGES_A_SECOND = 50
const CHANGED_JOBS = 200
/** A principal may follow 50 streams. */
const CLIENTS_OF_A_KEY = 50
const WRITERS = 16
const PATIENCE_SECONDS = 120

/** Goal of the project. */
const MEMORY_MIB = 200

/**
 * Measures the cost of clients that follow a project's events: memory of the façade, and the time from a change's write
 * until every client has it. Each client is a connection of its own.
 */
export async function run(context: BenchContext): Promise<BenchResult> {
  const { report, seconds = SECONDS } = context
  const [count = CLIENTS] = context.sizes ?? []
  const stack = await startFacadeStack(context, WRITERS)
  try {
    const project = await stack.makeProject("events")
    const jobs = await makeJobs(stack, project)
    const alone = await usageOf(stack.facadePid)
    const clients = await openAll(stack, project, count)
    const before = await usageOf(stack.facadePid)
    report(`without clients: ${alone.residentMiB.toFixed(0)} MiB; ${count}, idle: ${before.residentMiB.toFixed(0)} MiB`)
    const written = await changeAll(stack, jobs, seconds)
    await untilAllHave(clients, `"message":"${written.last}"`)
    const { residentMiB, peakMiB, cpuSeconds } = await usageOf(stack.facadePid)
    const used = (cpuSeconds - before.cpuSeconds) / seconds
    const resets = clients.filter(({ resets }) => resets > 0).length
    const mebibytes = clients.reduce((sum, { bytes }) => sum + bytes, 0) / 2 ** 20
    report(`${written.count} changes in ${seconds} s; ${mebibytes.toFixed(0)} MiB sent, ${used.toFixed(2)} cores`)
    report(`the façade has ${residentMiB.toFixed(0)} MiB, at most ${peakMiB.toFixed(0)}`)
    for (const { socket } of clients) socket.destroy()
    const about = `${count.toLocaleString("en")} clients of events, ${CHANGES_A_SECOND} changes a second`
    return {
      name: "clients",
      rows: [
        within(`memory that the façade needs more with ${about}, MiB`, [peakMiB - alone.residentMiB], MEMORY_MIB),
        compare("clients that got all events", [count - resets], [count], 1),
      ],
      spread: {},
    }
  } finally {
    await stack.stop()
  }
}

/** Creates jobs of a usual size. */
async function makeJobs({ client }: FacadeStack, { name: namespace }: BenchProject): Promise<string[]> {
  const names = Array.from({ length: CHANGED_JOBS }, (_, n) => `job-${n}`)
  await inTurns(names, async (name) => {
    const spec = { image: "registry.example/team/trainer:1.4.2", command: ["python", "train.py"], env: { RUN: name } }
    const job: Job = { apiVersion: API_VERSION, kind: "Job", metadata: { namespace, name }, spec }
    await client.create(JOBS, job as StoredJob)
  })
  return names
}

/** One client, and what it has got. */
interface Client {
  socket: Socket
  bytes: number
  resets: number
  /** End of the received text. */
  tail: string
}

const TAIL = 64 * 1024

/** Opens the clients, with as many keys as they need. */
async function openAll(stack: FacadeStack, project: BenchProject, count: number): Promise<Client[]> {
  const clients: Client[] = []
  for (let made = 0; made < count; made += CLIENTS_OF_A_KEY) {
    const key = await makeKey(stack, project, `reader-${made}`)
    const some = Array.from({ length: Math.min(CLIENTS_OF_A_KEY, count - made) }, () => open(stack, project, key))
    clients.push(...(await Promise.all(some)))
  }
  return clients
}

async function makeKey({ facade }: FacadeStack, { headers }: BenchProject, name: string): Promise<string> {
  const signal = AbortSignal.timeout(PATIENCE_SECONDS * 1000)
  const body = JSON.stringify({ name, role: "viewer" })
  const { statusCode, body: answer } = await facade.request({
    method: "POST",
    path: "/1/keys",
    headers: { ...headers, "content-type": "application/json" },
    body,
    signal,
  })
  const text = await answer.text()
  if (statusCode !== 201) throw new Error(`POST /1/keys: ${statusCode} ${text}`)
  return (JSON.parse(text) as { value: string }).value
}

/** Opens a stream; resolves when it has begun. */
async function open({ facadeUrl }: FacadeStack, { headers }: BenchProject, key: string): Promise<Client> {
  const { hostname, port } = new URL(facadeUrl)
  const socket = connect({ host: hostname, port: Number(port) })
  const client: Client = { socket, bytes: 0, resets: 0, tail: "" }
  socket.on("data", (piece: Buffer) => {
    client.bytes += piece.length
    if (piece.includes("event: reset")) client.resets++
    client.tail = (client.tail + piece.toString("latin1")).slice(-TAIL)
  })
  const lines = ["GET /1/events HTTP/1.1", `Host: ${headers["host"]}`, `X-Service-Api-Key: ${key}`, "", ""]
  socket.write(lines.join("\r\n"))
  await once(socket, "data", { signal: AbortSignal.timeout(PATIENCE_SECONDS * 1000) })
  if (!client.tail.startsWith("HTTP/1.1 200")) throw new Error(`GET /1/events: ${client.tail}`)
  return client
}

/**
 * Changes the jobs one after the other, at a constant rate. Returns the number of changes and the last message. A write
 * that fails on a busy machine does not count.
 */
async function changeAll({ client }: FacadeStack, names: readonly string[], seconds: number) {
  const startedAt = performance.now()
  const writes: Promise<boolean>[] = []
  const total = seconds * CHANGES_A_SECOND
  for (let n = 0; n < total; n++) {
    await delay(Math.max(0, startedAt + (n * 1000) / CHANGES_A_SECOND - performance.now()))
    const name = names[n % names.length] ?? ""
    const merge = { status: { phase: "running", reason: "Running", message: messageOf(n) } }
    if (n === total - 1) await Promise.all(writes)
    const written = client.patchStatus(JOBS, { namespace: "events", name }, { merge })
    writes.push(
      written.then(
        () => true,
        () => false,
      ),
    )
  }
  const succeeded = await Promise.all(writes)
  return { count: succeeded.filter(Boolean).length, last: messageOf(succeeded.lastIndexOf(true)) }
}

/** Returns a message of the usual length of a job's. */
function messageOf(n: number): string {
  return `change ${n} of the bench: ${"a job's status has about two kilobytes ".repeat(40)}`
}

async function untilAllHave(clients: readonly Client[], text: string): Promise<void> {
  const signal = AbortSignal.timeout(PATIENCE_SECONDS * 1000)
  while (!clients.every(({ tail }) => tail.includes(text))) await delay(50, undefined, { signal })
}

async function inTurns<T>(items: readonly T[], work: (item: T) => Promise<void>): Promise<void> {
  const left = [...items]
  const worker = async (): Promise<void> => {
    for (let item = left.shift(); item !== undefined; item = left.shift()) await work(item)
  }
  await Promise.all(Array.from({ length: WRITERS }, worker))
}
