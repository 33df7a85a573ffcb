import { type CredentialSources, CredentialsUnusable, projectOf, readCredentials } from "../../accounts/credentials.ts"
import type { Clock } from "../../core/apis/clock.ts"
import type { StoredConnection } from "../../core/apis/connection.ts"
import { isOver } from "../../core/apis/launch.ts"
import type { Logger } from "../../core/apis/logger.ts"
import type { StoredWebhook } from "../../core/apis/webhook.ts"
import { deleteSealingKeys, readSealingKeys } from "../../core/identity/sealing-keys.ts"
import type { KubeClient } from "../../core/kube/client.ts"
import type { Secret } from "../../core/kube/core.ts"
import type { EventRecorder } from "../../core/kube/events.ts"
import type { Reflector } from "../../core/kube/reflector.ts"
import { CONNECTIONS, LAUNCHES, WEBHOOKS } from "../../core/resources.ts"
import { Controller, type ReconcileResult, watchSource } from "../../core/runtime/controller.ts"
import { parseSealingKeyId } from "../../core/sealing/envelope.ts"
import { SealingError } from "../../core/sealing/keys.ts"
import { openWebhook } from "../../core/webhooks/secret.ts"

export interface RetirementOptions extends CredentialSources {
  client: Pick<KubeClient, "get" | "patch" | "pages">
  systemNamespace: string
  /** Watches the Secret of the sealing keys. */
  sealingKeys: Reflector<Secret>
  clock: Clock
  recorder: Pick<EventRecorder, "record">
  logger: Logger
  /** Seconds a key must be unused before it is deleted: longer than any request or stale cache uses it. Default 600. */
  graceSeconds?: number
  /** Seconds between two checks while there are former keys. Default 60. */
  lookSeconds?: number
}

/**
 * Creates the controller that deletes former sealing keys that nothing uses: no Connection, no Webhook, and no Launch
 * whose VM may exist. Each check reads them live, in all namespaces.
 */
export function createRetirementController(options: RetirementOptions): Controller {
  const retirement = new Retirement(options)
  return new Controller({
    name: "sealing-keys",
    reconcile: (_, { signal }) => retirement.check(signal),
    sources: [watchSource(options.sealingKeys)],
    logger: options.logger,
    clock: options.clock,
    workers: 1,
  })
}

class Retirement {
  readonly #options: RetirementOptions
  /** Monotonic time in seconds since which each former key is unused, by its id. */
  readonly #unusedSince = new Map<string, number>()

  constructor(options: RetirementOptions) {
    this.#options = options
  }

  async check(signal: AbortSignal): Promise<ReconcileResult> {
    const { client, systemNamespace, clock, graceSeconds = 600, lookSeconds = 60 } = this.#options
    const { primary, keys } = await readSealingKeys(client, systemNamespace)
    const former = [...keys.keys()].filter((id) => id !== primary)
    for (const id of this.#unusedSince.keys()) if (!former.includes(id)) this.#unusedSince.delete(id)
    if (former.length === 0) return {}
    // Time before the check: anything written during the check must not count as older.
    const now = clock.monotonic()
    const used = await this.#keysInUse(former, signal)
    for (const id of former) {
      if (used.has(id)) this.#unusedSince.delete(id)
      else if (!this.#unusedSince.has(id)) this.#unusedSince.set(id, now)
    }
    const ripe = former.filter((id) => now - (this.#unusedSince.get(id) ?? now) >= graceSeconds)
    if (ripe.length > 0) await this.#retire(ripe, signal)
    return { requeueAfter: lookSeconds }
  }

  async #retire(ids: readonly string[], signal: AbortSignal): Promise<void> {
    const { client, systemNamespace, sealingKeys, recorder, logger } = this.#options
    signal.throwIfAborted()
    await deleteSealingKeys(client, systemNamespace, ids)
    const message = `deleted sealing keys ${ids.join(", ")}: no object is sealed under them`
    logger.info({ keys: ids }, "deleted former sealing keys: no object is sealed under them")
    const [secret] = sealingKeys.store.list()
    if (secret === undefined) return
    recorder.record(
      { ...secret, apiVersion: "v1", kind: "Secret" },
      { type: "Normal", reason: "SealingKeyRetired", message },
    )
  }

  async #keysInUse(former: readonly string[], signal: AbortSignal): Promise<Set<string>> {
    const { client, systemNamespace } = this.#options
    const used = new Set<string>()
    const note = (sealed: string | undefined): void => {
      const id = sealed === undefined ? undefined : namedKey(sealed)
      if (id !== undefined) used.add(id)
    }
    for await (const { items } of client.pages(LAUNCHES, { namespace: systemNamespace, signal })) {
      for (const launch of items) if (!isOver(launch)) note(launch.spec.sealedCredentials)
    }
    for await (const { items } of client.pages(CONNECTIONS, { signal })) {
      for (const connection of items) if (await this.#uses(connection, former)) note(connection.spec.sealedCredentials)
    }
    for (const webhook of await this.#webhooksUsing(former, signal)) note(webhook.spec.sealedSecret)
    return used
  }

  /**
   * Returns true if one of the former keys opens the credentials. A key's id alone proves nothing: any user can write
   * it.
   */
  async #uses(connection: StoredConnection, former: readonly string[]): Promise<boolean> {
    const { sealedCredentials } = connection.spec
    if (sealedCredentials === undefined || !former.includes(namedKey(sealedCredentials) ?? "")) return false
    try {
      await readCredentials(connection, this.#options)
      return true
    } catch (error) {
      if (error instanceof CredentialsUnusable) return error.reason !== "Tampered"
      throw error
    }
  }

  async #webhooksUsing(former: readonly string[], signal: AbortSignal): Promise<StoredWebhook[]> {
    const using: StoredWebhook[] = []
    for await (const { items } of this.#options.client.pages(WEBHOOKS, { signal })) {
      for (const webhook of items) if (await this.#opens(webhook, former)) using.push(webhook)
    }
    return using
  }

  /** Returns true if one of the former keys opens the secrets of a webhook. */
  async #opens({ metadata, spec }: StoredWebhook, former: readonly string[]): Promise<boolean> {
    const { sealedSecret } = spec
    if (sealedSecret === undefined || !former.includes(namedKey(sealedSecret) ?? "")) return false
    const project = projectOf(metadata.namespace ?? "", this.#options)
    if (project === undefined) return true
    try {
      await openWebhook(this.#options.sealer, sealedSecret, { project, name: metadata.name })
      return true
    } catch (error) {
      if (error instanceof SealingError) return error.reason !== "tampered"
      throw error
    }
  }
}

/** Returns the id of the key that a text claims to be sealed under. */
function namedKey(sealed: string): string | undefined {
  try {
    return parseSealingKeyId(sealed)
  } catch (error) {
    if (error instanceof SealingError) return undefined
    throw error
  }
}
