import { readFile } from "node:fs/promises"
import { join } from "node:path"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { kubeconfigPath, kubectl } from "../control-plane.ts"
import { containerRuntime } from "../harness/container-runtime.ts"
import { eventually } from "../harness/eventually.ts"
import { Installation } from "../harness/installation.ts"

const SAMPLES = join(import.meta.dirname, "..", "..", "manifests", "samples")

let berth: Installation

beforeAll(async () => {
  const runtime = await containerRuntime()
  berth = await Installation.create({ name: "kubectl", kubeconfig: kubeconfigPath(), runtime })
  await berth.startOperator()
})
afterAll(() => berth?.close())

function inProject(args: string[], input?: string): Promise<string> {
  return kubectl([...args, "-n", berth.namespace], input)
}

/** Returns a sample from its file, with an image that this engine has. */
async function sample(name: string): Promise<string> {
  const manifest = await readFile(join(SAMPLES, `${name}.yaml`), "utf8")
  return manifest.replace(/^ {2}image: .*$/m, `  image: ${berth.runtime.image}`)
}

function jobManifest(name: string, script: string): string {
  return JSON.stringify({
    apiVersion: "berth.dev/v1alpha1",
    kind: "Job",
    metadata: { name },
    spec: { image: berth.runtime.image, command: ["sh", "-c"], args: [script] },
  })
}

/** Returns reason and message of each event, in the order of `kubectl describe`. */
function eventsIn(description: string): [reason: string, message: string][] {
  const [, table = ""] = description.split(/^Events:\n/m)
  const rows = table.split("\n").slice(2)
  return rows
    .filter((row) => row.trim() !== "")
    .map((row) => {
      const [, reason = "", , , message = ""] = row.trim().split(/ {2,}/)
      return [reason, message]
    })
}

describe("a user of kubectl", { timeout: 200_000 }, () => {
  it("applies a sample by kubectl, waits for it, and reads its events in kubectl describe", async () => {
    expect(await inProject(["apply", "-f", "-"], await sample("hello"))).toBe("job.berth.dev/hello created\n")
    await inProject(["wait", "--for=condition=Complete", "bj/hello", "--timeout=100s"])
    // The cost is there with the end, before the cloud has confirmed that the VM is deleted.
    const cost = "jsonpath={.status.cost.endedUsd}"
    expect(Number(await inProject(["get", "bj", "hello", "-o", cost]))).toBeGreaterThan(0)
    await berth.allOver()

    const [head = "", row = ""] = (await inProject(["get", "bj"])).split("\n")
    expect(head.split(/ +/)).toEqual(["NAME", "PHASE", "REASON", "CLOUD", "TYPE", "USD/H", "COST", "AGE"])
    expect(row).toMatch(/^hello +succeeded +Succeeded +local +local-1 +0\.02 +0\.000\d+ +\d+/)

    const launch = berth.launchesOf("hello")[0]?.metadata.name
    // Events are written after the objects.
    await eventually(async () => {
      expect(eventsIn(await inProject(["describe", "bj", "hello"]))).toEqual([
        [
          "Placed",
          expect.stringMatching(
            new RegExp(
              `^VM ${launch}, launch 1: local local-1 in local \\(.*\\$0\\.02/h\\): cheapest of 4 matching offers`,
            ),
          ),
        ],
        ["Succeeded", expect.stringMatching(/exit code 0/)],
      ])
    })
    expect(await berth.log("hello")).toBe([1, 2, 3].map((n) => `Ahoy from a berth (${n} of 3)\n`).join(""))
  })

  it("waits by kubectl for a job's failed phase", async () => {
    await inProject(["apply", "-f", "-"], jobManifest("failing", "echo no; exit 3"))
    await inProject(["wait", "--for=jsonpath={.status.phase}=failed", "bj/failing", "--timeout=100s"])
    const columns = "jsonpath={.status.reason} {.status.exitCode}"
    expect(await inProject(["get", "bj", "failing", "-o", columns])).toBe("ContainerFailed 3")
    await inProject(["wait", "--for=condition=Failed", "bj/failing", "--timeout=100s"])
  })

  it("cancels a running job by a patch of kubectl", async () => {
    await inProject(["apply", "-f", "-"], jobManifest("cancelled", "trap exit TERM; echo began; sleep 600 & wait"))
    await inProject(["wait", "--for=condition=Started", "bj/cancelled", "--timeout=100s"])
    await inProject(["patch", "bj", "cancelled", "--type=merge", "-p", '{"spec":{"cancelled":true}}'])
    await inProject(["wait", "--for=jsonpath={.status.phase}=cancelled", "bj/cancelled", "--timeout=100s"])
    await berth.allOver()
    expect(await berth.runningOn()).toEqual([])
  })

  it("deletes a running job by kubectl, and its VM before the object", async () => {
    // The container takes two seconds to end. The object would be deleted earlier if it did not wait.
    const script = "trap 'sleep 2; exit 0' TERM; echo began; sleep 600 & wait"
    await inProject(["apply", "-f", "-"], jobManifest("deleted", script))
    await inProject(["wait", "--for=condition=Started", "bj/deleted", "--timeout=100s"])
    const launches = berth.launchesOf("deleted").map(({ metadata }) => metadata.name)
    const container = await berth.runningOn(launches)
    expect(container.length).toBeGreaterThan(1)

    const deleting = inProject(["delete", "bj", "deleted", "--timeout=100s"])
    const key = { namespace: berth.namespace, name: "deleted" }
    await berth.untilJobs("deleted job", () => berth.jobs.store.get(key) === undefined)
    expect(await berth.runningOn(launches)).toEqual([])
    await deleting
    await berth.untilLaunches("launch over", () =>
      berth.launchesOf("deleted").every(({ status }) => status?.phase === "terminated"),
    )
    expect(berth.launchesOf("deleted").map(({ metadata }) => metadata.name)).toEqual(launches)
  })

  it.each([
    ["an unknown field", /unknown field "spec\.comand"/, { comand: ["true"] }],
    ["a wrong type", /spec\.maxRetries.*must be of type integer/s, { maxRetries: "two" }],
    ["a bad quantity", /spec\.resources\.memory/, { resources: { memory: "24GB" } }],
  ])("rejects %s by kubectl and creates nothing", async (_, message, wrong) => {
    const job = JSON.parse(jobManifest("refused", "true")) as { spec: object }
    const manifest = JSON.stringify({ ...job, spec: { ...job.spec, ...wrong } })
    await expect(inProject(["apply", "-f", "-"], manifest)).rejects.toThrow(message)
    await expect(inProject(["get", "bj", "refused"])).rejects.toThrow(/NotFound/)
  })

  it("rejects a change of an immutable field and an invalid name by kubectl", async () => {
    const changed = jobManifest("failing", "exit 0")
    await expect(inProject(["apply", "-f", "-"], changed)).rejects.toThrow(/spec\.args is immutable/)
    await expect(inProject(["apply", "-f", "-"], jobManifest("Not_a_name", "true"))).rejects.toThrow(/metadata\.name/)
  })
})
