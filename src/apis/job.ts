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

/** Job states of the contract. The last three are terminal: a job never leaves them. */
export const JOB_PHASES = ["queued", "booting", "running", "succeeded", "failed", "cancelled"] as const
export type JobPhase = (typeof JOB_PHASES)[number]

export const TERMINAL_JOB_PHASES: readonly JobPhase[] = ["succeeded", "failed", "cancelled"]

/** Returns true if the phase is terminal. */
export function isTerminal(phase: JobPhase | undefined): boolean {
  return phase !== undefined && TERMINAL_JOB_PHASES.includes(phase)
}

/** States of `vm_status` in the contract. */
export const VM_STATES = ["nonassigned", "provisioning", "booting", "running", "terminating", "terminated"] as const
export type VmState = (typeof VM_STATES)[number]

/** States of `credentials_status` in the contract: the bootstrap token and secrets of the job's VM. */
export const CREDENTIALS_STATES = ["empty", "issued", "delivered", "revoked"] as const
export type CredentialsState = (typeof CREDENTIALS_STATES)[number]

/** Ways to buy a job's VM. `spotFirst` uses on-demand only if no spot offer is available. */
export const PROVISIONINGS = ["onDemand", "spot", "spotFirst"] as const
export type Provisioning = (typeof PROVISIONINGS)[number]

/** Types of a Job's conditions. Helm, Flux and Argo CD read `Ready`, `Reconciling` and `Stalled` (kstatus). */
export const JobCondition = {
  Placed: "Placed",
  VMReady: "VMReady",
  Started: "Started",
  Complete: "Complete",
  Failed: "Failed",
  /** The command runs directly on the host, without its image: the local cloud has no Docker engine. */
  Unisolated: "Unisolated",
  Ready: "Ready",
  Reconciling: "Reconciling",
  Stalled: "Stalled",
} as const
export type JobCondition = (typeof JobCondition)[keyof typeof JobCondition]

/** Reasons of a Job's conditions and events. They are stable: programs match on them. */
export const JobReason = {
  Queued: "Queued",
  NoOffer: "NoOffer",
  NoConnection: "NoConnection",
  BucketNotReached: "BucketNotReached",
  /** No CPU architecture is supported by both the job's image and the agent's image. */
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
  /** The VM reported that it cannot run containers. */
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

/** Name of an environment variable: everything that POSIX and Docker accept, except `=` and NUL. */
export const ENV_NAME_PATTERN = "^[^=\\x00]+$"

const ENV_NAMES = {
  minLength: 1,
  maxLength: LIMITS.envName,
  pattern: ENV_NAME_PATTERN,
  allowed: `names of variables: 1 to ${LIMITS.envName} characters, without = and NUL`,
}

const VOLUME_NAMES = {
  maxLength: LIMITS.volumeName,
  pattern: "^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
  allowed: `at most ${LIMITS.volumeName} letters, digits, -, _ and ., with a letter or digit at both ends`,
}

const LABEL_KEYS = {
  minLength: 1,
  maxLength: LIMITS.labelKey,
  allowed: `1 to ${LIMITS.labelKey} characters`,
}

export const JOB_NAME_PATTERN = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"

/** GPU requirement, NVIDIA only. `vram` is the total of all cards. */
export const GpuSchema = Type.Object(
  {
    vram: Type.Optional(SizeQuantity("Minimum GPU memory, summed over all cards, such as 24Gi.")),
    count: Type.Optional(
      Int({ minimum: 1, maximum: LIMITS.gpuCount, description: "Minimum number of cards. Requires model." }),
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
    cpu: Type.Optional(CpuQuantity("Minimum number of vCPUs. Default: 1.")),
    memory: Type.Optional(SizeQuantity("Minimum memory. Default: 4Gi.")),
    gpu: Type.Optional(GpuSchema),
  },
  { description: "Minimum resources of the VM." },
)
export type Resources = Static<typeof ResourcesSchema>

export const VolumeSchema = Type.Object({
  bucket: Type.String({ minLength: 1, maxLength: LIMITS.bucket, description: "Name of the storage bucket." }),
  mountPath: Type.String({
    minLength: 1,
    maxLength: LIMITS.mountPath,
    pattern: "^/",
    description: "Absolute path in the container at which the bucket is mounted.",
    [ALLOWED]: "an absolute path such as /data",
  }),
  connection: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: LIMITS.connectionName,
      description: "Connection that gives access to the bucket. Default: the project's first connection with access.",
    }),
  ),
  prefix: Type.Optional(Text(LIMITS.prefix, "Folder in the bucket. Default: the bucket's root.")),
})
export type Volume = Static<typeof VolumeSchema>

/** A key of a Secret (type berth.dev/env) in the Job's namespace. */
export const SecretKeySchema = Type.Object({ secret: SecretName(), key: SecretDataKey() })

