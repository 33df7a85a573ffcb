import { describe, expect, it } from "vitest"
import type { StoredWebhook, WebhookStatus } from "../../core/apis/webhook.ts"
import { WEBHOOK_LISTS } from "../../core/apis/webhook.ts"
import { type AttemptOutcome, Backlog } from "./backlog.ts"
import { WEBHOOK_DEFAULTS } from "./settings.ts"

const START = Date.parse("2026-01-31T12:00:00Z")
const at = (seconds: number): Date => new Date(START + seconds * 1000)
const time = (seconds: number): string => `${at(seconds).toISOString().slice(0, 19)}Z`
const FAILED: AttemptOutcome = { is: "failed", error: "the receiver answered 500", statusCode: 500 }
const DELIVERED: AttemptOutcome = { is: "delivered", statusCode: 204 }

function backlogOf(status?: WebhookStatus, start?: string, now = at(0)): Backlog {
  const metadata = { name: "hook", uid: "hook", creationTimestamp: time(0) }
  return new Backlog({ metadata, ...(status && { status }) } as unknown as StoredWebhook, WEBHOOK_DEFAULTS, now, start)
}

function end(job: string, seconds: number) {
  return { id: `id-${job}`, type: "job.failed" as const, subject: `jobs/${job}`, time: time(seconds), jobUid: job }
}

describe("an end of a job", () => {
  it("is taken once, and not if it is older than the webhook", () => {
    const backlog = backlogOf()
    expect([backlog.offer(end("a", 5)), backlog.offer(end("a", 5)), backlog.offer(end("b", -1))]).toEqual([
      true,
      false,
      false,
    ])
  })

  it("holds its job until it is delivered", () => {
    const backlog = backlogOf()
    backlog.offer(end("a", 5))
    expect(backlog.holds("a")).toBe(true)
    expect(backlog.attempted("id-a", FAILED, at(6), 0.5)).toBe(5)
    expect(backlog.holds("a")).toBe(true)
    expect(backlog.attempted("id-a", DELIVERED, at(11), 0.5)).toBeUndefined()
    expect(backlog.holds("a")).toBe(false)
    expect(backlog.offer(end("a", 5))).toBe(false)
    expect(backlog.status(at(12))).toMatchObject({ deliveredCount: 1, pendingCount: 0, lastSuccessTime: time(11) })
  })

  it.each([
    ["7,200 s fast: all that is not settled counts", 7200 - 120, 5],
    ["100 s fast: what is younger than the margin counts", -20, 880],
    ["right: what is younger than the cursor counts", -400, 600],
    ["7,200 s slow: what is younger than the cursor counts", -7320, 5],
  ])("is sent after the operator that wrote the cursor had a clock %s", (_, cursor, oldest) => {
    const now = 1000
    const backlog = backlogOf({ cursor: time(now + cursor) }, undefined, at(now))
    const taken = [5, 600, 880, 990].filter((seconds) => backlog.offer(end(`job-${seconds}`, seconds)))
    expect(taken[0]).toBe(oldest)
    expect(taken).toContain(990)
  })

  it("is forgotten with its job only after it is delivered", () => {
    const backlog = backlogOf()
    backlog.offer(end("a", 5))
    backlog.forgetJob("a")
    expect(backlog.get("id-a")).toBeDefined()
    backlog.attempted("id-a", DELIVERED, at(6), 0.5)
    // A job of the same id does not come back, so nothing remembers it.
    expect(backlog.offer(end("a", 5))).toBe(true)
  })

  it("releases its job after the hold only when the status has it as pending", () => {
    const backlog = backlogOf()
    backlog.offer(end("a", 5))
    expect(backlog.release(at(4000))).toEqual([])
    expect(backlog.holds("a")).toBe(true)
    backlog.persisted(backlog.status(at(4000)))
    expect(backlog.release(at(4000))).toEqual(["a"])
    expect([backlog.holds("a"), backlog.get("id-a")?.id]).toEqual([false, "id-a"])
  })

  it("counts as missed after the hold if pending has no room, and holds its job until the status says so", () => {
    const backlog = backlogOf()
    const ends = WEBHOOK_LISTS.pending + 2
    for (let i = 0; i < ends; i++) backlog.offer(end(`job-${i}`, i))
    backlog.expire(at(3600 + WEBHOOK_LISTS.pending))
    expect(backlog.status(at(3800))).toMatchObject({ missedCount: 1, pendingCount: ends - 1 })
    expect(backlog.holds(`job-${WEBHOOK_LISTS.pending}`)).toBe(true)
    expect(backlog.persisted(backlog.status(at(3800)))).toEqual([`job-${WEBHOOK_LISTS.pending}`])
    expect(backlog.holds(`job-${WEBHOOK_LISTS.pending}`)).toBe(false)
    expect(backlog.holds(`job-${WEBHOOK_LISTS.pending + 1}`)).toBe(true)
  })

  it("is held for a day if it was never sent, because the project has reached its limit of messages", () => {
    const backlog = backlogOf()
    const ends = WEBHOOK_LISTS.pending + 2
    for (let i = 0; i < ends; i++) backlog.offer(end(`job-${i}`, i))
    const last = `job-${ends - 1}`
    backlog.attempted(`id-${last}`, FAILED, at(200), 0.5)
    backlog.isLimited = true
    backlog.expire(at(4000))
    // The receiver did not accept the last one within the hour, so the limit is no excuse.
    expect(backlog.status(at(4000))).toMatchObject({ missedCount: 1, pendingCount: ends - 1 })
    expect([backlog.holds(last), backlog.get(`id-${last}`)]).toEqual([true, undefined])
    backlog.expire(at(25 * 3600))
    expect(backlog.status(at(25 * 3600))).toMatchObject({ missedCount: 2, pendingCount: WEBHOOK_LISTS.pending })
  })

  it("stays held for a status that was made before it counted as missed", () => {
    const backlog = backlogOf()
    backlog.offer(end("a", 5))
    const earlier = backlog.status(at(6))
    backlog.abandon("id-a", "the job was deleted", at(7))
    expect([backlog.persisted(earlier), backlog.holds("a")]).toEqual([[], true])
    expect([backlog.persisted(backlog.status(at(8))), backlog.holds("a")]).toEqual([["a"], false])
  })
})

