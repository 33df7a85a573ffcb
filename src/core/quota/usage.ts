import type { StoredApiKey } from "../apis/apikey.ts"
import type { Clock } from "../apis/clock.ts"
import type { StoredConnection } from "../apis/connection.ts"
import type { StoredCronJob } from "../apis/cronjob.ts"
import { isTerminal, type StoredJob } from "../apis/job.ts"
import type { StoredJobArray } from "../apis/jobarray.ts"
import type { StoredMachine } from "../apis/machine.ts"
import { type KubeObject, keyOf, LABELS, type Stored } from "../apis/meta.ts"
import type { StoredWebhook } from "../apis/webhook.ts"
import type { Reflector } from "../kube/reflector.ts"
import type { Change } from "../kube/store.ts"

/** Kinds of objects that a project has a maximum number of. */
export const COUNTED_KINDS = ["cronJobs", "jobArrays", "apiKeys", "connections", "webhooks", "machines"] as const
export type CountedKind = (typeof COUNTED_KINDS)[number]

/** Caches whose objects count. */
export interface CountedCaches {
  jobs: Pick<Reflector<StoredJob>, "onChange">
  cronJobs: Pick<Reflector<StoredCronJob>, "onChange">
  jobArrays: Pick<Reflector<StoredJobArray>, "onChange">
  apiKeys: Pick<Reflector<StoredApiKey>, "onChange">
  connections: Pick<Reflector<StoredConnection>, "onChange">
  webhooks: Pick<Reflector<StoredWebhook>, "onChange">
  machines: Pick<Reflector<StoredMachine>, "onChange">
}

/** Bytes of JSON. */
export interface StoredBytes {
  bytes: number
  /** The part of ended jobs. */
  endedBytes: number
}

/** Use of a project's limits. */
export interface NamespaceUsage extends StoredBytes, Record<CountedKind, number> {
  unfinishedJobs: number
}

type Kind = "jobs" | CountedKind

/** An object that counts. */
interface Counted {
  kind: Kind
  namespace: string
  bytes: number
  isEnded: boolean
}

/** Objects of one namespace. */
interface Namespace {
  usage: NamespaceUsage
  /** Unfinished jobs by key, with the key of their order. */
  unfinished: Map<string, { order: string; bytes: number }>
  /** Creation times of the jobs of CronJobs within the last minute, milliseconds, in the order of arrival. */
  runs: number[]
  /** The latest of them, and the monotonic time of its arrival, seconds. */
  latestRun?: { created: number; at: number }
}

const RUN_WINDOW_MS = 60_000

/** Seconds for which the order of an overfull project's jobs is kept: to sort it takes milliseconds. */
const ORDER_SECONDS = 5

/**
 * Counts the objects of each project, from the caches of a process. Each change costs one JSON text of the object. A
 * Job's status is part of its size.
 */
export class Usage {
  readonly #clock: Clock
  readonly #objects = new Map<string, Counted>()
  readonly #namespaces = new Map<string, Namespace>()
  readonly #total: StoredBytes = { bytes: 0, endedBytes: 0 }
  readonly #orders = new Map<string, { at: number; allowed: ReadonlySet<string> }>()

