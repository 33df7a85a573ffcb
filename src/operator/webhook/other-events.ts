import { type Clock, timestamp } from "../../core/apis/clock.ts"
import { findCondition } from "../../core/apis/conditions.ts"
import { CronJobReason } from "../../core/apis/cronjob.ts"
import { fromMetadataName } from "../../core/apis/names.ts"
import type { Condition } from "../../core/apis/schema.ts"
import type { EventNote, EventRecorder } from "../../core/kube/events.ts"
import type { ApiObject } from "../../core/kube/resource.ts"
import type { ReachedThreshold } from "../caps/watcher.ts"
import type { OtherEvent, WebhookDeliveries } from "./deliveries.ts"

/** Object with the parts of a status that these events read. */
type Observed = ApiObject & { status?: { conditions?: readonly Condition[] } }

/** Reasons of the Kubernetes events of ticks that get no Job. */
const SKIPPED: readonly string[] = [
  CronJobReason.TicksSkipped,
  CronJobReason.DeadlineExceeded,
  CronJobReason.JobRefused,
  CronJobReason.ProjectLimit,
  CronJobReason.ProjectDeleting,
]

/** Returns a recorder of Kubernetes events that reports some of them to webhooks too. */
export function reportingToWebhooks(
  { recorder, clock }: { recorder: Pick<EventRecorder, "record">; clock: Pick<Clock, "now"> },
  deliveries: Pick<WebhookDeliveries, "emit">,
): Pick<EventRecorder, "record"> {
  return {
    record: (object, note) => {
      recorder.record(object, note)
      const event = toOtherEvent(object, note, clock.now())
      if (event !== undefined) deliveries.emit(event, (namespace) => namespace === object.metadata.namespace)
    },
  }
}

/** Returns the event of webhooks that a Kubernetes event stands for; undefined if there is none. Pure. */
export function toOtherEvent(
  object: Observed,
  { type, reason, message }: EventNote,
  now: Date,
): OtherEvent | undefined {
  const { kind, metadata, status } = object
  const { uid = "" } = metadata
  const name = fromMetadataName(metadata.name)
  const ready = findCondition(status?.conditions, "Ready")
  const since = ready?.status === "False" && ready.reason === reason ? ready.lastTransitionTime : undefined
  const data = { name, reason, message }
  if (kind === "CronJob" && SKIPPED.includes(reason)) {
    // The messages name the ticks, except that of a rejection: it may come again, with another transition.
    const key = [uid, reason, message, ...(since === undefined ? [] : [since])]
    return { type: "cronjob.skipped", subject: `cronjobs/${name}`, time: timestamp(now), key, data }
  }
  if (kind === "Connection" && type === "Warning" && since !== undefined)
    return { type: "connection.failed", subject: `connections/${name}`, time: since, key: [uid, reason, since], data }
  return undefined
}

/** Reports a threshold to the webhooks of all projects that the cap holds for. */
export function reportThreshold(
  reached: ReachedThreshold,
  deliveries: Pick<WebhookDeliveries, "emit">,
  now: Date,
): void {
  deliveries.emit(toThresholdEvent(reached, now), (namespace) => reached.level.owns(namespace, undefined))
}

/** Returns the event of webhooks for a threshold. Another cap in the same month has its own events. Pure. */
export function toThresholdEvent(
  { level: { level, name }, uid, spending, note: { reason, message } }: ReachedThreshold,
  now: Date,
): OtherEvent {
  const { month, spentUsd, maxMonthlyUsd, reachedPercent } = spending
  return {
    type: "budget.threshold",
    subject: name === undefined ? level : `${level}s/${name}`,
    time: timestamp(now),
    key: [level, uid, month, String(maxMonthlyUsd), String(reachedPercent)],
    data: {
      ...{ level, name: name ?? null, reason, message, month },
      ...{ spent_usd: spentUsd, max_monthly_usd: maxMonthlyUsd, reached_percent: reachedPercent },
    },
  }
}
