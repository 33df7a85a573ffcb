import { describe, expect, test } from "vitest"
import type { Cloud, Clouds } from "../../src/clouds/cloud.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import type { KubeClient } from "../../src/core/kube/client.ts"
import { KubeError } from "../../src/core/kube/errors.ts"
import type { LAUNCHES } from "../../src/core/resources.ts"
import { GarbageCollector } from "../../src/operator/launch/garbage-collection.ts"
import {
  type ControllerHarness,
  controllerHarnesses,
  type Operator,
  type OperatorClients,
} from "../harness/controllers.ts"
import { eventually } from "../harness/eventually.ts"
import { explore } from "./model-explorer.ts"
import { suiteTally } from "./suite-tally.ts"
import { warmModel } from "./warm.ts"
import { MISTAKES } from "./warm-mistakes.ts"

/** Number of states within which the model must notice a mistake. */
const NOTICED_WITHIN = 40_000

const newHarness = controllerHarnesses()
const tally = suiteTally("mistakes", "Situations that look like a lost or orphaned VM")

/** Starts three jobs whose containers run. */
async function running(
  clients?: (harness: ControllerHarness) => Partial<OperatorClients>,
): Promise<{ harness: ControllerHarness; operator: Operator; ids: string[] }> {
  const harness = await newHarness()
  const own: OperatorClients = { client: harness.client, clouds: harness.cloud, fence: () => undefined }
  const operator = harness.operator({ clients: { ...own, ...clients?.(harness) } })
  for (const name of ["a", "b", "c"]) await harness.submit(name)
  await eventually(async () => {
    await harness.agentsStep("run")
    for (const name of ["a", "b", "c"]) expect((await harness.job(name)).status?.phase).toBe("running")
  })
  expect(operator.launchControl.garbageCollector).toBeInstanceOf(GarbageCollector)
  return { harness, operator, ids: harness.cloud.alive.map(({ id }) => id) }
}

/** Expects that no VM was terminated or created. */
function expectUntouched(harness: ControllerHarness, ids: readonly string[], faults: string): void {
  const alive = harness.cloud.alive.map(({ id }) => id)
  tally.count({ faults }, alive.length < ids.length ? ["killed"] : [], ids.length)
  expect(alive).toEqual(ids)
  expect(harness.cloud.vms).toHaveLength(ids.length)
}

/** Returns clouds whose lists are changed. */
function listing(clouds: Clouds, list: (real: Cloud["list"]) => Cloud["list"]): Clouds {
  return {
    open: async (account) => {
      const cloud = await clouds.open(account)
      return { ...cloud, list: list((scope) => cloud.list(scope)) }
    },
  }
}

/** Returns a garbage collection of all accounts, at a time when every VM has reached the minimum age. */
function collectorOf(
  harness: ControllerHarness,
  client: Pick<KubeClient, "get" | "list">,
  launches: readonly StoredLaunch[],
): GarbageCollector {
  const log = () => undefined
  const byName = new Map(launches.map((launch) => [launch.metadata.name, launch]))
  const store = { list: () => [...byName.values()], get: ({ name }: { name: string }) => byName.get(name) }
  return new GarbageCollector({
    client,
    clouds: harness.cloud,
    launches: store as unknown as ConstructorParameters<typeof GarbageCollector>[0]["launches"],
    accounts: () => [{ cloud: "sim", region: "here" }],
    systemNamespace: harness.namespace,
    installation: harness.installation,
    fence: () => undefined,
    clock: harness.clock,
    logger: { debug: log, info: log, warn: log, error: log },
  })
}

