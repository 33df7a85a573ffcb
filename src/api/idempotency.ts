import { createHash } from "node:crypto"
import { setTimeout as delay } from "node:timers/promises"
import type { Clock } from "../core/apis/clock.ts"
import { quote } from "../core/apis/field-error.ts"
import { ANNOTATIONS, type KubeObject } from "../core/apis/meta.ts"
import { IDENTITIES_NAMESPACE } from "../core/identity/machine-users.ts"
import type { KubeClient } from "../core/kube/client.ts"
import { ifFound, isAlreadyExists, isConflict, isNotFound } from "../core/kube/errors.ts"
import { type Lease, leases, microTime } from "../core/kube/lease.ts"
import type { Logger } from "../core/telemetry/logger.ts"
import { Problem, unavailable } from "./http/problem.ts"

/** Identity of a request that may be sent again: its key, and the hash of its body. */
export interface Idempotency {
  key: string
  requestHash: string
}

/** Returns the Idempotency-Key of the request that created an object. */
export function usedKey(object: Pick<KubeObject, "metadata"> | undefined): string | undefined {
  return object?.metadata.annotations?.[ANNOTATIONS.idempotencyKey]
}

/** Returns the problem 422 for a key that was used with another body. */
export function keyReused(key: string): Problem {
  const detail = `The Idempotency-Key ${quote(key)} was used with another body: choose a new key.`
  return new Problem({ type: "idempotency-key-reused", status: 422, detail })
}

/** Returns the object if the same request created it. @throws Problem 422 if another request did */
export function replay<T extends Pick<KubeObject, "metadata">>(
  object: T | undefined,
  { key, requestHash }: Idempotency,
): T {
  const hash = object?.metadata.annotations?.[ANNOTATIONS.requestHash]
  if (object !== undefined && usedKey(object) === key && hash === requestHash) return object
  throw keyReused(key)
}

/** Returns the SHA-256 of a body's value in hex. JSON, YAML and any order of keys give the same hash. */
export function requestHash(value: unknown): string {
  return createHash("sha256").update(canonical(value)).digest("hex")
}

