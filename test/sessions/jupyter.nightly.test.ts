import { randomBytes } from "node:crypto"
import { afterAll, beforeAll, expect } from "vitest"
import { docker } from "../agent/images.ts"
import { start } from "../cli/command.ts"
import { kubeconfigPath } from "../control-plane.ts"
import { Balancer } from "../harness/balancer.ts"
import { containerRuntime } from "../harness/container-runtime.ts"
import { eventually } from "../harness/eventually.ts"
import { Installation } from "../harness/installation.ts"
import { needing } from "../needing.ts"
import { jupyterPython, Kernel, pythonImage } from "./jupyter.ts"

const runtime = await containerRuntime()
const engineNeeded = needing(runtime.name === "docker" ? undefined : "no Docker engine answers")
const IMAGE = `berth-test/jupyter:${randomBytes(4).toString("hex")}`

/** Most tries to reach a kernel after the replica that held the connection was killed. */
const MOST_TRIES = 3

let berth: Installation
let python: string

engineNeeded.describe("a Jupyter server behind berth forward", () => {
  beforeAll(async () => {
    python = await jupyterPython()
    await pythonImage(python, IMAGE)
    berth = await Installation.create({ name: "jupyter", kubeconfig: kubeconfigPath(), runtime, sessions: true })
    await berth.startOperator()
  })
  afterAll(async () => {
    await berth.close()
    await docker.getImage(IMAGE).remove({ force: true })
  })

  engineNeeded.it("runs code by HTTP and WebSockets, also after the replica that held it was killed", async () => {
    const server = ["-m", "jupyter_server", "--ip=0.0.0.0", "--port=8888", "--allow-root", "--no-browser"]
    const open = ["--IdentityProvider.token=", "--ServerApp.disable_check_xsrf=True", "--ServerApp.root_dir=/"]
    const env = { HOME: "/tmp", TMPDIR: "/tmp", PYTHONDONTWRITEBYTECODE: "1" }
    await berth.submit("notebook", "", { image: IMAGE, command: [python, ...server, ...open], args: [], env })
    await berth.reached("running", "notebook")
    const second = await berth.startReplica()
    await using balancer = await Balancer.start([second.url])
    const forward = start(["forward", "notebook", "0:8888"], { BERTH_URL: balancer.url, BERTH_API_KEY: berth.apiKey })
    await forward.printed("is port 8888 of notebook")
    // The second replica holds the session. The agent's connections come to the first one.
    balancer.targets = [berth.url, second.url]
    const url = `http://127.0.0.1:${/127\.0\.0\.1:(\d+)/.exec(forward.out())?.[1]}`
    // The server starts within seconds; until then its port is closed.
    await eventually(async () => expect(await (await fetch(`${url}/api`)).json()).toHaveProperty("version"))
    const { id } = (await (await fetch(`${url}/api/kernels`, { method: "POST" })).json()) as { id: string }
    const kernel = await Kernel.connect(url, id)
    expect(await kernel.run("1+1")).toBe("2")
    expect(await kernel.run("kept = 41; kept")).toBe("41")
    await second.program.kill()
    balancer.targets = [berth.url]
    await kernel.closed
    await forward.noted("The connection has ended")
    const again = await reconnected(url, id)
    // The same kernel: the job did not notice.
    expect(await again.run("kept + 1")).toBe("42")
    again.close()
    forward.interrupt()
    expect((await forward.ended).code).toBe(130)
  })
})

/** Connects to a kernel, with few tries. @throws Error of the last one */
async function reconnected(url: string, id: string): Promise<Kernel> {
  for (let tries = 1; ; tries++) {
    try {
      return await Kernel.connect(url, id)
    } catch (error) {
      if (tries === MOST_TRIES) throw error
    }
  }
}
