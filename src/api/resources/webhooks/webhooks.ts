import { randomUUID } from "node:crypto"
import { type Clock, timestamp } from "../../../core/apis/clock.ts"
import type { CreationTimes } from "../../../core/apis/creation-times.ts"
import { fromMetadataName, toMetadataName } from "../../../core/apis/names.ts"
import { type StoredWebhook, WEBHOOK_SECRET_TYPE } from "../../../core/apis/webhook.ts"
import { SealingKeysMissing } from "../../../core/identity/sealing-keys.ts"
import type { KubeClient } from "../../../core/kube/client.ts"
import { SECRETS } from "../../../core/kube/core.ts"
import { ifFound } from "../../../core/kube/errors.ts"
import type { PageOf } from "../../../core/kube/page-index.ts"
import type { Sealer, SealingContext } from "../../../core/sealing/envelope.ts"
import { SealingError } from "../../../core/sealing/keys.ts"
import { testMessage } from "../../../core/webhooks/message.ts"
import {
  openWebhook,
  type SealedWebhook,
  sealWebhook,
  secretIn,
  type WebhookSecret,
  webhookReceiver,
} from "../../../core/webhooks/secret.ts"
import { type SendOptions, sendMessage } from "../../../core/webhooks/send.ts"
import { newSigningSecret } from "../../../core/webhooks/signature.ts"
import type { Collection } from "../../collection.ts"
import type { Precondition } from "../../http/entity-tags.ts"
import { Problem, unavailable } from "../../http/problem.ts"
import type { Page } from "../../http/query.ts"
import { keyReused, requestHash } from "../../idempotency.ts"
import type { WebhookChange, WebhookCreation, WebhookTest } from "./schema.ts"
import { changedSpec, toWebhook } from "./translate.ts"

export interface WebhooksOptions {
  collection: Collection<StoredWebhook>
  sealer: Sealer
  /** Id of the project, and the namespace of its objects. */
  project: { id: string; namespace: string }
  creationTimes: CreationTimes
  /** Client with the façade's own rights, for the Secrets of webhooks. */
  reader: Pick<KubeClient, "get">
  sending: SendOptions
  clock: Clock
}

/** Webhook with its signing secret, if it has one. */
export interface WithSecret {
  webhook: StoredWebhook
  signingSecret: string | undefined
}

/** Time for which messages are signed by the former secret too, milliseconds. */
const ROTATION_MS = 24 * 3600 * 1000

/** Webhooks of one project with their secrets. Writes have the caller's rights. */
export class Webhooks {
  readonly #options: WebhooksOptions

  constructor(options: WebhooksOptions) {
    this.#options = options
  }

  page(page: Page): PageOf<StoredWebhook> {
    return this.#options.collection.page(page)
  }

  /** @throws Problem 404 */
  find(idOrName: string): Promise<StoredWebhook> {
    return this.#options.collection.find(idOrName)
  }

  /** @throws Problem 404, 412 */
  remove(idOrName: string, precondition?: Precondition): Promise<void> {
    return this.#options.collection.remove(idOrName, precondition)
  }

