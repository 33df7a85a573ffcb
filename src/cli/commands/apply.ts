import { isDeepStrictEqual } from "node:util"
import { type Command, Option } from "commander"
import { type BerthClient, fetched, type JobPlan, type JobSubmission, type Schemas } from "../../client/client.ts"
import { ApiError } from "../../client/errors.ts"
import { readJob } from "../../client/jobs.ts"
import { type Call, type Commands, repeated } from "../command.ts"
import {
  type ConnectionCreation,
  type Document,
  differences,
  documentsOf,
  isSame,
  requireNamespace,
  sourcesAt,
} from "../documents.ts"
import { EXIT, Failure, failureOf } from "../exit.ts"
import { exitOfPlan, planText } from "../plan.ts"

/** Effect on the object of a document. */
type Outcome = "created" | "configured" | "unchanged"

interface ApplyFlags {
  file: string[]
  dryRun?: boolean
  yes?: boolean
}

/** `apply`: makes the objects of files exist. */
export function addApplyCommand(commands: Commands, program: Command): void {
  commands.add<ApplyFlags>(program, {
    usage: "apply",
    summary: "Create or change jobs, cronjobs, arrays, connections and webhooks from files.",
    more:
      "Documents are bodies of the REST API or Kubernetes objects, in YAML or JSON. Shows the plans of new jobs and arrays\n" +
      "first, and asks. A job can't be changed: one that differs ends with exit code 5. The rest is applied nevertheless.",
    examples: [
      ["berth apply -f job.yaml", "one file"],
      ["berth apply -f manifests/ --yes", "each file of a folder, without a question"],
      ["cat job.yaml | berth apply -f - --dry-run", "only the plan"],
    ],
    options: [
      new Option("-f, --file <file>", "file or folder; - is standard input; may be repeated")
        .argParser(repeated)
        .makeOptionMandatory(),
      new Option("-y, --yes", "create jobs and arrays without a question"),
      new Option("--dry-run", "show the plans of jobs, and create or change nothing"),
    ],
    run: async (call) => {
      const sources = []
      for (const file of call.options.file)
        sources.push(
          ...(file === "-"
            ? [{ name: "standard input", text: await call.terminal.input("documents") }]
            : sourcesAt(file)),
        )
      // All are read before the first is applied: an error in the last file changes nothing.
      const documents = (await Promise.all(sources.map(documentsOf))).flat()
      const client = call.client()
      await requireNamespace(documents, () => namespaceOf(client))
      if (call.options.dryRun === true) return dryRun(call, client, documents)
      await confirmBilled(call, client, documents)
      let code = 0
      for (const document of documents) code = (await applied(call, client, document)) || code
      return code
    },
  })
}

/** Shows the plans of the jobs and arrays that are new, and asks. @throws Failure if the answer is no */
async function confirmBilled(call: Call<ApplyFlags>, client: BerthClient, documents: readonly Document[]) {
  if (call.options.yes === true) return
  const { terminal } = call
  const billed: string[] = []
  for (const document of documents) {
    const planned = await planOf(client, document)
    if (planned === undefined) continue
    billed.push(labelOf(document))
    terminal.progress(`${planned.title}:\n${planText(planned.plan, planned.job, terminal)}`)
  }
  if (billed.length === 0) return
  const what = billed.length === 1 ? billed[0] : `these ${billed.length}`
  if (!(await terminal.confirm(`  Create ${what}?`, "--yes"))) throw new Failure(EXIT.failed, "Nothing was applied.")
}

interface Planned {
  plan: JobPlan
  job: JobSubmission
  title: string
}

/** Returns the plan of a new job, or of each job of a new array. Undefined for all else, and for what is rejected. */
async function planOf(client: BerthClient, document: Document): Promise<Planned | undefined> {
  try {
    if (document.kind === "job")
      return { plan: await planFor(client, document.body), job: document.body, title: labelOf(document) }
    if (document.kind !== "array" || (await arrayRecord(client, document.body.name)) !== undefined) return undefined
    const job = jobOfArray(document.body)
    return { plan: await planFor(client, job), job, title: `${labelOf(document)}, each of its jobs` }
  } catch (error) {
    // The application of the document reports the error.
    if (error instanceof ApiError) return undefined
    throw error
  }
}

function planFor(client: BerthClient, body: JobSubmission): Promise<JobPlan> {
  return fetched(client.api.POST("/jobs", { params: { query: { dry_run: true } }, body })) as Promise<JobPlan>
}

/** Returns the array's record; undefined if there is none. */
async function arrayRecord(client: BerthClient, name: string): Promise<Schemas["ArrayRecord"] | undefined> {
  try {
    return await fetched(client.api.GET("/arrays/{id}", { params: { path: { id: name } } }))
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return undefined
    throw error
  }
}

