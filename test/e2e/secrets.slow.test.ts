import { readdir, readFile } from "node:fs/promises"
import { join } from "node:path"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import type { StoredWebhook } from "../../src/core/apis/webhook.ts"
import { SECRETS, type Secret } from "../../src/core/kube/core.ts"
import { WEBHOOKS } from "../../src/core/resources.ts"
import { newSigningSecret } from "../../src/core/webhooks/signature.ts"
import { kubeconfigPath, kubectl } from "../control-plane.ts"
import { containerRuntime } from "../harness/container-runtime.ts"
import { Installation } from "../harness/installation.ts"
import { WebhookReceiver } from "../harness/webhook-receiver.ts"

const SECRET = "correct-horse-battery-staple"
const KINDS = ["jobs.berth.dev", "launches.berth.dev", "apikeys.berth.dev", "projects.berth.dev", "events", "leases"]

let berth: Installation

beforeAll(async () => {
  const runtime = await containerRuntime()
  berth = await Installation.create({ name: "secrets", kubeconfig: kubeconfigPath(), runtime })
  await berth.startOperator()
})
afterAll(() => berth?.close())

const CANARY = "c4n4ry-in-the-mine"

/** Returns true for the files that have the output itself: the store of logs, and the agents' copy until it is stored. */
function isLog(path: string): boolean {
  return path.startsWith(join(berth.folder, "logs")) || /\/disk\/output/.test(path)
}

function jsonPath(where: string): string {
  return where === "events" ? "jsonpath={.items[*].message}" : "jsonpath={.items[*].status.conditions}"
}

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

  it("secrets in a failed job's last line are in its log, and nowhere else", async () => {
    const receiver = await WebhookReceiver.start()
    try {
      const secret = ["create", "secret", "generic", "canary", "--type=berth.dev/env", `--from-literal=code=${CANARY}`]
      await kubectl([...secret, "-n", berth.namespace])
      const { client, namespace } = berth
      const data = { secret: btoa(newSigningSecret()) }
      await client.create(SECRETS, { metadata: { name: "hook", namespace }, type: "berth.dev/webhook", data } as Secret)
      for (const name of ["plain", "output"]) {
        const include = name === "output" ? { include: ["output"] } : {}
        const spec = { url: `${receiver.url}/${name}`, events: ["job.*"], secretRef: { name: "hook" }, ...include }
        await client.create(WEBHOOKS, { metadata: { name, namespace }, spec } as StoredWebhook)
      }
      await berth.submit("talker", 'echo one; echo "login failed for $CODE at door 7"; exit 3', {
        secretEnv: { CODE: { secret: "canary", key: "code" } },
      })
      await berth.untilJobs("failed", () => berth.job("talker").status?.phase === "failed")
      await expect
        .poll(() => receiver.accepted.map(({ path }) => path).sort(), { timeout: 60_000 })
        .toEqual(["/output", "/plain"])
      const paths = ["/jobs/talker", "/jobs/talker/timeline", "/jobs/talker/launches", "/jobs?status=failed"]
      const answers = await Promise.all(paths.map(async (path) => (await berth.fetch(path)).text()))
      await berth.allOver()
      const [plain, output] = ["/plain", "/output"].map(
        (path) => receiver.accepted.find((one) => one.path === path)?.body,
      )
      const written = new Map<string, string>([
        ...[...(await everythingWritten())].filter(([path]) => !isLog(path)),
        ...answers.map((answer, index): [string, string] => [`REST ${paths[index]}`, answer]),
        ["webhook without output", plain ?? ""],
      ])
      const forms = [CANARY, Buffer.from(CANARY).toString("base64")]
      expect([...written].filter(([, text]) => forms.some((form) => text.includes(form))).map(([at]) => at)).toEqual([])
      // It was there to be found, and the line is shown to those who may read output.
      expect(await berth.log("talker")).toContain(CANARY)
      const line = "login failed for *** at door 7"
      expect(berth.job("talker").status).toMatchObject({ message: "exit code 3", lastLine: line })
      expect(JSON.parse(answers[0] ?? "")).toMatchObject({
        message: "exit code 3",
        error_message: `exit code 3: ${line}`,
      })
      expect(JSON.parse(plain ?? "").data).toMatchObject({ message: "exit code 3", error_message: "exit code 3" })
      expect(plain).not.toContain("door 7")
      expect(JSON.parse(output ?? "").data).toMatchObject({
        error_message: `exit code 3: ${line}`,
        output: `one\nlogin failed for ${CANARY} at door 7`,
      })
      // Events, conditions and descriptions don't have it, because more people may read these.
      for (const where of ["events", "conditions"])
        expect(
          await kubectl(["get", where === "events" ? "events" : "bj", "-n", namespace, "-o", jsonPath(where)]),
        ).not.toContain("door 7")
    } finally {
      await receiver.stop()
    }
  })
})
