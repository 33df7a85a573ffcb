import Type, { type Static } from "typebox"
import { DebugSchema } from "./debug.ts"
import { DiskSize } from "./disk.ts"
import { LIMITS } from "./field-limits.ts"
import { IMAGE_PATTERN } from "./image.ts"
import { AGE_COLUMN, defineKind, nameRules } from "./kind.ts"
import type { KubeObject, Stored } from "./meta.ts"
import { OfferSchema } from "./offer.ts"
import { AfterSchema, JOB_NAME_PATTERN, ObservedAfterSchema } from "./prerequisites.ts"
import { CostPartsSchema, HourlyPricesSchema } from "./price.ts"
import { LaunchedRetryRulesSchema, RetryRulesSchema } from "./retry-rules.ts"
import { ReuseSchema } from "./reuse.ts"
import {
  ALLOWED,
  COMPONENT,
  ConditionList,
  CpuQuantity,
  DISJOINT_KEYS,
  DISTINCT_PATHS,
  Int,
  MapSchema,
  NAMED_RULE,
  ObservedGeneration,
  PATTERN_AS_RULE,
  SENSITIVE,
  SecretDataKey,
  SecretName,
  SizeQuantity,
  StringEnum,
  Text,
  Time,
  TOTAL_BYTES,
} from "./schema.ts"
import { IdleLimitSchema, UsageSchema } from "./usage.ts"

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

/**
 * Ways to buy a job's VM. `spotFirst` uses on-demand only if no spot offer is available, or after several preemptions in a
 * row.
 */
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
  /** Several spot VMs in a row were preempted, so a `spotFirst` job gets on-demand VMs. */
  OnDemandFallback: "OnDemandFallback",
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
  /** The agent image's registry says that it does not exist. */
  AgentImageMissing: "AgentImageMissing",
  NoCapacity: "NoCapacity",
  CapReached: "CapReached",
  /** As many jobs of its concurrency group as its limit allows have a VM. */
  GroupFull: "GroupFull",
  LaunchesPaused: "LaunchesPaused",
  /** The project, or its organization, is being deleted. */
  ProjectDeleting: "ProjectDeleting",
  /** The project has reached a limit of what it may store, such as its number of unfinished jobs. */
  ProjectLimit: "ProjectLimit",
  Held: "Held",
  /** A job or an array of its `after` has not ended yet. */
  WaitsForJob: "WaitsForJob",
  /** A job or an array of its `after` doesn't exist yet. */
  JobMissing: "JobMissing",
  /** A job or an array of its `after` ended with another outcome than the one that it waits for. */
  DependencyFailed: "DependencyFailed",
  /** It waits for itself: each job of a circle waits for the next one. */
  DependencyCycle: "DependencyCycle",
  Placed: "Placed",
  Launching: "Launching",
  Booting: "Booting",
  Started: "Started",
  ContainerRestarted: "ContainerRestarted",
  BootDeadlineExceeded: "BootDeadlineExceeded",
  /** The VM reported that it cannot run containers. */
  BootFailed: "BootFailed",
  OfferRefused: "OfferRefused",
  /** The idle VM that the job was to take over is another job's, or has ended. */
  TakeoverLost: "TakeoverLost",
  VMLost: "VMLost",
  Preempted: "Preempted",
  Succeeded: "Succeeded",
  ContainerFailed: "ContainerFailed",
  ImagePullFailed: "ImagePullFailed",
  DeadlineExceeded: "DeadlineExceeded",
  /** The container did not start within the job's `maxQueueSeconds`. */
  QueueDeadlineExceeded: "QueueDeadlineExceeded",
  /** The job's `maxCostUsd` is spent, or too little for a VM is left of it. */
  BudgetExceeded: "BudgetExceeded",
  VolumeMountFailed: "VolumeMountFailed",
  VolumeFlushFailed: "VolumeFlushFailed",
  SecretMissing: "SecretMissing",
  /** The project has no upload with the hash of the job's `workdir`. */
  WorkdirMissing: "WorkdirMissing",
  /** The files of the job's `workdir` could not be put into the container. */
  WorkdirFailed: "WorkdirFailed",
  /** The container used nothing for the time of its `idleLimit`. */
  Idle: "Idle",
  LaunchLimitExceeded: "LaunchLimitExceeded",
  /** The run failed, and a retry rule, or a fault that passes, gives the job a new VM. */
  Retrying: "Retrying",
  Cancelled: "Cancelled",
  Deleted: "Deleted",
} as const
export type JobReason = (typeof JobReason)[keyof typeof JobReason]

