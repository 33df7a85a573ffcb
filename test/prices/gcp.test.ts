import { generateKeyPairSync, verify } from "node:crypto"
import { readFile } from "node:fs/promises"
import { join } from "node:path"
import { afterAll, afterEach, beforeAll, expect, it } from "vitest"
import { gcpPrices } from "../../src/clouds/gcp/prices.ts"
import { CredentialsError } from "../../src/core/outbound/errors.ts"
import { readPriceList } from "../../src/market/catalogue/shipped.ts"
import { type ApiServer, type Operation, startApiServer, unending } from "../providers/api-server.ts"
import { read } from "./reading.ts"

const EMAIL = "berth@ship-yard.iam.gserviceaccount.com"
const TOKEN = "ya29.of-a-test"
const { privateKey, publicKey } = generateKeyPairSync("rsa", { modulusLength: 2048 })
const credentials = {
  gcp_project_id: "ship-yard",
  keyfile_json: JSON.stringify({
    type: "service_account",
    private_key: privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
    client_email: EMAIL,
  }),
}

/** A SKU of the API: https://cloud.google.com/billing/docs/reference/rest/v1/services.skus/list#Sku */
function sku(description: string, usd: number, { usageType = "OnDemand", region = "us-central1", ...changes } = {}) {
  const usageUnit = / Ram$/.test(description) ? "GiBy.h" : "h"
  const unitPrice = { currencyCode: "USD", units: String(Math.floor(usd)), nanos: Math.round((usd % 1) * 1e9) }
  return {
    name: `services/6F81-5844-456A/skus/${description.length}`,
    description: `${description} running in Iowa`,
    category: { serviceDisplayName: "Compute Engine", resourceFamily: "Compute", resourceGroup: "CPU", usageType },
    serviceRegions: [region],
    pricingInfo: [
      {
        effectiveTime: "2026-11-20T07:00:00Z",
        pricingExpression: { usageUnit, displayQuantity: 1, tieredRates: [{ startUsageAmount: 0, unitPrice }] },
      },
    ],
    ...changes,
  }
}

/** Prices of Iowa in Google's price list when the shipped list was generated. */
const RATES = {
  "N1 Predefined Instance": [0.031611, 0.004237],
  "N2 Instance": [0.031611, 0.004237],
  "E2 Instance": [0.021811, 0.002923],
  "A2 Instance": [0.031611, 0.004237],
  "C2D AMD Instance": [0.029563, 0.003959],
  "Memory-optimized Instance": [0.0348, 0.0051],
} as const
const SPOT_N2 = { usageType: "Preemptible" }
const SKUS = [
  ...Object.entries(RATES).flatMap(([name, [core, ram]]) => [sku(`${name} Core`, core), sku(`${name} Ram`, ram)]),
  sku("Nvidia Tesla T4 GPU", 0.35),
  sku("Nvidia Tesla A100 GPU", 2.933908),
  sku("Spot Preemptible N2 Instance Core", 0.01499, SPOT_N2),
  sku("Spot Preemptible N2 Instance Ram", 0.00201, SPOT_N2),
  // SKUs that aren't such a price, or unusable.
  sku("N2 Custom Instance Core", 0.033174),
  sku("N2 Sole Tenancy Instance Core", 0.0348),
  sku("Commitment v1: N2 Cpu in Iowa for 1 Year", 0.019915, { usageType: "Commit1Yr" }),
  sku("Nvidia Tesla T4 GPU attached to Spot Preemptible VMs", 0.11),
  sku("N2 Instance Core", 9.99, { region: "europe-west3" }),
]

const PAGE = 8

