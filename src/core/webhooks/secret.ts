import { defined } from "../apis/defined.ts"
import { RECEIVER_PATTERN, type WebhookSpec } from "../apis/webhook.ts"
import type { Sealer, SealingContext } from "../sealing/envelope.ts"
import { SealingError } from "../sealing/keys.ts"
import { signingSecretError } from "./signature.ts"

/** Secrets of a webhook, in clear. */
export interface WebhookSecret {
  /** Current signing secret. Slack needs none. */
  secret?: string
  /** Former signing secret, with which messages are signed too. */
  previousSecret?: string
  /** Time until which the former secret is used, RFC 3339. Absent: as long as it is there. */
  previousUntil?: string
  /** Address of the receiver, if it is secret. */
  url?: string
}

/** Content of a Webhook's sealedSecret. */
export interface SealedWebhook extends WebhookSecret {
  /** The type is inside the seal, so that credentials of a connection with the same name aren't a webhook's secrets. */
  type: "webhook"
  /** Hash of the request that created the webhook, for its Idempotency-Key. */
  requestHash?: string
}

/** Returns the secrets in the form that a Webhook stores. */
export function sealWebhook(
  sealer: Sealer,
  secret: Omit<SealedWebhook, "type">,
  context: SealingContext,
): Promise<string> {
  return sealer.seal(JSON.stringify({ ...secret, type: "webhook" }), context)
}

/** Returns the secrets of a Webhook. @throws SealingError */
export async function openWebhook(sealer: Sealer, sealed: string, context: SealingContext): Promise<SealedWebhook> {
  const content = JSON.parse(await sealer.open(sealed, context)) as SealedWebhook
  if (content.type === "webhook") return content
  throw new SealingError("tampered", "it holds the credentials of a connection, not the secrets of a webhook")
}

/** Returns the secrets of a Secret's data. Texts that are empty count as absent. */
export function secretIn(data: Readonly<Record<string, string>>): WebhookSecret {
  const textOf = (key: string): string | undefined => {
    const text = Buffer.from(data[key] ?? "", "base64")
      .toString()
      .trim()
    return text === "" ? undefined : text
  }
  const [secret, previousSecret, url] = ["secret", "previous_secret", "url"].map(textOf)
  return {
    ...defined({ secret, previousSecret, url }),
  }
}

/** Receiver of a webhook's messages. */
export interface Receiver {
  url: string
  /** Signing secrets, the current one first. */
  secrets: readonly string[]
}

/** Returns the receiver, or the errors of the secrets, without a part of them. */
export function webhookReceiver(
  spec: Pick<WebhookSpec, "url" | "format">,
  { secret, previousSecret, previousUntil, url: secretUrl }: WebhookSecret,
  now: Date,
): Receiver | { errors: string[] } {
  const url = spec.url ?? secretUrl
  const errors = addressErrors(spec, url)
  if (secret === undefined && spec.format !== "slack") errors.push("the key secret is missing: it signs the messages")
  const isOver = previousUntil !== undefined && new Date(previousUntil) <= now
  const secrets = [secret, isOver ? undefined : previousSecret].filter((one) => one !== undefined)
  for (const [key, value] of Object.entries({ secret, previous_secret: previousSecret })) {
    const error = value === undefined ? undefined : signingSecretError(value)
    if (error !== undefined) errors.push(`the key ${key} ${error}`)
  }
  return errors.length > 0 || url === undefined ? { errors } : { url, secrets }
}

function addressErrors(spec: Pick<WebhookSpec, "url">, url: string | undefined): string[] {
  if (url === undefined) return ["url is missing: set spec.url, or the key url of the secret"]
  if (new RegExp(RECEIVER_PATTERN).test(url) && URL.canParse(url)) return []
  const field = spec.url === undefined ? "the key url" : "url"
  return [`${field} must be an address such as https://ci.example.com/berth, without a user name`]
}
