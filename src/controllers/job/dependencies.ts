import type { Clock } from "../../apis/clock.ts"
import type { StoredConnection } from "../../apis/connection.ts"
import { JOB, type StoredJob } from "../../apis/job.ts"
import type { StoredLaunch } from "../../apis/launch.ts"
import type { SpendCaps } from "../../apis/project.ts"
import type { Offers } from "../../catalogue/offers.ts"
import type { KubeClient } from "../../kube/client.ts"
import type { EventRecorder } from "../../kube/events.ts"
import type { Logger } from "../../kube/logger.ts"
import type { Reflector } from "../../kube/reflector.ts"
import { resourceOf } from "../../kube/resource.ts"
import type { Fence } from "../fence.ts"
import type { InstallationFacts } from "./launch-object.ts"
import type { LaunchPayer } from "./market.ts"
import type { JobSettings } from "./settings.ts"

/** How Jobs are reached. */
export const JOBS = resourceOf<StoredJob>(JOB)

/** Owner of the fields that the job controller writes. */
export const FIELD_MANAGER = "berth-job-controller"

/** Who can pay for a project's VMs. */
export interface Payers {
  /** Ready connections of the namespace that can run VMs, and clouds that need none. */
  of(namespace: string): readonly LaunchPayer[]
}

/** What the job controller works with; `wire.ts` gives it. */
export interface JobControllerOptions {
  client: Pick<KubeClient, "get" | "list" | "create" | "patch" | "replaceStatus" | "delete">
  /** Caches; the launches' has the indexes `launchIndexes` of the launch controller. */
  jobs: Reflector<StoredJob>
  launches: Reflector<StoredLaunch>
  /** Where there are connections: a change of one wakes the jobs that wait in its namespace. */
  connections?: Reflector<StoredConnection>
  installation: InstallationFacts
  offers: Offers
  payers: Payers
  /** Caps of the project that a namespace belongs to. */
  caps?: (namespace: string) => SpendCaps | undefined
  fence: Fence
  clock: Clock
  recorder: Pick<EventRecorder, "record">
  logger: Logger
  settings?: Partial<JobSettings>
  /** Jobs looked after at the same time. Default 8. */
  workers?: number
}
