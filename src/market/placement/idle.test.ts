import { describe, expect, test } from "vitest"
import {
  agentOf,
  at,
  jobOf,
  launchOf,
  levelOf,
  marketOf,
  OFFERS,
  offerOf,
  time,
  vmStatus,
} from "../../../test/harness/builders.ts"
import type { JobSpec } from "../../core/apis/job.ts"
import type { AgentStatus, LaunchSpec, LaunchStatus, StoredLaunch } from "../../core/apis/launch.ts"
import { keptVms } from "../../core/reuse/reuse.ts"
import { createCatalogue } from "../router/catalogue.ts"
import type { Market } from "./market.ts"
import { placeAmong } from "./place.ts"
import { JOB_DEFAULTS } from "./settings.ts"

const FINISH = { reason: "Succeeded", exitCode: 0, time: time(100) } as const
const NOW = at(200)

/** Returns a Launch whose VM is idle since second 110 for 300 s. */
function idleLaunch(
  name: string,
  changes: { spec?: Partial<LaunchSpec>; agent?: Partial<AgentStatus>; status?: LaunchStatus } = {},
): StoredLaunch {
  const agent = agentOf({ startTime: time(30), finish: FINISH, idleTime: time(110), ...changes.agent })
  return launchOf(jobOf({ metadata: { name, uid: name } }), 1, {
    spec: {
      run: { image: "busybox", reuse: { idleSeconds: 300 } },
      vmLifetimeSeconds: 5400 + 86_400,
      ...changes.spec,
    },
    status: vmStatus({ agent, ...changes.status }),
  })
}

function placed(spec: Partial<JobSpec>, launches: readonly StoredLaunch[], market: Partial<Market> = {}) {
  const job = jobOf({ spec: { reuse: { idleSeconds: 60 }, timeoutSeconds: 600, ...spec } })
  return placeAmong(job, marketOf({ kept: keptVms(launches), ...market }), NOW, JOB_DEFAULTS).verdict
}

function holderOf(verdict: ReturnType<typeof placed>): string | undefined {
  if (verdict.kind !== "placed" || !("holder" in verdict.placement)) return undefined
  return verdict.placement.holder.spec.job.name
}

test("a job takes over the idle VM, and says so with its cost without boot and minimum", () => {
  const verdict = placed({ timeoutSeconds: 30 }, [idleLaunch("train-3")])
  expect(holderOf(verdict)).toBe("train-3")
  expect(verdict).toMatchObject({ placement: { totalUsd: 0.005, prices: { machineUsd: 0.6 } } })
  expect(verdict.kind === "placed" && verdict.why).toContain(
    "takes the idle VM of train-3, starts in about 2 s; expected to cost $0.005; a new VM costs $0.01 and its boot",
  )
})