/**
 * Key of a Secret as Jobs of earlier versions stored it. No Secret can have such a name, so these Jobs fail with
 * SecretMissing.
 */
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

/** Fields of the container, in a Job and in its Launch. */
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
      description: "Command. Overrides the image's entrypoint.",
    }),
  ),
  args: Type.Optional(
    Type.Array(Type.String({ maxLength: LIMITS.commandItem, [SENSITIVE]: true }), {
      maxItems: LIMITS.commandItems,
      description: "Arguments. Override the image's command.",
    }),
  ),
  env: Type.Optional(
    MapOf(Type.String({ maxLength: LIMITS.envValue, [SENSITIVE]: true }), {
      keys: ENV_NAMES,
      maxProperties: LIMITS.envItems,
      description: "Environment variables in plain text. Use secretEnv for secrets.",
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
      description: "Number of times to restart a failed container on its VM. A new VM starts the count at 0.",
    }),
  ),
  timeoutSeconds: Type.Optional(
    Int({
      minimum: 1,
      maximum: LIMITS.timeoutSeconds,
      description: "Maximum run time, counted from the container's first start. Default: 30 days.",
    }),
  ),
}

/** The container's part of a Job, copied unchanged into its Launch. It accepts every stored Job. */
export const RunSchema = Type.Object(
  { ...containerFields, secretEnv: secretEnvOf(StoredSecretKeySchema) },
  { description: "Container to run." },
)
export type Run = Static<typeof RunSchema>

const placementFields = {
  resources: Type.Optional(ResourcesSchema),
  cloud: Type.Optional(
    Type.Array(Type.String({ minLength: 1, maxLength: 32 }), {
      maxItems: LIMITS.clouds,
      description: "Clouds on which the job may run: aws, gcp, azure. Default: any.",
    }),
  ),
  region: Type.Optional(
    Type.Array(Type.String({ minLength: 1, maxLength: LIMITS.region }), {
      maxItems: LIMITS.regions,
      description:
        "Regions or macro-regions (us, eu, asia …) in which the job may run. Berth uses no other. Default: any.",
    }),
  ),
  provisioning: Type.Optional(
    StringEnum(PROVISIONINGS, {
      default: "onDemand",
      description: "Purchase option of the VM: onDemand, spot, or spotFirst (spot if available, else on-demand).",
    }),
  ),
  maxHourlyPriceUsd: Type.Optional(
    Type.Number({
      minimum: 0,
      maximum: LIMITS.maxHourlyPriceUsd,
      description: "Maximum price of the VM, USD per hour.",
    }),
  ),
}

const describingFields = {
  labels: Type.Optional(
    MapOf(Type.String({ maxLength: LIMITS.labelValue }), {
      keys: LABEL_KEYS,
      maxProperties: LIMITS.labels,
      description: "User-defined labels. Those with Kubernetes' label syntax are copied to metadata.labels.",
    }),
  ),
  tags: Type.Optional(
    Type.Array(Type.String({ minLength: 1, maxLength: LIMITS.tag }), {
      maxItems: LIMITS.tags,
      description: "User-defined tags.",
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
        description: "Seconds after which a finished Job is deleted. Default: 30 days.",
      }),
    ),
    cancelled: Type.Optional(
      Type.Boolean({ default: false, description: "Set to true to cancel the job. Irreversible." }),
    ),
  },
  {
    description: "Container to run, and requirements for its VM.",
    "x-kubernetes-validations": [
      ...immutable(IMMUTABLE_FIELDS),
      {
        rule: "!(has(oldSelf.cancelled) && oldSelf.cancelled) || (has(self.cancelled) && self.cancelled)",
        message: "cancelled cannot be set back to false: create a new job",
        fieldPath: ".cancelled",
      },
    ],
  },
)
export type JobSpec = Static<typeof JobSpecSchema>

/** Offer that was rejected, and the cause. The reason is a class of cloud errors. */
const RefusedOfferSchema = Type.Object({
  cloud: Text(32, "Cloud."),
  region: Text(LIMITS.region, "Region."),
  instanceType: Text(128, "Machine type."),
  provisioning: Text(16, "Purchase option: onDemand or spot."),
  reason: Text(
    64,
    "Capacity, Quota, Credentials, Region, InvalidRequest, Unavailable, BootDeadlineExceeded, BootFailed, VMLost or Preempted.",
  ),
  message: Text(1024, "Message of the cloud."),
  time: Time("When."),
})
export type RefusedOffer = Static<typeof RefusedOfferSchema>

/** Offer of a job, and the connection that pays for it. */
const PlacementSchema = Type.Object({
  offer: OfferSchema,
  connection: Type.Optional(Text(LIMITS.connectionName, "Connection of the account that has the VM.")),
  reason: Text(
    LIMITS.message,
    "Explanation of the choice: the number of matching offers, and the price of the next one.",
  ),
})
export type Placement = Static<typeof PlacementSchema>

