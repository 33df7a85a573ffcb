import { expect, test } from "vitest"
import type { LaunchSpec } from "../../clouds/cloud.ts"
import type { Clock } from "../../core/apis/clock.ts"
import type { StoredLaunch } from "../../core/apis/launch.ts"
import { KubeError } from "../../core/kube/errors.ts"
import { OutcomeUnknownError, RegionError, SubnetCapacityError, TransientError } from "../../core/outbound/errors.ts"
import { NotLeaderError } from "../fence.ts"
import { CloudCalls, type CloudContext, createInstance, toLaunchError } from "./create.ts"

test.each<[unknown, ReturnType<typeof toLaunchError>]>([
  [new TransientError("Throttled", "slow down"), { class: "Unavailable", message: "slow down" }],
  [new OutcomeUnknownError("Timeout", "no answer"), { class: "Unavailable", message: "no answer" }],
  [new RegionError("AuthFailure", "not here"), { class: "Credentials", message: "not here" }],
  [
    new TypeError("x is undefined"),
    { class: "Unavailable", message: "internal error in Berth (TypeError); the operator's log has details" },
  ],
  [new NotLeaderError("another leads"), undefined],
  [new KubeError({ code: 503, reason: "ServiceUnavailable", message: "later" }), undefined],
])("%s is shown to the owner as %o", (error, shown) => {
  expect(toLaunchError(error)).toEqual(shown)
})

test("a subnet without capacity is recorded before the next one is requested, with the settings of the Launch", async () => {
  const requests: LaunchSpec[] = []
  const launch = (spec: LaunchSpec) => {
    requests.push(spec)
    if (spec.exhaustedSubnets === undefined) throw new SubnetCapacityError("InsufficientInstanceCapacity", "none")
    const vm = { id: "i-1", launch: spec.name, installation: "i", region: "r", createTime: "2026-01-31T12:00:00Z" }
    return Promise.resolve({ ...vm, state: "booting" as const })
  }
  const options = { clouds: { open: () => Promise.resolve({ launch }) }, fence: () => undefined, userData: () => "" }
  const calls = new CloudCalls({ now: () => new Date(0), monotonic: () => 0 } as Clock)
  const context = { options, calls, settings: {}, signal: new AbortController().signal } as unknown as CloudContext
  const network = { subnets: ["subnet-1", "subnet-2"], publicAddress: false }
  const spec = {
    job: { namespace: "a", name: "b" },
    offer: { cloud: "aws", region: "r" },
    network,
    disk: { sizeGib: 70 },
  }
  const stored = { metadata: { name: "u-1" }, spec } as unknown as StoredLaunch
  const status = await createInstance(stored, context)
  expect(status).toMatchObject({ phase: "requested", exhaustedSubnets: 1, message: "trying another subnet: none" })
  expect(status?.refusal).toBeUndefined()
  calls.settled("u-1")
  expect(await createInstance({ ...stored, status: { exhaustedSubnets: 1 } }, context)).toMatchObject({
    phase: "created",
  })
  expect(requests).toMatchObject([
    { name: "u-1", network, disk: { sizeGib: 70 } },
    { name: "u-1", network, disk: { sizeGib: 70 }, exhaustedSubnets: 1 },
  ])
})
