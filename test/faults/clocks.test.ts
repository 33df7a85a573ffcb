import type { TSchema } from "typebox"
import { describe, expect, it } from "vitest"
import { isExpired } from "../../src/core/apis/apikey.ts"
import type { StoredConnection } from "../../src/core/apis/connection.ts"
import type { StoredCronJob } from "../../src/core/apis/cronjob.ts"
import { JOB_ARRAY_FINALIZER, type StoredJobArray } from "../../src/core/apis/jobarray.ts"
import { KINDS } from "../../src/core/apis/kinds.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import { ANNOTATIONS, LABELS } from "../../src/core/apis/meta.ts"
import { isSubmissionTimely } from "../../src/core/apis/origin.ts"
import { monthOf } from "../../src/core/apis/statement.ts"
import type { StoredWebhook } from "../../src/core/apis/webhook.ts"
import { SharedHeartbeats } from "../../src/core/kube/heartbeats.ts"
import { limitForCronJobRun } from "../../src/core/quota/project-limits.ts"
import { availabilityOf, idlenessOf, idleSecondsLeft } from "../../src/core/reuse/reuse.ts"
import { retryAfter, retryDelay } from "../../src/core/webhooks/retry.ts"
import { webhookReceiver } from "../../src/core/webhooks/secret.ts"
import { newSigningSecret } from "../../src/core/webhooks/signature.ts"
import { pausedAccounts } from "../../src/market/placement/breaker.ts"
import { findCooldowns } from "../../src/market/placement/cooldowns.ts"
import { launchHistory } from "../../src/market/placement/ledger.ts"
import { isDue, toWaiter } from "../../src/market/placement/line.ts"
import { JOB_DEFAULTS } from "../../src/market/placement/settings.ts"
import { decide as decideArray } from "../../src/operator/array/decide.ts"
import { decide as decideConnection } from "../../src/operator/connection/decide.ts"
import { CONNECTION_DEFAULTS } from "../../src/operator/connection/settings.ts"
import { scheduleState } from "../../src/operator/cronjob/schedule.ts"
import { ElapsedTimes, settlesIn } from "../../src/operator/elapsed.ts"
import { abandonedStatus } from "../../src/operator/launch/decide.ts"
import { type Heard, nextHeard, timedOutLaunches } from "../../src/operator/launch/observe.ts"
import { HEARTBEAT_DEFAULTS, LAUNCH_DEFAULTS } from "../../src/operator/launch/settings.ts"
import { HeardHosts } from "../../src/operator/machine/heard.ts"
import { Backlog, backlogStart } from "../../src/operator/webhook/backlog.ts"
import { WEBHOOK_DEFAULTS } from "../../src/operator/webhook/settings.ts"
import { agentOf, at, jobOf, launchOf, machineOf, T0, time, vmStatus } from "../harness/builders.ts"
import { ManualClock } from "../harness/manual-clock.ts"
import { setUp, job as storedJob } from "../harness/usage.ts"

/**
 * Times that one process stores and a later one compares with its own clock. Each row has what the later process decides,
 * whose clock is right, if the writer's was right, two hours fast, or two hours slow. Only the difference counts: a reader
 * that is fast sees the times of a slow writer.
 */

const HOUR = 3600
const SKEW = 2 * HOUR
/** Present time of the reader. */
const NOW = at(0)

interface Row {
  /** Fields of kinds, as `Kind.path`, or another stored time in words. */
  times: readonly string[]
  /** Returns the decision at NOW. @param written returns the stored time of an event of so many seconds ago */
  decide: (written: (ago: number) => string) => unknown
  right: unknown
  fast: unknown
  slow: unknown
}

const hook = (status?: object) =>
  ({ metadata: { name: "h", uid: "h", creationTimestamp: time(-10 * HOUR) }, status }) as unknown as StoredWebhook
const launches = (all: readonly StoredLaunch[]) => launchHistory(all)
const LAUNCH_TERMS = { now: NOW, settings: JOB_DEFAULTS }

