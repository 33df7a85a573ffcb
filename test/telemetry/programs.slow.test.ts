import { mkdtemp, readFile, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { load } from "js-yaml"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { connect } from "../../src/connect.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import { LAUNCHES } from "../../src/core/resources.ts"
import type { Running } from "../../src/core/telemetry/program.ts"
import { fixedOffers } from "../../src/market/catalogue/offers.ts"
import { CHART } from "../chart/helm.ts"
import { kubeconfigPath, testNamespace } from "../control-plane.ts"
import { agentOf, OFFERS } from "../harness/builders.ts"
import { eventually } from "../harness/eventually.ts"
import { applyJob, projectFixture } from "../harness/facade-project.ts"
import { type Facade, Programs, type Stoppable } from "../harness/programs.ts"
import { SimCloud } from "../harness/sim-cloud.ts"
import { missingTool, needing } from "../needing.ts"
import { askPromql } from "./promql.ts"

const fixture = projectFixture("metrics")
const systemNamespace = testNamespace("metrics-system")
const cloud = new SimCloud(systemClock)
const programs = new Programs({
  ...{ systemNamespace, watchNamespace: fixture.namespace },
  clientOf: async () => connect({ kubeconfig: kubeconfigPath() }),
  market: { offers: fixedOffers(OFFERS), ownAccounts: [{ cloud: "sim", region: "here" }] },
})
let folder: string
let operator: Stoppable
let facade: Facade

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "berth-metrics-"))
  operator = await programs.startOperator({}, { clouds: cloud })
  facade = await programs.startFacade({ defaultProject: fixture.project, logsDir: folder }, { clouds: ["sim"] })
})
afterAll(async () => {
  await programs.stop()
  await rm(folder, { recursive: true, force: true })
})

/** Labels of each metric that the programs have exposed so far. */
const seen = { operator: new Map<string, Set<string>>(), facade: new Map<string, Set<string>>() }

