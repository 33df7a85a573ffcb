import { randomBytes } from "node:crypto"
import { isBound } from "../../src/apis/apikey.ts"
import { timestamp } from "../../src/apis/clock.ts"
import { findCondition } from "../../src/apis/conditions.ts"
import type { StoredConnection } from "../../src/apis/connection.ts"
import type { StoredCronJob } from "../../src/apis/cronjob.ts"
import type { JobSpec } from "../../src/apis/job.ts"
import { isOver } from "../../src/apis/launch.ts"
import { API_VERSION } from "../../src/apis/meta.ts"
import { API_KEYS } from "../../src/controllers/apikey/options.ts"
import { CONNECTIONS } from "../../src/controllers/connection/options.ts"
import { CRON_JOBS } from "../../src/controllers/cronjob/options.ts"
import { makeApiKey } from "../../src/identity/apikeys.ts"
import { SECRETS } from "../../src/kube/core.ts"
import { ifFound } from "../../src/kube/errors.ts"
import { JOBS } from "../controllers/harness.ts"
import type { Scenario } from "./crash-run.ts"
import type { Work, World } from "./crash-world.ts"

const idle: Work = () => Promise.resolve()
const succeed: Work = (launch, world) => world.succeed(launch.metadata.name)

/** The container fails once and is retried in the same VM. */
const retry: Work = async ({ metadata, status }, world) => {
  if (status?.agent?.retryCount === 1) await world.succeed(metadata.name)
  else await world.reports.report(metadata.name, () => ({ retryCount: 1, lastExitCode: 7 }))
}

/** The cloud preempts the first VM as soon as its job runs. */
const lose: Work = async (launch, world) => {
  if (launch.spec.number > 1) return await world.succeed(launch.metadata.name)
  const id = launch.status?.vm?.id
  if (id === undefined || (await world.job())?.status?.phase !== "running" || !world.once("lost")) return
  await world.takeBack(launch.metadata.name, id)
}

/** Returns true if the job has its final cost or is deleted, and its Launches are terminated. */
async function isJobOver(world: World, name = "job"): Promise<boolean> {
  const job = await world.job(name)
  const isDone =
    job === undefined || (job.status?.cost?.actualUsd !== undefined && job.status.vm?.state === "terminated")
  return isDone && (await world.launches()).every(isOver)
}

/** Returns the scenario of a job, with the actions of its agents, and of users once it runs. */
function jobScenario(work: Work, then?: (world: World) => Promise<void>, spec: Partial<JobSpec> = {}): Scenario {
  return {
    begin: (world) => world.submit("job", spec),
    go: async (world) => {
      await world.agents(work)
      if (then === undefined || (await world.job())?.status?.phase !== "running" || !world.once("then")) return
      world.mayKill = true
      await then(world)
    },
    isOver: (world) => isJobOver(world),
  }
}

const ref = (world: World, name = "job") => ({ namespace: world.namespace, name })

async function cancel(world: World): Promise<void> {
  await world.client.patch(JOBS, ref(world), { merge: { spec: { cancelled: true } } })
}

async function remove(world: World): Promise<void> {
  await world.client.delete(JOBS, ref(world))
}

/** Advances the clock beyond the job's timeout and the agent's grace period, in steps that keep the lease. */
async function overrun(world: World): Promise<void> {
  for (let passed = 0; passed < 190; passed += 10) {
    world.clock.advance(10)
    await world.alive()
  }
}

/** Returns a scenario in which users act as soon as there is a VM, whether or not the operator has seen it. */
function atBoot(then: (world: World) => Promise<void>): Scenario {
  return {
    begin: (world) => world.submit("job"),
    go: async (world) => {
      if ((await world.alive()).length > 0 && world.once("then")) await then(world)
    },
    isOver: (world) => isJobOver(world),
  }
}

const failover: Scenario = {
  ...jobScenario(succeed),
  begin: async (world) => {
    world.fixture.sellOut()
    await world.submit("job")
  },
}

