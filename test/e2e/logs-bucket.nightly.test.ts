import { join } from "node:path"
import { afterAll, beforeAll, expect, vi } from "vitest"
import { kubeconfigPath } from "../control-plane.ts"
import { containerRuntime } from "../harness/container-runtime.ts"
import { eventually } from "../harness/eventually.ts"
import { gate, Installation } from "../harness/installation.ts"
import { Program } from "../harness/program-process.ts"
import { type Moto, startMoto } from "../moto.ts"
import { missingTool, needing } from "../needing.ts"

const { it } = needing(missingTool("moto"))

const MAIN = join(import.meta.dirname, "..", "..", "src", "main.ts")
const BUCKET = "logs-of-jobs"
const REGION = "eu-central-1"

let moto: Moto
let berth: Installation
let other: Program
let url: string

beforeAll(async () => {
  moto = await startMoto()
  const authorization = `AWS4-HMAC-SHA256 Credential=root/20260101/${REGION}/s3/aws4_request, Signature=none`
  const body = `<CreateBucketConfiguration><LocationConstraint>${REGION}</LocationConstraint></CreateBucketConfiguration>`
  const made = await fetch(`${moto.url}/${BUCKET}`, { method: "PUT", headers: { authorization }, body })
  expect(made.status).toBe(200)
  vi.stubEnv("AWS_ACCESS_KEY_ID", "key")
  vi.stubEnv("AWS_SECRET_ACCESS_KEY", "secret")
  const logs = { logsBucket: BUCKET, logsEndpoint: moto.url, logsRegion: REGION }
  berth = await Installation.create({
    name: "logs",
    kubeconfig: kubeconfigPath(),
    runtime: await containerRuntime(),
    logs,
  })
  await berth.startOperator()
  other = new Program("the other façade", [MAIN, "facade", ...otherOptions()])
  berth.programs.push(other)
  url = (await other.printed(/"url":"([^"]+)"/))[1] ?? ""
  // The façade listens before its caches hold keys and jobs.
  await eventually(async () => expect((await fetch(`${url}/readyz`)).status).toBe(200))
}, 300_000)
afterAll(async () => {
  vi.unstubAllEnvs()
  await berth?.close()
  await moto?.stop()
})

/** Returns the options of an installation's second replica. */
function otherOptions(): string[] {
  const { namespace, systemNamespace } = berth
  const kube = ["--kubeconfig", kubeconfigPath(), "--system-namespace", systemNamespace, "--watch-namespace", namespace]
  const logs = ["--logs-bucket", BUCKET, "--logs-endpoint", moto.url, "--logs-region", REGION]
  return [...kube, ...logs, "--port", "0", "--default-project", namespace]
}

async function logByOther(job: string, query = ""): Promise<Response> {
  const headers = { "X-Service-Api-Key": berth.apiKey }
  return await eventually(async () => {
    const response = await fetch(`${url}/1/jobs/${job}/logs${query}`, { headers })
    expect(response.status).toBe(200)
    return response
  })
}

it("a log that one façade received is read and followed through another, also after the first has ended", async () => {
  await berth.submit("talker", gate("echo first line", "for i in $(seq 500); do echo line $i; done"))
  await berth.untilJobs("talker started", () => berth.job("talker").status?.startTime !== undefined)
  let followed = ""
  for await (const piece of (await logByOther("talker", "?follow=true")).body?.pipeThrough(new TextDecoderStream()) ??
    []) {
    if (followed === "") await berth.openGate((await berth.vms())[0] ?? "")
    followed += piece
  }
  const whole = `first line\n${Array.from({ length: 500 }, (_, i) => `line ${i + 1}\n`).join("")}`
  expect(followed).toBe(whole)
  await berth.reached("succeeded", "talker")
  await berth.allOver()
  await berth.programs[0]?.kill()
  expect(await (await logByOther("talker")).text()).toBe(whole)
}, 200_000)
