import { mkdir, mkdtemp, rm, symlink } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { text } from "node:stream/consumers"
import { KubeConfig } from "@kubernetes/client-node"
import { describe, expect, test } from "vitest"
import type { ControlPlane } from "../../dev/controlplane/control-plane.ts"
import { installKinds } from "../../dev/install.ts"
import { FileLogStore } from "../../src/api/logs/file-store.ts"
import type { Clouds } from "../../src/clouds/cloud.ts"
import { inParallel } from "../../src/core/apis/in-parallel.ts"
import { isTerminal } from "../../src/core/apis/job.ts"
import { KubeClient } from "../../src/core/kube/client.ts"
import { CONFIG_MAPS } from "../../src/core/kube/core.ts"
import { KubeError } from "../../src/core/kube/errors.ts"
import { JOBS } from "../../src/core/resources.ts"
import { startPrivateControlPlane } from "../control-plane.ts"
import { ControllerHarness, controllerHarnesses } from "../harness/controllers.ts"
import { eventually } from "../harness/eventually.ts"
import { EVERYTHING } from "./effort.ts"
import { startSmallControlPlane } from "./pressure-etcd.ts"
import { suiteTally } from "./suite-tally.ts"
import type { Violation } from "./tally.ts"

const tally = suiteTally("pressure", "Pressure: each line counts jobs")
const newHarness = controllerHarnesses()

/** Number of queued jobs during restarts of the API server. */
const QUEUED = EVERYTHING ? 10_000 : 40
/** Number of parallel requests that submit them. */
const SUBMITTERS = 64
const RESTARTS = EVERYTHING ? 5 : 2
const PATIENCE_SECONDS = EVERYTHING ? 3000 : 600

function clientOf(controlPlane: ControlPlane): KubeClient {
  const config = new KubeConfig()
  config.loadFromFile(controlPlane.kubeconfigPath)
  return new KubeClient(config)
}

/** Returns a harness on an API server of its own. */
async function harnessOn(controlPlane: ControlPlane): Promise<ControllerHarness> {
  const client = clientOf(controlPlane)
  await installKinds(client, AbortSignal.timeout(60_000))
  return new ControllerHarness(client).open()
}

/** Repeats the call until the API server answers. */
async function insisting<T>(call: () => Promise<T>): Promise<T> {
  return eventually(async () => {
    try {
      return await call()
    } catch (error) {
      if (error instanceof KubeError && error.reason === "AlreadyExists") return undefined as T
      throw error
    }
  }, 300)
}

/** Returns the violations on a harness's jobs. Each should have succeeded in one VM. */
async function violationsOf(harness: ControllerHarness): Promise<Violation[]> {
  const { items } = await harness.client.list(JOBS, { namespace: harness.namespace })
  const vmsOf = (uid: string) => harness.cloud.vms.filter(({ vm }) => vm.launch.startsWith(uid)).length
  const violations = items.flatMap(({ metadata, status }): (Violation | false)[] => [
    !isTerminal(status?.phase) && "stuck",
    isTerminal(status?.phase) && status?.phase !== "succeeded" && "lost",
    vmsOf(metadata.uid) > 1 && "duplicates",
  ])
  return [...violations, ...harness.cloud.alive.map(() => "leaks" as const)].filter((violation) => violation !== false)
}

describe("an API server under load", () => {
  test(
    `loses no job in ${RESTARTS} restarts while ${QUEUED} jobs wait and run`,
    async () => {
      const controlPlane = await startPrivateControlPlane()
      const harness = await harnessOn(controlPlane)
      const operator = harness.operator({ observeSeconds: EVERYTHING ? 15 : 0.05 })
      const end = new AbortController()
      const agents = harness.agents(end.signal)
      const submissions = Array.from({ length: QUEUED }, (_, n) => () => insisting(() => harness.submit(`job-${n}`)))
      const submitted = inParallel(submissions, SUBMITTERS, (task) => task())
      let restarts = 0
      const step = Math.ceil(QUEUED / (RESTARTS + 1))
      await eventually(async () => {
        const settled = { namespace: harness.namespace, fieldSelector: "status.settled=true" }
        const done = (await harness.client.list(JOBS, settled)).items.length
        if (restarts < RESTARTS && done >= restarts * step) {
          restarts++
          console.info(`${done} of ${QUEUED} jobs are done: restart ${restarts} of the API server`)
          await controlPlane.restartApiServer()
        }
        expect([restarts, done]).toEqual([RESTARTS, QUEUED])
      }, PATIENCE_SECONDS)
      await submitted
      const violations = await violationsOf(harness)
      tally.count({ faults: `${RESTARTS} restarts of the API server` }, violations, QUEUED)
      expect(violations).toEqual([])
      end.abort()
      await Promise.all([agents, operator.stop()])
      await harness.client.close()
      await controlPlane.stop()
    },
    (PATIENCE_SECONDS + 300) * 1000,
  )
})

