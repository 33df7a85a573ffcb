import Type, { type Static } from "typebox"
import { creationTimeOf } from "../apis/creation-times.ts"
import { DEFAULT_RESOURCES, LIMITS } from "../apis/field-limits.ts"
import {
  CANCELLED,
  type ConcurrencyGroup,
  ConcurrencyGroupSchema,
  CREDENTIALS_STATES,
  DEFAULT_WORKDIR_PATH,
  isTerminal,
  JOB_PHASES,
  type JobPhase,
  type JobStatus,
  PROVISIONINGS,
  SecretKeySchema,
  type StoredJob,
  VM_STATES,
  VolumeSchema,
  type Workdir,
} from "../apis/job.ts"
import { arrayIndexOf } from "../apis/jobarray.ts"
import { ANNOTATIONS, LABELS } from "../apis/meta.ts"
import { parseCpu } from "../apis/quantity.ts"
import { JOB_RECORD_FIELDS as NAMES } from "../apis/rest-names.ts"
import { RETRY_ACTIONS, RETRY_REASONS, type RetryRule } from "../apis/retry-rules.ts"
import type { Reuse } from "../apis/reuse.ts"
import { COMPONENT, StringEnum } from "../apis/schema.ts"
import { DEFAULT_IDLE_SECONDS, type IdleLimit } from "../apis/usage.ts"
import { conditionsField, ownTroubles } from "./conditions.ts"
import { CostBreakdownSchema, costFields } from "./cost.ts"
import { nullable } from "./nullable.ts"
import { ORDER_FIELDS, orderFields } from "./order.ts"
import type { Owner } from "./owner.ts"
import { lastUpdateTime } from "./update-time.ts"
import { toUsageRecord, UsageRecordSchema } from "./usage.ts"

/** Schema of a map with any keys. */
function RecordOf<Value>(value: object) {
  return Type.Unsafe<Record<string, Value>>({ type: "object", additionalProperties: value })
}

const VolumeRecordSchema = Type.Object(
  {
    name: Type.String(),
    bucket: VolumeSchema.properties.bucket,
    mount_path: VolumeSchema.properties.mountPath,
    connection: nullable<string>("string", "Null: the project's first connection with access."),
    prefix: nullable<string>("string", "Null: the bucket's root."),
    checkpoint: Type.Boolean({ description: "True for the job's checkpoints, in a separate folder." }),
    // Null for its default: the command line of 0.1.0 sends all that is not null when it reruns a job.
    read_only: nullable<boolean>("boolean", "True: the container can't write to the bucket. Null: it can."),
    cache: nullable<string>("string", "reads: what the container reads stays on the VM's disk. Null: no cache."),
  },
  { [COMPONENT]: "VolumeRecord" },
)

/** Working directory in a record; null: none. */
const WorkdirRecordSchema = Type.Unsafe<Required<Workdir> | null>({
  [COMPONENT]: "WorkdirRecord",
  type: ["object", "null"],
  required: ["sha256", "path"],
  properties: {
    sha256: Type.String({ description: "SHA-256 of the upload." }),
    path: Type.String({ description: "Folder in the container." }),
  },
})

/** GPUs in a record; null: none. */
export const GpuRecordSchema = Type.Unsafe<{ vram: string | null; count: number | null; model: string | null } | null>({
  [COMPONENT]: "GpuRecord",
  type: ["object", "null"],
  required: ["vram", "count", "model"],
  properties: {
    vram: nullable<string>("string", "Minimum GPU memory in total."),
    count: nullable<number>("integer", "Minimum number of cards."),
    model: nullable<string>("string", "GPU model."),
  },
})

const RetryRuleRecordSchema = Type.Object(
  {
    reasons: Type.Array(StringEnum(RETRY_REASONS), { description: "Empty: all of them." }),
    exit_codes: Type.Array(Type.Unsafe<number | string>({ type: ["integer", "string"] }), {
      description: "Exit codes and ranges of them. Empty: all of them.",
    }),
    action: StringEnum(RETRY_ACTIONS),
    limit: nullable<number>("integer", "Maximum number of new VMs by this rule. Null: 3."),
  },
  { [COMPONENT]: "RetryRuleRecord" },
)