function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`
  if (typeof value !== "object" || value === null) return JSON.stringify(value)
  const entries = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1))
  return `{${entries.map(([key, item]) => `${JSON.stringify(key)}:${canonical(item)}`).join(",")}}`
}

/** Task that runs alone. `isHeld` returns false if another replica may have taken the turn over. */
export type ExclusiveTask<Result> = (isHeld: () => boolean) => Promise<Result>

/** Runs tasks of one key one after the other, within one process. Tasks of different keys don't wait. */
export class KeyedMutex {
  readonly #last = new Map<string, Promise<unknown>>()

  /** @param _known finds the result of another process, if the mutex is shared; the task is not needed then */
  async runExclusive<Result extends object>(
    key: string,
    task: ExclusiveTask<Result>,
    _known?: () => Promise<Result | undefined>,
  ): Promise<Result> {
    const before = this.#last.get(key) ?? Promise.resolve()
    const turn = before.then(() => task(() => true))
    const settled = turn.catch(() => undefined)
    this.#last.set(key, settled)
    try {
      return await turn
    } finally {
      if (this.#last.get(key) === settled) this.#last.delete(key)
    }
  }
}

/** @throws Problem 503 if another replica may have taken the turn over, for example after this process was frozen */
export function requireHeld(isHeld: () => boolean): void {
  if (!isHeld()) throw unavailable("The server was too slow for this Idempotency-Key: try again.", 1)
}

export interface LeaseMutexOptions {
  /** Client with the façade's own rights: callers can't write Leases in IDENTITIES_NAMESPACE. */
  client: Pick<KubeClient, "get" | "create" | "patch" | "delete">
  clock: Clock
  logger: Pick<Logger, "warn">
  /** Time without a renewal after which another replica takes the turn over. Default 12. */
  leaseSeconds?: number
}

const LEASE_SECONDS = 12
/** Part of the lease after which it is renewed. */
const RENEWAL = 1 / 3
/** Part of the lease after which its holder stops to rely on it, before others take it over. */
const RELIANCE = 3 / 4
/** Time that a request waits for longer than a lease, so that the request itself takes over from a crashed replica. */
const EXTRA_PATIENCE_SECONDS = 3
/** Delays between two attempts to begin a turn, milliseconds. */
const FIRST_LOOK_MS = 50
const LAST_LOOK_MS = 500

/**
 * Runs tasks of one key one after the other, across replicas. The replica that created the key's Lease has the turn, and
 * renews the Lease during a long task. A Lease is needed because Kubernetes only keeps names unique: one key may come
 * with two different names.
 */
export class LeaseMutex extends KeyedMutex {
  readonly #options: LeaseMutexOptions
  readonly #leaseSeconds: number

  constructor(options: LeaseMutexOptions) {
    super()
    this.#options = options
    this.#leaseSeconds = options.leaseSeconds ?? LEASE_SECONDS
  }

  /** @throws Problem 503 when another request's turn lasts too long; KubeError */
  override runExclusive<Result extends object>(
    key: string,
    task: ExclusiveTask<Result>,
    known: () => Promise<Result | undefined> = async () => undefined,
  ): Promise<Result> {
    const name = `idempotency-${createHash("sha256").update(key).digest("hex").slice(0, 40)}`
    return super.runExclusive(key, () => this.#withLease(name, task, known))
  }

  async #withLease<Result extends object>(
    name: string,
    task: ExclusiveTask<Result>,
    known: () => Promise<Result | undefined>,
  ): Promise<Result> {
    const { clock } = this.#options
    const deadline = clock.monotonic() + this.#leaseSeconds + EXTRA_PATIENCE_SECONDS
    let seen: SeenLease | undefined
    let lookMs = FIRST_LOOK_MS
    do {
      const sentAt = timesOf(clock)
      const lease = await this.#begin(name)
      if (lease !== undefined) return await this.#inTurn({ lease, renewedAt: sentAt, isLost: false }, task)
      // The other request may have created the object, and be slow since then or have ended.
      const made = await known()
      if (made !== undefined) return made
      seen = await this.#look(name, seen)
      if (seen !== undefined && this.#isOverdue(seen)) await this.#end(seen.lease)
      else await delay(lookMs)
      lookMs = Math.min(lookMs * 1.5, LAST_LOOK_MS)
    } while (clock.monotonic() < deadline)
    throw unavailable("Another request with this Idempotency-Key is in progress: try again.", 5)
  }

  async #inTurn<Result>(held: HeldLease, task: ExclusiveTask<Result>): Promise<Result> {
    const ended = new AbortController()
    const renewing = this.#keepRenewing(held, ended.signal)
    try {
      return await task(() => this.#isHeld(held))
    } finally {
      ended.abort()
      await renewing
      await this.#end(held.lease)
    }
  }

  #isHeld({ renewedAt, isLost }: HeldLease): boolean {
    const now = timesOf(this.#options.clock)
    // The monotonic clock stands still while a machine is suspended, so the calendar counts too.
    const seconds = Math.max(now.monotonic - renewedAt.monotonic, now.wall - renewedAt.wall)
    return !isLost && seconds < this.#leaseSeconds * RELIANCE
  }

  async #keepRenewing(held: HeldLease, signal: AbortSignal): Promise<void> {
    while (!held.isLost) {
      await delay(this.#leaseSeconds * RENEWAL * 1000, undefined, { signal }).catch(() => undefined)
      if (signal.aborted) return
      await this.#renew(held, signal)
    }
  }

  async #renew(held: HeldLease, signal: AbortSignal): Promise<void> {
    const { client, clock, logger } = this.#options
    const { metadata } = held.lease
    const sentAt = timesOf(clock)
    const merge = { metadata: { uid: metadata.uid }, spec: { renewTime: microTime(clock.now()) } }
    try {
      await client.patch(leases, metadata, { merge }, { signal, timeoutSeconds: this.#leaseSeconds * RENEWAL })
      held.renewedAt = sentAt
    } catch (err) {
      if (signal.aborted) return
      held.isLost = isNotFound(err) || isConflict(err)
      logger.warn({ err, lease: metadata.name }, "cannot renew the Lease of an Idempotency-Key")
    }
  }

  /** Begins the turn. Returns undefined while another replica has it. */
  async #begin(name: string): Promise<Lease | undefined> {
    const now = microTime(this.#options.clock.now())
    const spec = { leaseDurationSeconds: Math.ceil(this.#leaseSeconds), acquireTime: now, renewTime: now }
    try {
      return await this.#options.client.create(leases, { metadata: { name, namespace: IDENTITIES_NAMESPACE }, spec })
    } catch (error) {
      if (isAlreadyExists(error)) return undefined
      throw error
    }
  }

  /** Ends the turn. An error is only logged: the task is done, and the Lease expires. */
  async #end({ metadata }: Lease): Promise<void> {
    const { client, logger } = this.#options
    try {
      await client.delete(leases, metadata, { preconditions: { uid: metadata.uid ?? "" } })
    } catch (err) {
      if (!isNotFound(err) && !isConflict(err))
        logger.warn({ err, lease: metadata.name }, "cannot delete the Lease of an Idempotency-Key; it expires")
    }
  }

  /** Reads another replica's Lease. Returns the time since which this replica has seen no renewal. */
  async #look(name: string, before: SeenLease | undefined): Promise<SeenLease | undefined> {
    const { client, clock } = this.#options
    const since = clock.monotonic()
    const lease = await ifFound(client.get(leases, { namespace: IDENTITIES_NAMESPACE, name }))
    if (lease === undefined) return undefined
    return before?.lease.metadata.resourceVersion === lease.metadata.resourceVersion ? before : { lease, since }
  }

  /** Compares no clocks of different machines: only the time that this replica has seen no renewal counts. */
  #isOverdue({ since }: SeenLease): boolean {
    return this.#options.clock.monotonic() - since > this.#leaseSeconds
  }
}

/** Lease of this replica. */
interface HeldLease {
  lease: Lease
  /** Times before the last renewal was sent, so that other replicas count from a later time. */
  renewedAt: Times
  /** True if another replica has taken the turn over. */
  isLost: boolean
}

/** Lease of another replica. */
interface SeenLease {
  lease: Lease
  /** Time of the first look at this version, monotonic seconds. */
  since: number
}

interface Times {
  monotonic: number
  /** Seconds. */
  wall: number
}

function timesOf(clock: Clock): Times {
  return { monotonic: clock.monotonic(), wall: clock.now().getTime() / 1000 }
}
