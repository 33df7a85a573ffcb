import { createHash } from "node:crypto"
import { adjectives, nouns } from "human-id"
import type { TSchema } from "typebox"
import { quote } from "../../../core/apis/field-error.ts"
import {
  type Gpu,
  GpuSchema,
  JOB,
  JOB_FINALIZER,
  type Job,
  type JobSpec,
  JobSpecSchema,
} from "../../../core/apis/job.ts"
import { mirroredLabels } from "../../../core/apis/labels.ts"
import { ANNOTATIONS, API_VERSION } from "../../../core/apis/meta.ts"
import { formatCpu } from "../../../core/apis/quantity.ts"
import { type FieldError, findErrors } from "../../../core/apis/validate.ts"
import type { Owner } from "../../../core/records/owner.ts"
import type { Catalogue } from "../../../market/router/catalogue.ts"
import { type CatalogueTerms, catalogueErrors } from "../../../market/router/catalogue-errors.ts"
import { checked, type Refused, type Rule } from "../../http/checked.ts"
import { type Additions, inFormat, type Json } from "../../http/json-schema.ts"
import { idempotencyMarks } from "../../idempotency-marks.ts"
import { OWNER } from "../../owner.ts"
import { type JobSubmission, JobSubmissionSchema } from "./schema.ts"

/** Facts that a submission is checked against, in addition to its schema. */
export interface SubmissionContext extends Owner {
  /** Check for clouds, regions and GPU models that no cloud sells. */
  catalogueErrors: CatalogueCheck
}

/** Submission that is valid, or its errors. */
export type CheckedSubmission = { submission: JobSubmission } | Refused<JobSubmission>

/** Keywords of an object that has these fields, none of them null. */
export function given(...fields: string[]): Json {
  const properties = Object.fromEntries(fields.map((field) => [field, { not: { type: "null" } }]))
  return { required: fields, properties }
}

const NAME_OR_PREFIX: Rule = {
  keywords: { "": { not: given("name", "namePrefix") } },
  errors: ({ name, namePrefix }) => {
    if (name === undefined || namePrefix === undefined) return []
    return [{ pointer: "/namePrefix", detail: "name and namePrefix exclude each other: send one of them or neither" }]
  },
}

/** Returns the rule that a new job or array doesn't wait for itself. */
export function notItself(kind: "job" | "array"): Rule {
  return {
    errors: ({ name, after }) => {
      if (typeof name !== "string" || !Array.isArray(after)) return []
      return after.flatMap((one: unknown, index) => {
        if (memberOf(one, kind) !== name) return []
        const detail = `after[${index}].${kind} must name another ${kind} than ${quote(name)} itself`
        return [{ pointer: `/after/${index}/${kind}`, detail }]
      })
    },
  }
}

const CPU: Rule = {
  keywords: { "/properties/resources/properties/cpu": { multipleOf: 0.001 } },
  errors: ({ resources }) => {
    const cpu = (resources as { cpu?: unknown } | null | undefined)?.cpu
    if (typeof cpu !== "number" || Math.abs(cpu * 1000 - Math.round(cpu * 1000)) < 1e-6) return []
    return [{ pointer: "/resources/cpu", detail: `resources.cpu must have at most three decimals, not ${cpu}` }]
  },
}

/** Rules of the kind for GPUs, in keywords that don't count null as a value. The validator sees no nulls. */
const GPU: Rule = {
  keywords: {
    "/properties/resources/properties/gpu/anyOf/1": {
      minProperties: undefined,
      dependentRequired: undefined,
      allOf: [{ anyOf: [given("vram"), given("model")] }, { anyOf: [{ not: given("count") }, given("model")] }],
    },
  },
}

/** Returns the rule that clouds, regions and GPU models must be in the current catalogue. @param keywords of both */
function catalogueRule(keywords: Additions): Rule<Pick<SubmissionContext, "catalogueErrors">> {
  const model = { "/properties/resources/properties/gpu/anyOf/1/properties/model": inFormat("gpu-model") }
  return {
    keywords: { ...keywords, ...model },
    errorsNow: (body, { catalogueErrors }) => catalogueErrors(termsOf(body)),
  }
}

