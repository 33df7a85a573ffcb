import type { Clock } from "../../core/apis/clock.ts"
import { keyOf } from "../../core/apis/meta.ts"
import type { StoredWebhook, WebhookStatus } from "../../core/apis/webhook.ts"
import { NAMESPACE_INDEX } from "../../core/identity/catch-up.ts"
import { projectScope } from "../../core/identity/projects.ts"
import { WEBHOOKS } from "../../core/resources.ts"
import { Controller, type ReconcileContext, watchSource } from "../../core/runtime/controller.ts"
import { type ObjectReconciler, reconcileObject } from "../../core/runtime/reconcile-object.ts"
import { WEBHOOK_SECRET_INDEX } from "../caches.ts"
import { type Patcher, replaceStatus, type StatusReplacer } from "../writes.ts"
import { decide, type WebhookAction, type WebhookObservation } from "./decide.ts"
import { WebhookDeliveries } from "./deliveries.ts"
import type { WebhookControllerDependencies } from "./dependencies.ts"
import { gather } from "./gather.ts"
import { WEBHOOK_DEFAULTS } from "./settings.ts"

const FIELD_MANAGER = "berth-webhook-controller"

/** Webhooks: the controller of their status, and the loop that sends their messages. */
export interface WebhookControl {
  controller: Controller
  deliveries: WebhookDeliveries
}

/** Creates the parts that send events to webhooks and write what became of them. */
export function createWebhookController(options: WebhookControllerDependencies): WebhookControl {
  const { webhooks, secrets, sealingKeys, projects, clock, recorder, logger } = options
  const { writeSeconds } = { ...WEBHOOK_DEFAULTS, ...options.settings }
  const deliveries = new WebhookDeliveries(options)
  const writes = new WritePace(writeSeconds, { clock, deliveries })
  const reconciler: ObjectReconciler<StoredWebhook, WebhookObservation, WebhookStatus, WebhookAction> = {
    store: webhooks.store,
    clock,
    recorder,
    gather: (webhook) => gather(webhook, deliveries, options, writes.waitFor(webhook)),
    decide,
    writeStatus: async (webhook, status, context) => {
      writes.note(webhook)
      // A slow write counts from its end, so the next one comes no sooner on the server either.
      const written = await replaceStatus(webhook, status, webhookWriter(options), context).finally(() =>
        writes.note(webhook),
      )
      deliveries.release(deliveries.backlogOf(webhook)?.persisted(status) ?? [])
      return written
    },
    act: (webhook, action, context) => reseal(webhook, action.project, options, context),
  }
  const { store } = webhooks
  const controller = new Controller({
    name: "webhook",
    reconcile: async (key, context) => {
      const known = store.getByKey(key)
      if (known !== undefined) deliveries.reconsider(known)
      const result = await reconcileObject(key, reconciler, context)
      const webhook = store.getByKey(key)
      const backlog = webhook && deliveries.backlogOf(webhook)
      if (backlog !== undefined) deliveries.release(backlog.release(clock.now()))
      return result
    },
    sources: [
      watchSource(webhooks),
      deliveries.changes,
      watchSource(secrets, ({ key }) => {
        const its = store.byIndex(WEBHOOK_SECRET_INDEX, key)
        for (const webhook of its) deliveries.retryNow(webhook)
        return its.map(keyOf)
      }),
      watchSource(sealingKeys, () => store.list().map(keyOf)),
      watchSource(projects, ({ current }) => {
        const namespace = current && projectScope(current)?.namespace
        return namespace === undefined ? [] : store.byIndex(NAMESPACE_INDEX, namespace).map(keyOf)
      }),
    ],
    logger,
    clock,
  })
  return { controller, deliveries }
}

/** Pace of the writes of each webhook's status. A new webhook has its first status at once. */
class WritePace {
  readonly #seconds: number
  readonly #clock: Pick<Clock, "monotonic">
  readonly #deliveries: Pick<WebhookDeliveries, "startedAt">
  /** Monotonic time of the last write, by the webhook's uid. */
  readonly #writtenAt = new Map<string, number>()

  constructor(seconds: number, { clock, deliveries }: { clock: Clock; deliveries: WebhookDeliveries }) {
    this.#seconds = seconds
    this.#clock = clock
    this.#deliveries = deliveries
  }

  /** Returns the time until the status may be written, seconds. A former process may have written it just before its end. */
  waitFor({ metadata, status }: StoredWebhook): number {
    const before = status === undefined ? Number.NEGATIVE_INFINITY : this.#deliveries.startedAt
    return (this.#writtenAt.get(metadata.uid) ?? before) + this.#seconds - this.#clock.monotonic()
  }

  note({ metadata }: StoredWebhook): void {
    this.#writtenAt.set(metadata.uid, this.#clock.monotonic())
  }
}

/**
 * Seals the secrets of the version that was read under the primary key.
 * @param project id of the project that they are sealed for
 * @throws KubeError Conflict
 */
async function reseal(
  webhook: StoredWebhook,
  project: string,
  options: WebhookControllerDependencies,
  context: ReconcileContext,
): Promise<void> {
  const { client, resource, store, fieldManager } = webhookWriter(options)
  const { namespace, name, resourceVersion } = webhook.metadata
  const sealedSecret = await options.sealer.reseal(webhook.spec.sealedSecret ?? "", { project, name })
  const merge = { metadata: { resourceVersion }, spec: { sealedSecret } }
  context.wrote(store, await client.patch(resource, { namespace, name }, { merge }, { fieldManager }))
  options.logger.info({ namespace, webhook: name }, "sealed the secrets again under the primary key")
}

function webhookWriter({
  client,
  webhooks,
}: WebhookControllerDependencies): Patcher<StoredWebhook> & StatusReplacer<StoredWebhook> {
  return { client, resource: WEBHOOKS, store: webhooks.store, fieldManager: FIELD_MANAGER }
}
