import "./toy.ts"

import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, beforeAll, expect, it } from "vitest"
import { SimulatedCloud } from "../../bench/simulated-cloud.ts"
import { startFacade } from "../../src/api/main.ts"
import type { Cloud, Vm } from "../../src/clouds/cloud.ts"
import { cloudsOf } from "../../src/clouds/provider.ts"
import type { KubeClient } from "../../src/core/kube/client.ts"
import { LAUNCHES } from "../../src/core/resources.ts"
import { createLogger } from "../../src/core/telemetry/logger.ts"
import { fixedOffers } from "../../src/market/catalogue/offers.ts"
import { startOperator } from "../../src/operator/main.ts"
import { testNamespace } from "../control-plane.ts"
import { BASE_DOMAIN, caller, created, type Replica, recordIn, testFixture } from "../facade/harness.ts"
import { clientOf, makeSystemNamespace } from "../harness/machine-users.ts"
import { eventually } from "./eventually.ts"

/** A whole installation whose only cloud is the toy: one definition, one line in the list, and an implementation. */
const fixture = testFixture("toy")
const systemNamespace = testNamespace("toy-system")
const stop = new AbortController()
const closing: (() => Promise<unknown>)[] = []
let cloud: SimulatedCloud
let port = 0
const call = caller(() => ({ port }) as Replica, fixture)

beforeAll(async () => {
  const logger = createLogger({ level: "silent", name: "toy" })
  const folder = await mkdtemp(join(tmpdir(), "berth-toy-"))
  cloud = await SimulatedCloud.start()
  const programs: [KubeClient, KubeClient] = [await clientOf("berth-operator"), await clientOf("berth-facade")]
  const offer = { cloud: "toy", region: "toyland", instanceType: "t1", architecture: "amd64" } as const
  const offers = fixedOffers([
    { ...offer, provisioning: "spot", cpu: 2, memoryGib: 8, hourlyPriceUsd: 0.01, minimumBilledSeconds: 60 },
  ])
  const ownAccounts = [{ cloud: "toy", region: "toyland" }]
  const market = { offers, providers: {}, ownAccounts, architectures: [], logger }
  const where = { systemNamespace, watchNamespace: fixture.namespace }
  await makeSystemNamespace(fixture.client, systemNamespace)
  // The API server applies new rights after a delay.
  for (const program of programs) await eventually(() => program.list(LAUNCHES, { namespace: systemNamespace }))
  const facade = await startFacade(
    { ...where, host: "127.0.0.1", port: 0, baseDomain: BASE_DOMAIN, logsDir: folder },
    { ...market, client: programs[1], clouds: ["toy"] },
    stop.signal,
  )
  port = Number(new URL(facade.url).port)
  const operator = await startOperator(
    { ...where, gatewayUrl: facade.url, agentImage: "registry.test/berth:1.0" },
    { ...market, observeSeconds: 0.2, client: programs[0], clouds: cloudsOf({ toy: () => Promise.resolve(toys()) }) },
    stop.signal,
  )
  closing.push(() => Promise.all([operator.ended, facade.ended]), ...programs.map((program) => () => program.close()))
  closing.push(
    () => cloud.stop(),
    () => rm(folder, { recursive: true }),
  )
  await eventually(async () => expect((await fetch(`${facade.url}/readyz`)).status).toBe(200))
})
afterAll(async () => {
  stop.abort()
  for (const close of closing) await close()
})

/** Returns the toy cloud, whose VMs are simulated over HTTP. */
function toys(): Cloud {
  const send = async (method: string, path: string, body?: object) => {
    const answer = await fetch(`${cloud.url}${path}`, { method, ...(body && { body: JSON.stringify(body) }) })
    return (await answer.json()) as unknown
  }
  return {
    launch: async ({ name, installation, offer: { region }, userData }) =>
      (await send("PUT", `/${name}`, { name, installation, region, userData })) as Vm,
    list: async (scope) => (await send("GET", `/?${new URLSearchParams({ ...scope })}`)) as Vm[],
    terminate: async ({ launch }) => {
      await send("DELETE", `/${launch}`)
    },
    verify: () => Promise.resolve({ account: "toys" }),
    consistencySeconds: 0,
  }
}

it("a job runs on a cloud that is one definition and one line, from REST to its end", {
  timeout: 120_000,
}, async () => {
  const succeeded = { status: "succeeded" }
  const body = { image: "alpine", command: ["sleep", "1"], cloud: ["toy"], provisioning: "spot" }
  const { job_id } = await created(await call("/1/jobs", { body }))
  await eventually(async () => expect(await recordIn(await call(`/1/jobs/${job_id}`))).toMatchObject(succeeded))
  const [launch] = (await fixture.client.list(LAUNCHES, { namespace: systemNamespace })).items
  expect(launch?.spec).toMatchObject({ bootDeadlineSeconds: 5000, offer: { cloud: "toy", instanceType: "t1" } })
  await eventually(() => expect(cloud.size).toBe(0))
})
