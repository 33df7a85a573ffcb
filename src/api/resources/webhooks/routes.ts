import type { StoredWebhook } from "../../../core/apis/webhook.ts"
import type { Principal } from "../../../core/identity/principal.ts"
import type { PrivateTargets } from "../../../core/outbound/public-fetch.ts"
import { toOwner } from "../../../core/records/owner.ts"
import { checked } from "../../http/checked.ts"
import { namedSchema, pageSchema } from "../../http/json-schema.ts"
import { paging } from "../../http/query.ts"
import { type Answer, checkedBody, created, json, noContent, record, routeDeclarer } from "../../http/route.ts"
import { requireRepetition } from "../../repetition.ts"
import {
  DeliveryRecordSchema,
  type WebhookChange,
  WebhookChangeSchema,
  WebhookCreatedSchema,
  type WebhookCreation,
  WebhookCreationSchema,
  type WebhookRecord,
  WebhookRecordSchema,
  WebhookTestSchema,
} from "./schema.ts"
import { CHANGE_RULES, CREATION_RULES, toDeliveries, toWebhookRecord, type WebhookContext } from "./translate.ts"
import type { Webhooks, WithSecret } from "./webhooks.ts"

export interface WebhookServices {
  webhooksOf: (principal: Principal) => Webhooks
  /** Receivers outside of the internet that an operator of Berth allows. */
  privateReceivers: PrivateTargets
}

const CREATION = { name: "ci-server", url: "https://ci.example.com/berth", events: ["job.*"] }

const RECORD = {
  ...{ id: "8d0e1c5e-3f0b-4b8f-9a53-6f2b5a4e0d5c", organization_id: "acme-x1", project_id: "reports-x2" },
  ...{ ...CREATION, receiver: "https://ci.example.com", labels: {}, tags: [], format: "cloudevents", include: [] },
  ...{ is_active: true, reason: "Active", message: "sends job.* to ci.example.com" },
  ...{ pending_count: 0, delivered_count: 12, missed_count: 0 },
  ...{ last_success_at: "2026-01-30T03:30:00Z", failing_since: null },
  ...{ created_at: "2026-01-02T10:00:00Z", updated_at: "2026-01-30T03:30:01Z" },
}

const WEBHOOK = namedSchema("WebhookRecord", WebhookRecordSchema, RECORD)
const CREATED = namedSchema("WebhookCreated", WebhookCreatedSchema, {
  ...RECORD,
  signing_secret: "whsec_the-secret-is-shown-here-only-once",
})
const LIST = pageSchema("WebhookList", "webhooks", WEBHOOK)
const DELIVERIES = pageSchema("WebhookDeliveryList", "deliveries", namedSchema("WebhookDelivery", DeliveryRecordSchema))
const TEST = namedSchema("WebhookTest", WebhookTestSchema, {
  ...{ id: "5ea07726-efd2-42ec-a095-6d7674666e31", delivered: false, status_code: 500, duration_ms: 112 },
  error: "the receiver answered 500",
})

const CREATE = checkedBody<WebhookCreation, Principal, WebhookServices>("WebhookCreation", WebhookCreationSchema, {
  what: "The webhook",
  example: CREATION,
  rules: CREATION_RULES,
  check: (value, { principal: { project }, services: { privateReceivers } }) =>
    checked<WebhookCreation, WebhookContext>(value, {
      ...{ schema: WebhookCreationSchema, rules: CREATION_RULES },
      context: { ...toOwner(project), privateReceivers },
    }),
})

const CHANGE = checkedBody<WebhookChange, Principal, WebhookServices>("WebhookChange", WebhookChangeSchema, {
  what: "The change",
  example: { is_active: true },
  rules: CHANGE_RULES,
  check: (value, { principal: { project }, services: { privateReceivers } }) =>
    checked<WebhookChange, WebhookContext>(value, {
      ...{ schema: WebhookChangeSchema, rules: CHANGE_RULES },
      context: { ...toOwner(project), privateReceivers },
    }),
})

const route = routeDeclarer<Principal, WebhookServices>({ tag: "webhooks" })

