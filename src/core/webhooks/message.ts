import type { OptionalContent, WebhookEvent, WebhookSpec } from "../apis/webhook.ts"
import { OPTIONAL_FIELDS } from "../apis/webhook.ts"

/** Event of a project, for its receivers. */
export interface ProjectEvent {
  id: string
  type: WebhookEvent | "webhook.test"
  /** Id of the project. */
  project: string
  /** Object of the event, such as `jobs/train`. */
  subject: string
  /** RFC 3339. */
  time: string
  /** Content: the record of a job, or reason and message of another object. */
  data: Record<string, unknown>
}

/** Body of a request and its media type. */
export interface Message {
  body: string
  contentType: string
}

/** Returns an event in the form that the webhook wants. */
export function buildMessage(event: ProjectEvent, { format }: Pick<WebhookSpec, "format">): Message {
  return format === "slack" ? slackMessage(event) : cloudEvent(event)
}

/** Returns an event as CloudEvents 1.0 in the structured JSON mode. */
function cloudEvent({ id, type, project, subject, time, data }: ProjectEvent): Message {
  const event = {
    specversion: "1.0",
    id,
    source: `/projects/${project}`,
    type: `dev.berth.${type}.v1`,
    subject,
    time,
    datacontenttype: "application/json",
    data,
  }
  return { body: JSON.stringify(event), contentType: "application/cloudevents+json; charset=utf-8" }
}

/** Returns the message that tests a webhook. */
export function testMessage(
  { name, ...event }: Pick<ProjectEvent, "id" | "project" | "time"> & { name: string },
  spec: Pick<WebhookSpec, "format">,
): Message {
  const data = { name, reason: "Test", message: "this message tests the webhook; no event has happened" }
  return buildMessage({ ...event, type: "webhook.test", subject: `webhooks/${name}`, data }, spec)
}

const ICONS: Record<ProjectEvent["type"], string> = {
  "webhook.test": ":wave:",
  "job.succeeded": ":white_check_mark:",
  "job.failed": ":x:",
  "job.cancelled": ":no_entry_sign:",
  "cronjob.skipped": ":fast_forward:",
  "connection.failed": ":electric_plug:",
  "budget.threshold": ":moneybag:",
}

/** Returns an event as a message of Slack's incoming webhooks. */
function slackMessage({ type, project, subject, data }: ProjectEvent): Message {
  const reason = text(data["reason"])
  const message = text(data["message"])
  const cost = data["actual_cost"]
  const facts = [
    ...(typeof cost === "number" ? [`cost $${cost.toFixed(4)}`] : []),
    ...(typeof data["selected_instance_type"] === "string" ? [`on ${escapeText(data["selected_instance_type"])}`] : []),
  ]
  const head = `${ICONS[type]} *${type}* \`${escapeText(subject)}\` in project ${escapeText(project)}`
  const why = [reason, message].filter((part) => part !== "").join(": ")
  const lines = [head, ...(why === "" ? [] : [why]), ...(facts.length === 0 ? [] : [facts.join(", ")])]
  const output = text(data["output"]).replaceAll("```", "'''")
  if (output !== "") lines.push(`\`\`\`\n${output}\n\`\`\``)
  return { body: JSON.stringify({ text: lines.join("\n") }), contentType: "application/json; charset=utf-8" }
}

function text(value: unknown): string {
  return typeof value === "string" ? escapeText(value) : ""
}

/** Escapes the characters with which Slack would read a link or a mention (https://api.slack.com/reference/surfaces/formatting). */
function escapeText(value: string): string {
  return value.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;")
}

/** Returns a job's record without the fields that the webhook does not ask for. */
export function publicRecord(record: object, include: readonly OptionalContent[] = []): Record<string, unknown> {
  const hidden: readonly string[] = OPTIONAL_FIELDS.filter((field) => !include.includes(field))
  return Object.fromEntries(Object.entries(record).filter(([field]) => !hidden.includes(field)))
}
