import { expect, test } from "vitest"
import { OutcomeUnknownError, RegionError, TransientError } from "../../cloud/errors.ts"
import { KubeError } from "../../kube/errors.ts"
import { NotLeaderError } from "../fence.ts"
import { launchErrorOf } from "./create.ts"

test.each<[unknown, ReturnType<typeof launchErrorOf>]>([
  [new TransientError("Throttled", "slow down"), { class: "Unavailable", message: "slow down" }],
  [new OutcomeUnknownError("Timeout", "no answer"), { class: "Unavailable", message: "no answer" }],
  [new RegionError("AuthFailure", "not here"), { class: "Credentials", message: "not here" }],
  [
    new TypeError("x is undefined"),
    { class: "Unavailable", message: "internal error in Berth (TypeError); the operator's log has details" },
  ],
  [new NotLeaderError("another leads"), undefined],
  [new KubeError({ code: 503, reason: "ServiceUnavailable", message: "later" }), undefined],
])("an owner sees %s as %o", (error, shown) => {
  expect(launchErrorOf(error)).toEqual(shown)
})
