import { randomBytes } from "node:crypto"
import { readFileSync } from "node:fs"
import { type Command, Option } from "commander"
import { type BerthClient, fetched, type JobPlan, type JobRecord, type JobSubmission } from "../../client/client.ts"
import { isEnded, readJob, watchJobs } from "../../client/jobs.ts"
import { logOf } from "../../client/logs.ts"
import { type Call, type Commands, repeated } from "../command.ts"
import { documentsOf, requireNamespace, sourcesAt } from "../documents.ts"
import { envFileOf } from "../env-file.ts"
import { EXIT, exitOfJob, Failure, failureOf, usageError } from "../exit.ts"
import { type LeaveFlags, leave } from "../leave.ts"
import { type ArrayShape, arrayShapeOf } from "../matrix.ts"
import { exitOfPlan, planText } from "../plan.ts"
import { type JobFlags, submissionLike, submissionOf, withSetting } from "../submission.ts"
import { durationText, usdText } from "../table.ts"
import { shown } from "../terminal.ts"
import { type PackedFolder, packFolder, upload, uploadLimit, workdirFlag } from "../workdir.ts"
import { namespaceOf } from "./apply.ts"
import { submitArray, wholeNumber } from "./array.ts"

interface FileFlags extends JobFlags {
  file?: string
  envFile?: string[]
}

interface RunFlags extends FileFlags, LeaveFlags {
  array?: string
  parallelism?: string
  maxFailed?: string
  detach?: boolean
  yes?: boolean
  dryRun?: boolean
}

const CONTAINER_FLAGS = "Flags of the container come after --, as in -- --epochs 10."

/** `run`, `plan`, `attach` and `rerun`: commands that submit a job, or end with one. */
export function addRunCommands(commands: Commands, program: Command): void {
  addRun(commands, program)
  commands.add<FileFlags>(program, {
    usage: "plan [args...]",
    summary: "Show the machines that a job would get, and their prices.",
    more: "Creates nothing. Exit code 3: nothing fits. 4: the job would wait.",
    usageHint: CONTAINER_FLAGS,
    examples: [
      ["berth plan --image alpine:3.22 --gpu L4", "prices of machines with an L4"],
      ["berth plan -f job.yaml", "the plan of a file"],
    ],
    options: [fileOption(), ...jobOptions()],
    run: async (call) => {
      const { job } = await jobFrom(call)
      const plan = await planFor(call.client(), job)
      if (call.isForProgram) await call.printValue(plan)
      else await call.terminal.line(planText(plan, job, call.terminal, call.format === "wide"))
      return exitOfPlan(plan)
    },
  })
  commands.add<LeaveFlags>(program, {
    usage: "attach <job>",
    summary: "Follow a job's log, and end with its exit code.",
    more: "Ctrl-C detaches: the job runs on.",
    usageExit: EXIT.berth,
    examples: [["berth attach train", "the log from its beginning, then the container's exit code"]],
    options: [cancelOption()],
    run: (call) => attachedTo(call, () => attach(call, call.client(), call.args[0] ?? "")),
  })
  addRerun(commands, program)
}

function addRun(commands: Commands, program: Command): void {
  commands.add<RunFlags>(program, {
    usage: "run [args...]",
    summary: "Submit a job, follow its log, and end with its exit code.",
    more:
      "Shows the plan and its price first, and asks. The arguments after -- are those of the container.\n" +
      "Exit code: the container's own; 124 after the timeout or the budget; 125 if no container ended; 130 after Ctrl-C.",
    usageExit: EXIT.berth,
    usageHint: CONTAINER_FLAGS,
    examples: [
      ["berth run --image python:3.13 -- python -c 'print(6 * 7)'", "run a container"],
      ["berth run --image ghcr.io/acme/train:3 --gpu L4 --spot -- --epochs 10", "on a spot machine with a GPU"],
      ["berth run --image python:3.13 --workdir . -- python train.py", "run the code in this folder"],
      ["berth run -f job.yaml --yes --detach", "submit a file, without a question"],
      [
        "berth run --image acme/train:3 --array 'lr=0.1,0.01 seed=1..50' --parallelism 20 -- python train.py",
        "a job for each combination, whose values are environment variables",
      ],
    ],
    options: [
      fileOption(),
      ...jobOptions(),
      new Option("-d, --detach", "only submit the job, and print its name"),
      yesOption(),
      cancelOption(),
      new Option("--dry-run", "only show the plan, as berth plan does"),
      ...arrayOptions(),
    ],
    run: (call) =>
      call.options.detach === true || call.options.dryRun === true ? run(call) : attachedTo(call, () => run(call)),
  })
}

