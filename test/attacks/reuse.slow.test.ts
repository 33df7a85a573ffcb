import { execFileSync } from "node:child_process"
import { once } from "node:events"
import { readdir, readFile, writeFile } from "node:fs/promises"
import { join } from "node:path"
import { afterEach, beforeEach, expect, it } from "vitest"
import { processIdentity } from "../../src/agent/processes.ts"
import { LAUNCH_LABEL } from "../../src/agent/runtimes/docker.ts"
import type { Run } from "../../src/core/apis/job.ts"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import { SECRETS, type Secret } from "../../src/core/kube/core.ts"
import { type OwnEngine, ownEngine } from "../agent/engines.ts"
import { reusable } from "../agent/handover.ts"
import { BUSYBOX, buildImage, docker } from "../agent/images.ts"
import {
  containers,
  fixture,
  gateway,
  handover,
  images,
  newDisk,
  prepareAgents,
  shell,
  start,
  startProcess,
} from "../agent/suite.ts"
import { until } from "../harness/eventually.ts"
import { filesWith } from "./files-with.ts"

prepareAgents()

/** Text that the first job leaves wherever it can. The second one must find it nowhere. */
const CANARY = "canary-7f3a9c21"

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

/** Runs a first job on a VM of its own, until the VM is idle. */
async function idleVm(run: Partial<Run>) {
  const launch = await fixture.launch({ ...run, ...reusable() }, { offer })
  const vm = await start(launch, { runtime: "docker", dockerSocket: engine.socket })
  await Promise.race([handover.idle(launch), vm.exit])
  return { launch, ...vm }
}

