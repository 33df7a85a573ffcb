import { findCondition } from "../../../core/apis/conditions.ts"
import { creationTimeOf } from "../../../core/apis/creation-times.ts"
import { ANNOTATIONS, API_VERSION } from "../../../core/apis/meta.ts"
import { fromMetadataName, toMetadataName } from "../../../core/apis/names.ts"
import {
  RECEIVER_PATTERN,
  type StoredWebhook,
  WEBHOOK,
  type Webhook,
  WebhookCondition,
  type WebhookSpec,
} from "../../../core/apis/webhook.ts"
import type { PrivateTargets } from "../../../core/outbound/public-fetch.ts"
import { toConditionRecords } from "../../../core/records/conditions.ts"
import { inUtc } from "../../../core/records/job.ts"
import type { Owner } from "../../../core/records/owner.ts"
import { lastUpdateTime } from "../../../core/records/update-time.ts"
import { receiverFault } from "../../../core/webhooks/receiver.ts"
import { signingSecretError } from "../../../core/webhooks/signature.ts"
import type { Rule } from "../../http/checked.ts"
import { inFormat } from "../../http/json-schema.ts"
import { idempotencyMarks } from "../../idempotency-marks.ts"
import { OWNER } from "../../owner.ts"
import type { DeliveryRecord, WebhookChange, WebhookCreation, WebhookRecord } from "./schema.ts"

/** Facts on which the rules of a webhook depend besides its body. */
export interface WebhookContext extends Owner {
  /** Receivers outside of the internet that an operator of Berth allows. */
  privateReceivers: PrivateTargets
}

/** Some texts match the pattern and aren't addresses, such as a port above 65535. No message reaches some addresses. */
const RECEIVER: Rule<WebhookContext> = {
  keywords: { "/properties/url": inFormat("receiver") },
  errors: ({ url }) => {
    if (typeof url !== "string" || !new RegExp(RECEIVER_PATTERN).test(url) || URL.canParse(url)) return []
    return [{ pointer: "/url", detail: "url must be an address such as https://ci.example.com/berth" }]
  },
  // An operator of Berth may have allowed it when a webhook was created with the same body.
  errorsNow: ({ url }, { privateReceivers }) => {
    if (typeof url !== "string" || !new RegExp(RECEIVER_PATTERN).test(url) || !URL.canParse(url)) return []
    const fault = receiverFault(url, privateReceivers)
    return fault === undefined ? [] : [{ pointer: "/url", detail: `url ${fault}` }]
  },
}

/** The API server rejects equal items. */
const SETS: Rule = {
  keywords: { "/properties/events": { uniqueItems: true }, "/properties/include": { uniqueItems: true } },
}

/** Rules of a webhook's change. */
export const CHANGE_RULES: readonly Rule<WebhookContext>[] = [OWNER, RECEIVER, SETS]

/** Rules of a webhook's creation. */
export const CREATION_RULES: readonly Rule<WebhookContext>[] = [
  ...CHANGE_RULES,
  {
    keywords: { "/properties/signing_secret": inFormat("signing-secret") },
    errors: ({ signing_secret }) => {
      const error = typeof signing_secret === "string" ? signingSecretError(signing_secret) : undefined
      return error === undefined ? [] : [{ pointer: "/signing_secret", detail: `signing_secret ${error}` }]
    },
  },
]

/** Metadata of a Webhook to create. */
export interface WebhookIdentity {
  namespace: string
  /** RFC 3339 with microseconds. */
  createdAt: string
  idempotencyKey?: string | undefined
}

/** Returns the Webhook to create with these sealed secrets. The address of Slack's is among them. */
export function toWebhook(
  { name, url, format, is_active, ...creation }: WebhookCreation,
  sealedSecret: string,
  { namespace, createdAt, idempotencyKey }: WebhookIdentity,
): Webhook {
  const { labels, annotations } = idempotencyMarks(idempotencyKey === undefined ? undefined : { key: idempotencyKey })
  return {
    apiVersion: API_VERSION,
    kind: WEBHOOK.kind,
    metadata: {
      name: toMetadataName(name) ?? name,
      namespace,
      labels,
      annotations: { [ANNOTATIONS.createdAt]: createdAt, ...annotations },
    },
    spec: {
      ...(format !== "slack" && { url }),
      ...selectionOf(creation),
      format: format ?? "cloudevents",
      active: is_active ?? true,
      sealedSecret,
    },
  }
}

