import Type, { type Static, type TSchema } from "typebox"
import { AGE_COLUMN, defineKind, nameRules } from "./kind.ts"
import { LIMITS } from "./limits.ts"
import type { KubeObject, Stored } from "./meta.ts"
import { OfferSchema } from "./offer.ts"
import {
  ALLOWED,
  ConditionList,
  CpuQuantity,
  Int,
  immutable,
  MapOf,
  SENSITIVE,
  SecretDataKey,
  SecretName,
  SizeQuantity,
  StringEnum,
  Text,
  Time,
} from "./schema.ts"

/** The contract's job states. The last three are terminal: a job never leaves them. */
export const JOB_PHASES = ["queued", "booting", "running", "succeeded", "failed", "cancelled"] as const
export type JobPhase = (typeof JOB_PHASES)[number]

export const TERMINAL_JOB_PHASES: readonly JobPhase[] = ["succeeded", "failed", "cancelled"]

/** Whether a job in this phase has ended for good. */
export function isTerminal(phase: JobPhase | undefined): boolean {
  return phase !== undefined && TERMINAL_JOB_PHASES.includes(phase)
}

/** The contract's `vm_status`. */
export const VM_STATES = ["nonassigned", "provisioning", "booting", "running", "terminating", "terminated"] as const
export type VmState = (typeof VM_STATES)[number]

/** The contract's `credentials_status`: of the bootstrap token and secrets that the job's VM works with. */
export const CREDENTIALS_STATES = ["empty", "issued", "delivered", "revoked"] as const
export type CredentialsState = (typeof CREDENTIALS_STATES)[number]

/** How a job lets its VM be bought; `spotFirst` takes spot while there is any, else on-demand. */
export const PROVISIONINGS = ["onDemand", "spot", "spotFirst"] as const
export type Provisioning = (typeof PROVISIONINGS)[number]

/** Types of a Job's conditions; `Ready`, `Reconciling` and `Stalled` are what kstatus (Helm, Flux, Argo CD) reads. */
export const JobCondition = {
  Placed: "Placed",
  VMReady: "VMReady",
  Started: "Started",
  Complete: "Complete",
  Failed: "Failed",
  /** The command runs on the VM itself, without its image (the local cloud without a Docker engine). */
  Unisolated: "Unisolated",
  Ready: "Ready",
  Reconciling: "Reconciling",
  Stalled: "Stalled",
} as const
export type JobCondition = (typeof JobCondition)[keyof typeof JobCondition]

/** Reasons in a Job's conditions and events, stable: programs match on them. */
export const JobReason = {
  Queued: "Queued",
  NoOffer: "NoOffer",
  NoConnection: "NoConnection",
  BucketNotReached: "BucketNotReached",
  /** No machine runs both the job's image and the agent's. */
  AgentImageMismatch: "AgentImageMismatch",
  NoCapacity: "NoCapacity",
  CapReached: "CapReached",
  LaunchesPaused: "LaunchesPaused",
  Held: "Held",
  Placed: "Placed",
  Launching: "Launching",
  Booting: "Booting",
  Started: "Started",
  ContainerRestarted: "ContainerRestarted",
  BootDeadlineExceeded: "BootDeadlineExceeded",
  /** The VM said itself that it can run no container. */
  BootFailed: "BootFailed",
  OfferRefused: "OfferRefused",
  VMLost: "VMLost",
  Preempted: "Preempted",
  Succeeded: "Succeeded",
  ContainerFailed: "ContainerFailed",
  ImagePullFailed: "ImagePullFailed",
  DeadlineExceeded: "DeadlineExceeded",
  VolumeMountFailed: "VolumeMountFailed",
  VolumeFlushFailed: "VolumeFlushFailed",
  SecretMissing: "SecretMissing",
  LaunchLimitExceeded: "LaunchLimitExceeded",
  Cancelled: "Cancelled",
  Deleted: "Deleted",
} as const
export type JobReason = (typeof JobReason)[keyof typeof JobReason]

/** A variable of the container's environment: what POSIX and Docker accept, anything but `=` and NUL. */
export const ENV_NAME_PATTERN = "^[^=\\x00]+$"

const ENV_NAMES = {
  minLength: 1,
  maxLength: LIMITS.envName,
  pattern: ENV_NAME_PATTERN,
  allowed: `names of variables: at most ${LIMITS.envName} characters, not empty, none of them = or NUL`,
}

const VOLUME_NAMES = {
  maxLength: LIMITS.volumeName,
  pattern: "^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
  allowed: `at most ${LIMITS.volumeName} letters, digits, -, _ and ., with a letter or digit at both ends`,
}

