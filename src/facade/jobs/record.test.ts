import { expect, it } from "vitest"
import { offerOf } from "../../../test/controllers/builders.ts"
import { toMetadataName } from "../../apis/names.ts"
import type { JobPlan } from "../../placement/place.ts"
import { planRecordOf } from "./record.ts"

it("names the connections of a plan as REST does", () => {
  const launchAccounts = [{ cloud: "sim", connection: toMetadataName("My_Account") ?? "" }, { cloud: "sim" }]
  const placements = launchAccounts.map((launchAccount) => ({ offer: offerOf(), launchAccount, totalUsd: 1 }))
  const plan: JobPlan = { verdict: "placeable", reason: "Placed", message: "m", placements, ranking: [] }
  expect(planRecordOf("a", plan).placements.map(({ connection }) => connection)).toEqual(["My_Account", null])
})
