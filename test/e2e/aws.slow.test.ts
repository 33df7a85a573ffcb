import { join } from "node:path"
import type { Instance } from "@aws-sdk/client-ec2"
import { afterAll, afterEach, beforeAll, expect } from "vitest"
import { isBound } from "../../src/core/apis/apikey.ts"
import { API_KEYS } from "../../src/core/resources.ts"
import { Ec2Console, isGone, launchOf } from "../cloud/ec2-console.ts"
import { type Ec2Fault, Ec2Proxy } from "../cloud/ec2-proxy.ts"
import { kubeconfigPath } from "../control-plane.ts"
import { containerRuntime } from "../harness/container-runtime.ts"
import { eventually } from "../harness/eventually.ts"
import { Installation } from "../harness/installation.ts"
import { Program } from "../harness/program-process.ts"
import { type Moto, startMoto } from "../moto.ts"
import { missingTool, needing } from "../needing.ts"
import { Hypervisor } from "./ec2-hypervisor.ts"

const { describe, it } = needing(missingTool("moto"))

const MAIN = join(import.meta.dirname, "..", "..", "src", "main.ts")
const CLI = join(import.meta.dirname, "..", "..", "src", "cli", "main.ts")
const REGION = "eu-central-1"
/** Timeout of each wait in seconds, far above the time that it takes. */
const PATIENCE = 100

let moto: Moto
let proxy: Ec2Proxy
let console_: Ec2Console
let berth: Installation
let hypervisor: Hypervisor
let programs: Program[] = []
let startOperator: () => Program
let operator: Program
let api = ""

interface JobRecord {
  status: string
  vm_status: string
  [field: string]: unknown
}

beforeAll(async () => {
  const runtime = await containerRuntime()
  moto = await startMoto()
  proxy = await Ec2Proxy.start(moto)
  console_ = new Ec2Console(moto, REGION)
  berth = await Installation.create({ name: "aws", kubeconfig: kubeconfigPath(), runtime })
  await startPrograms()
  hypervisor = new Hypervisor({
    console: console_,
    installation: berth.id,
    folder: join(berth.folder, "machines"),
    runtime,
  })
  const connection = { name: "acme", type: "aws", access_key_id: "AKIAEXAMPLE", secret_access_key: "very-secret" }
  // The API server notices the key's rights a moment later.
  await eventually(async () => {
    const answer = await call("POST", "/connections", connection)
    expect(answer.status, `${await answer.text()}\n${programs[0]?.output.slice(-3000)}`).toBe(201)
  }, PATIENCE)
})
afterEach(() => {
  expect(proxy.breaches).toEqual([])
  expect(hypervisor.faults).toEqual([])
})
afterAll(async () => {
  await Promise.allSettled(programs.map((program) => program.stop()))
  await hypervisor?.close()
  await berth?.close()
  console_?.close()
  await proxy?.stop()
  await moto?.stop()
})

/** Starts the programs as they are shipped. The SDK's own variable points them to moto. */
async function startPrograms(): Promise<void> {
  // Moto has no price list.
  const noPrices = { BERTH_PRICE_REFRESH_HOURS: "0", BERTH_SPOT_PRICE_REFRESH_HOURS: "0" }
  const env = { PATH: process.env["PATH"], AWS_ENDPOINT_URL: proxy.url, ...noPrices }
  const cluster = ["--kubeconfig", kubeconfigPath(), "--system-namespace", berth.systemNamespace]
  const shared = [...cluster, "--watch-namespace", berth.namespace, "--log-level", "debug"]
  const serving = [
    "--port",
    "0",
    "--default-project",
    berth.namespace,
    "--logs-dir",
    join(berth.folder, "own-logs"),
    "--requests-per-minute",
    "0",
  ]
  const facade = new Program("facade", [MAIN, "facade", ...shared, ...serving], env)
  programs = [facade]
  const [, url = ""] = await facade.printed(/"url":"(http:[^"]+)"/)
  api = url
  // This image is never pulled: the hypervisor starts the agent from the sources.
  const agents = ["--gateway-url", url, "--agent-image", "registry.test/berth:1", "--volumes-image", "none"]
  startOperator = () => {
    const program = new Program("operator", [MAIN, "operator", ...shared, ...agents], env)
    programs.push(program)
    return program
  }
  operator = startOperator()
  await eventually(async () => {
    expect(isBound(await berth.client.get(API_KEYS, { namespace: berth.namespace, name: "admin" }))).toBe(true)
    expect((await fetch(`${api}/readyz`)).status).toBe(200)
  }, PATIENCE)
}

