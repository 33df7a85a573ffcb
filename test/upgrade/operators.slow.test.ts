import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { kubeconfigPath } from "../control-plane.ts"
import { bindAbilities } from "../harness/abilities.ts"
import { eventually } from "../harness/eventually.ts"
import { Program } from "../harness/program-process.ts"
import { ProjectHarness } from "../harness/project.ts"
import { unpackProgram } from "./recorded.ts"

/** An operator of 0.1.0 and one of now, in turn, over the same project. */
let folder: string
let program: string
let former: Program
afterAll(async () => {
  await former?.stop()
  await rm(folder, { recursive: true, force: true })
})
const berth = new ProjectHarness("operators")

beforeAll(async () => {
  const { admin, namespace, systemNamespace } = berth
  await bindAbilities(admin, { namespace, systemNamespace })
  folder = await mkdtemp(join(tmpdir(), "berth-operators-"))
  program = await unpackProgram("0.1.0", folder)
})

/** Starts the recorded operator. Resolves when it leads. */
async function startFormer(): Promise<void> {
  const cluster = ["--kubeconfig", kubeconfigPath(), "--system-namespace", berth.systemNamespace]
  const images = ["--agent-image", "berth", "--volumes-image", "berth"]
  const rest = ["--watch-namespace", berth.namespace, "--gateway-url", "http://127.0.0.1:1", "--metrics-port", "0"]
  former = new Program("operator of 0.1.0", [program, "operator", ...cluster, ...images, ...rest])
  await former.printed(/"msg":"leading"/)
}

const submit = (name: string) => berth.submit(name, { after: [{ job: "prepare" }] })
const rejected = () => eventually(() => expect(submit("early")).rejects.toThrow("is older than version 0.2.0"))
const reasonOf = async (name: string) => (await berth.job(name)).status?.reason

describe("an operator of 0.1.0", () => {
  it("gets no job with `after` while it leads", async () => {
    await startFormer()
    await rejected()
    await berth.submit("free")
  })

  it("leaves them to an operator of this version, which lets them wait", async () => {
    await former.stop()
    const able = await berth.programs.startOperator()
    await eventually(() => submit("waits"))
    await eventually(async () => expect(await reasonOf("waits")).toBe("JobMissing"))
    await able.stop()
  })

  it("gets none after a rollback, and no longer lets those wait that it finds", async () => {
    await startFormer()
    await rejected()
    await eventually(async () => expect(await reasonOf("waits")).toBe("NoConnection"))
  })
})
