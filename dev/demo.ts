import { mkdir, readdir, rm, writeFile } from "node:fs/promises"
import { join, relative } from "node:path"
import { isTerminal, type JobPhase, type StoredJob } from "../src/core/apis/job.ts"
import { Reflector } from "../src/core/kube/reflector.ts"
import { JOBS } from "../src/core/resources.ts"
import { createLogger } from "../src/core/telemetry/logger.ts"
import { jobLine, jobTable, usd } from "./board.ts"
import { Terminal } from "./bootstrap/terminal.mjs"
import { DEFAULT_NAME } from "./install.ts"
import type { LocalOptions } from "./options.ts"
import { prepare } from "./prepare.ts"
import { type RestClient, restClient } from "./rest.ts"
import { readSamples, type Samples } from "./samples.ts"
import { type Stack, startStack } from "./stack.ts"

/** File that marks a demo's folder. */
const MARKER = "berth-demo"

/** Much longer than every sample takes: after that a sample hangs. */
const PATIENCE_SECONDS = 300

/**
 * Runs the samples on a stack of its own. Most are applied like kubectl does, one is submitted over REST, and one is
 * cancelled while it runs. Shows the jobs until all have ended, then each result. Returns the exit code: 0 only if each
 * job ended as its sample expects. The data stays: `npm start` with its folder opens it again.
 */
export async function runDemo(options: LocalOptions, signal: AbortSignal): Promise<number> {
  const terminal = new Terminal()
  const heading =
    "Berth demo: real jobs on a real Kubernetes API, on this machine. Nothing leaves it, nothing is billed."
  terminal.line(terminal.paint("bold", heading))
  const samples = await readSamples()
  const prepared = await prepare(options, terminal, signal)
  await emptyFolder(options.dataDir)
  const report = (line: string) => terminal.step(line)
  const stack = await startStack({ ...options, ...prepared, port: 0, durable: false, report, signal })
  terminal.settle()
  try {
    const rest = restClient(stack.url, stack.apiKey)
    const jobs = await runSamples({ stack, rest, samples, terminal, signal })
    return await summarise({ jobs, rest, samples, terminal })
  } finally {
    terminal.step(
      signal.aborted ? "stopped before all jobs had ended; ending what runs ..." : "ending the control plane ...",
    )
    if (signal.aborted) terminal.settle()
    await stack.stop()
    terminal.clear()
    if (!signal.aborted) terminal.line(whatToTry(relative(process.cwd(), options.dataDir)))
  }
}

function whatToTry(dataDir: string): string {
  return `
The control plane has ended; its data and logs are in ${dataDir}. To look at these jobs, open them again:

  npm start -- --data-dir ${dataDir}

and in another terminal, with kubectl or curl:

  . ${dataDir}/env
  kubectl describe bj hello        # which machine was chosen, and why
  curl -H "X-Service-Api-Key: $BERTH_API_KEY" "$BERTH_URL/1/jobs/submitted/logs"`
}

/** Empties a demo's folder, so that each demo starts without data. Rejects a folder that no demo has created. */
async function emptyFolder(folder: string): Promise<void> {
  await mkdir(folder, { recursive: true, mode: 0o700 })
  const found = await readdir(folder)
  if (found.length > 0 && !found.includes(MARKER)) {
    throw new Error(`${folder} has files that are not of an earlier demo: choose another --data-dir`)
  }
  await rm(folder, { recursive: true })
  await mkdir(folder, { mode: 0o700 })
  await writeFile(join(folder, MARKER), "berth demo writes here, and deletes everything at its next start\n")
}

/** State of a demo whose stack runs. */
interface Run {
  stack: Stack
  rest: RestClient
  samples: Samples
  terminal: Terminal
  signal: AbortSignal
}

