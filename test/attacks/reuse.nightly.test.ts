import { execFileSync } from "node:child_process"
import { once } from "node:events"
import { readdir, readFile, writeFile } from "node:fs/promises"
import { join } from "node:path"
import { afterEach, beforeEach, expect, it } from "vitest"
import type { AgentExit } from "../../src/agent/main.ts"
import { processIdentity } from "../../src/agent/processes.ts"
import type { Run } from "../../src/core/apis/job.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import { SECRETS, type Secret } from "../../src/core/kube/core.ts"
import { type OwnEngine, ownEngine } from "../agent/engines.ts"
import { reusable } from "../agent/handover.ts"
import { joinedHost, ownMachine, prepareHosts, startHostProcess } from "../agent/hosts.ts"
import { BUSYBOX, buildImage, docker } from "../agent/images.ts"
import {
  containers,
  fixture,
  gateway,
  handover,
  images,
  logShows,
  newDisk,
  pass,
  prepareAgents,
  shell,
  start,
  startProcess,
  WAIT,
} from "../agent/suite.ts"
import { until } from "../harness/eventually.ts"
import { filesWith } from "./files-with.ts"

/** Text that the first job leaves wherever it can. The second one must find it nowhere. */
const CANARY = "canary-7f3a9c21"

prepareAgents({ registries: async () => ({ registry: "registry.test", username: "user", password: CANARY }) })
prepareHosts()

let engine: OwnEngine
let offer: StoredLaunch["spec"]["offer"]

beforeEach(async () => {
  engine = await ownEngine()
  handover.asked.length = 0
  // A VM of its own, not a part of this machine.
  offer = { ...(await fixture.launch({})).spec.offer, cloud: "aws" }
})
afterEach(async () => {
  // Left by tests that failed.
  for (const { Id } of await engine.docker.listContainers({ all: true })) {
    await docker.getContainer(Id).remove({ force: true, v: true })
  }
  for (const { Name } of (await engine.docker.listVolumes()).Volumes)
    await docker.getVolume(Name).remove({ force: true })
  for (const { Id } of await engine.docker.listNetworks()) await docker.getNetwork(Id).remove()
  await engine.close()
})

/** Machine that has run a first job, which must keep nothing of that job. */
interface Left {
  launch: StoredLaunch
  /** Folder of the agent. */
  dataDir: string
  /** Runs a second job on it. Returns what that one printed. */
  spy: (script: string) => Promise<string>
}

/** Runs a first job on a VM of its own, until the VM is idle. */
async function idleVm(run: Partial<Run>, whileRunning: WhileRunning = async () => undefined): Promise<Left> {
  const launch = await fixture.launch({ ...run, ...reusable() }, { offer })
  const vm = await start(launch, { runtime: "docker", dockerSocket: engine.socket })
  await Promise.race([whileRunning(launch, vm.dataDir), vm.exit])
  await Promise.race([handover.idle(launch), vm.exit])
  return { launch, dataDir: vm.dataDir, spy: (script) => spy({ launch, ...vm }, script) }
}

/** Runs a first job on a machine of its own, until nothing of it is left. */
async function freedMachine(run: Partial<Run>, whileRunning: WhileRunning = async () => undefined): Promise<Left> {
  const { machine, dataDir, stop, exit } = await joinedHost({ runtime: "docker", dockerSocket: engine.socket })
  const launch = await machine.launch(run)
  await whileRunning(launch, join(dataDir, "run"))
  await machine.freed(launch)
  const spy = async (script: string): Promise<string> => {
    const next = await machine.launch(shell(script))
    await machine.freed(next)
    expect((await fixture.agentOf(next))?.finish).toMatchObject({ reason: "Succeeded" })
    stop()
    await exit
    return (await gateway.logOf(next)).toString()
  }
  return { launch, dataDir, spy }
}

/** Called while the first job runs, with the folder of its agent's files. */
type WhileRunning = (launch: StoredLaunch, folder: string) => Promise<void>

