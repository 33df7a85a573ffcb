import { readdirSync, readFileSync, statSync } from "node:fs"
import { join } from "node:path"
import { loadAll } from "js-yaml"
import { parseCpu } from "../apis/quantity.ts"
import type { JobSubmission, Schemas } from "../client/client.ts"
import { usageError } from "./exit.ts"

/** Body of POST /connections. Its fields depend on the type; the API checks them. */
export interface ConnectionCreation {
  name: string
  type: string
  [field: string]: unknown
}

/** Object of a file, as the body that the REST API takes. */
export type Document = Body & {
  /** Namespace that an object of Kubernetes names. */
  namespace?: string
}

type Body =
  | { kind: "job"; body: JobSubmission }
  | { kind: "cronjob"; body: Schemas["CronJobCreation"] }
  | { kind: "array"; body: Schemas["ArrayCreation"] }
  | { kind: "connection"; body: ConnectionCreation }
  | { kind: "webhook"; body: Schemas["WebhookCreation"] }

/** Text of a file, and its name for messages. */
export interface Source {
  name: string
  text: string
}

type Fields = Record<string, unknown>

/**
 * Returns the text of a file, or of each .yaml, .yml and .json file of a folder, in the order of their names.
 * @throws Failure
 */
export function sourcesAt(path: string): Source[] {
  try {
    if (!statSync(path).isDirectory()) return [{ name: path, text: readFileSync(path, "utf8") }]
    const names = readdirSync(path).filter((name) => /\.(ya?ml|json)$/.test(name))
    if (names.length === 0) throw usageError(`${path} has no .yaml, .yml or .json file.`)
    return names.sort().map((name) => ({ name: join(path, name), text: readFileSync(join(path, name), "utf8") }))
  } catch (error) {
    if (!(error instanceof Error && "code" in error && typeof error.code === "string")) throw error
    throw usageError(`${path} can't be read: ${error.message}`)
  }
}

/** Returns the documents of a source: bodies of the REST API, or objects of Kubernetes. @throws Failure */
export function documentsOf({ name, text }: Source): Document[] {
  let values: unknown[]
  try {
    values = loadAll(text)
  } catch (error) {
    throw usageError(`${name} is no YAML: ${(error as Error).message}`)
  }
  const objects = values.filter((value) => value !== null && value !== undefined)
  if (objects.length === 0) throw usageError(`${name} has no document.`)
  return objects.map((value, index) =>
    documentOf(value, objects.length === 1 ? name : `${name}, document ${index + 1}`),
  )
}

function documentOf(value: unknown, place: string): Document {
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw usageError(`${place} must be an object with fields, such as image.`)
  const fields = value as Fields
  if ("apiVersion" in fields || "metadata" in fields) return ofKubernetes(fields, place)
  if ("job_definition" in fields && ("size" in fields || "matrix" in fields))
    return { kind: "array", body: fields as never }
  if ("cron_spec" in fields || "job_definition" in fields) return { kind: "cronjob", body: fields as never }
  if ("type" in fields && !("image" in fields)) return { kind: "connection", body: fields as never }
  if ("events" in fields && !("image" in fields)) return { kind: "webhook", body: fields as never }
  if ("image" in fields) return { kind: "job", body: fields as never }
  throw usageError(
    `${place} is no job (with image), cronjob (with cron_spec), array (with size or matrix), connection (with type) or webhook (with events).`,
  )
}

/** Fields of a CronJob that the REST API can't set. */
const KUBERNETES_ONLY = [
  "concurrencyPolicy",
  "startingDeadlineSeconds",
  "successfulJobsHistoryLimit",
  "failedJobsHistoryLimit",
]

/** Fields of an object of Kubernetes that `berth apply` understands. `kubectl` takes more. */
const KNOWN_FIELDS = ["apiVersion", "kind", "metadata", "spec"]
const KNOWN_METADATA = ["name", "generateName", "namespace"]
const API_VERSION = "berth.dev/v1alpha1"

/** @throws Failure for a field that would be dropped */
function requireKnown(fields: Fields, known: readonly string[], place: string, path = ""): void {
  const lost = Object.keys(fields).filter((field) => !known.includes(field))
  if (lost.length === 0) return
  const named = lost.map((field) => path + field).join(", ")
  throw usageError(`${place} sets ${named}, which berth apply can't keep: delete it, or use kubectl apply.`)
}

function ofKubernetes(fields: Fields, place: string): Document {
  const { apiVersion, kind, metadata = {} } = fields as { apiVersion?: string; kind?: string; metadata?: Fields }
  if (apiVersion?.split("/")[0] !== "berth.dev")
    throw usageError(`${place} is a ${kind} of ${apiVersion}: use kubectl for it.`)
  if (apiVersion !== API_VERSION)
    throw usageError(`${place} has the apiVersion ${apiVersion}, and Berth knows ${API_VERSION}.`)
  const body = bodyOf(fields, place)
  requireKnown(fields, KNOWN_FIELDS, place)
  requireKnown(metadata, KNOWN_METADATA, place, "metadata.")
  const { namespace } = metadata
  return typeof namespace === "string" ? { ...body, namespace } : body
}

