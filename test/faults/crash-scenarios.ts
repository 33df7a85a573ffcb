import { randomBytes } from "node:crypto"
import { isBound } from "../../src/core/apis/apikey.ts"
import { timestamp } from "../../src/core/apis/clock.ts"
import { findCondition } from "../../src/core/apis/conditions.ts"
import type { StoredConnection } from "../../src/core/apis/connection.ts"
import type { StoredCronJob } from "../../src/core/apis/cronjob.ts"
import { JOB_FINALIZER, JobReason, type JobSpec } from "../../src/core/apis/job.ts"
import { hasArrayEnded, type JobArraySpec, type StoredJobArray } from "../../src/core/apis/jobarray.ts"
import { isOver, type StoredLaunch } from "../../src/core/apis/launch.ts"
import { API_VERSION } from "../../src/core/apis/meta.ts"
import { makeApiKey } from "../../src/core/identity/apikeys.ts"
import { SECRETS } from "../../src/core/kube/core.ts"
import { ifFound } from "../../src/core/kube/errors.ts"
import { API_KEYS, CONNECTIONS, CRON_JOBS, JOB_ARRAYS, JOBS } from "../../src/core/resources.ts"
import { JOB_DEFAULTS } from "../../src/market/placement/settings.ts"
import { deriveFacts } from "../../src/operator/job/facts.ts"
import { render } from "../../src/operator/job/render.ts"
import { marketOf, seenOf } from "../harness/builders.ts"
import type { Fixture, Work } from "./crash-fixture.ts"
import type { Scenario } from "./crash-run.ts"

const idle: Work = () => Promise.resolve()
/** The container succeeds. */
export const succeed: Work = (launch, fixture) => fixture.succeed(launch.metadata.name)

/** Number of an agent's steps from its registration to its end. */
const STEPS = 3

/**
 * A VM that runs its whole life at once and ends itself. So it has ended before its creation is recorded, if the operator
 * dies right after the create call.
 */
export const quickLife: Scenario = {
  begin: (fixture) => fixture.submit("job"),
  go: async (fixture) => {
    for (let step = 0; step < STEPS; step++) {
      await fixture.agents((launch) => fixture.succeedAndPowerOff(launch.metadata.name))
    }
  },
  isOver: (fixture) => isJobOver(fixture),
  // The id of a VM that ended unrecorded, and the message that names what it is billed from.
  unknowable: ["id", "message"],
}

/** The container fails once and is retried in the same VM. */
const retry: Work = async ({ metadata, status }, fixture) => {
  if (status?.agent?.retryCount === 1) await fixture.succeed(metadata.name)
  else await fixture.reports.report(metadata.name, () => ({ retryCount: 1, lastExitCode: 7 }))
}

/** The container fails on its first VM, and succeeds on the next one. */
const failOnce: Work = (launch, fixture) =>
  launch.spec.number === 1 ? fixture.fail(launch.metadata.name) : fixture.succeed(launch.metadata.name)

/** The container runs out of memory on its first VM, and succeeds on the next one, which has more. */
const outgrow: Work = (launch, fixture) =>
  launch.spec.offer.memoryGib < 16
    ? fixture.fail(launch.metadata.name, "OutOfMemory")
    : fixture.succeed(launch.metadata.name)

/** The cloud preempts the first VM as soon as its job runs. */
export const lose: Work = async (launch, fixture) => {
  if (launch.spec.number > 1) return await fixture.succeed(launch.metadata.name)
  const id = launch.status?.vm?.id
  if (id === undefined || (await fixture.job())?.status?.phase !== "running" || !fixture.once("lost")) return
  await fixture.takeBack(launch.metadata.name, id)
}

/** Returns true if the job has its final cost or is deleted, and its Launches are terminated and counted. */
export async function isJobOver(fixture: Fixture, name = "job"): Promise<boolean> {
  const job = await fixture.job(name)
  const isDone =
    job === undefined || (job.status?.cost?.actualUsd !== undefined && job.status.vm?.state === "terminated")
  const isReleased = (launch: StoredLaunch) => isOver(launch) && !launch.metadata.finalizers?.length
  return isDone && (await fixture.launches()).every(isReleased)
}

/** Returns the scenario of a job, with the actions of its agents, and of users once it runs. */
export function jobScenario(
  work: Work,
  then?: (fixture: Fixture) => Promise<void>,
  spec: Partial<JobSpec> = {},
): Scenario {
  return {
    begin: (fixture) => fixture.submit("job", spec),
    go: async (fixture) => {
      await fixture.agents(work)
      if (then === undefined || (await fixture.job())?.status?.phase !== "running" || !fixture.once("then")) return
      fixture.mayKill = true
      await then(fixture)
    },
    isOver: (fixture) => isJobOver(fixture),
  }
}

