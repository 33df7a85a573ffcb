import type { CloudAccount, Clouds } from "../../clouds/cloud.ts"
import type { Clock } from "../../core/apis/clock.ts"
import type { StoredJob } from "../../core/apis/job.ts"
import type { HeartbeatTimes, StoredLaunch } from "../../core/apis/launch.ts"
import type { Logger } from "../../core/apis/logger.ts"
import type { StoredStatement } from "../../core/apis/statement.ts"
import { LAUNCHES } from "../../core/kinds.ts"
import type { KubeClient } from "../../core/kube/client.ts"
import type { EventRecorder } from "../../core/kube/events.ts"
import type { Reflector } from "../../core/kube/reflector.ts"
import type { Fence } from "../fence.ts"
import type { SettledJobs } from "../settled-jobs.ts"
import type { VmImages } from "../vm-images.ts"
import type { Writer } from "../writes.ts"

/** Owner of the fields that the launch controller writes. */
export const FIELD_MANAGER = "berth-launch-controller"

/** Settings of the launch controller. All durations are in seconds. */
export interface LaunchSettings {
  /** Minimum time for which the record of a terminated Launch is kept. */
  retentionSeconds: number
  /** Delay before a terminate call without effect is repeated. */
  terminateRetrySeconds: number
  /** Time that a VM has to end itself after its lifetime, before the controller terminates it. */
  lifetimeSlackSeconds: number
  /**
   * Age up to which a heartbeat outweighs a list without the VM. Must exceed the age that a written heartbeat of a
   * healthy VM can reach (api/gateway/heartbeats.ts).
   */
  recentHeartbeatSeconds: number
  /**
   * States that last shorter are not written. Must exceed the interval between two lists of an account; otherwise every
   * VM gets an extra write before it ends.
   */
  settleSeconds: number
  /** Minimum time between two writes of a launch error, whose text may change with each attempt. */
  launchErrorIntervalSeconds: number
  /** Age of a VM without an agent from which its console is read for the cause. */
  consoleSeconds: number
  /** Longest billed time after a finished agent's last message: the VM powers itself off. */
  powerOffSeconds: number
}

export const LAUNCH_DEFAULTS: LaunchSettings = {
  retentionSeconds: 3600,
  terminateRetrySeconds: 60,
  lifetimeSlackSeconds: 300,
  recentHeartbeatSeconds: 90,
  settleSeconds: 15,
  launchErrorIntervalSeconds: 60,
  consoleSeconds: 150,
  powerOffSeconds: 60,
}

/** Settings of the heartbeat timeout, after which a VM counts as lost. All durations are in seconds. */
export interface HeartbeatSettings {
  /** Age of an agent's last heartbeat from which its VM counts as lost. */
  timeoutSeconds: number
  /** The gateway counts as receiving if any heartbeat was written within this time. */
  receivingSeconds: number
  /** Highest share of the VMs with an agent (but at least one VM) that is evicted per `timeoutSeconds`. */
  evictionRate: number
}

export const HEARTBEAT_DEFAULTS: HeartbeatSettings = { timeoutSeconds: 600, receivingSeconds: 150, evictionRate: 0.1 }

/** Settings of the garbage collection of VMs. */
export interface GarbageCollectionSettings {
  /** Accounts to check besides those of all known Launches. */
  accounts?: () => readonly CloudAccount[]
  /** Seconds between two rounds. Default 300. */
  intervalSeconds?: number
  /** Seconds; younger VMs are kept. Default 300. */
  minAgeSeconds?: number
  /** VMs terminated per round, at most. Default 10. */
  maxPerRound?: number
}

/** Dependencies and settings of the launch controller. `operator/main.ts` provides them. */
export interface LaunchControllerOptions {
  client: Pick<KubeClient, "get" | "pages" | "deleteCollection"> & Writer<StoredLaunch>["client"]
  /** Cache of the Launches in `systemNamespace`, with the options `LAUNCH_CACHE`. */
  launches: Reflector<StoredLaunch>
  /** Cache of the unsettled Jobs. */
  jobs: Reflector<StoredJob>
  /** Settled jobs, which the cache has not. */
  settled: Pick<SettledJobs, "has">
  /** Statements, which count the costs of Launches before these lose their finalizer. */
  statements: Reflector<StoredStatement>
  /** Heartbeats that are not in the Launches. */
  heartbeatTimes?: HeartbeatTimes
  /** Namespace of all Launches. */
  systemNamespace: string
  /** Id of this Berth installation. */
  installation: string
  clouds: Clouds
  /**
   * Returns a VM's user data. Must depend only on the Launch's name and spec, so that every replay sends the same
   * bytes.
   */
  userData: (launch: StoredLaunch) => string
  /** Images for the next Launches. Absent: every Launch asks for its own. */
  vmImages?: VmImages
  fence: Fence
  clock: Clock
  recorder: Pick<EventRecorder, "record">
  logger: Logger
  settings?: Partial<LaunchSettings>
  heartbeats?: Partial<HeartbeatSettings>
  /** Seconds between two lists of an account's VMs. Default 10. */
  observeSeconds?: number
  garbageCollection?: GarbageCollectionSettings
  /** Number of Launches reconciled at the same time; each may wait for a cloud. Default 16. */
  workers?: number
}

export function launchWriter({ client, launches }: LaunchControllerOptions): Writer<StoredLaunch> {
  return { client, resource: LAUNCHES, store: launches.store, fieldManager: FIELD_MANAGER }
}