const LABEL_KEYS = {
  minLength: 1,
  maxLength: LIMITS.labelKey,
  allowed: `at most ${LIMITS.labelKey} characters, not empty`,
}

export const JOB_NAME_PATTERN = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"

/** GPU requirement. NVIDIA only; `vram` is the total over all cards. */
export const GpuSchema = Type.Object(
  {
    vram: Type.Optional(SizeQuantity("Least total GPU memory over all cards, such as 24Gi.")),
    count: Type.Optional(
      Int({ minimum: 1, maximum: LIMITS.gpuCount, description: "Least number of cards; needs model." }),
    ),
    model: Type.Optional(
      Type.String({ minLength: 1, maxLength: LIMITS.gpuModel, description: "GPU model, such as A100, H100 or L4." }),
    ),
  },
  {
    minProperties: 1,
    dependentRequired: { count: ["model"] },
    description: "GPU requirement: vram, or model with count or vram. A model alone means one card.",
  },
)
export type Gpu = Static<typeof GpuSchema>

export const ResourcesSchema = Type.Object(
  {
    cpu: Type.Optional(CpuQuantity("vCPUs, at least. Default 1.")),
    memory: Type.Optional(SizeQuantity("Memory, at least. Default 4Gi.")),
    gpu: Type.Optional(GpuSchema),
  },
  { description: "What the VM must have at least." },
)
export type Resources = Static<typeof ResourcesSchema>

export const VolumeSchema = Type.Object({
  bucket: Type.String({ minLength: 1, maxLength: LIMITS.bucket, description: "Name of the storage bucket." }),
  mountPath: Type.String({
    minLength: 1,
    maxLength: LIMITS.mountPath,
    pattern: "^/",
    description: "Absolute path in the container where the bucket appears.",
    [ALLOWED]: "an absolute path such as /data",
  }),
  connection: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: LIMITS.connectionName,
      description: "Connection that reaches the bucket. Default: the project's first one that has access to it.",
    }),
  ),
  prefix: Type.Optional(Text(LIMITS.prefix, "Folder in the bucket. Default: the bucket's root.")),
})
export type Volume = Static<typeof VolumeSchema>

/** A key of a Secret (type berth.dev/env) in the Job's namespace. */
export const SecretKeySchema = Type.Object({ secret: SecretName(), key: SecretDataKey() })

/** The same as Jobs of former versions have it: no Secret has such names, so these Jobs end with SecretMissing. */
export const StoredSecretKeySchema = Type.Object({
  secret: Type.String({ minLength: 1, maxLength: 253, description: "Name of the Secret." }),
  key: Type.String({ minLength: 1, maxLength: 253, description: "Key in the Secret's data." }),
})

function secretEnvOf<T extends TSchema>(secretKey: T) {
  return Type.Optional(
    MapOf(secretKey, {
      keys: ENV_NAMES,
      maxProperties: LIMITS.secretEnvItems,
      description: "Environment variables from Secrets (type berth.dev/env) of this namespace.",
    }),
  )
}

/** The fields that describe the container itself, in a Job and in its Launch. */
const containerFields = {
  image: Type.String({
    minLength: 1,
    maxLength: LIMITS.image,
    pattern: "^[!-~]+$",
    description: "Container image reference.",
    [ALLOWED]: "an image reference such as docker.io/library/alpine:3.20, without spaces",
  }),
  command: Type.Optional(
    Type.Array(Type.String({ maxLength: LIMITS.commandItem, [SENSITIVE]: true }), {
      maxItems: LIMITS.commandItems,
      description: "Command, in place of the image's entrypoint.",
    }),
  ),
  args: Type.Optional(
    Type.Array(Type.String({ maxLength: LIMITS.commandItem, [SENSITIVE]: true }), {
      maxItems: LIMITS.commandItems,
      description: "Arguments, in place of the image's command.",
    }),
  ),
  env: Type.Optional(
    MapOf(Type.String({ maxLength: LIMITS.envValue, [SENSITIVE]: true }), {
      keys: ENV_NAMES,
      maxProperties: LIMITS.envItems,
      description: "Environment variables, in clear: use secretEnv for secrets.",
    }),
  ),
  secretEnv: secretEnvOf(SecretKeySchema),
  volumes: Type.Optional(
    MapOf(VolumeSchema, {
      keys: VOLUME_NAMES,
      maxProperties: LIMITS.volumes,
      description: "Buckets mounted into the container, by volume name.",
    }),
  ),
  maxRetries: Type.Optional(
    Int({
      maximum: LIMITS.maxRetries,
      default: 0,
      description: "How often the container is run again in its VM after it failed. Another VM begins to count anew.",
    }),
  ),
  timeoutSeconds: Type.Optional(
    Int({
      minimum: 1,
      maximum: LIMITS.timeoutSeconds,
      description: "How long the job may run, counted from the container's first start. Default: 30 days.",
    }),
  ),
}

