import { CRON_JOB } from "../core/apis/cronjob.ts"
import { escapePointer, type FieldError, toFieldPath } from "../core/apis/field-error.ts"
import { JOB } from "../core/apis/job.ts"
import { JOB_ARRAY } from "../core/apis/jobarray.ts"
import type { KindDefinition } from "../core/apis/kind.ts"
import { API_VERSION, GROUP } from "../core/apis/meta.ts"
import { withoutNulls } from "../core/apis/nulls.ts"
import { parseCpu } from "../core/apis/quantity.ts"
import { ARRAY_FIELDS, CRON_JOB_FIELDS } from "../core/apis/rest-names.ts"
import { errorsOfObject } from "../core/apis/validate.ts"
import { usageError } from "./exit.ts"

/** Objects of Kubernetes in files, as bodies of the REST API. */

type Fields = Record<string, unknown>

/** Object of Kubernetes as the body of the REST API. */
export interface Manifest {
  kind: "job" | "cronjob" | "array"
  body: Fields
  namespace?: string
  /** Returns an error of REST about the body in the words of the object. */
  inFile: (error: FieldError) => FieldError
}

/** Kind whose objects are bodies of the REST API, too. */
interface Translation {
  kind: KindDefinition
  document: Manifest["kind"]
  /** Names in REST of the spec's fields that have another name there. */
  names: Readonly<Record<string, string>>
  /** Fields of the spec that REST has no place for, with what to do instead. */
  only: Readonly<Record<string, string>>
}

const KUBECTL = "use kubectl apply for it"
const RETRY = "use berth array retry"

const TRANSLATIONS: readonly Translation[] = [
  { kind: JOB, document: "job", names: {}, only: { cancelled: "use berth cancel" } },
  { kind: CRON_JOB, document: "cronjob", names: CRON_JOB_FIELDS, only: {} },
  {
    ...{ kind: JOB_ARRAY, document: "array", names: ARRAY_FIELDS },
    only: { cancelled: "use berth array cancel", retry: RETRY },
  },
]

/** Metadata that REST has a place for. */
const METADATA = ["name", "generateName", "namespace"]

/**
 * Returns the document of an object of Kubernetes. It is checked as the API server does: by the schema of its kind,
 * without unknown fields. What REST has no place for is rejected, not dropped.
 * @param place the object's place, for messages @throws Failure
 */
export function documentOfManifest(object: Fields, place: string): Manifest {
  const translation = translationOf(object, place)
  const { kind, document, names } = translation
  const errors = [...errorsOfManifest(translation, object)]
  if (errors.length > 0) throw usageError(`${place} has errors:${errors.map(({ detail }) => `\n  ${detail}`).join("")}`)
  // The API server drops a null in a map too, such as an empty variable: REST rejects it, in place of losing it.
  const { metadata, spec } = withoutNulls({ properties: { spec: kind.spec } }, object, "fields") as {
    metadata: Fields
    spec: Fields
  }
  const { namespace } = metadata
  return {
    kind: document,
    body: { ...nameOf(metadata), ...bodyOf(spec, names) },
    inFile: (error) => inManifest(error, names),
    ...(typeof namespace === "string" && { namespace }),
  }
}

function translationOf({ apiVersion, kind }: Fields, place: string): Translation {
  if (typeof apiVersion !== "string") throw usageError(`${place} has no apiVersion: write apiVersion: ${API_VERSION}.`)
  if (kind === undefined)
    throw usageError(`${place} has an apiVersion and no kind: write kind: Job, kind: CronJob or kind: JobArray.`)
  if (apiVersion.split("/")[0] !== GROUP)
    throw usageError(`${place} is a ${kind} of ${apiVersion}: use kubectl for it.`)
  if (apiVersion !== API_VERSION)
    throw usageError(`${place} has the apiVersion ${apiVersion}, and Berth knows ${API_VERSION}.`)
  const found = TRANSLATIONS.find((one) => one.kind.kind === kind)
  if (found !== undefined) return found
  throw usageError(`${place} is a ${kind}: use kubectl for it, or the body of the REST API.`)
}

