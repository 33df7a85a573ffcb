import type { ConditionCause } from "../../core/apis/conditions.ts"
import { defined } from "../../core/apis/defined.ts"
import type { StoredWebhook } from "../../core/apis/webhook.ts"
import type { WebhookObservation } from "./decide.ts"
import type { WebhookDeliveries } from "./deliveries.ts"
import type { WebhookControllerDependencies } from "./dependencies.ts"
import { ReceiverUnusable, receiverIn, scopeIn } from "./secret.ts"

/** Reads all facts that a decision on this Webhook needs. @throws KubeError; SealingKeysMissing */
export async function gather(
  webhook: StoredWebhook,
  deliveries: WebhookDeliveries,
  options: WebhookControllerDependencies,
  writableIn: number,
): Promise<WebhookObservation> {
  const now = options.clock.now()
  const { host, fault } = await receiverFacts(webhook, options, now)
  const project = scopeIn(webhook.metadata.namespace ?? "", options)?.id
  const { sealedSecret } = webhook.spec
  const isOutdated =
    sealedSecret !== undefined && fault === undefined && (await options.sealer.isOutdated(sealedSecret))
  const facts = {
    ...defined({ fault, host, project }),
    ...{ isOutdated, writableIn },
  }
  const backlog = deliveries.backlogOf(webhook)
  const overLimit = deliveries.limitOf(webhook)
  if (overLimit !== undefined) return { ...facts, progress: {}, overLimit }
  // The backlog is long while a receiver fails, so it is read only if the status can be written.
  if (backlog === undefined || writableIn > 0) return { ...facts, ...(backlog !== undefined && { progress: {} }) }
  const limitedTo = deliveries.limitedTo(webhook)
  backlog.isLimited = limitedTo !== undefined
  backlog.expire(now)
  const progress = backlog.status(now)
  const changesIn = backlog.changesIn(now)
  const { stopped, lastError } = backlog
  return {
    ...{ ...facts, progress },
    ...defined({ stopped, lastError, changesIn }),
    ...(limitedTo !== undefined && { limited: { messages: backlog.size, perMinute: limitedTo } }),
  }
}

async function receiverFacts(
  webhook: StoredWebhook,
  options: WebhookControllerDependencies,
  now: Date,
): Promise<{ host?: string; fault?: ConditionCause }> {
  try {
    const { receiver } = await receiverIn(webhook, options, now)
    return { host: new URL(receiver.url).host }
  } catch (error) {
    if (error instanceof ReceiverUnusable) return { fault: { reason: error.reason, message: error.message } }
    throw error
  }
}
