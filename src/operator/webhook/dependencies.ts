import type { Clock } from "../../core/apis/clock.ts"
import type { StoredJob } from "../../core/apis/job.ts"
import type { Logger } from "../../core/apis/logger.ts"
import type { StoredProject } from "../../core/apis/project.ts"
import type { StoredWebhook } from "../../core/apis/webhook.ts"
import type { ProjectScope } from "../../core/identity/principal.ts"
import type { KubeClient } from "../../core/kube/client.ts"
import type { Secret } from "../../core/kube/core.ts"
import type { EventRecorder } from "../../core/kube/events.ts"
import type { Reflector } from "../../core/kube/reflector.ts"
import type { Store } from "../../core/kube/store.ts"
import type { Quota } from "../../core/quota/project-limits.ts"
import type { Sealer } from "../../core/sealing/envelope.ts"
import type { SendOptions } from "../../core/webhooks/send.ts"
import type { Fence } from "../fence.ts"
import type { ReadOutput } from "./output.ts"
import type { WebhookSettings } from "./settings.ts"

/** Sources of the secrets of a webhook. */
export interface WebhookSources {
  /** Has the options WEBHOOK_SECRET_CACHE. */
  secrets: { store: Store<Secret> }
  /** Has the index of PROJECT_OF_NAMESPACE. */
  projects: { store: Store<StoredProject> }
  sealer: Sealer
  sending: Pick<SendOptions, "privateTargets">
}

/** Dependencies and settings of webhooks. `operator/main.ts` provides them. */
export interface WebhookControllerDependencies extends WebhookSources {
  client: Pick<KubeClient, "get" | "patch" | "replaceStatus">
  /** Has the options WEBHOOK_CACHE. */
  webhooks: Reflector<StoredWebhook>
  secrets: Reflector<Secret>
  projects: Reflector<StoredProject>
  /** Cache of the jobs that are not settled. */
  jobs: Reflector<StoredJob>
  /** The Secret of the sealing keys. Its change requeues all webhooks: they may have to be sealed again. */
  sealingKeys: Reflector<Secret>
  /** Returns the record of a job, as the REST API shows it. */
  recordOf: (job: StoredJob, project: ProjectScope) => object
  /** Reads the end of a job's log, for webhooks that want it. */
  readOutput: ReadOutput
  sending: SendOptions
  fence: Fence
  /** Limits of the webhooks of a project, and of their messages. Absent: there are none. */
  quota?: Quota
  clock: Clock
  recorder: Pick<EventRecorder, "record">
  logger: Logger
  settings?: Partial<WebhookSettings>
  /** Random number in [0, 1), for the jitter. */
  random?: () => number
}