describe("the cursor", () => {
  it("does not move without an end, so that an idle webhook is not written", () => {
    const backlog = backlogOf()
    expect([backlog.status(at(10)).cursor, backlog.status(at(9999)).cursor]).toEqual([time(0), time(0)])
    expect(backlog.changesIn(at(10))).toBeUndefined()
  })

  it("passes an end that is over two minutes later, for the clocks of other operators", () => {
    const backlog = backlogOf()
    backlog.offer(end("a", 50))
    backlog.attempted("id-a", DELIVERED, at(51), 0.5)
    expect(backlog.status(at(60)).cursor).toBe(time(0))
    expect(backlog.status(at(160)).cursor).toBe(time(40))
    const wait = backlog.changesIn(at(160)) ?? Number.NaN
    expect(backlog.status(at(160 + wait)).cursor).toBe(time(51))
    expect(backlog.changesIn(at(160 + wait))).toBeUndefined()
  })

  it("does not pass an end for which pending has no room", () => {
    const backlog = backlogOf()
    for (let i = 0; i < WEBHOOK_LISTS.pending + 1; i++) backlog.offer(end(`job-${i}`, i + 1))
    backlog.offer(end("last", 500))
    backlog.attempted("id-last", DELIVERED, at(501), 0.5)
    expect(backlog.status(at(1000)).cursor).toBe(time(WEBHOOK_LISTS.pending + 1))
  })

  it("lets a later operator skip what is delivered, and continue what is pending", () => {
    const backlog = backlogOf()
    for (const [job, seconds] of [
      ["a", 10],
      ["b", 20],
    ] as const)
      backlog.offer(end(job, seconds))
    backlog.attempted("id-b", DELIVERED, at(21), 0.5)
    backlog.attempted("id-a", FAILED, at(21), 0.5)
    const later = backlogOf(backlog.status(at(500)), undefined, at(600))
    expect([later.offer(end("b", 20)), later.offer(end("a", 10)), later.offer(end("c", 400))]).toEqual([
      false,
      false,
      true,
    ])
    expect(later.get("id-a")).toMatchObject({ attempts: 1, firstAttemptTime: time(21), error: FAILED.error })
    expect([later.holds("a"), later.holds("b")]).toEqual([true, false])
  })
})

