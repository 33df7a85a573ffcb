import { describe, expect, it } from "vitest"
import {
  CANCEL_JOBS_FINALIZER,
  CRON_JOB_ANNOTATIONS,
  type CronJobSpec,
  type CronJobStatus,
  type StoredCronJob,
} from "../../core/apis/cronjob.ts"
import type { JobPhase, StoredJob } from "../../core/apis/job.ts"
import { API_VERSION, LABELS } from "../../core/apis/meta.ts"
import { type CronJobAction, type CronJobDecision, decide } from "./decide.ts"
import { buildJob, jobName } from "./jobs.ts"
import { LONGEST_DELAY_SECONDS } from "./schedule.ts"

const UID = "5ea07726-efd2-42ec-a095-6d7674666e31"
/** Time of the day that all tests use. */
const at = (time: string): Date => new Date(`2026-05-01T${time}Z`)
const written = (time: string): string => `2026-05-01T${time}Z`

interface Changes {
  spec?: Partial<CronJobSpec>
  status?: CronJobStatus
  metadata?: Partial<StoredCronJob["metadata"]>
}

function cronJob({ spec, status, metadata }: Changes = {}): StoredCronJob {
  return {
    apiVersion: API_VERSION,
    kind: "CronJob",
    metadata: {
      name: "hourly",
      namespace: "team",
      uid: UID,
      resourceVersion: "1",
      generation: 1,
      creationTimestamp: written("09:30:00"),
      ...metadata,
    },
    spec: { schedule: "0 * * * *", jobDefinition: { image: "busybox" }, ...spec },
    ...(status && { status }),
  }
}

/** Returns the CronJob with the status of a first reconcile, with ticks that count from `countsFrom`. */
function scheduled(countsFrom: string, changes: Changes = {}): StoredCronJob {
  const base = cronJob(changes)
  const seen = decide(base, { jobs: [], changedAt: at(countsFrom) }, at(countsFrom))
  if (seen.status === undefined) throw new Error("no status")
  return { ...base, status: { ...seen.status, ...changes.status } }
}

function job(tick: string, phase: JobPhase = "succeeded", changes: Partial<StoredJob["spec"]> = {}): StoredJob {
  const made = buildJob(cronJob(), { tick: at(tick), createdAt: "" })
  const stored = { uid: tick, resourceVersion: "1", generation: 1, creationTimestamp: written(tick) }
  return { ...made, metadata: { ...made.metadata, ...stored }, spec: { ...made.spec, ...changes }, status: { phase } }
}

function look(of: StoredCronJob, now: string, jobs: StoredJob[] = [], changedAt?: string): CronJobDecision {
  return decide(of, { jobs, changedAt: changedAt === undefined ? undefined : at(changedAt) }, at(now))
}

/** Returns the writes of a decision in short form. */
function acts({ status, actions }: CronJobDecision): string[] {
  const { countsFrom, nextTriggerTime } = status ?? {}
  const written = status && `status ${countsFrom?.slice(11, 19)} next ${nextTriggerTime?.slice(11, 19)}`
  return [...(written === undefined ? [] : [written]), ...actions.map(summaryOf)]
}

function summaryOf(action: CronJobAction): string {
  switch (action.do) {
    case "createJob":
      return `create ${action.run.tick.toISOString().slice(11, 19)}`
    case "cancelJob":
    case "deleteJob":
      return `${action.do} ${action.job.metadata.name}`
    case "dropFinalizer":
      return action.do
  }
}

/** Returns the CronJob with the status that a decision writes. */
function withStatus(of: StoredCronJob, { status }: CronJobDecision): StoredCronJob {
  return { ...of, ...(status !== undefined && { status }) }
}

const reasons = ({ events }: CronJobDecision): string[] => events.map(({ reason }) => reason)

