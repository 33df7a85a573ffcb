import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import type { WebhookCreated, WebhookRecord } from "../../src/api/resources/webhooks/schema.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import type { StoredWebhook, WebhookSpec, WebhookStatus } from "../../src/core/apis/webhook.ts"
import { ensureSealingKeys } from "../../src/core/identity/sealing-keys.ts"
import { SECRETS, type Secret } from "../../src/core/kube/core.ts"
import { WEBHOOKS } from "../../src/core/resources.ts"
import { Sealer } from "../../src/core/sealing/envelope.ts"
import { KeyringEncryption } from "../../src/core/sealing/keys.ts"
import { openWebhook } from "../../src/core/webhooks/secret.ts"
import { newSigningSecret, signedHeaders } from "../../src/core/webhooks/signature.ts"
import { caller, problemIn } from "../harness/caller.ts"
import { eventually } from "../harness/eventually.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { projectFixture } from "../harness/facade-project.ts"
import { SYSTEM_NAMESPACE } from "../harness/system-namespace.ts"
import { FORBIDDEN, FORBIDDEN_RECEIVERS, WebhookReceiver } from "../harness/webhook-receiver.ts"

const fixture = projectFixture("facade-webhooks")
let replica: Replica
let receiver: WebhookReceiver
const call = caller(() => replica, fixture)
const sealer = new Sealer(new KeyringEncryption(() => ensureSealingKeys(fixture.client, SYSTEM_NAMESPACE)))

beforeAll(async () => {
  await ensureSealingKeys(fixture.client, SYSTEM_NAMESPACE)
  receiver = await WebhookReceiver.start()
  replica = await startReplica()
})
afterAll(async () => {
  await replica.close()
  await receiver.stop()
})
beforeEach(async () => {
  const { client, namespace } = fixture
  for (const { metadata } of (await client.list(WEBHOOKS, { namespace })).items) await client.delete(WEBHOOKS, metadata)
})

const SLACK = "https://hooks.slack.com/services/T0/B0/cAnArY"
const body = (changes: object = {}) => ({ name: "hook", url: receiver.url, events: ["job.*"], ...changes })

async function create(changes: object = {}, headers: Record<string, string> = {}): Promise<WebhookCreated> {
  const response = await call("/1/webhooks", { body: body(changes), headers })
  expect([response.status, response.status === 201 ? "" : await response.text()]).toEqual([201, ""])
  return (await response.json()) as WebhookCreated
}

function stored(name = "hook"): Promise<StoredWebhook> {
  return fixture.client.get(WEBHOOKS, { namespace: fixture.namespace, name })
}

async function opened(name = "hook") {
  const { spec } = await stored(name)
  return openWebhook(sealer, spec.sealedSecret ?? "", { project: fixture.project, name })
}

async function patch(change: object, name = "hook"): Promise<WebhookRecord> {
  const response = await call(`/1/webhooks/${name}`, { method: "PATCH", body: change })
  expect([response.status, response.status === 200 ? "" : await response.text()]).toEqual([200, ""])
  return (await response.json()) as WebhookRecord
}

describe("POST /webhooks", () => {
  it("creates a signing secret, shows it once, and stores it encrypted", async () => {
    const response = await call("/1/webhooks", {
      body: body({ labels: { team: "ml" }, tags: ["a"], include: ["env"] }),
    })
    expect([response.status, response.headers.get("cache-control")]).toEqual([201, "no-store"])
    const made = (await response.json()) as WebhookCreated
    expect(made.signing_secret).toMatch(/^whsec_/)
    const { spec } = await stored()
    expect(spec).toMatchObject({
      url: receiver.url,
      events: ["job.*"],
      labels: { team: "ml" },
      tags: ["a"],
      active: true,
    })
    expect(JSON.stringify(spec)).not.toContain(made.signing_secret)
    expect((await opened()).secret).toBe(made.signing_secret)
    for (const path of ["/1/webhooks", "/1/webhooks/hook", `/1/webhooks/${made.id}`])
      expect(await (await call(path)).text()).not.toContain("whsec_")
    expect(replica.logged()).not.toContain(made.signing_secret)
  })

  it("returns the same secret for a repeated Idempotency-Key, and 422 for another body", async () => {
    const headers = { "Idempotency-Key": "once" }
    const first = await create({}, headers)
    expect(await create({}, headers)).toEqual(first)
    const other = await call("/1/webhooks", { body: body({ events: ["job.failed"] }), headers })
    expect(other.status).toBe(422)
    expect((await call("/1/webhooks", { body: body() })).status).toBe(409)
  })

  it("stores the address of Slack's webhooks encrypted, and never shows it", async () => {
    const made = await create({ format: "slack", url: SLACK })
    expect([made.signing_secret, made.url, made.receiver]).toEqual([null, null, null])
    expect(JSON.stringify(await stored())).not.toContain("cAnArY")
    expect(await opened()).toMatchObject({ url: SLACK })
    await patch({ url: `${SLACK}2` })
    expect(await opened()).toMatchObject({ url: `${SLACK}2` })
    expect(replica.logged()).not.toContain("cAnArY")
  })

  it.each([
    ["/url", { url: "ftp://a" }],
    ["/url", { url: `https://me:${SLACK.slice(-6)}@a` }],
    ["/url", { url: "https://ci.example.com:99999/berth" }],
    ["/url", { url: "https://[0]/berth" }],
    ["/events", { events: [] }],
    ["/events/0", { events: ["job.started"] }],
    ["/signing_secret", { signing_secret: "hunter2" }],
    ["/name", { name: "a" }],
    ["/labels", { labels: "a" }],
  ])("rejects the field %s of %j, without showing a secret", async (pointer, changes) => {
    const response = await call("/1/webhooks", { body: body(changes) })
    const problem = await problemIn(response)
    expect(problem.errors.map((error: { pointer: string }) => error.pointer)).toContain(pointer)
    expect(JSON.stringify(problem)).not.toMatch(/hunter2|cAnArY/)
  })
})