/** Idle limit in a record; null: none. */
const IdleLimitRecordSchema = Type.Unsafe<{
  seconds: number
  gpu_percent: number | null
  cpu_percent: number | null
} | null>({
  [COMPONENT]: "IdleLimitRecord",
  type: ["object", "null"],
  required: ["seconds", "gpu_percent", "cpu_percent"],
  properties: {
    seconds: Type.Integer({ description: "Seconds without use after which the job fails." }),
    gpu_percent: nullable<number>("number", "The GPUs count as unused up to it. Null: 5 on a VM with GPUs."),
    cpu_percent: nullable<number>("number", "The vCPUs count as unused up to it. Null: 5 on a VM without GPUs."),
  },
  description: "Limit of the job itself. Null: none, or the installation's.",
})

/** Reuse of the VM in a record; null: the job has a VM of its own. */
export const ReuseRecordSchema = Type.Unsafe<{ idle_seconds: number; key: string | null } | null>({
  [COMPONENT]: "ReuseRecord",
  type: ["object", "null"],
  required: ["idle_seconds", "key"],
  properties: {
    idle_seconds: Type.Integer({ description: "Seconds that the VM waits for another job after this one." }),
    key: nullable<string>("string", "Only jobs of the project with the same key share VMs. Null: those without a key."),
  },
  description: "Reuse of the VM by jobs of the project. Null: the job has a VM of its own.",
})

/** Fields for the time after a failure, in a record; null: none. */
const DebugRecordSchema = Type.Unsafe<{ keep_seconds: number } | null>({
  [COMPONENT]: "DebugRecord",
  type: ["object", "null"],
  required: ["keep_seconds"],
  properties: {
    keep_seconds: Type.Integer({ description: "Seconds for which the VM is kept after the container failed." }),
  },
  description: "Keeps the VM of the failed job for sessions. Null: it ends at once.",
})