describe("a tick", () => {
  it("creates its Job when due, then is recorded in the status", () => {
    const first = look(cronJob(), "09:30:01", [], "09:30:00")
    expect(acts(first)).toEqual(["status 09:30:00 next 10:00:00"])

    const waiting = scheduled("09:30:00")
    expect(acts(look(waiting, "09:59:59.999"))).toEqual([])
    const due = look(waiting, "10:00:00")
    expect(acts(due)).toEqual(["create 10:00:00"])

    const made = look(waiting, "10:00:01", [job("10:00:00", "queued")])
    expect(acts(made)).toEqual(["status 10:00:00 next 11:00:00"])
    expect(reasons(made)).toEqual(["JobCreated"])
  })

  it("does not fire at the very second of the CronJob's creation", () => {
    const made = cronJob({ metadata: { creationTimestamp: written("10:00:00") } })
    expect(acts(look(made, "10:00:00.900"))).toEqual(["status 10:00:00 next 11:00:00"])
  })

  it("fires late after a downtime: only the latest one, and the others are counted", () => {
    const due = look(scheduled("09:30:00"), "15:20:00")
    expect(acts(due)).toEqual(["create 15:00:00"])
    expect(due.events).toEqual([
      {
        type: "Warning",
        reason: "TicksSkipped",
        message: expect.stringContaining("skipped 5 ticks after 2026-05-01T09"),
      },
    ])
    const longAgo = scheduled("09:30:00", { spec: { schedule: "* * * * *" } })
    const decision = decide(longAgo, { jobs: [], changedAt: undefined }, new Date("2036-05-01T00:00:30Z"))
    expect(decision.actions).toMatchObject([{ do: "createJob", run: { tick: new Date("2036-05-01T00:00:00Z") } }])
    expect(decision.events[0]?.message).toContain("skipped 5259749 ticks")
  })

  it("is only recorded if it has a Job already", () => {
    const before = scheduled("09:30:00")
    expect(acts(look(before, "10:59:00", [job("10:00:00")]))).toEqual(["status 10:00:00 next 11:00:00"])
    const later = look(before, "12:10:00", [job("10:00:00")])
    expect(acts(later)).toEqual(["create 12:00:00"])
    expect(later.events[0]?.message).toContain("skipped 1 tick after")
  })

  it("is due although a wrong clock created a Job for a later tick", () => {
    expect(acts(look(scheduled("09:30:00"), "10:00:00", [job("23:00:00", "queued")]))).toEqual(["create 10:00:00"])
  })

  it("does not fire again when the clock is set back a little", () => {
    const fired = scheduled("09:30:00", { status: { countsFrom: written("11:00:00") } })
    expect(acts(look(fired, "10:59:30"))).toEqual(["status 11:00:00 next 12:00:00"])
  })

  it.each<[string, string, StoredJob[], [now: string, acts: string[]][]]>([
    [
      "had its Job, which exists",
      "12:00:00",
      [job("12:00:00")],
      [
        ["10:05:00", ["status 10:05:00 next 11:00:00"]],
        ["11:00:00", ["create 11:00:00"]],
        ["12:00:01", ["status 12:00:00 next 13:00:00"]],
      ],
    ],
    [
      "had its Job, which was deleted",
      "12:00:00",
      [],
      [
        ["10:05:00", ["status 10:05:00 next 11:00:00"]],
        ["12:00:01", ["status 12:00:00 next 13:00:00"]],
        ["13:00:00", ["create 13:00:00"]],
      ],
    ],
    [
      "had its Job, and the tick before it too",
      "12:00:00",
      [job("11:00:00"), job("12:00:00")],
      [
        ["10:05:00", ["status 10:05:00 next 11:00:00"]],
        ["11:00:01", ["status 11:00:00 next 12:00:00"]],
        ["12:00:01", ["status 12:00:00 next 13:00:00"]],
      ],
    ],
  ])("is due again after a clock two hours ahead is set back, and none twice: one that %s", (_, last, jobs, looks) => {
    let current = scheduled("09:30:00", { status: { countsFrom: written(last), lastTriggeredTime: written(last) } })
    for (const [now, expected] of looks) {
      const decision = look(current, now, jobs)
      expect(acts(decision), now).toEqual(expected)
      current = withStatus(current, decision)
    }
  })
})

describe("requeueAfter", () => {
  it("is the time until the next tick, also when a Job is created", () => {
    const waiting = scheduled("09:30:00")
    expect(look(waiting, "09:59:50.500").requeueAfter).toBe(9.5)
    const everyMinute = scheduled("09:30:00", { spec: { schedule: "* * * * *" } })
    const due = look(everyMinute, "09:31:40")
    expect(acts(due)).toEqual(["create 09:31:00"])
    expect(due.requeueAfter).toBe(20)
  })

  it("is between half of LONGEST_DELAY_SECONDS and all of it, depending on the uid", () => {
    const delayOf = (uid: string) => look(scheduled("09:30:00", { metadata: { uid } }), "09:31:00").requeueAfter
    expect(delayOf("00000000-efd2-42ec-a095-6d7674666e31")).toBe(LONGEST_DELAY_SECONDS)
    expect(delayOf("80000000-efd2-42ec-a095-6d7674666e31")).toBe(0.75 * LONGEST_DELAY_SECONDS)
    expect(delayOf("ffffffff-efd2-42ec-a095-6d7674666e31")).toBeCloseTo(LONGEST_DELAY_SECONDS / 2)
  })
})