describe("an etcd at its size limit", () => {
  test("keeps all VMs at the limit, and continues when there is space", async () => {
    const small = await startSmallControlPlane(24 * 1024 * 1024)
    const harness = await harnessOn(small.controlPlane)
    let looks = 0
    const clouds: Clouds = {
      open: async (account) => {
        looks++
        return await harness.cloud.open(account)
      },
    }
    harness.operator({ clients: { client: harness.client, clouds, fence: () => undefined } })
    const names = ["a", "b", "c"]
    for (const name of names) await harness.submit(name)
    await eventually(async () => {
      await harness.agentsStep("run")
      for (const name of names) expect((await harness.job(name)).status?.phase).toBe("running")
    }, 120)
    const before = harness.cloud.alive.map(({ id }) => id)
    const filled = await fill(harness)
    await expect(harness.submit("refused")).rejects.toBeInstanceOf(KubeError)
    const [first] = await harness.launches()
    await expect(harness.finish(first?.metadata.name ?? "", "Succeeded")).rejects.toBeInstanceOf(KubeError)
    // The loops continue to look and find nothing to terminate.
    const looked = looks
    harness.clock.advance(120)
    await eventually(() => expect(looks).toBeGreaterThan(looked + 3))
    expect(harness.cloud.alive.map(({ id }) => id)).toEqual(before)
    for (const name of filled) await harness.client.delete(CONFIG_MAPS, { namespace: harness.namespace, name })
    await small.makeRoom()
    await insisting(() => harness.submit("d"))
    await eventually(async () => {
      await harness.agentsStep()
      for (const name of [...names, "d"]) expect((await harness.job(name)).status?.cost?.actualUsd).toBeDefined()
    }, 300)
    const violations = await violationsOf(harness)
    tally.count({ faults: "etcd at its size limit" }, violations, names.length + 1)
    expect(violations).toEqual([])
    expect(harness.cloud.vms).toHaveLength(names.length + 1)
    await harness.close()
    await harness.client.close()
    await small.close()
  }, 900_000)
})

/** Writes until etcd rejects a write. Returns the names of the objects that it accepted. */
async function fill({ client, namespace }: ControllerHarness): Promise<string[]> {
  const data = { filling: "x".repeat(900_000) }
  const names: string[] = []
  for (;;) {
    const name = `filling-${names.length}`
    try {
      await client.create(CONFIG_MAPS, { metadata: { namespace, name }, data })
    } catch (error) {
      if (!(error instanceof KubeError) || !error.message.includes("space")) throw error
      return names
    }
    names.push(name)
  }
}

describe("a full disk of the log store", () => {
  test("rejects log chunks, and stores their retries in order and once when there is space", async () => {
    const folder = await mkdtemp(join(tmpdir(), "berth-test-full-"))
    const store = new FileLogStore(folder)
    const log = { job: { namespace: "team", uid: "8a6e0804-2bd0-4672-b79d-d97027f9071a" }, launch: 1 }
    const bytes = (written: string) => new TextEncoder().encode(written)
    await mkdir(join(folder, log.job.namespace, log.job.uid), { recursive: true })
    const path = join(folder, log.job.namespace, log.job.uid, "1.log")
    await symlink("/dev/full", path)
    await expect(store.append(log, 0, bytes("one "))).rejects.toThrow(/ENOSPC/)
    await rm(path)
    expect(await store.append(log, 0, bytes("one "))).toEqual({ length: 4 })
    // An agent without an answer repeats the whole chunk.
    expect(await store.append(log, 0, bytes("one two"))).toEqual({ length: 7 })
    expect(await text(store.read(log.job))).toBe("one two")
    await rm(folder, { recursive: true, force: true })
  })
})

describe("a clock that jumps", () => {
  test.each([
    ["three hours ahead", 3 * 3600],
    ["three hours back", -3 * 3600],
  ])("lets running jobs run to their end: %s", async (what, jump) => {
    const harness = await newHarness()
    harness.operator()
    const names = ["a", "b", "c"]
    for (const name of names) await harness.submit(name)
    await eventually(async () => {
      await harness.agentsStep("run")
      for (const name of names) expect((await harness.job(name)).status?.phase).toBe("running")
    })
    const before = harness.cloud.alive.map(({ id }) => id)
    const now = harness.clock.now.bind(harness.clock)
    // The wall clock jumps; the monotonic clock does not.
    harness.clock.now = () => new Date(now().getTime() + jump * 1000)
    await harness.submit("later")
    await eventually(async () => {
      await harness.agentsStep("run")
      expect((await harness.job("later")).status?.launches?.count).toBeGreaterThan(0)
    })
    expect(harness.cloud.alive.map(({ id }) => id)).toEqual(expect.arrayContaining(before))
    await eventually(async () => {
      await harness.agentsStep()
      for (const name of [...names, "later"]) expect((await harness.job(name)).status?.cost?.actualUsd).toBeDefined()
    })
    const started = new Set(names)
    const { items } = await harness.client.list(JOBS, { namespace: harness.namespace })
    const ends = items.filter(({ metadata }) => started.has(metadata.name)).map(({ status }) => status?.phase)
    const violations = ends.filter((phase) => phase !== "succeeded").map((): Violation => "killed")
    tally.count({ faults: "a clock jumps", on: what }, violations, names.length)
    expect(ends).toEqual(names.map(() => "succeeded"))
    expect(harness.cloud.alive).toEqual([])
    await harness.close()
  })
})
