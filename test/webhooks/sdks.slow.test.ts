import { spawn } from "node:child_process"
import { randomUUID } from "node:crypto"
import { once } from "node:events"
import { join } from "node:path"
import { text } from "node:stream/consumers"
import { CloudEvent, HTTP } from "cloudevents"
import { Webhook } from "standardwebhooks"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { inParallel } from "../../src/core/apis/in-parallel.ts"
import type { StoredWebhook } from "../../src/core/apis/webhook.ts"
import { SECRETS, type Secret } from "../../src/core/kube/core.ts"
import { WEBHOOKS } from "../../src/core/resources.ts"
import { newSigningSecret } from "../../src/core/webhooks/signature.ts"
import { confirmedProject } from "../harness/confirmed-project.ts"
import { type ControllerHarness, controllerHarnesses } from "../harness/controllers.ts"
import { eventually } from "../harness/eventually.ts"
import { type Received, WebhookReceiver } from "../harness/webhook-receiver.ts"
import { missingTool, needing } from "../needing.ts"
import { standardWebhooksPython } from "../tools.ts"

/** Messages of a real operator, as the SDKs of receivers read them. */

const newHarness = controllerHarnesses()
const pythonNeeded = needing(missingTool("standardwebhooks"))
const [former, current] = [newSigningSecret(), newSigningSecret()]
let harness: ControllerHarness
let receiver: WebhookReceiver
/** Secret that the receiver verifies with. */
let known = former

beforeAll(async () => {
  harness = await newHarness()
  const { client, namespace } = harness
  receiver = await WebhookReceiver.start()
  receiver.reply = (message) => (verifies(message, known) ? 204 : 401)
  await confirmedProject(client, { name: `p-${randomUUID().slice(0, 8)}`, organization: "o", namespace })
  await setSecrets({ secret: former })
  const spec = { url: receiver.url, events: ["job.*"], secretRef: { name: "hook" } }
  await client.create(WEBHOOKS, { metadata: { name: "hook", namespace }, spec } as StoredWebhook)
  harness.operator({ webhooks: { writeSeconds: 0.1 } })
})
afterAll(() => receiver.stop())

/** Writes the Secret as its owner would. Absent keys are removed. */
async function setSecrets(texts: Record<string, string>): Promise<void> {
  const data = Object.fromEntries(Object.entries(texts).map(([key, value]) => [key, btoa(value)]))
  const { client, namespace } = harness
  await client.apply(SECRETS, { metadata: { name: "hook", namespace }, type: "berth.dev/webhook", data } as Secret)
}

function verifies({ body, headers }: Omit<Received, "status">, secret: string): boolean {
  try {
    new Webhook(secret).verify(body, headers as Record<string, string>)
    return true
  } catch {
    return false
  }
}

async function endJobs(prefix: string, count: number): Promise<Received[]> {
  const before = receiver.received.length
  await inParallel(
    Array.from({ length: count }, (_, i) => () => harness.submit(`${prefix}-${i}`, { cancelled: true })),
    8,
    (task) => task(),
  )
  await eventually(() => expect(receiver.received.length - before).toBeGreaterThanOrEqual(count))
  return receiver.received.slice(before)
}

describe("a receiver with the SDKs", () => {
  it("verifies each message, and no changed one, with standardwebhooks", async () => {
    const messages = await endJobs("first", 5)
    expect(messages.map(({ status }) => status)).toEqual(messages.map(() => 204))
    const [one] = messages as [Received]
    expect(verifies({ ...one, body: `${one.body} ` }, former)).toBe(false)
    expect(verifies(one, current)).toBe(false)
  })

  it("reads each message as a valid event with cloudevents", async () => {
    const messages = await endJobs("event", 3)
    for (const { headers, body, id } of messages) {
      const event = HTTP.toEvent<{ name: string }>({ headers, body }) as CloudEvent<{ name: string }>
      expect(event).toBeInstanceOf(CloudEvent)
      expect(event.validate()).toBe(true)
      expect(event).toMatchObject({ id, type: "dev.berth.job.cancelled.v1", specversion: "1.0" })
      expect(event.subject).toBe(`jobs/${event.data?.name}`)
      expect(event.source).toMatch(/^\/projects\/p-/)
    }
  })

  pythonNeeded.it("verifies the same with the SDK of Python", async () => {
    const [one] = (await endJobs("python", 1)) as [Received]
    const sent = { headers: one.headers, body: one.body }
    const messages = [
      { ...sent, secret: former },
      { ...sent, secret: current },
      { ...sent, body: `${one.body} `, secret: former },
    ]
    const python = spawn(join(await standardWebhooksPython(), "python"), [join(import.meta.dirname, "verify.py")], {
      stdio: ["pipe", "pipe", "inherit"],
    })
    python.stdin.end(JSON.stringify(messages))
    const [printed] = await Promise.all([text(python.stdout), once(python, "exit")])
    expect(JSON.parse(printed)).toEqual([true, false, false])
  })

  it("rejects no message while the secret is rotated", async () => {
    const all = await endJobs("before", 3)
    await setSecrets({ secret: current, previous_secret: former })
    // The operator's watch shows the new Secret at any moment, and messages are signed by both from then on.
    all.push(...(await endJobs("during", 10)))
    await eventually(async () => {
      const [message] = (await endJobs(`probe-${randomUUID().slice(0, 8)}`, 1)) as [Received]
      all.push(message)
      expect(verifies(message, current)).toBe(true)
    })
    known = current
    all.push(...(await endJobs("switched", 10)))
    await setSecrets({ secret: current })
    all.push(...(await endJobs("after", 10)))
    expect(all.filter(({ status }) => status !== 204)).toEqual([])
    await eventually(async () => {
      const [message] = (await endJobs(`last-${randomUUID().slice(0, 8)}`, 1)) as [Received]
      expect([verifies(message, current), verifies(message, former)]).toEqual([true, false])
    })
  })
})
