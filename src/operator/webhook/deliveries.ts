import { untilAborted } from "../../core/apis/abort.ts"
import { timestamp } from "../../core/apis/clock.ts"
import { findCondition } from "../../core/apis/conditions.ts"
import type { StoredJob } from "../../core/apis/job.ts"
import { keyOf } from "../../core/apis/meta.ts"
import { type StoredWebhook, WebhookCondition, type WebhookEvent, WebhookReason } from "../../core/apis/webhook.ts"
import { NAMESPACE_INDEX } from "../../core/identity/catch-up.ts"
import type { ProjectScope } from "../../core/identity/principal.ts"
import { ifFound } from "../../core/kube/errors.ts"
import type { Change } from "../../core/kube/store.ts"
import { type LimitReached, limitForExisting } from "../../core/quota/project-limits.ts"
import { withoutOutput } from "../../core/records/job.ts"
import { JOBS } from "../../core/resources.ts"
import type { Source } from "../../core/runtime/controller.ts"
import { KeyQueue } from "../../core/runtime/queue.ts"
import { jobEnd, wantsJob, wantsType } from "../../core/webhooks/events.ts"
import { buildMessage, publicRecord } from "../../core/webhooks/message.ts"
import { messageId } from "../../core/webhooks/message-id.ts"
import { retryDelay } from "../../core/webhooks/retry.ts"
import { sendMessage } from "../../core/webhooks/send.ts"
import { NotLeaderError } from "../fence.ts"
import type { EndReader } from "../job/dependencies.ts"
import { type AttemptOutcome, Backlog, backlogStart, type Delivery } from "./backlog.ts"
import type { WebhookControllerDependencies } from "./dependencies.ts"
import { Pace } from "./pace.ts"
import { ReceiverUnusable, receiverIn } from "./secret.ts"
import { WEBHOOK_DEFAULTS, type WebhookSettings } from "./settings.ts"

/** Event of another object than a job. It is sent once to each webhook that wants it. */
export interface OtherEvent {
  type: WebhookEvent
  /** Object of the event, such as `cronjobs/nightly`. */
  subject: string
  /** RFC 3339. */
  time: string
  /** Parts that only this event has. */
  key: readonly string[]
  data: Record<string, unknown>
}

/** Webhook with the deliveries that are not over. */
interface Courier {
  webhook: StoredWebhook
  backlog: Backlog
  queue: KeyQueue
  workers: Promise<unknown>
  /** Jobs that left the cache before their end was delivered, by uid. */
  jobs: Map<string, StoredJob>
  /** Content of other events, by message id. */
  contents: Map<string, Record<string, unknown>>
  /** Ends of logs by message id, so that each retry sends the same. Null: it could not be read. */
  outputs: Map<string, string | null>
}

/** Keys that a controller is to reconcile. */
class Requeues implements Source {
  readonly #listeners = new Set<(key: string) => void>()

  add(key: string): void {
    for (const listener of this.#listeners) listener(key)
  }

  subscribe(add: (key: string) => void): () => void {
    this.#listeners.add(add)
    return () => this.#listeners.delete(add)
  }

  async whenSynced(): Promise<void> {}
}

/**
 * Sends events to the receivers of webhooks, while this process leads. Each webhook has its own queue and its own
 * workers, so a slow receiver delays no other one, and no reconcile. All webhooks of a project share one pace. An end of a
 * job is read from the cache of jobs: its job stays there, unsettled, until all webhooks have seen the end.
 */
export class WebhookDeliveries implements EndReader {
  readonly #options: WebhookControllerDependencies
  readonly #settings: WebhookSettings
  /** By the webhook's uid. */
  readonly #couriers = new Map<string, Courier>()
  /** By the namespace of the project. They stay, so that a webhook that is created again brings no more turns. */
  readonly #paces = new Map<string, Pace>()
  readonly #seenJobs = new Requeues()
  readonly #changedWebhooks = new Requeues()
  #signal: AbortSignal | undefined
  #startedAt = 0
  /** Ends `run` with an error. */
  #fail: (error: NotLeaderError) => void = () => undefined

