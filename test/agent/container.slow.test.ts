import { randomBytes } from "node:crypto"
import { existsSync } from "node:fs"
import { readFile } from "node:fs/promises"
import { afterAll, beforeAll, expect, it } from "vitest"
import type { Launch, StoredLaunch } from "../../src/core/apis/launch.ts"
import { SECRETS, type Secret } from "../../src/core/kube/core.ts"
import { until } from "../harness/eventually.ts"
import { needing } from "../needing.ts"
import { engineOfSize, engineWith } from "./engines.ts"
import { buildImage, containersOf, docker } from "./images.ts"
import {
  containers,
  fixture,
  gateway,
  images,
  logShows,
  pass,
  prepareAgents,
  runVm,
  shell,
  start,
  WAIT,
} from "./suite.ts"

prepareAgents()

const MIB = 1024 * 1024

/** Limits of processes, by the letters of `ulimit`: soft, and hard where that differs. */
const LIMITS = {
  soft: {
    ...{ c: "0", d: "unlimited", e: "0", f: "unlimited", i: "131072", l: "unlimited", m: "unlimited", n: "1048576" },
    ...{ q: "819200", r: "0", s: "65536", t: "unlimited", u: "unlimited", v: "unlimited", x: "unlimited" },
  },
  hard: { c: "unlimited", s: "unlimited" },
}
const TINI = "/usr/bin/tini-static"
const tini = needing(existsSync(TINI) ? undefined : `${TINI} is missing (Debian's package tini)`)

/** Images of these tests, by their short names. */
const built: string[] = []

async function image(dockerfile: readonly string[], files: Record<string, string | Uint8Array> = {}): Promise<string> {
  const name = `berth-test/container:${randomBytes(4).toString("hex")}`
  await buildImage(name, { ...files, Dockerfile: `${dockerfile.join("\n")}\n` })
  built.push(name)
  return name
}

/** Image whose user 1000 may become root by a setuid program and an empty password. */
let sudoer = ""

