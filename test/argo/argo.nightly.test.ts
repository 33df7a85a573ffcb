import { randomUUID } from "node:crypto"
import { load } from "js-yaml"
import { afterAll, beforeAll, expect, it } from "vitest"
import type { StoredJob } from "../../src/core/apis/job.ts"
import { JOBS } from "../../src/core/resources.ts"
import { kubeconfigPath, kubectl } from "../control-plane.ts"
import { processRuntime } from "../harness/container-runtime.ts"
import { eventually } from "../harness/eventually.ts"
import { Installation } from "../harness/installation.ts"
import { missingTool, needing } from "../needing.ts"
import { resourceIn, samples, verdictOf, type WorkflowTemplate, workflowTemplateKind } from "./argo.ts"

/** The sample for Argo Workflows, with jobs that really run. Its executor is kubectl, with the rights of the sample. */
needing(missingTool("argo-workflows")).describe("a workflow of Argo", { timeout: 300_000 }, () => {
  let berth: Installation
  let template: WorkflowTemplate
  beforeAll(async () => {
    berth = await Installation.create({ name: "argo", kubeconfig: kubeconfigPath(), runtime: processRuntime })
    await berth.startOperator()
    const read = await samples()
    template = read.template
    const items = read.rights
    await kubectl(
      ["apply", "-n", berth.namespace, "-f", "-"],
      JSON.stringify({ apiVersion: "v1", kind: "List", items }),
    )
  })
  afterAll(() => berth?.close())

  /** Runs kubectl as the executor's pod does. */
  const asExecutor = (args: string[], input?: string): Promise<string> => {
    const account = `system:serviceaccount:${berth.namespace}:${template.spec.serviceAccountName}`
    return kubectl(["-n", berth.namespace, `--as=${account}`, ...args], input)
  }

  /** Creates the job of a workflow, owned by it, whose container runs this script. */
  async function begin(workflow: string, script: string): Promise<void> {
    const { action, manifest } = resourceIn(template, "train", workflow)
    const job = load(manifest) as StoredJob
    const owner = { apiVersion: "argoproj.io/v1alpha1", kind: "Workflow", name: workflow, uid: randomUUID() }
    const metadata = { ...job.metadata, ownerReferences: [{ ...owner, controller: true, blockOwnerDeletion: true }] }
    await asExecutor(
      [action, "-f", "-", "-o", "json"],
      JSON.stringify({ ...job, metadata, spec: { ...job.spec, args: [script] } }),
    )
  }

  async function verdict(workflow: string) {
    const text = await asExecutor(["get", "jobs.berth.dev", workflow, "-o", "json"])
    return verdictOf(JSON.parse(text) as object, resourceIn(template, "train", workflow))
  }

  async function cancel(workflow: string): Promise<void> {
    const { action, flags = [], manifest } = resourceIn(template, "cancel", workflow)
    await asExecutor([action, ...flags, "--type", "merge", "-p", JSON.stringify(load(manifest))])
  }

  it("is a valid WorkflowTemplate", async () => {
    await kubectl(["apply", "--server-side", "--force-conflicts", "-f", await workflowTemplateKind()])
    const apply = () =>
      kubectl(
        ["apply", "-n", berth.namespace, "--dry-run=server", "--validate=strict", "-f", "-"],
        JSON.stringify(template),
      )
    // The API server serves a new kind a moment later.
    await eventually(async () => expect(await apply()).toContain("berth-job created"))
  })

  it("continues while its job waits and runs, and succeeds with it; its outputs have exit code and cost", async () => {
    await begin("good", 'until [ -e open ]; do sleep 0.1; done; echo "$EPOCHS epochs"')
    expect(await verdict("good")).toEqual({ succeeded: false, failed: [] })
    await berth.reached("running", "good")
    expect(await verdict("good")).toEqual({ succeeded: false, failed: [] })
    const [launch = ""] = await berth.vms()
    await berth.openGate(launch)
    await berth.reached("succeeded", "good")
    expect(await verdict("good")).toEqual({ succeeded: true, failed: [] })
    expect(await berth.log("good")).toBe("3 epochs\n")
    const outputs = template.spec.templates.flatMap(({ outputs: of }) => of?.parameters ?? [])
    const values = await Promise.all(
      outputs.map(({ valueFrom: { jsonPath } }) =>
        asExecutor(["get", "jobs.berth.dev", "good", "-o", `jsonpath=${jsonPath}`]),
      ),
    )
    expect(values).toEqual(["0", expect.stringMatching(/^[\d.e-]+$/)])
  })

  it("fails with its job, and the cancellation after that changes nothing", async () => {
    await begin("bad", "exit 3")
    await berth.reached("failed", "bad")
    expect(await verdict("bad")).toEqual({ succeeded: false, failed: ["status.phase==failed"] })
    await cancel("bad")
    await berth.allOver()
    expect(berth.job("bad").status).toMatchObject({ phase: "failed", exitCode: 3 })
    expect(await verdict("bad")).toEqual({ succeeded: false, failed: ["status.phase==failed"] })
  })

  it("fails with a message that says so, if its job is cancelled; a workflow that is stopped cancels its job", async () => {
    await begin("stopped", "while true; do sleep 0.2; done")
    await berth.reached("running", "stopped")
    await cancel("stopped")
    await berth.reached("cancelled", "stopped")
    expect(await verdict("stopped")).toEqual({ succeeded: false, failed: ["status.phase==cancelled"] })
    await berth.allOver()
    expect(await berth.runningOn()).toEqual([])
  })

  it("ends the VM of its job when it is deleted with its job, and doubles no job if its pod runs twice", async () => {
    await begin("deleted", "while true; do sleep 0.2; done")
    await berth.reached("running", "deleted")
    await expect(begin("deleted", "true")).rejects.toThrow("already exists")
    // The garbage collector of Kubernetes deletes what a deleted workflow owns.
    expect(resourceIn(template, "train", "deleted").setOwnerReference).toBe(true)
    await berth.client.delete(JOBS, { namespace: berth.namespace, name: "deleted" })
    await berth.allOver()
    expect(await berth.runningOn()).toEqual([])
  })

  it("has no other rights: its pods can't delete jobs, read Secrets, or create keys", async () => {
    for (const right of [
      ["delete", "jobs.berth.dev"],
      ["get", "secrets"],
      ["create", "apikeys.berth.dev"],
    ])
      await expect(asExecutor(["auth", "can-i", ...right])).rejects.toThrow()
  })
})