/** Operations on webhooks. */
export const webhookRoutes = [
  route("POST /webhooks", {
    id: "createWebhook",
    summary: "Create a webhook. Only this response has its signing secret.",
    role: "admin",
    body: CREATE,
    idempotent: true,
    responses: {
      201: created(CREATED, "Created.", {
        links: {
          getWebhook: { name: "$response.body#/id" },
          changeWebhook: { name: "$response.body#/name" },
          listWebhookDeliveries: { name: "$response.body#/name" },
          testWebhook: { name: "$response.body#/name" },
          rotateWebhookSecret: { name: "$response.body#/name" },
          deleteWebhook: { name: "$response.body#/name" },
        },
      }),
    },
    creates: true,
    problems: ["credentials-in-secret", "credentials-unreadable"],
    handle: async ({ body, idempotencyKey, principal }, { webhooksOf }) => {
      const made = await webhooksOf(principal).create(body, idempotencyKey)
      return { ...secretAnswer(made, principal), location: `/webhooks/${made.webhook.metadata.uid}` }
    },
  }),
  route("GET /webhooks", {
    id: "listWebhooks",
    summary: "List webhooks, newest first.",
    role: "viewer",
    query: paging(),
    responses: { 200: json(LIST, "A page of webhooks.") },
    handle: ({ query, principal }, { webhooksOf }) => {
      const { objects, total } = webhooksOf(principal).page(query)
      return { body: { webhooks: objects.map((one) => recordFor(one, principal)), total, ...query } }
    },
  }),
  route("GET /webhooks/{name}", {
    id: "getWebhook",
    summary: "Get a webhook. Only admins see the whole address.",
    role: "viewer",
    responses: { 200: record(WEBHOOK, "The webhook.") },
    handle: async ({ path, principal }, { webhooksOf }) =>
      answerOf(await webhooksOf(principal).find(path.name), principal),
  }),
  route("PATCH /webhooks/{name}", {
    id: "changeWebhook",
    summary: "Change a webhook. is_active true also enables one that Berth disabled.",
    role: "admin",
    body: CHANGE,
    ifMatch: true,
    responses: { 200: record(WEBHOOK, "The changed webhook.") },
    problems: ["credentials-in-secret", "credentials-unreadable"],
    handle: async ({ path, body, precondition, principal }, { webhooksOf }) => {
      const webhooks = webhooksOf(principal)
      const { id, name, format, created_at } = recordFor(await webhooks.find(path.name), principal)
      requireRepetition("webhook", body, { id, name, format, created_at })
      return answerOf(await webhooks.change(path.name, body, precondition), principal)
    },
  }),
  route("DELETE /webhooks/{name}", {
    id: "deleteWebhook",
    summary: "Delete a webhook. Pending events are discarded.",
    role: "admin",
    ifMatch: true,
    responses: { 204: noContent("Deleted.") },
    handle: ({ path, precondition, principal }, { webhooksOf }) =>
      webhooksOf(principal).remove(path.name, precondition),
  }),
  route("POST /webhooks/{name}/rotate", {
    id: "rotateWebhookSecret",
    summary: "Create a new signing secret. For a day, messages are signed with the old one too.",
    role: "admin",
    ifMatch: true,
    responses: { 200: record(CREATED, "The webhook with its new secret.") },
    problems: ["credentials-in-secret", "credentials-unreadable"],
    handle: async ({ path, precondition, principal }, { webhooksOf }) =>
      secretAnswer(await webhooksOf(principal).rotate(path.name, precondition), principal),
  }),
  route("GET /webhooks/{name}/deliveries", {
    id: "listWebhookDeliveries",
    summary: "List the oldest pending and the latest ended deliveries of a webhook.",
    role: "viewer",
    query: paging(),
    responses: { 200: json(DELIVERIES, "A page of deliveries.") },
    handle: async ({ path, query, principal }, { webhooksOf }) => {
      const all = toDeliveries(await webhooksOf(principal).find(path.name))
      const { offset, limit } = query
      return { body: { deliveries: all.slice(offset, offset + limit), total: all.length, offset, limit } }
    },
  }),
]

/** Operation that sends a message. Its requests have a limit of their own. */
export const webhookTestRoutes = [
  route("POST /webhooks/{name}/test", {
    id: "testWebhook",
    summary: "Send a test message now, and return the result.",
    role: "admin",
    responses: { 200: json(TEST, "The result.") },
    problems: ["credentials-unreadable"],
    handle: async ({ path, principal, closed }, { webhooksOf }) => ({
      body: await webhooksOf(principal).test(path.name, closed),
    }),
  }),
]

function recordFor(webhook: StoredWebhook, { project, role }: Principal): WebhookRecord {
  return toWebhookRecord(webhook, toOwner(project), role === "admin")
}

function answerOf(webhook: StoredWebhook, principal: Principal): Answer<WebhookRecord> {
  const view = principal.role === "admin" ? {} : { view: "restricted" }
  return { of: webhook, body: recordFor(webhook, principal), ...view }
}

/** Returns the response with a signing secret. No cache may keep it. */
function secretAnswer({ webhook, signingSecret }: WithSecret, principal: Principal) {
  const body = { ...recordFor(webhook, principal), signing_secret: signingSecret ?? null }
  return { of: webhook, body, headers: { "Cache-Control": "no-store" } }
}
