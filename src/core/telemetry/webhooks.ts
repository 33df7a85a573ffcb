import { Gauge, type Registry } from "prom-client"

/** Source of the number of messages of webhooks that wait for the limit of their project. */
export interface MeasuredWebhooks {
  deliveries: { limitedMessages: number }
  /** Returns true in the leader. Only the leader sends, so that there is one value. */
  isLeading: () => boolean
}

/** Adds the metric of the messages that wait. */
export function measureWebhooks(registry: Registry, { deliveries, isLeading }: MeasuredWebhooks): void {
  new Gauge({
    name: "berth_webhook_messages_limited",
    help: "Messages of webhooks that wait because their project has sent as many as it may in a minute.",
    registers: [registry],
    collect() {
      this.reset()
      if (isLeading()) this.set(deliveries.limitedMessages)
    },
  })
}
