import { describe, expect, test } from "vitest"
import { agentOf, at, jobOf, launchOf, offerOf, time, vmStatus } from "../../../test/harness/builders.ts"
import { seriesOf } from "../../clouds/machines/machines.ts"
import type { RefusalClass } from "../../clouds/rejection.ts"
import type { LaunchSpec, LaunchStatus, StoredLaunch } from "../../core/apis/launch.ts"
import { ANNOTATIONS } from "../../core/apis/meta.ts"
import { type Offer, offerKey } from "../../core/apis/offer.ts"
import type { VmSettings } from "../../core/apis/vm-settings.ts"
import { blocks, type Cooldown } from "../router/cooldown.ts"
import { findCooldowns } from "./cooldowns.ts"
import { launchHistory } from "./ledger.ts"
import { CONNECTION_OFFERS, FAMILY_OFFERS, QUOTA_REGIONS, REGION_FAMILIES } from "./reports.ts"
import { JOB_DEFAULTS } from "./settings.ts"

interface Refused {
  kind?: RefusalClass
  code?: string
  message?: string
  machines?: readonly string[]
  offer?: Partial<Offer>
  spec?: Partial<LaunchSpec>
  credentials?: string
}

/** A launch of connection main, account 42, that was refused so many seconds after T0. */
function refused(seconds: number, changes: Refused = {}): StoredLaunch {
  const { kind = "Capacity", code, message = "no", machines, offer = {}, spec = {}, credentials } = changes
  const named = { ...(code !== undefined && { code }), ...(machines !== undefined && { machines: [...machines] }) }
  const refusal = { class: kind, message, time: time(seconds), ...named }
  const annotations = credentials === undefined ? {} : { [ANNOTATIONS.credentials]: credentials }
  return launchOf(jobOf(), 1, {
    metadata: { annotations },
    spec: { connection: "main", account: "42", offer: offerOf(offer), ...spec },
    status: { phase: "refused", refusal },
  })
}

const OWN = { connection: "main", account: "42" }
const OTHER_PROJECT = { job: { namespace: "elsewhere", name: "train", uid: "u" } }
const team = { namespace: "team", launchAccounts: [{ cloud: "sim", ...OWN, credentials: "v2" }] }

function cooldownsAt(launches: readonly StoredLaunch[], seconds: number, viewer = team): Cooldown[] {
  return findCooldowns(launchHistory(launches), viewer, at(seconds), JOB_DEFAULTS)
}

/** Returns the cooldowns without their causes. */
function scopesAt(launches: readonly StoredLaunch[], seconds: number, viewer = team) {
  return cooldownsAt(launches, seconds, viewer).map(({ cause: _, ...rest }) => rest)
}

function goodVm(seconds: number, offer: Partial<Offer> = {}, spec: Partial<LaunchSpec> = {}): StoredLaunch {
  return launchOf(jobOf(), 1, {
    spec: { ...OWN, offer: offerOf(offer), ...spec },
    status: vmStatus({
      vm: { state: "running", id: "vm", createTime: time(seconds) },
      agent: agentOf({ registrationTime: time(seconds) }),
    }),
  })
}

const offer = offerKey(offerOf())

/** One row of the table in docs/cooldowns.md: who says it, and what rests for whom. */
const TABLE: readonly [string, Refused, Omit<Cooldown, "until">][] = [
  ["no capacity", { kind: "Capacity" }, { cloud: "sim", offer }],
  ["invalid request", { kind: "InvalidRequest" }, { cloud: "sim", offer, connection: "main" }],
  ["credentials", { kind: "Credentials" }, { cloud: "sim", connection: "main" }],
  ["account's settings", { kind: "Account" }, { cloud: "sim", connection: "main" }],
  ["region not allowed", { kind: "Region" }, { cloud: "sim", region: "here", connection: "main" }],
  ["no answer", { kind: "Unavailable" }, { cloud: "sim", region: "here", connection: "main" }],
  [
    "quota",
    { kind: "Quota" },
    { cloud: "sim", region: "here", quota: "small", provisioning: "onDemand", minCpu: 2, account: "42" },
  ],
]

