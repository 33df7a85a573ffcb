import Type, { type Static } from "typebox"
import { LIMITS } from "./field-limits.ts"
import { describeFields } from "./job.ts"
import { AGE_COLUMN, defineKind, nameRules } from "./kind.ts"
import type { KubeObject, Stored } from "./meta.ts"
import {
  ALLOWED,
  ConditionList,
  Int,
  ObservedGeneration,
  SENSITIVE,
  SecretName,
  StringEnum,
  Text,
  Time,
} from "./schema.ts"

/** Ends of jobs. Each reaches an active webhook at least once. */
export const JOB_END_EVENTS = ["job.succeeded", "job.failed", "job.cancelled"] as const
export type JobEndEvent = (typeof JOB_END_EVENTS)[number]

/** Events that are sent once, and are lost if the operator ends before they are delivered. */
export const OTHER_EVENTS = ["cronjob.skipped", "connection.failed", "budget.threshold"] as const

export const WEBHOOK_EVENTS = [...JOB_END_EVENTS, ...OTHER_EVENTS] as const
export type WebhookEvent = (typeof WEBHOOK_EVENTS)[number]

/** Events that a webhook may name. `job.*` stands for all ends of jobs. */
export const WEBHOOK_SELECTORS = ["job.*", ...WEBHOOK_EVENTS] as const

export const WEBHOOK_FORMATS = ["cloudevents", "slack"] as const
export type WebhookFormat = (typeof WEBHOOK_FORMATS)[number]

/** Fields of a job's record that are sent only if a webhook asks for them. They may hold secrets. */
export const OPTIONAL_FIELDS = ["env", "command", "args"] as const
export type OptionalField = (typeof OPTIONAL_FIELDS)[number]

/** Contents of the messages about jobs that a webhook may ask for. `output`: the end of the container's output. */
export const OPTIONAL_CONTENTS = [...OPTIONAL_FIELDS, "output"] as const
export type OptionalContent = (typeof OPTIONAL_CONTENTS)[number]

/** The only type of Secret that a Webhook may name. */
export const WEBHOOK_SECRET_TYPE = "berth.dev/webhook"

/** Conditions of a Webhook. Tools that support kstatus read the first two. */
export const WebhookCondition = {
  Ready: "Ready",
  Stalled: "Stalled",
  /** True: the receiver accepted the latest delivery. Absent before the first. */
  Delivering: "Delivering",
} as const

/** Reasons of its conditions and events. They are stable: programs match on them. */
export const WebhookReason = {
  Active: "Active",
  /** `active` is false. */
  Paused: "Paused",
  SecretNotFound: "SecretNotFound",
  InvalidSecret: "InvalidSecret",
  /** Sealed under a key that is not in the keyring. */
  UnknownKey: "UnknownKey",
  /** Changed, or sealed for another project or name. */
  Tampered: "Tampered",
  /** The project has more webhooks than it may have, and this is one of the newest. */
  ProjectLimit: "ProjectLimit",
  /** The namespace belongs to no Project. */
  NoProject: "NoProject",
  /** No message can reach the address: it has no TLS, or no public host, and no operator of Berth allows it. */
  ReceiverNotAllowed: "ReceiverNotAllowed",
  /** The receiver answered 410. Berth sends nothing until the spec changes. */
  ReceiverGone: "ReceiverGone",
  /** No delivery succeeded for 3 days. Berth sends nothing until the spec changes. */
  RetriesExhausted: "RetriesExhausted",
  Delivered: "Delivered",
  DeliveryFailed: "DeliveryFailed",
  EventsMissed: "EventsMissed",
} as const
export type WebhookReason = (typeof WebhookReason)[keyof typeof WebhookReason]

/** Maximum lists of a Webhook's status. */
export const WEBHOOK_LISTS = { pending: 100, deliveries: 20 } as const

/** Syntax of an address without a user name, so that no password is in it. */
export const RECEIVER_PATTERN =
  "^https?://(\\[[0-9a-fA-F:.]+\\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?([/?][^#\\x00-\\x20\\x7f]*)?$"

export const WebhookSpecSchema = Type.Object(
  {
    url: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: LIMITS.receiver,
        pattern: RECEIVER_PATTERN,
        description: "Address of the receiver. Absent: the secret has it, as for Slack, whose addresses are secret.",
        [ALLOWED]: "an address such as https://ci.example.com/berth, without a user name",
      }),
    ),
    events: Type.Array(StringEnum(WEBHOOK_SELECTORS), {
      minItems: 1,
      maxItems: WEBHOOK_SELECTORS.length,
      description: "Events to send. `job.*` stands for all ends of jobs.",
      "x-kubernetes-list-type": "set",
    }),
    ...describeFields({
      labels: "Labels that a job must have, with these values. Default: none.",
      tags: "Tags that a job must have. Default: none.",
    }),
    format: Type.Optional(
      StringEnum(WEBHOOK_FORMATS, {
        default: "cloudevents",
        description: "Form of the messages: CloudEvents 1.0 with signatures of Standard Webhooks, or Slack's.",
      }),
    ),
    include: Type.Optional(
      Type.Array(StringEnum(OPTIONAL_CONTENTS), {
        maxItems: OPTIONAL_CONTENTS.length,
        description:
          "Fields of a job's record to send too, and output: the end of its log. They may hold secrets. Default: none of them.",
        "x-kubernetes-list-type": "set",
      }),
    ),
    secretRef: Type.Optional(
      Type.Object(
        { name: SecretName() },
        {
          description:
            "Secret of type berth.dev/webhook in this namespace. Its keys are secret, previous_secret and url.",
        },
      ),
    ),
    sealedSecret: Type.Optional(
      Text(LIMITS.sealedCredentials, "Signing secrets, encrypted by Berth's REST API.", { [SENSITIVE]: true }),
    ),
    active: Type.Optional(Type.Boolean({ default: true, description: "Set to false to send nothing." })),
    resumedTime: Type.Optional(
      Time("Time at which the REST API enabled the webhook again. Any change of the spec does that too."),
    ),
  },
  {
    description: "Receiver, and the events that it gets. Set exactly one of secretRef and sealedSecret.",
    "x-kubernetes-validations": [
      {
        rule: "has(self.secretRef) != has(self.sealedSecret)",
        message: "set exactly one of secretRef and sealedSecret",
      },
    ],
  },
)
export type WebhookSpec = Static<typeof WebhookSpecSchema>

