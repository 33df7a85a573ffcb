import type { StoredWebhook } from "../../core/apis/webhook.ts"
import { WebhookReason } from "../../core/apis/webhook.ts"
import type { ProjectScope } from "../../core/identity/principal.ts"
import { projectScope } from "../../core/identity/projects.ts"
import { SealingError, type SealingErrorReason } from "../../core/sealing/keys.ts"
import { receiverFault } from "../../core/webhooks/receiver.ts"
import {
  openWebhook,
  type Receiver,
  secretIn,
  type WebhookSecret,
  webhookReceiver,
} from "../../core/webhooks/secret.ts"
import type { WebhookSources } from "./dependencies.ts"

/** Receiver without its secrets, or that no message can reach. Only a change of an object can help. */
export class ReceiverUnusable extends Error {
  override readonly name = "ReceiverUnusable"
  readonly reason: WebhookReason

  constructor(reason: WebhookReason, message: string) {
    super(message)
    this.reason = reason
  }
}

/** Returns the project of a namespace; undefined if it belongs to none. */
export function scopeIn(namespace: string, { projects }: Pick<WebhookSources, "projects">): ProjectScope | undefined {
  const project = projects.store.byIndex("projectOfNamespace", namespace)[0]
  return project && projectScope(project)
}

/**
 * Returns the receiver of a webhook, and its project.
 * @throws ReceiverUnusable; SealingKeysMissing or KubeError if the sealing keys can't be read
 */
export async function receiverIn(
  webhook: StoredWebhook,
  sources: WebhookSources,
  now: Date,
): Promise<{ receiver: Receiver; project: ProjectScope }> {
  const { namespace = "" } = webhook.metadata
  const project = scopeIn(namespace, sources)
  if (project === undefined) {
    const message = `namespace ${namespace} belongs to no Project, so its webhooks get nothing`
    throw new ReceiverUnusable(WebhookReason.NoProject, message)
  }
  const receiver = webhookReceiver(webhook.spec, await secretOf(webhook, project, sources), now)
  if ("errors" in receiver) throw new ReceiverUnusable(WebhookReason.InvalidSecret, receiver.errors.join("; "))
  const fault = receiverFault(receiver.url, sources.sending.privateTargets)
  if (fault !== undefined) throw new ReceiverUnusable(WebhookReason.ReceiverNotAllowed, `url ${fault}`)
  return { receiver, project }
}

const REASONS: Record<SealingErrorReason, WebhookReason> = {
  malformed: WebhookReason.InvalidSecret,
  unknownVersion: WebhookReason.InvalidSecret,
  unknownKey: WebhookReason.UnknownKey,
  tampered: WebhookReason.Tampered,
}

async function secretOf(
  { metadata, spec }: StoredWebhook,
  project: ProjectScope,
  { secrets, sealer }: WebhookSources,
): Promise<WebhookSecret> {
  const { sealedSecret, secretRef } = spec
  if (sealedSecret === undefined) {
    const name = secretRef?.name ?? ""
    const secret = secrets.store.get({ namespace: metadata.namespace, name })
    if (secret !== undefined) return secretIn(secret.data ?? {})
    const message = `there is no Secret ${name} of type berth.dev/webhook in this namespace: create it`
    throw new ReceiverUnusable(WebhookReason.SecretNotFound, message)
  }
  try {
    return await openWebhook(sealer, sealedSecret, { project: project.id, name: metadata.name })
  } catch (error) {
    if (!(error instanceof SealingError)) throw error
    const message = `sealedSecret can't be opened: ${error.message}; rotate the secret, or create the webhook again`
    throw new ReceiverUnusable(REASONS[error.reason], message)
  }
}
