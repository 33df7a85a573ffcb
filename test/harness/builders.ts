import { randomUUID } from "node:crypto"
import type { CapLevel, SpendCaps } from "../../src/core/apis/caps.ts"
import type { JobSpec, JobStatus, StoredJob } from "../../src/core/apis/job.ts"
import { JOB_FINALIZER } from "../../src/core/apis/job.ts"
import {
  type AgentStatus,
  LAUNCH_FINALIZER,
  type LaunchSpec,
  type LaunchStatus,
  launchName,
  type StoredLaunch,
} from "../../src/core/apis/launch.ts"
import type { Host, MachineLaunch, MachineSpec, MachineStatus, StoredMachine } from "../../src/core/apis/machine.ts"
import { ANNOTATIONS, API_VERSION } from "../../src/core/apis/meta.ts"
import type { Offer } from "../../src/core/apis/offer.ts"
import { readOrigin } from "../../src/core/apis/origin.ts"
import type { CappedLevel, Spending } from "../../src/market/placement/caps.ts"
import type { Market } from "../../src/market/placement/market.ts"
import { createCatalogue } from "../../src/market/router/catalogue.ts"
import type { InstallationFacts } from "../../src/operator/job/dependencies.ts"
import type { JobObservation } from "../../src/operator/job/facts.ts"
import { SYSTEM_NAMESPACE } from "./system-namespace.ts"

/** Start time of the tests. */
export const T0 = new Date("2026-05-01T12:00:00Z")

/** Returns the time so many seconds after T0. */
export function at(seconds: number): Date {
  return new Date(T0.getTime() + seconds * 1000)
}

/** Returns the same time in Kubernetes' format. */
export function time(seconds: number): string {
  return `${at(seconds).toISOString().slice(0, 19)}Z`
}

export const INSTALLATION: InstallationFacts = {
  id: "7f3c0b52-0000-4000-8000-000000000000",
  systemNamespace: SYSTEM_NAMESPACE,
  gatewayUrl: "https://gateway.test",
}

/** Returns what a decision on a job has seen besides Launches and market. */
export function seenOf(job: StoredJob): Pick<JobObservation, "installation" | "origin"> {
  return { installation: INSTALLATION, origin: readOrigin(job, INSTALLATION.id) }
}

export function offerOf(changes: Partial<Offer> = {}): Offer {
  return {
    cloud: "sim",
    region: "here",
    instanceType: "small",
    architecture: "amd64",
    provisioning: "onDemand",
    cpu: 2,
    memoryGib: 8,
    hourlyPriceUsd: 0.6,
    minimumBilledSeconds: 60,
    ...changes,
  }
}

/** Three machines in the order of choice. */
export const OFFERS: readonly Offer[] = [
  offerOf(),
  offerOf({ instanceType: "medium", cpu: 4, memoryGib: 16, hourlyPriceUsd: 1.2 }),
  offerOf({ instanceType: "large", cpu: 8, memoryGib: 32, hourlyPriceUsd: 2.4 }),
]

export const CATALOGUE = createCatalogue(OFFERS)

export function jobOf(
  changes: { spec?: Partial<JobSpec>; status?: JobStatus; metadata?: Partial<StoredJob["metadata"]> } = {},
): StoredJob {
  const uid = changes.metadata?.uid ?? randomUUID()
  return {
    apiVersion: API_VERSION,
    kind: "Job",
    metadata: {
      name: "train",
      namespace: "team",
      uid,
      resourceVersion: "1",
      generation: 1,
      creationTimestamp: time(0),
      finalizers: [JOB_FINALIZER],
      annotations: { [ANNOTATIONS.recordedUid]: uid },
      ...changes.metadata,
    },
    spec: { image: "busybox", ...changes.spec },
    ...(changes.status !== undefined && { status: changes.status }),
  }
}

export function agentOf(changes: Partial<AgentStatus> = {}): AgentStatus {
  return {
    signingKey: "{}",
    encryptionKey: "{}",
    registrationTime: time(20),
    sequence: 1,
    retryCount: 0,
    ...changes,
  }
}

