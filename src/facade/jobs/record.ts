import { isTerminal, type JobPhase, type StoredJob } from "../../apis/job.ts"
import { DEFAULT_RESOURCES, LIMITS } from "../../apis/limits.ts"
import { ANNOTATIONS } from "../../apis/meta.ts"
import { fromMetadataName } from "../../apis/names.ts"
import type { Offer } from "../../apis/offer.ts"
import { parseCpu } from "../../apis/quantity.ts"
import type { RankedPlacement } from "../../router/route.ts"
import type { Owner } from "../owner.ts"
import type { JobPlan } from "../planner.ts"
import { updateTimeOf } from "../update-time.ts"
import type { JobPlanRecord, JobRecord } from "./schema.ts"

/** The contract's status: a cancel shows at once, before the controller has acted on it. */
export function statusOf({ spec, status }: StoredJob): JobPhase {
  const phase = status?.phase ?? "queued"
  return spec.cancelled && !isTerminal(phase) ? "cancelled" : phase
}

/** A Job as the REST API shows it: every field of the contract, in the contract's words. */
export function recordOf(job: StoredJob, owner: Owner): JobRecord {
  const { metadata, spec } = job
  return {
    id: metadata.uid,
    organization_id: owner.organizationId,
    project_id: owner.projectId,
    name: metadata.name,
    namePrefix: metadata.annotations?.[ANNOTATIONS.namePrefix] ?? null,
    ...submittedFields(spec),
    ...progressFields(job),
    ...placementFields(job.status),
    created_at: metadata.creationTimestamp,
    updated_at: updateTimeOf(job) ?? metadata.creationTimestamp,
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
    max_retries: spec.maxRetries ?? 0,
    timeout_seconds: spec.timeoutSeconds ?? LIMITS.timeoutSeconds,
    provisioning: spec.provisioning ?? "onDemand",
    maxHourlyPriceUsd: spec.maxHourlyPriceUsd ?? null,
    secretEnv: spec.secretEnv ?? {},
    ttlSecondsAfterFinished: spec.ttlSecondsAfterFinished ?? null,
  } satisfies Partial<JobRecord>
}

function volumesOf(volumes: StoredJob["spec"]["volumes"]): JobRecord["volumes"] {
  return Object.entries(volumes ?? {}).map(([name, { bucket, mountPath, connection, prefix }]) => ({
    name,
    bucket,
    mountPath,
    connection: connection ?? null,
    prefix: prefix ?? null,
  }))
}

function resourcesOf(resources: StoredJob["spec"]["resources"]): JobRecord["resources"] {
  return {
    cpu: parseCpu(resources?.cpu ?? DEFAULT_RESOURCES.cpu),
    memory: resources?.memory ?? DEFAULT_RESOURCES.memory,
    gpu: gpuOf(resources?.gpu),
  }
}

function gpuOf(gpu: NonNullable<StoredJob["spec"]["resources"]>["gpu"]): JobRecord["resources"]["gpu"] {
  if (gpu === undefined) return null
  const { vram = null, model = null } = gpu
  const least = model !== null && vram === null ? 1 : null
  return { vram, count: gpu.count ?? least, model }
}

function progressFields(job: StoredJob) {
  const { status } = job
  return {
    status: statusOf(job),
    credentials_status: status?.credentials ?? "empty",
    vm_status: status?.vm?.state ?? "nonassigned",
    retry_count: status?.retryCount ?? 0,
    last_heartbeat_at: inUtc(status?.lastHeartbeatTime),
    started_at: inUtc(status?.startTime),
    ended_at: inUtc(status?.completionTime),
    error_message: status?.phase === "failed" ? (status.message ?? null) : null,
    reason: status?.reason ?? null,
    message: status?.message ?? null,
    exit_code: status?.exitCode ?? null,
  } satisfies Partial<JobRecord>
}

function placementFields(status: StoredJob["status"]) {
  const offer = status?.placement?.offer
  return {
    selected_provider: offer?.cloud ?? null,
    selected_region: offer?.region ?? null,
    selected_instance_type: offer?.instanceType ?? null,
    placement_reason: status?.placement?.reason ?? null,
    vm_instance_id: status?.vm?.id ?? null,
    ip_address: status?.vm?.ipAddress ?? null,
    estimated_cost: status?.cost?.estimatedUsd ?? null,
    actual_cost: status?.cost?.actualUsd ?? null,
  } satisfies Partial<JobRecord>
}

/** Times with an offset become UTC; others stay as they are, with their fractions; null where there is none. */
export function inUtc(time: string | undefined): string | null {
  if (time === undefined) return null
  return time.endsWith("Z") ? time : new Date(time).toISOString()
}

/** A plan as the REST API shows it. */
export function planRecordOf(name: string, { verdict, reason, message, placements, ranking }: JobPlan): JobPlanRecord {
  return {
    dry_run: true,
    name,
    verdict,
    reason,
    message,
    estimated_cost: placements[0]?.totalUsd ?? null,
    placements: placements.map((placement, index) => placementOf(placement, ranking[index] ?? "")),
  }
}

function placementOf({ offer, payer, totalUsd }: RankedPlacement, why: string): JobPlanRecord["placements"][number] {
  return {
    provider: offer.cloud,
    region: offer.region,
    zone: offer.zone ?? null,
    instance_type: offer.instanceType,
    provisioning: offer.provisioning,
    connection: payer.connection === undefined ? null : fromMetadataName(payer.connection),
    hourly_price_usd: offer.hourlyPriceUsd,
    price_date: offer.priceDate ?? null,
    estimated_cost_usd: totalUsd,
    cpu: offer.cpu,
    memory: gib(offer.memoryGib),
    architecture: offer.architecture,
    gpu: plannedGpuOf(offer.gpu),
    why,
  }
}

/** In the shape of a job record's `resources.gpu`: `vram` over all cards. */
function plannedGpuOf(gpu: Offer["gpu"]): JobPlanRecord["placements"][number]["gpu"] {
  return gpu === undefined ? null : { vram: gib(gpu.count * gpu.vramGib), count: gpu.count, model: gpu.model }
}

function gib(amount: number): string {
  return `${Math.round(amount * 1000) / 1000}Gi`
}