describe("the scope of one rejection", () => {
  test.each(TABLE)("%s", (_, changes, scope) => {
    expect(scopesAt([refused(0, changes)], 1)).toEqual([{ ...scope, until: at(300) }])
  })

  test("names of connections are of one project, accounts are the same in all", () => {
    for (const [name, changes, scope] of TABLE) {
      const theirs = refused(0, { ...changes, spec: OTHER_PROJECT })
      expect(scopesAt([theirs], 1), name).toHaveLength(scope.connection === undefined ? 1 : 0)
    }
  })

  const boot = (spec: Partial<LaunchSpec> = {}, status: LaunchStatus = {}) => {
    const vm = { state: "terminated" as const, id: "vm", createTime: time(0), terminationTime: time(910) }
    return launchOf(jobOf(), 1, {
      spec: { ended: true, ...OWN, ...spec },
      status: { phase: "terminated", vm, ...status },
    })
  }
  const spot = { provisioning: "spot" as const }
  const ended = (reason: string, status: LaunchStatus = {}) =>
    boot(
      { ended: false, offer: offerOf(spot) },
      { ...status, loss: { reason: reason as "Preempted", message: "", time: time(50) } },
    )
  const takenBack = { state: "terminated" as const, id: "vm", preempted: true }
  const finish = { reason: "Preempted" as const, time: time(50) }
  const spotKey = offerKey(offerOf(spot))

  test.each<[string, StoredLaunch, object | undefined]>([
    ["a VM that never registered: its account", boot(), { offer, account: "42" }],
    [
      "a VM that said that it can run no container: its account",
      boot({}, { bootFailure: { reason: "EngineUnavailable", message: "", time: time(40) } }),
      { offer, account: "42" },
    ],
    ["the cloud's word of a preemption: everybody", ended("Preempted", { vm: takenBack }), { offer: spotKey }],
    [
      "an agent's notice of a preemption: its account",
      ended("Preempted", { agent: agentOf({ preemptionNotice: time(45) }) }),
      { offer: spotKey, account: "42" },
    ],
    [
      "an agent's report of a preemption: its account",
      boot({ ended: false, offer: offerOf(spot) }, { agent: agentOf({ finish }) }),
      { offer: spotKey, account: "42" },
    ],
    [
      "an agent's report of a preemption on demand: nothing",
      boot({ ended: false }, { agent: agentOf({ finish }) }),
      undefined,
    ],
    [
      "a VM that a cancelled job ended early: nothing",
      boot({}, { vm: { state: "terminated", id: "vm", createTime: time(0), terminationTime: time(60) } }),
      undefined,
    ],
  ])("%s", (_, launch, scope) => {
    const { agent, loss, bootFailure } = launch.status ?? {}
    const isSaid = agent !== undefined || loss !== undefined || bootFailure !== undefined
    const found = scopesAt([launch], isSaid ? 60 : 911)
    const until = isSaid ? at(bootFailure === undefined ? 350 : 340) : expect.any(Date)
    expect(found).toEqual(scope === undefined ? [] : [{ cloud: "sim", ...scope, until }])
  })
})