const ref = (fixture: Fixture, name = "job") => ({ namespace: fixture.namespace, name })

async function cancel(fixture: Fixture): Promise<void> {
  await fixture.client.patch(JOBS, ref(fixture), { merge: { spec: { cancelled: true } } })
}

async function remove(fixture: Fixture): Promise<void> {
  await fixture.client.delete(JOBS, ref(fixture))
}

/** Advances the clock beyond the job's timeout and the agent's grace period, in steps that keep the lease. */
async function overrun(fixture: Fixture): Promise<void> {
  for (let passed = 0; passed < 190; passed += 10) {
    fixture.clock.advance(10)
    await fixture.alive()
  }
}

/** Returns a scenario in which users act as soon as there is a VM, whether or not the operator has seen it. */
function atBoot(then: (fixture: Fixture) => Promise<void>): Scenario {
  return {
    begin: (fixture) => fixture.submit("job"),
    go: async (fixture) => {
      if ((await fixture.alive()).length > 0 && fixture.once("then")) await then(fixture)
    },
    isOver: (fixture) => isJobOver(fixture),
  }
}

const failover: Scenario = {
  ...jobScenario(succeed),
  begin: async (fixture) => {
    await fixture.fixture.sellOut()
    await fixture.submit("job")
  },
}

/** Returns the next beginning of a month (UTC). */
function nextMonth(now: Date): Date {
  return new Date(Date.UTC(now.getUTCFullYear(), now.getUTCMonth() + 1, 1))
}

/** Name of the scenario of a VM that may end before it is recorded. */
export const QUICK_LIFE = "VM that ends itself at once"

/** Name of the scenario whose cost is in two Statements. */
export const MONTH_END = "end of a month"

/** The container runs when a month ends, so two Statements have parts of the cost. */
const monthEnd: Scenario = {
  ...jobScenario(async (launch, fixture) => {
    const end = nextMonth(new Date(launch.status?.vm?.createTime ?? ""))
    const left = (end.getTime() - fixture.clock.now().getTime()) / 1000
    if (left > -30) fixture.clock.advance(10)
    else await fixture.succeed(launch.metadata.name)
  }),
  begin: async (fixture) => {
    const now = fixture.clock.now()
    fixture.clock.advance((nextMonth(now).getTime() - now.getTime()) / 1000 - 120)
    await fixture.submit("job")
  },
}

/** A job is deleted after its TTL, when no cache has it anymore. */
const expiry: Scenario = {
  ...jobScenario(succeed, undefined, { ttlSecondsAfterFinished: 60 }),
  isOver: async (fixture) => (await fixture.job()) === undefined && (await isJobOver(fixture)),
}

/** An ended job whose end nothing awaits any more: it has a finalizer, and is not settled. */
const unsettled: Scenario = {
  begin: async (fixture) => {
    await fixture.submit("job")
    const merge = { metadata: { finalizers: [JOB_FINALIZER] } }
    const job = await fixture.client.patch(JOBS, ref(fixture), { merge })
    const verdict = { phase: "succeeded", reason: JobReason.Succeeded, message: "the container succeeded" } as const
    const observed = { launches: [], market: () => marketOf({}), ...seenOf(job) }
    const facts = deriveFacts(job, observed, fixture.clock.now(), JOB_DEFAULTS)
    const { settled: _, ...status } = render(facts, { verdict }).status
    await fixture.client.replaceStatus(JOBS, { ...job, status })
  },
  go: () => Promise.resolve(),
  isOver: async (fixture) => {
    const job = await fixture.job()
    return job?.status?.settled === true && !job.metadata.finalizers?.length
  },
}

/** Scenarios that need a cloud. */
export const JOB_SCENARIOS: Readonly<Record<string, Scenario>> = {
  success: jobScenario(succeed),
  "success over REST": { ...jobScenario(succeed), begin: (fixture) => fixture.post("job") },
  retry: jobScenario(retry, undefined, { maxRetries: 1 }),
  "new VM": jobScenario(failOnce, undefined, { retryRules: [{ exitCodes: [1], action: "newVm" }] }),
  "more memory": jobScenario(outgrow, undefined, { maxMemory: "32Gi" }),
  cancel: jobScenario(idle, cancel),
  delete: jobScenario(idle, remove),
  "cancel at boot": atBoot(cancel),
  "delete at boot": atBoot(remove),
  // Only one offer fits. With two, the choice would depend on the rest of the first one's cooldown. The job may wait
  // for the end of the cooldown, which a slow operator may not see.
  "spot loss": { ...jobScenario(lose, undefined, { resources: { cpu: 3 } }), passing: ["Job NoCapacity"] },
  failover,
  timeout: jobScenario(idle, overrun, { timeoutSeconds: 60 }),
}

