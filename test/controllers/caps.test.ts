import { randomBytes } from "node:crypto"
import { afterAll, beforeAll, describe, expect, test } from "vitest"
import type { SpendCaps } from "../../src/core/apis/caps.ts"
import { findCondition } from "../../src/core/apis/conditions.ts"
import { monthOf, STATEMENT, type StoredStatement, statementName } from "../../src/core/apis/statement.ts"
import { PROJECT_OF_NAMESPACE } from "../../src/core/identity/projects.ts"
import { CONFIG_MAPS } from "../../src/core/kube/core.ts"
import type { EventNote } from "../../src/core/kube/events.ts"
import { Reflector } from "../../src/core/kube/reflector.ts"
import { JOBS, ORGANIZATIONS, PROJECTS, STATEMENTS } from "../../src/core/resources.ts"
import { LAUNCH_CACHE, STATEMENT_CACHE } from "../../src/market/caches.ts"
import { CapWatcher, SPENDING_CONFIG_MAP } from "../../src/operator/caps/watcher.ts"
import { confirmedProject } from "../harness/confirmed-project.ts"
import { type ControllerHarness, controllerHarnesses } from "../harness/controllers.ts"
import { eventually } from "../harness/eventually.ts"
import { silentLogger } from "../harness/silent-logger.ts"

const newHarness = controllerHarnesses()

describe("a month's cap with onExceeded: cancel", () => {
  test("cancels running jobs when it is spent, and says the numbers", async () => {
    const harness = await newHarness()
    harness.operator({ caps: { maxMonthlyUsd: 3, onExceeded: "cancel" } })
    await harness.submit("long")
    await eventually(async () => {
      await harness.agentsStep()
      expect((await harness.job("long")).status?.vm?.id).toBeDefined()
    })
    harness.clock.advance(5 * 3600)
    await harness.submit("waits")
    await eventually(async () => {
      harness.clock.advance(1)
      expect((await harness.job("long")).status).toMatchObject({ phase: "cancelled", reason: "CapReached" })
    })
    const { message } = (await harness.job("long")).status ?? {}
    expect(message).toMatch(
      /^the project has spent \$3\S* of its cap of \$3 a month, and its caps say onExceeded: cancel/,
    )
    await eventually(async () => {
      harness.clock.advance(1)
      expect(harness.cloud.vms.filter(({ vm }) => vm.state !== "terminated")).toEqual([])
    })
    await eventually(async () => {
      const { status } = await harness.job("waits")
      expect(status?.message).toMatch(
        /^the project's cap of \$3 a month leaves \$0: \$3\S* is spent and \$0 is reserved for 0 VMs/,
      )
    })
  })
})

describe("the spending under caps", () => {
  let harness: ControllerHarness
  let watched: Watched

  beforeAll(async () => {
    harness = await newHarness()
    watched = await watch(harness)
  })
  afterAll(() => watched.stop())

  test("is in the Project, the Organization and a ConfigMap, with one event at each threshold", async () => {
    await watched.spend(40)
    await watched.round()
    const { status } = await watched.project()
    expect(status?.spending).toEqual({
      month: watched.month,
      spentUsd: 40,
      reservedUsd: 0,
      maxMonthlyUsd: 100,
      reachedPercent: 0,
    })
    expect(findCondition(status?.conditions, "WithinCaps")).toMatchObject({ status: "True", reason: "WithinCaps" })
    expect(watched.events()).toEqual([])

    await watched.spend(85)
    await watched.round()
    await watched.round()
    expect(watched.events()).toEqual(["CapSpent80Percent", "CapSpent50Percent", "CapSpent80Percent"])
    await watched.spend(120)
    await watched.round()
    const spent = findCondition((await watched.project()).status?.conditions, "WithinCaps")
    expect(spent).toMatchObject({ status: "False", reason: "CapSpent" })
    expect(spent?.message).toMatch(
      /^the project has spent \$120 of its cap of \$100 in .*; running jobs go on, and jobs without a VM wait/,
    )
    expect(watched.events()).toEqual(["CapSpent", "CapSpent80Percent", "CapSpent"])
    const organization = await harness.client.get(ORGANIZATIONS, { name: watched.name })
    expect(organization.status?.spending).toMatchObject({ spentUsd: 120, maxMonthlyUsd: 140, reachedPercent: 80 })
    const stored = await harness.client.get(CONFIG_MAPS, { namespace: harness.namespace, name: SPENDING_CONFIG_MAP })
    expect(stored.data).toMatchObject({ spentUsd: "120", maxMonthlyUsd: "100", reachedPercent: "100" })
  })

  test("is removed with the cap", async () => {
    await harness.client.patch(PROJECTS, { name: watched.name }, { merge: { spec: { caps: { maxMonthlyUsd: null } } } })
    await watched.round()
    const { status } = await watched.project()
    expect([status?.spending, findCondition(status?.conditions, "WithinCaps")]).toEqual([undefined, undefined])
    expect(status?.namespace).toBe(harness.namespace)
  })
})

