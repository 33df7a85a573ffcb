import Type, { type Static } from "typebox"
import { LIMITS } from "../../../core/apis/field-limits.ts"
import { ALLOWED, SENSITIVE, StringEnum } from "../../../core/apis/schema.ts"
import { RECEIVER_PATTERN, WEBHOOK_FORMATS, WebhookSpecSchema } from "../../../core/apis/webhook.ts"
import { conditionsField, ignoredConditions } from "../../../core/records/conditions.ts"
import { nullable } from "../../../core/records/nullable.ts"
import { nameSchema } from "../../names.ts"
import { Ignored, Repeated } from "../../repetition.ts"
import { JobSubmissionSchema } from "../jobs/schema.ts"

const { project_id, organization_id } = JobSubmissionSchema.properties
const { events, labels, tags, include } = WebhookSpecSchema.properties

const url = Type.String({
  minLength: 1,
  maxLength: LIMITS.receiver,
  pattern: RECEIVER_PATTERN,
  description: "Address of the receiver, by https.",
  [ALLOWED]: "an address such as https://ci.example.com/berth, without a user name",
  [SENSITIVE]: true,
})

const format = StringEnum(WEBHOOK_FORMATS, {
  default: "cloudevents",
  description:
    "Form of the messages: CloudEvents 1.0 with signatures of Standard Webhooks, or Slack's. The address of a Slack webhook is stored encrypted.",
})

const changeableFields = { url, events, labels, tags, include }

/** Body of POST /webhooks. */
export const WebhookCreationSchema = Type.Object(
  {
    name: nameSchema("webhook"),
    ...changeableFields,
    format: Type.Optional(format),
    signing_secret: Type.Optional(
      Type.String({
        maxLength: 256,
        description: "Secret that signs the messages, whsec_ and base64. Default: a new one. Slack needs none.",
        [SENSITIVE]: true,
      }),
    ),
    is_active: Type.Optional(Type.Boolean({ default: true, description: "False: nothing is sent." })),
    ...{ project_id, organization_id },
  },
  { description: "New webhook." },
)
export type WebhookCreation = Static<typeof WebhookCreationSchema>

/** Body of PATCH /webhooks/{name}. Omitted and null fields are unchanged. */
export const WebhookChangeSchema = Type.Object(
  {
    ...Type.Partial(Type.Object(changeableFields)).properties,
    is_active: Type.Optional(
      Type.Boolean({ description: "False: nothing is sent. True also enables a webhook that Berth disabled." }),
    ),
    conditions: ignoredConditions(),
    ...{ project_id, organization_id, id: Repeated(), name: Repeated(), format: Repeated(), created_at: Repeated() },
    ...Object.fromEntries(
      ["updated_at", "reason", "message", "receiver", "last_success_at", "failing_since"].map((field) => [
        field,
        Ignored(),
      ]),
    ),
    ...Object.fromEntries(
      ["pending_count", "delivered_count", "missed_count"].map((field) => [
        field,
        Type.Optional(Type.Integer({ description: "Ignored." })),
      ]),
    ),
  },
  { description: "Change of a webhook." },
)
export type WebhookChange = Partial<
  Pick<WebhookCreation, "url" | "events" | "labels" | "tags" | "include" | "is_active">
>

const recordFields = {
  id: Type.String({ description: "UUID." }),
  organization_id: Type.String(),
  project_id: Type.String(),
  name: Type.String(),
  url: nullable<string>("string", "Address of the receiver. Null if it is secret, or if the caller is not an admin."),
  receiver: nullable<string>("string", "Scheme and host of the receiver. Null if a Secret has the address."),
  events: Type.Array(Type.String()),
  labels: Type.Unsafe<Record<string, string>>({ type: "object", additionalProperties: { type: "string" } }),
  tags: Type.Array(Type.String()),
  format: StringEnum(WEBHOOK_FORMATS),
  include: Type.Array(Type.String()),
  is_active: Type.Boolean(),
  reason: nullable<string>("string", "Reason why the webhook gets events or does not, one word. Null: not known yet."),
  message: nullable<string>("string", "Explanation of the reason for people."),
  pending_count: Type.Integer({ description: "Ends of jobs that are not delivered yet." }),
  delivered_count: Type.Integer({ description: "Delivered messages." }),
  missed_count: Type.Integer({ description: "Ends of jobs that were not delivered in time." }),
  last_success_at: nullable<string>("string", "Time of the latest delivery."),
  failing_since: nullable<string>("string", "Time since which no delivery has succeeded. Null: the latest one has."),
  conditions: conditionsField(),
  created_at: Type.String(),
  updated_at: Type.String(),
}

/** Record of a webhook, without its secrets. The numbers are at most some seconds old. */
export const WebhookRecordSchema = Type.Object(recordFields)
export type WebhookRecord = Static<typeof WebhookRecordSchema>

/** Response with a new signing secret. No other response has it. */
export const WebhookCreatedSchema = Type.Object({
  ...recordFields,
  signing_secret: nullable<string>("string", "Secret that signs the messages. Only this response has it."),
})
export type WebhookCreated = Static<typeof WebhookCreatedSchema>

/** Result of a test message. */
export const WebhookTestSchema = Type.Object({
  id: Type.String({ description: "Id of the message, the header webhook-id." }),
  delivered: Type.Boolean({ description: "True if the receiver answered with a status of 2xx." }),
  status_code: nullable<number>("integer", "HTTP status of the response. Null: there was none."),
  duration_ms: Type.Integer({ description: "Duration of the request." }),
  error: nullable<string>("string", "Failure. Null: the receiver accepted the message."),
})
export type WebhookTest = Static<typeof WebhookTestSchema>

/** Delivery of one event. */
export const DeliveryRecordSchema = Type.Object({
  id: Type.String({ description: "Id of the message, the header webhook-id. Each attempt has the same." }),
  type: Type.String({ description: "Type of the event." }),
  subject: Type.String({ description: "Object of the event, such as jobs/train." }),
  time: Type.String({ description: "Time of the event." }),
  status: StringEnum(["pending", "delivered", "missed"]),
  attempts: Type.Integer(),
  next_attempt_at: nullable<string>("string", "Time of the next attempt."),
  ended_at: nullable<string>("string", "Time at which it was delivered or missed."),
  status_code: nullable<number>("integer", "HTTP status of the latest response."),
  duration_ms: nullable<number>("integer", "Duration of the latest attempt."),
  error: nullable<string>("string", "Failure of the latest attempt."),
})
export type DeliveryRecord = Static<typeof DeliveryRecordSchema>
