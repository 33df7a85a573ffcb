import { type ChildProcess, spawn } from "node:child_process"
import { once } from "node:events"
import { mkdir, mkdtemp, readdir, readFile, rm, utimes, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { createInterface } from "node:readline"
import { Readable } from "node:stream"
import { text } from "node:stream/consumers"
import { setTimeout as sleep } from "node:timers/promises"
import Docker from "dockerode"
import tar from "tar-stream"
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, onTestFinished, vi } from "vitest"
import { createFolder } from "../../dev/local-cloud/folder.ts"
import { LocalCloud, type LocalCloudOptions, localClouds } from "../../dev/local-cloud/local.ts"
import { localOffers } from "../../dev/local-cloud/offers.ts"
import { isAlive, type ProcessIdentity, parseIdentity, readProcessTable } from "../../dev/local-cloud/processes.ts"
import type { LaunchSpec, Vm } from "../../src/clouds/cloud.ts"
import { type Clock, systemClock } from "../../src/core/apis/clock.ts"
import {
  type CloudError,
  CredentialsError,
  InvalidRequestError,
  TransientError,
} from "../../src/core/outbound/errors.ts"
import { missingForContainers } from "../agent/images.ts"
import { eventually } from "../harness/eventually.ts"
import { needing } from "../needing.ts"
import { type CloudUnderTest, describeCloud } from "./conformance.ts"

const AGENT = [process.execPath, join(import.meta.dirname, "test-agent.mjs")]
/** Statically linked, so that an image needs no other file. */
const BUSYBOX = "/bin/busybox"
const OPERATOR = join(import.meta.dirname, "launch-many.ts")
/** Program that lists the VMs of a folder. */
const LIST = join(import.meta.dirname, "list-local.ts")
const [offer] = localOffers()
if (offer === undefined) throw new Error("the local cloud has no offer")

const fail = (error: Error) => {
  throw error
}

function openAt(dataDir: string, options: Partial<LocalCloudOptions> = {}): LocalCloud {
  return new LocalCloud({
    dataDir,
    agentCommand: AGENT,
    region: "local",
    clock: systemClock,
    onError: fail,
    ...options,
  })
}

/** Returns the pids that a test agent recorded at each of its starts. */
async function bootsOf(dataDir: string, launch: string): Promise<number[]> {
  const file = join(dataDir, launch, "disk", "boots")
  const text = await eventually(async () => {
    const written = await readFile(file, "utf8")
    // The file exists before its first line is complete.
    if (!written.endsWith("\n")) throw new Error(`${file} has no line yet`)
    return written
  })
  return text.split("\n").filter(Boolean).map(Number)
}

describeCloud("local", async (): Promise<CloudUnderTest> => {
  const dataDir = await mkdtemp(join(tmpdir(), "berth-conformance-"))
  const opened: LocalCloud[] = []
  return {
    offer,
    userData: "{}",
    async open() {
      const cloud = openAt(dataDir)
      opened.push(cloud)
      return cloud
    },
    countBoots: async (launch) => (await bootsOf(dataDir, launch)).length,
    async powerOff(vm) {
      const [pid] = await bootsOf(dataDir, vm.launch)
      process.kill(pid ?? Number.NaN, "SIGKILL")
    },
    async close() {
      await Promise.all(opened.map((cloud) => cloud.close()))
      await rm(dataDir, { recursive: true })
    },
  }
})

