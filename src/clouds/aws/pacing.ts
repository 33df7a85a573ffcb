import type { Clock } from "../../core/apis/clock.ts"

/** Maximum burst of calls, and further calls per second. */
export interface Allowance {
  capacity: number
  perSecond: number
}

/**
 * Limits of EC2 for each account in each region, by action
 * (https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html). Berth uses only a share: other tools use
 * the same account.
 */
const RUN_INSTANCES: Allowance = { capacity: 5, perSecond: 2 }
const TERMINATE_INSTANCES: Allowance = { capacity: 100, perSecond: 5 }
const OTHER_CHANGES: Allowance = { capacity: 50, perSecond: 5 }
const READS: Allowance = { capacity: 100, perSecond: 20 }

/** Share of the allowed reads that Berth uses. Consoles and other tools of the account read as well. */
const SHARE_OF_READS = 0.5

/** Limits that Berth keeps. */
export const EC2_ALLOWANCES: Readonly<Record<string, Allowance>> = {
  RunInstances: RUN_INSTANCES,
  TerminateInstances: TERMINATE_INSTANCES,
  CreateSecurityGroup: OTHER_CHANGES,
}
const EC2_READS: Allowance = { capacity: READS.capacity * SHARE_OF_READS, perSecond: READS.perSecond * SHARE_OF_READS }

/** A token bucket. Each call takes one token, in the order of the calls, and waits if there is none. */
export class TokenBucket {
  readonly #allowance: Allowance
  readonly #clock: Clock
  /** If negative, this many calls are waiting. */
  #tokens: number
  #at: number

  constructor(allowance: Allowance, clock: Clock) {
    this.#allowance = allowance
    this.#clock = clock
    this.#tokens = allowance.capacity
    this.#at = clock.monotonic()
  }

  /** Resolves when the call may be made. */
  async take(): Promise<void> {
    this.#refill()
    this.#tokens -= 1
    if (this.#tokens >= 0) return
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#clock.setTimer(-this.#tokens / this.#allowance.perSecond, resolve)
    await promise
  }

  /** Empties the bucket: the service reports throttling, so the local count was too high. */
  empty(): void {
    this.#refill()
    this.#tokens = Math.min(this.#tokens, 0)
  }

  #refill(): void {
    const now = this.#clock.monotonic()
    this.#tokens = Math.min(this.#allowance.capacity, this.#tokens + (now - this.#at) * this.#allowance.perSecond)
    this.#at = now
  }
}

/** The buckets of one account in one region, by action. */
export class Pacer {
  readonly #clock: Clock
  readonly #allowances: Readonly<Record<string, Allowance>>
  readonly #buckets = new Map<string, TokenBucket>()

  constructor(clock: Clock, allowances: Readonly<Record<string, Allowance>> = EC2_ALLOWANCES) {
    this.#clock = clock
    this.#allowances = allowances
  }

  /** Returns the bucket of an action; all reads share one. */
  of(action: string): TokenBucket {
    const allowance = this.#allowances[action]
    const key = allowance === undefined ? "" : action
    let bucket = this.#buckets.get(key)
    if (bucket === undefined) {
      bucket = new TokenBucket(allowance ?? this.#allowances[""] ?? EC2_READS, this.#clock)
      this.#buckets.set(key, bucket)
    }
    return bucket
  }
}