function addRerun(commands: Commands, program: Command): void {
  commands.add<LeaveFlags & { set?: string[]; name?: string; yes?: boolean; detach?: boolean }>(program, {
    usage: "rerun <job>",
    summary: "Submit a new job like an earlier one.",
    usageExit: EXIT.berth,
    examples: [
      ["berth rerun train", "the same job again, under a new name"],
      ["berth rerun train --set resources.gpu=H100 --name train-2", "with another GPU, under this name"],
    ],
    options: [
      new Option("--set <field=value>", "change a field of the body; may be repeated").argParser(repeated),
      new Option("--name <name>", "name of the new job; default: generated from the earlier one"),
      new Option("-d, --detach", "only submit the job, and print its name"),
      yesOption(),
      cancelOption(),
    ],
    run: (call) => {
      const again = async () => {
        const client = call.client()
        const like = submissionLike(await readJob(client, call.args[0] ?? ""))
        const { namePrefix, ...unnamed } = like
        const { name, set = [] } = call.options
        const job = set.reduce(
          withSetting,
          name === undefined ? { ...unnamed, ...(namePrefix != null && { namePrefix }) } : { ...unnamed, name },
        )
        return submitAndAttach(call, client, { job })
      }
      return call.options.detach === true ? again() : attachedTo(call, again)
    },
  })
}

function arrayOptions(): Option[] {
  const group = "Array options:"
  return [
    new Option("--array <shape>", "number of jobs, or values of variables such as 'lr=0.1,0.01 seed=1..50'"),
    new Option("--parallelism <number>", "maximum number of unfinished jobs of the array; default: 10"),
    new Option("--max-failed <number>", "failed jobs after which the array creates no more; default: no limit"),
  ].map((option) => option.helpGroup(group))
}

function cancelOption(): Option {
  return new Option("--cancel-on-exit", "cancel the job if Ctrl-C or a signal ends this command")
}

function yesOption(): Option {
  return new Option("-y, --yes", "answer every question with yes")
}

function fileOption(): Option {
  return new Option(
    "-f, --file <file>",
    "job as YAML or JSON: a body of the REST API or a Kubernetes object; - is standard input",
  )
}

/** Flags that describe a job, in the words of docker run. */
function jobOptions(): Option[] {
  const many = (flags: string, text: string) => new Option(flags, `${text}; may be repeated`).argParser(repeated)
  const group = "Job options:"
  return [
    new Option("--image <image>", "container image"),
    new Option("--name <name>", "name of the job; default: generated"),
    new Option("--prefix <prefix>", "prefix of a generated name"),
    new Option("--entrypoint <program>", "program to start, instead of the image's entrypoint"),
    new Option("--cpu <number>", "minimum number of vCPUs; default: 1"),
    new Option("--memory <size>", "minimum memory of the container, such as 16Gi"),
    new Option("--disk <size>", "minimum disk of the machine, such as 100Gi"),
    new Option("--gpu <gpu>", "model (L4), model and number (L4:2) or memory (A100:80Gi), or GPU memory (24Gi)"),
    many("--region <region>", "region, or us, eu, asia …"),
    many("--cloud <cloud>", "aws, gcp or azure"),
    new Option("--spot", "only spot machines"),
    new Option("--spot-first", "spot machines if there are any, else on demand"),
    new Option(
      "--fallback-after <number>",
      "preempted spot machines in a row before --spot-first buys on demand; default: 3",
    ),
    new Option("--max-preemptions <number>", "maximum number of preempted machines; default: no limit"),
    new Option("--max-price <usd>", "maximum price of the machine, USD per hour"),
    new Option("--max-cost <usd>", "maximum cost of the job, USD; Berth ends it before it costs more"),
    new Option("--timeout <duration>", "maximum run time, such as 90s, 2h or 1d"),
    new Option("--max-queue <duration>", "maximum time until the container starts, boots included; default: no limit"),
    new Option("--grace <duration>", "maximum time from the stop signal to SIGKILL; default: 10s"),
    new Option("--retries <number>", "number of times to start a failed container again"),
    many("-e, --env <name=value>", "environment variable; a name alone takes the value of this shell"),
    many("--env-file <file>", "file with a NAME=VALUE in each line"),
    many("--secret <name=secret:key>", "environment variable from a key of a Secret in the project"),
    new Option(
      "--workdir <dir>",
      "folder to upload and to start in: DIR[:/PATH]; without .git and what .gitignore and .berthignore name",
    ),
    many("--volume <bucket:path>", "bucket to mount: BUCKET[/PREFIX]:/PATH[@CONNECTION]"),
    new Option("--checkpoint <bucket:path>", "bucket for the job's checkpoints, kept until it has succeeded"),
    many("-l, --label <name=value>", "label"),
    many("--tag <tag>", "tag"),
  ].map((option) => option.helpGroup(group))
}

