import { readdir, readFile } from "node:fs/promises"
import { join } from "node:path"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { kubeconfigPath, kubectl } from "../control-plane.ts"
import { containerRuntime } from "../harness/container-runtime.ts"
import { Installation } from "../harness/installation.ts"

const SECRET = "correct-horse-battery-staple"
const KINDS = ["jobs.berth.dev", "launches.berth.dev", "apikeys.berth.dev", "projects.berth.dev", "events", "leases"]

let berth: Installation

beforeAll(async () => {
  const runtime = await containerRuntime()
  berth = await Installation.create({ name: "secrets", kubeconfig: kubeconfigPath(), runtime })
  await berth.startOperator()
})
afterAll(() => berth?.close())

/** Returns every file below a folder with its content. */
async function filesBelow(folder: string): Promise<[path: string, content: string][]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  const paths = entries.filter((entry) => entry.isFile()).map(({ parentPath, name }) => join(parentPath, name))
  return await Promise.all(
    // A draft may be renamed meanwhile.
    paths.map(async (path): Promise<[string, string]> => [path, await readFile(path, "utf8").catch(() => "")]),
  )
}

/** Returns everything that this installation writes and shows, except the container's own environment. */
async function everythingWritten(): Promise<Map<string, string>> {
  const written = new Map<string, string>()
  for (const { name, output } of berth.programs) written.set(`output of the ${name}`, output)
  for (const namespace of [berth.namespace, berth.systemNamespace]) {
    const objects = await kubectl(["get", KINDS.join(","), "-n", namespace, "-o", "json", "--show-managed-fields"])
    written.set(`objects in ${namespace}`, objects)
  }
  written.set("description", await kubectl(["describe", "bj", "-n", berth.namespace]))
  for (const [path, content] of await filesBelow(berth.folder)) written.set(path, content)
  return written
}

describe("secrets", { timeout: 200_000 }, () => {
  it("secrets reach the container and appear in no object, event, log or file", async () => {
    const secret = ["create", "secret", "generic", "door", "--type=berth.dev/env", `--from-literal=code=${SECRET}`]
    await kubectl([...secret, "-n", berth.namespace])
    const script = `trap exit TERM; [ "$CODE" = ${SECRET.slice(0, 12)}"$REST" ] && echo match; sleep 600 & wait`
    const body = {
      name: "confidant",
      image: berth.runtime.image,
      command: ["sh", "-c"],
      args: [script],
      env: { REST: SECRET.slice(12) },
      secretEnv: { CODE: { secret: "door", key: "code" } },
    }
    const headers = { "Content-Type": "application/json" }
    const created = await berth.fetch("/jobs", { method: "POST", headers, body: JSON.stringify(body) })
    expect(created.status).toBe(201)
    await berth.untilJobs("started", () => berth.job("confidant").status?.startTime !== undefined)
    await expect.poll(() => berth.log("confidant"), { timeout: 60_000 }).toBe("match\n")
    const whileRunning = await everythingWritten()
    expect((await berth.fetch("/jobs/confidant/cancel", { method: "POST" })).status).toBe(200)
    await berth.allOver()

    const written = [...whileRunning, ...(await everythingWritten())]
    const secrets = [SECRET, berth.apiKey]
    const forms = secrets.flatMap((text) => [text, Buffer.from(text).toString("base64")])
    const found = written.filter(([, text]) => forms.some((form) => text.includes(form))).map(([where]) => where)
    expect(found).toEqual([])
    // Proves that the search covers the expected files.
    const [launch] = await berth.vms()
    expect(whileRunning.get(join(berth.vmsDir, `${launch}`, "disk", "user-data.json"))).toContain(berth.url)
    expect(whileRunning.get("description")).toContain("confidant")
    expect(whileRunning.get("output of the facade")).toContain("/1/jobs")
  })
})