  constructor(options: WebhookControllerDependencies) {
    this.#options = options
    this.#settings = { ...WEBHOOK_DEFAULTS, ...options.settings }
  }

  /** Monotonic time at which this process began to send, seconds. */
  get startedAt(): number {
    return this.#startedAt
  }

  /** Source of the jobs whose end was seen. */
  get source(): Source {
    return this.#seenJobs
  }

  /** Source of the webhooks whose backlog has changed. */
  get changes(): Source {
    return this.#changedWebhooks
  }

  /**
   * Sends until the signal is aborted. Messages under way then get a moment.
   * @throws NotLeaderError as soon as a message finds the lease expired. This process may lead again, if no other one takes
   *   the lease: then call this again.
   */
  async run(signal: AbortSignal): Promise<void> {
    const { webhooks, jobs, clock } = this.#options
    const abort = new AbortController()
    const { promise: failed, reject } = Promise.withResolvers<never>()
    this.#fail = reject
    this.#signal = abort.signal
    this.#startedAt = clock.monotonic()
    const unsubscribe = [webhooks.onChange((change) => this.#onWebhook(change))]
    unsubscribe.push(jobs.onChange((change) => this.#onJob(change)))
    try {
      await Promise.race([untilAborted(signal), failed])
    } finally {
      for (const end of unsubscribe) end()
      const cancel = clock.setTimer(this.#settings.drainSeconds, () => abort.abort())
      const couriers = [...this.#couriers.values()]
      for (const courier of couriers) this.#silence(courier)
      await Promise.all(couriers.map(({ workers }) => workers))
      cancel()
      this.#couriers.clear()
      this.#paces.clear()
    }
  }

  /** See EndReader. A job that has not ended is awaited if any of its ends would be. */
  awaits(job: StoredJob): boolean {
    const webhooks = this.#options.webhooks.store.byIndex(NAMESPACE_INDEX, job.metadata.namespace ?? "")
    return webhooks.some((webhook) => this.#awaits(webhook, job))
  }

  #awaits(webhook: StoredWebhook, job: StoredJob): boolean {
    const { metadata, spec, status } = webhook
    const courier = this.#couriers.get(metadata.uid)
    if (courier?.backlog.holds(job.metadata.uid) === true) return true
    if (!isActive(webhook) || courier?.backlog.stopped !== undefined || !wantsJob(spec, job)) return false
    const end = jobEnd(job)
    if (end === undefined) return true
    if (courier !== undefined || !wantsType(spec, end.type)) return false
    if (this.limitOf(webhook) !== undefined) return false
    // This process does not send yet.
    const isPending = status?.pending?.some(({ jobUid }) => jobUid === job.metadata.uid) === true
    const start = backlogStart(webhook, this.#options.clock.now(), this.#settings)
    return isPending || Date.parse(end.time) >= Date.parse(start)
  }

  /** Returns the backlog of a webhook; undefined if it gets nothing, and its status says so. */
  backlogOf({ metadata }: StoredWebhook): Backlog | undefined {
    return this.#couriers.get(metadata.uid)?.backlog
  }

  /** Returns the limit that keeps a webhook from working: kubectl made it beyond the maximum number of a project. */
  limitOf(webhook: StoredWebhook): LimitReached | undefined {
    const { quota, webhooks } = this.#options
    const { namespace = "", uid } = webhook.metadata
    if (this.#couriers.has(uid)) return undefined
    const all = { list: () => webhooks.store.byIndex(NAMESPACE_INDEX, namespace) }
    return limitForExisting(quota, "webhooks", webhook, all)
  }

  /** Begins to send to a webhook that a limit kept from working, if there is room for it now. */
  reconsider(webhook: StoredWebhook): void {
    const { metadata } = webhook
    if (metadata.deletionTimestamp !== undefined || this.#couriers.has(metadata.uid)) return
    if (readyReason(webhook) === WebhookReason.ProjectLimit && this.limitOf(webhook) === undefined) this.#open(webhook)
  }

  /**
   * Returns the number of messages a minute that the project of a webhook may send, if messages of the webhook wait for
   * that limit; else undefined.
   */
  limitedTo({ metadata: { namespace = "", uid } }: StoredWebhook): number | undefined {
    const isWaiting = this.#paces.get(namespace)?.isWaiting(uid) === true
    return isWaiting ? this.#options.quota?.limits.webhookMessagesPerMinute : undefined
  }

  /** Number of messages of webhooks that wait for the limit of their project. */
  get limitedMessages(): number {
    const limited = [...this.#couriers.values()].filter(({ webhook }) => this.limitedTo(webhook) !== undefined)
    return limited.reduce((sum, { backlog }) => sum + backlog.size, 0)
  }

  /** Requeues jobs that a webhook no longer holds. */
  release(uids: readonly string[]): void {
    for (const uid of uids) {
      const job = this.#options.jobs.store.getByUid(uid)
      if (job !== undefined) this.#seenJobs.add(keyOf(job))
    }
  }

  /** Sends all messages of a webhook now that wait for their next attempt. */
  retryNow({ metadata }: StoredWebhook): void {
    const courier = this.#couriers.get(metadata.uid)
    for (const { id } of courier?.backlog.list() ?? []) courier?.queue.add(id)
  }

  /**
   * Sends an event to the webhooks that want it. Such an event is lost if this process ends before.
   * @param concerns returns true for a namespace whose webhooks may get the event
   */
  emit({ type, subject, time, key, data }: OtherEvent, concerns: (namespace: string) => boolean): void {
    for (const courier of this.#couriers.values()) {
      const { webhook, backlog, contents, queue } = courier
      const { namespace = "", uid } = webhook.metadata
      if (!wantsType(webhook.spec, type) || !concerns(namespace)) continue
      const id = messageId(uid, [type, ...key])
      if (!backlog.offer({ id, type, subject, time })) continue
      contents.set(id, data)
      queue.add(id)
    }
  }

  #onWebhook({ old, current }: Change<StoredWebhook>): void {
    const { uid } = (current ?? old)?.metadata ?? {}
    const courier = uid === undefined ? undefined : this.#couriers.get(uid)
    if (current === undefined || current.metadata.deletionTimestamp !== undefined) {
      if (courier !== undefined) this.#close(courier)
      return
    }
    if (courier === undefined) {
      if (!isStopped(current) && this.limitOf(current) === undefined) this.#open(current)
      return
    }
    const hasChanged = courier.webhook.metadata.generation !== current.metadata.generation
    courier.webhook = current
    if (courier.backlog.stopped !== undefined && isStopped(current)) this.#close(courier)
    else if (hasChanged) this.#onSpec(courier)
  }

  #onSpec(courier: Courier): void {
    const { webhook, backlog } = courier
    if (webhook.spec.active === false) this.#stop(courier)
    else if (backlog.stopped !== undefined) {
      this.#close(courier)
      this.#open(webhook, timestamp(this.#options.clock.now()))
    } else {
      this.#offerAll(courier)
      this.retryNow(webhook)
    }
  }

  /** Begins to send to a webhook. @param start time from which it gets events; default: its cursor */
  #open(webhook: StoredWebhook, start?: string): void {
    const { parallel } = this.#settings
    const { clock } = this.#options
    const wasStopped = STOPPED.some((reason) => reason === readyReason(webhook))
    const from = start ?? (wasStopped ? timestamp(clock.now()) : undefined)
    const queue = new KeyQueue({ clock })
    const courier: Courier = {
      webhook,
      backlog: new Backlog(webhook, this.#settings, clock.now(), from),
      queue,
      workers: Promise.resolve(),
      jobs: new Map(),
      contents: new Map(),
      outputs: new Map(),
    }
    this.#couriers.set(webhook.metadata.uid, courier)
    if (webhook.spec.active === false) this.#stop(courier)
    else {
      courier.workers = Promise.all(Array.from({ length: parallel }, () => this.#work(courier)))
      for (const delivery of courier.backlog.list()) {
        queue.addAfter(delivery.id, retryDelay(delivery, clock.now(), this.#settings.retry))
      }
      this.#offerAll(courier)
    }
    this.#changedWebhooks.add(keyOf(webhook))
  }

  /** Counts all that is pending as missed. */
  #stop(courier: Courier): void {
    courier.backlog.stop("Paused", this.#options.clock.now())
    this.#silence(courier)
    this.#changedWebhooks.add(keyOf(courier.webhook))
  }

  #close(courier: Courier): void {
    const { webhook, backlog } = courier
    const held = backlog.heldJobs()
    this.#silence(courier)
    this.#couriers.delete(webhook.metadata.uid)
    this.release(held)
  }

  /** Ends the queue of a webhook, and what waits for its turn. */
  #silence({ webhook, queue }: Courier): void {
    const { namespace = "", uid } = webhook.metadata
    queue.close()
    this.#paces.get(namespace)?.leave(uid)
  }

  #onJob({ old, current }: Change<StoredJob>): void {
    const job = current ?? old
    if (job === undefined || (current !== undefined && jobEnd(current) === undefined)) return
    const { namespace = "" } = job.metadata
    for (const { metadata } of this.#options.webhooks.store.byIndex(NAMESPACE_INDEX, namespace)) {
      const courier = this.#couriers.get(metadata.uid)
      if (courier === undefined) continue
      if (current !== undefined) this.#offer(courier, current)
      else {
        if (courier.backlog.holds(job.metadata.uid)) courier.jobs.set(job.metadata.uid, job)
        courier.backlog.forgetJob(job.metadata.uid)
      }
    }
  }

  #offerAll(courier: Courier): void {
    const { namespace } = courier.webhook.metadata
    for (const job of this.#options.jobs.store.list()) {
      if (job.metadata.namespace === namespace) this.#offer(courier, job)
    }
  }

  #offer({ webhook, backlog, queue }: Courier, job: StoredJob): void {
    const end = jobEnd(job)
    const { spec, metadata } = webhook
    if (end === undefined || !wantsType(spec, end.type) || !wantsJob(spec, job)) return
    const { uid, name } = job.metadata
    const id = messageId(metadata.uid, [uid, end.type, end.time])
    if (backlog.offer({ id, ...end, subject: `jobs/${name}`, jobUid: uid })) queue.add(id)
  }

  async #work(courier: Courier): Promise<void> {
    const { queue } = courier
    for (let id = await queue.next(); id !== undefined; id = await queue.next()) {
      try {
        if (await this.#turn(courier, id)) await this.#attempt(courier, id)
      } catch (error) {
        this.#failed(courier, id, error)
      } finally {
        queue.done(id)
      }
    }
  }

  /** Waits for a turn of the project to send. Returns false if there is nothing to send. */
  async #turn({ webhook, backlog }: Courier, id: string): Promise<boolean> {
    const { quota, clock } = this.#options
    if (backlog.get(id) === undefined) return false
    if (quota === undefined) return true
    const { namespace = "", uid } = webhook.metadata
    const pace = this.#paces.get(namespace) ?? new Pace(quota.limits.webhookMessagesPerMinute, clock)
    this.#paces.set(namespace, pace)
    const turn = pace.turn(uid)
    if (pace.isWaiting(uid)) this.#changedWebhooks.add(keyOf(webhook))
    return await turn
  }

  /** Retries after an error of Berth itself, such as an API server that does not answer. It isn't an attempt. */
  #failed({ webhook, queue }: Courier, id: string, error: unknown): void {
    if (error instanceof NotLeaderError) this.#fail(error)
    if (error instanceof NotLeaderError || this.#signal?.aborted === true) return
    this.#options.logger.warn(
      { err: error, webhook: keyOf(webhook), message: id },
      "the message was not sent; retrying",
    )
    queue.addRateLimited(id)
  }

  async #attempt(courier: Courier, id: string): Promise<void> {
    const { backlog, queue, contents, outputs, jobs } = courier
    const { clock, random = Math.random } = this.#options
    const delivery = backlog.get(id)
    if (delivery === undefined || backlog.stopped !== undefined) return
    const outcome = await this.#send(courier, delivery)
    queue.forget(id)
    if (outcome === undefined) backlog.abandon(id, "the job was deleted before its end was delivered", clock.now())
    else {
      const after = backlog.attempted(id, outcome, clock.now(), random())
      if (after !== undefined) queue.addAfter(id, after)
    }
    if (backlog.stopped !== undefined) this.#silence(courier)
    if (backlog.get(id) === undefined) {
      contents.delete(id)
      outputs.delete(id)
      jobs.delete(delivery.jobUid ?? "")
    }
    if (delivery.jobUid !== undefined && !backlog.holds(delivery.jobUid)) this.release([delivery.jobUid])
    this.#changedWebhooks.add(keyOf(courier.webhook))
  }

  /** Sends a message. Returns undefined if the job no longer exists. */
  async #send(courier: Courier, delivery: Delivery): Promise<AttemptOutcome | undefined> {
    const { webhook } = courier
    const { clock, fence, sending } = this.#options
    const { id, type, subject, time } = delivery
    try {
      const { receiver, project } = await receiverIn(webhook, this.#options, clock.now())
      const job = delivery.jobUid === undefined ? undefined : await this.#jobOf(courier, delivery)
      if (delivery.jobUid !== undefined && job === undefined) return undefined
      const content =
        job === undefined ? (courier.contents.get(id) ?? {}) : await this.#contentOf(job, { courier, id, project })
      const data = publicRecord(content, webhook.spec.include)
      const message = buildMessage({ id, type, project: project.id, subject, time, data }, webhook.spec)
      fence()
      const signal = this.#signal ?? AbortSignal.abort()
      return await sendMessage({ id, ...message }, receiver, sending, signal)
    } catch (error) {
      if (error instanceof ReceiverUnusable) return { is: "failed", error: `${error.reason}: ${error.message}` }
      throw error
    }
  }

  /** Returns the record of a job, with its output only if the webhook asks for that. */
  async #contentOf(job: StoredJob, { courier, id, project }: { courier: Courier; id: string; project: ProjectScope }) {
    const { recordOf, logger, readOutput } = this.#options
    const { webhook, outputs } = courier
    if (webhook.spec.include?.includes("output") !== true) return recordOf(withoutOutput(job), project)
    const read = async (): Promise<string | null> => {
      try {
        return await readOutput(job, this.#signal ?? AbortSignal.abort())
      } catch (err) {
        // A message without it is better than one that comes late.
        logger.warn({ err, webhook: keyOf(webhook), job: keyOf(job) }, "the log could not be read; sending without it")
        return null
      }
    }
    const output = outputs.has(id) ? outputs.get(id) : await read()
    outputs.set(id, output ?? null)
    return { ...recordOf(job, project), output: output ?? null }
  }

  async #jobOf({ jobs, webhook }: Courier, { jobUid = "", subject }: Delivery): Promise<StoredJob | undefined> {
    const known = this.#options.jobs.store.getByUid(jobUid) ?? jobs.get(jobUid)
    if (known !== undefined) return known
    // It is settled, so it is no longer in the cache.
    const { namespace } = webhook.metadata
    const name = subject.slice("jobs/".length)
    const job = await ifFound(this.#options.client.get(JOBS, { namespace, name }))
    return job?.metadata.uid === jobUid ? job : undefined
  }
}

/** Reasons of the Ready condition of a webhook that gets nothing. */
const STOPPED: readonly WebhookReason[] = [
  WebhookReason.Paused,
  WebhookReason.ReceiverGone,
  WebhookReason.RetriesExhausted,
  WebhookReason.ProjectLimit,
]

function readyReason({ status }: StoredWebhook): string | undefined {
  return findCondition(status?.conditions, WebhookCondition.Ready)?.reason
}

/** Returns true if the status says that the webhook gets nothing, and its spec has not changed since. */
function isStopped(webhook: StoredWebhook): boolean {
  const isCurrent = webhook.status?.observedGeneration === webhook.metadata.generation
  return isCurrent && STOPPED.some((reason) => reason === readyReason(webhook))
}

function isActive(webhook: StoredWebhook): boolean {
  const { metadata, spec } = webhook
  return spec.active !== false && metadata.deletionTimestamp === undefined && !isStopped(webhook)
}