/** The container's part of a Job, copied unchanged into its Launch. It accepts what any stored Job has. */
export const RunSchema = Type.Object(
  { ...containerFields, secretEnv: secretEnvOf(StoredSecretKeySchema) },
  { description: "The container that is run." },
)
export type Run = Static<typeof RunSchema>

const placementFields = {
  resources: Type.Optional(ResourcesSchema),
  cloud: Type.Optional(
    Type.Array(Type.String({ minLength: 1, maxLength: 32 }), {
      maxItems: LIMITS.clouds,
      description: "Clouds that the job may run on (aws, gcp, azure). Default: any.",
    }),
  ),
  region: Type.Optional(
    Type.Array(Type.String({ minLength: 1, maxLength: LIMITS.region }), {
      maxItems: LIMITS.regions,
      description: "Regions or macro-regions (us, eu, asia …) that the job may run in, a hard limit. Default: any.",
    }),
  ),
  provisioning: Type.Optional(
    StringEnum(PROVISIONINGS, {
      default: "onDemand",
      description: "How the VM is bought: onDemand, spot or spotFirst.",
    }),
  ),
  maxHourlyPriceUsd: Type.Optional(
    Type.Number({
      minimum: 0,
      maximum: LIMITS.maxHourlyPriceUsd,
      description: "Highest price of the VM, US dollars an hour.",
    }),
  ),
}

const describingFields = {
  labels: Type.Optional(
    MapOf(Type.String({ maxLength: LIMITS.labelValue }), {
      keys: LABEL_KEYS,
      maxProperties: LIMITS.labels,
      description: "Free labels; those that Kubernetes allows are mirrored to metadata.labels.",
    }),
  ),
  tags: Type.Optional(
    Type.Array(Type.String({ minLength: 1, maxLength: LIMITS.tag }), {
      maxItems: LIMITS.tags,
      description: "Free tags.",
    }),
  ),
}

const IMMUTABLE_FIELDS = [
  ...Object.keys(containerFields),
  ...Object.keys(placementFields),
  ...Object.keys(describingFields),
] as const

export const JobSpecSchema = Type.Object(
  {
    ...containerFields,
    ...placementFields,
    ...describingFields,
    ttlSecondsAfterFinished: Type.Optional(
      Int({
        maximum: LIMITS.ttlSecondsAfterFinished,
        description: "Seconds after its end when the Job is deleted. Default: 30 days.",
      }),
    ),
    cancelled: Type.Optional(
      Type.Boolean({ default: false, description: "Set to true to cancel the job; it can't be taken back." }),
    ),
  },
  {
    description: "What is to be run, and on what kind of machine.",
    "x-kubernetes-validations": [
      ...immutable(IMMUTABLE_FIELDS),
      {
        rule: "!(has(oldSelf.cancelled) && oldSelf.cancelled) || (has(self.cancelled) && self.cancelled)",
        message: "cancelled can't be taken back: create a new job",
        fieldPath: ".cancelled",
      },
    ],
  },
)
export type JobSpec = Static<typeof JobSpecSchema>

/** An offer that refused the job, and why; the reason is one of the cloud error classes. */
const RefusedOfferSchema = Type.Object({
  cloud: Text(32, "Cloud."),
  region: Text(LIMITS.region, "Region."),
  instanceType: Text(128, "Machine type."),
  provisioning: Text(16, "onDemand or spot."),
  reason: Text(
    64,
    "Capacity, Quota, Credentials, Region, InvalidRequest, Unavailable, BootDeadlineExceeded, BootFailed, VMLost or Preempted.",
  ),
  message: Text(1024, "What the cloud said."),
  time: Time("When."),
})
export type RefusedOffer = Static<typeof RefusedOfferSchema>

/** The offer that a job got, and the connection that pays for it. */
const PlacementSchema = Type.Object({
  offer: OfferSchema,
  connection: Type.Optional(Text(LIMITS.connectionName, "Connection whose account the VM is in.")),
  reason: Text(LIMITS.message, "Why this offer: how many fitted, what the next one would have cost."),
})
export type Placement = Static<typeof PlacementSchema>

