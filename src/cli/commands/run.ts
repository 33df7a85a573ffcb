import { readFileSync } from "node:fs"
import { type Command, Option } from "commander"
import { type ArrayPlan, type BerthClient, type JobPlan, type JobSubmission, readBody } from "../../client/client.ts"
import { ApiError } from "../../client/errors.ts"
import { readJob } from "../../client/jobs.ts"
import { defined } from "../../core/apis/defined.ts"
import { type Call, type Commands, collectOption } from "../command.ts"
import { configFolder } from "../context.ts"
import { readDocuments, requireNamespace, sourcesAt } from "../documents.ts"
import { parseEnvFile } from "../env-file.ts"
import { EXIT, Failure, usageError } from "../exit.ts"
import { stateFolder } from "../last.ts"
import { exitOfPlan, jobPlanOf, type Plan, planQuestion, planText, verdictText, warningText } from "../plan.ts"
import {
  arrayName,
  buildSubmission,
  type JobFlags,
  jobOptions,
  parseArrayShape,
  submissionLike,
  withSetting,
} from "../submission.ts"
import { usdText } from "../table.ts"
import { type PackedFolder, packFolder, upload, uploadLimit, workdirFlag } from "../workdir.ts"
import { findNamespace } from "./apply.ts"
import { type ArraySettings, submitArray, toArrayBody, wholeNumber } from "./array.ts"
import { attach, cancelOption, type FollowFlags, runAttached, timestampsOption } from "./attach.ts"

interface FileFlags extends JobFlags {
  file?: string
  envFile?: string[]
  workdir?: string
}

interface ArrayFlags {
  array?: string
  parallelism?: string
  maxFailed?: string
}

/** Options of commands that submit. */
interface SubmitFlags extends FollowFlags {
  detach?: boolean
  yes?: boolean
  dryRun?: boolean
  idempotencyKey?: string
}

type RunFlags = FileFlags & ArrayFlags & SubmitFlags

const CONTAINER_FLAGS = "Flags of the container come after --, as in -- --epochs 10."

/** `run`, `plan` and `rerun`: commands that submit a job, or show its plan. */
export function addRunCommands(commands: Commands, program: Command): void {
  addRun(commands, program)
  commands.add<FileFlags & ArrayFlags>(program, {
    usage: "plan [args...]",
    summary: "Show the machines that a job or an array would get, and their prices.",
    more: "Creates nothing. Exit code 3: nothing fits. 4: the job would wait.",
    usageHint: CONTAINER_FLAGS,
    examples: [
      ["berth plan --image alpine:3.22 --gpu L4", "prices of machines with an L4"],
      ["berth plan -f job.yaml", "the plan of a file"],
      ["berth plan --image acme/train:3 --gpu L4 --array 30", "the price of all 30, and of each"],
      ["berth plan --image acme/train:3 --after prepare", "what it would wait for, and get after that"],
    ],
    options: [fileOption(), ...jobOptions(), ...arrayOptions()],
    run: async (call) => {
      const { job } = await jobFrom(call)
      return showPlan(call, { job, array: arrayIn(call.options, job) })
    },
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
      [
        "berth run --image acme/train:3 --after prepare,array/sweep:ended",
        "when a job has succeeded and an array has ended",
      ],
    ],
    options: [fileOption(), ...jobOptions(), ...submitOptions(), ...arrayOptions()],
    run: (call) =>
      submitPrepared(call, async () => {
        const prepared = await jobFrom(call)
        return { ...prepared, array: arrayIn(call.options, prepared.job) }
      }),
  })
}

function addRerun(commands: Commands, program: Command): void {
  commands.add<FileFlags & SubmitFlags & { set?: string[] }>(program, {
    usage: "rerun <job> [args...]",
    summary: "Submit a new job like an earlier one.",
    more:
      "The flags are those of berth run, and each replaces a part of the earlier job. The arguments after -- replace those\n" +
      "of its container. Only --after lets it wait for other jobs. Exit codes are those of berth run.",
    usageExit: EXIT.berth,
    usageHint: CONTAINER_FLAGS,
    examples: [
      ["berth rerun train", "the same job again, under a new name"],
      [
        "berth rerun train --gpu H100 --name train-2 -- --epochs 20",
        "with another GPU and other arguments, under this name",
      ],
      ["berth rerun train --set maxRetries=2 --yes --detach", "with a field of the body, without a question"],
    ],
    options: [
      ...jobOptions(),
      new Option("--set <field=value>", "change a field of the body; may be repeated").argParser(collectOption),
      ...submitOptions(),
    ],
    run: (call) =>
      submitPrepared(call, async () => {
        const [name = "", ...args] = call.args
        const { name: _name, ...base } = submissionLike(await readJob(call.client(), name))
        const { job, packed } = await jobFrom(call, { base, args })
        return { job: (call.options.set ?? []).reduce(withSetting, job), packed }
      }),
  })
}