/** One tick of a CronJob, whose Job then runs. */
const cron: Scenario = {
  begin: async (fixture) => {
    // The schedule fires in two minutes, and again an hour later.
    const minute = new Date(fixture.clock.now().getTime() + 120_000).getUTCMinutes()
    const cronJob = {
      ...{ apiVersion: API_VERSION, kind: "CronJob", metadata: { name: "cron", namespace: fixture.namespace } },
      spec: { schedule: `${minute} * * * *`, jobDefinition: { image: "busybox" } },
    }
    await fixture.client.create(CRON_JOBS, cronJob as StoredCronJob)
  },
  go: (fixture) => fixture.agents(succeed),
  isOver: async (fixture) => {
    const { items } = await fixture.client.list(JOBS, { namespace: fixture.namespace })
    const [job] = items
    if (job === undefined) return false
    const cronJob = await fixture.client.get(CRON_JOBS, ref(fixture, "cron"))
    return cronJob.status?.lastTriggeredTime !== undefined && (await isJobOver(fixture, job.metadata.name))
  },
}

/** Returns the scenario of an array. Its agents work; users act once, when its status is as they wait for. */
function arrayScenario(
  spec: Partial<JobArraySpec>,
  work: Work,
  then?: { when: (array: StoredJobArray) => boolean; act: (fixture: Fixture) => Promise<unknown> },
): Scenario {
  const read = (fixture: Fixture) => ifFound(fixture.client.get(JOB_ARRAYS, ref(fixture, "array")))
  return {
    begin: async (fixture) => {
      const whole = { jobDefinition: { image: "busybox" }, ...spec }
      const array = { metadata: { name: "array", namespace: fixture.namespace }, spec: whole }
      await fixture.client.create(JOB_ARRAYS, array as StoredJobArray)
    },
    go: async (fixture) => {
      await fixture.agents(work)
      const array = await read(fixture)
      if (array === undefined || then?.when(array) !== true || !fixture.once("then")) return
      fixture.mayKill = true
      await then.act(fixture)
    },
    isOver: async (fixture) => {
      const array = await read(fixture)
      // It has a second end if its users act after the first. Until the operator has seen that, the status has the first.
      const isSeen = array?.status?.observedGeneration === array?.metadata.generation
      if (array !== undefined && (!isSeen || !hasArrayEnded(array) || then?.when(array) === true)) return false
      const { items } = await fixture.client.list(JOBS, { namespace: fixture.namespace })
      if (!items.every(({ status }) => status?.settled === true)) return false
      const isReleased = (launch: StoredLaunch) => isOver(launch) && !launch.metadata.finalizers?.length
      return (await fixture.launches()).every(isReleased)
    },
    // They depend on the moment of a reconcile.
    passing: ["JobArray Queued", "JobArray Running"],
  }
}

/** The first job of each index with this number fails. */
const failFirst =
  (index: number): Work =>
  async (launch, fixture) => {
    if (launch.spec.job.name === `array-${index}`) await fixture.fail(launch.metadata.name)
    else await fixture.succeed(launch.metadata.name)
  }

const changeArray = (spec: Partial<JobArraySpec>) => (fixture: Fixture) =>
  fixture.client.patch(JOB_ARRAYS, ref(fixture, "array"), { merge: { spec } })

/** An array whose failed index runs again. */
const arrayRetry = arrayScenario({ size: 2, parallelism: 2 }, failFirst(1), {
  when: ({ status, spec }) => status?.phase === "failed" && spec.retry === undefined,
  act: changeArray({ retry: { number: 1, indexes: "1" } }),
})

/** An array that is cancelled while its first job runs. */
const arrayCancel = arrayScenario({ size: 3, parallelism: 1 }, idle, {
  when: ({ status }) => status?.counts?.running === 1,
  act: changeArray({ cancelled: true }),
})

/** An array that is deleted while its first job runs. */
const arrayDelete = arrayScenario({ size: 2, parallelism: 1 }, idle, {
  when: ({ status }) => status?.counts?.running === 1,
  act: (fixture) => fixture.client.delete(JOB_ARRAYS, ref(fixture, "array")),
})

