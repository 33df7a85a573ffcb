import type { Gpu, JobSpec } from "../../apis/job.ts"
import { withoutNulls } from "../../apis/nulls.ts"
import { formatCpu } from "../../apis/quantity.ts"
import type { Fault } from "../../apis/validate.ts"
import { faultsOf } from "../../apis/validate.ts"
import { type Refused, refusedBy } from "../../http/checked.ts"
import { type CatalogueCheck, termsOf } from "./catalogue-terms.ts"
import { type JobSubmission, JobSubmissionSchema } from "./schema.ts"

/** What a submission is held against, beside its schema. */
export interface SubmissionContext {
  projectId: string
  organizationId: string
  /** What of its clouds, regions and GPU model nobody sells. */
  catalogueFaults: CatalogueCheck
}

/** A submission that may become a Job, or one that may not. */
export type Checked = { submission: JobSubmission } | Refused<JobSubmission>

/** A UUID is an id: a name of that shape would shadow one. */
export const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/

/** Checks a parsed body: by its schema, then by the rules that no schema can say. */
export function checkSubmission(body: unknown, context: SubmissionContext): Checked {
  const value = withoutNulls(JobSubmissionSchema, body, "fields")
  const faults = faultsOf(JobSubmissionSchema, value).map((fault) => withHint(fault, value))
  if (typeof value !== "object" || value === null) return { faults }
  // Seen as a submission whose fields may be of any type: every rule checks the types it needs.
  const unchecked = value as Unchecked
  faults.push(...nameFaults(unchecked), ...cpuFaults(unchecked), ...ownerFaults(unchecked, context))
  const submission = value as JobSubmission
  return refusedBy(submission, faults, context.catalogueFaults(termsOf(unchecked))) ?? { submission }
}

type Unchecked = { readonly [Field in keyof JobSubmission]?: unknown }

function nameFaults({ name, namePrefix }: Unchecked): Fault[] {
  const faults: Fault[] = []
  if (name !== undefined && namePrefix !== undefined) {
    faults.push({ pointer: "/namePrefix", detail: "namePrefix can't stand beside name: give one of them or neither" })
  }
  if (typeof name === "string" && UUID.test(name)) {
    faults.push({ pointer: "/name", detail: "name must not look like a UUID: it would shadow a job's id" })
  }
  return faults
}

/** What no schema can say of a cronjob's definition, which is a submission too, by catalogue or not; of any type. */
export function definitionFaults(
  definition: unknown,
  { catalogueFaults }: SubmissionContext,
): { faults: Fault[]; now: Fault[] } {
  if (typeof definition !== "object" || definition === null) return { faults: [], now: [] }
  return { faults: cpuFaults(definition), now: catalogueFaults(termsOf(definition)) }
}

function cpuFaults({ resources }: Unchecked): Fault[] {
  const cpu = (resources as { cpu?: unknown } | null | undefined)?.cpu
  if (typeof cpu !== "number" || Math.abs(cpu * 1000 - Math.round(cpu * 1000)) < 1e-6) return []
  return [{ pointer: "/resources/cpu", detail: `resources.cpu must have at most three decimals, not ${cpu}` }]
}

/** Of the two fields that a body may only repeat from the host. */
export function ownerFaults(
  value: { readonly project_id?: unknown; readonly organization_id?: unknown },
  context: Pick<SubmissionContext, "projectId" | "organizationId">,
): Fault[] {
  const owners = { project_id: context.projectId, organization_id: context.organizationId } as const
  return Object.entries(owners).flatMap(([field, own]) => {
    const given = value[field as keyof typeof owners]
    if (typeof given !== "string" || given === own) return []
    return [{ pointer: `/${field}`, detail: `${field} must be left out or "${own}", which the request's host names` }]
  })
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
