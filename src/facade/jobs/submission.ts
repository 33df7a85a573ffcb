import type { Gpu, JobSpec } from "../../apis/job.ts"
import { formatCpu } from "../../apis/quantity.ts"
import type { Fault } from "../../apis/validate.ts"
import { checked, type Refused, type Rule } from "../../http/checked.ts"
import { type Additions, inFormat, type Json } from "../../http/json-schema.ts"
import type { Owner } from "../owner.ts"
import { type CatalogueCheck, termsOf } from "./catalogue-terms.ts"
import { type JobSubmission, JobSubmissionSchema } from "./schema.ts"

/** The facts that a submission is checked against, beside its schema. */
export interface SubmissionContext extends Owner {
  /** Finds clouds, regions and GPU models that no cloud sells. */
  catalogueFaults: CatalogueCheck
}

/** A submission that may become a Job, or one that may not. */
export type CheckedSubmission = { submission: JobSubmission } | Refused<JobSubmission>

/** Fields of an owner, which a body may only repeat from the host. */
export const OWNER: Rule<Owner> = {
  keywords: {
    "/properties/project_id": inFormat("project-id"),
    "/properties/organization_id": inFormat("organization-id"),
  },
  faults: ({ project_id, organization_id }, { projectId, organizationId }) => [
    ...ownerFaults("project_id", project_id, projectId),
    ...ownerFaults("organization_id", organization_id, organizationId),
  ],
}

function ownerFaults(field: string, given: unknown, own: string): Fault[] {
  if (typeof given !== "string" || given === own) return []
  const detail = `${field} must be left out or "${own}", which the request's host names`
  return [{ pointer: `/${field}`, detail }]
}

/** A value that is there and not null. */
function given(...fields: string[]): Json {
  const properties = Object.fromEntries(fields.map((field) => [field, { not: { type: "null" } }]))
  return { required: fields, properties }
}

const NAME_OR_PREFIX: Rule = {
  keywords: { "": { not: given("name", "namePrefix") } },
  faults: ({ name, namePrefix }) => {
    if (name === undefined || namePrefix === undefined) return []
    return [{ pointer: "/namePrefix", detail: "namePrefix can't stand beside name: give one of them or neither" }]
  },
}

const CPU: Rule = {
  keywords: { "/properties/resources/properties/cpu": { multipleOf: 0.001 } },
  faults: ({ resources }) => {
    const cpu = (resources as { cpu?: unknown } | null | undefined)?.cpu
    if (typeof cpu !== "number" || Math.abs(cpu * 1000 - Math.round(cpu * 1000)) < 1e-6) return []
    return [{ pointer: "/resources/cpu", detail: `resources.cpu must have at most three decimals, not ${cpu}` }]
  },
}

/** The kind's rules for GPUs, in words that don't count null as a value. The validator sees no nulls. */
const GPU: Rule = {
  keywords: {
    "/properties/resources/properties/gpu/anyOf/1": {
      minProperties: undefined,
      dependentRequired: undefined,
      allOf: [{ anyOf: [given("vram"), given("model")] }, { anyOf: [{ not: given("count") }, given("model")] }],
    },
  },
}

/**
 * Clouds, regions and GPU models must be those of the present catalogue.
 * @param keywords those of the cloud and the region, which a submission and a definition write differently
 */
function ofCatalogue(keywords: Additions): Rule<Pick<SubmissionContext, "catalogueFaults">> {
  const model = { "/properties/resources/properties/gpu/anyOf/1/properties/model": inFormat("gpu-model") }
  return {
    keywords: { ...keywords, ...model },
    faultsNow: (body, { catalogueFaults }) => catalogueFaults(termsOf(body)),
  }
}

/** The rules of a submission. @param clouds the clouds that a job may name, for the document */
export function submissionRules(clouds: readonly string[] = []): Rule<SubmissionContext>[] {
  const places = ofCatalogue({
    "/properties/cloud/items": { enum: clouds },
    "/properties/region/anyOf/0": inFormat("region"),
    "/properties/region/anyOf/1/items": inFormat("region"),
  })
  return [NAME_OR_PREFIX, CPU, GPU, OWNER, places]
}

/** The rules of a cronjob's definition. @param clouds as of a submission */
export function definitionRules(clouds: readonly string[] = []): Rule<SubmissionContext>[] {
  const places = ofCatalogue({ "/properties/cloud": { enum: clouds }, "/properties/region": inFormat("region") })
  return [CPU, GPU, places]
}

/** Checks a parsed body by its schema, then by its rules. */
export function checkSubmission(body: unknown, context: SubmissionContext): CheckedSubmission {
  const checks = { schema: JobSubmissionSchema, rules: submissionRules(), context, explain: withHint }
  const result = checked<JobSubmission, SubmissionContext>(body, checks)
  return "faults" in result ? result : { submission: result.body }
}

/** A size in a unit that people write and Kubernetes does not have. */
const FOREIGN_SIZE = /^(\d+(?:\.\d+)?) ?([kKmMgGtT])i?[bB]?$/

/** Where a submission, or a cronjob's definition, has sizes. */
const SIZE_POINTER = /^(\/job_definition)?\/resources\/(memory|gpu|gpu\/vram)$/

/** Says what somebody who wrote `24GB` probably meant; `value` is the body. */
export function withHint(fault: Fault, value: unknown): Fault {
  if (!SIZE_POINTER.test(fault.pointer)) return fault
  const found = fault.pointer.split("/").slice(1).reduce<unknown>(memberOf, value)
  const [, number, letter] = (typeof found === "string" && FOREIGN_SIZE.exec(found)) || []
  if (number === undefined || letter === undefined) return fault
  const unit = letter.toUpperCase()
  const decimal = unit === "K" ? "k" : unit
  return {
    ...fault,
    detail: `${fault.detail}; write ${number}${unit}i (powers of 1024) or ${number}${decimal} (of 1000)`,
  }
}

function memberOf(value: unknown, key: string): unknown {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>)[key] : undefined
}

/** The spec of the Job that a checked submission asks for: shorthands expanded, nothing else added. */
export function jobSpecOf(submission: JobSubmission): JobSpec {
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

/** The contract's rules: a size is a total of memory, and a model alone means one card. */
function gpuOf(gpu: string | Gpu): Gpu {
  if (typeof gpu === "string") return { vram: gpu }
  const isModelAlone = gpu.model !== undefined && gpu.count === undefined && gpu.vram === undefined
  return isModelAlone ? { ...gpu, count: 1 } : gpu
}