/** Launch `j-1`, as the status of a machine has it. */
export const MACHINE_LAUNCH: MachineLaunch = {
  ...{ name: "j-1", installation: "i", namespace: "team", region: "own", specDigest: "d" },
  createTime: time(10),
}

/** Changes to a machine. */
interface MachineChanges {
  metadata?: Partial<StoredMachine["metadata"]>
  spec?: Partial<MachineSpec>
  status?: Omit<MachineStatus, "host"> & { host?: Partial<Omit<Host, "facts">> & { facts?: Partial<Host["facts"]> } }
}

/** Returns a machine of the project `team`, whose host has joined and was heard of at second 90. */
export function machineOf({ metadata, spec, status = {} }: MachineChanges = {}): StoredMachine {
  const { host, ...others } = status
  return {
    apiVersion: API_VERSION,
    kind: "Machine",
    metadata: {
      ...{ name: "gpu-1", namespace: "team", uid: "uid-gpu-1", resourceVersion: "1", generation: 1 },
      creationTimestamp: time(0),
      ...metadata,
    },
    spec: { joinNumber: 1, ...spec },
    status: {
      host: {
        ...{ joinNumber: 1, joinTime: time(0), signingKey: "{}", encryptionKey: "{}", version: "1", sequence: 1 },
        ...{ lastHeartbeatTime: time(90), leaseSeconds: 900 },
        ...host,
        facts: { cpu: 8, memoryGib: 32, diskGib: 200, architecture: "amd64", ...host?.facts },
      },
      ...others,
    },
  }
}

export function launchOf(
  job: StoredJob,
  number = 1,
  changes: { spec?: Partial<LaunchSpec>; status?: LaunchStatus; metadata?: Partial<StoredLaunch["metadata"]> } = {},
): StoredLaunch {
  const { namespace = "", name, uid } = job.metadata
  return {
    apiVersion: API_VERSION,
    kind: "Launch",
    metadata: {
      name: launchName(uid, number),
      namespace: INSTALLATION.systemNamespace,
      uid: `${uid}-launch-${number}`,
      resourceVersion: "1",
      generation: 1,
      creationTimestamp: time(0),
      finalizers: [LAUNCH_FINALIZER],
      ...changes.metadata,
    },
    spec: {
      job: { namespace, name, uid },
      number,
      installation: INSTALLATION.id,
      offer: offerOf(),
      run: { image: "busybox", timeoutSeconds: 3600 },
      gatewayUrl: INSTALLATION.gatewayUrl,
      bootDeadlineSeconds: 900,
      startDeadlineSeconds: 900,
      lifetimeSeconds: 5400,
      ...changes.spec,
    },
    ...(changes.status !== undefined && { status: withParts(changes.status) }),
  }
}

/** Returns a status whose cost has parts, as a real one has: all of it is the machine's, unless it says more. */
function withParts(status: LaunchStatus): LaunchStatus {
  const { costUsd } = status
  return { ...(costUsd && { cost: { machineUsd: costUsd, diskUsd: 0, addressUsd: 0 } }), ...status }
}

/** Returns the status of a Launch with a created VM, overridden by `changes`. */
export function vmStatus(changes: LaunchStatus = {}): LaunchStatus {
  return { phase: "created", vm: { state: "booting", id: "vm-1", createTime: time(5) }, ...changes }
}

export function marketOf(changes: Partial<Market> = {}): Market {
  return {
    offers: CATALOGUE,
    launchAccounts: [{ cloud: "sim" }],
    cooldowns: [],
    paused: [],
    levels: [],
    rateWaitSeconds: 0,
    ...changes,
  }
}

/** Returns a level with caps, and the spending under them. */
export function levelOf(caps: SpendCaps, spending: Partial<Spending> = {}, level: CapLevel = "project"): CappedLevel {
  const nothing = { vms: 0, gpus: 0, idleVms: 0, hourlyUsd: 0, endedUsd: 0, liveUsd: 0, expectedUsd: 0, mostUsd: 0 }
  return { level, name: level, caps, owns: () => true, spending: { ...nothing, ...spending } }
}