/** Job in the responses of GET, cancel and lists: every field of the contract, then the extensions. */
export const JobRecordSchema = Type.Object({
  id: Type.String({ description: "UUID." }),
  organization_id: Type.String(),
  project_id: Type.String(),
  name: Type.String(),
  namePrefix: nullable<string>("string", "Prefix from which the name was generated."),
  status: StringEnum(JOB_PHASES),
  credentials_status: StringEnum(CREDENTIALS_STATES),
  vm_status: StringEnum(VM_STATES),
  image: Type.String(),
  command: Type.Array(Type.String()),
  args: Type.Array(Type.String()),
  env: RecordOf<string>({ type: "string" }),
  volumes: Type.Array(VolumeRecordSchema),
  resources: Type.Object(
    {
      cpu: Type.Number(),
      memory: Type.String(),
      gpu: GpuRecordSchema,
      disk: nullable<string>("string", "Minimum size of the VM's disk. Null: depends on the cloud."),
    },
    { [COMPONENT]: "ResourcesRecord" },
  ),
  cloud: Type.Array(Type.String()),
  region: Type.Array(Type.String()),
  labels: RecordOf<string>({ type: "string" }),
  tags: Type.Array(Type.String()),
  retry_count: Type.Integer(),
  [NAMES.maxRetries]: Type.Integer(),
  selected_provider: nullable<string>("string", "Cloud that was chosen."),
  selected_region: nullable<string>("string", "Region that was chosen."),
  selected_instance_type: nullable<string>("string", "Machine type that was chosen."),
  placement_reason: nullable<string>("string", "Explanation of the choice, with the cost of the next offer."),
  vm_instance_id: nullable<string>("string", "Id of the VM in the cloud."),
  ip_address: nullable<string>("string", "Public IP address of the VM."),
  estimated_cost: nullable<number>("number", "Expected cost of the VM at placement, USD."),
  actual_cost: nullable<number>("number", "Actual cost, USD."),
  accrued_cost: nullable<number>(
    "number",
    "Cost so far, USD. A running VM counts until its last heartbeat. Null: no VM was chosen.",
  ),
  cost_breakdown: CostBreakdownSchema,
  created_at: Type.String(),
  updated_at: Type.String(),
  last_heartbeat_at: nullable<string>("string", "Time of the VM's last heartbeat."),
  started_at: nullable<string>("string", "Time of the container's first start."),
  ended_at: nullable<string>("string", "Time at which the job ended."),
  [NAMES.timeoutSeconds]: Type.Integer(),
  error_message: nullable<string>("string", "Error of a failed job, with the last line of its output."),
  reason: nullable<string>("string", "Reason for the status, one word."),
  message: nullable<string>("string", "Explanation of the status for people."),
  conditions: conditionsField(
    "Conditions that are not as they should be, if their message is not that of the job. Absent: there are none.",
  ),
  exit_code: nullable<number>("integer", "Exit code of the container's last run."),
  hourly_price_usd: nullable<number>("number", "Price of the selected machine, USD per hour."),
  provisioning: StringEnum(PROVISIONINGS),
  [NAMES.maxHourlyPriceUsd]: nullable<number>("number", "Maximum price, USD per hour."),
  [NAMES.maxCostUsd]: nullable<number>("number", "Maximum cost of all VMs of the job, USD. Null: no limit."),
  [NAMES.maxPreemptions]: nullable<number>("integer", "Maximum number of preempted VMs. Null: no limit."),
  priority: Type.Integer({ description: "Place in the project's line: the highest first, then the oldest." }),
  queue_position: nullable<number>(
    "integer",
    "Place in the project's line of jobs that wait for a cap or a concurrency group, from 1. Null: the job waits for neither.",
  ),
  [NAMES.concurrencyGroup]: Type.Unsafe<ConcurrencyGroup | null>({
    type: ["object", "null"],
    required: ["name", "limit"],
    properties: ConcurrencyGroupSchema.properties,
    description: "Group of which only some jobs run at the same time. Null: none.",
  }),
  ...ORDER_FIELDS,
  [NAMES.retryRules]: Type.Array(RetryRuleRecordSchema, {
    description:
      "Rules on failures of the container, its image, volumes and workdir. The first one that matches decides.",
  }),
  [NAMES.idleLimit]: IdleLimitRecordSchema,
  reuse: ReuseRecordSchema,
  debug: DebugRecordSchema,
  kept_until: nullable<string>(
    "string",
    "Time until which the VM of the failed job is kept for sessions. Null: it is not.",
  ),
  usage: UsageRecordSchema,
  new_vm_retries: Type.Integer({
    description: "Number of failures after which the job got a new VM: by its rules, or for a transient fault.",
  }),
  [NAMES.maxLostVms]: nullable<number>("integer", "Maximum number of lost VMs. Null: 2."),
  [NAMES.maxMemory]: nullable<string>(
    "string",
    "Memory up to which it grows after the container ran out. Null: it never grows.",
  ),
  preemption_count: Type.Integer({ description: "Number of the job's VMs that the cloud preempted." }),
  [NAMES.fallbackAfter]: nullable<number>(
    "integer",
    "Number of preempted spot VMs in a row after which a spotFirst job gets on-demand VMs. Null: 3.",
  ),
  [NAMES.maxQueueSeconds]: nullable<number>(
    "integer",
    "Maximum seconds from the creation to the container's first start. Null: no limit.",
  ),
  [NAMES.terminationGraceSeconds]: nullable<number>(
    "integer",
    "Maximum seconds from the stop signal to SIGKILL. Null: 10.",
  ),
  workdir: WorkdirRecordSchema,
  cronjob_id: nullable<string>("string", "Id of the cronjob that created the job. Null: none did."),
  array_id: nullable<string>("string", "Id of the array that created the job. Null: none did."),
  array_index: nullable<number>("integer", "Index of the job in its array."),
  [NAMES.secretEnv]: RecordOf<Static<typeof SecretKeySchema>>(SecretKeySchema),
  [NAMES.ttlSecondsAfterFinished]: nullable<number>("integer", "Null: the default of the installation."),
})
export type JobRecord = Static<typeof JobRecordSchema>

/** Statuses of jobs that have not ended. */
export const UNFINISHED = ["queued", "booting", "running"] as const

/** Returns the status of the contract. */
export function recordStatus(job: StoredJob): JobPhase {
  return standingOf(job).phase ?? "queued"
}

/** Returns the phase with its reason. A cancel shows at once, before the controller acts on it. */
function standingOf({ spec, status = {} }: StoredJob): Pick<JobStatus, "phase" | "reason" | "message"> {
  return spec.cancelled && !isTerminal(status.phase) ? CANCELLED : status
}

