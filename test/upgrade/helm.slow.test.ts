import { execFile } from "node:child_process"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { promisify } from "node:util"
import { afterAll, beforeAll, expect, inject } from "vitest"
import type { ControlPlane } from "../../dev/controlplane/control-plane.ts"
import { CHART, helmProgram } from "../chart/helm.ts"
import { startPrivateControlPlane } from "../control-plane.ts"
import { commandsIn } from "../documents.ts"
import { eventually } from "../harness/eventually.ts"
import { missingTool, needing } from "../needing.ts"
import { unpackManifests } from "./recorded.ts"

const { describe, it } = needing(missingTool("helm"))
const run = promisify(execFile)

const INSTALL = ["--namespace", "berth-system", "--create-namespace"]
const VALUES = ["--set", "baseDomain=berth.example.com,logs.bucket=logs,facade.sessions.enabled=true"]
const JOB = { apiVersion: "berth.dev/v1alpha1", kind: "Job", metadata: { name: "waits", namespace: "default" } }

/** Helm with the chart of 0.1.0 and the one of now, on a real API server. No pods run. */
let folder: string
let formerChart: string
let servers: ControlPlane

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "berth-helm-"))
  formerChart = (await unpackManifests("0.1.0", folder)).chart
  servers = await startPrivateControlPlane()
})
afterAll(async () => {
  await servers?.stop()
  await rm(folder, { recursive: true, force: true })
})

async function call(program: string, args: readonly string[], input = ""): Promise<string> {
  const env = { PATH: process.env["PATH"], HOME: folder, KUBECONFIG: servers.kubeconfigPath }
  const running = run(program, args, { env, maxBuffer: 64 * 1024 * 1024 })
  running.child.stdin?.end(input)
  return (await running).stdout
}
const kubectl = (args: readonly string[], input?: string) => call(inject("kubectlPath"), args, input)
const helm = async (...args: string[]) => call(await helmProgram(), args)

/** Writes the status of the job, as an operator does, and returns its spec. */
async function specAfterWrite(message: string): Promise<object> {
  const status = { ...JOB, status: { phase: "queued", message } }
  const write = ["apply", "--server-side", "--subresource=status", "--force-conflicts", "-f", "-"]
  const said = await kubectl([...write, "-o", "json"], JSON.stringify(status))
  return (JSON.parse(said) as { spec: object }).spec
}

const AFTER = { after: [{ job: "prepare", outcome: "succeeded" }] }

describe("helm", { timeout: 200_000 }, () => {
  it("upgrades the kinds, and a downgrade as docs/versions.md describes it leaves them", async () => {
    await helm("install", "berth", formerChart, ...INSTALL, "--set", "baseDomain=berth.example.com,logs.bucket=logs")
    await helm("upgrade", "berth", CHART, ...INSTALL, ...VALUES)
    await eventually(() => kubectl(["create", "-f", "-"], JSON.stringify({ ...JOB, spec: { image: "a", ...AFTER } })))
    const [command = ""] = commandsIn("docs/versions.md", "Downgrade").filter((block) => block.includes("helm upgrade"))
    const [, , ...args] = command.replaceAll("\\\n", " ").trim().split(/\s+/)
    const documented = args.map((arg) => (arg.startsWith("oci://") ? formerChart : arg))
    const version = documented.indexOf("--version")
    const downgrade = documented.filter((_, index) => index !== version && index !== version + 1)
    await expect(helm("upgrade", ...downgrade)).rejects.toThrow(/sessions/)
    await helm("upgrade", ...downgrade, "--set", "facade.sessions=null")
    expect(await specAfterWrite("one")).toMatchObject(AFTER)
    const policies = await kubectl(["get", "validatingadmissionpolicies", "-o", "name"])
    expect(policies).toContain("berth-spec-limits")
    expect(policies).not.toContain("berth-abilities")
  })

  it("takes the kinds back in a rollback, and the next write of an object drops what they lack", async () => {
    await helm("upgrade", "berth", CHART, ...INSTALL, ...VALUES)
    await eventually(async () => expect(await specAfterWrite("two")).toMatchObject(AFTER))
    await helm("rollback", "berth", "1", "--namespace", "berth-system")
    await eventually(async () => expect(await specAfterWrite("three")).not.toHaveProperty("after"))
    await helm("upgrade", "berth", CHART, ...INSTALL, ...VALUES)
    expect(await specAfterWrite("four")).not.toHaveProperty("after")
  })
})