describe("startingDeadlineSeconds", () => {
  const spec = { startingDeadlineSeconds: 60 }

  it("lets a tick start within the deadline", () => {
    expect(acts(look(scheduled("09:30:00", { spec }), "10:01:00.900"))).toEqual(["create 10:00:00"])
    const atOnce = scheduled("09:30:00", { spec: { startingDeadlineSeconds: 0 } })
    expect(acts(look(atOnce, "10:00:00.900"))).toEqual(["create 10:00:00"])
  })

  it("skips a late tick for good, and counts the skipped ticks", () => {
    const late = look(scheduled("09:30:00", { spec }), "12:01:01")
    expect(acts(late)).toEqual(["status 12:00:00 next 13:00:00"])
    expect(late.events).toEqual([
      { type: "Warning", reason: "DeadlineExceeded", message: expect.stringMatching(/skipped 3 ticks.*12:00:00Z/) },
    ])
  })
})

describe("concurrencyPolicy", () => {
  const running = job("10:00:00", "running")
  const recorded = { status: { countsFrom: written("10:00:00"), lastTriggeredTime: written("10:00:00") } }

  it("Allow (the default) ignores other Jobs", () => {
    expect(acts(look(scheduled("09:30:00", recorded), "11:00:00", [running]))).toEqual(["create 11:00:00"])
  })

  it("Forbid delays the latest tick until the running Job ends, and emits one event", () => {
    const forbid = scheduled("09:30:00", { ...recorded, spec: { concurrencyPolicy: "Forbid" } })
    const first = look(forbid, "11:00:00", [running])
    expect(acts(first)).toEqual(["status 10:00:00 next 12:00:00"])
    expect(reasons(first)).toEqual(["JobActive"])
    const waiting = withStatus(forbid, first)
    const second = look(waiting, "11:30:00", [running])
    expect([acts(second), second.events]).toEqual([[], []])
    expect(acts(look(waiting, "11:40:00", [job("10:00:00", "failed")]))).toEqual(["create 11:00:00"])
    const later = look(waiting, "12:40:00", [job("10:00:00", "cancelled")])
    expect(acts(later)).toEqual(["create 12:00:00"])
    expect(later.events[0]?.message).toContain("skipped 1 tick")
  })

  it("Forbid with a deadline skips a tick that would start too late", () => {
    const spec = { concurrencyPolicy: "Forbid", startingDeadlineSeconds: 10 } as const
    const late = look(scheduled("09:30:00", { ...recorded, spec }), "11:20:00", [job("10:00:00")])
    expect(acts(late)).toEqual(["status 11:00:00 next 12:00:00"])
  })

  it("Replace cancels each running Job once before it creates the next", () => {
    const replace = scheduled("09:30:00", { ...recorded, spec: { concurrencyPolicy: "Replace" } })
    const jobs = [job("08:00:00"), job("09:00:00", "booting", { cancelled: true }), running]
    const decision = look(replace, "11:00:00", jobs)
    expect(acts(decision)).toEqual([`cancelJob ${running.metadata.name}`, "create 11:00:00"])
    expect(reasons(decision)).toEqual(["JobReplaced"])
  })
})