type Watched = Awaited<ReturnType<typeof watch>>

/** Returns a watcher of one project, which has the harness' namespace, and of its organization. */
async function watch(harness: ControllerHarness) {
  const { client, namespace, clock } = harness
  const name = `caps-${randomBytes(4).toString("hex")}`
  const month = monthOf(clock.now())
  const caps: SpendCaps = { maxMonthlyUsd: 100 }
  const organization = { metadata: { name }, spec: { displayName: "Acme", caps: { maxMonthlyUsd: 140 } } }
  await client.create(ORGANIZATIONS, organization as never)
  await confirmedProject(client, { name, organization: name, namespace })
  await client.patch(PROJECTS, { name }, { merge: { spec: { caps } } })
  const base = { client, logger: silentLogger }
  const projects = new Reflector({ ...base, resource: PROJECTS, indexes: PROJECT_OF_NAMESPACE })
  const organizations = new Reflector({ ...base, resource: ORGANIZATIONS })
  const launches = new Reflector({ ...base, ...LAUNCH_CACHE, namespace })
  const statements = new Reflector({ ...base, ...STATEMENT_CACHE, namespace })
  const jobs = new Reflector({ ...base, resource: JOBS, namespace })
  const caches = { projects, organizations, launches, statements, jobs }
  const ending = new AbortController()
  const loops = Object.values(caches).map((each) => each.run(ending.signal))
  await Promise.all(Object.values(caches).map((each) => each.whenSynced(AbortSignal.timeout(60_000))))
  const notes: EventNote[] = []
  const watcher = new CapWatcher({
    ...base,
    ...caches,
    clock,
    installation: caps,
    systemNamespace: namespace,
    watchNamespace: namespace,
    recorder: { record: (_, note) => void notes.push(note) },
    fence: () => undefined,
  })
  const project = () => client.get(PROJECTS, { name })
  return {
    name,
    month,
    project,
    /** Returns the reasons of the events since the last call. */
    events: () => notes.splice(0).map(({ reason }) => reason),
    round: async () => {
      for (const [cache, live] of [
        [projects, await project()],
        [organizations, await client.get(ORGANIZATIONS, { name })],
      ] as const) {
        await cache.store.waitFor(live.metadata.resourceVersion, AbortSignal.timeout(60_000))
      }
      await watcher.round()
    },
    spend: async (spentUsd: number) => {
      const ref = { namespace, name: statementName(namespace, month) }
      const found = statements.store.get(ref)
      const spec = { namespace, month, organization: name }
      const made =
        found ??
        (await client.create(STATEMENTS, { kind: STATEMENT.kind, metadata: ref, spec } as unknown as StoredStatement))
      const { metadata } = await client.replaceStatus(STATEMENTS, { ...made, status: { spentUsd } })
      await statements.store.waitFor(metadata.resourceVersion, AbortSignal.timeout(60_000))
    },
    stop: async () => {
      ending.abort()
      await Promise.all(loops)
    },
  }
}