containers.describe("a container", () => {
  beforeAll(async () => {
    const accounts = { "etc/passwd": "root::0:0:root:/:/bin/sh\nuser:x:1000:1000:user:/:/bin/sh\n" }
    const lines = [
      `FROM ${images?.tools}`,
      "COPY etc/passwd /etc/passwd",
      'RUN ["/bin/busybox", "chmod", "4755", "/bin/busybox"]',
    ]
    sudoer = await image([...lines, "USER 1000"], accounts)
  })
  afterAll(async () => {
    for (const name of built) await docker.getImage(name).remove({ force: true, noprune: true })
  })

  /** Returns the spec of a Launch on a VM of its own. */
  async function onVm(): Promise<Partial<Launch["spec"]>> {
    return { offer: { ...(await fixture.launch({})).spec.offer, cloud: "aws" } }
  }

  const SEEN = [
    "busybox df -k /dev/shm | busybox tail -n 1 | busybox awk '{print \"shm\", $2}'",
    "/bin/busybox su root -c id",
    "ulimit -a",
    "echo hard; ulimit -H -a",
  ].join("; ")

  it("has all memory as /dev/shm, equal limits and setuid programs on a VM of its own", async () => {
    const engine = await engineOfSize(1024)
    try {
      const run = { image: sudoer, command: ["sh", "-c", `${SEEN}; echo began; ${WAIT}`] }
      const launch = await fixture.launch(run, await onVm())
      const { exit, dataDir } = await start(launch, { runtime: "docker", dockerSocket: engine.socket })
      await logShows(launch, "began")
      const { HostConfig } = await inspect(launch)
      // An eighth of 1 GiB is for the system.
      const Memory = 896 * MIB
      expect(HostConfig).toMatchObject({ Memory, MemorySwap: Memory, ShmSize: Memory, PidsLimit: 32_768 })
      expect(HostConfig).toMatchObject({ NetworkMode: "bridge", CapDrop: ["NET_RAW"], Privileged: false })
      expect(HostConfig.SecurityOpt).toBeNull()
      await pass(launch, "docker", dataDir)
      await exit
      const log = (await gateway.logOf(launch)).toString()
      expect(log).toContain(`shm ${Memory / 1024}\n`)
      expect(log).toContain("uid=0 ")
      expect(limitsIn(log)).toEqual(await expectedLimits())
    } finally {
      await engine.close()
    }
  })

  it("has half its memory as /dev/shm and no new rights on a shared host, and its Launch as a label", async () => {
    const run = { image: sudoer, command: ["sh", "-c", `${SEEN}; echo began; ${WAIT}`] }
    const launch = await fixture.launch(run)
    const { exit, dataDir } = await start(launch, { runtime: "docker" })
    await logShows(launch, "began")
    const { HostConfig, Name } = await inspect(launch)
    expect(Name).toBe(`/berth-${launch.metadata.name}-1`)
    expect(HostConfig).toMatchObject({
      Privileged: false,
      NetworkMode: "berth-jobs",
      Binds: null,
      CapDrop: ["NET_RAW"],
    })
    expect(HostConfig).toMatchObject({
      Memory: 1024 * MIB,
      MemorySwap: 1024 * MIB,
      ShmSize: 512 * MIB,
      PidsLimit: 4096,
    })
    expect(HostConfig.SecurityOpt).toEqual(["no-new-privileges"])
    expect(HostConfig.RestartPolicy?.Name ?? "").not.toBe("always")
    await pass(launch, "docker", dataDir)
    await exit
    const log = (await gateway.logOf(launch)).toString()
    expect(log).toContain(`shm ${512 * 1024}\n`)
    expect(log).toMatch(/su: must be suid to work properly/)
    expect(log).not.toContain("uid=0 ")
    expect(limitsIn(log)).toEqual(await expectedLimits())
  })

  it("lets 4 processes share 2 GiB with a memory of 6 GiB", async () => {
    const engine = await engineOfSize(6.5 * 1024)
    const worker = "dd if=/dev/zero of=/dev/shm/$i bs=1M count=512 2>/dev/null || echo failed"
    const script = `for i in 1 2 3 4; do (busybox ${worker}) & done; wait; busybox du -sm /dev/shm`
    try {
      const { finish, log } = await runVm("docker", shell(script), { spec: await onVm(), dockerSocket: engine.socket })
      expect(finish).toMatchObject({ reason: "Succeeded" })
      expect(log).toBe("2048\t/dev/shm\n")
    } finally {
      await engine.close()
    }
  })

  it("ends out of its own memory when it fills /dev/shm beyond it, and says so even if its parent succeeds", async () => {
    const engine = await engineOfSize(64)
    const fill = "/bin/busybox dd if=/dev/zero of=/dev/shm/x bs=1M count=64"
    const options = { spec: await onVm(), dockerSocket: engine.socket }
    try {
      const { finish } = await runVm("docker", shell(`exec ${fill}`), options)
      expect(finish).toMatchObject({ reason: "ContainerFailed", exitCode: 137, cause: "OutOfMemory" })
      const memory = "exceeded its 56 MiB of memory; raise resources.memory"
      expect(finish?.message).toBe(`exit code 137 (SIGKILL): OOMKilled: a process of the container ${memory}`)
      const silent = await runVm("docker", shell(`${fill}; rm /dev/shm/x; echo went on`), options)
      expect(silent.log).toContain("went on\n")
      expect(silent.finish).toMatchObject({ reason: "Succeeded", exitCode: 0 })
      expect(silent.finish?.cause).toBeUndefined()
      expect(silent.finish?.message).toBe(
        `succeeded, but a process was killed for memory (OOMKilled): the container ${memory}`,
      )
    } finally {
      await engine.close()
    }
  })

  it("ends out of its own memory although its engine missed that, as with cgroup v2", async () => {
    const real = await engineOfSize(64)
    const engine = await engineWith(async (req, res) => {
      const [, id] = /\/containers\/([0-9a-f]+)\/json/.exec(req.url ?? "") ?? []
      if (id === undefined) return false
      const found = await docker.getContainer(id).inspect()
      const answer = { ...found, State: { ...found.State, OOMKilled: false } }
      res.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(answer))
      return true
    }, real.socket)
    try {
      const run = shell("exec /bin/busybox dd if=/dev/zero of=/dev/null bs=200M count=1")
      const { finish } = await runVm("docker", run, { spec: await onVm(), dockerSocket: engine.socket })
      expect(finish?.message).toMatch(/^exit code 137 \(SIGKILL\): OOMKilled: .* exceeded its 56 MiB of memory/)
      expect(finish?.cause).toBe("OutOfMemory")
    } finally {
      await engine.close()
      await real.close()
    }
  })

  it("names the signal that ended it", async () => {
    const { finish } = await runVm("docker", shell("kill -SEGV $$"))
    expect(finish).toMatchObject({ exitCode: 139, message: expect.stringMatching(/^exit code 139 \(SIGSEGV\); /) })
  })

  it("reports the last line of its last attempt: cut, as text, and without the values of secretEnv", async () => {
    const stringData = { token: "c4n4ry\nof two lines" }
    await fixture.client.create(SECRETS, {
      metadata: { name: "door", namespace: fixture.namespace },
      type: "berth.dev/env",
      stringData,
    } as unknown as Secret)
    const secretEnv = { TOKEN: { secret: "door", key: "token" } }
    const long = "head -c 102400 /dev/zero | tr '\\0' x".replace("tr", "busybox tr")
    const script = `printf 'key c4n4ry of two lines \\377 '; ${long}; exit 9`
    const { finish } = await runVm("docker", shell(script, { secretEnv, maxRetries: 1 }))
    expect(finish).toMatchObject({ reason: "ContainerFailed", exitCode: 9, message: "exit code 9" })
    expect(finish?.lastLine).toMatch(/^key \*\*\* \*\*\* \ufffd x+…$/)
    expect(Buffer.byteLength(finish?.lastLine ?? "")).toBe(256)
    const silent = await runVm("docker", shell("exit 9"))
    expect(silent.finish?.message).toBe("exit code 9")
    expect(silent.finish).not.toHaveProperty("lastLine")
  })

  it("has an init that reaps orphans, and takes SIGTERM for a command that doesn't", async () => {
    const launch = await fixture.launch(shell("for i in $(seq 20); do (sleep 0.1 &); done; exec sleep 1000"))
    const { exit } = await start(launch, { runtime: "docker" })
    await until("it has started", async () => (await fixture.agentOf(launch))?.startTime !== undefined)
    // A zombie is still listed.
    await until("the command runs and no orphan is left", async () => {
      const [init = "", ...others] = await commandsOf(launch)
      return init.startsWith("/sbin/docker-init -- sh -c") && others.join() === "sleep 1000"
    })
    await fixture.end(launch)
    expect((await exit).finish).toMatchObject({ reason: "Stopped", exitCode: 143, message: "stopped on request" })
  })

  it("runs as before on an engine without docker-init", async () => {
    const refused: string[] = []
    // The words of Docker's daemon/config/config_linux.go.
    const message = 'exec: "docker-init": executable file not found in $PATH'
    const engine = await engineWith(async (req, res) => {
      const [, id] = /\/containers\/([0-9a-f]+)\/start/.exec(req.url ?? "") ?? []
      if (id === undefined || (await docker.getContainer(id).inspect()).HostConfig.Init !== true) return false
      refused.push(id)
      res.writeHead(404, { "content-type": "application/json" }).end(JSON.stringify({ message }))
      return true
    })
    try {
      const run = shell("echo $$; exit 3", { maxRetries: 1 })
      const { finish, log } = await runVm("docker", run, { dockerSocket: engine.socket })
      expect(finish).toMatchObject({ reason: "ContainerFailed", exitCode: 3 })
      expect(log).toBe("1\n--- attempt 2 ---\n1\n")
      expect(refused.length).toBeLessThanOrEqual(2)
    } finally {
      await engine.close()
    }
  })

  it("is the first process if it has an init of its own, as that init demands", async () => {
    const script = "#!/bin/sh\n[ $$ = 1 ] || { echo 'fatal: can only run as pid 1'; exit 100; }\necho runs as $$\n"
    const s6 = await image([`FROM ${images?.tools}`, "COPY init /init", 'ENTRYPOINT ["/init"]'], { init: script })
    const { finish, log } = await runVm("docker", { image: s6 })
    expect(log).toMatch(/^runs as 1\n/)
    expect(finish).toMatchObject({ reason: "Succeeded" })
    const wrapped = await runVm("docker", { image: s6, command: ["sh", "-c", "exec /init"] })
    expect(wrapped.finish).toMatchObject({ reason: "Succeeded" })
  })

  tini.it("runs as before with tini, and is stopped by its image's stop signal", async () => {
    const program =
      "trap 'echo got QUIT; exit 4' QUIT; trap 'echo got TERM' TERM; echo parent $PPID; while :; do sleep 0.1; done"
    const own = await image(
      [`FROM ${images?.tools}`, "COPY tini /usr/bin/tini", 'ENTRYPOINT ["/usr/bin/tini", "--"]', "STOPSIGNAL QUIT"],
      { tini: await readFile(TINI) },
    )
    const launch = await fixture.launch({ image: own, args: ["sh", "-c", program] })
    const { exit } = await start(launch, { runtime: "docker" })
    await logShows(launch, "parent")
    await fixture.end(launch)
    expect((await exit).finish).toMatchObject({ reason: "Stopped", exitCode: 4 })
    // As a second process tini would warn that it reaps no orphans.
    expect((await gateway.logOf(launch)).toString()).toBe("parent 1\ngot QUIT\n")
  })

  /** Returns the output of a container that Berth knows nothing of. */
  async function plain(script: string, HostConfig: object = {}): Promise<string> {
    const container = await docker.createContainer({
      Image: images?.tools,
      Entrypoint: ["sh", "-c", script],
      HostConfig,
      Tty: true,
    })
    try {
      await container.start()
      await container.wait()
      return (await container.logs({ stdout: true, stderr: true })).toString().replaceAll("\r", "")
    } finally {
      await container.remove({ force: true })
    }
  }

  /** Returns the limits that an engine gives. Without CAP_SYS_RESOURCE it gives none but its own. */
  async function expectedLimits(): Promise<object> {
    try {
      await plain("true", { Ulimits: [{ Name: "memlock", Soft: -1, Hard: -1 }] })
      return { soft: LIMITS.soft, hard: { ...LIMITS.soft, ...LIMITS.hard } }
    } catch (error) {
      expect(String(error)).toMatch(/error setting rlimit.*operation not permitted/)
      return limitsIn(await plain("ulimit -a; echo hard; ulimit -H -a"))
    }
  }

  async function inspect(launch: StoredLaunch) {
    const [found] = await containersOf(launch)
    return await docker.getContainer(found?.Id ?? "").inspect()
  }

  async function commandsOf(launch: StoredLaunch): Promise<string[]> {
    const [found] = await containersOf(launch)
    const container = docker.getContainer(found?.Id ?? "")
    const { Processes } = (await container.top({ ps_args: "-eo pid,args" })) as { Processes: string[][] }
    return Processes.map(([, args = ""]) => args)
  }
})

/** Reads the two tables of `ulimit -a` and `ulimit -H -a`. */
function limitsIn(log: string): { soft: object; hard: object } {
  const [soft = "", hard = ""] = log.split("hard\n")
  const table = (text: string): object =>
    Object.fromEntries([...text.matchAll(/\(-(\w)\) (\S+)$/gm)].map(([, letter, value]) => [letter, value]))
  return { soft: table(soft), hard: table(hard) }
}
