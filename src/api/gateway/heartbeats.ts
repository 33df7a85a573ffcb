import { randomUUID } from "node:crypto"
import { pause } from "../../core/apis/backoff.ts"
import type { Clock } from "../../core/apis/clock.ts"
import { type HeartbeatTimes, isOver, type StoredLaunch } from "../../core/apis/launch.ts"
import type { Logger } from "../../core/apis/logger.ts"
import { ANNOTATIONS, LABELS } from "../../core/apis/meta.ts"
import type { KubeClient } from "../../core/kube/client.ts"
import { isAlreadyExists, isConflict, isNotFound } from "../../core/kube/errors.ts"
import { heartbeatsText } from "../../core/kube/heartbeats.ts"
import { type Lease, leases, microTime } from "../../core/kube/lease.ts"
import type { Store } from "../../core/kube/store.ts"

/** Delay between two rounds of writes, seconds. */
const ROUND_SECONDS = 10

/**
 * A heartbeat is written when the last written one is older by this, seconds. With it and ROUND_SECONDS, a written
 * heartbeat of a healthy VM is at most 40 s old if the VM reports every 15 s, and 70 s if it reports every 60 s.
 */
const DUE_SECONDS = 30

/** Largest number of Launches in a Lease: about 50 KB, of the 256 KiB that annotations may have. */
const LAUNCHES_PER_LEASE = 1000

/** Age from which a heartbeat means nothing: the operator has ended or evicted its VM long before. */
const KEPT_SECONDS = 3600

/** Time without a report here after which a VM that reports to another replica is left to that one, seconds. */
const HANDED_OVER_SECONDS = 300

/** Longest time for the last writes when the program stops, seconds. */
const LAST_WRITE_SECONDS = 2

export interface HeartbeatWriterOptions {
  client: Pick<KubeClient, "create" | "patch" | "delete">
  /** Namespace of the Leases. Nothing but Berth may write there. */
  namespace: string
  /** Cached Leases of all replicas. */
  written: Pick<Store<Lease>, "list">
  /** Heartbeats in these Leases. */
  times: HeartbeatTimes
  launches: { get(name: string): StoredLaunch | undefined }
  /** Name of this process, for people. */
  holder: string
  clock: Clock
  logger: Logger
}

interface Heard {
  /** Milliseconds since 1970, by this replica's clock. */
  at: number
  sequence: number
  lease: OwnLease
}

interface OwnLease {
  name: string
  launches: Set<string>
  isCreated: boolean
}

/**
 * Writes the heartbeats that this replica hears into Leases, many in one. Each replica has its own Leases, so replicas
 * never conflict. A heartbeat stays in one Lease while it is kept.
 */
export class HeartbeatWriter {
  readonly #options: HeartbeatWriterOptions
  /** Part of the names of this process's Leases. */
  readonly #id = randomUUID()
  readonly #heard = new Map<string, Heard>()
  readonly #leases: OwnLease[] = []
  /** Leases of all replicas, and since when each has not changed, in monotonic seconds. */
  #unchanged = new Map<string, { resourceVersion: string; since: number }>()
  #fails = false

  constructor(options: HeartbeatWriterOptions) {
    this.#options = options
  }

  /** Number of VMs that report to this replica. */
  get size(): number {
    return this.#heard.size
  }

  /** Takes the heartbeat of a Launch's agent. A report that is not newer than the last one is ignored. */
  beat(launch: string, sequence: number): void {
    const known = this.#heard.get(launch)
    if (known !== undefined && sequence <= known.sequence) return
    const lease = known?.lease ?? this.#leaseWithRoom()
    lease.launches.add(launch)
    this.#heard.set(launch, { at: this.#options.clock.now().getTime(), sequence, lease })
  }

  /** Writes until the signal is aborted, and once more then. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await this.round()
      await pause(this.#options.clock, ROUND_SECONDS, signal).catch(() => undefined)
    }
    await this.#writeDue(0, LAST_WRITE_SECONDS)
  }

  /** Writes what is due, and deletes Leases that no replica has renewed for long. Never rejects: failures are logged. */
  async round(): Promise<void> {
    this.#forget()
    await this.#writeDue(DUE_SECONDS, ROUND_SECONDS)
    await this.#collectGarbage()
  }