/** Returns the job that an array's jobs are like. */
function jobOfArray({ job_definition }: Schemas["ArrayCreation"]): JobSubmission {
  const { cloud } = job_definition
  return { ...job_definition, cloud: typeof cloud === "string" ? [cloud] : cloud } as JobSubmission
}

function labelOf({ kind, body }: Document): string {
  return `${kind}/${body.name ?? "?"}`
}

/** Returns the namespace of the project of a client. */
export async function namespaceOf(client: BerthClient): Promise<string> {
  return (await fetched(client.api.GET("/whoami"))).namespace
}

async function applied(call: Call<unknown>, client: BerthClient, document: Document): Promise<number> {
  try {
    const { name, outcome } = await apply(client, document)
    await call.terminal.line(call.format === "name" ? name : `${document.kind}/${name} ${outcome}`)
    if (document.kind === "webhook" && outcome === "created" && document.body.signing_secret == null)
      call.terminal.progress(`berth webhook rotate ${name} prints a signing secret for the receiver.`)
    return 0
  } catch (error) {
    return reported(call, document, error)
  }
}

/** Reports the error of one document, and returns its exit code: the others are applied nevertheless. */
function reported(call: Call<unknown>, document: Document, error: unknown): number {
  if (!(error instanceof ApiError || error instanceof Failure)) throw error
  const failure = failureOf(error, document.inFile)
  call.terminal.warn(`${labelOf(document)}: ${failure.message}`)
  return failure.code
}

function apply(client: BerthClient, { kind, body }: Document): Promise<{ name: string; outcome: Outcome }> {
  switch (kind) {
    case "job":
      return applyJob(client, body)
    case "array":
      return applyArray(client, body)
    case "cronjob":
      return applyCronJob(client, body)
    case "connection":
      return applyConnection(client, body)
    case "webhook":
      return applyWebhook(client, body)
  }
}

async function applyJob(client: BerthClient, body: JobSubmission) {
  try {
    const created = (await fetched(client.api.POST("/jobs", { body }))) as { name: string }
    return { name: created.name, outcome: "created" as const }
  } catch (error) {
    return unchangedJob(client, body, error)
  }
}

/** Returns the outcome for a job that exists with the values of the body. @throws the error, or Failure if they differ */
async function unchangedJob(client: BerthClient, body: JobSubmission, error: unknown) {
  if (!isTaken(error) || body.name == null) throw error
  const fields = differences(body, await readJob(client, body.name))
  if (fields.length === 0) return { name: body.name, outcome: "unchanged" as const }
  throw new Failure(
    EXIT.conflict,
    `the job exists with other values of ${fields.join(", ")}, and a job can't be changed. Use another name, or berth rerun ${body.name}.`,
  )
}

async function applyCronJob(client: BerthClient, body: Schemas["CronJobCreation"]) {
  const { name } = body
  try {
    await fetched(client.api.POST("/cronjobs", { body: body as never }))
    return { name, outcome: "created" as const }
  } catch (error) {
    if (!isTaken(error)) throw error
  }
  const { name: _name, project_id: _project, organization_id: _organization, ...change } = body
  const path = { params: { path: { name } } }
  const before = await fetched(client.api.GET("/cronjobs/{name}", path))
  const after = await fetched(client.api.PATCH("/cronjobs/{name}", { ...path, body: change as never }))
  return { name, outcome: outcomeOf(before, after) }
}

/** Fields of an array that can change. */
const ARRAY_CHANGES = [
  "parallelism",
  "max_failed",
  "successful_jobs_history_limit",
  "failed_jobs_history_limit",
  "ttl_seconds_after_finished",
] as const

async function applyArray(client: BerthClient, body: Schemas["ArrayCreation"]) {
  const { name } = body
  try {
    await fetched(client.api.POST("/arrays", { body: body as never }))
    return { name, outcome: "created" as const }
  } catch (error) {
    if (!isTaken(error)) throw error
  }
  const path = { params: { path: { id: name } } }
  const before = await fetched(client.api.GET("/arrays/{id}", path))
  requireSameJobs(body, before)
  const change = Object.fromEntries(
    ARRAY_CHANGES.flatMap((field) => (body[field] == null ? [] : [[field, body[field]]])),
  )
  const after = await fetched(client.api.PATCH("/arrays/{id}", { ...path, body: change as never }))
  return { name, outcome: outcomeOf(settingsOf(before), settingsOf(after)) }
}