export const JobStatusSchema = Type.Object(
  {
    observedGeneration: Type.Optional(Int()),
    phase: Type.Optional(StringEnum(JOB_PHASES, { description: "Status of the job, as in the REST API." })),
    reason: Type.Optional(Text(128, "Reason for the phase, one CamelCase word.")),
    message: Type.Optional(Text(LIMITS.message, "Explanation of the phase for people.")),
    conditions: Type.Optional(ConditionList),
    placement: Type.Optional(PlacementSchema),
    vm: Type.Optional(
      Type.Object({
        state: StringEnum(VM_STATES),
        id: Type.Optional(Text(256, "Id of the VM in the cloud.")),
        ipAddress: Type.Optional(Text(64, "Public IP address of the VM, if it has one.")),
      }),
    ),
    credentials: Type.Optional(StringEnum(CREDENTIALS_STATES)),
    volumes: Type.Optional(
      MapOf(
        Type.Object({
          connection: Text(LIMITS.connectionName, "Connection that gives access to the bucket."),
          region: Type.Optional(Text(LIMITS.region, "Region of the bucket.")),
        }),
        { keys: VOLUME_NAMES, maxProperties: LIMITS.volumes, description: "Access to the bucket of each volume." },
      ),
    ),
    launches: Type.Optional(
      Type.Object({
        count: Int({ description: "Number of Launches so far. The next Launch gets the next number." }),
        billed: Type.Optional(Int({ description: "Number of Launches that got a VM." })),
        current: Type.Optional(Text(253, "Name of the job's current Launch.")),
        lost: Type.Optional(Int({ description: "Number of Launches whose VM was lost or preempted." })),
      }),
    ),
    refusedOffers: Type.Optional(
      Type.Array(RefusedOfferSchema, {
        maxItems: LIMITS.refusedOffers,
        description: "Most recent offers that were rejected.",
      }),
    ),
    retryCount: Type.Optional(Int({ description: "Number of container restarts on the current VM." })),
    exitCode: Type.Optional(Type.Integer({ description: "Exit code of the container's last run." })),
    cost: Type.Optional(
      Type.Object({
        estimatedUsd: Type.Optional(Type.Number({ minimum: 0 })),
        actualUsd: Type.Optional(Type.Number({ minimum: 0 })),
      }),
    ),
    startTime: Type.Optional(Time("Time of the container's first start.")),
    completionTime: Type.Optional(Time("Time at which the job ended.")),
    lastHeartbeatTime: Type.Optional(Time("Time of the VM's last heartbeat.")),
  },
  { description: "Observed state. Only Berth's job controller writes it." },
)
export type JobStatus = Static<typeof JobStatusSchema>

export type Job = KubeObject<JobSpec, JobStatus>
export type StoredJob = Stored<Job>

/** Finalizer that holds a Job until its VMs are deleted. */
export const JOB_FINALIZER = "berth.dev/job"

export const JOB = defineKind({
  kind: "Job",
  plural: "jobs",
  singular: "job",
  shortNames: ["bj"],
  namespaced: true,
  description: "A container that Berth runs to completion on the cheapest cloud VM that meets its requirements.",
  spec: JobSpecSchema,
  status: JobStatusSchema,
  rules: [
    ...nameRules(LIMITS.jobName),
    {
      rule: `self.metadata.name.matches('${JOB_NAME_PATTERN}')`,
      message: "metadata.name must consist of a-z, 0-9 and -, with a letter or digit at both ends",
    },
  ],
  printerColumns: [
    { name: "Phase", type: "string", jsonPath: ".status.phase" },
    { name: "Reason", type: "string", jsonPath: ".status.reason" },
    { name: "Cloud", type: "string", jsonPath: ".status.placement.offer.cloud" },
    { name: "Type", type: "string", jsonPath: ".status.placement.offer.instanceType" },
    { name: "USD/h", type: "number", jsonPath: ".status.placement.offer.hourlyPriceUsd" },
    { name: "Cost", type: "number", jsonPath: ".status.cost.actualUsd", description: "Actual cost, USD." },
    { name: "Retries", type: "integer", jsonPath: ".status.retryCount", priority: 1 },
    { name: "Region", type: "string", jsonPath: ".status.placement.offer.region", priority: 1 },
    { name: "VM", type: "string", jsonPath: ".status.vm.id", priority: 1 },
    { name: "Image", type: "string", jsonPath: ".spec.image", priority: 1 },
    { name: "Message", type: "string", jsonPath: ".status.message", priority: 1 },
    AGE_COLUMN,
  ],
  selectableFields: [".status.phase", ".status.placement.offer.cloud", ".status.placement.connection"],
})
