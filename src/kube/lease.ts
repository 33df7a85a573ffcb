import { pause } from "../apis/backoff.ts"
import { type Clock, systemClock } from "../apis/clock.ts"
import type { Logger } from "../apis/logger.ts"
import type { KubeClient } from "./client.ts"
import { isAlreadyExists, isConflict, isNotFound } from "./errors.ts"
import { type ApiObject, resourceOf } from "./resource.ts"

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

export const leases = resourceOf<Lease>({
  group: "coordination.k8s.io",
  version: "v1",
  kind: "Lease",
  plural: "leases",
  namespaced: true,
})

export interface LeaderElectorOptions {
  client: Pick<KubeClient, "get" | "create" | "replace">
  /** The Lease's namespace and name. */
  lease: { namespace: string; name: string }
  /** Unique to this process, e.g. host name and a random suffix. */
  identity: string
  logger: Logger
  clock?: Clock
  /** How long others leave a silent holder alone. Default 15. */
  leaseSeconds?: number
  /** A holder that could not renew for so long stops leading. Default 10; below leaseSeconds. */
  renewDeadlineSeconds?: number
  /** Between attempts to acquire or renew. Default 2. */
  retrySeconds?: number
}

/** The reason of the signal that a leader gets when it could not keep the lease. */
export class LeadershipLostError extends Error {
  override readonly name = "LeadershipLostError"
}

/**
 * Leader election by a Lease, with client-go's algorithm. Nobody reads another's clock: a candidate
 * measures, by its own, how long the holder's record has not changed. `isHeld` is the fence to check
 * before each act that two leaders must not both do.
 */
export class LeaderElector {
  readonly identity: string
  readonly #options: LeaderElectorOptions
  readonly #clock: Clock
  readonly #leaseSeconds: number
  readonly #renewDeadlineSeconds: number
  readonly #retrySeconds: number
  /** The record seen last, and when (monotonic) it was seen to change. */
  #observed: Lease | undefined
  #observedAt = 0
  /** When the last successful renewal was sent, by both clocks; undefined while not leading. */
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

  /** Who holds the lease, as far as known here; undefined when nobody does. */
  get holder(): string | undefined {
    return this.#observed?.spec.holderIdentity || undefined
  }

  /**
   * Whether nobody else can hold the lease now and for `marginSeconds` (default: lease less renew
   * deadline). Counted from before the last renewal was sent, so others count from later. The calendar
   * is looked at, too: the monotonic clock stands still while a machine is suspended.
   */
  isHeld(marginSeconds = this.#leaseSeconds - this.#renewDeadlineSeconds): boolean {
    return this.#heldSecondsAgo() < this.#leaseSeconds - marginSeconds
  }

  /**
   * Waits for the lease, calls `lead`, and keeps the lease while it runs; contends again after a loss.
   * Resolves when `lead` has returned after `signal`, or by itself: only then the lease is released.
   * `lead` gets two signals: `stop`, to end (aborted by `signal`, and by a loss), and `lost`, to drop
   * everything at once (reason LeadershipLostError).
   */
  async run(lead: (stop: AbortSignal, lost: AbortSignal) => Promise<void>, signal: AbortSignal): Promise<void> {
    while (await this.#acquire(signal)) {
      this.#options.logger.info({ identity: this.identity }, "leading")
      const lost = await this.#leadUntilLost(lead, signal)
      if (!lost || signal.aborted) return
    }
  }

  async #acquire(signal: AbortSignal): Promise<boolean> {
    this.#renewed = undefined
    while (!signal.aborted) {
      if (await this.#try(signal)) return true
      // Spread, so that candidates don't collide at each attempt (client-go: a jitter factor of 1.2).
      await pause(this.#clock, this.#retrySeconds * (1 + Math.random() * 1.2), signal).catch(() => undefined)
    }
    return false
  }

  /** Returns whether the lease was lost; rejects with what `lead` throws. */
  async #leadUntilLost(
    lead: (stop: AbortSignal, lost: AbortSignal) => Promise<void>,
    signal: AbortSignal,
  ): Promise<boolean> {
    const lost = new AbortController()
    const renewing = new AbortController()
    const renewed = this.#keep(lost, renewing.signal)
    try {
      await lead(AbortSignal.any([signal, lost.signal]), lost.signal)
    } finally {
      renewing.abort()
      await renewed
      await this.#release()
    }
    return lost.signal.aborted
  }

  /** Renews, also while the leader winds down, until `signal`, or until it is lost. */
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

  /** One attempt to acquire or renew; failures are logged and count as false. */
  async #try(signal: AbortSignal): Promise<boolean> {
    try {
      return await this.#acquireOrRenew(signal)
    } catch (error) {
      if (signal.aborted) return false
      // Somebody wrote it meanwhile, or an earlier write of ours succeeded unheard: read it next time.
      if (isConflict(error) || isAlreadyExists(error)) this.#observed = undefined
      else this.#options.logger.warn({ err: error }, "the lease can't be reached")
      return false
    }
  }

  async #acquireOrRenew(signal: AbortSignal): Promise<boolean> {
    const { client, lease } = this.#options
    const call = { signal, timeoutSeconds: this.#requestSeconds() }
    // While leading, the record is ours: writing without reading first is safe, as a Conflict tells.
    const mine = this.#renewed !== undefined && this.#observed !== undefined && this.holder === this.identity
    const found = mine ? this.#observed : await client.get(leases, lease, call).catch(undefinedIfNotFound)
    if (found !== undefined && !mine) this.#observe(found)
    if (found !== undefined && !this.#isFree()) return false
    const sent = { monotonic: this.#clock.monotonic(), wall: this.#clock.now().getTime() }
    const object = { metadata: { ...lease, ...found?.metadata }, spec: this.#claim(found) }
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

  /** Leaves a free record, so that the next leader need not wait. Source: client-go's release. */
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
    // The end may have come upon a renewal that was written, and whose answer nobody waited for.
    const found = await client.get(leases, lease, call)
    return found.spec.holderIdentity === this.identity ? await client.replace(leases, free(found), call) : found
  }

  #heldSecondsAgo(): number {
    if (this.#renewed === undefined) return Number.POSITIVE_INFINITY
    const monotonic = this.#clock.monotonic() - this.#renewed.monotonic
    const wall = (this.#clock.now().getTime() - this.#renewed.wall) / 1000
    return Math.max(monotonic, wall)
  }

  /** No request outlives the chance to try once more before the renew deadline. */
  #requestSeconds(): number {
    return Math.max(this.#retrySeconds, this.#renewDeadlineSeconds / 2)
  }
}

function undefinedIfNotFound(error: unknown): undefined {
  if (!isNotFound(error)) throw error
}

/** RFC 3339 with microseconds, as Kubernetes' metav1.MicroTime is written. */
function microTime(date: Date): string {
  return date.toISOString().replace("Z", "000Z")
}