/** Parts of a record that are not in the Job. */
export interface SeenOfJob {
  /** Last heartbeat of its VMs, which the Job does not have while it runs. */
  lastHeartbeatTime?: string | undefined
  /** Place in its project's line, from 1. */
  queuePosition?: number | undefined
}

/** Returns the record of a Job, with every field of the contract. */
export function toRecord(
  job: StoredJob,
  owner: Owner,
  { lastHeartbeatTime, queuePosition }: SeenOfJob = {},
): JobRecord {
  const { metadata, spec } = job
  return {
    id: metadata.uid,
    organization_id: owner.organizationId,
    project_id: owner.projectId,
    name: metadata.name,
    namePrefix: metadata.annotations?.[ANNOTATIONS.namePrefix] ?? null,
    ...submittedFields(spec),
    ...creatorFields(job),
    ...progressFields(job, lastHeartbeatTime),
    queue_position: queuePosition ?? null,
    ...orderFields({ job: metadata.name }, job),
    ...placementFields(job.status),
    usage: job.status?.usage === undefined ? null : toUsageRecord(job.status.usage),
    ...costFields(job.status, lastHeartbeatTime ?? job.status?.lastHeartbeatTime),
    created_at: creationTimeOf(job),
    updated_at: lastUpdateTime(job),
  }
}

function submittedFields(spec: StoredJob["spec"]) {
  return {
    image: spec.image,
    command: spec.command ?? [],
    args: spec.args ?? [],
    env: spec.env ?? {},
    volumes: volumesOf(spec.volumes),
    resources: resourcesOf(spec.resources),
    cloud: spec.cloud ?? [],
    region: spec.region ?? [],
    labels: spec.labels ?? {},
    tags: spec.tags ?? [],
    [NAMES.maxRetries]: spec.maxRetries ?? 0,
    [NAMES.timeoutSeconds]: spec.timeoutSeconds ?? LIMITS.timeoutSeconds,
    provisioning: spec.provisioning ?? "onDemand",
    [NAMES.maxHourlyPriceUsd]: spec.maxHourlyPriceUsd ?? null,
    [NAMES.maxCostUsd]: spec.maxCostUsd ?? null,
    ...limitFields(spec),
    workdir: spec.workdir === undefined ? null : { path: DEFAULT_WORKDIR_PATH, ...spec.workdir },
    [NAMES.secretEnv]: spec.secretEnv ?? {},
    [NAMES.ttlSecondsAfterFinished]: spec.ttlSecondsAfterFinished ?? null,
  } satisfies Partial<JobRecord>
}

function creatorFields(job: StoredJob) {
  return {
    cronjob_id: job.metadata.labels?.[LABELS.cronJobUid] ?? null,
    array_id: job.metadata.labels?.[LABELS.arrayUid] ?? null,
    array_index: arrayIndexOf(job) ?? null,
  } satisfies Partial<JobRecord>
}

function toRuleRecord({ reasons = [], exitCodes = [], action, limit }: RetryRule) {
  return { reasons: [...reasons], exit_codes: [...exitCodes], action, limit: limit ?? null }
}

function toIdleRecord({ seconds = DEFAULT_IDLE_SECONDS, gpuPercent, cpuPercent }: IdleLimit) {
  return { seconds, gpu_percent: gpuPercent ?? null, cpu_percent: cpuPercent ?? null }
}

/** Returns the record of a reuse. */
export function toReuseRecord({ idleSeconds, key }: Reuse) {
  return { idle_seconds: idleSeconds, key: key ?? null }
}

function limitFields(spec: StoredJob["spec"]) {
  const { maxQueueSeconds, maxPreemptions, fallbackAfter, terminationGraceSeconds, maxLostVms, maxMemory } = spec
  return {
    priority: spec.priority ?? 0,
    [NAMES.concurrencyGroup]: spec.concurrencyGroup ?? null,
    [NAMES.retryRules]: (spec.retryRules ?? []).map(toRuleRecord),
    [NAMES.idleLimit]: spec.idleLimit === undefined ? null : toIdleRecord(spec.idleLimit),
    reuse: spec.reuse === undefined ? null : toReuseRecord(spec.reuse),
    debug: spec.debug === undefined ? null : { keep_seconds: spec.debug.keepSeconds },
    [NAMES.maxLostVms]: maxLostVms ?? null,
    [NAMES.maxMemory]: maxMemory ?? null,
    [NAMES.maxQueueSeconds]: maxQueueSeconds ?? null,
    [NAMES.maxPreemptions]: maxPreemptions ?? null,
    [NAMES.fallbackAfter]: fallbackAfter ?? null,
    [NAMES.terminationGraceSeconds]: terminationGraceSeconds ?? null,
  } satisfies Partial<JobRecord>
}

