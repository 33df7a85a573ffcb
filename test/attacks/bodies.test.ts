import { connect, type Socket } from "node:net"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { BASE_DOMAIN, type Call, caller, problemIn } from "../harness/caller.ts"
import { eventually } from "../harness/eventually.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { jobsOf, projectFixture } from "../harness/facade-project.ts"

/** Attacks by the holder of one key with large and odd bodies. The façade has one thread for all tenants. */
const fixture = projectFixture("attacks-bodies")
let replica: Replica
const call = caller(() => replica, fixture)

beforeAll(async () => {
  replica = await startReplica()
})
afterAll(() => replica.close())

const JSON_TYPE = "application/json"
const YAML_TYPE = "application/yaml"

function entries(count: number): Record<string, number> {
  return Object.fromEntries(Array.from({ length: count }, (_, i) => [`=${i}`, 1]))
}

/** Returns the problem of a body that is rejected, and checks the bounds of every rejection. */
async function rejectionOf(path: string, request: Call) {
  const response = await call(path, { method: "POST", ...request })
  expect(response.status).toBe(400)
  const problem = await problemIn(response)
  expect(problem.errors.length).toBeLessThanOrEqual(20)
  expect(JSON.stringify(problem).length).toBeLessThan(16_000)
  return problem
}

describe("a hostile body", () => {
  it("is rejected within its first 20 faults: 4,000 numbers in command", async () => {
    const body = { image: "a", command: Array(4000).fill(1) }
    expect((await rejectionOf("/1/jobs", { body })).errors).toEqual([
      { pointer: "/command", detail: "command must have at most 256 items, not 4000" },
    ])
  })

  it.each<[string, string, string]>([
    ["1,900 unknown fields", JSON_TYPE, JSON.stringify({ image: "a", ...entries(1900) })],
    ["1,900 wrong names of variables", JSON_TYPE, JSON.stringify({ image: "a", env: entries(1900) })],
    ["1,900 unknown fields of a GPU", JSON_TYPE, JSON.stringify({ image: "a", resources: { gpu: entries(1900) } })],
    ["1,900 duplicate keys", JSON_TYPE, `{${'"a":1,'.repeat(1900)}"a":1}`],
    ["60,000 numbers", JSON_TYPE, JSON.stringify({ image: "a", command: Array(60_000).fill(1) })],
    ["9,000 keys", JSON_TYPE, JSON.stringify({ image: "a", env: entries(9000) })],
    ["64,000 line ends and duplicate keys", JSON_TYPE, `{${"\n".repeat(64_000)}${'"a":1,'.repeat(1900)}"a":1}`],
    ["a key of 100,000 characters", JSON_TYPE, JSON.stringify({ image: "a", ["k".repeat(100_000)]: 1 })],
    ["a duplicate key of 60,000 characters", JSON_TYPE, `{"${"k".repeat(60_000)}":1,"${"k".repeat(60_000)}":1}`],
    ["a map key of 100,000 characters", JSON_TYPE, JSON.stringify({ image: "a", env: { ["k".repeat(100_000)]: 1 } })],
    ["32 unknown regions", JSON_TYPE, JSON.stringify({ image: "a", region: Array(32).fill("x".repeat(64)) })],
    ["60,000 numbers in YAML", YAML_TYPE, `image: a\ncommand: [${"1,".repeat(60_000)}]`],
    ["7,000 YAML aliases", YAML_TYPE, `image: &a a\ncommand: [${"*a,".repeat(7_000)}]`],
    ["a YAML key of 100,000 characters", YAML_TYPE, `<<: a\n? ${"1".repeat(100_000)}\n: b`],
  ])("is rejected within its first 20 faults, in a short response: %s", async (_what, type, body) => {
    await rejectionOf("/1/jobs", { body, type })
  })

  it("creates nothing", async () => {
    expect(await jobsOf(fixture)).toEqual([])
  })
})

