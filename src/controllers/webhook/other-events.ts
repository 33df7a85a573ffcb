import type { SpendingStatus } from "../../apis/caps.ts"
import { timestamp } from "../../apis/clock.ts"
import { findCondition } from "../../apis/conditions.ts"
import { CronJobReason } from "../../apis/cronjob.ts"
import { fromMetadataName } from "../../apis/names.ts"
import type { Condition } from "../../apis/schema.ts"
import type { WebhookEvent } from "../../apis/webhook.ts"
import type { EventNote, EventRecorder } from "../../kube/events.ts"
import type { ApiObject } from "../../kube/resource.ts"
import type { OtherEvent, WebhookDeliveries } from "./deliveries.ts"

/** Object with the parts of a status that these events read. */
type Observed = ApiObject & {
  status?: { namespace?: string; conditions?: readonly Condition[]; spending?: SpendingStatus }
}

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
  recorder: Pick<EventRecorder, "record">,
  deliveries: Pick<WebhookDeliveries, "emit">,
): Pick<EventRecorder, "record"> {
  return {
    record: (object, note) => {
      recorder.record(object, note)
      const event = otherEventOf(object, note, new Date())
      if (event !== undefined) deliveries.emit(event)
    },
  }
}

/** Returns the event of webhooks that a Kubernetes event stands for; undefined if there is none. Pure. */
export function otherEventOf(object: Observed, note: EventNote, now: Date): OtherEvent | undefined {
  const { kind, metadata, status } = object
  const { uid = "", namespace = "" } = metadata
  const name = fromMetadataName(metadata.name)
  const eventOf = (type: WebhookEvent, subject: string, key: readonly string[], more = {}): OtherEvent => ({
    ...{ namespace, type, subject, time: timestamp(now), key: [uid, note.reason, ...key] },
    data: { name, reason: note.reason, message: note.message, ...more },
  })
  if (kind === "CronJob" && SKIPPED.includes(note.reason)) {
    // The message names the ticks.
    return eventOf("cronjob.skipped", `cronjobs/${name}`, [note.message])
  }
  if (kind === "Connection" && note.type === "Warning") {
    const ready = findCondition(status?.conditions, "Ready")
    if (ready?.status !== "False" || ready.reason !== note.reason) return undefined
    return eventOf("connection.failed", `connections/${name}`, [ready.lastTransitionTime])
  }
  if (kind === "Project" && note.reason.startsWith("CapSpent") && status?.namespace !== undefined) {
    const spending = status.spending
    const percent = Number(/[0-9]+/.exec(note.reason)?.[0] ?? 100)
    const event = eventOf("budget.threshold", `projects/${name}`, [timestamp(now).slice(0, 7)], {
      reached_percent: percent,
      ...(spending && { max_monthly_usd: spending.maxMonthlyUsd }),
    })
    return { ...event, namespace: status.namespace }
  }
  return undefined
}
