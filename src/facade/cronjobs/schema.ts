import Type, { type Static } from "typebox"
import { CronJobSpecSchema } from "../../apis/cronjob.ts"
import { JobSpecSchema, RunSchema } from "../../apis/job.ts"
import { ALLOWED } from "../../apis/schema.ts"
import type { PageOf } from "../../http/json-schema.ts"
import { JobSubmissionSchema } from "../jobs/schema.ts"
import { noUuid } from "../names.ts"

/** The REST API's shapes of a cronjob, with the contract's property names to the letter. */

const {
  name: _name,
  namePrefix: _namePrefix,
  project_id,
  organization_id,
  cloud: _cloud,
  region: _region,
  ...definitionFields
} = JobSubmissionSchema.properties

const { cloud: clouds, region: regions } = JobSpecSchema.properties

/** A job submission without a name, whose cloud and region are single strings. */
export const JobDefinitionSchema = Type.Object(
  {
    ...definitionFields,
    cloud: Type.Optional(
      Type.String({ ...clouds.items, description: "Cloud on which the jobs may run. Default: any." }),
    ),
    region: Type.Optional(
      Type.String({ ...regions.items, description: "Region or macro-region in which the jobs may run. Default: any." }),
    ),
  },
  { description: "Definition of the jobs. Each job is named <cronjob>-<UTC timestamp>." },
)
export type JobDefinition = Static<typeof JobDefinitionSchema>

const changeableFields = {
  cron_spec: Type.String({
    ...CronJobSpecSchema.properties.schedule,
    description: "Standard cron expression of five fields, or an alias such as @hourly; in UTC.",
  }),
  job_definition: JobDefinitionSchema,
  is_active: Type.Boolean({ description: "False while the schedule is paused." }),
}

const ownerFields = { project_id, organization_id }

/** What POST /cronjobs takes. */
export const CronJobCreationSchema = Type.Object(
  {
    name: Type.String({
      minLength: 3,
      maxLength: 100,
      pattern: "^[a-z0-9][a-z0-9-]*$",
      description: "Unique in the project.",
      [ALLOWED]: "of a-z, 0-9 and -, and start with a letter or digit",
      ...noUuid("cronjob"),
    }),
    cron_spec: changeableFields.cron_spec,
    job_definition: changeableFields.job_definition,
    is_active: Type.Optional(Type.Boolean({ ...changeableFields.is_active, default: true })),
    ...ownerFields,
  },
  { description: "New cronjob." },
)
export type CronJobCreation = Static<typeof CronJobCreationSchema>

/** What PATCH /cronjobs/{name} takes. What is left out or null stays as it is. */
export const CronJobChangeSchema = Type.Object(
  {
    cron_spec: Type.Optional(changeableFields.cron_spec),
    job_definition: Type.Optional(changeableFields.job_definition),
    is_active: Type.Optional(changeableFields.is_active),
    ...ownerFields,
  },
  { description: "Change of a cronjob." },
)
export type CronJobChange = Static<typeof CronJobChangeSchema>

/** One place of a definition that kubectl may have given several of, which REST can show but not take. */
function oneOrSeveral(description: string) {
  return Type.Optional(
    Type.Unsafe<string | string[]>({ type: ["string", "array"], items: { type: "string" }, description }),
  )
}

/** A cronjob as the REST API shows it: every field of the contract. */
export const CronJobRecordSchema = Type.Object({
  id: Type.String({ description: "UUID." }),
  organization_id: Type.String(),
  project_id: Type.String(),
  name: Type.String(),
  cron_spec: Type.String({ description: "Cron expression, in UTC." }),
  job_definition: Type.Object({
    ...JobDefinitionSchema.properties,
    cloud: oneOrSeveral("A list if the definition has several, for example from kubectl."),
    region: oneOrSeveral("A list if the definition has several, for example from kubectl."),
    // Former versions took names that no Secret can have.
    secretEnv: RunSchema.properties.secretEnv,
  }),
  is_active: Type.Boolean(),
  last_triggered_at: Type.Unsafe<string | null>({
    type: ["string", "null"],
    description: "Scheduled time of the last tick that created a job.",
  }),
  created_at: Type.String(),
  updated_at: Type.String(),
})
export type CronJobRecord = Static<typeof CronJobRecordSchema>

/** What GET /cronjobs answers. */
export type CronJobList = PageOf<"cronjobs", CronJobRecord>