describe("long values in a request", () => {
  const long = "x".repeat(5000)
  it.each<[string, string, string]>([
    ["a query's value", "GET", `/1/jobs?status=${long}`],
    ["a query's label", "GET", `/1/jobs?label=${long}`],
    ["a query's number", "GET", `/1/jobs?limit=${long}`],
    ["a query's flag", "GET", `/1/jobs/a/logs?follow=${long}`],
    ["a query's name", "GET", `/1/jobs?${long}=1`],
    ["a job's name", "GET", `/1/jobs/${long}`],
    ["a cronjob's name", "GET", `/1/cronjobs/${long}`],
    ["a key's name", "GET", `/1/keys/${long}`],
    ["a connection's name", "GET", `/1/connections/${long}`],
    ["an unknown path", "GET", `/1/${long}`],
  ])("are repeated up to 80 characters: %s", async (_what, method, path) => {
    const problem = await problemIn(await call(path, { method }))
    expect(problem.status).toBeGreaterThanOrEqual(400)
    expect(problem.status).toBeLessThan(500)
    expect(JSON.stringify(problem)).not.toContain("x".repeat(81))
  })

  it("are repeated up to 80 characters: a header", async () => {
    const headers = { "Content-Type": `application/${long}` }
    const text = JSON.stringify(await problemIn(await call("/1/jobs", { method: "POST", body: "{}", headers })))
    expect(text).not.toContain("x".repeat(81))
  })
})

describe("many large bodies", () => {
  const open: Socket[] = []
  afterAll(() => void open.map((socket) => socket.destroy()))

  /** Starts a POST with a large body that does not end. */
  function startPost(key: string): Socket {
    const socket = connect(replica.port, "127.0.0.1").on("error", () => undefined)
    open.push(socket)
    const head = ["POST /1/jobs HTTP/1.1", `Host: ${fixture.project}.${BASE_DOMAIN}`, `X-Service-Api-Key: ${key}`]
    socket.write(`${[...head, "Content-Type: application/json", "Content-Length: 20000"].join("\r\n")}\r\n\r\n{`)
    return socket
  }

  const large = { image: "a", args: ["x".repeat(16_000), "x".repeat(2000), 1] }

  it("are rejected with 429 and Retry-After if one key sends them at once; other keys and small bodies are not", async () => {
    for (let post = 0; post < 4; post++) startPost(fixture.keys.developer)
    const rejected = await eventually(async () => {
      // The request below may have taken the place of one of the four.
      startPost(fixture.keys.developer)
      const response = await call("/1/jobs", { key: fixture.keys.developer, body: large })
      expect(response.status).toBe(429)
      return response
    })
    expect(rejected.headers.get("retry-after")).toBe("1")
    expect((await problemIn(rejected)).detail).toContain("4 requests with bodies over 16384 bytes")
    expect((await call("/1/jobs", { key: fixture.keys.admin, body: large })).status).toBe(400)
    expect((await call("/1/jobs", { key: fixture.keys.developer, body: { image: 1 } })).status).toBe(400)
    expect((await call("/livez", { key: "" })).status).toBe(200)
    for (const socket of open) socket.destroy()
    await eventually(async () => {
      expect((await call("/1/jobs", { key: fixture.keys.developer, body: large })).status).toBe(400)
    })
  })

  it("count as one request for each 16 KiB in the limit of requests", async () => {
    const limited = await startReplica({ settings: { requestsPerMinute: 10 } })
    try {
      const callLimited = caller(() => limited, fixture)
      const body = JSON.stringify({ image: 1, args: ["x".repeat(120_000)] })
      expect((await callLimited("/1/jobs", { body })).status).toBe(400)
      const refused = await callLimited("/1/jobs", { body })
      expect(refused.status).toBe(429)
      expect(Number(refused.headers.get("retry-after"))).toBeGreaterThan(0)
      expect(refused.headers.get("ratelimit-policy")).toContain("q=10; w=60")
      expect((await problemIn(refused)).detail).toContain("each 16384 bytes of a body count as one more")
      expect((await callLimited("/1/jobs", { key: fixture.keys.viewer })).status).toBe(200)
    } finally {
      await limited.close()
    }
  })
})
