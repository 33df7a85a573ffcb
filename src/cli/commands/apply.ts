import { isDeepStrictEqual } from "node:util"
import { type Command, Option } from "commander"
import {
  type ArrayPlan,
  type BerthClient,
  type JobPlan,
  type JobSubmission,
  readBody,
  type Schemas,
} from "../../client/client.ts"
import { ApiError } from "../../client/errors.ts"
import { readJob } from "../../client/jobs.ts"
import { type Call, type Commands, collectOption } from "../command.ts"
import {
  type ConnectionCreation,
  type Document,
  differences,
  isCovered,
  isSame,
  readDocuments,
  requireNamespace,
  sourcesAt,
} from "../documents.ts"
import { EXIT, Failure, toFailure } from "../exit.ts"
import { exitOfPlan, type Plan, planText } from "../plan.ts"

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
        .argParser(collectOption)
        .makeOptionMandatory(),
      new Option("-y, --yes", "create jobs and arrays without a question"),
      new Option("--dry-run", "show the plans and the changes, and create or change nothing"),
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
      const documents = (await Promise.all(sources.map(readDocuments))).flat()
      const client = call.client()
      await requireNamespace(documents, () => findNamespace(client))
      if (call.options.dryRun === true) return dryRun(call, client, documents)
      await confirmBilled(call, client, documents)
      let code = 0
      for (const document of documents) code = (await applyOne(call, client, document)) || code
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
    terminal.progress(`${labelOf(document)}:\n${planText(planned.plan, planned.job, terminal)}`)
  }
  if (billed.length === 0) return
  const what = billed.length === 1 ? billed[0] : `these ${billed.length}`
  if (!(await terminal.confirm(`  Create ${what}?`, "--yes"))) throw new Failure(EXIT.failed, "Nothing was applied.")
}

interface Planned {
  plan: Plan
  /** Job, or the definition of an array's jobs. */
  job: JobSubmission
}

/** Returns the plan of a new job or array. Undefined for all else, and for what is rejected. */
async function planOf(client: BerthClient, document: Document): Promise<Planned | undefined> {
  try {
    return await plannedOf(client, document)
  } catch (error) {
    // The application of the document reports the error.
    if (error instanceof ApiError) return undefined
    throw error
  }
}

/** Returns the plan of a job or of a new array. Undefined for all else. @throws ApiError for what is rejected */
async function plannedOf(client: BerthClient, { kind, body }: Document): Promise<Planned | undefined> {
  const params = { query: { dry_run: true } }
  if (kind === "job")
    return { plan: (await readBody(client.api.POST("/jobs", { params, body }))) as JobPlan, job: body }
  if (kind !== "array" || (await arrayRecord(client, body.name)) !== undefined) return undefined
  const plan = await readBody(client.api.POST("/arrays", { params, body: body as never }))
  return { plan: plan as ArrayPlan, job: body.job_definition as JobSubmission }
}

/** Returns the array's record; undefined if there is none. */
function arrayRecord(client: BerthClient, id: string): Promise<Schemas["ArrayRecord"] | undefined> {
  return recordOf(client.api.GET("/arrays/{id}", { params: { path: { id } } }))
}

/** Returns the record that a request reads; undefined if there is none. */
async function recordOf<Data>(request: Parameters<typeof readBody<Data>>[0]): Promise<Data | undefined> {
  try {
    return await readBody(request)
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return undefined
    throw error
  }
}

function labelOf({ kind, body }: Document): string {
  return `${kind}/${body.name ?? "?"}`
}

/** Returns the namespace of the project of a client. */
export async function findNamespace(client: BerthClient): Promise<string> {
  return (await readBody(client.api.GET("/whoami"))).namespace
}

async function applyOne(call: Call<unknown>, client: BerthClient, document: Document): Promise<number> {
  try {
    const { name, outcome } = await apply(client, document)
    await call.terminal.line(call.format === "name" ? name : `${document.kind}/${name} ${outcome}`)
    if (document.kind === "webhook" && outcome === "created" && document.body.signing_secret == null)
      call.terminal.progress(`berth webhook rotate ${name} prints a signing secret for the receiver.`)
    return 0
  } catch (error) {
    return reportFailure(call, document, error)
  }
}

/** Reports the error of one document, and returns its exit code: the others are applied nevertheless. */
function reportFailure(call: Call<unknown>, document: Document, error: unknown): number {
  if (!(error instanceof ApiError || error instanceof Failure)) throw error
  const failure = toFailure(error, document.inFile)
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
    const created = (await readBody(client.api.POST("/jobs", { body }))) as { name: string }
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
    await readBody(client.api.POST("/cronjobs", { body: body as never }))
    return { name, outcome: "created" as const }
  } catch (error) {
    if (!isTaken(error)) throw error
  }
  const { name: _name, project_id: _project, organization_id: _organization, ...change } = body
  const path = { params: { path: { name } } }
  const before = await readBody(client.api.GET("/cronjobs/{name}", path))
  const after = await readBody(client.api.PATCH("/cronjobs/{name}", { ...path, body: change as never }))
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
    await readBody(client.api.POST("/arrays", { body: body as never }))
    return { name, outcome: "created" as const }
  } catch (error) {
    if (!isTaken(error)) throw error
  }
  const path = { params: { path: { id: name } } }
  const before = await readBody(client.api.GET("/arrays/{id}", path))
  requireSameJobs(body, before)
  const change = Object.fromEntries(
    ARRAY_CHANGES.flatMap((field) => (body[field] == null ? [] : [[field, body[field]]])),
  )
  const after = await readBody(client.api.PATCH("/arrays/{id}", { ...path, body: change as never }))
  return { name, outcome: outcomeOf(settingsOf(before), settingsOf(after)) }
}