describe("local cloud", () => {
  let dataDir: string
  let cloud: LocalCloud
  let names = 0
  /** Seconds by which the cloud's calendar is ahead. */
  let ahead = 0
  /** Seconds by which its monotonic clock is. */
  let passed = 0
  const clock: Clock = {
    ...systemClock,
    now: () => new Date(Date.now() + ahead * 1000),
    monotonic: () => systemClock.monotonic() + passed,
  }

  beforeEach(async () => {
    ahead = 0
    passed = 0
    dataDir = await mkdtemp(join(tmpdir(), "berth-local-"))
    cloud = openAt(dataDir, { clock })
  })
  afterEach(async () => {
    await cloud.close()
    const last = openAt(dataDir)
    for (const vm of await last.list({ installation: "i", region: "local" })) await last.terminate(vm)
    await last.close()
    const final = openAt(dataDir, { clock })
    await eventually(async () => {
      passed += 15
      const vms = await final.list({ installation: "i", region: "local" })
      expect(vms.filter((vm) => vm.state !== "terminated")).toEqual([])
    })
    for (const name of await readdir(dataDir)) {
      const boots = await readFile(disk(name, "boots"), "utf8").catch(() => "")
      expect(boots.split("\n").filter(Boolean).length, `boots of ${name}`).toBeLessThanOrEqual(1)
    }
    await rm(dataDir, { recursive: true })
  })

  const spec = (behaviour: object = {}, overrides: Partial<LaunchSpec> = {}): LaunchSpec => ({
    name: `test-${names++}`,
    installation: "i",
    tags: {},
    offer,
    userData: JSON.stringify(behaviour),
    lifetimeSeconds: 3600,
    ...overrides,
  })
  const find = async (launch: string, through = cloud): Promise<Vm | undefined> =>
    (await through.list({ installation: "i", region: "local" })).find((vm) => vm.launch === launch)
  const inState = (launch: string, state: Vm["state"], through = cloud) =>
    eventually(async () => {
      const vm = await find(launch, through)
      expect(vm?.state).toBe(state)
      return vm as Vm
    })
  const disk = (launch: string, file: string) => join(dataDir, launch, "disk", file)
  const read = (launch: string, file: string) => eventually(() => readFile(disk(launch, file), "utf8"))
  const identity = async (launch: string) =>
    parseIdentity(await readFile(join(dataDir, launch, "process"), "utf8")) as ProcessIdentity
  const up = async (asked: LaunchSpec): Promise<Vm> => {
    const vm = await cloud.launch(asked)
    await read(asked.name, "boots")
    return vm
  }
  const childrenOf = async (launch: string) => JSON.parse(await read(launch, "children.json")) as number[]
  const running = async (pids: number[]) => {
    const table = readProcessTable()
    return pids.filter((pid) => table.has(pid))
  }
  const operator = (specs: LaunchSpec[]): ChildProcess =>
    spawn(process.execPath, [OPERATOR, JSON.stringify({ dataDir, agentCommand: AGENT, specs })], {
      stdio: ["ignore", "pipe", "inherit"],
    })
  const firstLine = async (child: ChildProcess) => {
    if (child.stdout) await once(createInterface({ input: child.stdout }), "line")
  }

  describe("launch", () => {
    it("starts one agent when two processes launch the same VMs at once", async () => {
      const specs = Array.from({ length: 5 }, () => spec())
      const operators = [operator(specs), operator(specs)]
      const codes = await Promise.all(operators.map(async (child) => (await once(child, "exit"))[0] as number))
      expect(codes).toEqual([0, 0])
      for (const { name } of specs) {
        await inState(name, "running")
        expect(await bootsOf(dataDir, name)).toHaveLength(1)
        expect(await bootsOf(dataDir, name)).toEqual([(await identity(name)).pid])
      }
    })

    it("starts one agent when the operator is killed at any moment of a launch and the launch is replayed", async () => {
      for (const delay of [0, 4, 8, 15, 30, 60, 120]) {
        const specs = Array.from({ length: 4 }, () => spec())
        const child = operator(specs)
        // It may have finished before the kill.
        const gone = once(child, "exit")
        await firstLine(child)
        await sleep(delay)
        child.kill("SIGKILL")
        await gone
        for (const each of specs) await cloud.launch(each)
        for (const { name } of specs) {
          await inState(name, "running")
          expect(await bootsOf(dataDir, name)).toHaveLength(1)
        }
      }
    })

    it("shows a VM that was accepted but not started as booting, and the replay starts it", async () => {
      const asked = spec()
      const createTime = new Date(Date.now() - 30_000).toISOString()
      await createFolder(dataDir, asked, createTime)
      expect(await find(asked.name)).toMatchObject({ state: "booting", createTime })
      await cloud.launch(asked)
      await inState(asked.name, "running")
    })

    it("never starts a VM that was terminated before its start", async () => {
      const asked = spec()
      await createFolder(dataDir, asked, new Date().toISOString())
      await cloud.terminate({ id: asked.name, launch: asked.name, region: "local" })
      await inState(asked.name, "terminated")
      expect(await cloud.launch(asked)).toMatchObject({ state: "terminated" })
      expect(await readdir(join(dataDir, asked.name, "disk"))).toEqual(["user-data.json"])
    })

    it("shows a VM whose agent fails to start as terminated", async () => {
      const asked = spec()
      await openAt(dataDir, { agentCommand: ["/nonexistent/agent"] }).launch(asked)
      await inState(asked.name, "terminated")
      expect(await readFile(join(dataDir, asked.name, "agent.log"), "utf8")).toContain("/nonexistent/agent")
    })

    it("gives the agent its user data and environment, and no variable of this process", async () => {
      vi.stubEnv("AWS_SECRET_ACCESS_KEY", "hidden")
      onTestFinished(() => void vi.unstubAllEnvs())
      const agentEnvironment = { GREETING: "hello" }
      const asked = spec({ onTerm: "exit" })
      await openAt(dataDir, { agentEnvironment }).launch(asked)
      await inState(asked.name, "running")
      expect(await read(asked.name, "user-data.json")).toBe(asked.userData)
      const environment = JSON.parse(await read(asked.name, "environment.json")) as Record<string, string>
      // Variables that a shell sets itself.
      for (const own of ["PWD", "OLDPWD", "SHLVL", "_", "__CF_USER_TEXT_ENCODING"]) delete environment[own]
      const PATH = expect.stringContaining("/bin")
      expect(environment).toEqual({ HOME: join(dataDir, asked.name, "disk"), PATH, ...agentEnvironment })
    })

    it("rejects names that are not valid folder names, and other regions", async () => {
      for (const name of ["", "../up", "a/b", ".hidden", "-a", "A", "a".repeat(254)]) {
        await expect(cloud.launch(spec({}, { name }))).rejects.toBeInstanceOf(InvalidRequestError)
      }
      const elsewhere = spec({}, { offer: { ...offer, region: "mars" } })
      await expect(cloud.launch(elsewhere)).rejects.toThrow(/local\/mars.*local\/local/)
      expect(await readdir(dataDir)).toEqual([])
    })
  })

  describe("restart and loss of local VMs", () => {
    it("finds its VMs again after the operator was killed", async () => {
      const specs = [spec(), spec()]
      const child = operator(specs)
      await once(child, "exit")
      for (const { name } of specs) await inState(name, "running", openAt(dataDir))
    })

    it("kills what a killed agent left running before it shows the VM as terminated", async () => {
      const asked = spec({ children: ["same", "same"] })
      const vm = await up(asked)
      const children = await childrenOf(asked.name)
      expect(await running(children)).toEqual(children)
      process.kill((await identity(asked.name)).pid, "SIGKILL")
      const gone = await inState(asked.name, "terminated")
      expect(await running(children)).toEqual([])
      expect(Date.parse(gone.terminationTime ?? "")).toBeGreaterThanOrEqual(Date.parse(vm.createTime))
      expect(await find(asked.name)).toEqual(gone)
    })

    it("kills the command of a killed agent, which runs in a session of its own", async () => {
      const asked = spec()
      await openAt(dataDir, { agentCommand: [process.execPath, join(import.meta.dirname, "process-agent.ts")] }).launch(
        asked,
      )
      const pidIn = async (file: string) => {
        const text = await read(asked.name, join("work", file))
        expect(text).toMatch(/\n$/)
        return Number(text)
      }
      const pids = await eventually(async () => [await pidIn("outer"), await pidIn("inner")])
      await read(asked.name, "process.json")
      expect(await running(pids)).toEqual(pids)
      process.kill((await identity(asked.name)).pid, "SIGKILL")
      await inState(asked.name, "terminated")
      expect(await running(pids)).toEqual([])
    })

    it("dates the end of a VM that died unobserved by its last sign of life", async () => {
      const asked = spec({ exitAfterMs: 0 })
      await up(asked)
      const { pid } = await identity(asked.name)
      await eventually(async () => expect(await running([pid])).toEqual([]))
      ahead = 3000
      const gone = await inState(asked.name, "terminated")
      expect(Date.parse(gone.terminationTime ?? "")).toBeLessThan(Date.now() + 1000)
    })

    it("detects that a dead agent's pid now belongs to another process", async () => {
      const asked = spec()
      await createFolder(dataDir, asked, new Date().toISOString())
      const stranger = spawn("sleep", ["600"], { detached: true, stdio: "ignore" })
      await once(stranger, "spawn")
      await writeFile(
        join(dataDir, asked.name, "process"),
        `${stranger.pid}\nanother-boot\n1 (sh) S${" 0".repeat(30)}\n`,
      )
      await inState(asked.name, "terminated")
      expect(await running([stranger.pid ?? 0])).toEqual([stranger.pid])
      stranger.kill("SIGKILL")
    })

    it("throws on a VM whose record is unreadable instead of skipping it", async () => {
      const asked = spec()
      await createFolder(dataDir, asked, new Date().toISOString())
      await writeFile(join(dataDir, asked.name, "vm.json"), "{")
      await expect(cloud.list({ installation: "i", region: "local" })).rejects.toThrow(TransientError)
      await rm(join(dataDir, asked.name), { recursive: true })
    })
  })

  describe("terminate of a local VM", () => {
    it("lets the agent end by itself", async () => {
      const asked = spec()
      await cloud.terminate(await up(asked))
      await inState(asked.name, "terminated")
      expect(await read(asked.name, "terms")).toBe("TERM\n")
    })

    it("completes a termination without a list call", async () => {
      const asked = spec()
      await cloud.terminate(await up(asked))
      const record = await eventually(() => readFile(join(dataDir, asked.name, "termination.json"), "utf8"))
      expect(record).toContain("time")
    })

    it("kills an agent and all its processes after the grace period", async () => {
      const asked = spec({ onTerm: "ignore", children: ["same", "own"] })
      await cloud.terminate(await up(asked))
      const pids = [(await identity(asked.name)).pid, ...(await childrenOf(asked.name))]
      expect((await inState(asked.name, "terminating")).terminationTime).toBeUndefined()
      // A calendar that jumps takes no time from the agent.
      ahead = 7200
      expect((await inState(asked.name, "terminating")).terminationTime).toBeUndefined()
      expect(await running(pids)).toEqual(pids)
      passed = 15
      await inState(asked.name, "terminated")
      expect(await running(pids)).toEqual([])
    })

    it("kills agents, and commands in sessions of their own, before killNow returns", async () => {
      const own = await mkdtemp(join(tmpdir(), "berth-kill-now-"))
      const agentCommand = [process.execPath, join(import.meta.dirname, "process-agent.ts")]
      const leaving = openAt(own, { agentCommand })
      const [alive, dead] = [spec(), spec()]
      for (const asked of [alive, dead]) await leaving.launch(asked)
      const pidsIn = async ({ name }: LaunchSpec) => {
        await readFile(join(own, name, "disk", "process.json"))
        const files = ["outer", "inner"].map((file) => join(own, name, "disk", "work", file))
        return (await Promise.all(files.map((file) => readFile(file, "utf8")))).map(Number)
      }
      const pids = await eventually(async () => {
        const written = [...(await pidsIn(alive)), ...(await pidsIn(dead))]
        expect(written.every((pid) => pid > 0)).toBe(true)
        return written
      })
      const agents = await Promise.all([alive, dead].map(({ name }) => readFile(join(own, name, "process"), "utf8")))
      const [agent = 0, killed = 0] = agents.map((text) => parseIdentity(text)?.pid ?? 0)
      expect(await running([agent, killed, ...pids])).toEqual([agent, killed, ...pids])
      process.kill(killed, "SIGKILL")
      await eventually(async () => expect(await running([killed])).toEqual([]))
      await writeFile(join(own, "unreadable"), "")
      leaving.killNow()
      await eventually(async () => expect(await running([agent, killed, ...pids])).toEqual([]))
      await rm(own, { recursive: true })
    })

    it("completes a pending list when the cloud is closed", async () => {
      const due: (() => void)[] = []
      const setTimer: Clock["setTimer"] = (_seconds, callback) => {
        due.push(callback)
        return () => undefined
      }
      const watching = openAt(dataDir, { clock: { ...clock, setTimer } })
      const vm = await up(spec())
      await watching.terminate(vm)
      const { pid } = await identity(vm.launch)
      await eventually(async () => expect(await running([pid])).toEqual([]))
      due[0]?.()
      await watching.close()
      expect(await readdir(join(dataDir, vm.launch))).toContain("termination.json")
    })

    it("completes a termination that an earlier process began", async () => {
      const asked = spec({ onTerm: "ignore" })
      await cloud.terminate(await up(asked))
      // Two signals at once may arrive as one.
      await read(asked.name, "terms")
      await cloud.close()
      const { pid } = await identity(asked.name)
      const next = openAt(dataDir, { clock })
      await inState(asked.name, "terminating", next)
      await eventually(async () => expect(await readFile(disk(asked.name, "terms"), "utf8")).toBe("TERM\nTERM\n"))
      passed = 15
      await inState(asked.name, "terminated", next)
      expect(await running([pid])).toEqual([])
    })

    it("rejects ids that lead out of its folder", async () => {
      const ref = { id: "../../etc", launch: "x", region: "local" }
      await expect(cloud.terminate(ref)).rejects.toBeInstanceOf(InvalidRequestError)
    })
  })

  describe("containers of a local VM", async () => {
    const dockerSocket = "/var/run/docker.sock"
    const docker = new Docker({ socketPath: dockerSocket })
    const image = "berth-test-local-cloud:1"

    needing(await missingForContainers()).it("containers are removed with their VM", async () => {
      await importSleeper(docker, image)
      const asked = spec()
      const containers: Docker.Container[] = []
      try {
        for (const launch of ["another", asked.name]) containers.push(await runLabelled(docker, image, launch))
        const [other, own] = containers as [Docker.Container, Docker.Container]
        await up(asked)
        const through = openAt(dataDir, { clock, dockerSocket })
        process.kill((await identity(asked.name)).pid, "SIGKILL")
        await inState(asked.name, "terminated", through)
        await expect(own.inspect()).rejects.toMatchObject({ statusCode: 404 })
        expect((await other.inspect()).State.Running).toBe(true)
      } finally {
        await Promise.allSettled(containers.map((container) => container.remove({ force: true })))
        await docker.getImage(image).remove({ force: true })
      }
    })

    it("containers keep a VM from being shown as terminated while the engine doesn't answer", async () => {
      const asked = spec()
      await up(asked)
      const told: CloudError[] = []
      const deaf = join(dataDir, "deaf.sock")
      await writeFile(deaf, "")
      const through = openAt(dataDir, { clock, dockerSocket: deaf, onError: (error) => told.push(error) })
      process.kill((await identity(asked.name)).pid, "SIGKILL")
      await inState(asked.name, "terminating", through)
      expect(told.at(-1)).toBeInstanceOf(TransientError)
      await rm(deaf)
      await inState(asked.name, "terminated", through)
    })
  })

  it("never takes a booting VM for a dead one while lists and launches overlap", async () => {
    const specs = Array.from({ length: 12 }, () => spec())
    let launching = true
    const looking = [cloud, openAt(dataDir, { clock })].map(async (through) => {
      while (launching) await through.list({ installation: "i", region: "local" })
      await through.close()
    })
    for (const each of specs) await cloud.launch(each)
    launching = false
    await Promise.all(looking)
    for (const { name } of specs) expect((await find(name))?.state, name).toMatch(/booting|running/)
  })

  it("ends no VM because the calendar jumps beyond its lifetime, as after the sleep of a laptop", async () => {
    const asked = spec({}, { lifetimeSeconds: 3600 })
    await up(asked)
    for (ahead of [2 * 3600, 25 * 3600, -2 * 3600]) await inState(asked.name, "running")
  })

  it("lists a VM that has ended until it is forgotten, and then its name is free again", async () => {
    const [ended, alive] = [spec({ exitAfterMs: 0 }), spec()]
    const vm = await up(ended)
    const other = await up(alive)
    await inState(ended.name, "terminated")
    ahead = 25 * 3600
    await inState(ended.name, "terminated")
    await cloud.forget([vm, other])
    expect(await find(ended.name)).toBeUndefined()
    expect(await readdir(dataDir)).toEqual([alive.name])
    await inState(alive.name, "running")
    await up(ended)
    await inState(ended.name, "terminated")
  })

  it("reads the record of a VM that has ended once, also after another process has deleted its disk or the record", async () => {
    const vm = await up(spec({ exitAfterMs: 0 }))
    const shown = await inState(vm.launch, "terminated")
    const record = join(dataDir, vm.launch, "vm.json")
    // A second read would throw.
    await writeFile(record, "{")
    expect(await find(vm.launch)).toEqual(shown)
    ahead = 700
    await rm(join(dataDir, vm.launch, "disk"), { recursive: true })
    await writeFile(record, JSON.stringify({ ...vm, instanceType: "local", tags: {}, specDigest: "" }))
    expect(await find(vm.launch)).toMatchObject({ state: "terminated" })
    await rm(join(dataDir, vm.launch), { recursive: true })
    expect(await find(vm.launch)).toBeUndefined()
  })

  it("deletes a VM's disk, with output and keys, minutes after its end, and still lists the VM", async () => {
    const asked = spec()
    await up(asked)
    process.kill((await identity(asked.name)).pid, "SIGKILL")
    await inState(asked.name, "terminated")
    expect(await readdir(join(dataDir, asked.name))).toContain("disk")
    ahead = 700
    await inState(asked.name, "terminated")
    expect(await readdir(join(dataDir, asked.name))).not.toContain("disk")
    await inState(asked.name, "terminated")
  })

  it("removes incomplete records of crashes after a while", async () => {
    await mkdir(join(dataDir, ".scratch-new"))
    await mkdir(join(dataDir, ".scratch-old"))
    await utimes(join(dataDir, ".scratch-old"), 0, 0)
    await cloud.list({ installation: "i", region: "local" })
    expect(await readdir(dataDir)).toEqual([".scratch-new"])
  })

  it("lists 600 VMs that have ended with few open files, also in the first look after a restart", async () => {
    const specs = Array.from({ length: 600 }, () => spec())
    for (const asked of specs) {
      await createFolder(dataDir, asked, "2025-01-01T12:00:00Z")
      await rm(join(dataDir, asked.name, "disk"), { recursive: true })
      await writeFile(join(dataDir, asked.name, "termination.json"), '{"time":"2025-01-01T12:00:00Z"}')
    }
    const child = spawn("/bin/sh", ["-c", 'ulimit -n 160 && exec "$@"', "sh", process.execPath, LIST, dataDir], {
      stdio: ["ignore", "pipe", "inherit"],
    })
    expect(JSON.parse(await text(child.stdout))).toMatchObject({ vms: 600 })
  })

  it("opens the local cloud only by its own Clouds", async () => {
    const clouds = localClouds(cloud)
    expect(await clouds.open({ cloud: "local", region: "local" })).toBe(cloud)
    await expect(clouds.open({ cloud: "aws", region: "us-east-1" })).rejects.toBeInstanceOf(CredentialsError)
  })
})