function call(method: string, path: string, body?: object): Promise<Response> {
  const headers = { "X-Service-Api-Key": berth.apiKey, "content-type": "application/json" }
  return fetch(`${api}/1${path}`, { method, headers, ...(body !== undefined && { body: JSON.stringify(body) }) })
}

async function submit(name: string, script: string, more: object = {}): Promise<void> {
  const job = {
    name,
    image: berth.runtime.image,
    command: ["sh", "-c"],
    args: [script],
    cloud: ["aws"],
    region: REGION,
    ...more,
  }
  const answer = await call("POST", "/jobs", job)
  expect(answer.status, await answer.clone().text()).toBe(201)
}

async function record(name: string): Promise<JobRecord> {
  return (await (await call("GET", `/jobs/${name}`)).json()) as JobRecord
}

/** Waits until the job's record has this status, and the test's own view of the VM agrees. */
async function until(name: string, status: string, vm?: string): Promise<void> {
  await eventually(async () => {
    const now = await record(name)
    expect(now, `${JSON.stringify(now)}\n${hypervisor.output}\n${operator.output.slice(-3000)}`).toMatchObject({
      status,
      ...(vm !== undefined && { vm_status: vm }),
    })
  }, PATIENCE)
  await berth.untilJobs(`${name} ${status}`, () => {
    const seen = berth.job(name).status
    return seen?.phase === status && (vm === undefined || seen.vm?.state === vm)
  })
}

/** Returns the instances of a job, oldest first. */
async function instancesOf(job: string): Promise<Instance[]> {
  const names = berth.launchesOf(job).map(({ metadata }) => metadata.name)
  const found = await console_.instances("installation", berth.id)
  return names.flatMap((name) => found.filter((instance) => launchOf(instance) === name))
}

async function left(): Promise<Instance[]> {
  return (await console_.instances("installation", berth.id)).filter((instance) => !isGone(instance))
}

/** Matches calls for VMs of this job only. */
function of(job: string): NonNullable<Ec2Fault["if"]> {
  return ({ parameters }) => [...parameters.values()].includes(job)
}

