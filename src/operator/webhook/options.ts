import type { Clock } from "../../core/apis/clock.ts"
import type { StoredJob } from "../../core/apis/job.ts"
import type { Logger } from "../../core/apis/logger.ts"
import type { StoredProject } from "../../core/apis/project.ts"
import { type StoredWebhook, WEBHOOK_SECRET_TYPE } from "../../core/apis/webhook.ts"
import { byNamespace, NAMESPACE_INDEX } from "../../core/identity/catch-up.ts"
import type { ProjectScope } from "../../core/identity/principal.ts"
import { WEBHOOKS } from "../../core/kinds.ts"
import type { KubeClient } from "../../core/kube/client.ts"
import { SECRETS, type Secret } from "../../core/kube/core.ts"
import type { EventRecorder } from "../../core/kube/events.ts"
import type { Reflector, ReflectorOptions } from "../../core/kube/reflector.ts"
import type { Store } from "../../core/kube/store.ts"
import type { Quota } from "../../core/limits/project-limits.ts"
import type { Sealer } from "../../core/sealing/envelope.ts"
import { RETRY_DEFAULTS } from "../../core/webhooks/retry.ts"
import type { SendOptions } from "../../core/webhooks/send.ts"
import type { Fence } from "../fence.ts"
import type { Patcher, StatusReplacer } from "../writes.ts"
import type { BacklogSettings } from "./backlog.ts"

const FIELD_MANAGER = "berth-webhook-controller"

/** Index of Webhooks by the Secret that they name, as `namespace/name`. */
export const WEBHOOK_SECRET_INDEX = "secret"

/** Options that the reflector of Webhooks must have. */
export const WEBHOOK_CACHE: Pick<ReflectorOptions<StoredWebhook>, "resource" | "indexes"> = {
  resource: WEBHOOKS,
  indexes: {
    [NAMESPACE_INDEX]: byNamespace,
    [WEBHOOK_SECRET_INDEX]: ({ metadata, spec }) =>
      spec.secretRef === undefined ? [] : [`${metadata.namespace}/${spec.secretRef.name}`],
  },
}

/** Options that the reflector of Secrets must have. They keep every other Secret out of this process's memory. */
export const WEBHOOK_SECRET_CACHE: Pick<ReflectorOptions<Secret>, "resource" | "fieldSelector"> = {
  resource: SECRETS,
  fieldSelector: `type=${WEBHOOK_SECRET_TYPE}`,
}

/** Settings of webhooks. All durations are in seconds. */
export interface WebhookSettings extends BacklogSettings {
  /** Shortest time between two writes of a webhook's status. */
  writeSeconds: number
  /** Messages that are sent to one receiver at the same time. */
  parallel: number
  /** Time that messages under way get when the operator stops. */
  drainSeconds: number
}

export const WEBHOOK_DEFAULTS: WebhookSettings = {
  holdSeconds: 3600,
  limitedHoldSeconds: 24 * 3600,
  marginSeconds: 120,
  retry: RETRY_DEFAULTS,
  writeSeconds: 10,
  parallel: 8,
  drainSeconds: 2,
}

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
export interface WebhookControllerOptions extends WebhookSources {
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

export function webhookWriter({
  client,
  webhooks,
}: WebhookControllerOptions): Patcher<StoredWebhook> & StatusReplacer<StoredWebhook> {
  return { client, resource: WEBHOOKS, store: webhooks.store, fieldManager: FIELD_MANAGER }
}
