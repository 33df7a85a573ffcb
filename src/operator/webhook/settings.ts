import { RETRY_DEFAULTS } from "../../core/webhooks/retry.ts"
import type { BacklogSettings } from "./backlog.ts"

/** Settings of webhooks. All durations are in seconds. */
export interface WebhookSettings extends BacklogSettings {
  /** Shortest time between two writes of a webhook's status. */
  writeSeconds: number
  /** Messages that are sent to one receiver at the same time. */
  parallel: number
  /** Time that messages under way get when the operator stops. */
  drainSeconds: number
}

export const WEBHOOK_DEFAULTS: WebhookSettings = {
  holdSeconds: 3600,
  limitedHoldSeconds: 24 * 3600,
  marginSeconds: 120,
  retry: RETRY_DEFAULTS,
  writeSeconds: 10,
  parallel: 8,
  drainSeconds: 2,
}
