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
import type { Scenario } from "./crash-play.ts"
import type { Work, World } from "./crash-world.ts"

const idle: Work = () => Promise.resolve()
const succeed: Work = (launch, world) => world.succeed(launch.metadata.name)

/** The container fails once, and is run again in the same VM. */
const retry: Work = async ({ metadata, status }, world) => {
  if (status?.agent?.retryCount === 1) await world.succeed(metadata.name)
  else await world.reports.report(metadata.name, () => ({ retryCount: 1, lastExitCode: 7 }))
}

/** The cloud takes the first VM back as soon as the job is known to run in it. */
const lose: Work = async (launch, world) => {
  if (launch.spec.number > 1) return await world.succeed(launch.metadata.name)
  const id = launch.status?.vm?.id
  if (id === undefined || (await world.job())?.status?.phase !== "running" || !world.once("lost")) return
  await world.takeBack(launch.metadata.name, id)
}

/** The job has ended with its cost final, or is gone; its Launches are over. */
async function isJobOver(world: World, name = "job"): Promise<boolean> {
  const job = await world.job(name)
  const isDone =
    job === undefined || (job.status?.cost?.actualUsd !== undefined && job.status.vm?.state === "terminated")
  return isDone && (await world.launches()).every(isOver)
}

/** A job, what its agents do, and what people do once it runs. */
function jobStory(work: Work, then?: (world: World) => Promise<void>, spec: Partial<JobSpec> = {}): Scenario {
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

/** Longer than the job may run, and the time that its agent has to see to it. In steps, so that the lease is kept. */
async function overrun(world: World): Promise<void> {
  for (let passed = 0; passed < 190; passed += 10) {
    world.clock.advance(10)
    await world.alive()
  }
}

/** People change their mind as soon as there is a VM, whoever knows of it. */
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
  ...jobStory(succeed),
  begin: async (world) => {
    world.theatre.sellOut()
    await world.submit("job")
  },
}

/** On a cloud. */
export const JOB_STORIES: Readonly<Record<string, Scenario>> = {
  success: jobStory(succeed),
  retry: jobStory(retry, undefined, { maxRetries: 1 }),
  cancel: jobStory(idle, cancel),
  delete: jobStory(idle, remove),
  "cancel at boot": atBoot(cancel),
  "delete at boot": atBoot(remove),
  // One offer alone fits: which of two comes next depends on how long the lost one has rested.
  // It waits while that one rests, which is over before a slow operator has looked.
  "spot loss": { ...jobStory(lose, undefined, { resources: { cpu: 3 } }), passing: ["Job NoCapacity"] },
  failover,
  timeout: jobStory(idle, overrun, { timeoutSeconds: 60 }),
}

/** One tick of a CronJob, whose Job then runs. */
const cron: Scenario = {
  begin: async (world) => {
    // In two minutes, and then in an hour.
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

/** A key that is to expire once it has its rights, and is then deleted. */
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
    // Not from its beginning: it might be over before the operator has looked at the key at all.
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

/** When its credentials were found to be good, if they are now. */
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

/** Which credentials were found good first. */
const firstVerified = new WeakMap<World, string>()

/** Its credentials are changed once they were found good. */
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

/** It is deleted once its credentials were found good, with the Secret that holds them. */
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

/** Without a cloud, or on any. */
export const OTHER_STORIES: Readonly<Record<string, Scenario>> = {
  "cron tick": cron,
  "key: made, expired, deleted": key,
  "connection: made, changed": connectionChanged,
  "connection: made, deleted": connectionDeleted,
}