describe("an address that no message can reach", () => {
  it.each(FORBIDDEN_RECEIVERS.filter((url) => !url.endsWith(".invalid")))("%s is refused", async (url) => {
    for (const format of ["cloudevents", "slack"])
      expect(await problemIn(await call("/1/webhooks", { body: body({ url, format }) }))).toMatchObject({
        status: 400,
        errors: [{ pointer: "/url", detail: expect.stringMatching(FORBIDDEN) }],
      })
    await create()
    const change = { method: "PATCH", body: { url } }
    expect(await problemIn(await call("/1/webhooks/hook", change))).toMatchObject({ status: 400 })
    expect((await stored()).spec.url).toBe(receiver.url)
  })
})

describe("GET /webhooks", () => {
  it("shows the whole address to admins only", async () => {
    await create({ url: "https://ci.example.com/berth?token=cAnArY" })
    for (const role of ["viewer", "developer"] as const) {
      const text = await (await call("/1/webhooks/hook", { key: fixture.keys[role] })).text()
      expect(text).not.toContain("cAnArY")
      expect(JSON.parse(text)).toMatchObject({ url: null, receiver: "https://ci.example.com" })
    }
    expect(await (await call("/1/webhooks/hook")).json()).toMatchObject({
      url: "https://ci.example.com/berth?token=cAnArY",
    })
  })

  it("lists a webhook of kubectl whose address has an impossible port", async () => {
    const { name } = await create()
    const { metadata } = await stored(name)
    await fixture.client.patch(WEBHOOKS, metadata, { merge: { spec: { url: "https://ci.example.com:99999" } } })
    await eventually(async () => {
      const { webhooks } = (await (await call("/1/webhooks")).json()) as { webhooks: WebhookRecord[] }
      expect(webhooks).toMatchObject([{ name, url: "https://ci.example.com:99999", receiver: null }])
    })
  })

  it("shows the deliveries of the status: pending ones first", async () => {
    await create()
    const time = "2026-01-31T12:00:00Z"
    const one = { id: "1", type: "job.failed" as const, subject: "jobs/a", time, attempts: 1 }
    const status: WebhookStatus = {
      pending: [{ ...one, jobUid: "u", nextAttemptTime: time, error: "the receiver answered 500" }],
      deliveries: [{ ...one, id: "2", result: "delivered", endTime: time, statusCode: 204, durationMs: 7 }],
      ...{ pendingCount: 1, deliveredCount: 5, missedCount: 2 },
    }
    const { namespace } = fixture
    const written = await fixture.client.patchStatus(WEBHOOKS, { namespace, name: "hook" }, { merge: { status } })
    await expect
      .poll(async () => ((await (await call("/1/webhooks/hook")).json()) as WebhookRecord).missed_count, {
        timeout: 10_000,
      })
      .toBe(written.status?.missedCount)
    const list = await (await call("/1/webhooks/hook/deliveries", { key: fixture.keys.viewer })).json()
    expect(list).toMatchObject({
      deliveries: [
        { id: "1", status: "pending", next_attempt_at: time, error: "the receiver answered 500", ended_at: null },
        { id: "2", status: "delivered", ended_at: time, status_code: 204, duration_ms: 7, error: null },
      ],
      ...{ total: 2, offset: 0 },
    })
  })
})

