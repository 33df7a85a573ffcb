import { mkdtemp, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, beforeAll, expect } from "vitest"
import { ATTEMPT_LABEL, LAUNCH_LABEL } from "../../src/agent/runtimes/docker.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import { SECRETS, type Secret } from "../../src/core/kube/core.ts"
import { missingForVolumes } from "../agent/volume-vms.ts"
import { until } from "../harness/eventually.ts"
import { GATE, gate } from "../harness/installation.ts"
import { type IsolatedHost, missingForHosts } from "../harness/isolated-host.ts"
import { containersOf } from "../harness/traces.ts"
import { missingTool, needing } from "../needing.ts"
import { leftOn, type OwnMachines, placeOf, startOwnMachines } from "./own-machines.ts"

/** Two hosts with engines of their own join a whole Berth, whose cloud takes what they have no place for. */
const hosts = needing((await missingForHosts()) ?? (await missingForVolumes()) ?? missingTool("moto"))

/** The shortest lease. */
const LEASE_SECONDS = 120

/** Price of the second machine, USD/h. The first one is free, and the cloud's cheapest costs 0.02. */
const PRICE = 0.01

let world: OwnMachines
let desk: IsolatedHost
let server: IsolatedHost

beforeAll(async () => {
  world = await startOwnMachines("own")
  desk = await world.join("desk", { lease_seconds: LEASE_SECONDS })
  server = await world.join("server", { lease_seconds: LEASE_SECONDS, hourly_price_usd: PRICE })
  for (const name of ["desk", "server"]) await world.untilMachine(name, "ready")
})
afterAll(() => world?.close())

function hostOf(place: string): IsolatedHost {
  return place === "desk" ? desk : server
}

/** Submits a job that waits for `open` in its container. */
async function submitWaiting(name: string, more: object = {}): Promise<void> {
  const script = gate(`echo $BERTH_LAUNCH began`, `echo $BERTH_LAUNCH done`)
  await world.rest("POST", "/jobs", { name, image: world.berth.runtime.image, command: ["sh", "-c", script], ...more })
}

/** Resolves with a job's Launch of this number once its container runs. */
async function started(job: string, number = 1): Promise<StoredLaunch> {
  const launch = () => world.berth.launchesOf(job)[number - 1]
  await world.berth.untilLaunches(
    `container ${number} of ${job}`,
    () => launch()?.status?.agent?.startTime !== undefined,
  )
  return launch() as StoredLaunch
}

/** Lets the container of a Launch continue. */
async function open(launch: StoredLaunch): Promise<void> {
  const place = placeOf(launch)
  if (place === "local") return await world.berth.openGate(launch.metadata.name)
  const { docker } = hostOf(place)
  const label = [`${LAUNCH_LABEL}=${launch.metadata.name}`, ATTEMPT_LABEL]
  const [found] = await docker.listContainers({ filters: { label } })
  // The engine can't put a file into a container with a bucket.
  const opening = await docker.getContainer(found?.Id ?? "").exec({ Cmd: ["sh", "-c", `: > ${GATE}`] })
  await opening.start({})
}

/** Expects that a job succeeded in its first container. */
async function expectOnce(job: string): Promise<void> {
  await world.berth.reached("succeeded", job)
  expect(world.berth.job(job).status?.launches).toMatchObject({ count: 1 })
  expect(await world.log(job)).toBe("1 began\n1 done\n")
}