describe("an operator that is misled", () => {
  test("keeps VMs while a cloud's lists are empty and the agents report", async () => {
    let looks = 0
    let isEmpty = false
    const { harness, operator, ids } = await running((own) => ({
      clouds: listing(own.cloud, (real) => async (scope) => {
        if (!isEmpty) return real(scope)
        looks++
        return []
      }),
    }))
    isEmpty = true
    for (let minute = 0; minute < 5; minute++) {
      harness.clock.advance(60)
      for (const { launch } of harness.cloud.alive) await harness.report(launch, () => ({}))
      // Otherwise the operator could miss two of these minutes of reports and take an unseen VM for deleted.
      await operator.caughtUp()
      const before = looks
      await eventually(() => expect(looks).toBeGreaterThan(before + 1))
    }
    isEmpty = false
    expectUntouched(harness, ids, "a cloud's lists are empty")
    await harness.close()
  })

  test("keeps VMs while the façade is down for hours and no agent reports", async () => {
    let looks = 0
    const { harness, ids } = await running((own) => ({
      clouds: listing(own.cloud, (real) => (scope) => {
        looks++
        return real(scope)
      }),
    }))
    for (let hour = 0; hour < 3; hour++) {
      const before = looks
      harness.clock.advance(3600)
      await eventually(() => expect(looks).toBeGreaterThan(before + 1))
    }
    // The façade is up again and one agent reports first: the others keep their grace period.
    await harness.report(harness.cloud.alive[0]?.launch ?? "", () => ({}))
    const before = looks
    harness.clock.advance(100)
    await eventually(() => expect(looks).toBeGreaterThan(before + 1))
    expectUntouched(harness, ids, "the façade is away")
    await harness.close()
  })

  test("keeps VMs while the API server is down, or caches are empty, during garbage collection", async () => {
    const { harness, ids } = await running()
    const away = () =>
      Promise.reject(new KubeError({ code: 503, reason: "ServiceUnavailable", message: "away" })) as Promise<never>
    harness.clock.advance(3600)
    // Garbage collection must not trust a cache that shows nothing, such as a new leader's.
    for (const client of [{ get: away, list: away }, harness.client]) {
      const collector = collectorOf(harness, client, [])
      for (let round = 0; round < 3; round++) expect(await collector.round()).toEqual([])
    }
    expectUntouched(harness, ids, "the API server is away, caches are empty")
    await harness.close()
  })

  test("terminates only unknown VMs after the restore of an older backup", async () => {
    const { harness, ids } = await running()
    const [forgotten] = await harness.launches()
    const ref = { namespace: harness.namespace, name: forgotten?.metadata.name ?? "" }
    const client = {
      list: harness.client.list.bind(harness.client),
      get: ((resource: typeof LAUNCHES, { name = "" }) =>
        name === ref.name
          ? Promise.reject(new KubeError({ code: 404, reason: "NotFound", message: "not in the backup" }))
          : harness.client.get(resource, { namespace: harness.namespace, name })) as KubeClient["get"],
    }
    harness.clock.advance(3600)
    const collector = collectorOf(harness, client, [])
    expect(await collector.round()).toEqual([])
    const terminated = await collector.round()
    // The gateway rejects its agent from then on, so its container does not run beside its job's next VM.
    expect(terminated.map(({ launch }) => launch)).toEqual([ref.name])
    const left = harness.cloud.alive.map(({ id }) => id)
    tally.count({ faults: "a backup is restored" }, left.length < ids.length - 1 ? ["killed"] : [], ids.length)
    expect(left).toEqual(ids.filter((id) => id !== terminated[0]?.id))
    await harness.close()
  })

  // A copy that reaches none of the original's gateways does not notice that it is one (docs/reliability.md). Others do:
  // test/e2e/copied-cluster.nightly.test.ts.
  test("terminates VMs of the original in a copy without any gateway, if they are newer than the copy", async () => {
    const { harness, ids } = await running()
    const copied = (await harness.launches()).slice(0, 2)
    const names = copied.map(({ metadata }) => metadata.name)
    const client = {
      list: harness.client.list.bind(harness.client),
      get: ((resource: typeof LAUNCHES, { name = "" }) =>
        names.includes(name)
          ? harness.client.get(resource, { namespace: harness.namespace, name })
          : Promise.reject(
              new KubeError({ code: 404, reason: "NotFound", message: "made later" }),
            )) as KubeClient["get"],
    }
    harness.clock.advance(3600)
    const collector = collectorOf(harness, client, copied)
    const terminated = [...(await collector.round()), ...(await collector.round())]
    tally.count(
      { faults: "a cluster is cloned, and both run" },
      terminated.map(() => "killed" as const),
      ids.length,
    )
    // VMs that both know are kept.
    expect(harness.cloud.alive.map(({ launch }) => launch).sort()).toEqual(names.sort())
    await harness.close()
  })
})

describe("the model of VMs that jobs take over", () => {
  test.each(MISTAKES)("notices if $what", async ({ rules, fault, options }) => {
    const found = await explore(warmModel({ ticks: 2, ...options, rules }), NOTICED_WITHIN, () => undefined)
    expect(found.violation?.fault).toMatch(fault)
  })
})
