import { readdirSync, readFileSync, statSync } from "node:fs"
import { join } from "node:path"
import type { JobSubmission, Schemas } from "../client/client.ts"
import { type JobField, recordField } from "../client/job-fields.ts"
import {
  submittedDebug,
  submittedIdleLimit,
  submittedReuse,
  submittedRules,
  submittedVolumes,
} from "../client/resubmission.ts"
import type { FieldError } from "../core/apis/field-error.ts"
import { readYaml, YamlError } from "../core/apis/yaml.ts"
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
  /** Returns an error of REST about the body in the words of the file; undefined if the file has the body itself. */
  inFile?: (error: FieldError) => FieldError
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

/**
 * Returns the documents of a source: bodies of the REST API, or objects of Kubernetes. The objects of a list count as
 * documents. @throws Failure
 */
export async function readDocuments({ name, text }: Source): Promise<Document[]> {
  const values = valuesIn(name, text).filter((value) => value !== null && value !== undefined)
  // Most commands read no file: the kinds' schemas are loaded for those that do.
  const manifests = await import("./manifests.ts")
  const documents = values.flatMap((value, index) => {
    const place = values.length === 1 ? name : `${name}, document ${index + 1}`
    const items = manifests.itemsOf(value)
    if (items === undefined) return [{ place, value }]
    return items.map((item, at) => ({ place: `${place}, item ${at + 1}`, value: item as unknown }))
  })
  if (documents.length === 0) throw usageError(`${name} has no document.`)
  return documents.map(({ place, value }) => {
    if (typeof value !== "object" || value === null || Array.isArray(value))
      throw usageError(`${place} must be an object with fields, such as image.`)
    const fields = value as Fields
    const isObject = "apiVersion" in fields || "metadata" in fields
    return isObject ? (manifests.documentOfManifest(fields, place) as Document) : documentOf(fields, place)
  })
}

/** Reads YAML and JSON as the REST API and kubectl do. @throws Failure */
function valuesIn(name: string, text: string): unknown[] {
  try {
    return readYaml(text)
  } catch (error) {
    if (!(error instanceof YamlError)) throw error
    const errors = error.errors.map(({ detail }) => `\n  ${detail}`).join("")
    throw usageError(errors === "" ? `${name} is no YAML: ${error.message}.` : `${name} has errors:${errors}`)
  }
}

function documentOf(fields: Fields, place: string): Document {
  if ("job_definition" in fields && ("size" in fields || "matrix" in fields))
    return { kind: "array", body: fields as never }
  if ("cron_spec" in fields || "job_definition" in fields) return { kind: "cronjob", body: fields as never }
  if ("type" in fields && !("image" in fields)) return { kind: "connection", body: fields as never }
  if ("events" in fields && !("image" in fields)) return { kind: "webhook", body: fields as never }
  if ("image" in fields) return { kind: "job", body: fields as never }
  throw usageError(
    `${place} is not a job (with image), cronjob (with cron_spec), array (with size or matrix), connection (with type) or webhook (with events).`,
  )
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

/** Returns the paths of fields that a submission sets otherwise than the record has them. */
export function differences(wanted: JobSubmission, record: Schemas["JobRecord"]): string[] {
  const { name: _name, namePrefix: _prefix, project_id: _project, organization_id: _organization, ...fields } = wanted
  return Object.entries(fields).flatMap(([field, value]) => {
    if (value === null || value === undefined) return []
    return isSame(value, recordedAs(field, record)) ? [] : [field]
  })
}

function recordedAs(field: string, record: Schemas["JobRecord"]): unknown {
  if (field === "volumes") return submittedVolumes(record.volumes)
  if (field === "retryRules") return submittedRules(record.retry_rules)
  if (field === "idleLimit") return submittedIdleLimit(record.idle_limit)
  if (field === "reuse") return submittedReuse(record.reuse)
  if (field === "debug") return submittedDebug(record.debug)
  return record[recordField(field as JobField)]
}

/** True for a value that is recorded alone. A definition has no empty list or map, and one cloud or region as a text. */
function isSameScalar(wanted: unknown, recorded: unknown): boolean {
  if (typeof wanted !== "object" || wanted === null) return wanted === recorded
  if (recorded === null || recorded === undefined) return Object.keys(wanted).length === 0
  return Array.isArray(wanted) && wanted.length === 1 && wanted[0] === recorded
}

/** True if all that is wanted is recorded. A record has more: defaults, and null for what is not set. */
export function isSame(wanted: unknown, recorded: unknown): boolean {
  if (Array.isArray(recorded)) {
    const list = Array.isArray(wanted) ? wanted : [wanted]
    return list.length === recorded.length && list.every((item, index) => isSame(item, recorded[index]))
  }
  if (typeof recorded !== "object" || recorded === null) return isSameScalar(wanted, recorded)
  if (typeof wanted === "string") return isSame({ vram: wanted }, recorded)
  if (typeof wanted !== "object" || wanted === null) return false
  const given = Object.fromEntries(Object.entries(wanted).filter(([, value]) => value !== null)) as Fields
  const known = recorded as Fields
  const isMap =
    Object.values(known).every((value) => typeof value === "string") && !("vram" in known || "bucket" in known)
  if (isMap && Object.keys(given).length !== Object.keys(known).length) return false
  return Object.entries(given).every(([key, value]) => isSame(value, known[key]))
}

/** Values that a definition's record has where nothing was sent. */
const DEFAULTS: Fields = { maxRetries: 0, provisioning: "onDemand", count: 1 }

/** True if a recorded definition has no more than what is wanted, but for defaults. A change replaces all of it. */
export function isCovered(recorded: unknown, wanted: unknown): boolean {
  if (typeof recorded !== "object" || recorded === null || Array.isArray(recorded)) return true
  if (typeof wanted !== "object" || wanted === null) return true
  return Object.entries(recorded).every(([key, value]) => {
    if (value === null || value === DEFAULTS[key]) return true
    const own = (wanted as Fields)[key]
    return own != null && isCovered(value, own)
  })
}