/** Reason why a job has the phase cancelled after `spec.cancelled`. The REST API says it before the controller has written it. */
export const CANCELLED = { phase: "cancelled", reason: JobReason.Cancelled, message: "cancelled on request" } as const

/** Name of an environment variable: everything that POSIX and Docker accept, except `=` and NUL. */
export const ENV_NAME_PATTERN = "^[^=\\x00]+$"

/** Text that a process can get: the operating system ends an argument or a variable at a NUL. */
export const WITHOUT_NUL = {
  pattern: "^[^\\x00]*$",
  [ALLOWED]: "a text without NUL characters",
  [PATTERN_AS_RULE]: true,
}

/** Absolute path other than `/`. No part of it is `.` or `..`. */
const MOUNT_PATH_PATTERN = "^(/+([^/.\\x00][^/\\x00]*|[.][^/.\\x00][^/\\x00]*|[.][.][^/\\x00]+))+/*$"

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

/** Text in one line. A control character in it could forge a line of a table or of a log. */
const IN_ONE_LINE = {
  pattern: "^[^\\x00-\\x1f\\x7f-\\x9f]*$",
  [ALLOWED]: "a text without control characters, such as a tab, a new line or NUL",
  [PATTERN_AS_RULE]: true,
}

const LABEL_KEYS = {
  minLength: 1,
  maxLength: LIMITS.labelKey,
  pattern: IN_ONE_LINE.pattern,
  allowed: `1 to ${LIMITS.labelKey} characters, none of them a control character`,
}

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
    [COMPONENT]: "Gpu",
    minProperties: 1,
    dependentRequired: { count: ["model"] },
    description: "GPU requirement: vram, or model with count or vram. A model alone means one card.",
  },
)
export type Gpu = Static<typeof GpuSchema>

export const ResourcesSchema = Type.Object(
  {
    cpu: Type.Optional(CpuQuantity("Minimum number of vCPUs. Default: 1.")),
    memory: Type.Optional(
      SizeQuantity(
        "Minimum memory of the container. A VM keeps up to 0.5 GiB for itself. Default: a VM of 4Gi, whose container gets 3.5Gi.",
      ),
    ),
    gpu: Type.Optional(GpuSchema),
    disk: Type.Optional(DiskSize("Minimum size of the VM's disk. Default: depends on the cloud.")),
  },
  { description: "Minimum resources of the VM." },
)
export type Resources = Static<typeof ResourcesSchema>

const volumeFields = {
  bucket: Type.String({ minLength: 1, maxLength: LIMITS.bucket, description: "Name of the storage bucket." }),
  connection: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: LIMITS.connectionName,
      description: "Connection that gives access to the bucket. Default: the project's first connection with access.",
    }),
  ),
}

const MOUNT_PATH = "Absolute path in the container at which the bucket is mounted."
const PREFIX = "Folder in the bucket. Default: the bucket's root."

/** Caches of a volume on the VM's disk. */
export const VOLUME_CACHES = ["reads"] as const

const useFields = {
  readOnly: Type.Optional(
    Type.Boolean({
      description:
        "True to mount the bucket read-only: a write in the container fails, and the VM gets no right to write.",
    }),
  ),
  cache: Type.Optional(
    StringEnum(VOLUME_CACHES, {
      description:
        "reads: keep what the container reads on the VM's disk, so that a second read does not download it again. All caches of a job get half of the free disk. Default: no cache of reads.",
    }),
  ),
}

/** Marks the volume of a job's checkpoints. */
const checkpointField = {
  checkpoint: Type.Optional(
    Type.Boolean({
      description:
        "True for the job's checkpoints: a separate folder, named by the job's id, which all VMs of the job share. Berth deletes it after the job has succeeded. BERTH_CHECKPOINT_DIR is its mountPath.",
    }),
  ),
}

export const VolumeSchema = Type.Object(
  {
    ...volumeFields,
    mountPath: Type.String({
      minLength: 1,
      maxLength: LIMITS.mountPath,
      pattern: MOUNT_PATH_PATTERN,
      description: MOUNT_PATH,
      [ALLOWED]: "an absolute path such as /data, other than /, without . and .. as a part and without NUL",
      [PATTERN_AS_RULE]: true,
    }),
    prefix: Type.Optional(Text(LIMITS.prefix, PREFIX, WITHOUT_NUL)),
    ...checkpointField,
    ...useFields,
  },
  { [COMPONENT]: "Volume", [NAMED_RULE]: "writableCheckpoints" },
)

