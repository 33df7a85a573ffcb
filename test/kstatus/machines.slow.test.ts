import { expect, it } from "vitest"
import { machineState } from "../../src/core/records/machine.ts"
import { MACHINES } from "../../src/core/resources.ts"
import { confirmedProject } from "../harness/confirmed-project.ts"
import { controllerHarnesses } from "../harness/controllers.ts"
import { eventually } from "../harness/eventually.ts"
import { SimHosts } from "../harness/sim-hosts.ts"
import { missingTool, needing } from "../needing.ts"
import { kstatusOf } from "./kstatus.ts"

const newHarness = controllerHarnesses()

needing(missingTool("kstatus")).describe("a machine", { timeout: 300_000 }, () => {
  it("is in progress until its host has joined and while that is silent, current while it works, failed if it can't", async () => {
    const harness = await newHarness()
    const { client, clock, namespace } = harness
    await confirmedProject(client, { name: namespace, organization: namespace, namespace })
    const hosts = new SimHosts(client, clock)
    const ref = { namespace, name: "gpu-1" }
    harness.operator({ machines: true })
    const spec = { joinNumber: 1, leaseSeconds: 300 }
    /** Expects the machine to come to this state, of which kstatus says this. */
    const becomes = async (state: string, status: string, step = async () => {}): Promise<void> =>
      await eventually(async () => {
        await step()
        const machine = await client.get(MACHINES, ref)
        const [verdict] = await kstatusOf([machine])
        const seen = JSON.stringify(machine.status)
        expect([machineState(machine), verdict?.status], seen).toEqual([state, status])
      })
    const work = async (): Promise<void> => {
      await hosts.step(namespace)
      await harness.agentsStep("run")
    }

    await client.create(MACHINES, { metadata: ref, spec } as never)
    await becomes("pending", "InProgress")
    await hosts.joinAs(ref)
    await becomes("ready", "Current")
    await harness.submit("job", { cloud: ["own"] })
    await becomes("busy", "Current", work)
    // A job that has not begun may be taken back from a silent machine, and that is drained then.
    await eventually(async () => {
      await work()
      expect((await harness.job("job")).status?.phase).toBe("running")
    })
    await client.patch(MACHINES, ref, { merge: { spec: { unschedulable: true } } })
    await becomes("draining", "Current", work)
    clock.advance(200)
    await becomes("silent", "InProgress")
    await hosts.beat(ref)
    await becomes("draining", "Current")
    const unfit = { status: { host: { unfit: "the engine does not answer" } } }
    await client.patchStatus(MACHINES, ref, { merge: unfit } as never)
    await becomes("unfit", "Failed")
    await client.delete(MACHINES, ref)
    await becomes("removing", "Terminating")
  })
})