  constructor({ jobs, cronJobs, jobArrays, apiKeys, connections, webhooks, machines }: CountedCaches, clock: Clock) {
    this.#clock = clock
    jobs.onChange((change) => {
      this.#change("jobs", change, isTerminal(change.current?.status?.phase))
      this.#countRun(change)
      this.#countUnfinished(change)
    })
    cronJobs.onChange((change) => this.#change("cronJobs", change))
    jobArrays.onChange((change) => this.#change("jobArrays", change))
    apiKeys.onChange((change) => this.#change("apiKeys", change))
    connections.onChange((change) => this.#change("connections", change))
    webhooks.onChange((change) => this.#change("webhooks", change))
    machines.onChange((change) => this.#change("machines", change))
  }

  /** Adds bytes of ended jobs that are not in the caches; negative: removes them. */
  addEnded(namespace: string, bytes: number): void {
    this.#add({ kind: "jobs", namespace, bytes, isEnded: true }, 1)
  }

  /** Returns the use of a namespace's limits. */
  of(namespace: string): Readonly<NamespaceUsage> {
    return this.#namespaces.get(namespace)?.usage ?? NOTHING
  }

  /** Returns the bytes of all namespaces. */
  all(): Readonly<StoredBytes> {
    return this.#total
  }

  /** Returns the number of namespaces with unfinished jobs, at least 1. */
  busyNamespaces(): number {
    return Math.max(1, [...this.#namespaces.values()].filter(({ unfinished }) => unfinished.size > 0).length)
  }

  /** Returns the namespaces with objects, and the bytes of each. */
  bytesByNamespace(): [namespace: string, bytes: Readonly<StoredBytes>][] {
    return [...this.#namespaces].map(([namespace, { usage }]) => [namespace, usage])
  }

  /** Returns the bytes of an object; 0 for one that does not count. */
  bytesOf(kind: Kind, object: Stored<KubeObject>): number {
    return this.#objects.get(`${kind}/${keyOf(object)}`)?.bytes ?? 0
  }

  /**
   * Returns the number of jobs that the CronJobs of a namespace created within the last minute. The minute is one of the API
   * server's clock, which writes the creation times. From the latest job on, this process's monotonic clock counts.
   */
  cronJobRuns(namespace: string): number {
    const space = this.#namespaces.get(namespace)
    if (space?.latestRun === undefined) return 0
    const { created, at } = space.latestRun
    const from = created + (this.#clock.monotonic() - at) * 1000 - RUN_WINDOW_MS
    space.runs = space.runs.filter((run) => run >= from)
    return space.runs.length
  }

  /**
   * Returns true if a job is among the oldest unfinished jobs of its namespace that fit under both limits. The answer may
   * be some seconds old.
   */
  isAmongOldest(job: StoredJob, most: { jobs: number; bytes: number }): boolean {
    const { namespace = "" } = job.metadata
    const space = this.#namespaces.get(namespace)
    if (space === undefined) return true
    const { unfinishedJobs, bytes, endedBytes } = space.usage
    if (unfinishedJobs <= most.jobs && bytes - endedBytes <= most.bytes) return true
    const known = this.#orders.get(namespace)
    const now = this.#clock.monotonic()
    if (known !== undefined && now - known.at < ORDER_SECONDS) return known.allowed.has(keyOf(job))
    const allowed = oldest(space, most)
    this.#orders.set(namespace, { at: now, allowed })
    return allowed.has(keyOf(job))
  }

  #change(kind: Kind, { key, current }: Change<Stored<KubeObject>>, isEnded = false): void {
    const id = `${kind}/${key}`
    const before = this.#objects.get(id)
    if (before !== undefined) this.#add(before, -1)
    this.#objects.delete(id)
    if (current === undefined) return
    const { namespace = "" } = current.metadata
    const counted = { kind, namespace, bytes: Buffer.byteLength(JSON.stringify(current)), isEnded }
    this.#objects.set(id, counted)
    this.#add(counted, 1)
  }

  #add({ kind, namespace, bytes, isEnded }: Counted, sign: 1 | -1): void {
    const { usage } = this.#namespace(namespace)
    for (const sums of [usage, this.#total]) {
      sums.bytes += sign * bytes
      if (isEnded) sums.endedBytes += sign * bytes
    }
    if (kind !== "jobs") usage[kind] += sign
    else if (!isEnded) usage.unfinishedJobs += sign
  }

  #countRun({ old, current }: Change<StoredJob>): void {
    if (old !== undefined || current?.metadata.labels?.[LABELS.cronJobUid] === undefined) return
    const { namespace = "", creationTimestamp } = current.metadata
    const created = Date.parse(creationTimestamp)
    const space = this.#namespace(namespace)
    const latest = space.latestRun?.created ?? created
    if (created < latest - RUN_WINDOW_MS) return
    space.runs.push(created)
    if (created >= latest) space.latestRun = { created, at: this.#clock.monotonic() }
  }

  #countUnfinished({ key, old, current }: Change<StoredJob>): void {
    const { metadata, status } = current ?? old ?? {}
    const { unfinished } = this.#namespace(metadata?.namespace ?? "")
    if (current === undefined || metadata === undefined || isTerminal(status?.phase)) unfinished.delete(key)
    else {
      const bytes = this.#objects.get(`jobs/${key}`)?.bytes ?? 0
      unfinished.set(key, { order: creationOrder(metadata), bytes })
    }
  }

  #namespace(name: string): Namespace {
    const found = this.#namespaces.get(name)
    if (found !== undefined) return found
    const made = { usage: { ...NOTHING }, unfinished: new Map(), runs: [] }
    this.#namespaces.set(name, made)
    return made
  }
}

/** Returns a key that sorts objects by their creation. Users cannot choose it. */
export function creationOrder({ creationTimestamp, uid }: Stored<KubeObject>["metadata"]): string {
  return `${creationTimestamp} ${uid}`
}

const NOTHING: NamespaceUsage = {
  unfinishedJobs: 0,
  cronJobs: 0,
  jobArrays: 0,
  apiKeys: 0,
  connections: 0,
  webhooks: 0,
  machines: 0,
  bytes: 0,
  endedBytes: 0,
}

/** Returns the keys of the oldest unfinished jobs that fit under the limits. Everything else of the namespace counts first. */
function oldest({ usage, unfinished }: Namespace, most: { jobs: number; bytes: number }): ReadonlySet<string> {
  const ordered = [...unfinished].sort(([, a], [, b]) => (a.order < b.order ? -1 : 1))
  const ofJobs = ordered.reduce((sum, [, { bytes }]) => sum + bytes, 0)
  let left = most.bytes - (usage.bytes - usage.endedBytes - ofJobs)
  const allowed = new Set<string>()
  for (const [key, { bytes }] of ordered.slice(0, most.jobs)) {
    left -= bytes
    // The oldest always has a place: else a project whose other objects fill it would never run a job again.
    if (left < 0 && allowed.size > 0) break
    allowed.add(key)
  }
  return allowed
}
