import type { CopyCredentials } from "../../accounts/launch-accounts.ts"
import type { Clock } from "../../core/apis/clock.ts"
import type { StoredConnection } from "../../core/apis/connection.ts"
import type { StoredJob } from "../../core/apis/job.ts"
import type { HeartbeatTimes, Launch, StoredLaunch } from "../../core/apis/launch.ts"
import type { Logger } from "../../core/apis/logger.ts"
import type { StoredMachine } from "../../core/apis/machine.ts"
import type { StoredOrganization } from "../../core/apis/organization.ts"
import type { StoredProject } from "../../core/apis/project.ts"
import type { StoredStatement } from "../../core/apis/statement.ts"
import type { VmProxy } from "../../core/apis/vm-proxy.ts"
import type { KubeClient } from "../../core/kube/client.ts"
import type { EventRecorder } from "../../core/kube/events.ts"
import type { Reflector } from "../../core/kube/reflector.ts"
import type { Quota } from "../../core/quota/project-limits.ts"
import type { Source } from "../../core/runtime/controller.ts"
import type { Offers } from "../../market/catalogue/offers.ts"
import type { Tenants } from "../../market/placement/breaker.ts"
import type { LevelCaps } from "../../market/placement/caps.ts"
import type { Buckets, ImageState, Images } from "../../market/placement/inputs.ts"
import type { LaunchAccounts } from "../../market/placement/market.ts"
import type { JobSettings } from "../../market/placement/settings.ts"
import type { EnvSecret } from "../caches.ts"
import type { Fence } from "../fence.ts"
import type { Prerequisites } from "../prerequisites.ts"
import type { SettledJobs } from "../settled-jobs.ts"

/** Namespace of this installation's Launches, and the address of its gateway. */
export interface InstallationFacts {
  id: string
  systemNamespace: string
  gatewayUrl: string
  /** PEM of authorities that VMs trust in addition to the public ones. */
  gatewayCa?: string
  /** Proxy of VMs. */
  vmProxy?: VmProxy
  /** Berth's image from which VMs of public clouds run the agent. */
  agentImage?: string
  /** Berth's image with rclone, for jobs with volumes. */
  volumesImage?: string
}

/** Reader of the ends of jobs, besides the Statements. A job is settled only when each one that wants its end has seen it. */
export interface EndReader {
  /** Returns true while the reader wants the end of a job and has not seen it. */
  awaits(job: StoredJob): boolean
  /** Source that requeues the jobs whose end the reader has seen. */
  source: Source
}

/** Dependencies of the job controller. `operator/main.ts` constructs them. */
export interface JobControllerDependencies {
  client: Pick<KubeClient, "get" | "list" | "create" | "patch" | "replaceStatus" | "delete">
  /**
   * Caches with the indexes `jobIndexes`, and `launchIndexes` of the launch controller. That of Jobs has the options
   * `JOB_CACHE`.
   */
  jobs: Reflector<StoredJob>
  /** Settled jobs, which the cache has not. */
  settled: Pick<SettledJobs, "add" | "submitted">
  /** Readers of the ends of jobs. Default none. */
  endReaders?: readonly EndReader[]
  /** Prerequisites of jobs. */
  prerequisites: Prerequisites
  launches: Reflector<StoredLaunch>
  /** Heartbeats that are not in the Launches. */
  heartbeatTimes?: HeartbeatTimes
  /**
   * Connections, if the installation has them. One that becomes able to pay requeues the waiting jobs of its namespace.
   */
  connections?: Reflector<StoredConnection>
  /** Machines that people own. Absent: there are none. */
  machines?: Reflector<StoredMachine>
  /** Copies credentials. Present with connections. */
  copyCredentials?: CopyCredentials
  /** Returns the VM image of a Launch if it is known. Absent: the launch controller asks for every Launch's image. */
  vmImage?: (launch: Launch) => string | undefined
  /** Search for buckets. Present with connections; without it volumes stay unchanged. */
  buckets?: Buckets
  /** Secrets that jobs may name, with the options `ENV_SECRET_CACHE`. Absent: only the gateway looks for them. */
  envSecrets?: Reflector<EnvSecret>
  /** Lookup of images. Absent if registries are not read: then the settings decide. */
  images?: Images
  /** Returns the known architectures of the agent's image. Absent if VMs need none, or no registry is read. */
  agentImage?: () => ImageState
  /** Statements, which have the costs of ended VMs. */
  statements: Reflector<StoredStatement>
  installation: InstallationFacts
  offers: Offers
  launchAccounts: LaunchAccounts
  /** Limits of what projects may store, and their use. Absent: no limits. */
  quota?: Quota
  /** Projects and organizations, whose deletion cancels their queued jobs. Absent: no jobs belong to projects. */
  tenancy?: { projects: Reflector<StoredProject>; organizations: Reflector<StoredOrganization> }
  /** Returns the levels of a namespace's project that have caps. */
  caps?: (namespace: string) => readonly LevelCaps[]
  /** Organizations of the projects. Absent: the installation counts as one organization. */
  tenants?: Tenants
  fence: Fence
  clock: Clock
  recorder: Pick<EventRecorder, "record">
  logger: Logger
  settings?: Partial<JobSettings>
  /** Number of Jobs that are reconciled at the same time. Default 8. */
  workers?: number
}