describe("a receiver that fails", () => {
  const firstDays = 3 * 86_400

  it("is failing since the first failure after a success", () => {
    const backlog = backlogOf()
    for (const job of ["a", "b"]) backlog.offer(end(job, 1))
    backlog.attempted("id-a", FAILED, at(2), 0.5)
    backlog.attempted("id-b", FAILED, at(3), 0.5)
    expect(backlog.status(at(4)).failingSince).toBe(time(2))
    backlog.attempted("id-a", DELIVERED, at(9), 0.5)
    expect(backlog.status(at(10))).not.toHaveProperty("failingSince")
  })

  it("stops the webhook after 3 days without a success", () => {
    const backlog = backlogOf()
    for (const job of ["a", "b"]) backlog.offer(end(job, 1))
    backlog.attempted("id-a", FAILED, at(2), 0.5)
    expect(backlog.attempted("id-a", FAILED, at(2 + firstDays), 0.5)).toBeUndefined()
    expect(backlog.stopped).toBe("RetriesExhausted")
    expect(backlog.status(at(firstDays + 3))).toMatchObject({ missedCount: 2, pendingCount: 0 })
    expect(backlog.offer(end("c", firstDays))).toBe(false)
  })

  it("misses one message that it rejects for 3 days, while it accepts others", () => {
    const backlog = backlogOf()
    for (const job of ["a", "b", "c"]) backlog.offer(end(job, 1))
    backlog.attempted("id-a", FAILED, at(2), 0.5)
    backlog.attempted("id-b", DELIVERED, at(3), 0.5)
    backlog.attempted("id-a", FAILED, at(2 + firstDays), 0.5)
    expect(backlog.stopped).toBeUndefined()
    expect(backlog.status(at(firstDays + 3))).toMatchObject({ missedCount: 1, pendingCount: 1, deliveredCount: 1 })
  })

  it("stops the webhook at once with 410", () => {
    const backlog = backlogOf()
    backlog.offer(end("a", 1))
    backlog.attempted("id-a", { is: "gone", statusCode: 410 }, at(2), 0.5)
    expect(backlog.stopped).toBe("ReceiverGone")
    expect(backlog.status(at(3)).deliveries?.[0]).toMatchObject({
      result: "missed",
      error: "the receiver answered 410 Gone",
    })
  })
})

it("a backlog keeps the latest deliveries only", () => {
  const backlog = backlogOf()
  for (let i = 0; i < WEBHOOK_LISTS.deliveries + 5; i++) {
    backlog.offer(end(`job-${i}`, i))
    backlog.attempted(`id-job-${i}`, DELIVERED, at(i), 0.5)
  }
  const { deliveries = [] } = backlog.status(at(100))
  expect([deliveries.length, deliveries[0]?.subject]).toEqual([
    WEBHOOK_LISTS.deliveries,
    `jobs/job-${WEBHOOK_LISTS.deliveries + 4}`,
  ])
})

describe("another event than an end", () => {
  const other = (id: string) => ({ id, type: "budget.threshold" as const, subject: "projects/a", time: time(-999) })

  it("is in no status and no count", () => {
    const backlog = backlogOf()
    backlog.offer(other("x"))
    expect(backlog.status(at(1))).toMatchObject({ pending: [], pendingCount: 0 })
    backlog.attempted("x", { is: "gone" }, at(2), 0.5)
    expect(backlog.status(at(3))).toMatchObject({ missedCount: 0, deliveries: [{ subject: "projects/a" }] })
  })

  it("is sent once, also if it is reported again after its delivery", () => {
    const backlog = backlogOf()
    expect(backlog.offer(other("x"))).toBe(true)
    backlog.attempted("x", DELIVERED, at(2), 0.5)
    expect(backlog.offer(other("x"))).toBe(false)
  })

  it("is dropped if 100 wait already", () => {
    const backlog = backlogOf()
    const taken = Array.from({ length: 101 }, (_, i) => backlog.offer(other(`x-${i}`)))
    expect(taken.indexOf(false)).toBe(100)
    expect(backlog.list()).toHaveLength(100)
    expect(backlog.status(at(1)).deliveries).toMatchObject([{ id: "x-100", result: "missed", attempts: 0 }])
  })
})
