import { randomBytes } from "node:crypto"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { CONNECTION_CACHE, CREDENTIALS_SECRET_CACHE } from "../../src/accounts/caches.ts"
import { ConnectionClouds } from "../../src/accounts/connection-clouds.ts"
import { accountsInUse } from "../../src/accounts/launch-accounts.ts"
import type { LaunchSpec } from "../../src/clouds/cloud.ts"
import { accountOf } from "../../src/clouds/cloud.ts"
import { createClouds } from "../../src/clouds/provider.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import { findCondition } from "../../src/core/apis/conditions.ts"
import type { JobStatus } from "../../src/core/apis/job.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import type { VmSettings } from "../../src/core/apis/vm-settings.ts"
import { ensureInstallation } from "../../src/core/identity/installation.ts"
import { SECRETS } from "../../src/core/kube/core.ts"
import { Reflector } from "../../src/core/kube/reflector.ts"
import { CONNECTIONS, JOBS, LAUNCHES, PROJECTS } from "../../src/core/resources.ts"
import { LAUNCH_CACHE } from "../../src/market/caches.ts"
import { GarbageCollector } from "../../src/operator/launch/garbage-collection.ts"
import { eventually } from "../harness/eventually.ts"
import { ProjectHarness } from "../harness/project.ts"
import { silentLogger } from "../harness/silent-logger.ts"
import type { SimCloud } from "../harness/sim-cloud.ts"
import { REGION } from "../harness/sim-market.ts"

/** VMs outlive changes of their connection: Berth terminates them in the account that launched them. */

const berth = new ProjectHarness("connection-vms")
const { admin, namespace, systemNamespace, project, sealer, accounts } = berth

beforeAll(() => berth.programs.startOperator())
beforeEach(async () => {
  await berth.deleteJobs()
  for (const { metadata } of (await admin.list(CONNECTIONS, { namespace })).items)
    await admin.delete(CONNECTIONS, metadata)
})

interface Key {
  account: string
  secret: string
  cloud: SimCloud
  fields: Record<string, string>
}

function keyOf(account: string): Key {
  const secret = randomBytes(16).toString("hex")
  const fields = { access_key_id: "AKIAIOSFODNN7EXAMPLE", secret_access_key: secret }
  return { account, secret, fields, cloud: accounts.issue(account, secret) }
}

/** Returns an account that no other test uses. */
function newAccount(): string {
  return `account-${randomBytes(4).toString("hex")}`
}

/**
 * Resolves when the operator has verified the connection. It has then seen the end of former tests' connections too.
 */
async function connect(name: string, key: Key, settings: VmSettings = {}): Promise<void> {
  const sealedCredentials = await berth.seal(name, key.fields)
  await berth.createConnection(name, { type: "aws", sealedCredentials, ...settings })
  await verified(name, key)
}

async function cancel(name: string): Promise<void> {
  await admin.patch(JOBS, { namespace, name }, { merge: { spec: { cancelled: true } } })
}

async function jobStatus(name: string, check: (status: JobStatus) => void): Promise<void> {
  await eventually(async () => check((await berth.job(name)).status ?? {}))
}

/** Returns the job's Launch when it has a VM, and checks that only this account has the VM. */
async function launchIn(key: Key, job: string): Promise<StoredLaunch> {
  return await eventually(async () => {
    const launch = (await berth.launches()).find(({ spec }) => spec.job.name === job)
    expect(launch?.status?.vm?.id).toBeDefined()
    expect(key.cloud.alive.map((vm) => vm.launch)).toContain(launch?.metadata.name)
    if (launch === undefined) throw new Error("no Launch")
    return launch
  })
}

async function ended(key: Key, launch: StoredLaunch): Promise<void> {
  await eventually(async () => {
    const [vm] = key.cloud.of(launch.metadata.name)
    expect(vm?.state).toBe("terminated")
    const { status } = await admin.get(LAUNCHES, launch.metadata)
    expect(status?.phase).toBe("terminated")
  })
  expect(key.cloud.breaches).toEqual([])
}

async function verified(name: string, key: Key): Promise<void> {
  await eventually(async () =>
    expect((await admin.get(CONNECTIONS, { namespace, name })).status?.account).toBe(key.account),
  )
}

async function refused(name: string): Promise<void> {
  await eventually(async () => {
    const { status } = await admin.get(CONNECTIONS, { namespace, name })
    expect(findCondition(status?.conditions, "Ready")).toMatchObject({ status: "False", reason: "CredentialsRefused" })
  })
}