function volumesOf(volumes: StoredJob["spec"]["volumes"]): JobRecord["volumes"] {
  return Object.entries(volumes ?? {}).map(([name, { bucket, mountPath, ...volume }]) => ({
    name,
    bucket,
    mount_path: mountPath,
    connection: volume.connection ?? null,
    prefix: volume.prefix ?? null,
    checkpoint: volume.checkpoint ?? false,
    read_only: volume.readOnly || null,
    cache: volume.cache ?? null,
  }))
}

/** Returns the record of a job's resources, with the defaults. */
export function resourcesOf(resources: StoredJob["spec"]["resources"]): JobRecord["resources"] {
  return {
    cpu: parseCpu(resources?.cpu ?? DEFAULT_RESOURCES.cpu),
    memory: resources?.memory ?? DEFAULT_RESOURCES.memory,
    gpu: gpuOf(resources?.gpu),
    disk: resources?.disk ?? null,
  }
}

function gpuOf(gpu: NonNullable<StoredJob["spec"]["resources"]>["gpu"]): JobRecord["resources"]["gpu"] {
  if (gpu === undefined) return null
  const { vram = null, model = null } = gpu
  const least = model !== null && vram === null ? 1 : null
  return { vram, count: gpu.count ?? least, model }
}

function progressFields(job: StoredJob, lastHeartbeatTime: string | undefined) {
  const { status } = job
  const { reason, message } = standingOf(job)
  return {
    status: recordStatus(job),
    credentials_status: status?.credentials ?? "empty",
    vm_status: status?.vm?.state ?? "nonassigned",
    retry_count: status?.retryCount ?? 0,
    preemption_count: status?.launches?.preempted ?? 0,
    new_vm_retries: status?.launches?.retried ?? 0,
    last_heartbeat_at: inUtc(lastHeartbeatTime ?? status?.lastHeartbeatTime),
    started_at: inUtc(status?.startTime),
    ended_at: inUtc(status?.completionTime),
    kept_until: inUtc(status?.keptUntil),
    error_message: status?.phase === "failed" ? (errorMessage(status) ?? null) : null,
    reason: reason ?? null,
    message: message ?? null,
    ...ownTroubles(job, message ?? null),
    exit_code: status?.exitCode ?? null,
  } satisfies Partial<JobRecord>
}

/** Returns the message of a failed job, with the last line of its output. */
function errorMessage({ message, lastLine }: Pick<JobStatus, "message" | "lastLine">): string | undefined {
  if (lastLine === undefined) return message
  if (message === undefined) return lastLine
  // The line is the cause, unless the message has one.
  return /[:;]/.test(message) ? `${message}; last line: ${lastLine}` : `${message}: ${lastLine}`
}

/** Returns the job without its output, for readers who did not ask for it. */
export function withoutOutput(job: StoredJob): StoredJob {
  if (job.status?.lastLine === undefined) return job
  const { lastLine: _, ...status } = job.status
  return { ...job, status }
}

function placementFields(status: StoredJob["status"]) {
  const offer = status?.placement?.offer
  return {
    selected_provider: offer?.cloud ?? null,
    selected_region: offer?.region ?? null,
    selected_instance_type: offer?.instanceType ?? null,
    placement_reason: status?.placement?.reason ?? null,
    hourly_price_usd: offer?.hourlyPriceUsd ?? null,
    vm_instance_id: status?.vm?.id ?? null,
    ip_address: status?.vm?.ipAddress ?? null,
  } satisfies Partial<JobRecord>
}

/** Converts a time with an offset to UTC, and keeps a time in UTC with its fraction. Returns null for no time. */
export function inUtc(time: string | undefined): string | null {
  if (time === undefined) return null
  return time.endsWith("Z") ? time : new Date(time).toISOString()
}
