import { afterEach, beforeEach, describe, expect, it } from "vitest"
import { ManualClock } from "../../../test/harness/manual-clock.ts"
import { timestamp } from "../../core/apis/clock.ts"
import { findCondition } from "../../core/apis/conditions.ts"
import type { StoredJob } from "../../core/apis/job.ts"
import type { StoredProject } from "../../core/apis/project.ts"
import type { StoredWebhook, WebhookStatus } from "../../core/apis/webhook.ts"
import { byNamespace, NAMESPACE_INDEX } from "../../core/identity/catch-up.ts"
import { PROJECT_OF_NAMESPACE } from "../../core/identity/projects.ts"
import type { Secret } from "../../core/kube/core.ts"
import type { ApiObject } from "../../core/kube/resource.ts"
import { type Change, type ChangeHandler, IndexedStore } from "../../core/kube/store.ts"
import { PROJECT_LIMITS, type ProjectLimits } from "../../core/quota/project-limits.ts"
import { Usage } from "../../core/quota/usage.ts"
import { newSigningSecret } from "../../core/webhooks/signature.ts"
import { WEBHOOK_CACHE } from "../caches.ts"
import { NotLeaderError } from "../fence.ts"
import { decide } from "./decide.ts"
import { WebhookDeliveries } from "./deliveries.ts"
import type { WebhookControllerDependencies } from "./dependencies.ts"
import { gather } from "./gather.ts"

/** Cache that is changed by hand. */
class Cache<T extends ApiObject> {
  readonly store: IndexedStore<T>
  readonly #handlers = new Set<ChangeHandler<T>>()

  constructor(indexes: ConstructorParameters<typeof IndexedStore<T>>[0] = {}) {
    this.store = new IndexedStore<T>(indexes)
  }

  onChange(handler: ChangeHandler<T>): () => void {
    for (const current of this.store.list())
      handler({ key: `${current.metadata.namespace}/${current.metadata.name}`, current })
    this.#handlers.add(handler)
    return () => this.#handlers.delete(handler)
  }

  put(object: T): void {
    this.#report(this.store.put(object))
  }

  remove({ metadata: { namespace, name } }: T): void {
    const change = this.store.remove(`${namespace}/${name}`)
    this.#report(change === undefined ? [] : [change])
  }

  #report(changes: Change<T>[]): void {
    for (const change of changes) for (const handler of this.#handlers) handler(change)
  }
}

const SECRET = btoa(newSigningSecret())
const none = { onChange: () => () => undefined }

/** Sender of webhooks, on caches that are changed by hand and a clock that the test moves. */
class Stage {
  readonly clock = new ManualClock()
  readonly webhooks = new Cache<StoredWebhook>(WEBHOOK_CACHE.indexes)
  readonly jobs = new Cache<StoredJob>({ [NAMESPACE_INDEX]: byNamespace })
  readonly secrets = new Cache<Secret>()
  readonly projects = new Cache<StoredProject>(PROJECT_OF_NAMESPACE)
  /** Messages in the order of their arrival: project, path of the receiver, and id. */
  readonly sent: { project: string; path: string; id: string; at: number }[] = []
  /** Statuses that receivers answer, by their path. Default: 204. */
  readonly answers = new Map<string, number>()
  /** False: the lease has expired. */
  isHeld = true
  readonly options: WebhookControllerDependencies
  readonly deliveries: WebhookDeliveries
  #version = 0

  constructor(limits: Partial<ProjectLimits>) {
    const { webhooks, jobs, secrets, projects, clock } = this
    const counts = { jobs: none, cronJobs: none, jobArrays: none, apiKeys: none, connections: none, machines: none }
    const counted = { ...counts, webhooks }
    const send = async (url: unknown, init?: RequestInit): Promise<Response> => {
      const { pathname: path } = new URL(String(url))
      const { source } = JSON.parse(String(init?.body)) as { source: string }
      const headers = new Headers(init?.headers)
      this.sent.push({ project: source, path, id: headers.get("webhook-id") ?? "", at: clock.monotonic() })
      return new Response(null, { status: this.answers.get(path) ?? 204 })
    }
    this.options = {
      ...{ webhooks, jobs, secrets, projects, clock },
      sealer: { isOutdated: async () => false },
      recordOf: ({ metadata }: StoredJob) => ({ id: metadata.uid }),
      sending: { send, privateTargets: { hosts: [], networks: [] }, clock, version: "test" },
      fence: () => {
        if (!this.isHeld) throw new NotLeaderError("the lease has expired")
      },
      quota: { limits: { ...PROJECT_LIMITS, ...limits }, usage: new Usage(counted as never, clock) },
      random: () => 0.5,
    } as unknown as WebhookControllerDependencies
    this.deliveries = new WebhookDeliveries(this.options)
  }

  #metadata(namespace: string, name: string) {
    const uid = `${namespace}-${name}`
    const resourceVersion = String(++this.#version)
    return { namespace, name, uid, resourceVersion, generation: 1, creationTimestamp: timestamp(this.clock.now()) }
  }

