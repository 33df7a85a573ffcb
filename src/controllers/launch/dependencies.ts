import type { Clock } from "../../apis/clock.ts"
import type { StoredJob } from "../../apis/job.ts"
import { LAUNCH, type StoredLaunch } from "../../apis/launch.ts"
import type { Logger } from "../../apis/logger.ts"
import type { SpendCaps } from "../../apis/project.ts"
import type { Clouds } from "../../cloud/provider.ts"
import type { KubeClient } from "../../kube/client.ts"
import type { EventRecorder } from "../../kube/events.ts"
import type { Reflector } from "../../kube/reflector.ts"
import { resourceOf } from "../../kube/resource.ts"
import type { Fence } from "../fence.ts"
import type { LaunchSettings } from "./settings.ts"
import type { SilenceSettings } from "./silence.ts"
import type { SweepOptions } from "./sweep.ts"

/** How Launches are reached. */
export const LAUNCHES = resourceOf<StoredLaunch>(LAUNCH)

/** Owner of the fields that the launch controller writes. */
export const FIELD_MANAGER = "berth-launch-controller"

/** What the launch controller works with; `operator.ts` constructs it. */
export interface LaunchControllerOptions {
  client: Pick<KubeClient, "get" | "patch" | "patchStatus" | "delete" | "pages">
  /** Caches; the launches' shows `systemNamespace` only and has the indexes `launchIndexes` of this folder. */
  launches: Reflector<StoredLaunch>
  jobs: Reflector<StoredJob>
  /** Where Launches live. */
  systemNamespace: string
  /** Id of this Berth installation. */
  installation: string
  clouds: Clouds
  /** What a Launch's VM starts with: a pure function of the Launch's name and spec, the same bytes at every replay. */
  userData: (launch: StoredLaunch) => string
  fence: Fence
  clock: Clock
  recorder: Pick<EventRecorder, "record">
  logger: Logger
  /** Caps of the project that a namespace belongs to: a monthly one keeps the records of what was spent. */
  caps?: (namespace: string) => SpendCaps | undefined
  settings?: Partial<LaunchSettings>
  silence?: Partial<SilenceSettings>
  /** Between two looks at the VMs of an account, seconds. Default 10. */
  observeSeconds?: number
  sweep?: Pick<SweepOptions, "accounts" | "intervalSeconds" | "youngSeconds" | "capPerRound" | "onSwept">
  /** Launches looked after at the same time; each may wait for a cloud. Default 16. */
  workers?: number
}
