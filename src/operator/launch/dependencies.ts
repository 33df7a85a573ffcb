import type { Clouds } from "../../clouds/cloud.ts"
import type { Clock } from "../../core/apis/clock.ts"
import type { StoredJob } from "../../core/apis/job.ts"
import type { HeartbeatTimes, StoredLaunch } from "../../core/apis/launch.ts"
import type { Logger } from "../../core/apis/logger.ts"
import type { StoredStatement } from "../../core/apis/statement.ts"
import type { KubeClient } from "../../core/kube/client.ts"
import type { EventRecorder } from "../../core/kube/events.ts"
import type { Reflector } from "../../core/kube/reflector.ts"
import type { Fence } from "../fence.ts"
import type { SettledJobs } from "../settled-jobs.ts"
import type { VmImages } from "../vm-images.ts"
import type { Writer } from "../writes.ts"
import type { GarbageCollectionSettings, HeartbeatSettings, LaunchSettings } from "./settings.ts"

/** Dependencies and settings of the launch controller. `operator/main.ts` provides them. */
export interface LaunchControllerDependencies {
  client: Pick<KubeClient, "get" | "list" | "pages" | "deleteCollection"> & Writer<StoredLaunch>["client"]
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