  project(name: string): void {
    const metadata = { name, uid: name, resourceVersion: String(++this.#version) }
    this.projects.put({
      metadata,
      spec: { organization: "o" },
      status: { namespace: name },
    } as unknown as StoredProject)
    this.secrets.put({ metadata: this.#metadata(name, "hook"), data: { secret: SECRET } } as unknown as Secret)
  }

  hook(namespace: string, name: string, status?: WebhookStatus): StoredWebhook {
    const url = `https://93.184.216.34/${namespace}/${name}`
    const spec = { url, events: ["job.*"], secretRef: { name: "hook" } }
    const webhook = { metadata: this.#metadata(namespace, name), spec, ...(status && { status }) }
    this.webhooks.put(webhook as unknown as StoredWebhook)
    return webhook as unknown as StoredWebhook
  }

  end(namespace: string, name: string): void {
    const completionTime = timestamp(this.clock.now())
    const status = { phase: "cancelled", completionTime }
    this.jobs.put({ metadata: this.#metadata(namespace, name), spec: {}, status } as unknown as StoredJob)
  }

  /** Returns the status that the controller would write now. */
  async status(webhook: StoredWebhook): Promise<WebhookStatus> {
    const observed = await gather(webhook, this.deliveries, this.options, 0)
    return decide(webhook, observed, this.clock.now()).status ?? webhook.status ?? {}
  }

  async ready(webhook: StoredWebhook) {
    return findCondition((await this.status(webhook)).conditions, "Ready")
  }

  /** Moves the clock second by second, and lets all that is due be sent. */
  async pass(seconds: number): Promise<void> {
    for (let i = 0; i < seconds; i++) {
      this.clock.advance(1)
      await this.sentNow()
    }
  }

  /** Waits until nothing more is sent without the clock. */
  async sentNow(): Promise<void> {
    for (let before = -1; before !== this.sent.length; ) {
      before = this.sent.length
      for (let i = 0; i < 20; i++) await new Promise((resolve) => setImmediate(resolve))
    }
  }
}

let stage: Stage
let stop: AbortController | undefined
let running: Promise<void> | undefined

/** Begins again, with these limits. */
async function start(limits: Partial<ProjectLimits>): Promise<void> {
  stop?.abort()
  await running
  stage = new Stage(limits)
  stop = new AbortController()
  running = stage.deliveries.run(stop.signal)
}

beforeEach(() => start({ webhookMessagesPerMinute: 600 }))
afterEach(async () => {
  stop?.abort()
  await running
})

describe("a message that finds the lease expired", () => {
  it("ends the loop, so that the next leader sends it, even if that is this process again", async () => {
    stage.project("team")
    stage.hook("team", "hook")
    stage.isHeld = false
    stage.end("team", "job")
    await expect(running).rejects.toThrow(NotLeaderError)
    expect(stage.sent).toEqual([])
    // A paused process may find its lease expired, and then renew it, because no one else has taken it.
    stage.isHeld = true
    stop = new AbortController()
    running = stage.deliveries.run(stop.signal)
    await stage.sentNow()
    expect(stage.sent).toMatchObject([{ path: "/team/hook" }])
  })
})

describe("a flood of messages of one project", () => {
  it("is sent at the pace of the project, completely, and delays no other project", async () => {
    stage.project("flood")
    stage.project("quiet")
    const names = Array.from({ length: 50 }, (_, i) => `hook-${i}`)
    const hooks = names.map((name) => stage.hook("flood", name))
    stage.hook("quiet", "hook")
    for (let i = 0; i < 40; i++) stage.end("flood", `job-${i}`)
    await stage.sentNow()
    expect(stage.sent).toHaveLength(60)
    stage.end("quiet", "job")
    await stage.sentNow()
    expect(stage.sent.filter(({ project }) => project === "/projects/quiet")).toHaveLength(1)
    await stage.pass(6 * 34)
    const flood = stage.sent.filter(({ project }) => project === "/projects/flood")
    expect([flood.length, new Set(flood.map(({ id }) => id)).size]).toEqual([2000, 2000])
    // No minute has more than the limit, and all webhooks get their messages at the same pace.
    for (const { at } of flood) expect(flood.filter((one) => one.at >= at && one.at < at + 60).length).toBeLessThan(601)
    const half = flood.slice(0, 1000)
    for (const { metadata } of hooks) {
      const { length } = half.filter(({ path }) => path === `/flood/${metadata.name}`)
      expect(Math.abs(length - 20)).toBeLessThan(9)
    }
    const [hook] = hooks as [StoredWebhook]
    expect(await stage.status(hook)).toMatchObject({ deliveredCount: 40, pendingCount: 0, missedCount: 0 })
    expect((await stage.ready(hook))?.message).toBe("sends job.* to 93.184.216.34")
  })

  it("says in the webhook's condition what waits, and why", async () => {
    stage.project("flood")
    const hook = stage.hook("flood", "hook")
    for (let i = 0; i < 100; i++) stage.end("flood", `job-${i}`)
    await stage.sentNow()
    expect(await stage.ready(hook)).toMatchObject({
      status: "True",
      reason: "Active",
      message:
        "sends job.* to 93.184.216.34; 40 messages wait: the project's webhooks send at most 600 messages a minute together, and Berth sends the rest in turn. To get them sooner, delete or pause webhooks, or select fewer jobs",
    })
    expect(stage.deliveries.limitedMessages).toBe(40)
    await stage.pass(6)
    expect([(await stage.ready(hook))?.message, stage.deliveries.limitedMessages]).toEqual([
      "sends job.* to 93.184.216.34",
      0,
    ])
  })

  it("keeps waiting ends when the hour is over in which a receiver must accept them", async () => {
    await start({ webhookMessagesPerMinute: 1 })
    stage.project("flood")
    const hook = stage.hook("flood", "hook")
    for (let i = 0; i < 200; i++) stage.end("flood", `job-${String(i).padStart(3, "0")}`)
    await stage.sentNow()
    await stage.pass(60)
    stage.clock.advance(3600)
    await stage.sentNow()
    const { missedCount, deliveredCount = 0, pendingCount } = await stage.status(hook)
    expect([missedCount, pendingCount]).toEqual([0, 200 - deliveredCount])
    expect(deliveredCount).toBeLessThan(100)
  })

  it("counts the retries of a receiver that fails, and leaves turns to the others", async () => {
    await start({ webhookMessagesPerMinute: 60 })
    stage.project("p")
    for (let i = 0; i < 20; i++) {
      stage.hook("p", `bad-${i}`)
      stage.answers.set(`/p/bad-${i}`, 500)
    }
    stage.hook("p", "good")
    for (let i = 0; i < 30; i++) stage.end("p", `job-${i}`)
    await stage.sentNow()
    await stage.pass(120)
    for (const { at } of stage.sent)
      expect(stage.sent.filter((one) => one.at >= at && one.at < at + 60).length).toBeLessThan(61)
    // A turn of 21 webhooks is 21 messages, so two minutes have more than five.
    expect(stage.sent.filter(({ path }) => path === "/p/good").length).toBeGreaterThanOrEqual(5)
  })
})

describe("a webhook beyond the maximum number of a project", () => {
  it("sends nothing, holds no job, and says why", async () => {
    await start({ webhooks: 2 })
    stage.project("p")
    for (const name of ["a", "b"]) stage.hook("p", name)
    stage.clock.advance(1)
    const third = stage.hook("p", "c")
    stage.clock.advance(1)
    stage.end("p", "job")
    await stage.sentNow()
    expect(stage.sent.map(({ path }) => path).sort()).toEqual(["/p/a", "/p/b"])
    const status = await stage.status(third)
    const message = "nothing is sent: the project has 3 webhooks; the limit is 2. Delete some that you no longer need"
    expect(findCondition(status.conditions, "Ready")).toMatchObject({
      status: "False",
      reason: "ProjectLimit",
      message,
    })
    expect(findCondition(status.conditions, "Stalled")).toMatchObject({ status: "True", reason: "ProjectLimit" })
    const [job] = stage.jobs.store.list() as [StoredJob]
    expect(stage.deliveries.awaits(job)).toBe(false)
  })

  it("is not let in by a pause, or by a change of its spec", async () => {
    await start({ webhooks: 1 })
    stage.project("p")
    stage.hook("p", "a")
    stage.clock.advance(1)
    const second = stage.hook("p", "b")
    const paused = { ...second, spec: { ...second.spec, active: false } }
    const status = await stage.status(paused)
    expect(findCondition(status.conditions, "Ready")?.reason).toBe("ProjectLimit")
    stage.webhooks.put({ ...second, metadata: { ...second.metadata, generation: 2, resourceVersion: "900" }, status })
    stage.end("p", "job")
    await stage.sentNow()
    expect(stage.sent.map(({ path }) => path)).toEqual(["/p/a"])
  })

  it("begins to send when there is room, from then on", async () => {
    await start({ webhooks: 1 })
    stage.project("p")
    const first = stage.hook("p", "a")
    stage.clock.advance(1)
    const second = stage.hook("p", "b")
    stage.end("p", "before")
    const limited = {
      ...second,
      metadata: { ...second.metadata, resourceVersion: "900" },
      status: await stage.status(second),
    }
    stage.webhooks.put(limited)
    stage.deliveries.reconsider(limited)
    expect(stage.deliveries.backlogOf(limited)).toBeUndefined()
    stage.webhooks.remove(first)
    stage.clock.advance(60)
    stage.deliveries.reconsider(limited)
    stage.end("p", "after")
    await stage.sentNow()
    expect(stage.sent.map(({ path }) => path)).toEqual(["/p/a", "/p/b"])
    expect((await stage.ready(limited))?.reason).toBe("Active")
  })
})
