import { createHash } from "node:crypto"
import { buffer } from "node:stream/consumers"
import { setTimeout as delay } from "node:timers/promises"
import { gzipSync } from "node:zlib"
import { pack } from "tar-stream"
import { afterAll, beforeAll, expect, it } from "vitest"
import { STATEMENTS } from "../../src/core/resources.ts"
import { isGone, launchOf } from "../cloud/ec2-console.ts"
import { commandsIn } from "../documents.ts"
import { type ContainerRuntime, containerRuntime } from "../harness/container-runtime.ts"
import { eventually } from "../harness/eventually.ts"
import type { Program } from "../harness/program-process.ts"
import { SYSTEM_NAMESPACE } from "../harness/system-namespace.ts"
import { WebhookReceiver } from "../harness/webhook-receiver.ts"
import { missingTool, needing } from "../needing.ts"
import { randomFrom } from "../random.ts"
import { DOCKER_REGION, type Kind, RollingBerth, type Version } from "./rolling-berth.ts"
import { follow, Workload } from "./workload.ts"

const { describe } = needing(missingTool("moto"))

/** Orders of the replacements, and whose kinds the API server has after the downgrade. */
const ORDERS: { upgrade: Kind[]; downgrade: Kind[]; kinds: Version }[] = [
  { upgrade: ["operator", "facade"], downgrade: ["facade", "operator"], kinds: "now" },
  { upgrade: ["facade", "operator"], downgrade: ["operator", "facade"], kinds: "0.1.0" },
]

const seed = Number(process.env["BERTH_SEED"] ?? Math.floor(Math.random() * 1e9))
const random = randomFrom(seed)
const moment = () => delay(Math.round(random() * 3000))