function arrayOptions(): Option[] {
  const group = "Array options:"
  return [
    new Option("--array <shape>", "number of jobs, or values of variables such as 'lr=0.1,0.01 seed=1..50'"),
    new Option("--parallelism <number>", "maximum number of unfinished jobs of the array; default: 10"),
    new Option("--max-failed <number>", "failed jobs after which the array stops creating jobs; default: no limit"),
  ].map((option) => option.helpGroup(group))
}

/** Options of commands that submit, besides those of the job. */
function submitOptions(): Option[] {
  return [
    new Option("-d, --detach", "only submit the job, and print its name"),
    new Option("-y, --yes", "answer every question with yes"),
    cancelOption(),
    timestampsOption(),
    new Option("--dry-run", "only show the plan, as berth plan does"),
    new Option("--idempotency-key <key>", "submit once: the same key and job again follow what was submitted first"),
  ]
}

function fileOption(): Option {
  return new Option(
    "-f, --file <file>",
    "job as YAML or JSON: a body of the REST API or a Kubernetes object; - is standard input",
  )
}

/** Job to submit, and the folder that it needs. */
interface PreparedJob {
  job: JobSubmission
  packed?: PackedFolder | undefined
}

/** Job to submit, or the array of it. */
interface Prepared extends PreparedJob {
  array?: ArraySettings | undefined
}

/** Returns the job that the flags describe, with the file or the earlier job that they change. */
async function jobFrom(
  call: Call<FileFlags>,
  { base: earlier, args = call.args }: { base?: JobSubmission; args?: readonly string[] } = {},
): Promise<PreparedJob> {
  const { file, envFile = [], ...flags } = call.options
  const read = envFile.map((path) => parseEnvFile(path, bytesOf(path), call.environment))
  const fileEnvironment = Object.fromEntries(read.flatMap(Object.entries<string>))
  const base = file === undefined ? earlier : await jobInFile(call, file)
  // Wrong flags are found before a folder is packed.
  const job = buildSubmission({ flags, args, base, fileEnvironment, environment: call.environment })
  if (flags.workdir === undefined) return { job }
  const { folder, path } = workdirFlag(flags.workdir)
  const without = [configFolder(call.environment), stateFolder(call.environment)]
  const packed = await packFolder(folder, { bytes: await uploadLimit(call.client()), without })
  const workdir = { ...job.workdir, sha256: packed.sha256, ...defined({ path }) }
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
  const documents = (await Promise.all(sources.map(readDocuments))).flat()
  const [first] = documents
  if (documents.length !== 1 || first?.kind !== "job")
    throw usageError(`${file} must have exactly one job. berth apply takes several documents.`)
  await requireNamespace(documents, () => findNamespace(call.client()))
  return first.body
}

function planFor(client: BerthClient, { job, array }: Prepared): Promise<Plan> {
  const params = { query: { dry_run: true } }
  if (array === undefined) return readBody(client.api.POST("/jobs", { params, body: job })) as Promise<JobPlan>
  return readBody(client.api.POST("/arrays", { params, body: toArrayBody(job, array) as never })) as Promise<ArrayPlan>
}

/** Prints a plan, and returns its exit code. */
async function showPlan(call: Call<unknown>, prepared: Prepared): Promise<number> {
  const plan = await planFor(call.client(), prepared)
  if (call.isForProgram) await call.printValue(plan)
  else await call.terminal.line(planText(plan, prepared.job, call.terminal, call.format === "wide"))
  return exitOfPlan(plan)
}