describe("a change", () => {
  const changed = (generation: number, spec: Partial<CronJobSpec>, before: StoredCronJob): StoredCronJob => ({
    ...before,
    metadata: { ...before.metadata, generation },
    spec: { ...before.spec, ...spec },
  })

  it("moves ticks from its own time on if it is of the schedule, also when the reconcile is late", () => {
    const other = changed(2, { schedule: "*/10 * * * *" }, scheduled("09:30:00"))
    expect(acts(look(other, "11:05:00", [], "11:05:00"))).toEqual(["status 11:05:00 next 11:10:00"])
    expect(acts(look(other, "11:25:00", [], "11:05:00"))).toEqual(["create 11:20:00"])
    expect(acts(look(other, "11:25:00"))).toEqual(["status 11:25:00 next 11:30:00"])
  })

  it("never fires the same tick twice", () => {
    const fired = scheduled("09:30:00", {
      status: { countsFrom: written("11:00:00"), lastTriggeredTime: written("11:00:00") },
    })
    const other = changed(2, { schedule: "*/10 * * * *" }, fired)
    // The API server's clock is behind ours.
    expect(acts(look(other, "11:00:02", [], "10:59:58"))).toEqual(["status 11:00:00 next 11:10:00"])
  })

  it("misses no tick if it is of the definition alone", () => {
    const other = changed(2, { jobDefinition: { image: "other" } }, scheduled("09:30:00"))
    expect(acts(look(other, "10:00:05", [], "10:00:03"))).toEqual(["create 10:00:00"])
  })

  it("stops the ticks and the timer if it pauses", () => {
    const paused = changed(2, { active: false }, scheduled("09:30:00"))
    const decision = look(paused, "10:30:00", [], "09:40:00")
    expect(acts(decision)).toEqual(["status 09:30:00 next undefined"])
    expect(reasons(decision)).toEqual(["Paused"])
    expect(decision.requeueAfter).toBeUndefined()
    expect(decision.status?.conditions).toMatchObject([{ type: "Ready", status: "True", reason: "Paused" }])
  })

  it("fires no tick of the pause if it resumes, even if no reconcile saw the pause", () => {
    const before = changed(2, { active: false }, scheduled("09:30:00"))
    const paused = withStatus(before, look(before, "09:50:00", [], "09:40:00"))
    const resumed = changed(3, { active: true }, paused)
    expect(acts(look(resumed, "12:30:00", [], "12:30:00"))).toEqual(["status 12:30:00 next 13:00:00"])
    // Paused and resumed while no controller ran.
    const unseen = changed(3, {}, scheduled("09:30:00"))
    expect(acts(look(unseen, "12:30:00", [], "12:20:00"))).toEqual(["status 12:20:00 next 13:00:00"])
    // A tick after the resumption fires late.
    expect(acts(look(unseen, "13:10:00", [], "12:20:00"))).toEqual(["create 13:00:00"])
  })

  it("corrects a time that a wrong clock wrote years ahead", () => {
    const future = scheduled("09:30:00", { status: { countsFrom: "2040-01-01T00:00:00Z" } })
    expect(acts(look(future, "10:30:00"))).toEqual(["status 10:30:00 next 11:00:00"])
    const other = changed(2, { schedule: "*/10 * * * *" }, future)
    expect(acts(look(other, "10:35:00", [], "10:35:00"))).toEqual(["status 10:35:00 next 10:40:00"])
  })
})

describe("an invalid CronJob", () => {
  it.each([
    ["a schedule", "InvalidSchedule", { schedule: "0 0 31 2 *" }, /schedule.*never occurs/],
    ["seconds", "InvalidSchedule", { schedule: "0 0 * * * *" }, /five fields/],
    ["a definition", "InvalidDefinition", { jobDefinition: { image: "two words" } }, /jobDefinition\.image/],
    ["a field", "InvalidDefinition", { jobDefinition: { image: "a", name: "b" } as never }, /jobDefinition\.name/],
  ])("gets a condition and an event, but no Job and no timer: %s", (_, reason, spec, message) => {
    const decision = look(cronJob({ spec }), "10:30:00", [], "09:30:00")
    expect(decision.actions).toEqual([])
    expect(decision.status?.conditions).toMatchObject([
      { type: "Ready", status: "False", reason },
      { type: "Stalled", status: "True" },
    ])
    expect(decision.events).toEqual([{ type: "Warning", reason, message: expect.stringMatching(message) }])
    expect(decision.requeueAfter).toBeUndefined()
    const next = look(withStatus(cronJob({ spec }), decision), "10:31:00", [], "09:30:00")
    expect([acts(next), next.events]).toEqual([[], []])
  })

  it("counts ticks from the moment it is valid again, even without a change of its spec", () => {
    const invalid = cronJob({ spec: { jobDefinition: { image: "two words" } } })
    const valid = { ...withStatus(invalid, look(invalid, "09:31:00", [], "09:30:00")), spec: cronJob().spec }
    const decision = look(valid, "12:30:00", [], "09:30:00")
    expect(acts(decision)).toEqual(["status 12:30:00 next 13:00:00"])
    expect(decision.status?.conditions).toMatchObject([
      { type: "Ready", status: "True" },
      { type: "Stalled", status: "False" },
    ])
  })
})