function remember(sample: string): void {
  const [, name = "", labels = ""] = /^(\w+)(?:\{(.*)\})? /.exec(sample) ?? []
  const exposed = seen[sample.includes('program="facade"') ? "facade" : "operator"]
  const known = exposed.get(name) ?? new Set()
  for (const [, label = ""] of labels.matchAll(/(\w+)="/g)) known.add(label)
  exposed.set(name, known)
}

/** Returns the samples that a program exposes, by name and labels as written. */
async function samplesOf(program: Running): Promise<Map<string, number>> {
  const answer = await fetch(`${program.metricsUrl}/metrics`)
  expect(answer.headers.get("content-type")).toMatch(/^text\/plain; version=0\.0\.4/)
  const lines = (await answer.text()).split("\n").filter((line) => line !== "" && !line.startsWith("#"))
  for (const line of lines) remember(line)
  return new Map(
    lines.map((line) => {
      const end = line.lastIndexOf(" ")
      // Each sample has a label with its program, at varying positions.
      const name = line.slice(0, end).replace(/program="\w+",|,?program="\w+"/, "")
      return [name.replace("{}", ""), Number(line.slice(end + 1))]
    }),
  )
}

/** Waits until a program exposes exactly these samples. */
function exposes(program: Running, expected: Record<string, number>): Promise<void> {
  return eventually(async () => {
    const samples = await samplesOf(program)
    const exposed = Object.keys(expected).map((name) => [name, samples.get(name)])
    expect(Object.fromEntries(exposed)).toEqual(expected)
  })
}

function launchesOf(job: string): Promise<StoredLaunch[]> {
  return fixture.client
    .list(LAUNCHES, { namespace: systemNamespace })
    .then(({ items }) => items.filter(({ spec }) => spec.job.name === job))
}

describe("an operator", () => {
  it("exposes running jobs and VMs, their cost, and the outcomes of launches", async () => {
    await exposes(operator, { 'leader_election_master_status{name="berth-operator"}': 1 })
    await exposes(operator, { 'berth_jobs{phase="queued"}': 0, 'berth_jobs{phase="booting"}': 0 })
    cloud.faults.push({ fault: "capacity", instanceType: "small" })
    await applyJob(fixture, "measured")
    // The small machine is rejected, so the job gets the medium one at twice the price.
    await exposes(operator, {
      'berth_jobs{phase="booting"}': 1,
      'berth_vms{cloud="sim",provisioning="onDemand"}': 1,
      'berth_spend_usd_per_hour{cloud="sim",provisioning="onDemand"}': 1.2,
      'berth_launches_total{cloud="sim",outcome="refused",reason="Capacity"}': 1,
      // Without an initial 0, a rate would miss the first increase.
      'berth_launches_total{cloud="sim",outcome="registered",reason=""}': 0,
      'berth_launches_total{cloud="sim",outcome="lost",reason="Preempted"}': 0,
    })
    // The launch is counted from its request, which is before there is a VM.
    const launch = await eventually(async () => {
      const [live] = (await launchesOf("measured")).filter(({ status }) => status?.refusal === undefined)
      expect(live?.status?.vm?.id).toBeDefined()
      return live
    })
    const agent = agentOf({ registrationTime: new Date().toISOString() })
    await fixture.client.patchStatus(LAUNCHES, launch?.metadata ?? { name: "" }, { merge: { status: { agent } } })
    await exposes(operator, {
      'berth_launches_total{cloud="sim",outcome="registered",reason=""}': 1,
      'berth_vm_boot_seconds_count{cloud="sim"}': 1,
    })
    cloud.lose(launch?.status?.vm?.id ?? "", true)
    await exposes(operator, { 'berth_launches_total{cloud="sim",outcome="lost",reason="Preempted"}': 1 })
  })

  it("exposes work of its controllers, caches and API server requests", async () => {
    await applyJob(fixture, "worked-on", { cancelled: true })
    await exposes(operator, { 'berth_jobs{phase="cancelled"}': 1 })
    // Work that started before this job may still be pending.
    const names = [
      'controller_runtime_reconcile_total{controller="job",result="success"}',
      'controller_runtime_reconcile_time_seconds_count{controller="launch"}',
      'workqueue_queue_duration_seconds_count{name="job"}',
      'workqueue_work_duration_seconds_count{name="apikey"}',
      'rest_client_requests_total{method="POST",code="201"}',
      'rest_client_request_duration_seconds_count{verb="GET"}',
      'reflector_watches_total{resource="jobs"}',
      'reflector_objects{resource="jobs"}',
      'reflector_synced{resource="launches"}',
      "process_resident_memory_bytes",
    ]
    const samples = await eventually(async () => {
      const exposed = await samplesOf(operator)
      for (const name of names) expect(exposed.get(name), name).toBeGreaterThan(0)
      return exposed
    })
    await exposes(operator, { 'workqueue_depth{name="job"}': 0 })
    expect(samples.get('reflector_silence_seconds{resource="jobs"}')).toBeLessThan(120)
    // No label contains a user's data: there may be any number of values.
    const labels = [...samples.keys()].join()
    for (const name of ["measured", fixture.namespace, fixture.project]) expect(labels).not.toContain(name)
  })

  it("returns 200 on /livez and /readyz of the metrics port", async () => {
    for (const path of ["/livez", "/readyz"]) expect((await fetch(operator.metricsUrl + path)).status).toBe(200)
    expect(await (await fetch(`${operator.metricsUrl}/readyz?verbose`)).text()).toBe(
      "[+] caches: ok\n[+] copy: ok\n[+] shutdown: ok\nok\n",
    )
    expect((await fetch(`${operator.metricsUrl}/anything`)).status).toBe(404)
  })
})

describe("a façade", () => {
  it("counts requests by route and rejections, on the metrics port alone and without a secret", async () => {
    const { admin, viewer } = fixture.keys
    const call = (path: string, key: string, method = "GET") =>
      fetch(`${facade.url}${path}`, { method, headers: { "X-Service-Api-Key": key } })
    await eventually(async () => expect((await call("/1/jobs", admin)).status).toBe(200))
    // Some of the first calls may have come before the façade knew the key.
    const unauthenticated = 'berth_auth_failures_total{reason="unauthenticated"}'
    const before = (await samplesOf(facade)).get(unauthenticated) ?? 0
    expect((await call("/1/jobs/none", "berth_wrong_value")).status).toBe(401)
    expect((await call("/1/jobs", viewer, "POST")).status).toBe(403)
    await exposes(facade, {
      [unauthenticated]: before + 1,
      'berth_auth_failures_total{reason="forbidden"}': 1,
      'http_request_duration_seconds_count{method="GET",route="/1/jobs/:id",status="401"}': 1,
    })
    const samples = await samplesOf(facade)
    expect(
      samples.get('http_request_duration_seconds_count{method="GET",route="/1/jobs",status="200"}'),
    ).toBeGreaterThan(0)
    expect(samples.get('reflector_silence_seconds{resource="apikeys"}')).toBeLessThan(120)
    const labels = [...samples.keys()].join()
    for (const secret of [admin, viewer, fixture.project, "none"]) expect(labels).not.toContain(secret)
    expect((await fetch(`${facade.url}/metrics`)).status).toBe(404)
    for (const path of ["/livez", "/readyz"]) expect((await fetch(facade.metricsUrl + path)).status).toBe(200)
  })
})

it("docs/metrics.md has each metric", async () => {
  const docs = await readFile(join(import.meta.dirname, "..", "..", "docs", "metrics.md"), "utf8")
  const documented = new Set(docs.match(/`[a-z_]+`/g)?.map((name) => name.slice(1, -1)))
  for (const program of [operator, facade]) {
    const text = await (await fetch(`${program.metricsUrl}/metrics`)).text()
    const names = [...text.matchAll(/^# TYPE (\w+) /gm)].map(([, name = ""]) => name)
    const own = names.filter((name) => !/^(?:process|nodejs)_/.test(name))
    expect(own.length).toBeGreaterThan(5)
    expect(own.filter((name) => !documented.has(name))).toEqual([])
  }
})

needing(missingTool("promql")).it(
  "the programs expose each metric and label of the chart's alerts and dashboard, which select only Berth's programs",
  async () => {
    const files = await Promise.all(
      ["alerts.yaml", "dashboard.json"].map((name) => readFile(join(CHART, "files", name), "utf8")),
    )
    const expressions = files.flatMap((text) => expressionsIn(load(text)))
    expect(expressions.length).toBeGreaterThan(10)
    const answers = await askPromql(expressions.map((expr) => ({ expr })))
    const selectors = answers.flatMap((answer) => answer.selectors)
    expect(selectors.length).toBeGreaterThan(expressions.length - 1)
    for (const { metric, matchers, by } of selectors) {
      // etcd exports these itself. They concern the whole cluster.
      if (metric.startsWith("etcd_")) continue
      const program = matchers.find(({ label }) => label === "program")
      // Only names with Berth's prefix are unique to Berth.
      expect(program !== undefined || metric.startsWith("berth_"), metric).toBe(true)
      const programs = (["operator", "facade"] as const).filter(
        (name) => program === undefined || program.value.split("|").includes(name),
      )
      const labels = programs.flatMap((name) => [...(seen[name].get(metric) ?? [])])
      expect(labels, metric).toEqual(expect.arrayContaining([...matchers.map(({ label }) => label), ...by]))
    }
  },
)

/** Returns every value of a key `expr`, at any depth. */
function expressionsIn(value: unknown): string[] {
  if (typeof value !== "object" || value === null) return []
  return Object.entries(value).flatMap(([key, inner]) =>
    key === "expr" && typeof inner === "string" ? [inner] : expressionsIn(inner),
  )
}

it("the metrics port is closed when its program stops", async () => {
  await programs.stop()
  for (const { metricsUrl } of [operator, facade]) await expect(fetch(`${metricsUrl}/livez`)).rejects.toThrow()
})