/** Submits all samples and follows them until all jobs and their VMs have ended. Throws the signal's reason. */
async function runSamples(run: Run): Promise<StoredJob[]> {
  const { stack, rest, samples, terminal, signal } = run
  const ended = AbortSignal.any([signal, AbortSignal.timeout(PATIENCE_SECONDS * 1000)])
  const logger = createLogger({ level: "silent", name: "demo" })
  const watching = new AbortController()
  const reflector = new Reflector({ client: stack.client, resource: JOBS, namespace: DEFAULT_NAME, logger })
  const running = reflector.run(watching.signal)
  const all = () => reflector.store.list()
  const show = () => terminal.show(`\n${jobTable(all(), new Date(), painter(terminal))}`)
  const redraw = setInterval(show, 1000)
  try {
    await reflector.whenSynced(ended)
    follow(reflector, run, show)
    for (const { manifest } of samples.applied) {
      const object = { ...manifest, metadata: { namespace: DEFAULT_NAME, ...manifest.metadata } }
      await stack.client.apply(JOBS, object, { fieldManager: "kubectl" })
    }
    const names = samples.applied.map(({ manifest }) => manifest.metadata.name)
    terminal.line(`applied with server-side apply: ${names.join(", ")}`)
    const submitted = await rest.submit(samples.submitted.yaml)
    terminal.line(`submitted over REST: ${submitted} (POST ${stack.url}/1/jobs, YAML)`)
    const count = samples.applied.length + 1
    await reflector.store.waitUntil(() => all().length >= count && all().every(isOver), ended)
    return all()
  } finally {
    clearInterval(redraw)
    watching.abort()
    await running
    // Shows the last state, which stays. It also covers the "^C" of a terminal.
    show()
    terminal.settle()
  }
}

/** Redraws the table, or prints each change as a line. Cancels the sample to be cancelled once it runs. */
function follow(reflector: Reflector<StoredJob>, { rest, samples, terminal, signal }: Run, show: () => void): void {
  const shown = new Map<string, string>()
  const toCancel = new Set(samples.cancelled)
  reflector.onChange(({ key, current }) => {
    if (signal.aborted || current?.status?.phase === undefined) return
    const line = jobLine(current)
    if (shown.get(key) !== line) {
      shown.set(key, line)
      if (!terminal.live) terminal.line(`  ${line}`)
    }
    const { name } = current.metadata
    if (current.status.phase === "running" && toCancel.delete(name)) {
      terminal.line(`cancelled over REST while it runs: ${name} (POST /1/jobs/${name}/cancel)`)
      rest.cancel(name).catch((error: unknown) => {
        if (!signal.aborted) terminal.line(`cancelling ${name} failed: ${String(error)}`)
      })
    }
    show()
  })
}

const COLOURS = {
  queued: "gray",
  booting: "cyan",
  running: "cyan",
  succeeded: "green",
  failed: "red",
  cancelled: "yellow",
} as const satisfies Record<JobPhase, string>

function painter(terminal: Terminal): (text: string, phase: JobPhase) => string {
  return (text, phase) => terminal.paint(COLOURS[phase], text)
}

/** Only then the cost is final and nothing is left behind. */
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

/** Prints how each job ended, and the table unless the terminal shows it already. Returns the exit code. */
async function summarise({ jobs, rest, samples, terminal }: Ending): Promise<number> {
  if (!terminal.live) terminal.line(`\n${jobTable(jobs, new Date())}`)
  terminal.line()
  let unexpected = 0
  for (const { metadata, status = {} } of jobs.toSorted((a, b) => a.metadata.name.localeCompare(b.metadata.name))) {
    const { name } = metadata
    const expected = samples.expectation(name)
    if (status.phase === expected.phase && (expected.reason ?? status.reason) === status.reason) {
      const lastLine = (await rest.logTail(name, 1)).trim()
      terminal.line(`${name}: ${status.phase}, as expected. The last line of its log: ${lastLine}`)
      continue
    }
    unexpected += 1
    const wanted = `${expected.phase} (${expected.reason ?? "any reason"})`
    terminal.line(`${name}: ${status.phase}, but should have ended ${wanted}. ${status.message ?? ""}`)
  }
  const total = jobs.reduce((sum, { status }) => sum + (status?.cost?.actualUsd ?? 0), 0)
  const verdict = `${jobs.length - unexpected} of ${jobs.length} jobs ended as expected.`
  terminal.line(
    `\n${terminal.paint(unexpected === 0 ? "green" : "red", verdict)} Cost in all ${usd(total)} (notional: the local cloud bills nothing).`,
  )
  return unexpected === 0 ? 0 : 1
}
