import { mkdir, readdir, rm, writeFile } from "node:fs/promises"
import { join } from "node:path"
import { isTerminal, JOB, type Job, type StoredJob } from "../apis/job.ts"
import { Reflector } from "../kube/reflector.ts"
import { resourceOf } from "../kube/resource.ts"
import type { LocalOptions } from "../options.ts"
import { createLogger } from "../telemetry/logger.ts"
import { jobLine, jobTable, usd } from "./board.ts"
import { DEFAULT_NAME } from "./install.ts"
import { type RestClient, restClient } from "./rest.ts"
import { readSamples, type Samples } from "./samples.ts"
import { type Stack, startStack } from "./stack.ts"
import { Terminal } from "./terminal.ts"

const JOBS = resourceOf<Job>(JOB)

/** How many lines of each job's log are shown at the end. */
const TAIL_LINES = 3

/** Tells a demo's folder from any other. */
const MARKER = "berth-demo"

/** Longer than every sample takes, by far: something hangs. */
const PATIENCE_SECONDS = 300

/**
 * Runs the samples on a stack of its own: applied as kubectl applies, one submitted over REST, one cancelled
 * while it runs. Shows them until all are over, then how each one ended. Returns the exit code: 0 only when each
 * job ended as its sample says.
 */
export async function runDemo(options: LocalOptions, signal: AbortSignal): Promise<number> {
  const terminal = new Terminal()
  terminal.line(
    "Berth demo: real jobs on a real Kubernetes API, on this machine. Nothing leaves it, nothing is billed.",
  )
  const samples = await readSamples()
  await emptyFolder(options.dataDir)
  const stack = await startStack({
    ...options,
    port: 0,
    durable: false,
    images: samples.images(),
    report: (line) => terminal.line(line),
    signal,
  })
  try {
    const rest = restClient(stack.url, stack.apiKey)
    const jobs = await runSamples({ stack, rest, samples, terminal, signal })
    return await summarise({ jobs, rest, samples, terminal })
  } finally {
    terminal.line("\nStopping the control plane ...")
    await stack.stop()
    terminal.line(
      `Done. Logs of the servers are in ${options.dataDir}. Next: \`npm start\` keeps such a stack running.`,
    )
  }
}

/** A demo begins from nothing each time, but removes only what a demo has made. */
async function emptyFolder(folder: string): Promise<void> {
  await mkdir(folder, { recursive: true, mode: 0o700 })
  const found = await readdir(folder)
  if (found.length > 0 && !found.includes(MARKER)) {
    throw new Error(`${folder} holds other things than an earlier demo: choose another --data-dir`)
  }
  await rm(folder, { recursive: true })
  await mkdir(folder, { mode: 0o700 })
  await writeFile(join(folder, MARKER), "berth demo writes here, and removes it all at its next start\n")
}

interface Run {
  stack: Stack
  rest: RestClient
  samples: Samples
  terminal: Terminal
  signal: AbortSignal
}

/** Submits everything and follows it to its end: all jobs terminal, all VMs gone. */
async function runSamples({ stack, rest, samples, terminal, signal }: Run): Promise<StoredJob[]> {
  const ended = AbortSignal.any([signal, AbortSignal.timeout(PATIENCE_SECONDS * 1000)])
  const logger = createLogger({ level: "silent", name: "demo" })
  const watching = new AbortController()
  const reflector = new Reflector({ client: stack.client, resource: JOBS, namespace: DEFAULT_NAME, logger })
  const running = reflector.run(watching.signal)
  try {
    await reflector.whenSynced(ended)
    const redraw = follow(reflector, rest, samples, terminal)
    for (const { manifest } of samples.applied) {
      const { name } = manifest.metadata
      const object = { ...manifest, metadata: { namespace: DEFAULT_NAME, ...manifest.metadata } }
      await stack.client.apply(JOBS, object, { fieldManager: "kubectl" })
      terminal.line(`applied   job ${name} (as kubectl apply does, server-side)`)
    }
    const submitted = await rest.submit(samples.submitted.yaml)
    terminal.line(`submitted job ${submitted} (POST ${stack.url}/1/jobs, YAML)`)
    const count = samples.applied.length + 1
    const all = () => reflector.store.list() as StoredJob[]
    await reflector.store.waitUntil(() => all().length >= count && all().every(isOver), ended)
    clearInterval(redraw)
    terminal.settle()
    return all()
  } finally {
    watching.abort()
    await running
  }
}

/** Redraws the table, or prints each change as a line; cancels the sample that is to be cancelled once it runs. */
function follow(reflector: Reflector<Job>, rest: RestClient, samples: Samples, terminal: Terminal): NodeJS.Timeout {
  const shown = new Map<string, string>()
  const toCancel = new Set(samples.cancelled)
  const show = () => terminal.show(jobTable(reflector.store.list() as StoredJob[], new Date()))
  reflector.onChange(({ key, current }) => {
    if (current?.status?.phase === undefined) return
    const line = jobLine(current as StoredJob)
    if (shown.get(key) !== line) {
      shown.set(key, line)
      if (!terminal.live) terminal.line(`  ${line}`)
    }
    const { name } = current.metadata
    if (current.status.phase === "running" && toCancel.delete(name)) {
      terminal.line(`cancelling job ${name} (POST /1/jobs/${name}/cancel)`)
      rest.cancel(name).catch((error: unknown) => terminal.line(`cancelling ${name} failed: ${String(error)}`))
    }
    show()
  })
  return setInterval(show, 1000).unref()
}

/** Only now is the cost final and nothing left behind. */
function isOver({ status }: StoredJob): boolean {
  return (
    isTerminal(status?.phase) && (status?.vm === undefined || ["nonassigned", "terminated"].includes(status.vm.state))
  )
}

interface Ending {
  jobs: StoredJob[]
  rest: RestClient
  samples: Samples
  terminal: Terminal
}

async function summarise({ jobs, rest, samples, terminal }: Ending): Promise<number> {
  terminal.line(`\n${jobTable(jobs, new Date())}\n`)
  let unexpected = 0
  for (const { metadata, status = {} } of jobs.toSorted((a, b) => a.metadata.name.localeCompare(b.metadata.name))) {
    const { name } = metadata
    const expected = samples.expectation(name)
    const asExpected = status.phase === expected.phase && (expected.reason ?? status.reason) === status.reason
    if (!asExpected) unexpected += 1
    const verdict = asExpected
      ? "as it should"
      : `but should have ended ${expected.phase} (${expected.reason ?? "any reason"})`
    terminal.line(`${name}: ${status.phase}, ${verdict}. Cost ${usd(status.cost?.actualUsd)}. ${status.message ?? ""}`)
    for (const line of (await rest.logTail(name, TAIL_LINES)).trimEnd().split("\n")) {
      if (line !== "") terminal.line(`    | ${line}`)
    }
    terminal.line(`    next: ${expected.next}`)
  }
  const total = jobs.reduce((sum, { status }) => sum + (status?.cost?.actualUsd ?? 0), 0)
  terminal.line(
    `\n${jobs.length - unexpected} of ${jobs.length} jobs ended as they should. Cost in all ${usd(total)} (notional: the local cloud bills nothing).`,
  )
  return unexpected === 0 ? 0 : 1
}
