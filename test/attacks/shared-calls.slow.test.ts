import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { kubeConfig } from "../control-plane.ts"
import { caller, created, problemIn } from "../harness/caller.ts"
import { ChaosProxy } from "../harness/chaos-proxy.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { projectFixture } from "../harness/facade-project.ts"

const attacker = projectFixture("attack-calls-attacker")
const tenant = projectFixture("attack-calls-tenant")
let replica: Replica
const asAttacker = caller(() => replica, attacker)

beforeAll(async () => {
  replica = await startReplica()
})
afterAll(() => replica.close())

const names = (count: number) => Array.from({ length: count }, (_, n) => `unknown-${n}`)
const cancel = (body: object, query = "") => asAttacker(`/1/jobs/cancellations${query}`, { body })

/** Returns the number of GET requests that the replica has sent to the API server. Its caches' watches count too. */
async function reads(): Promise<number> {
  const lines = (await replica.measured()).split("\n")
  const counted = lines.filter((line) => line.startsWith('rest_client_requests_total{method="GET"'))
  return counted.reduce((sum, line) => sum + Number(line.split(" ").at(-1)), 0)
}

describe("the façade under many requests of one tenant", () => {
  it("reads the jobs of a bulk cancellation from the cache, however many names it has", async () => {
    const { job_id } = await created(await asAttacker("/1/jobs", { body: { name: "real", image: "a" } }))
    const before = await reads()
    const counted = (await (await cancel({ names: names(1000) }, "?dry_run=true")).json()) as { failed: object[] }
    expect(counted.failed).toHaveLength(1000)
    const body = { names: [...names(998), "real", job_id] }
    expect(await (await cancel(body)).json()).toMatchObject({ matched: 2, cancelled: 2 })
    // For each request the key, the catch-up of the cache, and now and then a watch.
    expect((await reads()) - before).toBeLessThan(12)
  })

  it("finds a job that another replica has just created", async () => {
    const other = await startReplica()
    const made = await created(
      await caller(() => other, attacker)("/1/jobs", { body: { name: "just-created", image: "a" } }),
    )
    expect(await (await cancel({ names: [made.job_id] })).json()).toMatchObject({ cancelled: 1, failed: [] })
    await other.close()
  })

  it("counts names against the limit of requests", async () => {
    const limited = await startReplica({ settings: { requestsPerMinute: 50 } })
    const response = await caller(() => limited, attacker)("/1/jobs/cancellations", { body: { names: names(1000) } })
    expect(Number(response.headers.get("retry-after"))).toBeGreaterThan(0)
    const { status, detail } = await problemIn(response)
    expect([status, detail]).toEqual([
      429,
      "More than 50 requests in a minute; each 10 names of jobs to cancel count as one more. Wait for the seconds in Retry-After.",
    ])
    await limited.close()
  })

  it("answers another tenant while one tenant's requests wait for a slow API server", async () => {
    const proxy = await ChaosProxy.start(kubeConfig())
    const slow = await startReplica({ kubeConfig: proxy.kubeConfig(), settings: { requestsPerMinute: 0 } })
    const [ofAttacker, ofTenant] = [caller(() => slow, attacker), caller(() => slow, tenant)]
    proxy.hold((url) => url.includes("/jobs/unknown-"))
    const attack = Promise.all(names(60).map(async (name) => (await ofAttacker(`/1/jobs/${name}`)).status))
    await expect.poll(async () => waiting(await slow.measured())).toBe(44)
    // Of 32 calls at a time, one person's requests have 16.
    expect(proxy.held).toBe(16)
    expect((await ofTenant("/1/jobs/other")).status).toBe(404)
    expect((await ofTenant("/1/jobs", { body: { name: "while-others-wait", image: "a" } })).status).toBe(201)
    proxy.letPass()
    expect(new Set(await attack)).toEqual(new Set([404]))
    await slow.close()
    await proxy.close()
  })
})

/** Returns the number of requests' calls that wait for others. */
function waiting(metrics: string): number {
  return Number(/berth_api_server_calls_waiting\{kind="requests"[^}]*\} (\d+)/.exec(metrics)?.[1])
}
