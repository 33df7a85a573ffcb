import Type, { type Static } from "typebox"
import { LIMITS } from "../../../core/apis/field-limits.ts"
import { GpuSchema, JOB_FIELDS_TOGETHER, JobSpecSchema, ResourcesSchema } from "../../../core/apis/job.ts"
import { JOB_NAME_PATTERN } from "../../../core/apis/prerequisites.ts"
import { ALLOWED, COMPONENT, StringEnum } from "../../../core/apis/schema.ts"
import { noUuid } from "../../names.ts"
import { WARNINGS } from "./plan.ts"

/**
 * Schemas of a job. The property names are exactly those of the contract. Leaf fields come from the Job kind itself, so
 * that REST and Kubernetes accept the same values.
 */

const spec = JobSpecSchema.properties

/** Fields that a body shares with the kind. A new field of the kind is one of them. */
const { cancelled: _cancelled, debugEnded: _debugEnded, resources: _resources, region: _region, ...same } = spec

const NAME_RULE = "of a-z, 0-9 and -, with a letter or digit at both ends"

const SubmittedGpuSchema = Type.Unsafe<string | Static<typeof GpuSchema>>({
  ...GpuSchema,
  ...GpuSchema.properties.vram,
  type: ["string", "object"],
  description: "Total GPU memory, such as 24Gi; or an object with vram, with model and count, or with model and vram.",
})

const SubmittedRegionSchema = Type.Unsafe<string | string[]>({
  ...spec.region,
  ...spec.region.items,
  type: ["string", "array"],
  description: "A region or macro-region (us, eu, asia …), or several.",
})

/** Body of POST /jobs: the contract's fields, then the extensions that the design names. */
export const JobSubmissionSchema = Type.Object(
  {
    name: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: LIMITS.jobName,
        pattern: JOB_NAME_PATTERN,
        description: "Unique in the project. Default: a generated readable name.",
        [ALLOWED]: `a name ${NAME_RULE}`,
        ...noUuid("job"),
      }),
    ),
    namePrefix: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: LIMITS.namePrefix,
        pattern: "^[a-z0-9][-a-z0-9]*$",
        description: "Alternative to name: Berth appends a dash and random characters.",
        [ALLOWED]: "of a-z, 0-9 and -, with a letter or digit first",
      }),
    ),
    ...same,
    resources: Type.Optional(
      Type.Object(
        {
          cpu: Type.Optional(
            Type.Number({
              minimum: 0.001,
              maximum: 9999,
              description: "Minimum number of vCPUs, may be a fraction. Default 1.",
            }),
          ),
          memory: ResourcesSchema.properties.memory,
          gpu: Type.Optional(SubmittedGpuSchema),
          disk: ResourcesSchema.properties.disk,
        },
        { description: "Minimum resources of the VM.", [COMPONENT]: "Resources" },
      ),
    ),
    region: Type.Optional(SubmittedRegionSchema),
    project_id: Type.Optional(
      Type.String({ maxLength: 64, description: "The request's project; any other value is rejected." }),
    ),
    organization_id: Type.Optional(
      Type.String({ maxLength: 64, description: "The project's organization; any other value is rejected." }),
    ),
  },
  { description: "New job.", ...JOB_FIELDS_TOGETHER },
)
export type JobSubmission = Static<typeof JobSubmissionSchema>

/** Response of POST /jobs. */
export const JobCreatedSchema = Type.Object({
  job_id: Type.String(),
  name: Type.String(),
  status: StringEnum(["queued"]),
  warnings: WARNINGS,
})
export type JobCreated = Static<typeof JobCreatedSchema>
