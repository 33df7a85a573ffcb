import { mkdir, mkdtemp, rm, symlink } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { text } from "node:stream/consumers"
import { KubeConfig } from "@kubernetes/client-node"
import { afterAll, describe, expect, test } from "vitest"
import type { ControlPlane } from "../../dev/controlplane/control-plane.ts"
import { installKinds } from "../../dev/install.ts"
import { isTerminal } from "../../src/apis/job.ts"
import type { Clouds } from "../../src/cloud/provider.ts"
import { KubeClient } from "../../src/kube/client.ts"
import { CONFIG_MAPS } from "../../src/kube/core.ts"
import { KubeError } from "../../src/kube/errors.ts"
import { FileLogStore } from "../../src/logs/file-store.ts"
import { eventually } from "../cloud/eventually.ts"
import { startPrivateControlPlane } from "../control-plane.ts"
import { JOBS, Stage, stages } from "../controllers/harness.ts"
import { inParallel } from "../in-parallel.ts"
import { EVERYTHING } from "./effort.ts"
import { startSmallControlPlane } from "./pressure-etcd.ts"
import { type Harm, Tally } from "./tally.ts"

const tally = new Tally("pressure", "Pressure: each line counts jobs")
afterAll(() => tally.close())
const newStage = stages()

/** Jobs that wait when the API server is restarted under them. */
const QUEUED = EVERYTHING ? 10_000 : 40
/** Requests by which they come at the same time. */
const SUBMITTERS = 64
const RESTARTS = EVERYTHING ? 5 : 2
const PATIENCE_SECONDS = EVERYTHING ? 3000 : 600

function clientOf(controlPlane: ControlPlane): KubeClient {
  const config = new KubeConfig()
  config.loadFromFile(controlPlane.kubeconfigPath)
  return new KubeClient(config)
}

/** A stage on an API server of its own. */
async function stageOn(controlPlane: ControlPlane): Promise<Stage> {
  const client = clientOf(controlPlane)
  await installKinds(client, AbortSignal.timeout(60_000))
  return new Stage(client).open()
}

/** Calls until the API server answers. */
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

/** What became of a stage's jobs, all of which should have succeeded by one VM each. */
async function harmsOf(stage: Stage): Promise<Harm[]> {
  const { items } = await stage.client.list(JOBS, { namespace: stage.namespace })
  const vmsOf = (uid: string) => stage.cloud.vms.filter(({ vm }) => vm.launch.startsWith(uid)).length
  const harms = items.flatMap(({ metadata, status }): (Harm | false)[] => [
    !isTerminal(status?.phase) && "stuck",
    isTerminal(status?.phase) && status?.phase !== "succeeded" && "lost",
    vmsOf(metadata.uid) > 1 && "duplicates",
  ])
  return [...harms, ...stage.cloud.alive.map(() => "leaks" as const)].filter((harm) => harm !== false)
}

describe("an API server under load", () => {
  test(
    `is restarted ${RESTARTS} times while ${QUEUED} jobs wait and run`,
    async () => {
      const controlPlane = await startPrivateControlPlane()
      const stage = await stageOn(controlPlane)
      const operator = stage.operator({ observeSeconds: EVERYTHING ? 15 : 0.05 })
      const end = new AbortController()
      const agents = stage.agents(end.signal)
      const submissions = Array.from({ length: QUEUED }, (_, n) => () => insisting(() => stage.submit(`job-${n}`)))
      const submitted = inParallel(submissions, SUBMITTERS)
      let restarts = 0
      const step = Math.ceil(QUEUED / (RESTARTS + 1))
      await eventually(async () => {
        const done = operator.jobs.list().filter(({ status }) => status?.cost?.actualUsd !== undefined).length
        if (restarts < RESTARTS && done >= restarts * step) {
          restarts++
          console.info(`${done} of ${QUEUED} jobs are done: restart ${restarts} of the API server`)
          await controlPlane.restartApiServer()
        }
        expect([restarts, done]).toEqual([RESTARTS, QUEUED])
      }, PATIENCE_SECONDS)
      await submitted
      const harms = await harmsOf(stage)
      tally.count({ faults: `${RESTARTS} restarts of the API server` }, harms, QUEUED)
      expect(harms).toEqual([])
      end.abort()
      await Promise.all([agents, operator.stop()])
      await stage.client.close()
      await controlPlane.stop()
    },
    (PATIENCE_SECONDS + 300) * 1000,
  )
})