  /** Encrypts and creates. @throws Problem 409 name in use, 422 Idempotency-Key used with another body, 503 */
  async create(creation: WebhookCreation, idempotencyKey?: string): Promise<WithSecret> {
    const { collection, project, creationTimes } = this.#options
    const { name, url, format, signing_secret } = creation
    const isSlack = format === "slack"
    const secret = signing_secret ?? (isSlack ? undefined : newSigningSecret())
    const hash = idempotencyKey === undefined ? undefined : requestHash(creation)
    const content = {
      ...(secret !== undefined && { secret }),
      ...(isSlack && { url }),
      ...(hash !== undefined && { requestHash: hash }),
    }
    const sealed = await this.#seal(content, toMetadataName(name) ?? name)
    const identity = { namespace: project.namespace, createdAt: creationTimes.next(), idempotencyKey }
    const wanted = toWebhook(creation, sealed, identity) as StoredWebhook
    const accept = async (earlier: StoredWebhook): Promise<StoredWebhook> => {
      if ((await this.#open(earlier)).requestHash === hash) return earlier
      throw keyReused(idempotencyKey ?? "")
    }
    const replay = idempotencyKey === undefined ? undefined : { key: idempotencyKey, accept }
    const webhook = await collection.create(wanted, name, replay)
    // A repeated request gets the secret of the first one.
    return { webhook, signingSecret: (await this.#open(webhook)).secret }
  }

  /** @throws Problem 404, 412, 409 if a secret address is in a Secret or can't be decrypted */
  change(idOrName: string, change: WebhookChange, precondition?: Precondition): Promise<StoredWebhook> {
    const { collection, clock } = this.#options
    const changed = async (present: StoredWebhook): Promise<StoredWebhook | undefined> => {
      const spec = changedSpec(present, change, timestamp(clock.now()))
      if (spec.format === "slack" && change.url !== undefined) {
        const secret = await this.#open(present)
        if (secret.url !== change.url)
          spec.sealedSecret = await this.#seal({ ...secret, url: change.url }, present.metadata.name)
      }
      return requestHash(spec) === requestHash(present.spec) ? undefined : { ...present, spec }
    }
    return collection.change(idOrName, changed, precondition)
  }

  /** Creates a new signing secret. The former one is used too for a day. @throws Problem 404, 412, 409, 503 */
  async rotate(idOrName: string, precondition?: Precondition): Promise<WithSecret> {
    const { collection, clock } = this.#options
    const signingSecret = newSigningSecret()
    const until = timestamp(new Date(clock.now().getTime() + ROTATION_MS))
    const changed = async (present: StoredWebhook): Promise<StoredWebhook> => {
      const { secret, ...former } = await this.#open(present)
      const content = {
        ...{ ...former, secret: signingSecret },
        ...(secret !== undefined && { previousSecret: secret, previousUntil: until }),
      }
      const sealedSecret = await this.#seal(content, present.metadata.name)
      return { ...present, spec: { ...present.spec, sealedSecret } }
    }
    return { webhook: await collection.change(idOrName, changed, precondition), signingSecret }
  }

  /** Sends a test message now, once. @throws Problem 404, 409 if the secrets can't be used, 503 */
  async test(idOrName: string, signal: AbortSignal): Promise<WebhookTest> {
    const { project, sending, clock } = this.#options
    const webhook = await this.find(idOrName)
    const receiver = webhookReceiver(webhook.spec, await this.#secretOf(webhook), clock.now())
    const name = fromMetadataName(webhook.metadata.name)
    if ("errors" in receiver)
      throw unusable(`The secret of the webhook ${name} can't be used: ${receiver.errors.join("; ")}.`)
    const id = randomUUID()
    const event = { id, project: project.id, name, time: timestamp(clock.now()) }
    const outcome = await sendMessage({ id, ...testMessage(event, webhook.spec) }, receiver, sending, signal)
    return {
      id,
      delivered: outcome.is === "delivered",
      status_code: outcome.statusCode ?? null,
      duration_ms: outcome.durationMs,
      error: outcome.error ?? null,
    }
  }

  async #secretOf(webhook: StoredWebhook): Promise<WebhookSecret> {
    const { secretRef } = webhook.spec
    if (secretRef === undefined) return this.#open(webhook)
    const { reader, project } = this.#options
    const secret = await ifFound(reader.get(SECRETS, { namespace: project.namespace, name: secretRef.name }))
    if (secret?.type === WEBHOOK_SECRET_TYPE) return secretIn(secret.data ?? {})
    throw unusable(`There is no Secret ${secretRef.name} of type ${WEBHOOK_SECRET_TYPE} in the project's namespace.`)
  }

  /** @throws Problem 409 if a Secret has the secrets, or they can't be decrypted, 503 without the sealing keys */
  async #open({ metadata, spec }: StoredWebhook): Promise<SealedWebhook> {
    const name = fromMetadataName(metadata.name)
    if (spec.sealedSecret === undefined) {
      const detail = `The secrets of the webhook ${name} are in the Secret ${spec.secretRef?.name}: change them there.`
      throw new Problem({ type: "credentials-in-secret", status: 409, detail })
    }
    try {
      return await openWebhook(this.#options.sealer, spec.sealedSecret, this.#contextOf(metadata.name))
    } catch (error) {
      throw explainError(error, name)
    }
  }

  async #seal(secret: Omit<SealedWebhook, "type">, metadataName: string): Promise<string> {
    try {
      return await sealWebhook(this.#options.sealer, secret, this.#contextOf(metadataName))
    } catch (error) {
      throw explainError(error, fromMetadataName(metadataName))
    }
  }

  #contextOf(name: string): SealingContext {
    return { project: this.#options.project.id, name }
  }
}

function unusable(detail: string): Problem {
  return new Problem({ type: "credentials-unreadable", status: 409, detail })
}

function explainError(error: unknown, name: string): unknown {
  if (error instanceof SealingKeysMissing)
    return unavailable("Secrets cannot be encrypted or decrypted yet: try again.", 5, error)
  if (!(error instanceof SealingError)) return error
  const detail = `The secrets of the webhook ${name} cannot be decrypted: ${error.message}. Delete the webhook and create it again.`
  return new Problem({ type: "credentials-unreadable", status: 409, detail, cause: error })
}