/** A VM of an hour ago that never registered, and ended lately. */
function deadBoot(terminationTime: string): StoredLaunch {
  const vm = { state: "terminated" as const, id: "vm", createTime: time(-HOUR), terminationTime }
  const metadata = { creationTimestamp: time(-HOUR) }
  return launchOf(jobOf(), 1, { metadata, spec: { ended: true }, status: { phase: "terminated", vm } })
}

function refused(refusalTime: string): StoredLaunch {
  const refusal = { class: "Capacity", code: "NoCapacity", message: "no capacity", time: refusalTime } as const
  const metadata = { creationTimestamp: time(-30) }
  return launchOf(jobOf(), 1, { metadata, status: { phase: "refused", message: "refused", refusal } })
}

const isPaused = (all: readonly StoredLaunch[]): boolean =>
  pausedAccounts([{ cloud: "sim" }], "team", launches(all), LAUNCH_TERMS).length > 0
const rests = (all: readonly StoredLaunch[]): boolean =>
  findCooldowns(launches(all), { namespace: "team", launchAccounts: [{ cloud: "sim" }] }, NOW, JOB_DEFAULTS).length > 0

function cronJob(status: object): StoredCronJob {
  const spec = { schedule: "0 * * * *", jobTemplate: { spec: { image: "a" } } }
  const metadata = { name: "c", uid: "c", generation: 1, creationTimestamp: time(-10 * HOUR) }
  const nextTriggerTime = time(0)
  const observed = { observedGeneration: 1, observedSchedule: spec.schedule, nextTriggerTime }
  return { metadata, spec, status: { ...observed, ...status } } as unknown as StoredCronJob
}

/** Returns the tick that is due 10 minutes after the hour, in seconds after it. */
function dueTick(status: object): number | undefined {
  const { due } = scheduleState(cronJob(status), { jobs: [], changedAt: undefined }, at(600))
  return due && (due.getTime() - T0.getTime()) / 1000
}

/** Returns if an agent counts as silent after looks once a minute for an hour. */
function isSilent(beats: (now: number) => string): boolean {
  let heard: Heard | undefined
  for (let now = 0; now <= HOUR; now += 60) heard = nextHeard(heard, new Date(beats(now)), at(now), HEARTBEAT_DEFAULTS)
  const lastHeartbeatTime = (heard as Heard).at.toISOString()
  const launch = launchOf(jobOf(), 1, { status: vmStatus({ agent: agentOf({ lastHeartbeatTime }) }) })
  return timedOutLaunches([launch], at(0), at(HOUR), HEARTBEAT_DEFAULTS).length === 1
}

/** Longest life of the VM of `launchOf`, seconds. */
const { spec: OF_A_VM } = launchOf(jobOf(), 1)
const LONGEST_LIFE = OF_A_VM.bootDeadlineSeconds + OF_A_VM.lifetimeSeconds + LAUNCH_DEFAULTS.lifetimeSlackSeconds