describe("the operator", () => {
  it("keeps a job waiting for a usable connection, and places the job as soon as one exists", async () => {
    const key = keyOf(newAccount())
    await berth.submit("first")
    await jobStatus("first", ({ phase, reason, message }) => {
      expect({ phase, reason }).toEqual({ phase: "queued", reason: "NoConnection" })
      expect(message).toContain("add one of type aws")
    })
    await connect("main", key)
    const launch = await launchIn(key, "first")
    expect(launch.spec).toMatchObject({ project, connection: "main", account: key.account })
    expect(launch.spec.sealedCredentials).toMatch(/^berth1[.]/)
    expect(JSON.stringify(launch)).not.toContain(key.secret)
    await cancel("first")
    await ended(key, launch)
  })

  it("verifies a connection again after a cloud rejected a launch for its credentials, while the job waits", async () => {
    const key = keyOf(newAccount())
    await connect("main", key)
    accounts.revoke(key.secret)
    await berth.submit("second")
    await refused("main")
    await jobStatus("second", ({ reason }) => expect(reason).toBe("NoConnection"))
    const [launch] = (await berth.launches()).filter(({ spec }) => spec.job.name === "second")
    const message = "the key [redacted] is not known"
    expect(launch?.status?.refusal).toMatchObject({ class: "Credentials", code: "InvalidClientTokenId", message })
  })
})

describe("settings of a connection", () => {
  const elsewhere = { subnets: { "us-east-1": ["subnet-0a1b2c3d"] } }
  const here = {
    network: "vpc-0a1b2c3d",
    subnets: { [REGION]: ["subnet-0a1b2c3d"], "us-east-1": ["subnet-0f4e0f4e"] },
    publicAddress: false,
    disk: { size: "100Gi", type: "gp3" },
  }

  it("are kept by a Launch with the disk of its job, whatever the connection becomes", async () => {
    const key = keyOf(newAccount())
    await connect("main", key, here)
    const resources = { disk: "1Ti" }
    await berth.submit("job-9", { resources })
    const launch = await launchIn(key, "job-9")
    const frozen = {
      network: { network: "vpc-0a1b2c3d", subnets: ["subnet-0a1b2c3d"], publicAddress: false },
      disk: { sizeGib: 100, requiredGib: 1024, type: "gp3" },
    }
    expect(launch.spec).toMatchObject(frozen)
    const none = { network: null, subnets: null, publicAddress: null, disk: null }
    await admin.patch(CONNECTIONS, { namespace, name: "main" }, { merge: { spec: none } })
    await berth.submit("job-10")
    const next = await launchIn(key, "job-10")
    expect(next.spec).not.toHaveProperty("network")
    expect(next.spec).not.toHaveProperty("disk")
    expect((await admin.get(LAUNCHES, launch.metadata)).spec).toMatchObject(frozen)
    const change = admin.patch(LAUNCHES, launch.metadata, { merge: { spec: { network: { publicAddress: true } } } })
    await expect(change).rejects.toThrow(/network is immutable/)
    await cancel("job-9")
    await cancel("job-10")
    await ended(key, launch)
    await ended(key, next)
  })

  it("keep a job waiting while no connection has subnets in a region of its offers, and say so", async () => {
    const key = keyOf(newAccount())
    await connect("main", key, elsewhere)
    await berth.submit("job-11")
    await jobStatus("job-11", ({ phase, reason, message }) => {
      expect({ phase, reason }).toEqual({ phase: "queued", reason: "NoConnection" })
      expect(message).toContain("connection main has subnets only in us-east-1")
    })
    await admin.patch(CONNECTIONS, { namespace, name: "main" }, { merge: { spec: here } })
    const launch = await launchIn(key, "job-11")
    await cancel("job-11")
    await ended(key, launch)
  })
})

describe("the operator after a change of a connection", () => {
  it("terminates VMs after the deletion of their connection", async () => {
    const key = keyOf(newAccount())
    await connect("main", key)
    await berth.submit("job-3")
    const launch = await launchIn(key, "job-3")
    await admin.delete(CONNECTIONS, { namespace, name: "main" })
    await cancel("job-3")
    await ended(key, launch)
  })

  it("terminates VMs in their own account after a change of their connection to another account", async () => {
    const [before, after] = [keyOf(newAccount()), keyOf(newAccount())]
    await connect("main", before)
    await berth.submit("job-4")
    const launch = await launchIn(before, "job-4")
    const merge = { spec: { sealedCredentials: await berth.seal("main", after.fields) } }
    await admin.patch(CONNECTIONS, { namespace, name: "main" }, { merge })
    await verified("main", after)
    await berth.submit("next")
    const next = await launchIn(after, "next")
    await cancel("job-4")
    await ended(before, launch)
    expect(after.cloud.of(launch.metadata.name)).toEqual([])
    await cancel("next")
    await ended(after, next)
  })

  it("terminates VMs after their key was replaced by another key of the account, and revoked", async () => {
    const account = newAccount()
    const [before, after] = [keyOf(account), keyOf(account)]
    await connect("main", before)
    await berth.submit("job-5")
    const launch = await launchIn(before, "job-5")
    const merge = { spec: { sealedCredentials: await berth.seal("main", after.fields) } }
    await admin.patch(CONNECTIONS, { namespace, name: "main" }, { merge })
    await eventually(() => expect(accounts.verified).toContain(after.secret))
    accounts.revoke(before.secret)
    await cancel("job-5")
    await ended(before, launch)
  })

  it("terminates VMs after the deletion of their connection and of its Secret", async () => {
    const key = keyOf(newAccount())
    const data = Object.fromEntries(Object.entries(key.fields).map(([field, value]) => [field, btoa(value)]))
    await admin.create(SECRETS, { metadata: { name: "gitops", namespace }, type: "berth.dev/connection", data })
    await berth.createConnection("by-secret", { type: "aws", credentialsSecretRef: { name: "gitops" } })
    await verified("by-secret", key)
    await berth.submit("job-6")
    const launch = await launchIn(key, "job-6")
    await admin.delete(SECRETS, { namespace, name: "gitops" })
    await admin.delete(CONNECTIONS, { namespace, name: "by-secret" })
    await cancel("job-6")
    await ended(key, launch)
  })
})

