import type { Json } from "./parts.ts"

/**
 * What holds of bodies beside the schemas that they are validated by, because it is checked in code: in JSON Schema's
 * words where it has any, else as a format of our own, which every reader of OpenAPI may pass over.
 */

/** Formats of strings that no regular expression can say; REST answers 400 to others. None is empty. */
export const FORMATS = {
  /** Five fields or an alias, as POSIX cron has them, of a date that comes. */
  cron: "cron",
  /** A region or macro-region of the present catalogue, in one of the job's clouds. */
  region: "region",
  /** A GPU model of the present catalogue. */
  gpuModel: "gpu-model",
  /** The request's own project and its organization. */
  projectId: "project-id",
  organizationId: "organization-id",
  /** JSON content of a Google service account's key file. */
  serviceAccountKey: "service-account-key",
} as const

/** The keywords of a string in one of them. */
export function inFormat(format: keyof typeof FORMATS): Json {
  return { format: FORMATS[format], minLength: undefined }
}

/** Additions to a schema by JSON pointer, see `amended`. */
export type Additions = Readonly<Record<string, Json>>

/** A name must not look like an id. */
export const NO_UUID: Json = {
  not: { type: "string", pattern: "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$" },
}

/** What every body may repeat of the host. */
export const OWNER_RULES: Additions = {
  "/properties/project_id": inFormat("projectId"),
  "/properties/organization_id": inFormat("organizationId"),
}

/** A value that is there and not null. */
function given(...fields: string[]): Json {
  const properties = Object.fromEntries(fields.map((field) => [field, { not: { type: "null" } }]))
  return { required: fields, properties }
}

/** Null is no value: the kind's own keywords would count it. */
const GPU_RULES: Json = {
  minProperties: undefined,
  dependentRequired: undefined,
  allOf: [{ anyOf: [given("vram"), given("model")] }, { anyOf: [{ not: given("count") }, given("model")] }],
}

/** Of a job's submission, and of a cronjob's definition at `prefix`, a JSON pointer. */
function jobRules(prefix: string): Additions {
  return {
    [`${prefix}/properties/resources/properties/cpu`]: { multipleOf: 0.001 },
    [`${prefix}/properties/resources/properties/gpu/anyOf/1`]: GPU_RULES,
    [`${prefix}/properties/resources/properties/gpu/anyOf/1/properties/model`]: inFormat("gpuModel"),
  }
}

/** @param clouds those that a job may name here */
export function submissionRules(clouds: readonly string[]): Additions {
  return {
    "": { not: given("name", "namePrefix") },
    "/properties/name": NO_UUID,
    "/properties/cloud/items": { enum: clouds },
    "/properties/region/anyOf/0": inFormat("region"),
    "/properties/region/anyOf/1/items": inFormat("region"),
    ...OWNER_RULES,
    ...jobRules(""),
  }
}

/** What a submission may have and a definition has not, where null is none. */
const WITHOUT_NAME: Json = Object.fromEntries(
  ["name", "namePrefix", "project_id", "organization_id"].map((field) => [field, { type: "null" }]),
)

/** @param clouds those that a job may name here */
export function cronJobRules(clouds: readonly string[]): Additions {
  return {
    "/properties/cron_spec": inFormat("cron"),
    "/properties/job_definition/properties/cloud": { enum: clouds },
    "/properties/job_definition/properties/region": inFormat("region"),
    "/properties/job_definition/properties": WITHOUT_NAME,
    ...OWNER_RULES,
    ...jobRules("/properties/job_definition"),
  }
}