hosts.describe("two machines of a project", { timeout: 900_000 }, () => {
  hosts.it("run a job with local code, a secret and a bucket, and keep nothing of it", async () => {
    const code = await mkdtemp(join(tmpdir(), "berth-code-"))
    await writeFile(join(code, "train.sh"), 'echo "$TOKEN $*" > /out/result; cat /out/result\n')
    const metadata = { name: "keys", namespace: world.berth.namespace }
    const secret = { metadata, type: "berth.dev/env", stringData: { token: "s3cret" } }
    await world.berth.client.create(SECRETS, secret as unknown as Secret)
    await world.createBucket("results")
    const image = ["--image", world.berth.runtime.image, "--entrypoint", "sh", "--workdir", "."]
    const data = ["--secret", "TOKEN=keys:token", "--volume", "results:/out"]
    const job = ["run", "--name", "train", "--cloud", "own", ...image, ...data, "--yes", "--", "train.sh", "--fast"]
    const ended = await world.command(code, ...job)
    expect(ended, ended.err).toMatchObject({ code: 0, out: "s3cret --fast\n" })
    await rm(code, { recursive: true })
    expect(await world.object("results", "result")).toBe("s3cret --fast\n")
    const [launch, ...more] = world.berth.launchesOf("train")
    expect([launch && placeOf(launch), more]).toEqual(["desk", []])
    await world.untilMachine("desk", "ready")
    expect(await leftOn(desk)).toEqual([])
  })

  hosts.it("share an array: each task runs once, and both have some", async () => {
    const tasks = 10
    const script = 'echo "task $BERTH_ARRAY_INDEX"; sleep 1'
    const image = ["--image", world.berth.runtime.image, "--entrypoint", "sh"]
    const array = ["--array", `${tasks}`, "--parallelism", `${tasks}`, "--cloud", "own"]
    const ended = await world.command(
      tmpdir(),
      "run",
      "--name",
      "sweep",
      ...image,
      ...array,
      "--yes",
      "--",
      "-c",
      script,
    )
    expect(ended, ended.err).toMatchObject({ code: 0, err: expect.stringContaining(`${tasks} succeeded`) })
    const names = Array.from({ length: tasks }, (_, index) => `sweep-${index}`)
    expect(await Promise.all(names.map((name) => world.log(name)))).toEqual(names.map((_, index) => `task ${index}\n`))
    const launches = names.flatMap((name) => world.berth.launchesOf(name))
    expect(launches).toHaveLength(tasks)
    expect(launches.flatMap(({ status }) => status?.phase ?? [])).not.toContain("refused")
    expect(new Set(launches.map(placeOf))).toEqual(new Set(["desk", "server"]))
  })

  hosts.it("leave a job to the cloud if both are busy, and take the next one", async () => {
    const places: string[] = []
    for (const name of ["first", "second", "third"]) {
      await submitWaiting(name)
      places.push(placeOf(await started(name)))
    }
    expect(places).toEqual(["desk", "server", "local"])
    for (const name of ["first", "second", "third"]) {
      await open(await started(name))
      await expectOnce(name)
    }
    await world.untilMachine("desk", "ready")
    await submitWaiting("fourth")
    const launch = await started("fourth")
    expect(placeOf(launch)).toBe("desk")
    await open(launch)
    await expectOnce("fourth")
  })

  hosts.it("run a job once although the machine's agent is killed meanwhile", async () => {
    await submitWaiting("survivor", { cloud: ["own"] })
    const launch = await started("survivor")
    const host = hostOf(placeOf(launch))
    await host.killAgent()
    world.restartAgent(host)
    await open(launch)
    await expectOnce("survivor")
  })

  hosts.it("are free again after a power failure in a job with a bucket, which runs once more", async () => {
    await world.createBucket("more")
    const volumes = { out: { bucket: "more", mountPath: "/out" } }
    await submitWaiting("cut", { cloud: ["own"], volumes })
    const host = hostOf(placeOf(await started("cut")))
    await host.cutPower()
    await host.boot()
    world.restartAgent(host)
    await open(await started("cut", 2))
    await world.berth.reached("succeeded", "cut")
    expect(world.berth.job("cut").status?.launches).toMatchObject({ count: 2, lost: 1 })
    expect((await world.log("cut")).match(/\d (began|done)/g)).toEqual(["1 began", "2 began", "2 done"])
    for (const name of ["desk", "server"]) await world.untilMachine(name, "ready")
    expect(await leftOn(host)).toEqual([])
  })

  hosts.it("have a job once more elsewhere, and work again, after one has no network and one no power", async () => {
    const names = ["on-desk", "on-server"]
    const first: StoredLaunch[] = []
    for (const name of names) {
      await submitWaiting(name)
      first.push(await started(name))
    }
    expect(first.map(placeOf)).toEqual(["desk", "server"])
    desk.cable.pull()
    const pulledAt = performance.now()
    await server.cutPower()
    const onDesk = () =>
      containersOf(
        desk.dockerSocket,
        first.map(({ metadata }) => metadata.name),
      )
    expect(await onDesk()).toHaveLength(1)
    await until("the container has ended", async () => (await onDesk()).length === 0, 2 * LEASE_SECONDS)
    expect((performance.now() - pulledAt) / 1000).toBeLessThan(LEASE_SECONDS)
    // Until a minute after the lease, no other machine gets the jobs.
    expect(names.flatMap((name) => world.berth.launchesOf(name))).toHaveLength(2)
    for (const name of names) {
      const again = () => world.berth.launchesOf(name).length > 1
      await until(`${name} has another machine`, again, 2 * LEASE_SECONDS)
      const launch = await started(name, 2)
      expect(placeOf(launch)).toBe("local")
      await open(launch)
      await world.berth.reached("succeeded", name)
      expect(world.berth.job(name).status?.launches).toMatchObject({ count: 2, lost: 1 })
      expect((await world.log(name)).match(/\d (began|done)/g)).toEqual(["1 began", "2 began", "2 done"])
    }
    desk.cable.plug()
    await server.boot()
    world.restartAgent(server)
    for (const [name, host] of [
      ["desk", desk],
      ["server", server],
    ] as const) {
      await world.untilMachine(name, "ready")
      expect(await leftOn(host)).toEqual([])
    }
    for (const name of ["back-1", "back-2"]) await submitWaiting(name, { cloud: ["own"] })
    const back = await Promise.all(["back-1", "back-2"].map((name) => started(name)))
    expect(back.map(placeOf).sort()).toEqual(["desk", "server"])
    await Promise.all(back.map(open))
    for (const name of ["back-1", "back-2"]) await expectOnce(name)
  })

  hosts.it("cost their owner's price for the time of each job", async () => {
    await world.rest("PATCH", "/machines/desk", { unschedulable: true })
    await world.rest("PATCH", "/machines/server", { hourly_price_usd: 36 })
    await submitWaiting("dear", { cloud: ["own"] })
    const launch = await started("dear")
    expect([placeOf(launch), launch.spec.offer.hourlyPriceUsd]).toEqual(["server", 36])
    await open(launch)
    await expectOnce("dear")
    await world.berth.allOver()
    const { actual_cost } = await world.rest<{ actual_cost: number }>("GET", "/jobs/dear")
    // 0.01 USD/s
    expect(actual_cost).toBeGreaterThan(0.005)
    const onMachines = world.berth.launches.store.list().filter(({ spec }) => spec.offer.cloud === "own")
    for (const { metadata, spec, status } of onMachines) {
      const { createTime = "", terminationTime = "" } = status?.vm ?? {}
      // Costs are rounded to a millionth of a dollar.
      const seconds = (Date.parse(terminationTime) - Date.parse(createTime)) / 1000
      expect(status?.costUsd, metadata.name).toBeCloseTo((spec.offer.hourlyPriceUsd * seconds) / 3600, 6)
    }
    expect(new Set(onMachines.map(({ spec }) => spec.offer.hourlyPriceUsd))).toEqual(new Set([0, PRICE, 36]))
  })
})
