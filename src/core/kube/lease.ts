import { pause } from "../apis/backoff.ts"
import { type Clock, systemClock } from "../apis/clock.ts"
import type { Logger } from "../apis/logger.ts"
import { ANNOTATIONS } from "../apis/meta.ts"
import type { KubeClient } from "./client.ts"
import { isAlreadyExists, isConflict, isNotFound } from "./errors.ts"
import { type ApiObject, declareResource } from "./resource.ts"

/** coordination.k8s.io/v1 Lease. */
export interface Lease extends ApiObject {
  spec: LeaseSpec
}

export interface LeaseSpec {
  holderIdentity?: string
  leaseDurationSeconds?: number
  /** RFC 3339 with microseconds. */
  acquireTime?: string
  renewTime?: string
  leaseTransitions?: number
}

export const leases = declareResource<Lease>({
  group: "coordination.k8s.io",
  version: "v1",
  kind: "Lease",
  plural: "leases",
  namespaced: true,
})

/**
 * Returns the abilities of the process that leads; undefined if none does. A process that shows none may keep the text of
 * the one before it, so the text counts only with the holder's own identity.
 */
export function abilitiesOfLeader({ metadata, spec }: Lease): ReadonlySet<string> | undefined {
  const { holderIdentity: holder } = spec
  if (!holder) return undefined
  const text = metadata.annotations?.[ANNOTATIONS.abilities]
  const shown = text?.startsWith(`${holder}=`) ? text.slice(holder.length + 1) : ""
  return new Set(shown === "" ? [] : shown.split(","))
}

export interface LeaderElectorOptions {
  client: Pick<KubeClient, "get" | "create" | "replace">
  /** Namespace and name of the Lease. */
  lease: { namespace: string; name: string }
  /** Name that is unique to this process, e.g. host name and a random suffix. */
  identity: string
  /** Abilities of this process, which the Lease shows while it leads. Default: none. */
  abilities?: readonly string[]
  logger: Logger
  clock?: Clock
  /** Time without renewal after which others take the lease. Default 15. */
  leaseSeconds?: number
  /** Time without renewal after which the holder stops leading. Default 10; below leaseSeconds. */
  renewDeadlineSeconds?: number
  /** Delay between attempts to acquire or renew. Default 2. */
  retrySeconds?: number
}

/** Reason of the signal that a leader gets if it could not keep the lease. A leader may also end by throwing it. */
export class LeadershipLostError extends Error {
  override readonly name: string = "LeadershipLostError"
}

/** Error of a leader that gives its lease up by itself. It then waits for the lease again. */
export class StepDownError extends LeadershipLostError {
  override readonly name = "StepDownError"
}

/**
 * Leader election by a Lease, with client-go's algorithm. No process reads another's clock. A candidate measures with
 * its own clock how long the holder's record has not changed. Check `isHeld` before each action that two leaders must
 * not both take.
 */
export class LeaderElector {
  readonly identity: string
  readonly #options: LeaderElectorOptions
  readonly #clock: Clock
  readonly #leaseSeconds: number
  readonly #renewDeadlineSeconds: number
  readonly #retrySeconds: number
  /** The last record that was read, and the monotonic time of its last change. */
  #observed: Lease | undefined
  #observedAt = 0
  /** Time by both clocks when the last successful renewal was sent; undefined while not leading. */
  #renewed: { monotonic: number; wall: number } | undefined