/** Returns the fields that select events and their content. Empty ones are left out: a record shows them as empty. */
function selectionOf({
  events,
  labels,
  tags,
  include,
}: Pick<WebhookCreation, "events" | "labels" | "tags" | "include">) {
  return {
    events,
    ...(labels !== undefined && Object.keys(labels).length > 0 && { labels }),
    ...(tags !== undefined && tags.length > 0 && { tags }),
    ...(include !== undefined && include.length > 0 && { include }),
  }
}

/**
 * Returns the spec after a checked change, except for a secret address.
 * @param now time of a change that enables a webhook which Berth disabled
 */
export function changedSpec(webhook: StoredWebhook, change: WebhookChange, now: string): WebhookSpec {
  const { spec, status, metadata } = webhook
  const { url, is_active, events, labels, tags, include } = change
  const wanted = { events, labels, tags, include }
  const selected = Object.fromEntries(Object.entries(wanted).filter(([, value]) => value !== undefined))
  const ready = findCondition(status?.conditions, WebhookCondition.Ready)
  const isDisabled =
    ready?.observedGeneration === metadata.generation &&
    findCondition(status?.conditions, WebhookCondition.Stalled)?.status === "True"
  const { labels: _, tags: __, include: ___, ...others } = spec
  return {
    ...others,
    ...selectionOf({ ...spec, ...selected }),
    ...(url !== undefined && spec.format !== "slack" && { url }),
    ...(is_active !== undefined && { active: is_active }),
    ...(is_active === true && isDisabled && { resumedTime: now }),
  }
}

/**
 * Returns the record of a Webhook.
 * @param isAdmin false: the address is not shown, because its path may be a secret
 */
export function toWebhookRecord(webhook: StoredWebhook, owner: Owner, isAdmin: boolean): WebhookRecord {
  const { metadata, spec, status } = webhook
  const isCurrent = status?.observedGeneration === metadata.generation
  const ready = isCurrent ? findCondition(status.conditions, WebhookCondition.Ready) : undefined
  return {
    id: metadata.uid,
    organization_id: owner.organizationId,
    project_id: owner.projectId,
    name: fromMetadataName(metadata.name),
    url: isAdmin ? (spec.url ?? null) : null,
    receiver: (spec.url && URL.parse(spec.url)?.origin) ?? null,
    events: spec.events,
    labels: spec.labels ?? {},
    tags: spec.tags ?? [],
    format: spec.format ?? "cloudevents",
    include: spec.include ?? [],
    is_active: spec.active ?? true,
    reason: ready?.reason ?? null,
    message: ready?.message ?? null,
    pending_count: status?.pendingCount ?? 0,
    delivered_count: status?.deliveredCount ?? 0,
    missed_count: status?.missedCount ?? 0,
    last_success_at: inUtc(status?.lastSuccessTime),
    failing_since: inUtc(status?.failingSince),
    ...toConditionRecords(webhook),
    created_at: creationTimeOf(webhook),
    updated_at: lastUpdateTime(webhook),
  }
}

/** Returns the deliveries of a Webhook: those that are pending, then those that ended, newest first. */
export function toDeliveries({ status }: StoredWebhook): DeliveryRecord[] {
  const pending = (status?.pending ?? []).toReversed().map(
    ({ id, type, subject, time, attempts, nextAttemptTime, error }): DeliveryRecord => ({
      ...{ id, type, subject, time, attempts, status: "pending" },
      next_attempt_at: inUtc(nextAttemptTime),
      ended_at: null,
      status_code: null,
      duration_ms: null,
      error: error ?? null,
    }),
  )
  const ended = (status?.deliveries ?? []).map(
    ({ id, type, subject, time, attempts, result, endTime, statusCode, durationMs, error }): DeliveryRecord => ({
      ...{ id, type, subject, time, attempts, status: result },
      next_attempt_at: null,
      ended_at: inUtc(endTime),
      status_code: statusCode ?? null,
      duration_ms: durationMs ?? null,
      error: error ?? null,
    }),
  )
  return [...pending, ...ended]
}