describe("the length of a cooldown", () => {
  test("is 5 minutes, doubled with each rejection in a row up to an hour", () => {
    expect(scopesAt([refused(0)], 10)).toEqual([{ cloud: "sim", offer, until: at(300) }])
    expect(scopesAt([refused(0)], 300)).toEqual([])
    expect(scopesAt([refused(300), refused(0)], 310)[0]?.until).toEqual(at(300 + 600))
    const many = Array.from({ length: 9 }, (_, i) => refused(i * 3600))
    expect(scopesAt(many, 8 * 3600)[0]?.until).toEqual(at(9 * 3600))
    // Rejections that are further apart than two hours don't count together.
    expect(scopesAt([refused(0), refused(7201)], 7202)[0]?.until).toEqual(at(7501))
  })

  test("ends with a VM within its scope", () => {
    expect(scopesAt([refused(0), goodVm(50)], 60)).toEqual([])
    expect(scopesAt([refused(0), goodVm(50), refused(100)], 110)[0]?.until).toEqual(at(400))
    for (const [name, changes, { account, connection }] of TABLE) {
      expect(scopesAt([refused(0, changes), goodVm(50)], 60), name).toEqual([])
      // Another account's VM proves that the offer exists, and nothing about this account.
      const theirs = goodVm(50, {}, { account: "43", ...OTHER_PROJECT })
      const isShared = account === undefined && connection === undefined
      expect(scopesAt([refused(0, changes), theirs], 60), name).toHaveLength(isShared ? 0 : 1)
    }
  })

  test("a time to come, which a wrong clock wrote, makes no cooldown, and none lasts longer than an hour", () => {
    for (const [name, changes] of TABLE) {
      expect(scopesAt([refused(1e9, changes), refused(1e9, { ...changes, offer: { region: "b" } })], 10), name).toEqual(
        [],
      )
      const many = Array.from({ length: 60 }, (_, i) =>
        refused(i, { ...changes, offer: { region: `r${i % 7}`, instanceType: `t${i % 5}.x` } }),
      )
      for (const { until } of scopesAt(many, 60))
        expect(until.getTime(), name).toBeLessThanOrEqual(at(60 + 3600).getTime())
    }
  })

  test("ends at once when the credentials are replaced", () => {
    const kinds: RefusalClass[] = ["Credentials", "Account", "Region", "InvalidRequest", "Unavailable"]
    for (const kind of kinds) {
      expect(scopesAt([refused(0, { kind, credentials: "v1" })], 1), kind).toEqual([])
      expect(scopesAt([refused(0, { kind, credentials: "v2" })], 1), kind).toHaveLength(1)
      // A Launch of the installation's own account has no version of its credentials.
      expect(scopesAt([refused(0, { kind })], 1), kind).toHaveLength(1)
    }
    expect(scopesAt([refused(0, { kind: "Quota", credentials: "v1" })], 1)).toHaveLength(1)
  })

  test("ends at once when the settings of VMs change, if they may be the cause", () => {
    const settings = { network: "vpc-1", subnets: { here: ["subnet-1"] }, disk: { size: "50Gi" } }
    const frozen = {
      network: { network: "vpc-1", subnets: ["subnet-1"], publicAddress: true },
      disk: { sizeGib: 50, requiredGib: 80 },
    }
    const rests = (kind: RefusalClass, spec: Partial<LaunchSpec>, now: VmSettings | undefined) => {
      const launchAccounts = [{ cloud: "sim", ...OWN, credentials: "v2", ...(now && { settings: now }) }]
      return scopesAt([refused(0, { kind, spec })], 1, { ...team, launchAccounts }).length === 1
    }
    for (const kind of ["Account", "Region", "InvalidRequest"] as const) {
      expect(rests(kind, frozen, settings), kind).toBe(true)
      expect(rests(kind, {}, undefined), kind).toBe(true)
      // The disk that a job requires isn't a setting of the connection.
      expect(rests(kind, { disk: { requiredGib: 80 } }, undefined), kind).toBe(true)
      expect(rests(kind, frozen, { ...settings, subnets: { here: ["subnet-2"] } }), kind).toBe(false)
      expect(rests(kind, frozen, { ...settings, publicAddress: false }), kind).toBe(false)
      expect(rests(kind, frozen, { ...settings, disk: { size: "60Gi" } }), kind).toBe(false)
      expect(rests(kind, frozen, undefined), kind).toBe(false)
      expect(rests(kind, {}, settings), kind).toBe(false)
    }
    for (const kind of ["Capacity", "Quota", "Credentials", "Unavailable"] as const)
      expect(rests(kind, frozen, undefined), kind).toBe(true)
  })
})