describe("Berth with an aws connection", { timeout: 200_000 }, () => {
  // Starts all jobs at once, because VMs are listed only every ten seconds. The job that must still run in its test
  // comes first.
  beforeAll(async () => {
    const refusal = { action: "RunInstances", when: "before", if: of("refused") } as const
    proxy.faults.push({ ...refusal, code: "InsufficientInstanceCapacity", status: 500 })
    proxy.faults.push({ ...refusal, code: "VcpuLimitExceeded" })
    await submit("spot", "trap exit TERM; sleep 15 & wait; echo done", { provisioning: "spot" })
    await submit("hello", "echo from a VM; sleep 1")
    await submit("refused", "true")
    await submit("cancelled", "sleep 600")
  })

  it("queues a job again when its spot VM is preempted, and finishes it in another VM", async () => {
    await until("spot", "running")
    const [first] = await instancesOf("spot")
    expect(first?.InstanceLifecycle).toBe("spot")
    await proxy.takeBack(first?.InstanceId ?? "", REGION)
    await until("spot", "succeeded", "terminated")
    expect(berth.launchesOf("spot").map(({ status }) => status?.loss?.reason)).toEqual(["Preempted", undefined])
    expect(await instancesOf("spot")).toHaveLength(2)
  })

  it("runs a job on EC2 from queued to deleted", async () => {
    await until("hello", "succeeded", "terminated")
    expect(await (await call("GET", "/jobs/hello/logs")).text()).toBe("from a VM\n")
    const { status } = berth.job("hello")
    const story = (status?.conditions ?? []).filter(({ status: now }) => now === "True").map(({ type }) => type)
    expect(story).toEqual(expect.arrayContaining(["Placed", "VMReady", "Started", "Complete"]))
    expect(await instancesOf("hello")).toHaveLength(1)
    expect(hypervisor.userData.size).toBeGreaterThan(0)
    for (const userData of hypervisor.userData.values()) expect(userData).not.toContain("very-secret")
  })

  it("tries the next offer when EC2 rejects the first, and records the attempts", async () => {
    await until("refused", "succeeded", "terminated")
    expect(await instancesOf("refused")).toHaveLength(1)
    const { status } = berth.job("refused")
    expect(status?.refusedOffers?.map(({ reason }) => reason)).toEqual(["Capacity", "Quota"])
    expect(status?.launches?.count).toBe(3)
  })

  it("leaves nothing of a cancelled job on EC2", async () => {
    await until("cancelled", "running")
    expect((await call("POST", "/jobs/cancelled/cancel")).status).toBe(200)
    await until("cancelled", "cancelled", "terminated")
    expect(await left()).toEqual([])
    await eventually(() => expect(hypervisor.running).toEqual([]))
  })

  it("passes the smoke test, which leaves nothing on EC2", async () => {
    const jobs = ["--region", REGION, "--image", berth.runtime.image, "--only", "cpu", "spot", "--yes"]
    const env = { PATH: process.env["PATH"], BERTH_URL: api, BERTH_API_KEY: berth.apiKey }
    const smoke = new Program("smoke", [CLI, "smoke", "--cloud", "aws", ...jobs], env)
    expect(await smoke.ended, smoke.output).toEqual({ code: 0, signal: null })
    expect(smoke.output).toMatch(/\| cpu \| passed \|/)
    expect(smoke.output).toMatch(/\| spot \| passed \|/)
    expect(smoke.output).toContain("No VM is left.")
    expect(await left()).toEqual([])
  })

  it("fails the smoke test of a cloud without a connection, and says what to create", async () => {
    const env = { PATH: process.env["PATH"], BERTH_URL: api, BERTH_API_KEY: berth.apiKey }
    const smoke = new Program("smoke", [MAIN, "smoke", "--cloud", "gcp", "--yes"], env)
    expect((await smoke.ended).code).toBe(1)
    expect(smoke.output).toContain("no connection of type gcp: create one")
  })

  it("runs a job in the VM that EC2 was creating when the operator was killed", async () => {
    proxy.faults.push({ action: "RunInstances", when: "slow", if: of("orphaned") })
    await submit("orphaned", "true")
    const isAsked = () => proxy.of("RunInstances").filter((request) => of("orphaned")(request))
    await eventually(() => expect(isAsked()).toHaveLength(1), PATIENCE)
    await eventually(async () => expect(await instancesOf("orphaned")).toHaveLength(1))
    await berth.killOperator(operator)
    operator = startOperator()
    await until("orphaned", "succeeded", "terminated")
    expect(await instancesOf("orphaned")).toHaveLength(1)
    expect(berth.job("orphaned").status?.launches).toMatchObject({ count: 1 })
    const [first, ...replays] = isAsked().map(({ parameters }) => String(parameters))
    for (const replay of replays) expect(replay).toBe(first)
  })

  // This test comes last: its rejections put the connection into cooldown.
  it("reports the account's own words if AWS rejects the jobs of the smoke test, and cancels them", async () => {
    const isSmoke: Ec2Fault["if"] = ({ parameters }) =>
      [...parameters.values()].some((value) => value.startsWith("smoke-aws-"))
    const message = "The specified instance type is not eligible for Free Tier."
    const code = "InvalidParameterCombination"
    proxy.faults.push({ action: "RunInstances", when: "before", code, message, times: 99, if: isSmoke })
    const jobs = ["--region", REGION, "--image", berth.runtime.image, "--only", "cpu", "--yes", "--wait-minutes", "0"]
    const env = { PATH: process.env["PATH"], BERTH_URL: api, BERTH_API_KEY: berth.apiKey }
    const smoke = new Program("smoke", [MAIN, "smoke", "--cloud", "aws", ...jobs], env)
    expect((await smoke.ended).code, smoke.output).toBe(1)
    expect(smoke.output).toMatch(/\*\*cpu\*\*: NoCapacity: .*not eligible for Free Tier.*upgrade the account/)
    expect(smoke.output).toMatch(/- launch 1: .* in eu-central-1, onDemand, refused: Account: .*not eligible/)
    expect(smoke.output).toContain("No VM is left.")
  })
})