/** Builds an image of a busybox that sleeps. */
async function importSleeper(docker: Docker, image: string): Promise<void> {
  const layer = tar.pack()
  layer.entry({ name: "busybox", mode: 0o755 }, await readFile(BUSYBOX))
  layer.finalize()
  const [repo, tag] = image.split(":")
  await docker.importImage(Readable.from(layer), { repo, tag })
  await eventually(() => docker.getImage(image).inspect())
}

async function runLabelled(docker: Docker, Image: string, launch: string): Promise<Docker.Container> {
  const Labels = { "berth.dev/launch": launch }
  const container = await docker.createContainer({ Image, Labels, Cmd: ["/busybox", "sleep", "600"] })
  await container.start()
  return container
}

describe("identities of local processes", () => {
  let child: ChildProcess
  beforeAll(async () => {
    child = spawn("sleep", ["600"], { detached: true, stdio: "ignore" })
    await once(child, "spawn")
  })
  afterAll(() => child.kill("SIGKILL"))

  it("match the same process only, and not after its end", async () => {
    const entry = readProcessTable().get(child.pid ?? 0)
    expect(entry).toMatchObject({ parent: process.pid, group: child.pid })
    const own = entry as ProcessIdentity
    expect(isAlive(own, readProcessTable())).toBe(true)
    expect(isAlive({ ...own, startedAt: "earlier" }, readProcessTable())).toBe(false)
    child.kill("SIGKILL")
    await once(child, "exit")
    expect(isAlive(own, readProcessTable())).toBe(false)
  })
})
