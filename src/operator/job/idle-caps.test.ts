import { describe, expect, test } from "vitest"
import { agentOf, jobOf, launchOf, time, vmStatus } from "../../../test/harness/builders.ts"
import { ManualClock } from "../../../test/harness/manual-clock.ts"
import type { StoredLaunch } from "../../core/apis/launch.ts"
import { IndexedStore } from "../../core/kube/store.ts"
import { LaunchLedger, ledgerIndexes } from "../../market/placement/ledger.ts"
import { idleBeyondCaps } from "../../market/placement/market.ts"

describe("caps of idle VMs on two levels", () => {
  const launches = new IndexedStore<StoredLaunch>(ledgerIndexes)
  const idle = (namespace: string, name: string, since: number) =>
    launches.put(
      launchOf(jobOf({ metadata: { namespace, name, uid: name } }), 1, {
        spec: { run: { image: "a", reuse: { idleSeconds: 300 } }, organization: "sea" },
        status: vmStatus({
          agent: agentOf({ finish: { reason: "Succeeded", time: time(5) }, idleTime: time(since) }),
        }),
      }),
    )
  for (const [namespace, name, since] of [
    ["gulls", "g1", 10],
    ["whales", "w1", 20],
    ["gulls", "g2", 30],
    ["gulls", "g3", 40],
    ["whales", "w2", 50],
  ] as const)
    idle(namespace, name, since)
  const level = (kind: "project" | "organization", maxIdleVms: number, owns: (namespace: string) => boolean) => ({
    ...{ level: kind, name: kind, caps: { maxIdleVms }, owns },
  })

  // `gulls` has three idle VMs, its organization five. Each row: cap of the project, of the organization, VMs that end.
  test.each([
    ["the project's alone", 1, 5, ["g2", "g1"]],
    ["the organization's alone, in any project", 3, 3, ["w1", "g1"]],
    ["both: what ends for the project is none too many for the organization", 1, 3, ["g2", "g1"]],
    ["both: the oldest of the rest end for the organization", 1, 2, ["g2", "g1", "w1"]],
    ["both: none of the project, and all beyond one", 0, 1, ["g3", "g2", "g1", "w1"]],
    ["neither", 3, 5, []],
  ])("hold: %s", (_, ofProject, ofOrganization, names) => {
    const caps = () => [
      level("project", ofProject, (namespace) => namespace === "gulls"),
      level("organization", ofOrganization, () => true),
    ]
    const ledger = new LaunchLedger(launches, new ManualClock())
    expect(idleBeyondCaps("gulls", { caps }, ledger).map(({ spec }) => spec.job.name)).toEqual(names)
  })
})