/** Job to submit, and the folder that it needs. */
interface PreparedJob {
  job: JobSubmission
  packed?: PackedFolder | undefined
}

/** Returns the job that the flags and the file describe. */
async function jobFrom(call: Call<FileFlags>): Promise<PreparedJob> {
  const { file, envFile = [], ...flags } = call.options
  const read = envFile.map((path) => envFileOf(path, bytesOf(path), call.environment))
  const fileEnvironment = Object.fromEntries(read.flatMap(Object.entries<string>))
  const base = file === undefined ? undefined : await jobInFile(call, file)
  // Wrong flags are found before a folder is packed.
  const job = submissionOf({ flags, args: call.args, base, fileEnvironment, environment: call.environment })
  if (flags.workdir === undefined) return { job }
  const { folder, path } = workdirFlag(flags.workdir)
  const packed = await packFolder(folder, { bytes: await uploadLimit(call.client()) })
  const workdir = { ...job.workdir, sha256: packed.sha256, ...(path !== undefined && { path }) }
  return { job: { ...job, workdir }, packed }
}

function bytesOf(path: string): Uint8Array {
  try {
    return readFileSync(path)
  } catch (error) {
    throw usageError(`--env-file ${path} can't be read: ${(error as Error).message}`)
  }
}

async function jobInFile(call: Call<unknown>, file: string): Promise<JobSubmission> {
  const sources =
    file === "-" ? [{ name: "standard input", text: await call.terminal.input("a job") }] : sourcesAt(file)
  const documents = sources.flatMap(documentsOf)
  const [first] = documents
  if (documents.length !== 1 || first?.kind !== "job")
    throw usageError(`${file} must have exactly one job. berth apply takes several documents.`)
  await requireNamespace(documents, () => namespaceOf(call.client()))
  return first.body
}

function planFor(client: BerthClient, body: JobSubmission): Promise<JobPlan> {
  return fetched(client.api.POST("/jobs", { params: { query: { dry_run: true } }, body })) as Promise<JobPlan>
}

async function run(call: Call<RunFlags>): Promise<number> {
  const { job, packed } = await jobFrom(call)
  const client = call.client()
  const array = arrayIn(call.options, job)
  if (call.options.dryRun !== true) return submitAndAttach(call, client, { job, array, packed })
  const plan = await planFor(client, job)
  if (call.isForProgram) await call.printValue(plan)
  else await call.terminal.line(planText(plan, job, call.terminal, call.format === "wide"))
  return exitOfPlan(plan)
}

type ArraySettings = ArrayShape & { name: string; parallelism?: number; max_failed?: number }

/** Returns the array that the flags describe; undefined without --array. @throws Failure */
function arrayIn({ array, parallelism, maxFailed }: RunFlags, job: JobSubmission): ArraySettings | undefined {
  if (array === undefined) {
    if (parallelism === undefined && maxFailed === undefined) return undefined
    throw usageError("--parallelism and --max-failed need --array.")
  }
  const name = job.name ?? `${job.namePrefix ?? "array"}-${randomBytes(4).toString("hex")}`
  return {
    ...{ name, ...arrayShapeOf(array) },
    ...(parallelism !== undefined && { parallelism: wholeNumber("--parallelism", parallelism) }),
    ...(maxFailed !== undefined && { max_failed: wholeNumber("--max-failed", maxFailed) }),
  }
}

function jobsIn(array: ArrayShape): number {
  if ("size" in array) return array.size
  return Object.values(array.matrix).reduce((product, values) => product * values.length, 1)
}

