import { isDeepStrictEqual } from "node:util"
import {
  type ConditionCause,
  type ConditionUpdate,
  changedCondition,
  condition,
  conditionOnceTrue,
  setConditions,
} from "../../core/apis/conditions.ts"
import { type StoredWebhook, WebhookCondition, WebhookReason, type WebhookStatus } from "../../core/apis/webhook.ts"
import type { EventNote } from "../../core/kube/events.ts"
import type { LimitReached } from "../../core/quota/project-limits.ts"
import type { Decision } from "../../core/runtime/reconcile-object.ts"
import type { StopReason } from "./backlog.ts"

/** Facts that a decision on a Webhook is based on, besides the object. */
export interface WebhookObservation {
  /** Fault of the secrets; undefined if they are usable. */
  fault?: ConditionCause
  /** True if the secrets are sealed under a former key. */
  isOutdated: boolean
  /** Id of the project, under which the secrets are sealed again. */
  project?: string
  /** Host of the receiver, for people. The rest of the address may be secret. */
  host?: string
  /** Fields of the status that the backlog has. Absent: the webhook gets nothing, and its status says so. */
  progress?: Omit<WebhookStatus, "observedGeneration" | "conditions">
  stopped?: StopReason
  /** Limit of webhooks that keeps this one from working. */
  overLimit?: LimitReached
  /** Messages that wait, because the project's webhooks have sent what they may in a minute. Absent: none waits for that. */
  limited?: { messages: number; perMinute: number }
  lastError?: string
  /** Time until time alone changes the progress, seconds. */
  changesIn?: number
  /** Time until the status may be written, seconds. */
  writableIn: number
}

export type WebhookAction = { do: "reseal"; project: string }

/** Delay before checking again whether the project has room for the webhook, seconds. */
const OVER_LIMIT_SECONDS = 120

/** Decides what to do with a webhook, besides its deliveries. Pure. */
export function decide(
  webhook: StoredWebhook,
  observed: WebhookObservation,
  now: Date,
): Decision<WebhookStatus, WebhookAction> {
  if (webhook.metadata.deletionTimestamp !== undefined) return { actions: [] }
  const { isOutdated, project, progress, writableIn, changesIn } = observed
  // The change of the spec requeues the webhook. It also enables one that Berth disabled: its receiver is asked again.
  if (isOutdated && project !== undefined) return { actions: [{ do: "reseal", project }] }
  if (progress === undefined) return { actions: [] }
  if (writableIn > 0) return { actions: [], requeueAfter: writableIn }
  const status = nextStatus(webhook, { ...observed, progress }, now)
  const requeueAfter = observed.overLimit === undefined ? changesIn : OVER_LIMIT_SECONDS
  const after = requeueAfter === undefined ? {} : { requeueAfter: Math.max(1, requeueAfter) }
  if (isDeepStrictEqual(status, webhook.status)) return { actions: [], ...after }
  return { status, actions: [], events: buildEvents(webhook.status, status), ...after }
}

type Progressing = WebhookObservation & Required<Pick<WebhookObservation, "progress">>

function nextStatus(webhook: StoredWebhook, observed: Progressing, now: Date): WebhookStatus {
  const { generation } = webhook.metadata
  const ready = readyOf(webhook, observed)
  const isReady = !DISABLED.includes(ready.reason) && observed.fault === undefined
  const isStalled = !isReady && !TRANSIENT.includes(ready.reason)
  const before = webhook.status?.conditions
  const updates = [
    condition(WebhookCondition.Ready, isReady, ready),
    conditionOnceTrue(WebhookCondition.Stalled, isStalled, ready),
    ...delivering(observed),
  ]
  return {
    observedGeneration: generation,
    conditions: setConditions(before, updates, generation, now),
    ...observed.progress,
  }
}

/** Reasons for which Berth has disabled a webhook. */
const DISABLED: readonly string[] = [
  WebhookReason.ReceiverGone,
  WebhookReason.RetriesExhausted,
  WebhookReason.ProjectLimit,
]

/** Reasons that others may end: a GitOps tool creates Secrets and projects in any order. */
const TRANSIENT: readonly string[] = [WebhookReason.SecretNotFound, WebhookReason.NoProject]

function readyOf({ spec }: StoredWebhook, observed: Progressing): ConditionCause {
  const { stopped, overLimit, limited, fault, host, progress } = observed
  if (overLimit !== undefined)
    return { reason: WebhookReason.ProjectLimit, message: `nothing is sent: ${overLimit.message}` }
  if (stopped !== undefined) return { reason: stopped, message: STOPPED[stopped] }
  if (fault !== undefined) return fault
  const to = host === undefined ? "the receiver" : host
  const missed = progress.missedCount ?? 0
  const loss = missed === 0 ? "" : `; ${missed} ${missed === 1 ? "end of a job was" : "ends of jobs were"} missed`
  const message = `sends ${spec.events.join(", ")} to ${to}${loss}${limited === undefined ? "" : waiting(limited)}`
  return { reason: WebhookReason.Active, message }
}

function waiting({ messages, perMinute }: { messages: number; perMinute: number }): string {
  const wait = messages === 1 ? "1 message waits" : `${messages} messages wait`
  return `; ${wait}: the project's webhooks send at most ${perMinute} messages a minute together, and Berth sends the rest in turn. To get them sooner, delete or pause webhooks, or select fewer jobs`
}

const STOPPED: Record<StopReason, string> = {
  Paused: "active is false: nothing is sent",
  ReceiverGone:
    "the receiver answered 410 Gone, so nothing is sent. Set another url, or enable the webhook again with `berth webhook enable`",
  RetriesExhausted:
    "no delivery succeeded for days, so nothing is sent. Repair the receiver, then enable the webhook again with `berth webhook enable`",
}

function delivering({ progress, lastError }: Progressing): ConditionUpdate[] {
  const { lastSuccessTime, failingSince, pendingCount = 0 } = progress
  if (failingSince !== undefined) {
    const message = `no delivery has succeeded since ${failingSince}: ${lastError ?? "not retried yet"}. ${pendingCount} ends are pending; Berth retries`
    return [condition(WebhookCondition.Delivering, false, { reason: WebhookReason.DeliveryFailed, message })]
  }
  if (lastSuccessTime === undefined) return []
  const message = "the receiver accepted the latest message"
  return [condition(WebhookCondition.Delivering, true, { reason: WebhookReason.Delivered, message })]
}

/** Returns the events of a status: one for each change of the Ready condition, and one for new missed ends. */
function buildEvents(before: WebhookStatus | undefined, after: WebhookStatus): EventNote[] {
  const ready = changedCondition(before?.conditions, after.conditions, WebhookCondition.Ready)
  const isNormal = ready?.reason === WebhookReason.Active || ready?.reason === WebhookReason.Paused
  const notes: EventNote[] =
    ready === undefined ? [] : [{ type: isNormal ? "Normal" : "Warning", reason: ready.reason, message: ready.message }]
  const missed = (after.missedCount ?? 0) - (before?.missedCount ?? 0)
  if (missed > 0) {
    const message = `missed ${missed} ends of jobs, ${after.missedCount} in all: the receiver did not accept them in time`
    notes.push({ type: "Warning", reason: WebhookReason.EventsMissed, message })
  }
  return notes
}