/** Runs a second job on this VM. Returns what it printed. */
async function spy({ launch, exit }: Awaited<ReturnType<typeof idleVm>>, script: string): Promise<string> {
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

/** Image with an anonymous volume at `/data`, with the tools of busybox. */
async function volumeImage(): Promise<string> {
  const name = `berth-test/volume:${process.pid}`
  const links = ["cat", "echo", "sleep", "ls"].map((tool) => `/bin/sh -c "busybox ln -s busybox /bin/${tool}"`)
  await buildImage(name, {
    Dockerfile: [
      "FROM scratch",
      "COPY busybox /bin/busybox",
      "COPY busybox /bin/sh",
      ...links.map((link) => `RUN ["/bin/sh", "-c", ${JSON.stringify(link)}]`),
      "VOLUME /data",
    ].join("\n"),
    busybox: await readFile(BUSYBOX),
  })
  return name
}

containers.describe("a job on a reused VM finds nothing of the job before it", () => {
  it("no file, variable, process, memory or mount of its container", async () => {
    const leave = [
      `echo ${CANARY} > /left`,
      `echo ${CANARY} > /dev/shm/left`,
      `echo ${CANARY} > /work/left`,
      `/bin/busybox setsid sh -c 'exec -a ${CANARY} sleep 900' &`,
      "true",
    ]
    const vm = await idleVm(
      shell(`/bin/busybox mkdir -p /work; ${leave.join("; ")}`.replaceAll("&;", "&"), { env: { LEFT: CANARY } }),
    )
    expect(await engine.docker.listContainers({ all: true })).toEqual([])
    expect(
      execFileSync("ps", ["axeww"], { encoding: "utf8" })
        .split("\n")
        .filter((line) => line.includes(CANARY) && !line.includes("vitest")),
    ).toEqual([])
    const look = [
      "env",
      "/bin/busybox ps",
      "cat /proc/mounts",
      "/bin/busybox grep -rs canary / --exclude-dir=proc --exclude-dir=sys || true",
    ]
    expect(await spy(vm, look.join("; "))).not.toContain(CANARY)
  })

  it("no anonymous volume, even if the engine has not removed it with its container", async () => {
    engine.keepsVolumes = true
    const image = await volumeImage()
    try {
      const vm = await idleVm({ image, command: ["sh", "-c", `echo ${CANARY} > /data/left`] })
      expect((await engine.docker.listVolumes()).Volumes).toEqual([])
      expect(await spy(vm, "cat /proc/mounts")).not.toContain("/data")
    } finally {
      await docker.getImage(image).remove({ force: true })
    }
  })

  it("no other container, volume or network, whoever made it", async () => {
    let left: string[] = []
    handover.onAsk = () => undefined
    const run = shell("until [ -e /go ]; do sleep 0.1; done", reusable())
    const launch = await fixture.launch(run, { offer })
    const vm = { launch, ...(await start(launch, { runtime: "docker", dockerSocket: engine.socket })) }
    await until("it runs", async () => (await fixture.agentOf(launch))?.startTime !== undefined)
    const name = `left-${launch.metadata.name.slice(0, 8)}`
    const network = await engine.docker.createNetwork({ Name: name })
    await engine.docker.createVolume({ Name: name })
    const server = await engine.docker.createContainer({
      ...{
        name,
        Image: images?.tools ?? "",
        Entrypoint: ["/bin/busybox", "nc", "-lk", "-p", "8000", "-e", "/bin/echo", CANARY],
      },
      HostConfig: { NetworkMode: name, Mounts: [{ Type: "volume", Source: name, Target: "/data" }] },
    })
    await server.start()
    left = [name, network.id.slice(0, 12)]
    const [own] = await engine.docker.listContainers({
      filters: { label: [`${LAUNCH_LABEL}=${launch.metadata.name}`] },
    })
    const exec = await docker.getContainer(own?.Id ?? "").exec({ Cmd: ["/bin/busybox", "touch", "/go"] })
    await exec.start({})
    await handover.idle(launch)
    expect(await engine.docker.listContainers({ all: true })).toEqual([])
    expect((await engine.docker.listVolumes()).Volumes).toEqual([])
    expect(await engine.docker.listNetworks()).toEqual([])
    const said = await spy(
      vm,
      `/bin/busybox nslookup ${name} 2>&1; /bin/busybox nslookup berth-${launch.metadata.name}-1 2>&1; true`,
    )
    expect(said).not.toMatch(/Address[^\n]*\n[^\n]*Address \d+: 172/)
    expect(left).toHaveLength(2)
  })

  it("no secret in the agent's files or in the engine, and no key of the earlier Launch", async () => {
    const ref = { name: "canary", namespace: fixture.namespace }
    const data = { token: Buffer.from(CANARY).toString("base64") }
    await fixture.client.create(SECRETS, { metadata: ref, type: "berth.dev/env", data } as unknown as Secret)
    const secretEnv = { TOKEN: { secret: "canary", key: "token" } }
    const vm = await idleVm(shell(`echo ${CANARY}; echo $TOKEN > /left; exit 3`, { secretEnv }))
    expect(await filesWith(CANARY, vm.dataDir)).toEqual([])
    const { signing, encryption } = JSON.parse(await readFile(join(vm.dataDir, "keys.json"), "utf8")) as {
      signing: { d: string }
      encryption: { d: string }
    }
    expect(await spy(vm, "env")).not.toContain(CANARY)
    for (const secret of [CANARY, signing.d, encryption.d]) expect(await filesWith(secret, vm.dataDir)).toEqual([])
  })

  it("no secret in the memory of the agent", async () => {
    const ref = { name: "canary-memory", namespace: fixture.namespace }
    const data = { token: Buffer.from(CANARY).toString("base64") }
    await fixture.client.create(SECRETS, { metadata: ref, type: "berth.dev/env", data } as unknown as Secret)
    const secretEnv = { TOKEN: { secret: ref.name, key: "token" } }
    const launch = await fixture.launch(shell("sleep 0.5", { ...reusable(), secretEnv }))
    const dataDir = await newDisk()
    const heap = await newDisk()
    const node = ["--heapsnapshot-signal=SIGUSR2", `--diagnostic-dir=${heap}`]
    const agent = await startProcess(launch, "docker", dataDir, { node })
    await handover.idle(launch)
    agent.kill("SIGUSR2")
    await until("the snapshot is there", async () => (await readdir(heap)).length > 0)
    agent.kill("SIGTERM")
    await once(agent, "exit")
    expect(await filesWith("berth-next", heap)).toHaveLength(1)
    expect(await filesWith(CANARY, heap)).toEqual([])
  })
})

it("a job without a container engine finds no file and no process of the job before it", async () => {
  const daemon = "setsid sh -c 'echo $$; exec sleep 900 > /dev/null 2>&1' &"
  const launch = await fixture.launch(shell(`${daemon} echo ${CANARY} > left; sleep 0.5`, reusable()))
  const { dataDir, exit } = await start(launch, { runtime: "process" })
  await handover.idle(launch)
  const pid = Number((await gateway.logOf(launch)).toString())
  expect(pid).toBeGreaterThan(1)
  expect(processIdentity(pid)).toBeUndefined()
  expect(await filesWith(CANARY, dataDir)).toEqual([])
  const next = await handover.successor(launch, shell("ls -a; env"))
  await exit
  const said = (await gateway.logOf(next)).toString()
  expect(said).toMatch(/^\.\n\.\.\n/)
  expect(said).not.toContain(launch.metadata.name)
})

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