/** An API key that expires once it has its rights, and is then deleted. */
const key: Scenario = {
  begin: async (fixture) => {
    const { keyId, tokenHash } = makeApiKey()
    await fixture.client.create(API_KEYS, {
      ...{ apiVersion: API_VERSION, kind: "ApiKey", metadata: { name: "key", namespace: fixture.namespace } },
      spec: { role: "developer", keyId, tokenHash },
    } as never)
  },
  go: async (fixture) => {
    const found = await ifFound(fixture.client.get(API_KEYS, ref(fixture, "key")))
    if (found === undefined) return
    // Set late: the key must not expire before the operator has seen it.
    const expiresAt = timestamp(new Date(fixture.clock.now().getTime() + 120_000))
    if (isBound(found) && fixture.once("expires"))
      await fixture.client.patch(API_KEYS, ref(fixture, "key"), { merge: { spec: { expiresAt } } })
    const isExpired = findCondition(found.status?.conditions, "Ready")?.reason === "Expired"
    if (isExpired && fixture.once("deleted")) await fixture.client.delete(API_KEYS, ref(fixture, "key"))
  },
  isOver: async (fixture) => (await ifFound(fixture.client.get(API_KEYS, ref(fixture, "key")))) === undefined,
}

function fields(fixture: Fixture): Record<string, string> {
  const secret = randomBytes(12).toString("hex")
  fixture.provider.issue(`account-${fixture.id}`, secret)
  const all = { access_key_id: "AKIAIOSFODNN7EXAMPLE", secret_access_key: secret }
  return Object.fromEntries(Object.entries(all).map(([name, value]) => [name, btoa(value)]))
}

/** Returns the time at which its current credentials were verified, or undefined. */
async function verifiedCredentials(fixture: Fixture): Promise<string | undefined> {
  const found = await fixture.client.get(CONNECTIONS, ref(fixture, "connection"))
  const isReady = findCondition(found.status?.conditions, "Ready")?.status === "True"
  return isReady ? found.status?.verifiedCredentials : undefined
}

async function connect(fixture: Fixture): Promise<void> {
  await fixture.addProject()
  const metadata = { name: "connection", namespace: fixture.namespace }
  await fixture.client.create(SECRETS, { metadata, type: "berth.dev/connection", data: fields(fixture) })
  const spec = { type: "aws", credentialsSecretRef: { name: "connection" } }
  await fixture.client.create(CONNECTIONS, { metadata, spec } as StoredConnection)
}

/** Time of the first verification of each fixture. */
const firstVerified = new WeakMap<Fixture, string>()

/** The credentials of a connection change after their verification. */
const connectionChanged: Scenario = {
  begin: connect,
  go: async (fixture) => {
    const verified = await verifiedCredentials(fixture)
    if (verified === undefined || !fixture.once("changed")) return
    firstVerified.set(fixture, verified)
    await fixture.client.patch(SECRETS, ref(fixture, "connection"), { merge: { data: fields(fixture) } })
  },
  isOver: async (fixture) => {
    const first = firstVerified.get(fixture)
    const verified = await verifiedCredentials(fixture)
    return first !== undefined && verified !== undefined && verified !== first
  },
}

/** A connection is deleted after its verification, together with its Secret. */
const connectionDeleted: Scenario = {
  begin: connect,
  go: async (fixture) => {
    const found = await ifFound(fixture.client.get(CONNECTIONS, ref(fixture, "connection")))
    if (found === undefined || (await verifiedCredentials(fixture)) === undefined || !fixture.once("deleted")) return
    for (const resource of [CONNECTIONS, SECRETS])
      await fixture.client.delete(resource as typeof SECRETS, ref(fixture, "connection"))
  },
  isOver: async (fixture) => (await ifFound(fixture.client.get(CONNECTIONS, ref(fixture, "connection")))) === undefined,
}

/** Scenarios that need no cloud, or run on any. */
export const OTHER_SCENARIOS: Readonly<Record<string, Scenario>> = {
  [MONTH_END]: monthEnd,
  [QUICK_LIFE]: quickLife,
  "deletion after the TTL": expiry,
  "ended job that is not settled": unsettled,
  "cron tick": cron,
  array: arrayScenario({ size: 2, parallelism: 1 }, succeed),
  "array: one fails, then runs again": arrayRetry,
  "array: cancelled": arrayCancel,
  "array: deleted": arrayDelete,
  "key: made, expired, deleted": key,
  "connection: made, changed": connectionChanged,
  "connection: made, deleted": connectionDeleted,
}