describe("history limits", () => {
  const spec = { successfulJobsHistoryLimit: 1, failedJobsHistoryLimit: 0 }
  const jobs = [
    job("05:00:00"),
    job("07:00:00", "failed"),
    job("06:00:00"),
    job("08:00:00", "cancelled"),
    job("09:00:00", "running"),
  ]
  const names = (...ticks: string[]): string[] => ticks.map((tick) => `deleteJob ${jobName(cronJob(), at(tick))}`)

  it("are off unless they are set", () => {
    expect(
      acts(look(scheduled("09:30:00", { status: { lastTriggeredTime: written("09:00:00") } }), "09:40:00", jobs)),
    ).toEqual([])
  })

  it("delete the oldest finished Jobs, per outcome", () => {
    const status = { lastTriggeredTime: written("09:00:00") }
    const decision = look(scheduled("09:30:00", { spec, status }), "09:40:00", jobs)
    expect(acts(decision)).toEqual(names("05:00:00", "08:00:00", "07:00:00"))
  })

  it("count a Job that a person ran, which has no tick", () => {
    const byHand = job("08:30:00")
    delete byHand.metadata.annotations
    byHand.metadata.name = "hourly-by-hand"
    const one = { successfulJobsHistoryLimit: 1 }
    const status = { lastTriggeredTime: written("09:00:00") }
    const decision = look(scheduled("09:30:00", { spec: one, status }), "09:40:00", [byHand, job("09:00:00")])
    expect(decision.actions).toHaveLength(1)
    expect(look(scheduled("09:30:00", { spec: one, status }), "09:40:00", [byHand]).actions).toEqual([])
  })

  it("keep a Job whose tick is not recorded yet", () => {
    const none = { successfulJobsHistoryLimit: 0 }
    expect(acts(look(scheduled("09:30:00", { spec: none }), "10:00:01", [job("10:00:00")]))).toEqual([
      "status 10:00:00 next 11:00:00",
    ])
  })
})

describe("a deletion", () => {
  const jobs = [job("09:00:00"), job("10:00:00", "running"), job("11:00:00", "booting", { cancelled: true })]
  const deleted = { deletionTimestamp: written("11:10:00") }

  it("leaves the Jobs alone and creates no more", () => {
    expect(look(cronJob({ metadata: deleted }), "11:10:00", jobs)).toEqual({ actions: [], events: [] })
  })

  it("cancels unfinished Jobs if there is the finalizer, and does not wait for their end", () => {
    const metadata = { ...deleted, finalizers: ["other", CANCEL_JOBS_FINALIZER] }
    const decision = look(cronJob({ metadata }), "11:10:00", jobs)
    expect(acts(decision)).toEqual(["cancelJob hourly-20260501t100000z", "dropFinalizer"])
  })
})

describe("the Job of a tick", () => {
  it("has a valid name for any length of the CronJob's name", () => {
    const tick = at("10:00:00")
    expect(jobName(cronJob(), tick)).toBe("hourly-20260501t100000z")
    const longest = jobName(cronJob({ metadata: { name: `${"a".repeat(99)}-x.x0` } }), tick, 9)
    expect(longest).toBe(`${"a".repeat(99)}--20260501t100000z-9`)
    expect(longest.length).toBeLessThanOrEqual(128)
    expect(jobName(cronJob({ metadata: { name: "a".repeat(104) } }), tick, 9).length).toBeLessThanOrEqual(128)
  })

  it("names its CronJob and its tick", () => {
    const { metadata } = buildJob(cronJob(), { tick: at("10:00:00"), createdAt: "now", expectedSeconds: 90 })
    expect(metadata.labels).toEqual({ [LABELS.cronJobUid]: UID })
    expect(metadata.annotations).toMatchObject({
      [CRON_JOB_ANNOTATIONS.name]: "hourly",
      [CRON_JOB_ANNOTATIONS.scheduledTime]: written("10:00:00"),
      [CRON_JOB_ANNOTATIONS.expectedSeconds]: "90",
    })
  })
})

describe("a CronJob whose project is full or is being deleted", () => {
  const blocked = { reason: "ProjectLimit" as const, message: "the project has 3 unfinished jobs" }

  it("skips the tick, says so in Ready until a tick gets its Job, and then fires at the next tick", () => {
    const before = scheduled("09:30:00")
    const skipped = decide(before, { jobs: [], changedAt: undefined, blocked }, at("10:00:01"))
    expect(skipped.actions).toEqual([])
    expect(skipped.status).toMatchObject({ countsFrom: written("10:00:00"), nextTriggerTime: written("11:00:00") })
    expect(skipped.status?.conditions).toContainEqual(
      expect.objectContaining({ type: "Ready", status: "False", ...blocked }),
    )
    expect(skipped.events).toContainEqual({
      type: "Warning",
      reason: "ProjectLimit",
      message: "skipped 1 tick after 2026-05-01T09:30:00Z: the project has 3 unfinished jobs",
    })
    const after = { ...before, ...(skipped.status && { status: skipped.status }) }
    expect(decide(after, { jobs: [], changedAt: undefined }, at("10:30:00")).status).toBeUndefined()
    const next = decide(after, { jobs: [], changedAt: undefined }, at("11:00:01"))
    expect(next.actions.map((action) => action.do)).toEqual(["createJob"])
  })
})