const ROWS: readonly Row[] = [
  {
    // A lease that ends too early runs a job twice.
    times: ["Machine.status.host.lastHeartbeatTime"],
    decide: (written) => {
      const clock = new ManualClock()
      const heard = new HeardHosts(clock)
      const machine = machineOf({ status: { host: { lastHeartbeatTime: written(0) } } })
      const first = heard.silence(machine)
      clock.advance(960)
      return [first, heard.silence(machine)]
    },
    right: [0, 960],
    fast: [0, 960],
    slow: [0, 960],
  },
  {
    // A cursor in the future says nothing: all ends since the webhook's creation may be sent again, and none is lost.
    times: ["Webhook.status.cursor"],
    decide: (written) => backlogStart(hook({ cursor: written(600) }), NOW, WEBHOOK_DEFAULTS),
    right: time(-600),
    fast: time(-10 * HOUR),
    slow: time(-600 - SKEW),
  },
  {
    times: ["Webhook.status.pending[].nextAttemptTime"],
    decide: (written) => retryDelay({ attempts: 1, nextAttemptTime: written(-5) }, NOW),
    right: 5,
    fast: 6,
    slow: 0,
  },
  {
    // Berth gives up two hours earlier or later of three days.
    times: ["Webhook.status.pending[].firstAttemptTime", "Webhook.status.failingSince"],
    decide: (written) => {
      const failed = { attempts: 20, firstAttemptTime: written(71 * HOUR) }
      return retryAfter(failed, NOW, { random: 0.5 }) === undefined ? "gives up" : "retries"
    },
    right: "retries",
    fast: "retries",
    slow: "gives up",
  },
  {
    // The hold of an hour counts from the start of the process at the earliest, so nothing is missed early.
    times: ["Webhook.status.pending[].time", "the transition time of a job's end"],
    decide: (written) => {
      const backlog = new Backlog(hook(), WEBHOOK_DEFAULTS, NOW)
      for (let i = 0; i < 102; i++)
        backlog.offer({ id: `${i}`, type: "job.failed", subject: "jobs/a", time: written(60), jobUid: `${i}` })
      return [20, HOUR + 60, 3 * HOUR + 60].map((later) => {
        backlog.expire(at(later))
        return backlog.status(at(later)).missedCount
      })
    },
    right: [0, 2, 2],
    fast: [0, 0, 2],
    slow: [0, 2, 2],
  },
  {
    // Both secrets sign for two hours more, or two hours less, of a day.
    times: ["the end of a former signing secret"],
    decide: (written) => {
      const secrets = { secret: newSigningSecret(), previousSecret: newSigningSecret(), previousUntil: written(-HOUR) }
      const receiver = webhookReceiver({ url: "https://a.example.com" }, secrets, NOW)
      return "secrets" in receiver ? receiver.secrets.length : receiver.errors
    },
    right: 2,
    fast: 2,
    slow: 1,
  },
  {
    // A fast writer has created the Jobs of the hours to come, so ticks count from now. A slow one leaves no gap.
    times: ["CronJob.status.countsFrom"],
    decide: (written) => dueTick({ countsFrom: written(1800) }),
    right: 0,
    fast: undefined,
    slow: 0,
  },
  {
    // A Job has the name of its tick, so a tick that counts again gets no second Job.
    times: ["CronJob.status.lastTriggeredTime"],
    decide: (written) => dueTick({ countsFrom: time(-1800), lastTriggeredTime: written(0) }),
    right: undefined,
    fast: 0,
    slow: 0,
  },
  {
    // An offer that was rejected is tried again at once, and rejected again. No offer rests longer than the maximum.
    times: ["Launch.status.refusal.time"],
    decide: (written) => rests([refused(written(30))]),
    right: true,
    fast: false,
    slow: false,
  },
  {
    times: ["Launch.status.agent.registrationTime"],
    decide: (written) => {
      const agent = agentOf({ registrationTime: written(3 * HOUR) })
      const metadata = { creationTimestamp: time(-3 * HOUR) }
      // Two hours behind, it is still older than what failed. Two hours ahead of an hour ago, it is in the future.
      const good = launchOf(jobOf(), 1, { metadata, status: vmStatus({ agent }) })
      const ahead = agentOf({ registrationTime: written(HOUR) })
      const later = launchOf(jobOf(), 2, { metadata, status: vmStatus({ agent: ahead }) })
      const five = Array.from({ length: 5 }, () => deadBoot(time(-60)))
      return [isPaused([...five, good, later]), rests([refused(time(-30)), good, later])]
    },
    right: [true, true],
    fast: [true, true],
    slow: [true, true],
  },
  {
    // The pause of 10 minutes is not made, or over. The next VMs that don't register make it.
    times: [
      "Launch.status.vm.terminationTime",
      "Launch.status.loss.time",
      "Launch.status.bootFailure.time",
      "Launch.status.consoleFailure.time",
    ],
    decide: (written) => isPaused(Array.from({ length: 5 }, () => deadBoot(written(60)))),
    right: true,
    fast: false,
    slow: false,
  },
  {
    times: ["Launch.status.agent.lastHeartbeatTime"],
    decide: (written) => ({
      live: isSilent((now) => written(-now)),
      ended: isSilent(() => written(30)),
    }),
    right: { live: false, ended: true },
    fast: { live: false, ended: true },
    slow: { live: false, ended: true },
  },
  {
    // A time in the future is ignored. Then the time of the Launch counts, and its changes.
    times: ["a heartbeat in a Lease"],
    decide: (written) => {
      const seconds = Date.parse(written(30)) / 1000
      const annotations = { [ANNOTATIONS.heartbeats]: `a:${seconds}` }
      const cache = {
        onChange: (handler: (change: object) => void) => {
          handler({ key: "l", current: { metadata: { annotations } } })
          return () => undefined
        },
      }
      return new SharedHeartbeats(cache as never, { now: () => NOW } as never).get("a")?.toISOString()
    },
    right: at(-30).toISOString(),
    fast: undefined,
    slow: at(-30 - SKEW).toISOString(),
  },
  {
    // The check of every so often comes in its interval at the latest.
    times: ["Connection.status.lastVerifiedTime"],
    decide: (written) => {
      const metadata = { name: "c", namespace: "team", uid: "c", generation: 1, creationTimestamp: time(-HOUR) }
      const conditions = [
        { type: "Ready", status: "True", reason: "Verified", message: "verified", observedGeneration: 1 },
      ]
      const status = { conditions, verifiedCredentials: "v", lastVerifiedTime: written(60) }
      const connection = { metadata, spec: { type: "aws" }, status } as unknown as StoredConnection
      const credentials = { fields: {}, version: "v", project: "p" }
      const observed = { credentials, isOutdated: false, regions: [] }
      const { requeueAfter = 0 } = decideConnection(connection, observed, NOW, CONNECTION_DEFAULTS)
      return requeueAfter <= CONNECTION_DEFAULTS.intervalSeconds
    },
    right: true,
    fast: true,
    slow: true,
  },
  {
    // The time is the user's own. A reader that is slow accepts the key for two hours more.
    times: ["ApiKey.spec.expiresAt"],
    decide: (written) => isExpired({ spec: { expiresAt: written(60) } } as never, NOW),
    right: true,
    fast: false,
    slow: true,
  },
  {
    // A new process can't know a time better than by its calendar. A negative age counts from its own start.
    times: [
      "Job.metadata.creationTimestamp for maxQueueSeconds",
      "Job.status.startTime",
      "Launch.status.agent.startTime",
    ],
    decide: (written) => {
      const clock = new ManualClock()
      clock.setCalendar(NOW.getTime() / 1000)
      return new ElapsedTimes(clock).seconds("job", { id: "u", since: written(60) })
    },
    right: 60,
    fast: 0,
    slow: 60 + SKEW,
  },
  {
    // A job that waits for a cap is passed for two hours more or less. It keeps its place in the line.
    times: ["Job.status.conditions[].lastTransitionTime for the line"],
    decide: (written) => {
      const job = jobOf({
        status: { conditions: [{ type: "Placed", status: "False", lastTransitionTime: written(60) }] },
      } as never)
      return isDue(toWaiter(job), { now: NOW, passSeconds: 600 })
    },
    right: false,
    fast: false,
    slow: true,
  },
  {
    // An ended object is kept for two hours more or less than its TTL. Webhooks get the end of a job in any case.
    times: ["JobArray.status.completionTime", "Job.status.completionTime"],
    decide: (written) => {
      const status = { phase: "cancelled", observedGeneration: 1, completionTime: written(60) }
      const ids = { name: "a", namespace: "team", uid: "a", generation: 1 }
      const metadata = { ...ids, creationTimestamp: time(-HOUR), finalizers: [JOB_ARRAY_FINALIZER] }
      const spec = { jobDefinition: { image: "a" }, size: 1, cancelled: true }
      const array = { metadata, spec, status } as unknown as StoredJobArray
      const observed = { jobs: [], settled: [], missing: new Set<number>(), taken: new Set<number>(), room: 0 }
      const { actions } = decideArray(array, observed, NOW, { ttlSeconds: HOUR })
      return actions.some((action) => action.do === "deleteArray")
    },
    right: false,
    fast: false,
    slow: true,
  },
  {
    // A state is written at once if its time is in the future. It waited until then.
    times: ["the time of a state of a VM"],
    decide: (written) => settlesIn(written(0.5), NOW, JOB_DEFAULTS) <= JOB_DEFAULTS.settleSeconds,
    right: true,
    fast: true,
    slow: true,
  },
  {
    // A VM that a cloud with revoked credentials can't list counts as ended by its lifetime, two hours earlier or later.
    times: ["Launch.status.unanswered.since", "Launch.status.vm.createTime"],
    decide: (written) => {
      const unanswered = { class: "Credentials", message: "denied", since: written(LONGEST_LIFE - HOUR) } as const
      const launch = launchOf(jobOf(), 1, { status: { phase: "requested", unanswered } })
      return abandonedStatus(launch, NOW, LAUNCH_DEFAULTS) === undefined ? "may run" : "has ended"
    },
    right: "may run",
    fast: "may run",
    slow: "has ended",
  },
  {
    // The agent counts the wait too, so a VM of a fast clock costs no more. One of a slow clock ends early.
    times: ["Launch.status.agent.idleTime"],
    decide: (written) => (idleSecondsLeft({ since: written(100), seconds: 300 }, NOW) > 0 ? "waits" : "ends"),
    right: "waits",
    fast: "waits",
    slow: "ends",
  },
  {
    // The agent counts the time too, by its own clock. A VM of a slow gateway ends early.
    times: ["Launch.status.agent.finish.keptUntil", "Launch.status.agent.finish.time"],
    decide: (written) => {
      const finish = { reason: "ContainerFailed", time: written(100), keptUntil: written(-200) } as const
      const launch = launchOf(jobOf(), 1, { status: { phase: "finished", agent: agentOf({ finish }) } })
      const idleness = idlenessOf(launch)
      return idleness.is === "debug" && idleSecondsLeft(idleness, NOW) > 0 ? "is kept" : "ends"
    },
    right: "is kept",
    fast: "is kept",
    slow: "ends",
  },
  {
    // The VM's own timer has a day beyond the longest time of its first job.
    times: ["Launch.status.vm.bootTime"],
    decide: (written) => {
      const run = { image: "busybox", reuse: { idleSeconds: 3600 } }
      const finish = { reason: "Succeeded", time: written(100) } as const
      const agent = agentOf({ finish, idleTime: NOW.toISOString() })
      const vm = { state: "running", id: "vm-1", bootTime: written(3600), createTime: written(300) } as const
      const spec = { run, root: "root-1", vmLifetimeSeconds: 5400 + 86_400 }
      const holder = launchOf(jobOf(), 2, { spec, status: { phase: "idle", vm, agent } })
      return availabilityOf(holder, holder, NOW).is
    },
    right: "now",
    fast: "now",
    slow: "now",
  },
  {
    // The minute is one of the API server's clock.
    times: ["CronJob's jobs: metadata.creationTimestamp"],
    decide: (written) => {
      const { jobs, quota, clock } = setUp({ cronJobRunsPerMinute: 2 })
      clock.setCalendar(NOW.getTime() / 1000)
      const created = Date.parse(written(5)) / 1000
      const labels = { [LABELS.cronJobUid]: "c" }
      for (const name of ["one", "two"]) jobs.put(storedJob(name, { labels, at: created }))
      const isFull = () => limitForCronJobRun(quota, "a") !== undefined
      const atOnce = isFull()
      clock.advance(61)
      return [atOnce, isFull()]
    },
    right: [true, false],
    fast: [true, false],
    slow: [true, false],
  },
  {
    // The record of a submission is dropped where clocks differ, so no new job counts as a copy.
    times: ["Job.metadata.annotations: created-at"],
    decide: (written) => {
      const annotations = { [ANNOTATIONS.createdAt]: written(0) }
      return isSubmissionTimely(jobOf({ metadata: { annotations, creationTimestamp: time(0) } }))
    },
    right: true,
    fast: false,
    slow: false,
  },
  {
    // Costs of two hours may count for the month before or after. None counts twice, and none is lost.
    times: ["the month of a Statement"],
    decide: (written) => monthOf(new Date(written(15 * 24 * HOUR))),
    right: "2026-04",
    fast: "2026-04",
    slow: "2026-04",
  },
]

