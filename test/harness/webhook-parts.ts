import type { Clock } from "../../src/core/apis/clock.ts"
import type { StoredJob } from "../../src/core/apis/job.ts"
import { PROJECT_OF_NAMESPACE } from "../../src/core/identity/projects.ts"
import { readSealingKeys, SEALING_KEYS_CACHE } from "../../src/core/identity/sealing-keys.ts"
import type { KubeClient } from "../../src/core/kube/client.ts"
import type { EventRecorder } from "../../src/core/kube/events.ts"
import { Reflector } from "../../src/core/kube/reflector.ts"
import { type PrivateTargets, publicFetch } from "../../src/core/outbound/public-fetch.ts"
import { PROJECT_LIMITS, type ProjectLimits } from "../../src/core/quota/project-limits.ts"
import { toRecord } from "../../src/core/records/job.ts"
import { toOwner } from "../../src/core/records/owner.ts"
import { PROJECTS } from "../../src/core/resources.ts"
import type { RunnableReflector } from "../../src/core/runtime/manager.ts"
import { Sealer } from "../../src/core/sealing/envelope.ts"
import { KeyringEncryption } from "../../src/core/sealing/keys.ts"
import { WEBHOOK_CACHE, WEBHOOK_SECRET_CACHE } from "../../src/operator/caches.ts"
import { createWebhookController, type WebhookControl } from "../../src/operator/webhook/controller.ts"
import type { WebhookSettings } from "../../src/operator/webhook/settings.ts"
import { silentLogger } from "./silent-logger.ts"
import { usageOf } from "./usage.ts"

/** Settings of the webhooks of a test. */
export interface WebhookOptions extends Partial<WebhookSettings> {
  timeoutSeconds?: number
  /** Default: the loopback network, where the receivers of tests are. */
  privateTargets?: PrivateTargets
  /** Limits of webhooks and of their messages. Default: there are none. */
  limits?: Partial<ProjectLimits>
}

export interface WebhookParts {
  control: WebhookControl
  reflectors: RunnableReflector[]
}

interface Shared {
  client: KubeClient
  namespace: string
  jobs: Reflector<StoredJob>
  fence: () => void
  clock: Clock
  recorder: Pick<EventRecorder, "record">
}

/** Constructs the webhooks of one namespace. */
export function webhookParts(
  { namespace, ...shared }: Shared,
  {
    timeoutSeconds = 2,
    privateTargets = { hosts: [], networks: ["127.0.0.0/8"] },
    limits,
    ...settings
  }: WebhookOptions,
): WebhookParts {
  const { client, clock } = shared
  const base = { client, logger: silentLogger, namespace }
  const webhooks = new Reflector({ ...base, ...WEBHOOK_CACHE })
  const secrets = new Reflector({ ...base, ...WEBHOOK_SECRET_CACHE })
  const sealingKeys = new Reflector({ ...base, ...SEALING_KEYS_CACHE })
  const projects = new Reflector({ client, logger: silentLogger, resource: PROJECTS, indexes: PROJECT_OF_NAMESPACE })
  const quota = limits && { limits: { ...PROJECT_LIMITS, ...limits }, usage: usageOf({ webhooks }, clock) }
  let reads = 0
  const control = createWebhookController({
    ...{ ...shared, webhooks, secrets, sealingKeys, projects, logger: silentLogger, settings },
    ...(quota && { quota }),
    sealer: new Sealer(new KeyringEncryption(() => readSealingKeys(client, namespace))),
    recordOf: (job, project) => toRecord(job, toOwner(project)),
    readOutput: async ({ metadata }) => `output of ${metadata.name}, read ${++reads}`,
    sending: { send: publicFetch(privateTargets), privateTargets, clock, timeoutSeconds, version: "test" },
  })
  return { control, reflectors: [webhooks, secrets, sealingKeys, projects] }
}
