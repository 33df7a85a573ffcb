import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { Changes } from "../../src/api/changes.ts"
import { IdleVms } from "../../src/api/resources/idle/idle.ts"
import type { IdleList } from "../../src/api/resources/idle/schema.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import { type Launch, type LaunchStatus, launchName, type StoredLaunch } from "../../src/core/apis/launch.ts"
import { isConflict } from "../../src/core/kube/errors.ts"
import { IndexedStore } from "../../src/core/kube/store.ts"
import { LAUNCHES } from "../../src/core/resources.ts"
import { idlenessOf } from "../../src/core/reuse/reuse.ts"
import { launchIndexes } from "../../src/market/caches.ts"
import { caller, created, problemIn } from "../harness/caller.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { projectFixture } from "../harness/facade-project.ts"
import { IDLE_SINCE, makeIdleVm } from "../harness/idle-vms.ts"

const fixture = projectFixture("facade-idle")
const neighbour = projectFixture("facade-idle-b")
let replica: Replica
const call = caller(() => replica, fixture)
const made: StoredLaunch[] = []

beforeAll(async () => {
  replica = await startReplica()
})
afterAll(async () => {
  await Promise.all(made.map(({ metadata }) => fixture.client.delete(LAUNCHES, metadata)))
  await replica.close()
})

async function list(query = ""): Promise<IdleList> {
  const response = await call(`/1/idle${query}`)
  expect(response.status).toBe(200)
  return (await response.json()) as IdleList
}

const names = async () => (await list()).idle.map(({ job }) => job)

/** Creates a job whose VM is idle, and resolves once the façade lists it. */
async function idle(name: string, more: { spec?: Partial<Launch["spec"]>; status?: LaunchStatus } = {}) {
  await created(await call("/1/jobs", { body: { name, image: "a" } }))
  const launch = await makeIdleVm(fixture.client, { namespace: fixture.namespace, name }, more)
  made.push(launch)
  return launch
}

const read = ({ metadata }: StoredLaunch) => fixture.client.get(LAUNCHES, metadata)
const end = ({ metadata: { name } }: StoredLaunch) => call(`/1/idle/${name}`, { method: "DELETE" })

/** Writes that another Launch has taken the VM, in the version that was read. */
async function takeOver({ metadata: { namespace, name, resourceVersion } }: StoredLaunch, by: string): Promise<void> {
  const merge = { metadata: { resourceVersion }, status: { phase: "handedOver", handedTo: by } as const }
  await fixture.client.patchStatus(LAUNCHES, { namespace, name }, { merge })
}

describe("idle VMs", () => {
  it("are listed with their times, and the cost of the wait", async () => {
    const hourlyPrices = { machineUsd: 0.54, diskUsd: 0.06, addressUsd: 0 }
    const launch = await idle("first", { spec: { hourlyPrices } })
    /** Cost of the wait until now, USD. */
    const cost = () => (0.6 * (Date.now() - Date.parse(IDLE_SINCE))) / 3_600_000
    const before = cost()
    const { idle: found, ...page } = await list()
    const [{ idle_usd = 0 } = {}] = found
    expect(idle_usd).toBeGreaterThan(before - 0.001)
    expect(idle_usd).toBeLessThan(cost() + 0.001)
    expect(page).toEqual({ total: 1, limit: 50, offset: 0 })
    expect(found).toEqual([
      {
        launch: launch.metadata.name,
        job: "first",
        job_id: launch.spec.job.uid,
        key: "small",
        provider: "sim",
        region: launch.spec.offer.region,
        zone: launch.spec.offer.zone ?? null,
        instance_type: launch.spec.offer.instanceType,
        provisioning: "onDemand",
        connection: null,
        vm_instance_id: "vm-of-first",
        hourly_price_usd: launch.spec.offer.hourlyPriceUsd,
        total_usd_per_hour: 0.6,
        idle_since: IDLE_SINCE,
        idle_until: "2026-01-01T00:15:00Z",
        idle_usd,
      },
    ])
  })

  it("are those of the project that wait, the one that waits longest first, in pages", async () => {
    const agent = (await read(made[0] as StoredLaunch)).status?.agent
    if (agent === undefined) throw new Error("no agent")
    await idle("earlier", { status: { agent: { ...agent, idleTime: "2026-01-01T00:09:00Z" } } })
    await idle("ended", { spec: { ended: true } })
    await idle("unfit", { status: { agent: { ...agent, unfit: "its disk is full" } } })
    await idle("handed", { status: { phase: "handedOver", handedTo: "other" } })
    const { name } = await created(
      await caller(() => replica, neighbour)("/1/jobs", { body: { name: "theirs", image: "a" } }),
    )
    made.push(await makeIdleVm(fixture.client, { namespace: neighbour.namespace, name }))
    await idle("last")
    expect((await names())[0]).toBe("earlier")
    expect((await names()).toSorted()).toEqual(["earlier", "first", "last"])
    expect(await list("?limit=1&offset=1")).toMatchObject({ total: 3, idle: [{ idle_since: IDLE_SINCE }] })
    const [theirs] = made.filter(({ spec }) => spec.job.name === "theirs")
    expect((await end(theirs as StoredLaunch)).status).toBe(404)
    expect(idlenessOf(await read(theirs as StoredLaunch)).is).toBe("idle")
  })

  it("are ended once, and no job can take them over then", async () => {
    const launch = await idle("ends")
    expect((await end(launch)).status).toBe(204)
    expect(await names()).not.toContain("ends")
    const ended = await read(launch)
    expect(idlenessOf(ended)).toEqual({ is: "none", why: "a user ended it while it waited for another job" })
    await expect(takeOver(launch, "late")).rejects.toSatisfy(isConflict)
    expect((await end(launch)).status).toBe(404)
    expect((await read(launch)).metadata.resourceVersion).toBe(ended.metadata.resourceVersion)
  })

  it("are not ended if a job takes them at the same moment", async () => {
    const launch = await idle("taken")
    const { job_id: taker } = await created(await call("/1/jobs", { body: { name: "taker", image: "a" } }))
    const launches = new IndexedStore<StoredLaunch>(launchIndexes)
    launches.put(launch)
    let reads = 0
    const client: ConstructorParameters<typeof IdleVms>[0]["client"] = {
      get: async (...args) => {
        const found = await fixture.client.get(...args)
        if (reads++ === 0) await takeOver(launch, launchName(taker, 1))
        return found
      },
      patchStatus: (...args) => fixture.client.patchStatus(...args),
    }
    const { namespace } = fixture
    const jobNameOf = () => "taker"
    const vms = new IdleVms({ client, launches, jobNameOf, changes: new Changes(), clock: systemClock, namespace })
    const detail = "The job taker has taken this VM a moment ago, so nothing was ended. Cancel that job to end the VM."
    const expected = { type: "vm-taken", status: 409, message: detail }
    await expect(vms.end(launch.metadata.name)).rejects.toMatchObject(expected)
    const response = await end(launch)
    expect([response.status, (await problemIn(response)).detail]).toEqual([409, detail])
    expect((await read(launch)).status?.agent?.unfit).toBeUndefined()
  })
})
