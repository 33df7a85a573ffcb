import { randomUUID } from "node:crypto"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { findCondition } from "../../src/core/apis/conditions.ts"
import type { StoredWebhook, WebhookSpec, WebhookStatus } from "../../src/core/apis/webhook.ts"
import { SECRETS, type Secret } from "../../src/core/kube/core.ts"
import { WEBHOOKS } from "../../src/core/resources.ts"
import { newSigningSecret } from "../../src/core/webhooks/signature.ts"
import { confirmedProject } from "../harness/confirmed-project.ts"
import { type ControllerHarness, controllerHarnesses, type OperatorOptions } from "../harness/controllers.ts"
import { eventually } from "../harness/eventually.ts"
import { FORBIDDEN, FORBIDDEN_RECEIVERS, WebhookReceiver } from "../harness/webhook-receiver.ts"

/** Short times, so that no test waits. */
const FAST: NonNullable<OperatorOptions["webhooks"]> = {
  writeSeconds: 0.1,
  timeoutSeconds: 1,
  retry: { firstSeconds: 0.05, factor: 1, longestSeconds: 0.05, jitter: 0, giveUpSeconds: 3 * 86_400 },
}

const newHarness = controllerHarnesses()
let receiver: WebhookReceiver
beforeAll(async () => {
  receiver = await WebhookReceiver.start()
})
afterAll(() => receiver.stop())

/** Namespace with a project and a receiver's path of its own. */
interface Stage {
  harness: ControllerHarness
  url: string
  secret: string
  hook(name: string, spec?: Partial<WebhookSpec>): Promise<StoredWebhook>
  status(name: string): Promise<WebhookStatus>
  /** Ends a job at once: it is cancelled before it has a VM. */
  end(name: string): Promise<string>
}

async function stage(): Promise<Stage> {
  const harness = await newHarness()
  const { client, namespace } = harness
  await confirmedProject(client, { name: `p-${randomUUID().slice(0, 8)}`, organization: "o", namespace })
  const secret = newSigningSecret()
  await putSecret(harness, { secret })
  const url = receiver.url
  return {
    ...{ harness, url, secret },
    hook: (name, spec = {}) =>
      client.create(WEBHOOKS, {
        metadata: { name, namespace },
        spec: { url, events: ["job.*"], secretRef: { name: "hook" }, ...spec },
      } as StoredWebhook),
    status: async (name) => (await client.get(WEBHOOKS, { namespace, name })).status ?? {},
    end: async (name) => (await harness.submit(name, { cancelled: true })).metadata.uid,
  }
}

async function putSecret({ client, namespace }: ControllerHarness, texts: Record<string, string>): Promise<void> {
  const data = Object.fromEntries(Object.entries(texts).map(([key, value]) => [key, btoa(value)]))
  await client.apply(SECRETS, { metadata: { name: "hook", namespace }, type: "berth.dev/webhook", data } as Secret)
}

/** Returns the messages about a job that the receiver accepted. */
function accepted(uid: string) {
  return receiver.accepted.filter(({ body }) => body.includes(uid))
}

function reasonOf(status: WebhookStatus, type = "Ready"): string | undefined {
  return findCondition(status.conditions, type)?.reason
}

/** Waits until the operator has written a first status, so that it sends from now on. */
async function active({ status }: Stage, name = "hook"): Promise<void> {
  await eventually(async () => expect(reasonOf(await status(name))).toBe("Active"))
}