/** Volume of a Launch. The prefix of one for checkpoints has a folder of the job below. */
const LaunchedVolumeSchema = Type.Object({
  ...VolumeSchema.properties,
  mountPath: Type.String({
    minLength: 1,
    maxLength: LIMITS.mountPath,
    pattern: "^/",
    description: MOUNT_PATH,
    [ALLOWED]: "an absolute path such as /data",
  }),
  prefix: Type.Optional(Text(LIMITS.prefix + LIMITS.checkpointFolder, PREFIX)),
})
export type Volume = Static<typeof VolumeSchema>

/** A key of a Secret (type berth.dev/env) in the Job's namespace. */
export const SecretKeySchema = Type.Object({ secret: SecretName(), key: SecretDataKey() }, { [COMPONENT]: "SecretKey" })

/** Pattern of the SHA-256 of an upload. */
export const SHA256_PATTERN = "^[0-9a-f]{64}$"

/** Folder of a job's working directory that names none. */
export const DEFAULT_WORKDIR_PATH = "/workspace"

/** Working directory of a job: an archive that was uploaded to the project. */
export const WorkdirSchema = Type.Object(
  {
    sha256: Type.String({
      minLength: 64,
      maxLength: 64,
      pattern: SHA256_PATTERN,
      description: "SHA-256 of an archive (tar.gz) that was uploaded to the project: PUT /1/uploads/{sha256}.",
      [ALLOWED]: "a SHA-256 as 64 digits of 0-9 and a-f",
      [PATTERN_AS_RULE]: true,
    }),
    path: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: LIMITS.mountPath,
        pattern: MOUNT_PATH_PATTERN,
        description: `Folder in the container, where the command starts. Default: ${DEFAULT_WORKDIR_PATH}.`,
        [ALLOWED]: `an absolute path such as ${DEFAULT_WORKDIR_PATH}, other than /, without . and .. as a part and without NUL`,
        [PATTERN_AS_RULE]: true,
      }),
    ),
  },
  {
    [COMPONENT]: "Workdir",
    description: "Files of an upload that the container gets before it starts. The image is not changed.",
  },
)
export type Workdir = Static<typeof WorkdirSchema>

/** Returns the description of a list or map, and the bound of all its texts, bytes. */
function atMost(bytes: number, description: string) {
  return { description: `${description} At most ${bytes} bytes in total.`, [TOTAL_BYTES]: bytes }
}

/**
 * Differences between a Job and its Launch. A Launch has variables and folders of Berth's own too. Only Berth writes it, from
 * a valid Job, so the API server need not check the same rules again at each write.
 */
interface ContainerRules {
  image: Record<string, unknown>
  text: Record<string, unknown>
  /** Maximum number of variables. */
  envItems: number
  volume: typeof VolumeSchema | typeof LaunchedVolumeSchema
  retryRules: typeof RetryRulesSchema | typeof LaunchedRetryRulesSchema
  distinctPaths: Record<string, unknown>
  /** Returns the description of a field, and the bound of all its texts. */
  within: (bytes: number, description: string) => { description: string }
}

const OF_JOB: ContainerRules = {
  image: {
    pattern: IMAGE_PATTERN,
    [ALLOWED]: "an image reference [host[:port]/]name[:tag][@digest], with the name in lower case, such as alpine:3.20",
    [PATTERN_AS_RULE]: true,
  },
  text: WITHOUT_NUL,
  envItems: LIMITS.envItems,
  volume: VolumeSchema,
  retryRules: RetryRulesSchema,
  distinctPaths: { [DISTINCT_PATHS]: "mountPath" },
  within: atMost,
}

const OF_LAUNCH: ContainerRules = {
  image: {},
  text: {},
  envItems: LIMITS.envItems + LIMITS.ownEnvItems,
  volume: LaunchedVolumeSchema,
  retryRules: LaunchedRetryRulesSchema,
  distinctPaths: {},
  within: (_bytes, description) => ({ description }),
}