function bodyOf(fields: Fields, place: string): Body {
  const { kind, metadata, spec } = fields as { kind?: string; metadata?: Fields; spec?: Fields }
  const name = metadata?.["name"] as string
  if (kind === "Job") return { kind: "job", body: { ...ofMetadata(metadata), ...jobOf(spec ?? {}, place) } as never }
  if (kind === "CronJob") {
    const { schedule, jobDefinition, active = true, ...rest } = spec ?? {}
    const lost = Object.keys(rest).filter((field) => KUBERNETES_ONLY.includes(field))
    if (lost.length > 0)
      throw usageError(`${place} sets ${lost.join(", ")}, which only kubectl can set: use kubectl apply.`)
    const job_definition = jobOf((jobDefinition ?? {}) as Fields, place)
    return { kind: "cronjob", body: { name, cron_spec: schedule, is_active: active, job_definition, ...rest } as never }
  }
  if (kind === "JobArray") return { kind: "array", body: { name, ...arrayOf(spec ?? {}, place) } as never }
  throw usageError(`${place} is a ${kind}: use kubectl for it, or the body of the REST API.`)
}

/** Names in REST of the fields of a JobArray's spec that have another name there. */
const ARRAY_FIELDS: Record<string, string> = {
  maxFailed: "max_failed",
  successfulJobsHistoryLimit: "successful_jobs_history_limit",
  failedJobsHistoryLimit: "failed_jobs_history_limit",
  ttlSecondsAfterFinished: "ttl_seconds_after_finished",
}

function arrayOf({ jobDefinition, cancelled, retry, ...spec }: Fields, place: string): Fields {
  if (cancelled === true || retry !== undefined) {
    throw usageError(`${place} sets cancelled or retry: use berth array cancel or berth array retry.`)
  }
  const fields = Object.entries(spec).map(([field, value]) => [ARRAY_FIELDS[field] ?? field, value])
  return { job_definition: jobOf((jobDefinition ?? {}) as Fields, place), ...Object.fromEntries(fields) }
}

function ofMetadata(metadata: Fields | undefined): Fields {
  const { name, generateName } = metadata ?? {}
  if (typeof generateName === "string" && name === undefined) return { namePrefix: generateName.replace(/-+$/, "") }
  return { name }
}

/**
 * Checks that objects of Kubernetes name the namespace of the project that gets them.
 * @param namespaceOf reads that namespace; it is asked once, and only if a document names one
 * @throws Failure
 */
export async function requireNamespace(
  documents: readonly Document[],
  namespaceOf: () => Promise<string>,
): Promise<void> {
  const named = documents.filter(({ namespace }) => namespace !== undefined)
  if (named.length === 0) return
  const own = await namespaceOf()
  const other = named.find(({ namespace }) => namespace !== own)
  if (other === undefined) return
  throw usageError(
    `${other.kind}/${other.body.name ?? "?"} is for the namespace ${other.namespace}, and this project has ${own}. ` +
      "Choose its project with --project or --context, or delete metadata.namespace.",
  )
}

/** Returns the body of a Job's spec: REST has vCPUs as a number. */
function jobOf({ cancelled, ...spec }: Fields, place: string): Fields {
  if (cancelled === true) throw usageError(`${place} is cancelled: delete spec.cancelled, or use berth cancel.`)
  const resources = spec["resources"] as Fields | undefined
  if (typeof resources?.["cpu"] !== "string") return spec
  return { ...spec, resources: { ...resources, cpu: parseCpu(resources["cpu"]) } }
}

/** Returns the paths of fields that a submission sets otherwise than the record has them. */
export function differences(wanted: JobSubmission, record: Schemas["JobRecord"]): string[] {
  const { name: _name, namePrefix: _prefix, project_id: _project, organization_id: _organization, ...fields } = wanted
  return Object.entries(fields).flatMap(([field, value]) => {
    if (value === null || value === undefined) return []
    return isSame(value, recordedAs(field, record)) ? [] : [field]
  })
}

/** Names in a record of the fields of a submission that have another name there. */
const RENAMED: Partial<Record<keyof JobSubmission, keyof Schemas["JobRecord"]>> = {
  maxRetries: "max_retries",
  timeoutSeconds: "timeout_seconds",
  terminationGraceSeconds: "termination_grace_seconds",
  maxCostUsd: "max_cost_usd",
  maxPreemptions: "max_preemptions",
  maxQueueSeconds: "max_queue_seconds",
  fallbackAfter: "fallback_after",
}

function recordedAs(field: string, record: Schemas["JobRecord"]): unknown {
  if (field === "volumes") return Object.fromEntries(record.volumes.map(({ name, ...volume }) => [name, volume]))
  return record[recordField(field)]
}

/** Returns the name of a submission's field in the record. */
export function recordField(field: string): keyof Schemas["JobRecord"] {
  return RENAMED[field as keyof JobSubmission] ?? (field as keyof Schemas["JobRecord"])
}

/** True if all that is wanted is recorded. A record has more: defaults, and null for what is not set. */
export function isSame(wanted: unknown, recorded: unknown): boolean {
  if (Array.isArray(recorded)) {
    const list = Array.isArray(wanted) ? wanted : [wanted]
    return list.length === recorded.length && list.every((item, index) => isSame(item, recorded[index]))
  }
  if (typeof recorded !== "object" || recorded === null) return wanted === recorded
  if (typeof wanted === "string") return isSame({ vram: wanted }, recorded)
  if (typeof wanted !== "object" || wanted === null) return false
  const given = Object.fromEntries(Object.entries(wanted).filter(([, value]) => value !== null)) as Fields
  const known = recorded as Fields
  const isMap =
    Object.values(known).every((value) => typeof value === "string") && !("vram" in known || "bucket" in known)
  if (isMap && Object.keys(given).length !== Object.keys(known).length) return false
  return Object.entries(given).every(([key, value]) => isSame(value, known[key]))
}
