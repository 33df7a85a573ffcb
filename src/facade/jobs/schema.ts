import Type, { type Static } from "typebox"
import {
  CREDENTIALS_STATES,
  GpuSchema,
  JOB_NAME_PATTERN,
  JOB_PHASES,
  JobSpecSchema,
  PROVISIONINGS,
  ResourcesSchema,
  StoredSecretKeySchema,
  VM_STATES,
  VolumeSchema,
} from "../../apis/job.ts"
import { LIMITS } from "../../apis/limits.ts"
import { ARCHITECTURES, OFFER_PROVISIONINGS } from "../../apis/offer.ts"
import { ALLOWED, StringEnum } from "../../apis/schema.ts"
import type { PageOf } from "../../http/json-schema.ts"
import { noUuid } from "../names.ts"

/**
 * The REST API's shapes of a job, with the contract's property names to the letter. Leaf fields are those of the
 * Job kind itself, so that both entrances take the same values.
 */

const spec = JobSpecSchema.properties

const NAME_RULE = "of a-z, 0-9 and -, and start and end with a letter or digit"

const SubmittedGpuSchema = Type.Unsafe<string | Static<typeof GpuSchema>>({
  ...GpuSchema,
  ...GpuSchema.properties.vram,
  type: ["string", "object"],
  description: "GPU memory in total, such as 24Gi; or vram, model with count, model with vram.",
})

const SubmittedRegionSchema = Type.Unsafe<string | string[]>({
  ...spec.region,
  ...spec.region.items,
  type: ["string", "array"],
  description: "A region or macro-region (us, eu, asia …), or several.",
})

/** What POST /jobs takes: the contract's fields, then the extensions that the design names. */
export const JobSubmissionSchema = Type.Object(
  {
    name: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: LIMITS.jobName,
        pattern: JOB_NAME_PATTERN,
        description: "Unique in the project. Default: a readable name is made.",
        [ALLOWED]: `a name ${NAME_RULE}`,
        ...noUuid("job"),
      }),
    ),
    namePrefix: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: LIMITS.namePrefix,
        pattern: "^[a-z0-9][-a-z0-9]*$",
        description: "In place of name: a dash and random characters are added.",
        [ALLOWED]: "of a-z, 0-9 and -, and start with a letter or digit",
      }),
    ),
    image: spec.image,
    command: spec.command,
    args: spec.args,
    env: spec.env,
    volumes: spec.volumes,
    resources: Type.Optional(
      Type.Object(
        {
          cpu: Type.Optional(
            Type.Number({
              minimum: 0.001,
              maximum: 9999,
              description: "vCPUs, at least. Default 1. May be a fraction.",
            }),
          ),
          memory: ResourcesSchema.properties.memory,
          gpu: Type.Optional(SubmittedGpuSchema),
        },
        { description: "What the VM must have at least." },
      ),
    ),
    cloud: spec.cloud,
    region: Type.Optional(SubmittedRegionSchema),
    maxRetries: spec.maxRetries,
    labels: spec.labels,
    tags: spec.tags,
    timeoutSeconds: spec.timeoutSeconds,
    provisioning: spec.provisioning,
    maxHourlyPriceUsd: spec.maxHourlyPriceUsd,
    secretEnv: spec.secretEnv,
    ttlSecondsAfterFinished: spec.ttlSecondsAfterFinished,
    project_id: Type.Optional(
      Type.String({ maxLength: 64, description: "The host's project; nothing else is taken." }),
    ),
    organization_id: Type.Optional(
      Type.String({ maxLength: 64, description: "The project's organization; nothing else is taken." }),
    ),
  },
  { description: "A job to be run." },
)
export type JobSubmission = Static<typeof JobSubmissionSchema>

/** What POST /jobs answers. */
export const JobCreatedSchema = Type.Object({
  job_id: Type.String(),
  name: Type.String(),
  status: StringEnum(["queued"]),
})
export type JobCreated = Static<typeof JobCreatedSchema>

/** A value that is null until it is known. */
export function nullable<T extends string | number>(type: "string" | "number" | "integer", description: string) {
  return Type.Unsafe<T | null>({ type: [type, "null"], description })
}

/** A map with whatever keys the job was given. */
function RecordOf<Value>(value: object) {
  return Type.Unsafe<Record<string, Value>>({ type: "object", additionalProperties: value })
}

const VolumeRecordSchema = Type.Object({
  name: Type.String(),
  bucket: VolumeSchema.properties.bucket,
  mountPath: VolumeSchema.properties.mountPath,
  connection: nullable<string>("string", "Null: the project's first connection with access."),
  prefix: nullable<string>("string", "Null: the bucket's root."),
})

/** GPUs in a record; null: none. */
export const GpuRecordSchema = Type.Unsafe<{ vram: string | null; count: number | null; model: string | null } | null>({
  type: ["object", "null"],
  required: ["vram", "count", "model"],
  properties: {
    vram: nullable<string>("string", "Least total GPU memory."),
    count: nullable<number>("integer", "Least number of cards."),
    model: nullable<string>("string", "GPU model."),
  },
})