/** Times that no process compares with its own clock, with the reason. */
const NOT_COMPARED: Record<string, string> = {
  "*.status.conditions[].lastTransitionTime":
    "shown; the line and the end of a job are rows of their own, and other events have it in their id",
  "*.spec.resumedTime": "any change of the spec enables a webhook",
  "Webhook.status.deliveries[].time": "shown",
  "Webhook.status.deliveries[].endTime": "shown",
  "Webhook.status.lastSuccessTime": "shown",
  "Job.status.refusedOffers[].time": "shown; cooldowns come from the Launches",
  "Job.status.retries[].time": "shown; the number of the Launch decides",
  "Job.status.cost.since": "compared with the VM's last heartbeat, which the same programs wrote",
  "Job.status.lastHeartbeatTime": "shown",
  "CronJob.status.nextTriggerTime": "shown; only its absence decides",
  "JobArray.status.startTime": "shown",
  "Connection.status.lastCheck.time": "shown; the request's own text decides",
  "Launch.status.agent.conflictTime": "only its presence decides",
  "Launch.status.agent.preemptionNotice": "only its presence decides",
  "Launch.status.agent.leaveTime": "only its presence decides; for the VM's cost it is compared with its other times",
  "Machine.status.host.joinTime": "shown",
  "Machine.status.host.freedTime": "only its presence decides; for the VM's cost it is the VM's terminationTime",
  "Machine.status.launch.createTime": "is the VM's createTime",
  "Machine.status.launch.previous[].createTime": "is the VM's createTime",
  "Machine.status.launch.previous[].terminationTime": "is the VM's terminationTime",
  "Machine.status.launch.endTime": "only its presence decides",
  "Machine.status.launch.lostTime": "only its presence decides; for the VM's cost it is the VM's terminationTime",
  "Job.status.keptUntil": "shown; only its presence decides",
}

