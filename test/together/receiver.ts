import type { StoredJob } from "../../src/core/apis/job.ts"
import { isTerminal } from "../../src/core/apis/job.ts"
import { SECRETS } from "../../src/core/kube/core.ts"
import { WEBHOOKS } from "../../src/core/resources.ts"
import type { Fixture } from "../faults/crash-fixture.ts"
import { type Reply, WebhookReceiver } from "../harness/webhook-receiver.ts"

const NAME = "ends"
const SIGNING_SECRET = `whsec_${Buffer.alloc(32, 7).toString("base64")}`

/** Webhook of a project for the ends of its jobs, with a receiver that fails at first. */
export class EndsReceiver {
  readonly #receiver: WebhookReceiver

  private constructor(receiver: WebhookReceiver, replies: readonly Reply[]) {
    this.#receiver = receiver
    const waiting = [...replies]
    receiver.reply = () => waiting.shift() ?? 204
  }

  /** Creates the webhook. It gets the ends of jobs that are created later. */
  static async open({ client, namespace }: Fixture, replies: readonly Reply[]): Promise<EndsReceiver> {
    const receiver = await WebhookReceiver.start()
    const metadata = { name: NAME, namespace }
    await client.create(SECRETS, {
      metadata,
      type: "berth.dev/webhook",
      stringData: { secret: SIGNING_SECRET },
    } as never)
    const spec = { url: receiver.url, events: ["job.*"], secretRef: { name: NAME } }
    await client.create(WEBHOOKS, { metadata, spec } as never)
    return new EndsReceiver(receiver, replies)
  }

  /**
   * Returns how what the receiver got differs from the ends of these jobs: each end arrives, and repeats have its id.
   * @param isRestored true: a job may have ended before the restore, and again after it
   */
  differences(jobs: readonly StoredJob[], isRestored: boolean): string[] {
    const ids = new Map<string, Set<string>>()
    for (const { id, body } of this.#receiver.received) {
      const end = endIn(body)
      ids.set(end, (ids.get(end) ?? new Set()).add(id))
    }
    const accepted = new Set(this.#receiver.accepted.map(({ body }) => endIn(body)))
    const ends = jobs.filter(({ status }) => isTerminal(status?.phase)).map(endOf)
    const lost = ends.filter((end) => !accepted.has(end)).map((end) => `no webhook got "${end}"`)
    if (isRestored) return lost
    return [
      ...lost,
      ...[...ids.keys()].filter((end) => !ends.includes(end)).map((end) => `a webhook got "${end}"`),
      ...[...ids].filter(([, all]) => all.size > 1).map(([end, all]) => `a webhook got "${end}" with ${all.size} ids`),
    ]
  }

  async close(): Promise<void> {
    await this.#receiver.stop()
  }
}

function endOf({ metadata, status }: StoredJob): string {
  return `${metadata.name} ${status?.phase}: ${status?.reason}`
}

function endIn(body: string): string {
  const { data } = JSON.parse(body) as { data: { name: string; status: string; reason: string } }
  return `${data.name} ${data.status}: ${data.reason}`
}