export const JobStatusSchema = Type.Object(
  {
    observedGeneration: Type.Optional(Int()),
    phase: Type.Optional(StringEnum(JOB_PHASES, { description: "The contract's status." })),
    reason: Type.Optional(Text(128, "Why the job is in this phase, one word.")),
    message: Type.Optional(Text(LIMITS.message, "The same for people.")),
    conditions: Type.Optional(ConditionList),
    placement: Type.Optional(PlacementSchema),
    vm: Type.Optional(
      Type.Object({
        state: StringEnum(VM_STATES),
        id: Type.Optional(Text(256, "The cloud's id of the VM.")),
        ipAddress: Type.Optional(Text(64, "Public address, where it has one.")),
      }),
    ),
    credentials: Type.Optional(StringEnum(CREDENTIALS_STATES)),
    volumes: Type.Optional(
      MapOf(
        Type.Object({
          connection: Text(LIMITS.connectionName, "Connection that reaches the bucket."),
          region: Type.Optional(Text(LIMITS.region, "Where the bucket is.")),
        }),
        { keys: VOLUME_NAMES, maxProperties: LIMITS.volumes, description: "How each volume's bucket is reached." },
      ),
    ),
    launches: Type.Optional(
      Type.Object({
        count: Int({ description: "Launches made so far; the next one's number is one higher." }),
        billed: Type.Optional(Int({ description: "Launches that got a VM." })),
        current: Type.Optional(Text(253, "Name of the Launch that the job lives in now.")),
        lost: Type.Optional(Int({ description: "Launches whose VM was lost or preempted." })),
      }),
    ),
    refusedOffers: Type.Optional(
      Type.Array(RefusedOfferSchema, {
        maxItems: LIMITS.refusedOffers,
        description: "The latest offers that refused the job.",
      }),
    ),
    retryCount: Type.Optional(Int({ description: "Container runs after the first, in the current VM." })),
    exitCode: Type.Optional(Type.Integer({ description: "Exit code of the container's last run." })),
    cost: Type.Optional(
      Type.Object({
        estimatedUsd: Type.Optional(Type.Number({ minimum: 0 })),
        actualUsd: Type.Optional(Type.Number({ minimum: 0 })),
      }),
    ),
    startTime: Type.Optional(Time("When the container first started.")),
    completionTime: Type.Optional(Time("When the job ended.")),
    lastHeartbeatTime: Type.Optional(Time("When the VM was last heard.")),
  },
  { description: "What has happened so far. Written by Berth's job controller only." },
)
export type JobStatus = Static<typeof JobStatusSchema>

export type Job = KubeObject<JobSpec, JobStatus>
export type StoredJob = Stored<Job>

/** Keeps a Job until its VMs are gone. */
export const JOB_FINALIZER = "berth.dev/job"

export const JOB = defineKind({
  kind: "Job",
  plural: "jobs",
  singular: "job",
  shortNames: ["bj"],
  namespaced: true,
  description: "A container that Berth runs to its end on the cheapest cloud VM that fits.",
  spec: JobSpecSchema,
  status: JobStatusSchema,
  rules: [
    ...nameRules(LIMITS.jobName),
    {
      rule: `self.metadata.name.matches('${JOB_NAME_PATTERN}')`,
      message: "metadata.name must be of a-z, 0-9 and -, with a letter or digit at both ends",
    },
  ],
  printerColumns: [
    { name: "Phase", type: "string", jsonPath: ".status.phase" },
    { name: "Reason", type: "string", jsonPath: ".status.reason" },
    { name: "Cloud", type: "string", jsonPath: ".status.placement.offer.cloud" },
    { name: "Type", type: "string", jsonPath: ".status.placement.offer.instanceType" },
    { name: "USD/h", type: "number", jsonPath: ".status.placement.offer.hourlyPriceUsd" },
    { name: "Cost", type: "number", jsonPath: ".status.cost.actualUsd", description: "Actual cost, US dollars." },
    { name: "Retries", type: "integer", jsonPath: ".status.retryCount", priority: 1 },
    { name: "Region", type: "string", jsonPath: ".status.placement.offer.region", priority: 1 },
    { name: "VM", type: "string", jsonPath: ".status.vm.id", priority: 1 },
    { name: "Image", type: "string", jsonPath: ".spec.image", priority: 1 },
    { name: "Message", type: "string", jsonPath: ".status.message", priority: 1 },
    AGE_COLUMN,
  ],
  selectableFields: [".status.phase", ".status.placement.offer.cloud", ".status.placement.connection"],
})
