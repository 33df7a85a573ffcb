// Submits a job and waits for it. The command line does all of it; this turns inputs into flags, and the job into outputs,
// the summary and the step's result.

import { randomUUID } from "node:crypto"
import { appendFileSync } from "node:fs"
import { join } from "node:path"
import { input, run, SIGNALS, wordsOf } from "./berth.mjs"
import { jobSummary } from "./summary.mjs"

/** Flags of `berth run`, by the input that has their value. */
const FLAGS = {
  file: "--file",
  image: "--image",
  name: "--name",
  cpu: "--cpu",
  memory: "--memory",
  gpu: "--gpu",
  cloud: "--cloud",
  region: "--region",
  "max-cost": "--max-cost",
  timeout: "--timeout",
  workdir: "--workdir",
}

/**
 * Exit codes of `berth plan` after which the job is submitted. 4: it would wait first. 5: its name is taken, by the job of this
 * step's first try or by another, for which the submission fails.
 */
const SUBMITTED_AFTER = [0, 4, 5]

class StepFailure extends Error {}

/** Returns the flags and arguments that describe the job. */
function jobArguments() {
  const flags = Object.entries(FLAGS).flatMap(([name, flag]) => (input(name) ? [`${flag}=${input(name)}`] : []))
  const more = input("flags")
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "")
  const command = input("command")
  const [entry, args] = command ? [["--entrypoint=sh"], ["--", "-ec", command]] : [[], []]
  return { flags: [...flags, ...(input("spot") === "true" ? ["--spot"] : []), ...more, ...entry], args }
}

/** Writes a value for the runner: of an output or a state. The delimiter is random, as a value may have any line. */
function note(file, name, value) {
  const end = randomUUID()
  appendFileSync(process.env[file] ?? "", `${name}<<${end}\n${value}\n${end}\n`)
}

/** Returns text as the value of a workflow command. */
function escaped(text) {
  return text.replaceAll("%", "%25").replaceAll("\r", "%0D").replaceAll("\n", "%0A")
}

/** Lets the runner read no commands in what `print` writes: a job's log is the text of anybody. */
async function withoutCommands(print) {
  const stop = randomUUID()
  process.stdout.write(`::stop-commands::${stop}\n`)
  try {
    return await print((text) => process.stdout.write(text))
  } finally {
    process.stdout.write(`\n::${stop}::\n`)
  }
}

/** Runs a command that must succeed. @throws StepFailure in the command's words */
async function must(argv, codes = [0]) {
  const ended = await run(argv)
  if (codes.includes(ended.code)) return ended
  throw new StepFailure(wordsOf(ended) || ended.out.trim() || `${argv[1]} ended with ${ended.code}`)
}

async function main() {
  const key = input("api-key")
  if (key) process.stdout.write(`::add-mask::${escaped(key)}\n`)
  let isCancelled = false
  for (const signal of SIGNALS)
    process.on(signal, () => {
      isCancelled = true
    })
  const installed = await must([join(import.meta.dirname, "install.mjs"), input("releases")])
  const berth = installed.out
  const { flags, args } = jobArguments()
  const planned = await must([berth, "plan", ...flags, ...args], SUBMITTED_AFTER)
  await withoutCommands((print) => print(planned.out))
  if (isCancelled) throw new StepFailure("The workflow was cancelled before the job was submitted.")
  const once = `--idempotency-key=${`github-${input("idempotency-key")}-${process.env.GITHUB_ACTION ?? ""}`.slice(0, 255)}`
  const submitted = await must([berth, "run", "--detach", "--yes", "--json", once, ...flags, ...args])
  const job = JSON.parse(submitted.out)
  note("GITHUB_STATE", "berth", berth)
  note("GITHUB_STATE", "job", job.id)
  note("GITHUB_OUTPUT", "job-id", job.id)
  const url = new URL(`/console/projects/${job.project_id}/jobs/${job.id}`, input("url")).href
  note("GITHUB_OUTPUT", "url", url)
  const isAwaited = input("wait") !== "false"
  const last = isAwaited ? await followed(berth, job, () => isCancelled) : job
  note("GITHUB_OUTPUT", "status", last.status)
  note("GITHUB_OUTPUT", "exit-code", last.exit_code ?? "")
  note("GITHUB_OUTPUT", "cost", last.actual_cost ?? last.accrued_cost ?? "")
  appendFileSync(process.env.GITHUB_STEP_SUMMARY ?? "", jobSummary(last, { url, plan: planned.out }))
  if (!isAwaited || last.status === "succeeded") return
  throw new StepFailure(`${last.name}: ${[last.status, last.error_message ?? last.message].filter(Boolean).join(", ")}`)
}

/** Follows a job to its end. A signal cancels it. Returns its last record. */
async function followed(berth, job, isCancelled) {
  if (isCancelled()) await run([berth, "cancel", job.id, "--yes"])
  // With --json the log is on standard error, and the record at the end on standard output.
  const argv = [berth, "attach", job.id, "--cancel-on-exit", "--json"]
  const ended = await withoutCommands((onText) => run(argv, { onText, isSignalled: !isCancelled() }))
  if (ended.out.trim() !== "") return JSON.parse(ended.out)
  const shown = await must([berth, "show", job.id, "--json"])
  const last = JSON.parse(shown.out)
  if (!isCancelled())
    throw new StepFailure(`The step could not follow ${job.name} to its end, and it may run on: its log has the cause.`)
  // A cancellation that the API has accepted shows at once. Another one is left to the step after the workflow.
  const isDone = last.status === "cancelled"
  return isDone ? { ...last, message: "the workflow was cancelled, so the job was cancelled too" } : last
}

try {
  await main()
} catch (error) {
  const text = error instanceof StepFailure ? error.message : `${error instanceof Error ? error.stack : error}`
  process.stdout.write(`::error title=Berth::${escaped(text)}\n`)
  process.exitCode = 1
}