describe("PATCH /webhooks", () => {
  it("changes what is sent, and keeps the secret", async () => {
    const { signing_secret } = await create()
    const changed = await patch({ events: ["job.failed"], labels: { team: "ml" }, is_active: false })
    expect(changed).toMatchObject({ events: ["job.failed"], labels: { team: "ml" }, is_active: false })
    expect((await opened()).secret).toBe(signing_secret)
    expect((await stored()).metadata.generation).toBe(2)
    await patch({ ...changed, updated_at: null })
    expect((await stored()).metadata.generation).toBe(2)
  })

  it("enables a webhook that Berth disabled", async () => {
    await create()
    const { namespace, client } = fixture
    const condition = { status: "True", observedGeneration: 1, lastTransitionTime: "2026-01-31T12:00:00Z", message: "" }
    const conditions = [
      { ...condition, type: "Ready", status: "False", reason: "ReceiverGone" },
      { ...condition, type: "Stalled", reason: "ReceiverGone" },
    ]
    await client.patchStatus(WEBHOOKS, { namespace, name: "hook" }, { merge: { status: { conditions } } as never })
    await patch({ is_active: true })
    const { metadata, spec } = await stored()
    expect([metadata.generation, spec.resumedTime === undefined]).toEqual([2, false])
    await patch({ is_active: true })
    expect((await stored()).metadata.generation).toBe(2)
  })

  it("rejects another format", async () => {
    await create()
    const response = await call("/1/webhooks/hook", { method: "PATCH", body: { format: "slack" } })
    expect((await problemIn(response)).errors[0]?.pointer).toBe("/format")
  })
})

describe("POST /webhooks/{name}/rotate", () => {
  it("creates a new secret, and keeps the former one for a day", async () => {
    const { signing_secret: former } = await create()
    const response = await call("/1/webhooks/hook/rotate", { method: "POST" })
    expect([response.status, response.headers.get("cache-control")]).toEqual([200, "no-store"])
    const { signing_secret: current } = (await response.json()) as WebhookCreated
    const { secret, previousSecret, previousUntil = "" } = await opened()
    expect([secret, previousSecret, current === former]).toEqual([current, former, false])
    const hours = (Date.parse(previousUntil) - systemClock.now().getTime()) / 3_600_000
    expect(hours).toBeGreaterThan(23)
    expect(hours).toBeLessThanOrEqual(24)
  })
})

describe("POST /webhooks/{name}/test", () => {
  const test = async (name = "hook") =>
    (await (await call(`/1/webhooks/${name}/test`, { method: "POST" })).json()) as Record<string, unknown>

  it("sends one signed message, and returns the response's status", async () => {
    const { signing_secret } = await create()
    const result = await test()
    expect(result).toMatchObject({ delivered: true, status_code: 204, error: null })
    const message = receiver.received.find(({ id }) => id === result["id"])
    expect(JSON.parse(message?.body ?? "")).toMatchObject({
      type: "dev.berth.webhook.test.v1",
      subject: "webhooks/hook",
    })
    const now = new Date(Number(message?.headers["webhook-timestamp"]) * 1000)
    const headers = signedHeaders(String(result["id"]), message?.body ?? "", { secrets: [signing_secret ?? ""], now })
    expect(message?.headers).toMatchObject(headers)
  })

  it.each([
    [302, { status: 302, headers: { location: "http://169.254.169.254/" } }, /follows no redirect/],
    [410, 410, /410 Gone/],
    [500, 500, /answered 500/],
  ])("returns the failure of a receiver that answers %i", async (status, reply, error) => {
    await create()
    receiver.reply = () => reply
    const result = await test()
    expect(result).toMatchObject({ delivered: false, status_code: status })
    expect(result["error"]).toMatch(error)
    receiver.reply = () => 204
  })

  it.each(FORBIDDEN_RECEIVERS)("sends nothing to %s, which only kubectl can name", async (url) => {
    await create()
    await fixture.client.patch(WEBHOOKS, { namespace: fixture.namespace, name: "hook" }, { merge: { spec: { url } } })
    await expect.poll(async () => ((await (await call("/1/webhooks/hook")).json()) as WebhookRecord).url).toBe(url)
    const result = await test()
    expect(result).toMatchObject({ delivered: false, status_code: null })
    expect(result["error"]).toMatch(FORBIDDEN)
  })

  it("signs with the Secret that a webhook names, and says if there is none", async () => {
    const { client, namespace } = fixture
    const spec: WebhookSpec = { url: receiver.url, events: ["job.*"], secretRef: { name: "hook" } }
    await client.create(WEBHOOKS, { metadata: { name: "gitops", namespace }, spec } as StoredWebhook)
    await expect.poll(async () => (await call("/1/webhooks/gitops")).status).toBe(200)
    const missing = await call("/1/webhooks/gitops/test", { method: "POST" })
    expect((await problemIn(missing)).detail).toMatch(/There is no Secret hook/)
    const data = { secret: btoa(newSigningSecret()) }
    await client.create(SECRETS, { metadata: { name: "hook", namespace }, type: "berth.dev/webhook", data } as Secret)
    expect(await test("gitops")).toMatchObject({ delivered: true })
    expect((await call("/1/webhooks/gitops/rotate", { method: "POST" })).status).toBe(409)
  })
})