describe("quotas", () => {
  const gpu = { model: "T4", count: 1, vramGib: 16 }
  const azure = "Operation could not be completed as it results in exceeding approved"
  test.each<[string, Partial<Offer>, { code?: string; message?: string }, Omit<Cooldown, "until" | "cloud">]>([
    [
      "AWS' standard families share one",
      { cloud: "aws", region: "r", instanceType: "m7g.large" },
      { code: "VcpuLimitExceeded" },
      { region: "r", quota: "Standard (A, C, D, H, I, M, R, T, Z)", provisioning: "onDemand", minCpu: 2 },
    ],
    [
      "AWS' G and VT share one",
      { cloud: "aws", region: "r", instanceType: "vt1.3xlarge", provisioning: "spot" },
      { code: "MaxSpotInstanceCountExceeded" },
      { region: "r", quota: "G and VT", provisioning: "spot", minCpu: 2 },
    ],
    [
      "AWS' volumes",
      { cloud: "aws", region: "r", instanceType: "m7g.large" },
      { code: "VolumeLimitExceeded" },
      { region: "r" },
    ],
    [
      "GCP: all GPUs everywhere",
      { cloud: "gcp", region: "r", instanceType: "g2-standard-4", gpu },
      { message: "Quota 'GPUS_ALL_REGIONS' exceeded.  Limit: 0.0 globally." },
      { gpu: true },
    ],
    [
      "GCP: one card in a region",
      { cloud: "gcp", region: "r", instanceType: "n1-standard-4_1xnvidia-tesla-t4", gpu, provisioning: "spot" },
      { message: "Quota 'PREEMPTIBLE_NVIDIA_T4_GPUS' exceeded. Limit: 0.0 in region r." },
      { region: "r", family: "nvidia-tesla-t4", provisioning: "spot" },
    ],
    [
      "GCP: the vCPUs of E2 and N1",
      { cloud: "gcp", region: "r", instanceType: "e2-standard-2" },
      { message: "Quota 'CPUS' exceeded. Limit: 24.0 in region r." },
      { region: "r", quota: "CPUS", minCpu: 2 },
    ],
    [
      "GCP: a family's vCPUs",
      { cloud: "gcp", region: "r", instanceType: "c2-standard-4" },
      { message: "Quota 'C2_CPUS' exceeded. Limit: 8.0 in region r." },
      { region: "r", quota: "c2", minCpu: 2 },
    ],
    [
      "GCP: addresses",
      { cloud: "gcp", region: "r", instanceType: "c2-standard-4" },
      { message: "Quota 'IN_USE_ADDRESSES' exceeded. Limit: 4.0 in region r." },
      { region: "r" },
    ],
    [
      "Azure: all cores of a region",
      { cloud: "azure", region: "r", instanceType: "Standard_D2s_v5" },
      { code: "OperationNotAllowed", message: `${azure} Total Regional Cores quota. Current Limit: 4` },
      { region: "r", provisioning: "onDemand", minCpu: 2 },
    ],
    [
      "Azure: all spot cores of a region",
      { cloud: "azure", region: "r", instanceType: "Standard_D2s_v5", provisioning: "spot" },
      { code: "OperationNotAllowed", message: `${azure} LowPriorityCores quota. Current Limit: 3` },
      { region: "r", provisioning: "spot", minCpu: 2 },
    ],
    [
      "Azure: a family",
      { cloud: "azure", region: "r", instanceType: "Standard_NC4as_T4_v3", gpu },
      { code: "QuotaExceeded", message: `${azure} standardNCASv3_T4Family Cores quota.` },
      { region: "r", quota: "NCas_T4_v3", provisioning: "onDemand", minCpu: 2 },
    ],
  ])("%s", (_, changes, said, scope) => {
    const { cloud = "" } = changes
    const viewer = { ...team, launchAccounts: [] }
    const found = scopesAt([refused(0, { kind: "Quota", ...said, offer: changes })], 1, viewer)
    expect(found).toEqual([{ cloud, account: "42", ...scope, until: at(300) }])
  })

  test("rest from the smallest size on that was refused, until the account gets a VM of that size", () => {
    const [small, large] = [
      refused(0, { kind: "Quota", offer: { cpu: 4 } }),
      refused(10, { kind: "Quota", offer: { cpu: 8 } }),
    ]
    const scope = { cloud: "sim", region: "here", quota: "small", provisioning: "onDemand", account: "42" }
    expect(scopesAt([large, small], 20)).toEqual([{ ...scope, minCpu: 4, until: at(10 + 600) }])
    expect(scopesAt([large, small, goodVm(30, { cpu: 2 })], 40)).toHaveLength(1)
    expect(scopesAt([large, small, goodVm(30, { cpu: 4 })], 40)).toEqual([])
  })

  test("a quota that is used up in several regions rests in all; what the cloud gave meanwhile disproves it", () => {
    const used = (count: number) =>
      Array.from({ length: count }, (_, i) => refused(i * 10, { kind: "Quota", offer: { region: `r${i}` } }))
    const everywhere = (launches: StoredLaunch[]) => scopesAt(launches, 60).filter(({ region }) => region === undefined)
    expect(everywhere(used(QUOTA_REGIONS - 1))).toEqual([])
    const scope = { cloud: "sim", account: "42", quota: "small", provisioning: "onDemand", minCpu: 2 }
    expect(everywhere(used(QUOTA_REGIONS))).toEqual([{ ...scope, until: at(10 * (QUOTA_REGIONS - 1) + 300) }])
    expect(everywhere([...used(QUOTA_REGIONS), goodVm(15, { region: "r9" })])).toEqual([])
  })
})

