import { createHash } from "node:crypto"
import { setTimeout as delay } from "node:timers/promises"
import { gzipSync } from "node:zlib"
import { pack } from "tar-stream"
import { buffer } from "node:stream/consumers"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { STATEMENTS } from "../../src/core/resources.ts"
import { launchOf } from "../cloud/ec2-console.ts"
import { type ContainerRuntime, containerRuntime } from "../harness/container-runtime.ts"
import { eventually } from "../harness/eventually.ts"
import { SYSTEM_NAMESPACE } from "../harness/system-namespace.ts"
import type { Program } from "../harness/program-process.ts"
import { WebhookReceiver } from "../harness/webhook-receiver.ts"
import { missingTool, needing } from "../needing.ts"
import { randomFrom } from "../random.ts"
import { DOCKER_REGION, type Kind, PROJECT, RollingBerth, type Version } from "./rolling-berth.ts"
import { follow, Workload } from "./workload.ts"

const { describe: describeWithMoto } = needing(missingTool("moto"))

/** Orders of the replacements. */
const ORDERS: { upgrade: Kind[]; downgrade: Kind[] }[] = [
  { upgrade: ["operator", "facade"], downgrade: ["facade", "operator"] },
  { upgrade: ["facade", "operator"], downgrade: ["operator", "facade"] },
]

const seed = Number(process.env["BERTH_SEED"] ?? Math.floor(Math.random() * 1e9))
const random = randomFrom(seed)
const moment = () => delay(Math.round(random() * 3000))