/** @throws Failure if an array has other values of fields that can't change */
function requireSameJobs(body: Schemas["ArrayCreation"], before: Schemas["ArrayRecord"]): void {
  const isOther = body.after != null && !isSame(body.after, before.after)
  const fields = (["size", "matrix"] as const).filter(
    (field) => body[field] != null && !isDeepStrictEqual(body[field], before[field]),
  )
  const definition = Object.entries(body.job_definition).filter(
    ([field, value]) => value !== null && !isSame(value, (before.job_definition as Record<string, unknown>)[field]),
  )
  const differing = [
    ...fields,
    ...(isOther ? ["after"] : []),
    ...definition.map(([field]) => `job_definition.${field}`),
  ]
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
    await readBody(client.api.POST("/connections", { body: body as never }))
    return { name, outcome: "created" as const }
  } catch (error) {
    if (!isTaken(error)) throw error
  }
  const { name: _name, project_id: _project, organization_id: _organization, ...change } = body
  const path = { params: { path: { name } } }
  const before = await readBody(client.api.GET("/connections/{name}", path))
  await readBody(client.api.PATCH("/connections/{name}", { ...path, body: change as never }))
  // The response of a change has no secret to compare.
  return { name, outcome: comparison(body, before) }
}

async function applyWebhook(client: BerthClient, body: Schemas["WebhookCreation"]) {
  const { name } = body
  try {
    // The response has the signing secret. It is not printed: the output may be a log.
    await readBody(client.api.POST("/webhooks", { body }))
    return { name, outcome: "created" as const }
  } catch (error) {
    if (!isTaken(error)) throw error
  }
  const { signing_secret: _secret, name: _name, project_id: _project, organization_id: _organization, ...change } = body
  const path = { params: { path: { name } } }
  const before = await readBody(client.api.GET("/webhooks/{name}", path))
  const after = await readBody(client.api.PATCH("/webhooks/{name}", { ...path, body: change }))
  return { name, outcome: outcomeOf(definitionOf(before), definitionOf(after)) }
}

/** Returns the fields that a PATCH sets, and its time, because an address may be secret. */
function definitionOf({ url, events, labels, tags, include, is_active, updated_at }: Schemas["WebhookRecord"]): object {
  return { url, events, labels, tags, include, is_active, changed_at: updated_at }
}

/** Compares two records of an object, but not the fields that the server sets. */
function outcomeOf(before: object, after: object): Outcome {
  const set = (record: object) => {
    const { updated_at: _updated, last_triggered_at: _triggered, ...rest } = record as Record<string, unknown>
    return JSON.stringify(rest)
  }
  return set(before) === set(after) ? "unchanged" : "configured"
}

function isTaken(error: unknown): boolean {
  return error instanceof ApiError && error.status === 409 && error.type === "name-taken"
}

/** Shows what `apply` would do. Continues after an error, and returns its exit code. */
async function dryRun(call: Call<unknown>, client: BerthClient, documents: readonly Document[]): Promise<number> {
  const plans: Plan[] = []
  let code = 0
  for (const document of documents) {
    try {
      const plan = await dryRunOf(call, client, document)
      if (plan !== undefined) plans.push(plan)
    } catch (error) {
      code = reportFailure(call, document, error)
    }
  }
  if (call.isForProgram) await call.printValue(plans)
  return code || Math.max(0, ...plans.map(exitOfPlan))
}

async function dryRunOf(call: Call<unknown>, client: BerthClient, document: Document): Promise<Plan | undefined> {
  const result = async (text: string) => {
    if (!call.isForProgram) await call.terminal.line(text)
  }
  try {
    const planned = await plannedOf(client, document)
    if (planned !== undefined) {
      const { plan, job } = planned
      const name = "job" in plan ? labelOf(document) : `job/${plan.name}`
      await result(`${name}:\n${planText(plan, job, call.terminal)}`)
      return plan
    }
    await result(`${labelOf(document)} ${await expectedOutcome(client, document)}`)
  } catch (error) {
    if (document.kind !== "job") throw error
    const { name, outcome } = await unchangedJob(client, document.body, error)
    await result(`job/${name} ${outcome}`)
  }
  return undefined
}

/** Returns what `apply` would do to an object that has no plan, as far as its record shows it. */
async function expectedOutcome(client: BerthClient, { kind, body }: Document): Promise<string> {
  const name = body.name ?? ""
  const path = { params: { path: { name } } }
  switch (kind) {
    case "job":
      return "created"
    case "array": {
      const before = await arrayRecord(client, body.name)
      if (before === undefined) return "created"
      requireSameJobs(body, before)
      const isSet = ARRAY_CHANGES.every((field) => body[field] == null || body[field] === before[field])
      return isSet ? "unchanged" : "configured"
    }
    case "cronjob":
      return comparison(body, await recordOf(client.api.GET("/cronjobs/{name}", path)))
    case "connection":
      return comparison(body, await recordOf(client.api.GET("/connections/{name}", path)))
    case "webhook": {
      const { signing_secret: _secret, ...fields } = body
      const record = await recordOf(client.api.GET("/webhooks/{name}", path))
      if (record?.url !== null || body.url == null) return comparison(fields, record)
      return "exists: its address is secret, so it is not known if it changes"
    }
  }
}

function comparison(body: object, record: object | undefined): Outcome {
  if (record === undefined) return "created"
  const { project_id: _project, organization_id: _organization, ...fields } = body as Record<string, unknown>
  const isSet = Object.entries(fields).every(([field, value]) => {
    const recorded = (record as Record<string, unknown>)[field]
    return value == null || (isSame(value, recorded) && (field !== "job_definition" || isCovered(recorded, value)))
  })
  return isSet ? "unchanged" : "configured"
}