function* errorsOfManifest({ kind, names, only }: Translation, object: Fields): Generator<FieldError> {
  for (const error of errorsOfObject(kind, object)) yield withOwnName(error, names)
  const { metadata, spec, status } = object
  if (status != null) yield* refusal("/status", "delete it: only Berth writes it")
  if (isMap(metadata)) yield* metadataErrors(metadata)
  for (const [field, advice] of Object.entries(only)) {
    const value = isMap(spec) ? spec[field] : undefined
    if (value != null && value !== false) yield* refusal(`/spec/${field}`, `delete it, or ${advice}`)
  }
}

function isMap(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value)
}

function* metadataErrors(metadata: Fields): Generator<FieldError> {
  if (metadata["name"] == null && metadata["generateName"] == null)
    yield { pointer: "/metadata/name", detail: "metadata.name is required" }
  for (const [field, value] of Object.entries(metadata)) {
    const pointer = `/metadata/${escapePointer(field)}`
    if (value === null) continue
    if (!METADATA.includes(field)) yield* refusal(pointer, `delete it, or ${KUBECTL}`)
    else if (typeof value !== "string") yield { pointer, detail: `${toFieldPath(pointer)} must be a string` }
  }
}

function* refusal(pointer: string, advice: string): Generator<FieldError> {
  yield { pointer, detail: `${toFieldPath(pointer)} is set, which berth apply can't keep: ${advice}` }
}

/** Adds the kind's own name to the error of a field that has its name of REST. */
function withOwnName(error: FieldError, names: Translation["names"]): FieldError {
  const rest = error.pointer.split("/")
  const own = Object.entries(names).find(([, name]) => name === rest.at(-1))?.[0]
  if (own === undefined || rest.length !== 3) return error
  const detail = `${toFieldPath(error.pointer)} is the name in REST: write ${own} in a Kubernetes object`
  return { ...error, detail }
}

function nameOf({ name, generateName }: Fields): Fields {
  if (typeof generateName === "string" && name === undefined) return { namePrefix: generateName.replace(/-+$/, "") }
  return { name }
}

function bodyOf({ cancelled: _, debugEnded: __, ...spec }: Fields, names: Translation["names"]): Fields {
  const entries = Object.entries(spec).map(([field, value]) => [
    names[field] ?? field,
    field === "jobDefinition" ? jobOf(value as Fields) : value,
  ])
  return jobOf(Object.fromEntries(entries))
}

/** Returns the fields of a Job's spec in REST, which has vCPUs as a number. */
function jobOf({ cancelled: _, debugEnded: __, ...spec }: Fields): Fields {
  const resources = spec["resources"] as Fields | undefined
  const cpu = resources?.["cpu"] as string | number | undefined
  return cpu === undefined ? spec : { ...spec, resources: { ...resources, cpu: parseCpu(cpu) } }
}

/** Returns an error of REST about a body in the words of the object that the body is from. */
function inManifest({ pointer, detail }: FieldError, names: Translation["names"]): FieldError {
  const [, first = "", ...inner] = pointer.split("/")
  if (first === "") return { pointer, detail }
  const own = Object.entries(names).find(([, name]) => name === first)?.[0] ?? first
  const top = NAMES[first] ?? `/spec/${own}`
  const path = [top, ...inner].join("/")
  const isNamed = detail.startsWith(first) && !/^\w/.test(detail.slice(first.length))
  return {
    pointer: path,
    detail: isNamed ? toFieldPath(top) + detail.slice(first.length) : `${toFieldPath(path)}: ${detail}`,
  }
}

const NAMES: Readonly<Record<string, string>> = { name: "/metadata/name", namePrefix: "/metadata/generateName" }

/** Returns the objects of a list, as kubectl takes them: `kind: List`, or a list of one kind. */
export function itemsOf(value: unknown): unknown[] | undefined {
  if (typeof value !== "object" || value === null) return undefined
  const { kind, items } = value as Fields
  return typeof kind === "string" && kind.endsWith("List") && Array.isArray(items) ? items : undefined
}
