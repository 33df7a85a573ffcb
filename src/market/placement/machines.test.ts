import { describe, expect, test } from "vitest"
import {
  at,
  jobOf,
  MACHINE_LAUNCH as launch,
  launchOf,
  machineOf,
  marketOf,
  OFFERS,
} from "../../../test/harness/builders.ts"
import type { JobSpec } from "../../core/apis/job.ts"
import type { LaunchSpec, LaunchStatus } from "../../core/apis/launch.ts"
import type { StoredMachine } from "../../core/apis/machine.ts"
import type { Offer } from "../../core/apis/offer.ts"
import { createCatalogue } from "../router/catalogue.ts"
import { claimedMachines, ownAccount, ownOffers, withOwnOffers } from "./machines.ts"
import { place } from "./place.ts"
import { JOB_DEFAULTS } from "./settings.ts"

const NOW = at(100)
const offers = createCatalogue(OFFERS)
function verdict(machines: readonly StoredMachine[], spec: Partial<JobSpec> = {}, namespace = "team") {
  const own = ownOffers(machines, namespace)
  const market = marketOf({
    offers: withOwnOffers(offers, own),
    own,
    launchAccounts: [{ cloud: "sim", connection: "main" }, ...ownAccount(machines, namespace)],
  })
  return place(jobOf({ spec: { timeoutSeconds: 600, ...spec } }), market, NOW, JOB_DEFAULTS)
}

const machine = (name: string, changes: Parameters<typeof machineOf>[0] = {}) =>
  machineOf({ ...changes, metadata: { name, uid: name, ...changes.metadata } })

describe("own machines in routing", () => {
  test("a free one is the cheapest offer, at its owner's price", () => {
    expect(verdict([machine("gpu-1")])).toMatchObject({
      kind: "placed",
      placement: { offer: { cloud: "own", instanceType: "gpu-1" }, totalUsd: 0, launchAccount: { account: "team" } },
    })
    expect(verdict([machine("gpu-1", { spec: { hourlyPriceUsd: 50 } })])).toMatchObject({
      placement: { offer: { cloud: "sim" } },
    })
  })

  test("a job bursts to a cloud when all have jobs, and says that one was passed over", () => {
    const full = verdict([machine("gpu-1", { status: { launch } })])
    expect(full).toMatchObject({ kind: "placed", placement: { offer: { cloud: "sim" } } })
    expect(full.kind === "placed" && full.why).toContain("machine gpu-1 has another job")
  })

  test("a job leaves a machine to the Launch that is about to get it", () => {
    const offer = (instanceType: string) => ({ offer: { ...OFFERS[0], cloud: "own", instanceType } as Offer })
    const claims = (namespace: string, spec: Partial<LaunchSpec>, status: LaunchStatus = {}) =>
      claimedMachines([launchOf(jobOf({ metadata: { namespace } }), 1, { spec, status })])
    const whys = (claimed: ReadonlySet<string>) =>
      ownOffers([machine("gpu-1"), machine("gpu-2")], "team", claimed).map(({ why }) => why)
    expect(whys(claims("team", offer("gpu-1")))).toEqual(["machine gpu-1 has another job", undefined])
    expect(whys(claims("strangers", offer("team/gpu-2")))).toEqual([undefined, "machine gpu-2 has another job"])
    // From then on the machine itself says who has it.
    const none = [undefined, undefined]
    for (const phase of ["created", "terminated", "refused"] as const)
      expect(whys(claims("team", offer("gpu-1"), { phase }))).toEqual(none)
    expect(whys(claims("strangers", offer("gpu-1")))).toEqual(none)
    expect(whys(claims("team", { offer: OFFERS[0] as Offer }))).toEqual(none)
  })

  test("a job that allows own machines only waits for one, and never fails for want of an offer", () => {
    expect(verdict([machine("gpu-1", { status: { launch } })], { cloud: ["own"] })).toMatchObject({
      kind: "wait",
      reason: "NoCapacity",
      message: expect.stringContaining("machine gpu-1 has another job"),
    })
    expect(verdict([machine("gpu-1", { status: { launch } }), machine("gpu-2")], { cloud: ["own"] })).toMatchObject({
      placement: { offer: { instanceType: "gpu-2" } },
    })
  })

  test("a job gets no machine that is too small, elsewhere, or another project's", () => {
    const wants = (spec: Partial<JobSpec>, namespace = "team") => {
      const found = verdict([machine("gpu-1")], spec, namespace)
      return found.kind === "placed" ? found.placement.offer.cloud : found.kind
    }
    expect(wants({ resources: { memory: "31.5Gi" } })).toBe("own")
    expect(wants({ resources: { memory: "31.9Gi" }, cloud: ["own"] })).toBe("noOffer")
    expect(wants({ region: ["here"] })).toBe("sim")
    expect(wants({ region: ["own"] })).toBe("own")
    expect(wants({ resources: { disk: "150Gi" } })).toBe("own")
    expect(wants({ resources: { disk: "250Gi" } })).toBe("sim")
    expect(wants({}, "strangers")).toBe("sim")
  })

  test("a shared machine is offered to every project under its owner's namespace", () => {
    const shared = machine("gpu-1", { spec: { shared: true } })
    expect(verdict([shared], {}, "strangers")).toMatchObject({
      placement: { offer: { instanceType: "team/gpu-1" }, launchAccount: { account: "strangers" } },
    })
  })

  test("a GPU job finds the cards by the name that nvidia-smi gives them", () => {
    const gpu = { model: "NVIDIA A100-SXM4-80GB", count: 2, vramGib: 80 }
    const withCards = machine("gpu-1", { status: { host: { facts: { gpu } } } })
    expect(verdict([withCards], { resources: { gpu: { model: "A100", count: 1 } }, cloud: ["own"] })).toMatchObject({
      placement: { offer: { instanceType: "gpu-1" } },
    })
    expect(verdict([withCards], { resources: { gpu: { model: "H100", count: 1 } }, cloud: ["own"] }).kind).toBe(
      "noOffer",
    )
  })
})