/** Returns the fields of the container, in a Job and in its Launch. */
function containerFieldsOf({ image, text, envItems, volume, retryRules, distinctPaths, within }: ContainerRules) {
  const words = (description: string) =>
    Type.Optional(
      Type.Array(Type.String({ maxLength: LIMITS.commandItem, ...text, [SENSITIVE]: true }), {
        maxItems: LIMITS.commandItems,
        ...within(LIMITS.commandBytes, description),
      }),
    )
  return {
    image: Type.String({
      minLength: 1,
      maxLength: LIMITS.image,
      description: "Container image reference.",
      ...image,
    }),
    command: words("Command. Overrides the image's entrypoint."),
    args: words("Arguments. Override the image's command."),
    env: Type.Optional(
      MapSchema(Type.String({ maxLength: LIMITS.envBytes, ...text, [SENSITIVE]: true }), {
        keys: ENV_NAMES,
        maxProperties: envItems,
        ...within(LIMITS.envBytes, "Environment variables in plain text. Use secretEnv for secrets."),
      }),
    ),
    secretEnv: Type.Optional(
      MapSchema(SecretKeySchema, {
        keys: ENV_NAMES,
        maxProperties: LIMITS.secretEnvItems,
        ...within(LIMITS.secretEnvBytes, "Environment variables from Secrets (type berth.dev/env) of this namespace."),
      }),
    ),
    volumes: Type.Optional(
      MapSchema(volume, {
        keys: VOLUME_NAMES,
        maxProperties: LIMITS.volumes,
        ...within(
          LIMITS.volumeBytes,
          "Buckets mounted into the container, by volume name. Each needs a different mountPath.",
        ),
        ...distinctPaths,
      }),
    ),
    workdir: Type.Optional(WorkdirSchema),
    maxRetries: Type.Optional(
      Int({
        maximum: LIMITS.maxRetries,
        default: 0,
        description: "Number of times to restart a failed container on its VM. A new VM starts the count at 0.",
      }),
    ),
    retryRules: Type.Optional(retryRules),
    idleLimit: Type.Optional(IdleLimitSchema),
    reuse: Type.Optional(ReuseSchema),
    debug: Type.Optional(DebugSchema),
    timeoutSeconds: Type.Optional(
      Int({
        minimum: 1,
        maximum: LIMITS.timeoutSeconds,
        description: "Maximum run time, counted from the container's first start. Default: 30 days.",
      }),
    ),
    terminationGraceSeconds: Type.Optional(
      Int({
        maximum: LIMITS.terminationGraceSeconds,
        description:
          "Maximum seconds from the stop signal to SIGKILL at the timeout, a cancellation or a preemption. A preemption leaves less: about 85 s on AWS, 30 s on Nebius, 15 s on Google Cloud and Azure. Default: 10.",
      }),
    ),
  }
}

const containerFields = containerFieldsOf(OF_JOB)

/** The container of a Launch. It accepts that of every Job. */
export const RunSchema = Type.Object(containerFieldsOf(OF_LAUNCH), { description: "Container to run." })
export type Run = Static<typeof RunSchema>

/** Group of jobs of a project of which only some run at the same time. */
export const ConcurrencyGroupSchema = Type.Object(
  {
    name: Type.String({
      minLength: 1,
      maxLength: LIMITS.groupName,
      pattern: JOB_NAME_PATTERN,
      description: "Name of the group in the project.",
      [ALLOWED]: "a-z, 0-9 and -, with a letter or digit at both ends",
      [PATTERN_AS_RULE]: true,
    }),
    limit: Int({
      minimum: 1,
      maximum: LIMITS.groupLimit,
      description: "Maximum number of the group's jobs that have a VM. That of the waiting job counts.",
    }),
  },
  {
    [COMPONENT]: "ConcurrencyGroup",
    description:
      "Group of the project's jobs, such as those that use one database. The job waits while the group is full.",
  },
)
export type ConcurrencyGroup = Static<typeof ConcurrencyGroupSchema>

export const PRIORITY = Int({
  minimum: -LIMITS.priority,
  maximum: LIMITS.priority,
  description:
    "Place in the project's line while a cap or a concurrency group is full: the highest first, then the oldest. It can be changed while the job waits. Default: 0.",
})

