import { expect, it } from "vitest"
import { offerOf } from "../../../../test/harness/builders.ts"
import { toMetadataName } from "../../../core/apis/names.ts"
import type { JobPlan } from "../../../market/placement/place.ts"
import { toPlanRecord } from "./plan.ts"

const COST = {
  prices: { machineUsd: 0.9, diskUsd: 0.06, addressUsd: 0.04 },
  cost: { machineUsd: 0.9, diskUsd: 0.06, addressUsd: 0.04 },
  trafficUsd: 0,
  totalUsd: 1,
}

it("a plan names its connections as REST does", () => {
  const launchAccounts = [{ cloud: "sim", connection: toMetadataName("My_Account") ?? "" }, { cloud: "sim" }]
  const placements = launchAccounts.map((launchAccount) => ({ offer: offerOf(), launchAccount, ...COST }))
  const plan: JobPlan = { verdict: "placeable", reason: "Placed", message: "m", placements, ranking: [] }
  expect(toPlanRecord("a", plan).placements.map(({ connection }) => connection)).toEqual(["My_Account", null])
})