describe("the end of a job", () => {
  it("arrives as a CloudEvent, without env, command and args, and then the job is settled", async () => {
    const own = await stage()
    const { harness, hook, status } = own
    harness.operator({ webhooks: FAST })
    await hook("hook")
    await active(own)
    const { metadata } = await harness.submit("ran", { env: { TOKEN: "s3cr3t" }, command: ["sh"], args: ["-c"] })
    await eventually(async () => {
      await harness.agentsStep()
      expect((await harness.job("ran")).status?.settled).toBe(true)
    })
    const [message] = accepted(metadata.uid)
    const event = JSON.parse(message?.body ?? "{}")
    expect(event).toMatchObject({
      ...{ specversion: "1.0", id: message?.id, type: "dev.berth.job.succeeded.v1", subject: "jobs/ran" },
      data: { id: metadata.uid, name: "ran", status: "succeeded", exit_code: 0 },
    })
    expect(Object.keys(event.data)).not.toEqual(expect.arrayContaining(["env"]))
    expect(message?.body).not.toContain("s3cr3t")
    await eventually(async () => {
      const { deliveredCount, deliveries } = await status("hook")
      expect([deliveredCount, deliveries?.[0]?.subject]).toEqual([1, "jobs/ran"])
    })
  })

  it("arrives with the end of the log if the webhook wants it, which each retry repeats", async () => {
    const own = await stage()
    const { harness, hook, end } = own
    harness.operator({ webhooks: FAST })
    await hook("hook", { include: ["output"] })
    await hook("plain", { url: `${own.url}/plain` })
    await active(own)
    await active(own, "plain")
    let failures = 2
    receiver.reply = ({ path }) => (path !== "/plain" && failures-- > 0 ? 500 : 204)
    const uid = await end("job")
    await eventually(async () => expect((await harness.job("job")).status?.settled).toBe(true))
    receiver.reply = () => 204
    const seen = receiver.received.filter(({ body }) => body.includes(uid))
    const bodies = seen.filter(({ path }) => path !== "/plain").map(({ body }) => body)
    expect(bodies).toHaveLength(3)
    expect(new Set(bodies).size).toBe(1)
    expect(JSON.parse(bodies[0] ?? "").data.output).toBe("output of job, read 1")
    const plain = seen.find(({ path }) => path === "/plain")
    expect(JSON.parse(plain?.body ?? "").data).not.toHaveProperty("output")
  })

  it("arrives only at webhooks that want its type, its labels and its tags", async () => {
    const own = await stage()
    const { harness, hook, end } = own
    harness.operator({ webhooks: FAST })
    await hook("all", { url: `${own.url}/all` })
    await hook("failed", { events: ["job.failed"] })
    await hook("labelled", { labels: { team: "ml" } })
    await hook("paused", { active: false })
    for (const name of ["all", "failed", "labelled"]) await active(own, name)
    const uid = await end("job")
    await eventually(async () => expect((await harness.job("job")).status?.settled).toBe(true))
    expect(accepted(uid).map(({ headers }) => headers["user-agent"])).toEqual(["berth/test"])
  })

  it("is retried with the same id until the receiver accepts it, and its job stays unsettled", async () => {
    const own = await stage()
    const { harness, hook, end, status } = own
    harness.operator({ webhooks: FAST })
    await hook("hook")
    await active(own)
    const failures = [500, "reset" as const, 302, "silent" as const]
    receiver.reply = () => failures[0] ?? 204
    const uid = await end("job")
    const seen = () => receiver.received.filter(({ body }) => body.includes(uid))
    for (let n = 1; failures.length > 0; n++) {
      await eventually(() => expect(seen().length).toBeGreaterThanOrEqual(n))
      expect((await harness.job("job")).status?.settled).toBeUndefined()
      if (failures.length === 4)
        await eventually(async () => expect(reasonOf(await status("hook"), "Delivering")).toBe("DeliveryFailed"))
      failures.shift()
      n = seen().length
    }
    await eventually(async () => expect((await harness.job("job")).status?.settled).toBe(true))
    expect(new Set(seen().map(({ id }) => id)).size).toBe(1)
    expect(accepted(uid)).toHaveLength(1)
    receiver.reply = () => 204
  })

  it("is found again by a later operator, and one that was delivered is not sent twice", async () => {
    const own = await stage()
    const { harness, hook, end, status } = own
    const first = harness.operator({ webhooks: { ...FAST, marginSeconds: 0 } })
    await hook("hook")
    await active(own)
    const before = await end("before")
    await eventually(async () => {
      expect((await harness.job("before")).status?.settled).toBe(true)
      const { deliveredCount, cursor = "" } = await status("hook")
      expect([
        deliveredCount,
        Date.parse(cursor) > Date.parse((await harness.job("before")).status?.completionTime ?? ""),
      ]).toEqual([1, true])
    })
    receiver.reply = () => 503
    const after = await end("after")
    await eventually(() => expect(receiver.received.some(({ body }) => body.includes(after))).toBe(true))
    await first.stop()
    receiver.reply = () => 204
    harness.operator({ webhooks: FAST })
    await eventually(() => expect(accepted(after)).toHaveLength(1))
    expect(accepted(before)).toHaveLength(1)
  })

  it("holds its job for a limited time, and arrives later if the receiver returns", async () => {
    const own = await stage()
    const { harness, hook, end, status } = own
    harness.operator({ webhooks: { ...FAST, holdSeconds: 1 } })
    await hook("hook")
    await active(own)
    receiver.reply = () => 500
    const uid = await end("job")
    await eventually(async () => expect((await harness.job("job")).status?.settled).toBe(true))
    expect(await status("hook")).toMatchObject({ pendingCount: 1, pending: [{ subject: "jobs/job", jobUid: uid }] })
    receiver.reply = () => 204
    await eventually(() => expect(accepted(uid)).toHaveLength(1))
    await eventually(async () => expect(await status("hook")).toMatchObject({ pendingCount: 0, deliveredCount: 1 }))
  })

  it("is settled when its webhook is deleted", async () => {
    const own = await stage()
    const { harness, hook, end } = own
    harness.operator({ webhooks: FAST })
    await hook("hook")
    await active(own)
    receiver.reply = () => 500
    const uid = await end("job")
    await eventually(() => expect(receiver.received.some(({ body }) => body.includes(uid))).toBe(true))
    await harness.client.delete(WEBHOOKS, { namespace: harness.namespace, name: "hook" })
    await eventually(async () => expect((await harness.job("job")).status?.settled).toBe(true))
    receiver.reply = () => 204
  })
})

