import { describe, expect, it } from "vitest"
import { gatewaysToAsk, nextRecord } from "./decide.ts"

const URL = "https://berth.test"
const FORMER = "https://former.test"
const known = { gateways: [FORMER, URL] }
const facts = { operator: "me", gatewayUrl: URL }

describe("a copied cluster", () => {
  const none = { url: URL, operator: undefined }
  const own = { url: URL, operator: "me" }
  const other = { url: URL, operator: "another" }
  const nothing = { url: URL, operator: "" }

  it.each([
    ["its gateway names this operator", [own], undefined, undefined],
    ["its gateway does not answer", [none], undefined, undefined],
    ["its gateway names another operator", [other], undefined, URL],
    ["its gateway names no operator", [nothing], undefined, URL],
    ["a former gateway names another operator", [own, { ...other, url: FORMER }], undefined, FORMER],
    ["the gateway that named another does not answer", [none], URL, URL],
    ["another gateway names this operator", [own, { ...none, url: FORMER }], FORMER, FORMER],
    ["the gateway that named another names this operator", [own], URL, undefined],
  ])("is recognized by its gateways: %s", (_, answers, before, copyOf) => {
    const record = { ...known, ...(before && { copyOf: before }) }
    expect(nextRecord(record, { ...facts, answers })).toEqual({ ...known, ...(copyOf && { copyOf }) })
  })

  it("remembers the latest 8 gateways, and asks its own first", () => {
    const gateways = Array.from({ length: 8 }, (_, i) => `https://${i}.test`)
    const next = nextRecord({ gateways }, { ...facts, answers: [] })
    expect(next.gateways).toEqual([...gateways.slice(1), URL])
    expect(nextRecord(next, { ...facts, answers: [] }).gateways).toBe(next.gateways)
    expect(gatewaysToAsk({ gateways: [FORMER], copyOf: FORMER }, URL, [URL, "https://launched.test"])).toEqual([
      ...[URL, FORMER, "https://launched.test"],
    ])
  })
})