/** Scenarios that need a cloud. */
export const JOB_SCENARIOS: Readonly<Record<string, Scenario>> = {
  success: jobScenario(succeed),
  "success over REST": { ...jobScenario(succeed), begin: (world) => world.post("job") },
  retry: jobScenario(retry, undefined, { maxRetries: 1 }),
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
  begin: async (world) => {
    // The schedule fires in two minutes, and again an hour later.
    const minute = new Date(world.clock.now().getTime() + 120_000).getUTCMinutes()
    const cronJob = {
      ...{ apiVersion: API_VERSION, kind: "CronJob", metadata: { name: "cron", namespace: world.namespace } },
      spec: { schedule: `${minute} * * * *`, jobDefinition: { image: "busybox" } },
    }
    await world.client.create(CRON_JOBS, cronJob as StoredCronJob)
  },
  go: (world) => world.agents(succeed),
  isOver: async (world) => {
    const { items } = await world.client.list(JOBS, { namespace: world.namespace })
    const [job] = items
    if (job === undefined) return false
    const cronJob = await world.client.get(CRON_JOBS, ref(world, "cron"))
    return cronJob.status?.lastTriggeredTime !== undefined && (await isJobOver(world, job.metadata.name))
  },
}

/** An API key that expires once it has its rights, and is then deleted. */
const key: Scenario = {
  begin: async (world) => {
    const { keyId, tokenHash } = makeApiKey()
    await world.client.create(API_KEYS, {
      ...{ apiVersion: API_VERSION, kind: "ApiKey", metadata: { name: "key", namespace: world.namespace } },
      spec: { role: "developer", keyId, tokenHash },
    } as never)
  },
  go: async (world) => {
    const found = await ifFound(world.client.get(API_KEYS, ref(world, "key")))
    if (found === undefined) return
    // Set late: the key must not expire before the operator has seen it.
    const expiresAt = timestamp(new Date(world.clock.now().getTime() + 120_000))
    if (isBound(found) && world.once("expires"))
      await world.client.patch(API_KEYS, ref(world, "key"), { merge: { spec: { expiresAt } } })
    const isExpired = findCondition(found.status?.conditions, "Ready")?.reason === "Expired"
    if (isExpired && world.once("deleted")) await world.client.delete(API_KEYS, ref(world, "key"))
  },
  isOver: async (world) => (await ifFound(world.client.get(API_KEYS, ref(world, "key")))) === undefined,
}

function fields(world: World): Record<string, string> {
  const secret = randomBytes(12).toString("hex")
  world.provider.issue(`account-${world.id}`, secret)
  const all = { access_key_id: "AKIAIOSFODNN7EXAMPLE", secret_access_key: secret }
  return Object.fromEntries(Object.entries(all).map(([name, value]) => [name, btoa(value)]))
}

/** Returns the time at which its current credentials were verified, or undefined. */
async function verifiedCredentials(world: World): Promise<string | undefined> {
  const found = await world.client.get(CONNECTIONS, ref(world, "connection"))
  const isReady = findCondition(found.status?.conditions, "Ready")?.status === "True"
  return isReady ? found.status?.verifiedCredentials : undefined
}

async function connect(world: World): Promise<void> {
  await world.addProject()
  const metadata = { name: "connection", namespace: world.namespace }
  await world.client.create(SECRETS, { metadata, type: "berth.dev/connection", data: fields(world) })
  const spec = { type: "aws", credentialsSecretRef: { name: "connection" } }
  await world.client.create(CONNECTIONS, { metadata, spec } as StoredConnection)
}

/** Time of the first verification of each world. */
const firstVerified = new WeakMap<World, string>()

/** The credentials of a connection change after their verification. */
const connectionChanged: Scenario = {
  begin: connect,
  go: async (world) => {
    const verified = await verifiedCredentials(world)
    if (verified === undefined || !world.once("changed")) return
    firstVerified.set(world, verified)
    await world.client.patch(SECRETS, ref(world, "connection"), { merge: { data: fields(world) } })
  },
  isOver: async (world) => {
    const first = firstVerified.get(world)
    const verified = await verifiedCredentials(world)
    return first !== undefined && verified !== undefined && verified !== first
  },
}

/** A connection is deleted after its verification, together with its Secret. */
const connectionDeleted: Scenario = {
  begin: connect,
  go: async (world) => {
    const found = await ifFound(world.client.get(CONNECTIONS, ref(world, "connection")))
    if (found === undefined || (await verifiedCredentials(world)) === undefined || !world.once("deleted")) return
    for (const resource of [CONNECTIONS, SECRETS])
      await world.client.delete(resource as typeof SECRETS, ref(world, "connection"))
  },
  isOver: async (world) => (await ifFound(world.client.get(CONNECTIONS, ref(world, "connection")))) === undefined,
}

/** Scenarios that need no cloud, or run on any. */
export const OTHER_SCENARIOS: Readonly<Record<string, Scenario>> = {
  "cron tick": cron,
  "key: made, expired, deleted": key,
  "connection: made, changed": connectionChanged,
  "connection: made, deleted": connectionDeleted,
}