/** Machines that run one job after another. */
const KINDS = [
  { kind: "a reused VM", afterOne: idleVm },
  { kind: "a machine of its own", afterOne: freedMachine },
] as const

/** Runs a second job on this VM. Returns what it printed. */
async function spy(
  { launch, exit }: { launch: StoredLaunch; exit: Promise<AgentExit> },
  script: string,
): Promise<string> {
  const image = images?.tools ?? ""
  // Its own image is in no registry, from which it would have to come.
  const next = await handover.successor(launch, shell(script, { image }))
  engine.gate = pulled
  expect(await exit).toMatchObject({ launch: next.metadata.name, finish: { reason: "Succeeded" } })
  return (await gateway.logOf(next)).toString()
}

/** Answers a pull as for an image that is up to date. */
const pulled: OwnEngine["gate"] = (req, res) => {
  if (req.url?.includes("/images/create") !== true) return false
  res.writeHead(200, { "content-type": "application/json" }).end('{"status":"Status: Image is up to date"}\n')
  return true
}

/** Builds an image with an anonymous volume at `/data`. */
async function volumeImage(): Promise<string> {
  const name = `berth-test/volume:${process.pid}`
  const lines = ["FROM scratch", "COPY busybox /bin/busybox", "COPY busybox /bin/sh", "VOLUME /data"]
  await buildImage(name, { Dockerfile: lines.join("\n"), busybox: await readFile(BUSYBOX) })
  return name
}

/** Creates a container with a volume and a network in the VM's engine, all with this name. */
async function createAll(name: string): Promise<string> {
  await engine.docker.createNetwork({ Name: name })
  await engine.docker.createVolume({ Name: name })
  const container = await engine.docker.createContainer({
    ...{ name, Image: images?.tools ?? "", Entrypoint: ["sleep", "900"], Env: [`LEFT=${CANARY}`] },
    HostConfig: { NetworkMode: name, Mounts: [{ Type: "volume", Source: name, Target: "/data" }] },
  })
  await container.start()
  return container.id
}

async function expectEmptyEngine(): Promise<void> {
  expect(await engine.docker.listContainers({ all: true })).toEqual([])
  expect((await engine.docker.listVolumes()).Volumes).toEqual([])
  // The one that all jobs of a shared host have.
  const networks = (await engine.docker.listNetworks()).map(({ Name }) => Name)
  expect(networks.filter((name) => name !== "berth-jobs")).toEqual([])
}

/** Returns this machine's processes, with their environments, in which the canary occurs. */
function processesOfFirst(): string[] {
  const all = execFileSync("ps", ["axeww"], { encoding: "utf8", maxBuffer: 64 << 20 }).split("\n")
  return all.filter((line) => line.includes(CANARY))
}