  constructor(options: LeaderElectorOptions) {
    this.#options = options
    this.identity = options.identity
    this.#clock = options.clock ?? systemClock
    this.#leaseSeconds = options.leaseSeconds ?? 15
    this.#renewDeadlineSeconds = options.renewDeadlineSeconds ?? 10
    this.#retrySeconds = options.retrySeconds ?? 2
    const times = [this.#leaseSeconds, this.#renewDeadlineSeconds, this.#retrySeconds, 0]
    if (times.some((seconds, i) => i > 0 && seconds >= (times[i - 1] ?? 0))) {
      const [lease, deadline, retry] = times
      throw new RangeError(
        `leaseSeconds ${lease}, renewDeadlineSeconds ${deadline}, retrySeconds ${retry}: each must be more than the next`,
      )
    }
  }

  /** Last known holder of the lease; undefined if no process holds it. */
  get holder(): string | undefined {
    return this.#observed?.spec.holderIdentity || undefined
  }

  /**
   * Returns true if no other process can hold the lease within `marginSeconds` (default: lease less renew deadline). It
   * counts from before the last renewal was sent, so others count from later. It checks the calendar too, because the
   * monotonic clock stops while a machine is suspended.
   */
  isHeld(marginSeconds = this.#leaseSeconds - this.#renewDeadlineSeconds): boolean {
    return this.#heldSecondsAgo() < this.#leaseSeconds - marginSeconds
  }

  /**
   * Waits for the lease, calls `lead`, and keeps the lease while it runs. After a loss it waits for the lease again.
   * Resolves when `lead` has returned after `signal`, or by itself. Only then the lease is released. A
   * LeadershipLostError of `lead` counts as a loss; other errors reject. `lead` gets two signals. `stop` means to end, and is aborted by `signal` and by a loss. `lost` means to drop everything at once
   * (reason LeadershipLostError).
   */
  async run(lead: (stop: AbortSignal, lost: AbortSignal) => Promise<void>, signal: AbortSignal): Promise<void> {
    while (await this.#acquire(signal)) {
      if (signal.aborted) return await this.#release()
      this.#options.logger.info({ identity: this.identity }, "leading")
      const lost = await this.#leadUntilLost(lead, signal)
      if (!lost || signal.aborted) return
    }
  }

  async #acquire(signal: AbortSignal): Promise<boolean> {
    this.#renewed = undefined
    while (!signal.aborted) {
      if (await this.#try(signal)) return true
      // Random delay, so that candidates don't collide at each attempt (client-go: a jitter factor of 1.2).
      await pause(this.#clock, this.#retrySeconds * (1 + Math.random() * 1.2), signal).catch(() => undefined)
    }
    return false
  }

  /** Returns true if the lease was lost. Rejects with other errors of `lead`. */
  async #leadUntilLost(
    lead: (stop: AbortSignal, lost: AbortSignal) => Promise<void>,
    signal: AbortSignal,
  ): Promise<boolean> {
    const lost = new AbortController()
    const renewing = new AbortController()
    const renewed = this.#keep(lost, renewing.signal)
    try {
      await lead(AbortSignal.any([signal, lost.signal]), lost.signal)
    } catch (error) {
      if (!(error instanceof LeadershipLostError)) throw error
      const isOwn = error instanceof StepDownError
      const why = isOwn
        ? `gives up the lease: ${error.message}`
        : "lost the lease: it had expired when a controller checked it"
      if (!lost.signal.aborted) this.#options.logger.error({ identity: this.identity }, why)
      return true
    } finally {
      renewing.abort()
      await renewed
      await this.#release()
    }
    return lost.signal.aborted
  }

  /** Renews the lease, also while the leader shuts down, until `signal` or until the lease is lost. */
  async #keep(lost: AbortController, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await pause(this.#clock, this.#retrySeconds, signal).catch(() => undefined)
      if (signal.aborted || (await this.#try(signal))) continue
      if (signal.aborted) return
      const taken = this.holder !== undefined && this.holder !== this.identity
      if (!taken && this.#heldSecondsAgo() < this.#renewDeadlineSeconds) continue
      this.#renewed = undefined
      const why = taken ? `${this.holder} holds it` : `no renewal for ${this.#renewDeadlineSeconds} s`
      this.#options.logger.error({ identity: this.identity }, `lost the lease: ${why}`)
      lost.abort(new LeadershipLostError(`lost the lease ${this.#options.lease.name}: ${why}`))
      return
    }
  }

  /** Tries once to acquire or renew the lease. Returns false after a failure, which is logged. */
  async #try(signal: AbortSignal): Promise<boolean> {
    try {
      return await this.#acquireOrRenew(signal)
    } catch (error) {
      if (signal.aborted) return false
      // Another process wrote the lease, or an earlier write of ours succeeded without an answer: read the lease next
      // time.
      if (isConflict(error) || isAlreadyExists(error)) this.#observed = undefined
      else this.#options.logger.warn({ err: error }, "failed to acquire or renew the lease; retrying")
      return false
    }
  }

  async #acquireOrRenew(signal: AbortSignal): Promise<boolean> {
    const { client, lease } = this.#options
    const call = { timeoutSeconds: this.#requestSeconds() }
    // While leading, the record is ours. A write without a read is safe, because a conflicting change causes a
    // Conflict.
    const mine = this.#renewed !== undefined && this.#observed !== undefined && this.holder === this.identity
    const found = mine
      ? this.#observed
      : await client.get(leases, lease, { ...call, signal }).catch(undefinedIfNotFound)
    if (found !== undefined && !mine) this.#observe(found)
    if (found !== undefined && !this.#isFree()) return false
    const sent = { monotonic: this.#clock.monotonic(), wall: this.#clock.now().getTime() }
    const object = { metadata: { ...lease, ...found?.metadata, ...this.#annotated(found) }, spec: this.#claim(found) }
    // A signal does not end the write: it could take effect unseen, and no process would release the lease.
    const written =
      found === undefined ? await client.create(leases, object, call) : await client.replace(leases, object, call)
    this.#observe(written)
    this.#renewed = sent
    return true
  }

  #observe(lease: Lease): void {
    const same =
      this.#observed?.metadata.uid === lease.metadata.uid &&
      this.#observed?.metadata.resourceVersion === lease.metadata.resourceVersion
    if (!same) this.#observedAt = this.#clock.monotonic()
    this.#observed = lease
  }

  #isFree(): boolean {
    const spec = this.#observed?.spec
    if (!spec?.holderIdentity || spec.holderIdentity === this.identity) return true
    const expiresAt = this.#observedAt + (spec.leaseDurationSeconds ?? this.#leaseSeconds)
    return this.#clock.monotonic() >= expiresAt
  }

  #annotated(found: Lease | undefined): Pick<Lease["metadata"], "annotations"> {
    const { abilities = [], identity } = this.#options
    const text = `${identity}=${abilities.join(",")}`
    return { annotations: { ...found?.metadata.annotations, [ANNOTATIONS.abilities]: text } }
  }

  #claim(found: Lease | undefined): LeaseSpec {
    const now = microTime(this.#clock.now())
    const before = found?.spec
    const continued = before?.holderIdentity === this.identity
    return {
      holderIdentity: this.identity,
      leaseDurationSeconds: Math.ceil(this.#leaseSeconds),
      acquireTime: continued ? (before.acquireTime ?? now) : now,
      renewTime: now,
      leaseTransitions: (before?.leaseTransitions ?? 0) + (found === undefined || continued ? 0 : 1),
    }
  }

  /** Writes a free record, so that the next leader need not wait. Source: client-go's release. */
  async #release(): Promise<void> {
    const held = this.#observed
    const still = this.isHeld(0)
    this.#renewed = undefined
    if (!still || held === undefined) return
    try {
      this.#observed = await this.#free(held)
      this.#options.logger.info({ identity: this.identity }, "released the lease")
    } catch (error) {
      this.#options.logger.warn({ err: error }, "the lease was not released: the next leader waits until it expires")
    }
  }

  async #free(held: Lease): Promise<Lease> {
    const { client, lease } = this.#options
    const call = { timeoutSeconds: this.#requestSeconds() }
    const now = microTime(this.#clock.now())
    const free = ({ metadata, spec }: Lease): Lease => ({
      metadata,
      spec: { ...spec, holderIdentity: "", leaseDurationSeconds: 1, renewTime: now, acquireTime: now },
    })
    try {
      return await client.replace(leases, free(held), call)
    } catch (error) {
      if (!isConflict(error)) throw error
    }
    // The process may have ended during a renewal that took effect without an answer.
    const found = await client.get(leases, lease, call)
    return found.spec.holderIdentity === this.identity ? await client.replace(leases, free(found), call) : found
  }

  #heldSecondsAgo(): number {
    if (this.#renewed === undefined) return Number.POSITIVE_INFINITY
    const monotonic = this.#clock.monotonic() - this.#renewed.monotonic
    const wall = (this.#clock.now().getTime() - this.#renewed.wall) / 1000
    return Math.max(monotonic, wall)
  }

  /** Returns the timeout of a request. It leaves time for one more attempt before the renew deadline. */
  #requestSeconds(): number {
    return Math.max(this.#retrySeconds, this.#renewDeadlineSeconds / 2)
  }
}

function undefinedIfNotFound(error: unknown): undefined {
  if (!isNotFound(error)) throw error
}

/** Formats RFC 3339 with microseconds, like Kubernetes' metav1.MicroTime. */
export function microTime(date: Date): string {
  return date.toISOString().replace("Z", "000Z")
}