describe("a receiver", () => {
  it("disables its webhook if it answers 410, until the spec changes", async () => {
    const own = await stage()
    const { harness, hook, end, status } = own
    harness.operator({ webhooks: FAST })
    await hook("hook")
    await active(own)
    receiver.reply = () => 410
    const uid = await end("gone")
    await eventually(async () => {
      const now = await status("hook")
      expect([reasonOf(now), reasonOf(now, "Stalled"), now.missedCount]).toEqual(["ReceiverGone", "ReceiverGone", 1])
    })
    await eventually(async () => expect((await harness.job("gone")).status?.settled).toBe(true))
    receiver.reply = () => 204
    const ignored = await end("ignored")
    await eventually(async () => expect((await harness.job("ignored")).status?.settled).toBe(true))
    const { client, namespace } = harness
    const spec = { resumedTime: "2026-01-31T12:00:00Z" }
    await client.patch(WEBHOOKS, { namespace, name: "hook" }, { merge: { spec } })
    await active(own)
    const later = await end("later")
    await eventually(() => expect(accepted(later)).toHaveLength(1))
    expect([accepted(uid), accepted(ignored)]).toEqual([[], []])
    await eventually(async () =>
      expect(await harness.eventReasons("hook")).toEqual(expect.arrayContaining(["ReceiverGone", "EventsMissed"])),
    )
  })

  it.each([301, 307])(
    "gets the message if it redirects with %i, and the address that it names gets nothing",
    async (code) => {
      const own = await stage()
      const { harness, hook, end, status, url } = own
      harness.operator({ webhooks: FAST })
      await hook("hook", { url: `${url}/from` })
      await active(own)
      receiver.reply = () => ({ status: code, headers: { location: `${url}/target` } })
      const uid = await end("job")
      await eventually(async () =>
        expect((await status("hook")).pending?.[0]?.error).toBe(
          `the receiver answered ${code}: Berth follows no redirect. Set the final address`,
        ),
      )
      const paths = receiver.received.filter(({ body }) => body.includes(uid)).map(({ path }) => path)
      expect(new Set(paths)).toEqual(new Set(["/from"]))
      receiver.reply = () => 204
    },
  )

  it("gets nothing without a public address, unless an operator allows it", async () => {
    const own = await stage()
    const { harness, hook, end, status } = own
    harness.operator({ webhooks: { ...FAST, privateTargets: { hosts: [], networks: [] } } })
    const urls = [receiver.url, receiver.url.replace("http:", "https:"), ...FORBIDDEN_RECEIVERS]
    const names = urls.map((_, i) => `hook-${i}`)
    for (const [i, url] of urls.entries()) await hook(`hook-${i}`, { url })
    // The conditions say it before any message.
    for (const name of names)
      await eventually(async () => {
        const { conditions } = await status(name)
        const message = expect.stringMatching(FORBIDDEN)
        const refused = { reason: "ReceiverNotAllowed", message }
        expect(conditions).toContainEqual(expect.objectContaining({ type: "Ready", status: "False", ...refused }))
        expect(conditions).toContainEqual(expect.objectContaining({ type: "Stalled", status: "True", ...refused }))
      })
    const uid = await end("job")
    await eventually(async () => {
      const errors = await Promise.all(names.map(async (name) => (await status(name)).pending?.[0]?.error))
      expect(errors).toEqual(urls.map(() => expect.stringMatching(FORBIDDEN)))
    })
    expect(receiver.received.some(({ body }) => body.includes(uid))).toBe(false)
  })
})

describe("the secret of a webhook", () => {
  it("is missing, wrong and there: the conditions say so, and what waited is sent at once", async () => {
    const own = await stage()
    const { harness, hook, end, status, secret } = own
    const { client, namespace } = harness
    await client.delete(SECRETS, { namespace, name: "hook" })
    harness.operator({
      webhooks: { ...FAST, retry: { ...FAST.retry, firstSeconds: 900, longestSeconds: 900 } as never },
    })
    await hook("hook")
    await eventually(async () => expect(reasonOf(await status("hook"))).toBe("SecretNotFound"))
    const uid = await end("job")
    await putSecret(harness, { secret: "hunter2" })
    await eventually(async () => expect(reasonOf(await status("hook"))).toBe("InvalidSecret"))
    expect(JSON.stringify(await status("hook"))).not.toContain("hunter2")
    await putSecret(harness, { secret })
    await eventually(() => expect(accepted(uid)).toHaveLength(1))
    await active(own)
  })
})