  #leaseWithRoom(): OwnLease {
    const found = this.#leases.find(({ launches }) => launches.size < LAUNCHES_PER_LEASE)
    if (found !== undefined) return found
    const name = `heartbeats-${this.#id}-${this.#leases.length}`
    const lease: OwnLease = { name, launches: new Set(), isCreated: false }
    this.#leases.push(lease)
    return lease
  }

  /** Forgets VMs that have ended, that are silent for long, or that report to another replica. */
  #forget(): void {
    const { launches, times, clock } = this.#options
    const now = clock.now().getTime()
    for (const [name, { at, lease }] of this.#heard) {
      const launch = launches.get(name)
      const hasEnded = launch === undefined || isOver(launch) || launch.status?.agent?.finish !== undefined
      const elsewhere = times.get(name)?.getTime() ?? at
      if (!hasEnded && now - at <= KEPT_SECONDS * 1000 && elsewhere - at <= HANDED_OVER_SECONDS * 1000) continue
      this.#heard.delete(name)
      lease.launches.delete(name)
    }
  }

  async #writeDue(dueSeconds: number, timeoutSeconds: number): Promise<void> {
    const due = this.#leases.filter(({ launches }) => [...launches].some((name) => this.#isDue(name, dueSeconds)))
    await Promise.all(due.map((lease) => this.#write(lease, timeoutSeconds)))
  }

  /** Returns true if the written heartbeat is older than the last one by this much. */
  #isDue(name: string, dueSeconds: number): boolean {
    const { times, launches } = this.#options
    const at = this.#heard.get(name)?.at ?? 0
    const reported = Date.parse(launches.get(name)?.status?.agent?.lastHeartbeatTime ?? "") || 0
    const written = Math.max(times.get(name)?.getTime() ?? 0, reported)
    return at - written >= Math.max(1, dueSeconds) * 1000
  }

  async #write(lease: OwnLease, timeoutSeconds: number): Promise<void> {
    const { logger } = this.#options
    try {
      await this.#createOrPatch(lease, timeoutSeconds)
      this.#fails = false
    } catch (error) {
      if (!this.#fails) logger.warn({ err: error, lease: lease.name }, "failed to write heartbeats; retrying")
      this.#fails = true
    }
  }

  async #createOrPatch(lease: OwnLease, timeoutSeconds: number): Promise<void> {
    const { client, namespace, holder, clock } = this.#options
    const { name } = lease
    const times = [...lease.launches].map((launch) => [launch, (this.#heard.get(launch)?.at ?? 0) / 1000] as const)
    const annotations = { [ANNOTATIONS.heartbeats]: heartbeatsText(times) }
    const spec = { holderIdentity: holder, renewTime: microTime(clock.now()) }
    if (lease.isCreated) {
      try {
        await client.patch(
          leases,
          { namespace, name },
          { merge: { metadata: { annotations }, spec } },
          { timeoutSeconds },
        )
        return
      } catch (error) {
        if (!isNotFound(error)) throw error
      }
    }
    const metadata = { name, namespace, labels: { [LABELS.heartbeats]: "" }, annotations }
    await client.create(leases, { metadata, spec } as Lease, { timeoutSeconds }).catch((error: unknown) => {
      // An earlier attempt took effect without an answer. The next round patches it.
      if (!isAlreadyExists(error)) throw error
    })
    lease.isCreated = true
  }

  /** Deletes Leases that have not changed for long, by the monotonic clock: clocks of replicas may differ. */
  async #collectGarbage(): Promise<void> {
    const { client, written, clock, logger } = this.#options
    const now = clock.monotonic()
    const before = this.#unchanged
    this.#unchanged = new Map()
    for (const { metadata } of written.list()) {
      const { name, namespace = "", resourceVersion = "", uid = "" } = metadata
      const known = before.get(name)
      const since = known?.resourceVersion === resourceVersion ? known.since : now
      this.#unchanged.set(name, { resourceVersion, since })
      if (now - since < KEPT_SECONDS) continue
      try {
        await client.delete(leases, { namespace, name }, { preconditions: { uid, resourceVersion } })
      } catch (error) {
        const isSettled = isNotFound(error) || isConflict(error)
        if (!isSettled) logger.warn({ err: error, lease: name }, "failed to delete old heartbeats; retrying")
      }
    }
  }
}