describe("a job gets a VM of its own", () => {
  const holder = idleLaunch("a")
  test.each<[string, Partial<JobSpec>, StoredLaunch, Partial<Market>]>([
    ["without reuse", { reuse: undefined as never }, holder, {}],
    ["with another key", { reuse: { idleSeconds: 60, key: "gpu" } }, holder, {}],
    ["if it needs a larger machine", { resources: { cpu: 4 } }, holder, {}],
    ["on another architecture", {}, idleLaunch("a", { spec: { offer: offerOf({ architecture: "arm64" }) } }), arm()],
    ["in another region", { region: ["there"] }, holder, elsewhere()],
    ["if it wants spot", { provisioning: "spot" }, holder, elsewhere({ provisioning: "spot", region: "here" })],
    [
      "if the idle VM is dearer",
      {},
      idleLaunch("a", { spec: { offer: offerOf({ instanceType: "large", hourlyPriceUsd: 2.4 }) } }),
      {},
    ],
    ["if the VM's own timer is too short", {}, idleLaunch("a", { spec: { vmLifetimeSeconds: 3600 } }), {}],
    ["if its connection is another one", {}, idleLaunch("a", { spec: { connection: "other" } }), {}],
    ["after a preemption notice", {}, idleLaunch("a", { agent: { preemptionNotice: time(120) } }), {}],
    ["if the VM is unfit", {}, idleLaunch("a", { agent: { unfit: "a volume is still mounted" } }), {}],
    [
      "after a failure of the machine",
      {},
      idleLaunch("a", { agent: { finish: { ...FINISH, reason: "MachineFailed" } } }),
      {},
    ],
    ["if the VM has left", {}, idleLaunch("a", { agent: { leaveTime: time(150) } }), {}],
    [
      "if the VM's time is over",
      {},
      idleLaunch("a", { spec: { run: { image: "b", reuse: { idleSeconds: 80 } } } }),
      {},
    ],
    ["with maxCostUsd", {}, holder, { budget: { leftUsd: 10, leastSeconds: 60 } }],
    ["under a strict cap", {}, holder, { levels: [levelOf({ maxMonthlyUsd: 100, reserve: "strict" })] }],
  ])("%s", (_, spec, launch, market) => {
    const verdict = placed(spec, [launch], market)
    expect(verdict.kind).toBe("placed")
    expect(holderOf(verdict)).toBeUndefined()
  })

  function arm(): Partial<Market> {
    return { image: { state: "known", architectures: ["amd64"] } }
  }

  function elsewhere(changes = {}): Partial<Market> {
    return { offers: createCatalogue([...OFFERS, offerOf({ region: "there", ...changes })]) }
  }
})

test("a VM that is not clean yet is waited for, but not for long", () => {
  const cleaning = { idleTime: undefined as never, lastHeartbeatTime: time(190) }
  expect(placed({}, [idleLaunch("a", { agent: cleaning })])).toMatchObject({ kind: "wait", reason: "Queued" })
  const slow = { ...cleaning, lastHeartbeatTime: time(170) }
  expect(holderOf(placed({}, [idleLaunch("a", { agent: slow })]))).toBeUndefined()
})

test("the latest idle VM is taken, and none that another Launch is about to take", () => {
  const launches = [idleLaunch("a"), idleLaunch("b", { agent: { idleTime: time(150) } }), idleLaunch("c")]
  expect(holderOf(placed({}, launches))).toBe("b")
  const taker = launchOf(jobOf({ metadata: { name: "t", uid: "t" } }), 1, { spec: { takesOver: "b-1", root: "b-1" } })
  expect(holderOf(placed({}, [...launches, taker]))).not.toBe("b")
})

describe("under caps", () => {
  const holder = idleLaunch("a")
  const spending = { vms: 1, hourlyUsd: 0.6 }

  test.each([
    ["of VMs", { maxVms: 1 }],
    ["an hour", { maxHourlyUsd: 0.6 }],
  ])("an idle VM takes no further room %s", (_, caps) => {
    expect(holderOf(placed({}, [holder], { levels: [levelOf(caps, spending)] }))).toBe("a")
    expect(
      placed({ reuse: { idleSeconds: 60, key: "k" } }, [holder], { levels: [levelOf(caps, spending)] }),
    ).toMatchObject({
      kind: "wait",
      reason: "CapReached",
    })
  })

  test("a job does not take the VM whose room is kept for a job ahead of it", () => {
    const level = {
      ...levelOf({ maxVms: 1 }, spending),
      taken: { vms: 1, gpus: 0, hourlyUsd: 0, expectedUsd: 0, mostUsd: 0 },
    }
    expect(placed({}, [holder], { levels: [level] })).toMatchObject({ kind: "wait", reason: "CapReached" })
  })

  test("a job takes an idle VM although its cloud has no capacity", () => {
    const cooldowns = [{ cloud: "sim", until: at(1000) }]
    expect(holderOf(placed({}, [holder], { cooldowns }))).toBe("a")
  })

  test("a full group keeps a job from an idle VM", () => {
    const group = { name: "db", limit: 1, members: ["other"] }
    expect(placed({}, [holder], { group })).toMatchObject({ kind: "wait", reason: "GroupFull" })
  })
})