/** A job as GET, cancel and lists give it: every field of the contract, then the extensions. */
export const JobRecordSchema = Type.Object({
  id: Type.String({ description: "UUID." }),
  organization_id: Type.String(),
  project_id: Type.String(),
  name: Type.String(),
  namePrefix: nullable<string>("string", "The prefix that the name was made from."),
  status: StringEnum(JOB_PHASES),
  credentials_status: StringEnum(CREDENTIALS_STATES),
  vm_status: StringEnum(VM_STATES),
  image: Type.String(),
  command: Type.Array(Type.String()),
  args: Type.Array(Type.String()),
  env: RecordOf<string>({ type: "string" }),
  volumes: Type.Array(VolumeRecordSchema),
  resources: Type.Object({ cpu: Type.Number(), memory: Type.String(), gpu: GpuRecordSchema }),
  cloud: Type.Array(Type.String()),
  region: Type.Array(Type.String()),
  labels: RecordOf<string>({ type: "string" }),
  tags: Type.Array(Type.String()),
  retry_count: Type.Integer(),
  max_retries: Type.Integer(),
  selected_provider: nullable<string>("string", "Routing decision."),
  selected_region: nullable<string>("string", "Routing decision."),
  selected_instance_type: nullable<string>("string", "Routing decision."),
  placement_reason: nullable<string>("string", "Why this machine, and what the next one would have cost."),
  vm_instance_id: nullable<string>("string", "The cloud's id of the VM."),
  ip_address: nullable<string>("string", "The VM's public address."),
  estimated_cost: nullable<number>("number", "US dollars."),
  actual_cost: nullable<number>("number", "US dollars."),
  created_at: Type.String(),
  updated_at: Type.String(),
  last_heartbeat_at: nullable<string>("string", "When the VM was last heard."),
  started_at: nullable<string>("string", "When the container first started."),
  ended_at: nullable<string>("string", "When the job ended."),
  timeout_seconds: Type.Integer(),
  error_message: nullable<string>("string", "Why the job failed."),
  reason: nullable<string>("string", "Why the job is in its present status, one word."),
  message: nullable<string>("string", "The same for people."),
  exit_code: nullable<number>("integer", "Exit code of the container's last run."),
  provisioning: StringEnum(PROVISIONINGS),
  maxHourlyPriceUsd: nullable<number>("number", "US dollars an hour."),
  secretEnv: RecordOf<Static<typeof StoredSecretKeySchema>>(StoredSecretKeySchema),
  ttlSecondsAfterFinished: nullable<number>("integer", "Null: the installation's own time."),
})
export type JobRecord = Static<typeof JobRecordSchema>

/** What GET /jobs answers. */
export type JobList = PageOf<"jobs", JobRecord>

/** What happens to a job that has such a plan. */
export const PLAN_VERDICTS = ["placeable", "waits", "noOffer"] as const

/** A machine that a job may get. */
export const PlannedPlacementSchema = Type.Object({
  provider: Type.String(),
  region: Type.String(),
  zone: nullable<string>("string", "Null: any zone of the region."),
  instance_type: Type.String(),
  provisioning: StringEnum(OFFER_PROVISIONINGS),
  connection: nullable<string>("string", "Who pays. Null: no connection is needed."),
  hourly_price_usd: Type.Number(),
  price_date: nullable<string>("string", "The day of this price (YYYY-MM-DD). Null: it is the installation's own."),
  estimated_cost_usd: Type.Number({ description: "In all, for the time that the job is expected to take." }),
  cpu: Type.Number({ description: "vCPUs of the machine." }),
  memory: Type.String({ description: "Of the machine, such as 16Gi." }),
  architecture: StringEnum(ARCHITECTURES),
  gpu: GpuRecordSchema,
  why: Type.String({ description: "The placement in one line, compared with the first." }),
})

/** What POST /jobs?dry_run=true answers. */
export const JobPlanSchema = Type.Object(
  {
    dry_run: Type.Boolean({ description: "Always true: nothing was made." }),
    name: Type.String({ description: "The job's name. One that is made up is another at each request." }),
    verdict: StringEnum(PLAN_VERDICTS, {
      description:
        "placeable: a VM would be asked for at once. waits: the job would stay queued. noOffer: it would fail.",
    }),
    reason: Type.String({ description: "The verdict as the job's condition Placed has it, one word." }),
    message: Type.String({ description: "The same for people, in the same words." }),
    estimated_cost: nullable<number>("number", "US dollars, of the first placement."),
    placements: Type.Array(PlannedPlacementSchema, { description: "What would be tried, first choice first." }),
  },
  { description: "What would become of a job if it were submitted now." },
)
export type JobPlanRecord = Static<typeof JobPlanSchema>