const BILLING: Operation[] = [
  {
    method: "POST",
    host: "oauth2.googleapis.com",
    path: /^[/]token$/,
    answer: ({ body }) => {
      const assertion = new URLSearchParams(body).get("assertion") ?? ""
      const [header = "", claims = "", signature = ""] = assertion.split(".")
      const { scope } = JSON.parse(Buffer.from(claims, "base64url").toString() || "{}") as { scope?: string }
      const isSigned = verify(
        "RSA-SHA256",
        Buffer.from(`${header}.${claims}`),
        publicKey,
        Buffer.from(signature, "base64url"),
      )
      if (!isSigned) return { status: 400, json: { error: "invalid_grant" } }
      // One of the scopes in the method's documentation.
      if (scope !== "https://www.googleapis.com/auth/cloud-billing.readonly")
        return { status: 400, json: { error: "invalid_scope" } }
      return { json: { access_token: TOKEN, expires_in: 3599, token_type: "Bearer" } }
    },
  },
  {
    method: "GET",
    host: "cloudbilling.googleapis.com",
    path: /^[/]v1[/]services[/]6F81-5844-456A[/]skus$/,
    query: {
      currencyCode: /^USD$/,
      pageSize: /^([1-9]\d{0,3}|5000)$/,
      "?pageToken": /^\d+$/,
      fields: /^[A-Za-z,()]+$/,
    },
    headers: { authorization: /^Bearer ya29\.of-a-test$/ },
    answer: ({ query }) => {
      const from = Number(query.get("pageToken") ?? 0)
      const nextPageToken = from + PAGE < SKUS.length ? String(from + PAGE) : ""
      return { json: { skus: SKUS.slice(from, from + PAGE), nextPageToken } }
    },
  },
]

let server: ApiServer
beforeAll(async () => {
  server = await startApiServer(BILLING)
})
afterAll(() => server.stop())
afterEach(() => expect(server.faults.splice(0)).toEqual([]))

const { machines, regions, ...list } = readPriceList()
const known = machines.filter(({ cloud }) => cloud === "gcp")
const question = { credentials, regions: ["us-central1", "europe-west3"], machines: known, signal: unending() }

/** Prices of Iowa in the shipped list. */
function shipped(provisioning: "onDemand" | "spot", types: RegExp): Record<string, number> {
  const prices: Record<string, number> = {}
  for (const [row, machine] of list.machine.entries()) {
    const { cloud, instanceType = "" } = machines[machine] ?? {}
    if (cloud !== "gcp" || regions[list.region[row] ?? -1]?.name !== "us-central1" || !types.test(instanceType))
      continue
    const price = list[provisioning][row] ?? 0
    if (price > 0) prices[instanceType] = price / 1e6
  }
  return prices
}

it("the price reader of Google adds a machine's price up from its parts' prices, equal to the shipped list", async () => {
  const { prices, calls, error } = await read(gcpPrices({ send: server.send }).list, question)
  expect(error).toBeUndefined()
  expect(Object.keys(prices)).toEqual(["us-central1 onDemand", "us-central1 spot"])
  const quoted = prices["us-central1 onDemand"] ?? {}
  const wanted = shipped(
    "onDemand",
    /^(n1-(standard|highmem|highcpu)-\d+(_\dxnvidia-tesla-t4)?|n2-.*|e2-.*|c2d-.*|m1-.*|a2-(high|mega)gpu-.*)$/,
  )
  expect(Object.keys(quoted).sort()).toEqual(Object.keys(wanted).sort())
  expect(Object.keys(quoted).length).toBeGreaterThan(100)
  for (const [type, usd] of Object.entries(wanted))
    expect([type, (quoted[type] ?? 0) / usd]).toEqual([type, expect.closeTo(1, 3)])
  const spot = prices["us-central1 spot"] ?? {}
  for (const [type, usd] of Object.entries(shipped("spot", /^n2-/)))
    expect([type, spot[type]]).toEqual([type, expect.closeTo(usd, 5)])
  expect(calls).toBe(Math.ceil(SKUS.length / PAGE))
})

it("the price reader of Google calls only APIs that docs/install.md enables", async () => {
  const page = await readFile(join(import.meta.dirname, "..", "..", "docs", "install.md"), "utf8")
  const [, enabled = ""] = /gcloud services enable (.*) --project/.exec(page) ?? []
  server.requests.length = 0
  await read(gcpPrices({ send: server.send }).list, question)
  const hosts = new Set(server.requests.map(({ host }) => host))
  // Tokens need no API of the project.
  hosts.delete("oauth2.googleapis.com")
  expect(hosts.size).toBeGreaterThan(0)
  for (const host of hosts) expect(enabled.split(" ")).toContain(host)
})

it("the price reader of Google reports a rejected key", async () => {
  const { privateKey: other } = generateKeyPairSync("rsa", { modulusLength: 2048 })
  const keyfile = JSON.parse(credentials.keyfile_json) as object
  const keyfile_json = JSON.stringify({ ...keyfile, private_key: other.export({ type: "pkcs8", format: "pem" }) })
  const { prices, error } = await read(gcpPrices({ send: server.send }).list, {
    ...question,
    credentials: { ...credentials, keyfile_json },
  })
  expect(prices).toEqual({})
  expect(error).toBeInstanceOf(CredentialsError)
})