describe("the operator with access to an account", () => {
  const ending = new AbortController()
  const base = { client: admin, logger: silentLogger }
  const connections = new Reflector({ ...base, ...CONNECTION_CACHE, namespace })
  const secrets = new Reflector({ ...base, ...CREDENTIALS_SECRET_CACHE, namespace })
  const projects = new Reflector({ ...base, resource: PROJECTS })
  const launchCache = { ...LAUNCH_CACHE, namespace: systemNamespace }
  const cached = new Reflector<StoredLaunch>({ ...base, ...launchCache })
  const reflectors = [connections, secrets, projects, cached]
  const clouds = new ConnectionClouds({
    ...{ secrets, projects, sealer, own: createClouds({}), providers: { aws: accounts.provider } },
    connections: connections.store,
    launches: cached.store,
  })
  let running: Promise<void>[]
  beforeAll(async () => {
    running = reflectors.map((reflector) => reflector.run(ending.signal))
    await Promise.all(reflectors.map((reflector) => reflector.whenSynced(ending.signal)))
  })
  afterAll(async () => {
    ending.abort()
    await Promise.all(running)
  })

  it("denies access to an account to another project, and to a copy of credentials sealed for it", async () => {
    const key = keyOf(newAccount())
    await connect("main", key)
    await berth.submit("job-7")
    const launch = await launchIn(key, "job-7")
    const account = accountOf(launch)
    await (await clouds.open(account)).list({ installation: "i", region: REGION })
    const elsewhere = clouds.open({ ...account, project: "another" })
    await expect(elsewhere).rejects.toMatchObject({ name: "CredentialsError", code: "tampered" })
    const { sealedCredentials: _, ...without } = account
    // Wait until this test's cache shows the connection as verified.
    await eventually(async () => (await clouds.open(without)).list({ installation: "i", region: REGION }))
    await expect(clouds.open({ ...without, project: "another" })).rejects.toMatchObject({ code: "NoCredentials" })
    await expect(clouds.open({ ...without, account: "another" })).rejects.toMatchObject({ code: "NoCredentials" })
    await cancel("job-7")
    await ended(key, launch)
  })

  it("allows garbage collection to terminate an orphaned VM in the connection's regions", async () => {
    const key = keyOf(newAccount())
    const { id } = await ensureInstallation(admin, systemNamespace)
    await connect("main", key)
    await berth.submit("job-8")
    const launch = await launchIn(key, "job-8")
    const orphan = key.cloud.plant(id, "forgotten-1", "2026-01-01T00:00:00Z")
    orphan.region = REGION
    const sources = { secrets, projects, sealer }
    const accounts = await eventually(() => {
      const found = accountsInUse(connections.store, sources)
      expect(found).toEqual([{ cloud: "aws", region: REGION, account: key.account, project, connection: "main" }])
      return found
    })
    await cancel("job-8")
    await ended(key, launch)
    const collector = new GarbageCollector({
      ...{ client: admin, clouds, installation: id, systemNamespace, logger: silentLogger, clock: systemClock },
      // Simulates that the records of all Launches were deleted.
      launches: { ...cached.store, list: () => [], get: () => undefined } as typeof cached.store,
      accounts: () => accounts,
      fence: () => undefined,
    })
    expect(await collector.round()).toEqual([])
    expect((await collector.round()).map((vm) => vm.id)).toEqual([orphan.id])
    expect(key.cloud.alive).toEqual([])
  })

  it("reads consoles, and completes launches", async () => {
    const key = keyOf(newAccount())
    const sealedCredentials = await berth.seal("main", key.fields)
    const about = { cloud: "aws", region: REGION, account: key.account, project, connection: "main" }
    const cloud = await clouds.open({ ...about, sealedCredentials })
    expect(await cloud.consoleOf?.({ id: "vm-1", launch: "uid-1", region: REGION })).toBe("")
    await cloud.completeLaunch?.({ name: "uid-1" } as LaunchSpec)
    expect(accounts.completed).toEqual(["uid-1"])
  })

  it("reveals no credentials in errors of access to an account", async () => {
    const key = keyOf(newAccount())
    const sealedCredentials = await berth.seal("main", key.fields)
    const account = {
      cloud: "aws",
      region: REGION,
      account: key.account,
      project,
      connection: "main",
      sealedCredentials,
    }
    const cloud = await clouds.open(account)
    accounts.revoke(key.secret)
    const error: unknown = await cloud.list({ installation: "i", region: REGION }).catch((reason: unknown) => reason)
    expect(error).toMatchObject({ name: "CredentialsError", message: "the key [redacted] is not known" })
    expect((error as Error).stack).not.toContain(key.secret)
  })
})