containers.describe.each(KINDS)("a job on $kind finds nothing of the job before it", ({ kind, afterOne }) => {
  it("no file, variable, process, memory, mount or name of its container", async () => {
    const places = ["/left", "/dev/shm/left", "/tmp-of-job", "/var-of-job"]
    const leave = places.map((place) => `echo $LEFT > ${place}`).join("; ")
    const daemon = "/bin/busybox setsid sleep 900 > /dev/null 2>&1 &"
    const left = await afterOne(shell(`${leave}; ${daemon} sleep 0.2`, { env: { LEFT: CANARY } }))
    await expectEmptyEngine()
    expect(processesOfFirst()).toEqual([])
    // The file of its own proves that it would find others. The pattern does not match itself.
    const search = "/bin/busybox find / /dev/shm -xdev -type f -exec /bin/busybox grep -l 'canar[y]' {} ';'"
    const network = "cat /etc/hosts /etc/resolv.conf /proc/net/arp /proc/net/route"
    const said = await left.spy(`echo canary > /own; ${search}; env; /bin/busybox ps; cat /proc/mounts; ${network}`)
    expect(said).toMatch(/^\/own\n(?!\/)/)
    for (const trace of [CANARY, "sleep 900", left.launch.metadata.name]) expect(said).not.toContain(trace)
  })

  it("no anonymous volume", async () => {
    // A VM's engine has only what is Berth's, so the agent removes each volume. Another engine's may have an owner.
    engine.keepsVolumes = kind === "a reused VM"
    const image = await volumeImage()
    try {
      const left = await afterOne({ image, command: ["sh", "-c", `echo ${CANARY} > /data/left`] })
      await expectEmptyEngine()
      expect(await left.spy("cat /proc/mounts")).not.toContain("/data")
    } finally {
      await docker.getImage(image).remove({ force: true })
    }
  })

  it("no secret in the agent's files or in the engine, and no key of the earlier Launch", async () => {
    const data = { token: Buffer.from(CANARY).toString("base64") }
    const metadata = { name: `canary-${KINDS.findIndex((each) => each.kind === kind)}`, namespace: fixture.namespace }
    await fixture.client.create(SECRETS, { metadata, type: "berth.dev/env", data } as unknown as Secret)
    const secretEnv = { TOKEN: { secret: metadata.name, key: "token" } }
    const keys: string[] = []
    const script = `echo ${CANARY}; echo $TOKEN > /left; ${WAIT}; exit 3`
    const left = await afterOne(shell(script, { secretEnv }), async (launch, folder) => {
      await logShows(launch, CANARY)
      const { signing, encryption } = JSON.parse(await readFile(join(folder, "keys.json"), "utf8")) as {
        signing: { d: string }
        encryption: { d: string }
      }
      keys.push(signing.d, encryption.d)
      await pass(launch, "docker", folder)
    })
    expect(await filesWith(CANARY, left.dataDir)).toEqual([])
    expect(await left.spy("env")).not.toContain(CANARY)
    for (const secret of [CANARY, ...keys]) expect(await filesWith(secret, left.dataDir)).toEqual([])
    expect(keys).toHaveLength(2)
  })
})

containers.describe("a job on a reused VM finds nothing of the job before it", () => {
  it("no other container, volume or network, of any maker", async () => {
    const first = await fixture.launch(shell(WAIT, reusable()), { offer })
    const vm = { launch: first, ...(await start(first, { runtime: "docker", dockerSocket: engine.socket })) }
    await until("it runs", async () => (await fixture.agentOf(first))?.startTime !== undefined)
    const name = `left-${first.metadata.name}`
    await createAll(name)
    await pass(first, "docker", vm.dataDir)
    await handover.idle(first)
    await expectEmptyEngine()
    expect(processesOfFirst()).toEqual([])
    expect(await spy(vm, "cat /etc/hosts /etc/resolv.conf /proc/net/route")).not.toContain(name)
  })

  it("nothing that was left when the agent was killed in its clean-up", async () => {
    const first = await fixture.launch(shell(WAIT, reusable()), { offer })
    const dataDir = await newDisk()
    const agent = await startProcess(first, "docker", dataDir, { args: ["--docker-socket", engine.socket] })
    const gone = once(agent, "exit")
    await until("it runs", async () => (await fixture.agentOf(first))?.startTime !== undefined)
    const container = await createAll(`left-${first.metadata.name}`)
    engine.gate = async (req) => {
      if (req.method === "DELETE" && req.url?.includes(container) === true && agent.kill("SIGKILL")) await gone
      return false
    }
    await pass(first, "docker", dataDir)
    expect(await gone).toEqual([null, "SIGKILL"])
    expect(handover.asked).toEqual([])
    const { exit } = await start(first, { runtime: "docker", dataDir, dockerSocket: engine.socket })
    await handover.idle(first)
    await expectEmptyEngine()
    expect(await spy({ launch: first, exit }, "env")).not.toContain(CANARY)
  })
})