/** @param pointers places of the name of a cloud, which a submission and a definition write differently */
function placesOf(clouds: readonly string[], ...pointers: string[]) {
  return catalogueRule({
    ...Object.fromEntries(pointers.map((pointer) => [pointer, { enum: clouds }])),
    "/properties/region/anyOf/0": inFormat("region"),
    "/properties/region/anyOf/1/items": inFormat("region"),
  })
}

/** Returns the rules of a submission. @param clouds the clouds that a job may name, for the document */
export function submissionRules(clouds: readonly string[] = []): Rule<SubmissionContext>[] {
  return [NAME_OR_PREFIX, notItself("job"), CPU, GPU, OWNER, placesOf(clouds, "/properties/cloud/items")]
}

/** Returns the rules of a cronjob's definition. @param clouds the clouds that a job may name, for the document */
export function definitionRules(clouds: readonly string[] = []): Rule<SubmissionContext>[] {
  return [CPU, GPU, placesOf(clouds, "/properties/cloud/anyOf/1/items", "/properties/cloud/anyOf/0")]
}

/** Checks a parsed body by its schema, then by its rules. */
export function checkSubmission(body: unknown, context: SubmissionContext): CheckedSubmission {
  const checks = { schema: JobSubmissionSchema, rules: submissionRules(), context, explain: withHint }
  const result = checked<JobSubmission, SubmissionContext>(body, checks)
  return "errors" in result ? result : { submission: result.body }
}

/** Pattern of a size in a unit that people write and Kubernetes does not have. */
const FOREIGN_SIZE = /^(\d+(?:\.\d+)?) ?([kKmMgGtT])i?[bB]?$/

/** Pointers to the sizes of a submission or of a cronjob's definition. */
const SIZE_POINTER = /^(\/job_definition)?\/resources\/(memory|gpu|gpu\/vram)$/

/** Adds the probable meaning of a size such as `24GB` to its error. @param value the body */
export function withHint(error: FieldError, value: unknown): FieldError {
  if (!SIZE_POINTER.test(error.pointer)) return error
  const found = error.pointer.split("/").slice(1).reduce<unknown>(memberOf, value)
  const [, number, letter] = (typeof found === "string" && FOREIGN_SIZE.exec(found)) || []
  if (number === undefined || letter === undefined) return error
  if (Number(number) === 0) return { ...error, detail: `${error.detail}; it must be more than 0` }
  const unit = letter.toUpperCase()
  const decimal = unit === "K" ? "k" : unit
  // The text may have such a unit, and another error.
  if ([`${number}${unit}i`, `${number}${decimal}`].includes(String(found))) return error
  return {
    ...error,
    detail: `${error.detail}; write ${number}${unit}i (powers of 1024) or ${number}${decimal} (of 1000)`,
  }
}

function memberOf(value: unknown, key: string): unknown {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>)[key] : undefined
}

/** Returns the Job spec of a checked submission: shorthands are expanded, and nothing else is added. */
export function toJobSpec(submission: JobSubmission): JobSpec {
  const { name: _, namePrefix: __, project_id: ___, organization_id: ____, resources, region, ...same } = submission
  return {
    ...same,
    ...(resources !== undefined && { resources: resourcesOf(resources) }),
    ...(region !== undefined && { region: typeof region === "string" ? [region] : region }),
  }
}

function resourcesOf({
  cpu,
  gpu,
  ...same
}: NonNullable<JobSubmission["resources"]>): NonNullable<JobSpec["resources"]> {
  return {
    ...same,
    ...(cpu !== undefined && { cpu: formatCpu(cpu) }),
    ...(gpu !== undefined && { gpu: gpuOf(gpu) }),
  }
}

/** Expands GPUs by the contract's rules: a size is the total memory, and a model alone means one card. */
function gpuOf(gpu: string | Gpu): Gpu {
  if (typeof gpu === "string") return { vram: gpu }
  const isModelAlone = gpu.model !== undefined && gpu.count === undefined && gpu.vram === undefined
  return isModelAlone ? { ...gpu, count: 1 } : gpu
}

/** Finds clouds, regions and GPU models of a job that no cloud sells. */
export type CatalogueCheck = (terms: CatalogueTerms) => FieldError[]