describe("rejections of one connection in a row", () => {
  const invalid = (seconds: number, offer: Partial<Offer>, changes: Refused = {}) =>
    refused(seconds, { kind: "InvalidRequest", offer, ...changes })
  const wider = (launches: readonly StoredLaunch[], seconds = 100) =>
    scopesAt(launches, seconds).filter(({ offer }) => offer === undefined)
  const own = { cloud: "sim", connection: "main" }

  test(`widen to a type or a family after ${FAMILY_OFFERS} of its offers`, () => {
    const type = Array.from({ length: FAMILY_OFFERS }, (_, i) => invalid(i, { region: `r${i}` }))
    expect(wider(type.slice(1))).toEqual([])
    expect(wider(type)).toEqual([{ ...own, instanceType: "small", until: at(2 + 300) }])
    const aws = Array.from({ length: FAMILY_OFFERS }, (_, i) =>
      invalid(i, { cloud: "aws", region: `r${i}`, instanceType: `m7g.${i}` }),
    )
    expect(wider(aws)).toEqual([{ cloud: "aws", connection: "main", family: "m7g", until: at(2 + 300) }])
    // The same offer again says nothing about others.
    expect(wider([invalid(0, {}), invalid(300, {}), invalid(900, {})], 901)).toEqual([])
  })

  test(`widen to a region after ${REGION_FAMILIES} of its families`, () => {
    const families = Array.from({ length: REGION_FAMILIES }, (_, i) => invalid(i, { instanceType: `t${i}` }))
    expect(wider(families)).toEqual([{ ...own, region: "here", until: at(2 + 300) }])
    // Whatever the cause of each is, the region gave no VM.
    const other = invalid(0, { instanceType: "t0" }, { code: "Other", message: "another cause" })
    expect(wider([...families.slice(1), other])).toEqual(wider(families))
    expect(wider([...families, goodVm(1, { instanceType: "t9" })])).toEqual([])
    expect(wider([...families.slice(1), invalid(0, { instanceType: "t0" }, { spec: OTHER_PROJECT })])).toEqual([])
    // Capacity proves nothing about an account.
    const capacity = families.map((_, i) => refused(i, { offer: { instanceType: `t${i}` } }))
    expect(wider(capacity)).toEqual([])
  })

  /** Rejections of one kind in so many regions. Only AWS' words say that an account's setting is of one region. */
  const regions = (kind: RefusalClass, count: number) =>
    Array.from({ length: count }, (_, i) => inRegion(kind, i, { region: `r${i}`, instanceType: `t${i % 4}` }))
  const inRegion = (kind: RefusalClass, seconds: number, offer: Partial<Offer>) =>
    kind === "Account"
      ? refused(seconds, { kind, code: "Bad", message: "no default VPC", offer: { cloud: "aws", ...offer } })
      : refused(seconds, { kind, code: "Bad", message: `no ${offer.region}`, offer })
  const whole = (launches: readonly StoredLaunch[], seconds = 100, cloud = "sim") =>
    cooldownsAt(launches, seconds).find((each) =>
      blocks(each, offerOf({ cloud, region: "z", instanceType: "y" }), { cloud, ...OWN }),
    )

  test.each([
    ["Region", "sim", "no r19", expect.stringContaining("set `region`")],
    ["InvalidRequest", "sim", "no r19", undefined],
    ["Account", "aws", "no default VPC", expect.stringContaining("create a default VPC")],
  ] as const)(
    `%s of ${CONNECTION_OFFERS} offers in many regions widen to the connection`,
    (kind, cloud, said, remedy) => {
      expect(whole(regions(kind, CONNECTION_OFFERS - 1), 100, cloud)).toBeUndefined()
      expect(whole(regions(kind, CONNECTION_OFFERS), 100, cloud)).toEqual({
        cloud,
        connection: "main",
        until: at(CONNECTION_OFFERS - 1 + 300),
        cause: { group: `${cloud} rejected 20 launches of connection main`, detail: `Bad: ${said}`, remedy },
      })
      expect(
        whole([...regions(kind, CONNECTION_OFFERS), goodVm(30, { cloud, region: "far" })], 100, cloud),
      ).toBeUndefined()
      // Each trial after it doubles the time, and is in another region.
      const more = regions(kind, CONNECTION_OFFERS)
      const trial = inRegion(kind, 400, { region: "r99" })
      expect(whole([...more, trial], 401, cloud)?.until).toEqual(at(400 + 600))
      const first = scopesAt(more, 400).filter((each) =>
        blocks(each, offerOf({ cloud, region: "r3", instanceType: "t3" }), { cloud, ...OWN }),
      )
      expect(first.map(({ until }) => until)).toContainEqual(at(3 + 3600))
    },
  )

  test("count together whatever their kinds are", () => {
    const mixed = Array.from({ length: CONNECTION_OFFERS }, (_, i) =>
      inRegion(i % 2 === 0 ? "Region" : "InvalidRequest", i, { region: `r${i}`, instanceType: `t${i % 4}` }),
    )
    expect(whole(mixed)).toMatchObject({ ...own, until: at(CONNECTION_OFFERS - 1 + 300) })
  })

  test.each(["Region", "InvalidRequest"] as const)("%s of spot VMs only widen to spot", (kind) => {
    const spot = (launches: readonly StoredLaunch[]) =>
      launches.map((launch) => ({
        ...launch,
        spec: { ...launch.spec, offer: { ...launch.spec.offer, provisioning: "spot" as const } },
      }))
    const rejected = spot(regions(kind, CONNECTION_OFFERS))
    const until = at(CONNECTION_OFFERS - 1 + 300)
    expect(whole(rejected)).toBeUndefined()
    expect(wider(rejected)).toContainEqual({ ...own, provisioning: "spot", until })
    // A VM on demand proves nothing about spot, a spot VM does.
    expect(wider([...rejected, goodVm(30, { region: "far" })])).toContainEqual({ ...own, provisioning: "spot", until })
    const provisioning = "spot" as const
    expect(wider([...rejected, goodVm(30, { region: "far", provisioning })])).not.toContainEqual(
      expect.objectContaining({ region: undefined, instanceType: undefined }),
    )
    const onDemand = inRegion(kind, 90, { region: "r99" })
    expect(whole([...rejected, onDemand])).toMatchObject(own)
  })

  test("a rejection of spot in a region does not lengthen the region's cooldown for machines on demand", () => {
    const rejected = [refused(0, { kind: "Region" }), refused(200, { kind: "Region", offer: { provisioning: "spot" } })]
    expect(scopesAt(rejected, 201)).toEqual([
      { ...own, region: "here", until: at(300) },
      { ...own, region: "here", provisioning: "spot", until: at(500) },
    ])
  })

  test("a machine type that two regions have denied rests in all, shortly, unless it was had anywhere", () => {
    const denied = [refused(0, { kind: "Region" }), refused(400, { kind: "Region", offer: { region: "there" } })]
    const type = { ...own, instanceType: "small", until: at(700) }
    expect(scopesAt(denied, 401)).toContainEqual(type)
    expect(scopesAt([...denied, goodVm(-900, { region: "far" })], 401)).not.toContainEqual(type)
    expect(scopesAt(denied.slice(1), 401)).not.toContainEqual(type)
  })
})

