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
import { EXIT, Failure, failureOf, usageError } from "../exit.ts"
import { exitOfPlan, planText } from "../plan.ts"

/** Effect on the object of a document. */
type Outcome = "created" | "configured" | "unchanged"

/** `apply`: makes the objects of files exist. */
export function addApplyCommand(commands: Commands, program: Command): void {
  commands.add<{ file: string[]; dryRun?: boolean }>(program, {
    usage: "apply",
    summary: "Create or change jobs, cronjobs, arrays, connections and webhooks from files.",
    more:
      "Documents are bodies of the REST API or Kubernetes objects, in YAML or JSON. A job can't be changed: one that\n" +
      "differs ends with exit code 5. The rest is applied nevertheless.",
    examples: [
      ["berth apply -f job.yaml", "one file"],
      ["berth apply -f manifests/", "each file of a folder"],
      ["cat job.yaml | berth apply -f - --dry-run", "only the plan"],
    ],
    options: [
      new Option("-f, --file <file>", "file or folder; - is standard input; may be repeated")
        .argParser(repeated)
        .makeOptionMandatory(),
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
      const documents = sources.flatMap(documentsOf)
      const client = call.client()
      await requireNamespace(documents, () => namespaceOf(client))
      if (call.options.dryRun === true) return dryRun(call, client, documents)
      let code = 0
      for (const document of documents) code = (await applied(call, client, document)) || code
      return code
    },
  })
}

/** Returns the namespace of the project of a client. */
export async function namespaceOf(client: BerthClient): Promise<string> {
  return (await fetched(client.api.GET("/whoami"))).namespace
}

async function applied(call: Call<unknown>, client: BerthClient, document: Document): Promise<number> {
  const label = `${document.kind}/${document.body.name ?? "?"}`
  try {
    const { name, outcome } = await apply(client, document)
    await call.terminal.line(call.format === "name" ? name : `${document.kind}/${name} ${outcome}`)
    if (document.kind === "webhook" && outcome === "created" && document.body.signing_secret == null)
      call.terminal.progress(`berth webhook rotate ${name} prints a signing secret for the receiver.`)
    return 0
  } catch (error) {
    if (!(error instanceof ApiError || error instanceof Failure)) throw error
    const failure = failureOf(error)
    call.terminal.warn(`${label}: ${failure.message}`)
    return failure.code
  }
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
    if (!isTaken(error) || body.name == null) throw error
    const fields = differences(body, await readJob(client, body.name))
    if (fields.length === 0) return { name: body.name, outcome: "unchanged" as const }
    throw new Failure(
      EXIT.conflict,
      `the job exists with other values of ${fields.join(", ")}, and a job can't be changed. Use another name, or berth rerun ${body.name}.`,
    )
  }
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
  const fields = (["size", "matrix"] as const).filter(
    (field) => body[field] != null && !isDeepStrictEqual(body[field], before[field]),
  )
  const definition = Object.entries(body.job_definition).filter(
    ([field, value]) => value !== null && !isSame(value, (before.job_definition as Record<string, unknown>)[field]),
  )
  const differing = [...fields, ...definition.map(([field]) => `job_definition.${field}`)]
  if (differing.length > 0) {
    const message = `the array exists with other values of ${differing.join(", ")}, which can't be changed. Use another name.`
    throw new Failure(EXIT.conflict, message)
  }
  const change = Object.fromEntries(
    ARRAY_CHANGES.flatMap((field) => (body[field] == null ? [] : [[field, body[field]]])),
  )
  const after = await fetched(client.api.PATCH("/arrays/{id}", { ...path, body: change as never }))
  return { name, outcome: outcomeOf(settingsOf(before), settingsOf(after)) }
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

async function dryRun(call: Call<unknown>, client: BerthClient, documents: readonly Document[]): Promise<number> {
  const plans: JobPlan[] = []
  for (const { kind, body } of documents) {
    if (kind !== "job") {
      call.terminal.progress(`${kind}/${body.name}: only jobs have a plan.`)
      continue
    }
    const query = { dry_run: true }
    const plan = (await fetched(client.api.POST("/jobs", { params: { query }, body }))) as JobPlan
    plans.push(plan)
    if (!call.isForProgram) await call.terminal.line(`job/${plan.name}:\n${planText(plan, body, call.terminal)}`)
  }
  if (plans.length === 0 && documents.length === 0) throw usageError("There is no document.")
  if (call.isForProgram) await call.printValue(plans)
  return Math.max(0, ...plans.map(exitOfPlan))
}