/**
 * Returns a check against the current catalogue. While the catalogue is empty (no price list has been read), only the
 * names of clouds are checked. @param clouds the clouds that this installation can use
 */
export function catalogueCheck(current: () => Catalogue, clouds: readonly string[]): CatalogueCheck {
  return ({ cloud, ...others }) => {
    const catalogue = current()
    const terms = { ...(cloud !== undefined && { cloud }), ...(catalogue.size > 0 && others) }
    return catalogueErrors(terms, catalogue, clouds)
  }
}

/** Returns the fields of any body that can be looked up in the catalogue: those that the schema accepts. */
export function termsOf({ cloud, region, resources }: Body): CatalogueTerms {
  const { cloud: clouds, region: regions } = JobSpecSchema.properties
  const model = memberOf(memberOf(resources, "gpu"), "model")
  return {
    ...(isOneOrSeveral(clouds, cloud) && { cloud }),
    ...(isOneOrSeveral(regions, region) && { region }),
    ...(isModel(model) && { resources: { gpu: { model } } }),
  }
}

interface Body {
  readonly cloud?: unknown
  readonly region?: unknown
  readonly resources?: unknown
}

function isOneOrSeveral(several: TSchema, value: unknown): value is string | string[] {
  return value !== undefined && findErrors(several, typeof value === "string" ? [value] : value).length === 0
}

function isModel(value: unknown): value is string {
  return value !== undefined && findErrors(GpuSchema.properties.model, value).length === 0
}

/** Metadata of a Job to create. */
export interface JobIdentity {
  namespace: string
  name: string
  /** RFC 3339 with microseconds. */
  createdAt: string
  /** Value of ANNOTATIONS.submission. Undefined: the operator adopts the Job. */
  submission?: string | undefined
  /** Idempotency-Key of the request and the hash of its body. Undefined without a key. */
  idempotency?: { key: string; requestHash: string } | undefined
}

/** Returns the Job of a checked submission. With its submission's id, it needs no adoption by the operator. */
export function toJob(submission: JobSubmission, identity: JobIdentity): Job {
  return jobWith(toJobSpec(submission), submission.namePrefix, identity)
}

/** Returns a Job with a spec. @param namePrefix prefix from which its name was generated */
export function jobWith(spec: JobSpec, namePrefix: string | undefined, identity: JobIdentity): Job {
  const { namespace, name, createdAt, idempotency } = identity
  const { labels } = spec
  const marks = idempotencyMarks(idempotency)
  return {
    apiVersion: API_VERSION,
    kind: JOB.kind,
    metadata: {
      name,
      namespace,
      labels: { ...mirroredLabels(labels), ...marks.labels },
      ...(identity.submission !== undefined && { finalizers: [JOB_FINALIZER] }),
      annotations: {
        [ANNOTATIONS.createdAt]: createdAt,
        ...(identity.submission !== undefined && { [ANNOTATIONS.submission]: identity.submission }),
        ...(namePrefix !== undefined && { [ANNOTATIONS.namePrefix]: namePrefix }),
        ...marks.annotations,
      },
    },
    spec,
  }
}

/** Characters of a name's random part. Without vowels, it forms no words. */
const SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
const SUFFIX_LENGTH = 8
const NUMBERS = 10_000

/**
 * Returns a name that depends on the seed only: `<prefix>-<random>` or `word-word-number`. Dashes at the end of the prefix don't count. Every word is a DNS label.
 * The random part has fewer characters than a UUID's last part (12), so the name never looks like a UUID.
 */
export function generatedName(seed: string, prefix?: string): string {
  const bytes = createHash("sha256").update(seed).digest()
  if (prefix !== undefined) {
    const suffix = Array.from(bytes.subarray(0, SUFFIX_LENGTH), (byte) => pick(SUFFIX_ALPHABET, byte))
    return `${prefix.replace(/-+$/, "")}-${suffix.join("")}`
  }
  const [adjective, noun, number] = [bytes.readUInt32BE(0), bytes.readUInt32BE(4), bytes.readUInt32BE(8)]
  return `${pick(adjectives, adjective)}-${pick(nouns, noun)}-${number % NUMBERS}`
}

function pick(from: string | readonly string[], number: number): string {
  return from[number % from.length] ?? ""
}
