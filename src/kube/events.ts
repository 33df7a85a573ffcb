import { randomBytes } from "node:crypto"
import { backoffSeconds, pause } from "../apis/backoff.ts"
import { type Clock, systemClock, timestamp } from "../apis/clock.ts"
import type { Logger } from "../apis/logger.ts"
import type { KubeClient } from "./client.ts"
import type { EventType, KubeEvent } from "./core.ts"
import { isAlreadyExists, isNotFound, isUnavailable } from "./errors.ts"
import { type Correlated, EventCorrelator } from "./event-correlator.ts"
import { type ApiObject, resourceOf } from "./resource.ts"

/** What happened. `reason` is CamelCase and stable, `message` is for people and holds no secret. */
export interface EventNote {
  type: EventType
  reason: string
  message: string
}

export const events = resourceOf<KubeEvent>({
  group: "",
  version: "v1",
  kind: "Event",
  plural: "events",
  namespaced: true,
})

export interface EventRecorderOptions {
  client: Pick<KubeClient, "create" | "patch">
  /** Who reports, e.g. `berth-job-controller`. */
  component: string
  /** Which of its processes, e.g. the pod's name. */
  instance: string
  logger: Logger
  clock?: Clock
  /** Events that may wait to be written; more are dropped, and their number logged. Default 1000. */
  queueSize?: number
}

/** Longer messages are cut; the limit of events.k8s.io/v1, which shares the storage. */
const MAX_MESSAGE_LENGTH = 1024
const MAX_ATTEMPTS = 5
/** Cluster-scoped objects have their events here, as with kubectl and client-go. */
const CLUSTER_SCOPED_NAMESPACE = "default"

/**
 * Records events about objects. `record` never waits and never throws: events are written in the
 * background, repeated ones as a count, and what can't be written is logged.
 */
export class EventRecorder {
  readonly #options: EventRecorderOptions
  readonly #clock: Clock
  readonly #correlator: EventCorrelator
  readonly #queue: Correlated[] = []
  readonly #stopped = new AbortController()
  #writing: Promise<void> | undefined
  #dropped = 0
  #count = 0

  constructor(options: EventRecorderOptions) {
    this.#options = options
    this.#clock = options.clock ?? systemClock
    this.#correlator = new EventCorrelator(this.#clock)
  }

  /** Queues an event about this object. */
  record(object: ApiObject, note: EventNote): void {
    if (this.#queue.length >= (this.#options.queueSize ?? 1000)) {
      this.#dropped++
      return
    }
    const correlated = this.#correlator.correlate(this.#eventOf(object, note))
    if (correlated === undefined) return
    this.#queue.push(correlated)
    this.#writing ??= this.#writeAll().finally(() => {
      this.#writing = undefined
    })
  }

  /** Waits until all queued events are written, at most `seconds`; what is left then is dropped and logged. */
  async flush(seconds = 5): Promise<void> {
    const cancel = this.#clock.setTimer(seconds, () => this.#stopped.abort())
    // A record made while the last one is being finished starts another round.
    while (this.#writing !== undefined) await this.#writing
    cancel()
  }

  async #writeAll(): Promise<void> {
    for (let next = this.#queue.shift(); next !== undefined; next = this.#queue.shift()) {
      if (this.#stopped.signal.aborted) this.#dropped += this.#queue.splice(0).length
      try {
        await this.#write(next)
      } catch (error) {
        this.#options.logger.warn({ err: error, reason: next.event.reason }, "an event was not recorded")
      }
    }
    if (this.#dropped > 0)
      this.#options.logger.warn({ dropped: this.#dropped }, "events were dropped: too many, or too late")
    this.#dropped = 0
  }

  /** Repeats safely: an event's name is made before the first attempt, and its count is absolute. */
  async #write(next: Correlated): Promise<void> {
    const signal = this.#stopped.signal
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#createOrUpdate(next, signal)
      } catch (error) {
        if (isAlreadyExists(error)) return
        if (!isUnavailable(error) || attempt >= MAX_ATTEMPTS) throw error
        await pause(this.#clock, backoffSeconds(attempt, { baseSeconds: 0.5, capSeconds: 10 }), signal)
      }
    }
  }

  async #createOrUpdate({ event, repeats }: Correlated, signal: AbortSignal): Promise<void> {
    const { client } = this.#options
    if (repeats) {
      const { count, lastTimestamp, message } = event
      const ref = { namespace: event.metadata.namespace, name: event.metadata.name }
      const updated = await client
        .patch(events, ref, { merge: { count, lastTimestamp, message } }, { signal })
        .catch((error: unknown) => {
          // Events are kept for an hour by default: this one is gone, so it is told anew.
          if (!isNotFound(error)) throw error
        })
      if (updated !== undefined) return
    }
    await client.create(events, event, { signal })
  }

  #eventOf(object: ApiObject, note: EventNote): KubeEvent {
    const { namespace, name, uid, resourceVersion } = object.metadata
    const { component, instance } = this.#options
    const time = this.#clock.now()
    const now = timestamp(time)
    return {
      metadata: { namespace: namespace ?? CLUSTER_SCOPED_NAMESPACE, name: eventName(name, time, this.#count++) },
      involvedObject: { apiVersion: object.apiVersion, kind: object.kind, namespace, name, uid, resourceVersion },
      type: note.type,
      reason: note.reason,
      message: note.message.slice(0, MAX_MESSAGE_LENGTH),
      source: { component },
      reportingComponent: component,
      reportingInstance: instance,
      count: 1,
      firstTimestamp: now,
      lastTimestamp: now,
    }
  }
}

/**
 * A unique name that begins with the object's; names have at most 253 characters and end alphanumeric. Names sort by
 * time: of events of one second, which is all that their timestamps tell, kubectl shows those first whose names are.
 */
function eventName(objectName: string, time: Date, number: number): string {
  const order = time.getTime().toString(16).padStart(12, "0") + (number % 0x10000).toString(16).padStart(4, "0")
  return `${objectName.slice(0, 220).replace(/[^a-z0-9]+$/, "")}.${order}${randomBytes(4).toString("hex")}`
}
