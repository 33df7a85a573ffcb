import Type, { type Static, type TSchema } from "typebox"
import { JOB_FIELDS_TOGETHER, type JobSpec, JobSpecSchema } from "../../../core/apis/job.ts"
import { parseCpu } from "../../../core/apis/quantity.ts"
import { COMPONENT } from "../../../core/apis/schema.ts"
import type { FieldError } from "../../../core/apis/validate.ts"
import type { Rule, Unchecked } from "../../http/checked.ts"
import { JobSubmissionSchema } from "./schema.ts"
import { type SubmissionContext, toJobSpec } from "./submission.ts"

/** Definition of the jobs that a cronjob or an array creates: `job_definition` of their bodies and records. */

const {
  name: _name,
  namePrefix: _namePrefix,
  project_id,
  organization_id,
  cloud: _cloud,
  after: _after,
  ...definitionFields
} = JobSubmissionSchema.properties

const { cloud: clouds } = JobSpecSchema.properties

/** Job submission without a name, whose cloud may be a single string, like its region. */
export const JobDefinitionSchema = Type.Object(
  {
    ...definitionFields,
    cloud: Type.Optional(
      Type.Unsafe<string | string[]>({
        ...clouds,
        ...clouds.items,
        type: ["string", "array"],
        description: "Cloud on which the jobs may run, or several. Default: any.",
      }),
    ),
  },
  {
    description: "Definition of jobs, which get their names from a cronjob or an array.",
    [COMPONENT]: "JobDefinition",
    ...JOB_FIELDS_TOGETHER,
  },
)
export type JobDefinition = Static<typeof JobDefinitionSchema>

/** Fields of the owner, which a body may repeat. */
export const ownerFields = { project_id, organization_id }

/** Cloud or region of a definition: a string, or a list of several. */
function oneOrSeveral(description: string) {
  return Type.Optional(
    Type.Unsafe<string | string[]>({ type: ["string", "array"], items: { type: "string" }, description }),
  )
}

/** Returns a schema of requests for responses. Its components have other names, because their fields are never null. */
function inResponse<Schema extends TSchema>(schema: Schema): Schema {
  const rename = (key: string, value: unknown): unknown => (key === COMPONENT ? `${String(value)}Output` : value)
  return JSON.parse(JSON.stringify(schema), rename) as Schema
}

/** Definition in a record. */
export const JobDefinitionRecordSchema = inResponse(
  Type.Object(
    {
      ...JobDefinitionSchema.properties,
      cloud: oneOrSeveral("A list if the definition has several."),
      region: oneOrSeveral("A list if the definition has several."),
    },
    { [COMPONENT]: "JobDefinition" },
  ),
)
export type JobDefinitionRecord = Static<typeof JobDefinitionRecordSchema>

type DefinitionSpec = Omit<JobSpec, "cancelled" | "debugEnded" | "after">

/** Schema of the fields in which null means omitted: those of a submission, also fields that are not allowed here. */
export const NULLS_OF_DEFINITION = { properties: { job_definition: JobSubmissionSchema } }

/** Rule of the fields that a submission has and a definition doesn't. Null is allowed, because it means omitted. */
export const NAMELESS: Rule = {
  keywords: {
    "/properties/job_definition/properties": Object.fromEntries(
      ["name", "namePrefix", "after", "project_id", "organization_id"].map((field) => [field, { type: "null" }]),
    ),
  },
}

/** Converts a rule of a definition to a rule of the body with the definition. */
export function inDefinition({ keywords = {}, errors, errorsNow }: Rule<SubmissionContext>): Rule<SubmissionContext> {
  const inside = (find: Rule<SubmissionContext>["errors"]) => (body: Unchecked, context: SubmissionContext) => {
    const definition = body["job_definition"]
    if (typeof definition !== "object" || definition === null) return []
    const found = find?.(definition as Unchecked, context) ?? []
    return found.map(({ pointer, detail }) => ({
      pointer: `/job_definition${pointer}`,
      detail: `job_definition.${detail}`,
    }))
  }
  const entries = Object.entries(keywords).map(([pointer, added]) => [`/properties/job_definition${pointer}`, added])
  return { keywords: Object.fromEntries(entries), errors: inside(errors), errorsNow: inside(errorsNow) }
}

/** Reasons why a definition has no such field, for the error of one, which would only be an unknown field. */
export interface FieldReasons {
  /** Form of the names of the jobs, such as `<array>-<index>`. */
  names: string
  /** Words about `after`. */
  after: string
}

/** Explains the error of a field that a submission has and a definition doesn't. */
export function aboutField(error: FieldError, { names, after }: FieldReasons): FieldError {
  const field = /^\/job_definition\/(name|namePrefix|after)$/.exec(error.pointer)?.[1]
  if (field === undefined) return error
  const why = field === "after" ? after : `each of its jobs is named ${names}`
  return { ...error, detail: `job_definition must not contain ${field}: ${why}` }
}

/** Returns the spec of the jobs of a definition. */
export function toDefinitionSpec({ cloud, ...definition }: JobDefinition): DefinitionSpec {
  const {
    cancelled: _,
    debugEnded: __,
    after: ___,
    ...spec
  } = toJobSpec({ ...definition, ...(cloud !== undefined && { cloud: [cloud].flat() }) })
  return spec
}

/** Returns the definition as it was sent. Omitted fields stay omitted, unless the API server has set a default. */
export function toDefinition(spec: DefinitionSpec): JobDefinitionRecord {
  const { cloud = [], region = [], resources, ...same } = spec
  return {
    ...same,
    ...(resources !== undefined && { resources: resourcesOf(resources) }),
    ...(cloud.length > 0 && { cloud: oneOrAll(cloud) }),
    ...(region.length > 0 && { region: oneOrAll(region) }),
  }
}

function oneOrAll(items: string[]): string | string[] {
  const [only = "", ...others] = items
  return others.length === 0 ? only : items
}

function resourcesOf({ cpu, ...same }: NonNullable<DefinitionSpec["resources"]>) {
  return { ...same, ...(cpu !== undefined && { cpu: parseCpu(cpu) }) }
}