const deliveryFields = {
  id: Text(64, "Id of the message, the header webhook-id. Each attempt has the same."),
  type: StringEnum(WEBHOOK_EVENTS, { description: "Type of the event." }),
  subject: Text(320, "Object of the event, such as jobs/train."),
  time: Time("Time of the event."),
  attempts: Int({ description: "Number of attempts." }),
}

export const PendingDeliverySchema = Type.Object({
  ...deliveryFields,
  jobUid: Text(64, "Id of the job."),
  firstAttemptTime: Type.Optional(Time("Time of the first attempt.")),
  nextAttemptTime: Type.Optional(Time("Time of the next attempt.")),
  error: Type.Optional(Text(256, "Failure of the latest attempt.")),
})
export type PendingDelivery = Static<typeof PendingDeliverySchema>

export const RecentDeliverySchema = Type.Object({
  ...deliveryFields,
  result: StringEnum(["delivered", "missed"], { description: "Result of the delivery." }),
  endTime: Time("Time of the result."),
  statusCode: Type.Optional(Int({ description: "HTTP status of the latest response." })),
  durationMs: Type.Optional(Int({ description: "Duration of the latest attempt, milliseconds." })),
  error: Type.Optional(Text(256, "Failure of the latest attempt.")),
})
export type RecentDelivery = Static<typeof RecentDeliverySchema>

export const WebhookStatusSchema = Type.Object(
  {
    observedGeneration: ObservedGeneration,
    conditions: Type.Optional(ConditionList),
    cursor: Type.Optional(Time("Each end of a job before this time is delivered, in pending, or counted as missed.")),
    pending: Type.Optional(
      Type.Array(PendingDeliverySchema, {
        maxItems: WEBHOOK_LISTS.pending,
        description: "Oldest ends of jobs that are not delivered yet.",
        "x-kubernetes-list-type": "atomic",
      }),
    ),
    pendingCount: Type.Optional(Int({ description: "Number of ends that are not delivered yet." })),
    deliveries: Type.Optional(
      Type.Array(RecentDeliverySchema, {
        maxItems: WEBHOOK_LISTS.deliveries,
        description: "Latest deliveries that ended, newest first.",
        "x-kubernetes-list-type": "atomic",
      }),
    ),
    deliveredCount: Type.Optional(Int({ description: "Number of delivered messages." })),
    missedCount: Type.Optional(Int({ description: "Number of ends of jobs that were not delivered in time." })),
    lastSuccessTime: Type.Optional(Time("Time of the latest delivery.")),
    failingSince: Type.Optional(Time("Time since which no delivery has succeeded. Absent: the latest one has.")),
  },
  { description: "Observed state. Only Berth's webhook controller writes it, at most once in 10 seconds." },
)
export type WebhookStatus = Static<typeof WebhookStatusSchema>

export type Webhook = KubeObject<WebhookSpec, WebhookStatus>
export type StoredWebhook = Stored<Webhook>

export const WEBHOOK = defineKind({
  kind: "Webhook",
  plural: "webhooks",
  singular: "webhook",
  shortNames: ["bhook"],
  namespaced: true,
  description: "Sends events of a project, such as the end of a job, to a receiver.",
  spec: WebhookSpecSchema,
  status: WebhookStatusSchema,
  conditions: Object.values(WebhookCondition),
  rules: nameRules(LIMITS.webhookName),
  printerColumns: [
    { name: "Format", type: "string", jsonPath: ".spec.format" },
    { name: "Ready", type: "string", jsonPath: ".status.conditions[?(@.type=='Ready')].status" },
    { name: "State", type: "string", jsonPath: ".status.conditions[?(@.type=='Ready')].reason" },
    { name: "Pending", type: "integer", jsonPath: ".status.pendingCount" },
    { name: "Missed", type: "integer", jsonPath: ".status.missedCount" },
    { name: "Success", type: "date", jsonPath: ".status.lastSuccessTime" },
    { name: "Failing", type: "date", jsonPath: ".status.failingSince", priority: 1 },
    { name: "URL", type: "string", jsonPath: ".spec.url", priority: 1 },
    AGE_COLUMN,
  ],
})