/** Runs a job by an agent in its own process. `run` resolves when nothing of the job is left. */
const MEMORIES = [
  {
    kind: "a reused VM",
    said: "berth-next",
    run: async (run: Partial<Run>, dataDir: string, node: string[]) => {
      const launch = await fixture.launch({ ...run, ...reusable() })
      const agent = await startProcess(launch, "docker", dataDir, { node })
      await handover.idle(launch)
      return agent
    },
  },
  {
    kind: "a machine of its own",
    said: "berth-beat",
    run: async (run: Partial<Run>, dataDir: string, node: string[]) => {
      const machine = await ownMachine()
      const agent = startHostProcess("docker", dataDir, { token: await machine.token(), node })
      await machine.freed(await machine.launch(run))
      return agent
    },
  },
]

containers.it.each(MEMORIES)("no secret of a job stays in the memory of the agent of $kind", async ({ said, run }) => {
  const metadata = { name: `memory-of-${said}`, namespace: fixture.namespace }
  const data = { token: Buffer.from(CANARY).toString("base64") }
  await fixture.client.create(SECRETS, { metadata, type: "berth.dev/env", data } as unknown as Secret)
  const secretEnv = { TOKEN: { secret: metadata.name, key: "token" } }
  const heap = await newDisk()
  const node = ["--heapsnapshot-signal=SIGUSR2", `--diagnostic-dir=${heap}`]
  const agent = await run(shell("sleep 0.5", { secretEnv }), await newDisk(), node)
  agent.kill("SIGUSR2")
  await until("the snapshot is there", async () => (await readdir(heap)).length > 0)
  agent.kill("SIGTERM")
  await once(agent, "exit")
  expect(await filesWith(said, heap)).toHaveLength(1)
  expect(await filesWith(CANARY, heap)).toEqual([])
})

it("a job without a container engine finds no file and no process of the job before it", async () => {
  const launch = await fixture.launch(shell(LEAVING, reusable()))
  const { dataDir, exit } = await start(launch, { runtime: "process" })
  await handover.idle(launch)
  await expectNothingOf(launch, dataDir)
  const next = await handover.successor(launch, shell("ls -a; env"))
  await exit
  await expectSaidNothing(launch, next)
})

it("a job on a machine without a container engine finds no file and no process of the job before it", async () => {
  const { machine, dataDir, exit, stop } = await joinedHost({ runtime: "process" })
  const launch = await machine.launch(shell(LEAVING))
  await machine.freed(launch)
  await expectNothingOf(launch, dataDir)
  const next = await machine.launch(shell("ls -a; env"))
  await machine.freed(next)
  stop()
  await exit
  await expectSaidNothing(launch, next)
})

/** Script that leaves a file and a process, whose id it prints. */
const LEAVING = `setsid sh -c 'echo $$; exec sleep 900 > /dev/null 2>&1' & echo ${CANARY} > left; sleep 0.5`

async function expectNothingOf(launch: StoredLaunch, dataDir: string): Promise<void> {
  const pid = Number((await gateway.logOf(launch)).toString())
  expect(pid).toBeGreaterThan(1)
  expect(processIdentity(pid)).toBeUndefined()
  expect(await filesWith(CANARY, dataDir)).toEqual([])
}

async function expectSaidNothing(launch: StoredLaunch, next: StoredLaunch): Promise<void> {
  const said = (await gateway.logOf(next)).toString()
  expect(said).toMatch(/^\.\n\.\.\n/)
  expect(said).not.toContain(launch.metadata.name)
}

it("a VM whose clean-up leaves something gets no other job, and says what is left", async () => {
  const launch = await fixture.launch(shell("true", reusable()), { offer })
  const dataDir = await newDisk()
  const { exit } = await start(launch, { runtime: "process", dataDir })
  await writeFile(join(dataDir, "unused"), "")
  execFileSync("chattr", ["+i", join(dataDir, "unused")])
  try {
    expect((await exit).why).toMatch(/^the VM could not be cleaned after its job: .*unused/)
    expect(handover.of(launch)).toEqual([{ unfit: expect.stringMatching(/unused/) }])
  } finally {
    execFileSync("chattr", ["-i", join(dataDir, "unused")])
  }
})
