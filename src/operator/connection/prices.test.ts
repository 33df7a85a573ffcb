import { describe, expect, it } from "vitest"
import type { ConnectionStatus, StoredConnection } from "../../core/apis/connection.ts"
import type { Condition } from "../../core/apis/schema.ts"
import { type PriceState, pricesCondition } from "./prices.ts"

function connection(status: ConnectionStatus = {}): StoredConnection {
  const metadata = {
    name: "main",
    namespace: "n",
    uid: "u",
    resourceVersion: "1",
    generation: 1,
    creationTimestamp: "",
  }
  return { apiVersion: "", kind: "Connection", metadata, spec: { type: "aws" }, status }
}

const list: PriceState = { what: "on-demand", date: "2026-11-27", isShipped: false, isCurrent: true }
const spot: PriceState = { what: "spot", date: "2026-11-27", isShipped: false, isCurrent: true }
const shippedSpot: PriceState = { what: "spot", date: "2025-04-24", isShipped: true, isCurrent: false }
const shippedList = { ...shippedSpot, what: "on-demand" }
const denied = {
  status: "False",
  reason: "PermissionsMissing",
  message: "AWS denies pricing:GetProducts: add it",
} as const
const known: Condition = { type: "Prices", status: "True", reason: "Read", message: "", lastTransitionTime: "" }

describe("the condition of prices", () => {
  it.each<[string, ConnectionStatus, PriceState[], string]>([
    [
      "is True with the days",
      {},
      [list, spot],
      "True Read: Berth reads the prices of aws: on-demand of 2026-11-27, spot of 2026-11-27",
    ],
    [
      "is True by another connection, too",
      { capabilities: { prices: denied } },
      [list],
      "True Read: Berth reads the prices of aws: on-demand of 2026-11-27",
    ],
    [
      "is False with the check's words, and what Berth uses",
      { capabilities: { prices: denied } },
      [shippedList, shippedSpot],
      "False Forbidden: AWS denies pricing:GetProducts: add it; Berth uses the shipped on-demand prices of 2025-04-24 and the shipped spot prices of 2025-04-24",
    ],
    [
      "is False with the cloud's words, about the part that is stale",
      {},
      [
        list,
        { ...shippedSpot, failure: { isForbidden: true, message: "UnauthorizedOperation: no identity-based policy" } },
      ],
      "False Forbidden: UnauthorizedOperation: no identity-based policy; Berth uses the shipped spot prices of 2025-04-24",
    ],
    [
      "does not have the words of another project's connection",
      {},
      [{ ...shippedSpot, failure: { isForbidden: true } }],
      "False Forbidden: another connection of this cloud has no right to read them; Berth uses the shipped spot prices of 2025-04-24",
    ],
    [
      "is False if the cloud does not answer, with the last prices",
      {},
      [list, { ...spot, date: "2026-11-20", isCurrent: false, failure: { isForbidden: false, message: "ENOTFOUND" } }],
      "False Unreachable: aws can't be asked for its prices: ENOTFOUND; Berth uses the spot prices of 2026-11-20",
    ],
    [
      "is Unknown before the first answer",
      {},
      [shippedSpot],
      "Unknown NotRead: Berth has not read the prices of aws yet, which takes a verified connection; Berth uses the shipped spot prices of 2025-04-24",
    ],
    ["stays after a start, until something was tried", { conditions: [known] }, [shippedSpot], ""],
    ["stays as it is if Berth reads no prices", {}, [], ""],
  ])("%s", (_, status, states, expected) => {
    const shown = pricesCondition(connection(status), states).map(
      (update) => `${update.status} ${update.reason}: ${update.message}`,
    )
    expect(shown.join()).toBe(expected)
  })
})