describeWithMoto.each(ORDERS)(`an upgrade ($upgrade) and a downgrade ($downgrade), seed ${seed}`, ({ upgrade, downgrade }) => {
  let runtime: ContainerRuntime
  let berth: RollingBerth
  let work: Workload
  let receiver: WebhookReceiver
  let followed: Promise<string>
  let followed2: Promise<string>
  let host: Program | undefined

  beforeAll(async () => {
    runtime = await containerRuntime()
    receiver = await WebhookReceiver.start()
    berth = await RollingBerth.start(runtime)
    work = new Workload(berth)
  })
  afterAll(async () => {
    await work?.stop()
    await berth?.close()
    await receiver?.stop()
  })

  /** Replaces all replicas, one at a time, and uses each mixture of programs. */
  async function roll(kinds: Kind[], version: Version, halfway: () => Promise<void>): Promise<void> {
    for (const kind of kinds) {
      for (let count = 0; count < 2; count++) {
        await moment()
        await berth.replace(kind, version, moment)
        await work.probe()
      }
      if (kind === kinds[0]) await halfway()
    }
  }

  it("has jobs of each kind under 0.1.0", async () => {
    const { world } = berth
    await berth.rest("POST", "/connections", {
      ...{ name: "acme", type: "aws", access_key_id: "AKIAEXAMPLE", secret_access_key: "very-secret" },
    })
    await berth.rest("POST", "/webhooks", { name: "ends", url: receiver.url, events: ["job.*"] })
    const made = await berth.rest("POST", "/keys", { name: "second", role: "developer" })
    await berth.untilUsable("second", String(made.body["value"]))
    const lines = `n=0; until [ -e $GATE ]; do n=$((n+1)); ${world.say("long", "line $n")}; sleep 0.3; done`
    await work.submit("long", lines, { more: { env: { GATE: world.gate("long") } } })
    followed = follow(berth, "long")
    // It fails twice, the second time after a gate.
    const count = `n=$(grep -c start ${world.file("retried")})`
    await work.submit("retried", `${count}; [ $n -ne 1 ] || over 3; [ $n -ne 2 ] || { ${world.wait("retry")}; over 3; }`, {
      more: { maxRetries: 2 },
      expected: { status: "succeeded", runs: [1, 1, 1], log: "--- attempt 2 ---\n--- attempt 3 ---\n" },
    })
    await work.submit("failing", `${world.wait("failing")}; ${world.say("failing", "fails")}; over 7`, {
      expected: { status: "failed", exitCode: 7 },
    })
    await work.submit("cancelled", "sleep 600", { expected: { status: "cancelled", stopped: 1 } })
    const archive = pack()
    archive.entry({ name: "words.txt" }, "from the working directory\n")
    archive.finalize()
    const bytes = gzipSync(await buffer(archive))
    const sha256 = createHash("sha256").update(bytes).digest("hex")
    const put = await fetch(`${berth.balancer.url}/1/uploads/${sha256}`, {
      method: "PUT",
      headers: { "X-Service-Api-Key": berth.key, "Content-Type": "application/gzip" },
      body: bytes,
    })
    expect(put.status, await put.text()).toBeLessThan(300)
    await work.submit("worked", `${world.wait("worked")}; cat words.txt`, {
      more: { workdir: { sha256 } },
      expected: { status: "succeeded", log: "from the working directory\n" },
    })
    await berth.rest("POST", "/cronjobs", {
      ...{ name: "tick", cron_spec: "* * * * *", job_definition: berth.definition("tick", "true") },
    })
    const indexes = berth.definition("index-$BERTH_ARRAY_INDEX", "sleep 4")
    await berth.rest("POST", "/arrays", { name: "sweep", size: 6, parallelism: 2, job_definition: indexes })
    for (const name of ["long", "failing", "cancelled"]) await berth.until(name, "running")
    await eventually(async () => expect(await world.runs("index-0")).toHaveLength(1))
  })

  it("loses nothing in the upgrade, and runs nothing twice", { timeout: 600_000 }, async () => {
    const { world } = berth
    work.start(3)
    await berth.applyManifests("now")
    await roll(upgrade, "now", async () => {
      expect((await berth.rest("POST", "/jobs/cancelled/cancel")).status).toBe(200)
      await world.open("retry", "worked")
      // The agent of a VM is of the operator's version, and reports to façades of both.
      await work.submit("between", world.wait("between"))
      await berth.until("between", "running")
    })
    await work.stop()
    await world.open("long", "failing", "between")
    await work.verify()
    expect(await followed).toBe(await world.said("long"))
    await berth.until("sweep", "succeeded", 120, "arrays")
    for (let index = 0; index < 6; index++) expect(await world.runs(`index-${index}`)).toMatchObject([{ launch: 1, ended: true }])
  })

  it("has work of each kind of now", { timeout: 300_000 }, async () => {
    const { world } = berth
    const { gate } = { gate: world.gate("long2") }
    await work.submit("long2", `n=0; until [ -e ${gate} ]; do n=$((n+1)); ${world.say("long2", "line $n")}; sleep 0.3; done`)
    followed2 = follow(berth, "long2")
    await work.submit("warm", "true", { more: { reuse: { idleSeconds: 900, key: "warm" } } })
    await work.submit("taken1", "true", { more: { reuse: { idleSeconds: 900, key: "taken" } } })
    await work.submit("waits", world.say("waits", "it waited"), { more: { after: [{ job: "long2" }] } })
    await work.submit("rules", `${world.wait("rules")}; over 75`, {
      more: { retryRules: [{ exitCodes: [75], action: "newVm" }] },
      expected: { status: "failed", exitCode: 75 },
    })
    await work.submit("limited", world.wait("limited"), { more: { idleLimit: { seconds: 300 }, priority: 50 } })
    const grouped = { concurrencyGroup: { name: "db", limit: 1 } }
    await work.submit("group-a", world.wait("group-a"), { more: grouped })
    await berth.until("group-a", "running")
    await work.submit("group-b", "true", { more: grouped })
    await berth.rest("POST", "/jobs", {
      ...{ name: "kept", image: runtime.image, command: ["sh", "-c", "echo kept; exit 5"], cloud: ["aws"], region: [DOCKER_REGION] },
      debug: { keepSeconds: 1800 },
    })
    const machine = await berth.rest("POST", "/machines", { name: "gpu-1" })
    host = berth.startHost((machine.body["join"] as { token: string }).token)
    await eventually(async () => expect((await berth.rest("GET", "/machines/gpu-1")).body).toMatchObject({ status: "ready" }))
    await work.submit("own", world.wait("own"), { more: { cloud: ["own"], region: undefined } })
    await berth.until("taken1", "succeeded")
    await eventually(async () => expect((await berth.launchesOf("taken1"))[0]?.status?.phase).toBe("idle"))
    await work.submit("taken2", world.wait("taken2"), { more: { reuse: { idleSeconds: 900, key: "taken" } } })
    for (const name of ["long2", "own", "taken2", "limited", "rules"]) await berth.until(name, "running")
    await berth.until("kept", "failed")
    for (const name of ["warm", "kept"])
      await eventually(async () => expect((await berth.launchesOf(name))[0]?.status?.phase, await berth.situation()).toBe("idle"))
    expect((await berth.launchesOf("taken2"))[0]?.spec.takesOver).toBeDefined()
    console.log(await berth.situation())
  })

  it("observes a downgrade", { timeout: 600_000 }, async () => {
    const { world } = berth
    work.start(3)
    await roll(downgrade, "0.1.0", async () => {})
    await delay(30_000)
    console.log(await berth.situation())
    for (const name of await world.names()) if (!/posted|applied|probe/.test(name)) console.log(name, JSON.stringify(await world.runs(name)))
    console.log(berth.replicas.filter((r) => r.kind === "operator").map((r) => r.program.output.split("\n").filter((l) => /"level":"(error|warn)/.test(l)).slice(-15).join("\n")).join("\n-----\n"))
    console.log(host?.output.slice(-2500))
    await world.open("long2", "rules", "limited", "group-a", "own", "taken2")
    await delay(40_000)
    await work.stop()
    console.log(await berth.situation())
    for (const name of await world.names()) if (!/posted|applied|probe/.test(name)) console.log(name, JSON.stringify(await world.runs(name)))
    console.log(host?.output.slice(-2500))
    console.log(berth.running)
  })
})