describe.each(ORDERS)(
  `an upgrade, and a downgrade with the kinds of $kinds, seed ${seed}`,
  ({ upgrade, downgrade, kinds }) => {
    let runtime: ContainerRuntime
    let berth: RollingBerth
    let work: Workload
    let receiver: WebhookReceiver
    let followed: Promise<string>
    let session: Program
    let handedOverUsd = 0
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
      await work.submit(
        "retried",
        `${count}; [ $n -ne 1 ] || over 3; [ $n -ne 2 ] || { ${world.wait("retry")}; over 3; }`,
        {
          more: { maxRetries: 2 },
          expected: { status: "succeeded", runs: [1, 1, 1], log: "--- attempt 2 ---\n--- attempt 3 ---\n" },
        },
      )
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
      work.start(5)
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
      for (let index = 0; index < 6; index++)
        expect(await world.runs(`index-${index}`)).toMatchObject([{ launch: 1, ended: true }])
    })

    it("has work of each kind of now", { timeout: 300_000 }, async () => {
      const { world } = berth
      const lines = `n=0; until [ -e ${world.gate("talker")} ]; do n=$((n+1)); ${world.say("talker", "line $n")}; sleep 0.3; done`
      await work.submit("talker", lines)
      followed = follow(berth, "talker")
      await work.submit("warm", "true", { more: { reuse: { idleSeconds: 900, key: "warm" } } })
      await work.submit("first", "true", { more: { reuse: { idleSeconds: 900, key: "taken" } } })
      await work.submit("waits", world.wait("waits"), { more: { after: [{ job: "talker" }] } })
      await work.submit("rules", `${world.wait("rules")}; over 75`, {
        more: { retryRules: [{ exitCodes: [75], action: "newVm" }] },
        expected: { status: "failed", exitCode: 75 },
      })
      await work.submit("limited", world.wait("limited"), { more: { idleLimit: { seconds: 300 }, priority: 50 } })
      const grouped = { concurrencyGroup: { name: "db", limit: 1 } }
      await work.submit("member", world.wait("member"), { more: grouped })
      await berth.until("member", "running")
      await work.submit("next-member", "true", { more: grouped })
      const inContainer = { image: runtime.image, cloud: ["aws"], region: [DOCKER_REGION] }
      await berth.rest("POST", "/jobs", {
        ...{ ...inContainer, name: "kept", command: ["sh", "-c", "exit 5"], debug: { keepSeconds: 1800 } },
      })
      await berth.rest("POST", "/jobs", { ...inContainer, name: "entered", command: ["sleep", "3600"] })
      const machine = await berth.rest("POST", "/machines", { name: "gpu-1" })
      host = berth.startHost((machine.body["join"] as { token: string }).token)
      await eventually(async () =>
        expect((await berth.record("gpu-1", "machines"))["status"], host?.output.slice(-2000)).toBe("ready"),
      )
      await work.submit("own", world.wait("own"), { more: { cloud: ["own"], region: [] } })
      await eventually(async () => expect(await agentOf("first")).toHaveProperty("idleTime"))
      await work.submit("taken", world.wait("taken"), {
        more: { reuse: { idleSeconds: 900, key: "taken" } },
        // See below: the operator of 0.1.0 loses its VM.
        expected: { status: "succeeded", runs: [1, 2], stopped: 1 },
      })
      for (const name of ["talker", "own", "taken", "limited", "rules", "entered"]) await berth.until(name, "running")
      await berth.until("kept", "failed")
      expect((await berth.launchesOf("taken"))[0]?.spec.takesOver).toBe(
        (await berth.launchesOf("first"))[0]?.metadata.name,
      )
      await eventually(async () => expect(await agentOf("warm")).toHaveProperty("idleTime"))
      expect(await berth.record("waits")).toMatchObject({ status: "queued", reason: "WaitsForJob" })
      expect(await berth.record("next-member")).toMatchObject({ status: "queued", reason: "GroupFull" })
      session = berth.command("exec", "entered", "--", "sh", "-c", "echo inside; cat")
      await session.printed(/inside/)
    })

    it("loses nothing in the downgrade, except what the docs say", { timeout: 600_000 }, async () => {
      const { world } = berth
      work.start(5)
      const [handedOver] = await berth.launchesOf("first")
      handedOverUsd = handedOver?.status?.costUsd ?? 0
      expect(handedOverUsd).toBeGreaterThan(0)
      const [listed = ""] = commandsIn("docs/versions.md", "Downgrade")
      expect(
        (await berth.shell(listed))
          .trim()
          .split("\n")
          .map((line) => line.split(" ").slice(0, 3).join(" "))
          .sort(),
      ).toEqual([...["Job acme member", "Job acme next-member", "Job acme waits"], ...["VM acme own", "VM acme taken"]])
      await berth.applyManifests("0.1.0", kinds)
      await roll(downgrade, "0.1.0", async () => {
        await work.submit("later", world.wait("later"))
        // Programs of now write nothing that kinds of 0.1.0 would drop, so VMs wait for a façade of 0.1.0.
        if (kinds === "now") await berth.until("later", "running")
      })
      // An idle VM and a kept one are of no use to 0.1.0: it ends them, and pays them.
      for (const name of ["warm", "kept", "first"]) await overOf(name)
      // What waits for a job or for its group starts at once.
      for (const name of ["waits", "next-member"])
        await eventually(async () => expect(await world.runs(name)).toHaveLength(1))
      expect(await world.runs("talker")).toMatchObject([{ ended: false }])
      expect(await world.runs("member")).toMatchObject([{ ended: false }])
      // A VM that was taken over is not found by the name of its job's Launch: the job counts it as lost, and runs again.
      await eventually(async () => expect(await world.runs("taken")).toHaveLength(2))
      // A session ends with its façade; the container runs on.
      expect(await session.ended).not.toMatchObject({ code: 0 })
      await berth.until("entered", "running")
      await berth.rest("POST", "/jobs/entered/cancel")
      await world.open("talker", "waits", "rules", "limited", "member", "own", "taken", "later")
      await work.stop()
      await work.verify()
      expect(await followed).toBe(await world.said("talker"))
      await berth.until("entered", "cancelled")
      await eventually(async () => expect(berth.running).toEqual([]))
      // 0.1.0 can't see own machines: the end of such a run is written, and no more.
      expect((await berth.launchesOf("own")).map(({ status }) => status?.phase)).toEqual(["running"])
    })

    it("loses nothing in another upgrade", { timeout: 600_000 }, async () => {
      const { world } = berth
      work.start(5)
      await berth.applyManifests("now")
      await roll(upgrade, "now", async () => undefined)
      await overOf("own")
      await eventually(async () => expect((await berth.record("gpu-1", "machines"))["status"]).toBe("ready"))
      await work.submit("own-again", "true", { more: { cloud: ["own"], region: [] } })
      await work.stop()
      await work.verify()
      expect(await world.runs("own")).toHaveLength(1)
    })

    it("has one VM for each Launch, and each has ended and is paid once", { timeout: 300_000 }, async () => {
      await berth.rest("PATCH", "/cronjobs/tick", { is_active: false })
      await berth.untilOver()
      await eventually(async () => expect(berth.running).toEqual([]))
      const launches = await berth.launches()
      const instances = await berth.instances()
      expect(instances.filter((instance) => !isGone(instance))).toEqual([])
      const names = instances.map((instance) => launchOf(instance))
      expect(names).toHaveLength(new Set(names).size)
      const inClouds = launches.filter(({ spec }) => spec.offer.cloud !== "own")
      const known = new Set(inClouds.flatMap(({ status }) => status?.vm?.id ?? []))
      expect(instances.map(({ InstanceId }) => InstanceId).sort()).toEqual([...known].sort())
      // 0.1.0 bills the VM that was handed over to its first job again, to its end. The Statement has the first bill.
      const paid = launches
        .map(({ spec, status }) => (spec.job.name === "first" ? handedOverUsd : (status?.costUsd ?? 0)))
        .reduce((sum, usd) => sum + usd, 0)
      await eventually(async () => {
        const { items } = await berth.client.list(STATEMENTS, { namespace: SYSTEM_NAMESPACE })
        expect(items.reduce((sum, { status }) => sum + (status?.spentUsd ?? 0), 0)).toBeCloseTo(paid, 5)
      })
    })

    it("has sent the receiver each end, and created a job for each tick once", async () => {
      const jobs = (await berth.jobs()).filter(({ metadata }) => metadata.name !== undefined)
      const idsOf = new Map<string, Set<string>>()
      for (const { id, body } of receiver.accepted) {
        const { data } = JSON.parse(body) as { data: { id: string } }
        idsOf.set(data.id, (idsOf.get(data.id) ?? new Set()).add(id))
      }
      await eventually(() => {
        for (const { metadata } of jobs)
          expect([metadata.name, idsOf.get(metadata.uid)?.size]).toEqual([metadata.name, 1])
      })
      const ticks = jobs.flatMap(({ metadata }) => (/^tick-/.test(metadata.name) ? [metadata.name] : [])).sort()
      const minutes = ticks.map(
        (name) => Date.parse(name.replace(/^tick-(\d{4})(\d\d)(\d\d)t(\d\d)(\d\d)00z$/, "$1-$2-$3T$4:$5Z")) / 60_000,
      )
      expect(minutes).toEqual(minutes.map((_, index) => (minutes[0] ?? 0) + index))
      expect(await berth.world.runs("tick")).toHaveLength(ticks.length)
    })

    async function agentOf(job: string) {
      return (await berth.launchesOf(job))[0]?.status?.agent
    }

    /** Resolves when all VMs of a job are deleted and paid. */
    async function overOf(job: string): Promise<void> {
      await eventually(async () => {
        for (const { status } of await berth.launchesOf(job))
          expect(status, await berth.situation()).toMatchObject({ phase: "terminated", costUsd: expect.any(Number) })
      })
    }
  },
)