/** Shows the plan, asks, submits, and follows the job or the array unless it is detached. */
async function submitAndAttach(
  call: Call<LeaveFlags & { yes?: boolean; detach?: boolean }>,
  client: BerthClient,
  { job, packed, array }: PreparedJob & { array?: ArraySettings | undefined },
): Promise<number> {
  const { terminal } = call
  const { yes, detach } = call.options
  const plan = await planFor(client, job)
  if (plan.verdict === "noOffer") {
    terminal.warn(planText(plan, job, terminal))
    throw new Failure(EXIT.nothingFits, "Nothing was submitted. `berth offers` lists the machines that there are.")
  }
  terminal.progress(planText(plan, job, terminal))
  if (yes !== true) {
    const what = array === undefined ? "" : ` ${jobsIn(array)} such jobs`
    const question = plan.verdict === "waits" ? `  Submit${what}, and wait?` : `  Submit${what}?`
    if (!(await terminal.confirm(question, "--yes"))) throw new Failure(EXIT.failed, "Nothing was submitted.")
  }
  if (packed !== undefined) terminal.progress(await uploaded(client, packed))
  if (array !== undefined) return submitArray(call, client, job, array)
  const created = await fetched(client.api.POST("/jobs", { body: job }))
  const { name } = created as { name: string }
  if (detach !== true) return attach(call, client, name)
  terminal.progress(`Submitted ${name}. Follow it: berth attach ${name}`)
  if (call.isForProgram) await call.printValue(await readJob(client, name))
  else await terminal.line(name)
  return 0
}

/** Uploads the folder if it has changed. Returns the report. */
async function uploaded(client: BerthClient, packed: PackedFolder): Promise<string> {
  const size = `${packed.entries} files, ${(packed.archive.byteLength / 1024 ** 2).toFixed(1)} MiB`
  const isSent = await upload(client, packed)
  return isSent
    ? `Uploaded the workdir (${size}).`
    : `The project has this workdir already (${size}): nothing was uploaded.`
}

/** Runs a command whose exit code is a container's: its own failures are all 125, and Ctrl-C is 130. */
async function attachedTo(call: Call<unknown>, attached: () => Promise<number>): Promise<number> {
  try {
    return await attached()
  } catch (error) {
    if (call.signal.aborted) throw error
    const failure = failureOf(error)
    throw new Failure(failure.code === EXIT.interrupted ? EXIT.interrupted : EXIT.berth, failure.message)
  }
}

/** Follows a job to its end. Its log is the output; with --json the record is, and the log is on standard error. */
async function attach(call: Call<LeaveFlags>, client: BerthClient, id: string): Promise<number> {
  const { terminal, signal } = call
  const job = await readJob(client, id)
  const progress = reportProgress(call, client, job)
  try {
    const onReconnect = () => terminal.progress("The log's connection was cut: reconnecting.")
    for await (const piece of logOf(client, job.id, { follow: true, signal, onReconnect })) {
      if (call.isForProgram) await terminal.log(piece)
      else await terminal.write(piece)
    }
    const ended = await progress
    terminal.progress(endText(ended, (text) => terminal.noted(ended.status === "succeeded" ? "green" : "red", text)))
    if (call.isForProgram) await call.printValue(ended)
    return exitOfJob(ended)
  } catch (error) {
    await progress.catch(() => undefined)
    if (signal.aborted) await leave(call, followed(job))
    else if (!isEnded(job)) terminal.warn(`${job.name} was submitted and may still run: berth show ${job.name}`)
    throw error
  }
}

function followed({ id, name }: JobRecord) {
  const cancel = (client: BerthClient, signal: AbortSignal) =>
    fetched(client.api.POST("/jobs/{id}/cancel", { params: { path: { id } }, signal }))
  return { name, follow: `berth attach ${name}`, end: `berth cancel ${name}`, cancel }
}

/** Reports each new status until the job has ended, and returns its record. */
async function reportProgress(call: Call<unknown>, client: BerthClient, job: JobRecord): Promise<JobRecord> {
  let last = job
  let said = ""
  for await (const record of watchJobs(client, [job.id], call.signal)) {
    last = record
    const text = stepText(record)
    if (text === said || isEnded(record)) continue
    said = text
    call.terminal.progress(call.terminal.noted("dim", text))
  }
  return last
}

function stepText(job: JobRecord): string {
  const machine = `${job.selected_provider} ${job.selected_instance_type} in ${job.selected_region}`
  if (job.status === "booting") return `${job.name}: booting ${machine}`
  if (job.status === "running") return `${job.name}: running on ${machine}`
  return `${job.name}: ${job.status}${job.message === null ? "" : `: ${shown(job.message)}`}`
}

/** Returns how a job has ended, in one line. */
export function endText(job: JobRecord, styled: (text: string) => string): string {
  const ran =
    job.started_at === null || job.ended_at === null
      ? undefined
      : (Date.parse(job.ended_at) - Date.parse(job.started_at)) / 1000
  const parts = [
    `${job.name}: ${styled(job.status)}`,
    ...(job.status === "succeeded" || job.message === null ? [] : [shown(job.message)]),
    ...(ran === undefined ? [] : [`ran for ${durationText(ran)}`]),
    ...(job.actual_cost === null ? [] : [`cost ${usdText(job.actual_cost)}`]),
  ]
  return parts.join(", ")
}