/** @throws Failure if an array has other values of fields that can't change */
function requireSameJobs(body: Schemas["ArrayCreation"], before: Schemas["ArrayRecord"]): void {
  const fields = (["size", "matrix"] as const).filter(
    (field) => body[field] != null && !isDeepStrictEqual(body[field], before[field]),
  )
  const definition = Object.entries(body.job_definition).filter(
    ([field, value]) => value !== null && !isSame(value, (before.job_definition as Record<string, unknown>)[field]),
  )
  const differing = [...fields, ...definition.map(([field]) => `job_definition.${field}`)]
  if (differing.length === 0) return
  const message = `the array exists with other values of ${differing.join(", ")}, which can't be changed. Use another name.`
  throw new Failure(EXIT.conflict, message)
}

/** Returns the fields that a PATCH sets. The others change while the array runs. */
function settingsOf(array: Schemas["ArrayRecord"]): object {
  return Object.fromEntries(ARRAY_CHANGES.map((field) => [field, array[field]]))
}

async function applyConnection(client: BerthClient, body: ConnectionCreation) {
  const { name } = body
  try {
    await fetched(client.api.POST("/connections", { body: body as never }))
    return { name, outcome: "created" as const }
  } catch (error) {
    if (!isTaken(error)) throw error
  }
  const { name: _name, project_id: _project, organization_id: _organization, ...change } = body
  const path = { params: { path: { name } } }
  const before = await fetched(client.api.GET("/connections/{name}", path))
  const after = await fetched(client.api.PATCH("/connections/{name}", { ...path, body: change as never }))
  return { name, outcome: outcomeOf(before, after) }
}

async function applyWebhook(client: BerthClient, body: Schemas["WebhookCreation"]) {
  const { name } = body
  try {
    // The response has the signing secret. It is not printed: the output may be a log.
    await fetched(client.api.POST("/webhooks", { body }))
    return { name, outcome: "created" as const }
  } catch (error) {
    if (!isTaken(error)) throw error
  }
  const { signing_secret: _secret, name: _name, project_id: _project, organization_id: _organization, ...change } = body
  const path = { params: { path: { name } } }
  const before = await fetched(client.api.GET("/webhooks/{name}", path))
  const after = await fetched(client.api.PATCH("/webhooks/{name}", { ...path, body: change }))
  return { name, outcome: outcomeOf(definitionOf(before), definitionOf(after)) }
}

/** Returns the fields that a PATCH sets, and its time, because an address may be secret. */
function definitionOf({ url, events, labels, tags, include, is_active, updated_at }: Schemas["WebhookRecord"]): object {
  return { url, events, labels, tags, include, is_active, changed_at: updated_at }
}

/** Compares two records of an object, but not the fields that the server sets. */
function outcomeOf(before: object, after: object): Outcome {
  const set = (record: object) => {
    const {
      updated_at: _updated,
      last_triggered_at: _triggered,
      capabilities: _capabilities,
      identity: _identity,
      ...rest
    } = record as Record<string, unknown>
    return JSON.stringify(rest)
  }
  return set(before) === set(after) ? "unchanged" : "configured"
}

function isTaken(error: unknown): boolean {
  return error instanceof ApiError && error.status === 409 && error.type === "name-taken"
}

/** Shows what `apply` would do. Continues after an error, and returns its exit code. */
async function dryRun(call: Call<unknown>, client: BerthClient, documents: readonly Document[]): Promise<number> {
  const plans: JobPlan[] = []
  let code = 0
  for (const document of documents) {
    try {
      const plan = await dryRunOf(call, client, document)
      if (plan !== undefined) plans.push(plan)
    } catch (error) {
      code = reported(call, document, error)
    }
  }
  if (call.isForProgram) await call.printValue(plans)
  return code || Math.max(0, ...plans.map(exitOfPlan))
}

async function dryRunOf(call: Call<unknown>, client: BerthClient, document: Document): Promise<JobPlan | undefined> {
  const { kind, body } = document
  const result = async (text: string) => {
    if (!call.isForProgram) await call.terminal.line(text)
  }
  if (kind === "array") {
    const before = await arrayRecord(client, body.name)
    if (before !== undefined) {
      requireSameJobs(body, before)
      const isSet = ARRAY_CHANGES.every((field) => body[field] == null || body[field] === before[field])
      await result(`${labelOf(document)} ${isSet ? "unchanged" : "configured"}`)
      return undefined
    }
  }
  if (kind !== "job" && kind !== "array") {
    call.terminal.progress(`${labelOf(document)}: only jobs and arrays have a plan.`)
    return undefined
  }
  const job = kind === "job" ? body : jobOfArray(body)
  try {
    const plan = await planFor(client, job)
    const title = kind === "job" ? `job/${plan.name}` : `${labelOf(document)}, each of its jobs`
    await result(`${title}:\n${planText(plan, job, call.terminal)}`)
    return plan
  } catch (error) {
    const { name, outcome } = await unchangedJob(client, job, error)
    await result(`job/${name} ${outcome}`)
    return undefined
  }
}