/** Returns the paths of all date-times of a schema. */
function timesOf(schema: TSchema, path: string): string[] {
  const { format, properties, items, additionalProperties } = schema as {
    format?: string
    properties?: Record<string, TSchema>
    items?: TSchema
    additionalProperties?: TSchema | boolean
  }
  if (format === "date-time") return [path]
  return [
    ...Object.entries(properties ?? {}).flatMap(([name, inner]) => timesOf(inner, `${path}.${name}`)),
    ...(items === undefined ? [] : timesOf(items, `${path}[]`)),
    ...(typeof additionalProperties === "object" ? timesOf(additionalProperties, `${path}.*`) : []),
  ]
}

function isListed(path: string): boolean {
  const general = path.replace(/^[A-Za-z]+/, "*")
  return ROWS.some(({ times }) => times.includes(path)) || path in NOT_COMPARED || general in NOT_COMPARED
}

describe("a stored time that a later process compares with its clock", () => {
  it.each(ROWS.map((row) => [row.times.join(", "), row] as const))(
    "has these decisions with right, fast and slow clocks: %s",
    (_, { decide, right, fast, slow }) => {
      const by = (skew: number) => decide((ago) => time(skew - ago))
      expect({ right: by(0), fast: by(SKEW), slow: by(-SKEW) }).toEqual({ right, fast, slow })
    },
  )

  it("is in this table, or in the list of those that are not compared", () => {
    const all = KINDS.flatMap(({ kind, spec, status }) => [
      ...timesOf(spec, `${kind}.spec`),
      ...(status === undefined ? [] : timesOf(status, `${kind}.status`)),
    ])
    expect(all.filter((path) => !isListed(path))).toEqual([])
  })
})