test("sizes that Azure lists as restricted rest with the first one that was refused, until one of them is had", () => {
  const message = "the requested size Standard_D2s_v5 is not available in r for the subscription"
  const offer = { cloud: "azure", region: "r", instanceType: "Standard_D2s_v5" }
  const machines = [offer.instanceType, seriesOf("azure", "Standard_E2s_v5"), "Standard_B2ms"]
  const launch = refused(0, { kind: "InvalidRequest", code: "SkuNotAvailable", message, offer, machines })
  const [cooldown, ...more] = cooldownsAt([launch], 1)
  expect(more).toEqual([])
  const isBlocked = (instanceType: string, changes: Partial<Offer> = {}) =>
    blocks(cooldown as Cooldown, offerOf({ ...offer, instanceType, ...changes }), { cloud: "azure", ...OWN })
  const blocked = ["Standard_D2s_v5", "Standard_E96s_v5", "Standard_B2ms"].map((type) => isBlocked(type))
  expect(blocked).toEqual([true, true, true])
  expect(isBlocked("Standard_E96s_v5", { provisioning: "spot" })).toBe(true)
  expect(isBlocked("Standard_E96s_v5", { region: "elsewhere" })).toBe(false)
  expect(isBlocked("Standard_B2s")).toBe(false)
  expect(cooldown?.cause?.remedy).toContain("may not use these sizes")
  expect(cooldownsAt([launch, goodVm(5, { ...offer, instanceType: "Standard_B2s" })], 10)).toHaveLength(1)
  expect(cooldownsAt([launch, goodVm(5, { ...offer, instanceType: "Standard_B2ms" })], 10)).toHaveLength(0)
})

test("an account on AWS' Free plan keeps the types that the plan has", () => {
  const message =
    "RunInstances in r: InvalidParameterCombination: The specified instance type is not eligible for Free Tier."
  const launch = refused(0, { kind: "Account", message, offer: { cloud: "aws", instanceType: "t4g.nano" } })
  const [cooldown] = cooldownsAt([launch], 1)
  const main = { cloud: "aws", ...OWN }
  const isBlocked = (instanceType: string) =>
    blocks(cooldown as Cooldown, offerOf({ cloud: "aws", instanceType }), main)
  expect(isBlocked("t4g.medium")).toBe(true)
  expect(isBlocked("m7i-flex.large")).toBe(false)
  expect(cooldown?.cause?.remedy).toContain("upgrade the account")
  // A VM of such a type says nothing about the others.
  expect(cooldownsAt([launch, goodVm(5, { cloud: "aws", instanceType: "m7i-flex.large" })], 10)).toHaveLength(1)
  expect(cooldownsAt([launch, goodVm(5, { cloud: "aws", instanceType: "m7g.large" })], 10)).toHaveLength(0)
})