const placementFields = {
  priority: Type.Optional(PRIORITY),
  concurrencyGroup: Type.Optional(ConcurrencyGroupSchema),
  resources: Type.Optional(ResourcesSchema),
  cloud: Type.Optional(
    Type.Array(Type.String({ minLength: 1, maxLength: 32 }), {
      maxItems: LIMITS.clouds,
      description:
        "Clouds on which the job may run: aws, gcp, azure, nebius, and own for machines of your own. Default: any.",
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
  maxPreemptions: Type.Optional(
    Int({
      maximum: LIMITS.maxPreemptions,
      description: "Maximum number of preempted VMs. The job fails at the next one. Default: no limit.",
    }),
  ),
  maxLostVms: Type.Optional(
    Int({
      maximum: LIMITS.newVms,
      description:
        "Maximum number of lost VMs: they failed or disappeared. The job fails at the next one. 0: a lost VM is never followed by another. Default: 2.",
    }),
  ),
  maxMemory: Type.Optional(
    SizeQuantity(
      "Memory up to which it grows: after the container ran out of memory, the next VM has twice as much. Default: no growth.",
    ),
  ),
  fallbackAfter: Type.Optional(
    Int({
      minimum: 1,
      maximum: LIMITS.maxPreemptions,
      description: "Number of preempted spot VMs in a row after which a spotFirst job gets on-demand VMs. Default: 3.",
    }),
  ),
  maxQueueSeconds: Type.Optional(
    Int({
      minimum: 1,
      maximum: LIMITS.maxQueueSeconds,
      description:
        "Maximum seconds from the job's creation to its container's first start, boots of VMs included. The job then ends as QueueDeadlineExceeded. It does not count after a preemption. Default: no limit.",
    }),
  ),
  maxHourlyPriceUsd: Type.Optional(
    Type.Number({
      minimum: 0,
      maximum: LIMITS.maxHourlyPriceUsd,
      description:
        "Maximum price of the machine, USD per hour. AWS and Azure also end a spot VM whose price rises above it.",
    }),
  ),
  maxCostUsd: Type.Optional(
    Type.Number({
      minimum: 0,
      maximum: LIMITS.maxCostUsd,
      description:
        "Maximum cost of all VMs of the job, USD: machines, disks and public addresses. The job then ends as BudgetExceeded.",
    }),
  ),
}

/** Labels of a job in its Launch. */
export const LaunchLabelsSchema = Type.Optional(
  MapSchema(Type.String({ maxLength: LIMITS.labelValue }), {
    keys: { minLength: 1, maxLength: LIMITS.labelKey, allowed: `1 to ${LIMITS.labelKey} characters` },
    maxProperties: LIMITS.labels,
    description: "Labels of the job, by which its cost is shown.",
  }),
)

/** Declares the labels and tags of a job, or those by which jobs are selected. */
export function describeFields({ labels, tags }: { labels: string; tags: string }) {
  return {
    labels: Type.Optional(
      MapSchema(Type.String({ maxLength: LIMITS.labelValue, ...IN_ONE_LINE }), {
        keys: LABEL_KEYS,
        maxProperties: LIMITS.labels,
        ...atMost(LIMITS.labelBytes, labels),
      }),
    ),
    tags: Type.Optional(
      Type.Array(Type.String({ minLength: 1, maxLength: LIMITS.tag, ...IN_ONE_LINE }), {
        maxItems: LIMITS.tags,
        ...atMost(LIMITS.tagBytes, tags),
      }),
    ),
  }
}

const describingFields = describeFields({
  labels: "User-defined labels. Those with Kubernetes' label syntax are copied to metadata.labels.",
  tags: "User-defined tags.",
})

/** Rules on several fields of a Job's spec, a CronJob's definition and the bodies of the REST API. */
export const JOB_FIELDS_TOGETHER = {
  [DISJOINT_KEYS]: ["env", "secretEnv"],
  [NAMED_RULE]: ["growsMemory", "reuseWithoutMaxCost"],
}

export const JobSpecSchema = Type.Object(
  {
    ...containerFields,
    ...placementFields,
    ...describingFields,
    after: Type.Optional(AfterSchema),
    ttlSecondsAfterFinished: Type.Optional(
      Int({
        maximum: LIMITS.ttlSecondsAfterFinished,
        description: "Seconds after which a finished Job is deleted. Default: 30 days.",
      }),
    ),
    cancelled: Type.Optional(
      Type.Boolean({ default: false, description: "Set to true to cancel the job. Irreversible." }),
    ),
    debugEnded: Type.Optional(
      Type.Boolean({ description: "Set to true to end the VM that `debug` keeps. Irreversible." }),
    ),
  },
  {
    description: "Container to run, and requirements for its VM.",
    ...JOB_FIELDS_TOGETHER,
  },
)
export type JobSpec = Static<typeof JobSpecSchema>

const { cancelled: _cancelled, debugEnded: _debugEnded, after: _after, ...definitionFields } = JobSpecSchema.properties

/** Declares the spec of Jobs that another object creates. */
export function jobDefinition(description: string) {
  return Type.Object(definitionFields, { description, ...JOB_FIELDS_TOGETHER })
}

/** Offer that was rejected, and the cause. The reason is a class of cloud errors. */
const RefusedOfferSchema = Type.Object({
  cloud: Text(32, "Cloud."),
  region: Text(LIMITS.region, "Region."),
  instanceType: Text(128, "Machine type."),
  provisioning: Text(16, "Purchase option: onDemand or spot."),
  reason: Text(
    64,
    "Capacity, Quota, Credentials, Account, Region, InvalidRequest, Unavailable, BootDeadlineExceeded, BootFailed, VMLost or Preempted.",
  ),
  message: Text(1024, "Message of the cloud."),
  time: Time("Time of the rejection."),
})
export type RefusedOffer = Static<typeof RefusedOfferSchema>

/** Offer of a job, and the connection that pays for it. */
const PlacementSchema = Type.Object(
  {
    offer: OfferSchema,
    connection: Type.Optional(Text(LIMITS.connectionName, "Connection of the account that has the VM.")),
    reason: Text(
      LIMITS.message,
      "Explanation of the choice: the number of matching offers, and the price of the next one.",
    ),
  },
  { description: "Machine that Berth chose for the job." },
)
export type Placement = Static<typeof PlacementSchema>

export const JobStatusSchema = Type.Object(
  {
    observedGeneration: ObservedGeneration,
    phase: Type.Optional(StringEnum(JOB_PHASES, { description: "Status of the job, as in the REST API." })),
    reason: Type.Optional(Text(128, "Reason for the phase, one CamelCase word.")),
    message: Type.Optional(Text(LIMITS.message, "Explanation of the phase for people.")),
    conditions: Type.Optional(ConditionList),
    after: Type.Optional(ObservedAfterSchema),
    placement: Type.Optional(PlacementSchema),
    vm: Type.Optional(
      Type.Object(
        {
          state: StringEnum(VM_STATES, { description: "State of the VM." }),
          id: Type.Optional(Text(256, "Id of the VM in the cloud.")),
          ipAddress: Type.Optional(Text(64, "Public IP address of the VM, if it has one.")),
        },
        { description: "Current VM of the job." },
      ),
    ),
    credentials: Type.Optional(
      StringEnum(CREDENTIALS_STATES, { description: "State of the job's secrets on its VM." }),
    ),
    volumes: Type.Optional(
      MapSchema(
        Type.Object({
          connection: Text(LIMITS.connectionName, "Connection that gives access to the bucket."),
          region: Type.Optional(Text(LIMITS.region, "Region of the bucket.")),
        }),
        { keys: VOLUME_NAMES, maxProperties: LIMITS.volumes, description: "Access to the bucket of each volume." },
      ),
    ),
    launches: Type.Optional(
      Type.Object(
        {
          count: Int({ description: "Number of Launches so far. The next Launch gets the next number." }),
          billed: Type.Optional(Int({ description: "Number of Launches that got a VM." })),
          current: Type.Optional(Text(253, "Name of the job's current Launch.")),
          lost: Type.Optional(Int({ description: "Number of Launches whose VM was lost." })),
          preempted: Type.Optional(Int({ description: "Number of Launches whose VM the cloud preempted." })),
          retried: Type.Optional(
            Int({
              description:
                "Number of failed Launches after which the job got a new VM: by its rules, or for a transient fault.",
            }),
          ),
        },
        { description: "Launches of the job. Each Launch is one VM, or one attempt to get a VM." },
      ),
    ),
    refusedOffers: Type.Optional(
      Type.Array(RefusedOfferSchema, {
        maxItems: LIMITS.refusedOffers,
        description: "Most recent offers that were rejected.",
      }),
    ),
    retryCount: Type.Optional(Int({ description: "Number of container restarts on the current VM." })),
    exitCode: Type.Optional(Type.Integer({ description: "Exit code of the container's last run." })),
    lastLine: Type.Optional(Text(LIMITS.lastLine, "Last line of a failed container's output, without secrets.")),
    usage: Type.Optional(UsageSchema),
    retries: Type.Optional(
      Type.Array(
        Type.Object({
          launch: Int({ minimum: 1, description: "Number of the Launch that failed." }),
          reason: Text(64, "Reason or cause of the failure."),
          exitCode: Type.Optional(Type.Integer({ description: "Exit code of the container." })),
          memoryGib: Type.Optional(
            Type.Number({ minimum: 0, description: "Memory that the next VM's container gets at least, GiB." }),
          ),
          time: Time("Time of the failure."),
        }),
        { maxItems: LIMITS.retries, description: "Latest failures after which the job got a new VM." },
      ),
    ),
    cost: Type.Optional(
      Type.Object(
        {
          estimatedUsd: Type.Optional(Type.Number({ minimum: 0, description: "Estimate at placement, USD." })),
          actualUsd: Type.Optional(
            Type.Number({ minimum: 0, description: "Cost of all VMs, USD. Set when the last VM is deleted." }),
          ),
          endedUsd: Type.Optional(
            Type.Number({
              minimum: 0,
              description: "Cost of all VMs when the job ended, USD; the actual cost as soon as that is known.",
            }),
          ),
          hourly: Type.Optional(HourlyPricesSchema),
          minimumBilledSeconds: Type.Optional(
            Int({ description: "Minimum time that the cloud bills for the current VM, seconds." }),
          ),
          since: Type.Optional(Time("Time from which the current VM is billed. Absent: no VM is billed.")),
          spent: Type.Optional(CostPartsSchema),
          spotUsd: Type.Optional(
            Type.Number({ minimum: 0, description: "Cost of ended spot VMs, USD. The rest of spent is on-demand." }),
          ),
          idleUsd: Type.Optional(
            Type.Number({ minimum: 0, description: "Part of spent in which the VMs waited for another job, USD." }),
          ),
        },
        { description: "Cost of the job's VMs." },
      ),
    ),
    startTime: Type.Optional(Time("Time of the container's first start.")),
    completionTime: Type.Optional(Time("Time at which the job ended.")),
    settled: Type.Optional(
      Type.Boolean({ description: "True when the job has ended, its VMs are deleted and its cost is final." }),
    ),
    lastHeartbeatTime: Type.Optional(Time("Time of the last heartbeat of an ended job's VM. Absent while it runs.")),
    keptUntil: Type.Optional(Time("Time until which the VM of the failed job is kept for sessions.")),
  },
  { description: "Observed state. Only Berth's job controller writes it." },
)
export type JobStatus = Static<typeof JobStatusSchema>

export type Job = KubeObject<JobSpec, JobStatus>
export type StoredJob = Stored<Job>

/** Finalizer that holds a Job until it is settled: its VMs are deleted, and its cost is final. */
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
  owned: ["status"],
  conditions: Object.values(JobCondition),
  rules: [
    ...nameRules(LIMITS.jobName),
    {
      rule: `self.metadata.name.matches('${JOB_NAME_PATTERN}')`,
      message: "metadata.name must consist of a-z, 0-9 and -, with a letter or digit at both ends",
    },
    {
      rule: "!has(self.spec.after) || self.spec.after.all(one, !has(one.job) || one.job != self.metadata.name)",
      message: "spec.after must not name the job itself",
    },
  ],
  printerColumns: [
    { name: "Phase", type: "string", jsonPath: ".status.phase" },
    { name: "Reason", type: "string", jsonPath: ".status.reason" },
    { name: "Cloud", type: "string", jsonPath: ".status.placement.offer.cloud" },
    { name: "Type", type: "string", jsonPath: ".status.placement.offer.instanceType" },
    { name: "USD/h", type: "number", jsonPath: ".status.placement.offer.hourlyPriceUsd" },
    { name: "Cost", type: "number", jsonPath: ".status.cost.endedUsd", description: "Cost of an ended job, USD." },
    { name: "Retries", type: "integer", jsonPath: ".status.retryCount", priority: 1 },
    { name: "Region", type: "string", jsonPath: ".status.placement.offer.region", priority: 1 },
    AGE_COLUMN,
  ],
  selectableFields: [
    ".status.phase",
    ".status.settled",
    ".status.placement.offer.cloud",
    ".status.placement.connection",
  ],
})