/** Submits what was prepared, or shows its plan with --dry-run. The exit code is the container's if it is followed. */
function submitPrepared(call: Call<SubmitFlags>, prepare: () => Promise<Prepared>): Promise<number> {
  const { detach, dryRun } = call.options
  if (dryRun === true) return prepare().then((prepared) => showPlan(call, prepared))
  const submit = async () => submitAndAttach(call, call.client(), await prepare())
  return detach === true ? submit() : runAttached(call, submit)
}

/** Returns the array that the flags describe; undefined without --array. @throws Failure */
function arrayIn(
  { array, parallelism, maxFailed, idempotencyKey }: ArrayFlags & SubmitFlags,
  job: JobSubmission,
): ArraySettings | undefined {
  if (array === undefined) {
    if (parallelism === undefined && maxFailed === undefined) return undefined
    throw usageError("--parallelism and --max-failed need --array.")
  }
  const name = job.name ?? arrayName(job.namePrefix ?? "array", idempotencyKey)
  return {
    ...{ name, ...parseArrayShape(array) },
    ...(parallelism !== undefined && { parallelism: wholeNumber("--parallelism", parallelism) }),
    ...(maxFailed !== undefined && { max_failed: wholeNumber("--max-failed", maxFailed) }),
  }
}

/** Shows the plan, asks, submits, and follows the job or the array unless it is detached. */
async function submitAndAttach(call: Call<SubmitFlags>, client: BerthClient, prepared: Prepared): Promise<number> {
  const { terminal } = call
  const { detach, idempotencyKey } = call.options
  const { job, packed, array } = prepared
  const plan = await planFor(client, prepared).catch((error: unknown) => {
    // A repetition: the name is that of the first submission, or the request below has the conflict again.
    if (idempotencyKey !== undefined && error instanceof ApiError && error.status === 409) return undefined
    throw error
  })
  if (plan !== undefined) await agreedTo(call, plan, job)
  if (packed !== undefined) terminal.progress(await uploadFolder(client, packed))
  if (array !== undefined) return submitArray(call, client, toArrayBody(job, array))
  const params = { header: defined({ "Idempotency-Key": idempotencyKey }) }
  const created = await readBody(client.api.POST("/jobs", { params, body: job }))
  const { name } = created as { name: string }
  call.remember({ kind: "job", name })
  if (detach !== true) return attach(call, client, name)
  terminal.progress(`Submitted ${name}${priceText(plan)}. Follow it: berth attach ${name}`)
  if (call.isForProgram) await call.printValue(await readJob(client, name))
  else await terminal.line(name)
  return 0
}

function priceText(plan: Plan | undefined): string {
  const estimated_cost = plan?.estimated_cost ?? null
  return estimated_cost === null ? "" : `, for about ${usdText(estimated_cost)}`
}

/** Shows a plan, and asks. A script that neither asks nor follows only gets the reason for a wait. @throws Failure for a no */
async function agreedTo(call: Call<SubmitFlags>, plan: Plan, job: JobSubmission): Promise<void> {
  const { terminal } = call
  const { yes, detach } = call.options
  if (jobPlanOf(plan).verdict === "noOffer") {
    terminal.warn(planText(plan, job, terminal))
    const hint = jobPlanOf(plan).reason === "NoOffer" ? " `berth offers` lists the machines that there are." : ""
    throw new Failure(EXIT.nothingFits, `Nothing was submitted.${hint}`)
  }
  const short = [verdictText(plan, terminal), warningText(plan, terminal)].filter((part) => part !== "").join("\n")
  const text = yes === true && detach === true ? short : planText(plan, job, terminal)
  if (text !== "") terminal.progress(text)
  if (yes !== true && !(await terminal.confirm(`  ${planQuestion(plan)}`, "--yes")))
    throw new Failure(EXIT.failed, "Nothing was submitted.")
}

/** Uploads the folder if it has changed. Returns the report. */
async function uploadFolder(client: BerthClient, packed: PackedFolder): Promise<string> {
  const size = `${packed.entries} files, ${(packed.archive.byteLength / 1024 ** 2).toFixed(1)} MiB`
  const isSent = await upload(client, packed)
  return isSent
    ? `Uploaded the workdir (${size}).`
    : `The project has this workdir already (${size}): nothing was uploaded.`
}