describe("an etcd that takes nothing more", () => {
  test("ends no VM; when there is room again, all goes on where it was", async () => {
    const small = await startSmallControlPlane(24 * 1024 * 1024)
    const stage = await stageOn(small.controlPlane)
    let looks = 0
    const clouds: Clouds = {
      open: async (account) => {
        looks++
        return await stage.cloud.open(account)
      },
    }
    stage.operator({ membrane: { client: stage.client, clouds, fence: () => undefined } })
    const names = ["a", "b", "c"]
    for (const name of names) await stage.submit(name)
    await eventually(async () => {
      await stage.agentsStep("run")
      for (const name of names) expect((await stage.job(name)).status?.phase).toBe("running")
    }, 120)
    const before = stage.cloud.alive.map(({ id }) => id)
    const filled = await fill(stage)
    await expect(stage.submit("refused")).rejects.toBeInstanceOf(KubeError)
    const [first] = await stage.launches()
    await expect(stage.finish(first?.metadata.name ?? "", "Succeeded")).rejects.toBeInstanceOf(KubeError)
    // The loops look on, and find nothing that they should end.
    const looked = looks
    stage.clock.advance(120)
    await eventually(() => expect(looks).toBeGreaterThan(looked + 3))
    expect(stage.cloud.alive.map(({ id }) => id)).toEqual(before)
    for (const name of filled) await stage.client.delete(CONFIG_MAPS, { namespace: stage.namespace, name })
    await small.makeRoom()
    await insisting(() => stage.submit("d"))
    await eventually(async () => {
      await stage.agentsStep()
      for (const name of [...names, "d"]) expect((await stage.job(name)).status?.cost?.actualUsd).toBeDefined()
    }, 300)
    const harms = await harmsOf(stage)
    tally.count({ faults: "etcd at its size limit" }, harms, names.length + 1)
    expect(harms).toEqual([])
    expect(stage.cloud.vms).toHaveLength(names.length + 1)
    await stage.close()
    await stage.client.close()
    await small.close()
  }, 900_000)
})

/** Writes until nothing more is taken; returns the names of what was. */
async function fill({ client, namespace }: Stage): Promise<string[]> {
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

describe("a disk that is full", () => {
  test("takes no log; what comes again is there once it has room, in order and once", async () => {
    const folder = await mkdtemp(join(tmpdir(), "berth-test-full-"))
    const store = new FileLogStore(folder)
    const log = { job: { namespace: "team", uid: "8a6e0804-2bd0-4672-b79d-d97027f9071a" }, launch: 1 }
    const bytes = (written: string) => new TextEncoder().encode(written)
    await mkdir(join(folder, log.job.namespace, log.job.uid), { recursive: true })
    const path = join(folder, log.job.namespace, log.job.uid, "1.log")
    await symlink("/dev/full", path)
    await expect(store.append(log, 0, bytes("one "))).rejects.toThrow(/ENOSPC/)
    await rm(path)
    expect(await store.append(log, 0, bytes("one "))).toEqual({ length: 4, full: false })
    // Sent again as a whole by an agent that had no answer.
    expect(await store.append(log, 0, bytes("one two"))).toEqual({ length: 7, full: false })
    expect(await text(store.read(log.job))).toBe("one two")
    await rm(folder, { recursive: true, force: true })
  })
})

describe("a clock that jumps", () => {
  test.each([
    ["three hours ahead", 3 * 3600],
    ["three hours back", -3 * 3600],
  ])("%s: what runs, runs on to its end", async (what, jump) => {
    const stage = await newStage()
    stage.operator()
    const names = ["a", "b", "c"]
    for (const name of names) await stage.submit(name)
    await eventually(async () => {
      await stage.agentsStep("run")
      for (const name of names) expect((await stage.job(name)).status?.phase).toBe("running")
    })
    const before = stage.cloud.alive.map(({ id }) => id)
    const now = stage.clock.now.bind(stage.clock)
    // The calendar jumps; time that is measured goes on.
    stage.clock.now = () => new Date(now().getTime() + jump * 1000)
    await stage.submit("later")
    await eventually(async () => {
      await stage.agentsStep("run")
      expect((await stage.job("later")).status?.launches?.count).toBeGreaterThan(0)
    })
    expect(stage.cloud.alive.map(({ id }) => id)).toEqual(expect.arrayContaining(before))
    await eventually(async () => {
      await stage.agentsStep()
      for (const name of [...names, "later"]) expect((await stage.job(name)).status?.cost?.actualUsd).toBeDefined()
    })
    const started = new Set(names)
    const { items } = await stage.client.list(JOBS, { namespace: stage.namespace })
    const ends = items.filter(({ metadata }) => started.has(metadata.name)).map(({ status }) => status?.phase)
    const harms = ends.filter((phase) => phase !== "succeeded").map((): Harm => "killed")
    tally.count({ faults: "a clock jumps", on: what }, harms, names.length)
    expect(ends).toEqual(names.map(() => "succeeded"))
    expect(stage.cloud.alive).toEqual([])
    await stage.close()
  })
})
