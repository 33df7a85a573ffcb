import { randomUUID } from "node:crypto"
import { afterAll, beforeAll, expect, it } from "vitest"
import { findCondition } from "../../src/core/apis/conditions.ts"
import { inParallel } from "../../src/core/apis/in-parallel.ts"
import type { StoredWebhook } from "../../src/core/apis/webhook.ts"
import { SECRETS, type Secret } from "../../src/core/kube/core.ts"
import { PROJECT_LIMITS } from "../../src/core/quota/project-limits.ts"
import { WEBHOOKS } from "../../src/core/resources.ts"
import { newSigningSecret } from "../../src/core/webhooks/signature.ts"
import { confirmedProject } from "../harness/confirmed-project.ts"
import { type ControllerHarness, controllerHarnesses } from "../harness/controllers.ts"
import { eventually } from "../harness/eventually.ts"
import { WebhookReceiver } from "../harness/webhook-receiver.ts"
import { isNightly } from "../nightly.ts"

const newHarness = controllerHarnesses()
let receiver: WebhookReceiver
beforeAll(async () => {
  receiver = await WebhookReceiver.start()
})
afterAll(() => receiver.stop())

const HOOKS = isNightly ? 1000 : 24
/** Webhooks that the project may have. */
const LIMIT = isNightly ? PROJECT_LIMITS.webhooks : 3

/** Number of webhooks by status and reason of their condition Ready. */
async function states({ client, namespace }: ControllerHarness): Promise<Record<string, number>> {
  const { items } = await client.list(WEBHOOKS, { namespace })
  const counts: Record<string, number> = {}
  for (const { status } of items) {
    const ready = findCondition(status?.conditions, "Ready")
    const state = `${ready?.status} ${ready?.reason}`
    counts[state] = (counts[state] ?? 0) + 1
  }
  return counts
}

it(`${HOOKS} webhooks made by kubectl send what ${LIMIT} may, and the others say why they send nothing`, async () => {
  const harness = await newHarness()
  const { client, namespace } = harness
  await confirmedProject(client, { name: `p-${randomUUID().slice(0, 8)}`, organization: "o", namespace })
  const data = { secret: btoa(newSigningSecret()) }
  await client.apply(SECRETS, { metadata: { name: "hook", namespace }, type: "berth.dev/webhook", data } as Secret)
  const make = (name: string) => async () => {
    const spec = { url: `${receiver.url}/${name}`, events: ["job.*"], secretRef: { name: "hook" } }
    await client.create(WEBHOOKS, { metadata: { name, namespace }, spec } as StoredWebhook)
  }
  const all = Array.from({ length: HOOKS }, (_, i) => make(`hook-${i}`))
  await inParallel(all, 16, (task) => task())
  harness.operator({ webhooks: { limits: { webhooks: LIMIT }, writeSeconds: 0.1 } })
  const expected = { "True Active": LIMIT, "False ProjectLimit": HOOKS - LIMIT }
  await eventually(async () => expect(await states(harness)).toEqual(expected))
  await harness.submit("job", { cancelled: true })
  // The job is settled only when each webhook that wants its end has got it.
  await eventually(async () => expect((await harness.job("job")).status?.settled).toBe(true))
  const paths = receiver.accepted.map(({ path }) => path)
  expect([paths.length, new Set(paths).size]).toEqual([LIMIT, LIMIT])
  const { items } = await client.list(WEBHOOKS, { namespace })
  const limited = items.find(({ status }) => findCondition(status?.conditions, "Ready")?.reason === "ProjectLimit")
  expect(findCondition(limited?.status?.conditions, "Ready")?.message).toBe(
    `nothing is sent: the project has ${HOOKS} webhooks; the limit is ${LIMIT}. Delete some that you no longer need`,
  )
}, 120_000)
