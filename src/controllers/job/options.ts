import type { Clock } from "../../apis/clock.ts"
import type { StoredConnection } from "../../apis/connection.ts"
import { JOB, type StoredJob } from "../../apis/job.ts"
import { LAUNCH, type Launch, type StoredLaunch } from "../../apis/launch.ts"
import type { Logger } from "../../apis/logger.ts"
import type { SpendCaps } from "../../apis/project.ts"
import type { Offers } from "../../catalogue/offers.ts"
import type { KubeClient } from "../../kube/client.ts"
import type { EventRecorder } from "../../kube/events.ts"
import type { Reflector } from "../../kube/reflector.ts"
import { resourceOf } from "../../kube/resource.ts"
import type { Buckets, ImageState, Images } from "../../placement/inputs.ts"
import type { Payers } from "../../placement/market.ts"
import type { JobSettings } from "../../placement/settings.ts"
import type { Fence } from "../fence.ts"
import type { Patcher, StatusReplacer } from "../writes.ts"

/** How Jobs and Launches are reached. */
export const JOBS = resourceOf<StoredJob>(JOB)
export const LAUNCHES = resourceOf<StoredLaunch>(LAUNCH)

/** Owner of the fields that the job controller writes. */
export const FIELD_MANAGER = "berth-job-controller"

/** What ends a Launch's VM when its connection has changed or gone. */
export type CredentialsCopy = Required<Pick<Launch["spec"], "project" | "sealedCredentials">>

/**
 * The credentials that a Launch is to carry, sealed; undefined when its connection can't pay any more, or opens another
 * account by now.
 */
export type CopyCredentials = (launch: Launch) => Promise<CredentialsCopy | undefined>

/** Where this installation's Launches live and where their agents report. */
export interface InstallationFacts {
  id: string
  systemNamespace: string
  gatewayUrl: string
  /** PEM of the gateway's CA, where it is not a public one. */
  gatewayCa?: string
  /** Berth's own image, which VMs of public clouds run the agent from. */
  agentImage?: string
}

/** Returns the writer of Jobs. */
export function jobWriter({ client, jobs }: JobControllerOptions): Patcher<StoredJob> & StatusReplacer<StoredJob> {
  return { client, resource: JOBS, store: jobs.store, fieldManager: FIELD_MANAGER }
}

/** What the job controller works with; `operator.ts` constructs it. */
export interface JobControllerOptions {
  client: Pick<KubeClient, "get" | "list" | "create" | "patch" | "replaceStatus" | "delete">
  /** Caches; the launches' has the indexes `launchIndexes` of the launch controller. */
  jobs: Reflector<StoredJob>
  launches: Reflector<StoredLaunch>
  /** Where there are connections: one that can pay since its last change wakes the jobs that wait in its namespace. */
  connections?: Reflector<StoredConnection>
  /** Where there are connections. */
  copyCredentials?: CopyCredentials
  /** Where there are connections: without it volumes are left as they are. */
  buckets?: Buckets
  /** Where registries are asked: without it images run on what the settings say. */
  images?: Images
  /** What is known now of what the agent's image runs on; absent: VMs need none, or nobody asks. */
  agentImage?: () => ImageState
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
