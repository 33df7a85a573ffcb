import { randomBytes } from "node:crypto"
import { backoffSeconds, pause } from "../apis/backoff.ts"
import { type Clock, systemClock, timestamp } from "../apis/clock.ts"
import type { Logger } from "../apis/logger.ts"
import type { KubeClient } from "./client.ts"
import type { EventType, KubeEvent } from "./core.ts"
import { isAlreadyExists, isNotFound, isServerError, isUnavailable } from "./errors.ts"
import { type Correlated, EventCorrelator } from "./event-correlator.ts"
import { type ApiObject, declareResource } from "./resource.ts"

/** Content of an event. `reason` is CamelCase and stable. `message` is for users and has no secret. */
export interface EventNote {
  type: EventType
  reason: string
  message: string
}

export const events = declareResource<KubeEvent>({
  group: "",
  version: "v1",
  kind: "Event",
  plural: "events",
  namespaced: true,
})

export interface EventRecorderOptions {
  client: Pick<KubeClient, "create" | "patch">
  /** Component that reports, e.g. `berth-job-controller`. */
  component: string
  /** Process of the component, e.g. the pod's name. */
  instance: string
  logger: Logger
  clock?: Clock
  /**
   * Maximum number of Normal events that wait to be written. More are dropped, and their number is logged. Default 1000.
   */
  queueSize?: number
}

/** Maximum length of a message: the limit of events.k8s.io/v1, which shares the storage. Longer ones are cut. */
const MAX_MESSAGE_LENGTH = 1024
/** Attempts to write a Normal event. A Warning is written as soon as the API server answers again. */
const MAX_ATTEMPTS = 5
/** Events that are written at the same time, each about another object. */
const WRITERS = 4
/** Namespace of events about cluster-scoped objects, as with kubectl and client-go. */
const CLUSTER_SCOPED_NAMESPACE = "default"

/**
 * Records events about objects. `record` never waits and never throws. Events are written in the background, those of
 * one object in their order, and repetitions as a count. Failures are logged. Only Normal events are dropped when there
 * are too many.
 */
export class EventRecorder {
  readonly #options: EventRecorderOptions
  readonly #clock: Clock
  readonly #correlator: EventCorrelator
  readonly #queue: Correlated[] = []
  /** Objects about which an event is being written. */
  readonly #busy = new Set<string>()
  readonly #stopped = new AbortController()
  #writers = 0
  #idle = Promise.withResolvers<void>()
  #dropped = 0
  #count = 0

  constructor(options: EventRecorderOptions) {
    this.#options = options
    this.#clock = options.clock ?? systemClock
    this.#correlator = new EventCorrelator(this.#clock)
  }

  /** Queues an event about this object. */
  record(object: ApiObject, note: EventNote): void {
    if (note.type === "Normal" && this.#queue.length >= (this.#options.queueSize ?? 1000)) {
      this.#dropped++
      return
    }
    const correlated = this.#correlator.correlate(this.#eventOf(object, note))
    if (correlated === undefined) return
    this.#enqueue(correlated)
    if (this.#writers < WRITERS) void this.#writeAll()
  }

  /** Adds an event to the queue, or its count to the same event that still waits there. */
  #enqueue(next: Correlated): void {
    const { name } = next.event.metadata
    const waiting = next.repeats ? this.#queue.findIndex(({ event }) => event.metadata.name === name) : -1
    const earlier = this.#queue[waiting]
    if (earlier === undefined) this.#queue.push(next)
    else this.#queue[waiting] = { event: next.event, repeats: earlier.repeats }
  }

  /** Waits at most `seconds` until all queued events are written. The rest is dropped and logged. */
  async flush(seconds = 5): Promise<void> {
    const cancel = this.#clock.setTimer(seconds, () => this.#stopped.abort())
    // Events that are recorded while the last one is written need another round.
    while (this.#writers > 0) await this.#idle.promise
    cancel()
  }

  /** Writes events until none waits, except those of objects about which another writer writes one. */
  async #writeAll(): Promise<void> {
    this.#writers++
    for (let next = this.#next(); next !== undefined; next = this.#next()) {
      const object = objectOf(next)
      this.#busy.add(object)
      try {
        await this.#write(next)
      } catch (error) {
        this.#options.logger.warn({ err: error, reason: next.event.reason }, "an event was not recorded")
      }
      this.#busy.delete(object)
    }
    this.#writers--
    if (this.#writers > 0) return
    if (this.#dropped > 0)
      this.#options.logger.warn({ dropped: this.#dropped }, "events were dropped: too many, or too late")
    this.#dropped = 0
    this.#idle.resolve()
    this.#idle = Promise.withResolvers()
  }

  /** Removes the first event whose object has no earlier one under way. */
  #next(): Correlated | undefined {
    if (this.#stopped.signal.aborted) this.#dropped += this.#queue.splice(0).length
    const first = this.#queue.findIndex((waiting) => !this.#busy.has(objectOf(waiting)))
    return first === -1 ? undefined : this.#queue.splice(first, 1)[0]
  }

  /**
   * Writes an event. Retries are safe: the event's name is chosen before the first attempt, and its count is absolute.
   */
  async #write(next: Correlated): Promise<void> {
    const signal = this.#stopped.signal
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#createOrUpdate(next, signal)
      } catch (error) {
        if (isAlreadyExists(error)) return
        const isWarning = next.event.type === "Warning"
        const mayRetry = isWarning ? isUnavailable(error) || isServerError(error) : isUnavailable(error)
        if (!mayRetry || (!isWarning && attempt >= MAX_ATTEMPTS)) throw error
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
          // The API server keeps events for an hour by default. It has deleted this one, so create it again.
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

function objectOf({ event: { involvedObject } }: Correlated): string {
  return `${involvedObject.kind}/${involvedObject.namespace}/${involvedObject.name}`
}

/**
 * Returns a unique name that begins with the object's. Names have at most 253 characters and end alphanumeric. They
 * sort by time. Timestamps have a resolution of one second, and kubectl sorts events of the same second by name.
 */
function eventName(objectName: string, time: Date, number: number): string {
  const order = time.getTime().toString(16).padStart(12, "0") + (number % 0x10000).toString(16).padStart(4, "0")
  return `${objectName.slice(0, 220).replace(/[^a-z0-9]+$/, "")}.${order}${randomBytes(4).toString("hex")}`
}
