import { timestamp } from "../../../core/apis/clock.ts"
import { findCondition } from "../../../core/apis/conditions.ts"
import { creationTimeOf } from "../../../core/apis/creation-times.ts"
import { defined } from "../../../core/apis/defined.ts"
import {
  MACHINE,
  MACHINE_LEASE,
  type Machine,
  MachineCondition,
  type MachineFacts,
  type MachineSpec,
  OWN_REGION,
  type StoredMachine,
} from "../../../core/apis/machine.ts"
import { ANNOTATIONS, API_VERSION } from "../../../core/apis/meta.ts"
import { fromMetadataName, toMetadataName } from "../../../core/apis/names.ts"
import { leaseEnd } from "../../../core/machines/machine.ts"
import { toConditionRecords } from "../../../core/records/conditions.ts"
import { inUtc } from "../../../core/records/job.ts"
import { machineState } from "../../../core/records/machine.ts"
import type { Owner } from "../../../core/records/owner.ts"
import { lastUpdateTime } from "../../../core/records/update-time.ts"
import { idempotencyMarks } from "../../idempotency-marks.ts"
import type { MachineChange, MachineCreation, MachineRecord } from "./schema.ts"

/** Metadata of a Machine to create. */
export interface MachineIdentity {
  namespace: string
  /** RFC 3339 with microseconds. */
  createdAt: string
  idempotency: { key: string; requestHash: string } | undefined
}

/** Returns the Machine to create, for which the first join token is issued. */
export function toMachine(
  { name, ...creation }: MachineCreation,
  { namespace, createdAt, idempotency }: MachineIdentity,
): Machine {
  const { labels, annotations } = idempotencyMarks(idempotency)
  return {
    apiVersion: API_VERSION,
    kind: MACHINE.kind,
    metadata: {
      name: toMetadataName(name) ?? name,
      namespace,
      labels,
      annotations: { [ANNOTATIONS.createdAt]: createdAt, ...annotations },
    },
    spec: { ...specOf(creation), joinNumber: 1 },
  }
}

/** Returns the spec after a checked change. */
export function changedSpec({ spec }: StoredMachine, change: MachineChange): MachineSpec {
  return { ...spec, ...specOf(change) }
}

function specOf({ hourly_price_usd, region, shared, unschedulable, lease_seconds }: MachineChange): MachineSpec {
  return defined({ hourlyPriceUsd: hourly_price_usd, region, shared, unschedulable, leaseSeconds: lease_seconds })
}

/** Facts on which a record depends besides the Machine. */
export interface RecordFacts {
  owner: Owner
  /** Name of the project's job that has the machine. */
  job: string | undefined
}

/** Returns the record of a Machine. */
export function toMachineRecord(machine: StoredMachine, { owner, job }: RecordFacts): MachineRecord {
  const { metadata, spec, status } = machine
  const isCurrent = status?.observedGeneration === metadata.generation
  const ready = isCurrent ? findCondition(status.conditions, MachineCondition.Ready) : undefined
  const host = status?.host
  return {
    id: metadata.uid,
    organization_id: owner.organizationId,
    project_id: owner.projectId,
    name: fromMetadataName(metadata.name),
    status: machineState(machine),
    reason: ready?.reason ?? null,
    message: ready?.message ?? null,
    job: job ?? null,
    facts: host === undefined ? null : toFacts(host.facts),
    agent_version: host?.version ?? null,
    hourly_price_usd: spec.hourlyPriceUsd ?? 0,
    region: spec.region ?? OWN_REGION,
    shared: spec.shared ?? false,
    unschedulable: spec.unschedulable ?? false,
    lease_seconds: spec.leaseSeconds ?? MACHINE_LEASE.default,
    joined_at: inUtc(host?.joinTime),
    last_heartbeat_at: inUtc(host?.lastHeartbeatTime),
    lease_ends_at: host === undefined ? null : timestamp(leaseEnd(host)),
    ...toConditionRecords(machine),
    created_at: creationTimeOf(machine),
    updated_at: lastUpdateTime(machine),
  }
}

function toFacts({ cpu, memoryGib, diskGib, architecture, gpu }: MachineFacts) {
  return {
    ...{ cpu, memory_gib: memoryGib, disk_gib: diskGib, architecture },
    ...{ gpu_model: gpu?.model ?? null, gpu_count: gpu?.count ?? 0, gpu_vram_gib: gpu?.vramGib ?? null },
  }
}
