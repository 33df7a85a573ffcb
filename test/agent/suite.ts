import { type ChildProcess, execFileSync, spawn } from "node:child_process"
import { once } from "node:events"
import { existsSync } from "node:fs"
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { buffer } from "node:stream/consumers"
import type { RequestHandler } from "express"
import { pack } from "tar-stream"
import { afterAll, beforeAll, expect, it } from "vitest"
import { AgentBusyError } from "../../src/agent/disk.ts"
import { type AgentExit, type AgentOptions, runAgent } from "../../src/agent/main.ts"
import { LOST_BY_STORE } from "../../src/agent/report.ts"
import { engineAnswers } from "../../src/agent/runtimes/detect.ts"
import { ATTEMPT_LABEL } from "../../src/agent/runtimes/docker.ts"
import { gapLine, limitCause } from "../../src/agent/spool.ts"
import type { GatewayOptions } from "../../src/api/gateway/gateway.ts"
import { type Clock, systemClock } from "../../src/core/apis/clock.ts"
import type { Run } from "../../src/core/apis/job.ts"
import type { Finish, Launch, StoredLaunch } from "../../src/core/apis/launch.ts"
import { LAUNCHES } from "../../src/core/resources.ts"
import { until } from "../harness/eventually.ts"
import { startGateway, type TestGateway } from "../harness/gateway.ts"
import { type LaunchFixture, launchFixture } from "../harness/launches.ts"
import { silentLogger } from "../harness/silent-logger.ts"
import { needing } from "../needing.ts"
import { Handover } from "./handover.ts"
import { BUSYBOX, buildImages, containersOf, docker, missingForContainers, type TestImages } from "./images.ts"

const missing = await missingForContainers()
/** `describe` and `it` of tests that need a Docker engine. */
export const containers = needing(missing)

export let fixture: LaunchFixture
const disks: string[] = []
const agents: ChildProcess[] = []
export let gateway: TestGateway
/** Middleware before the gateway, for tests that set it. */
let intercept: RequestHandler | undefined
export let images: TestImages | undefined

/** Gives VMs whose jobs have `reuse` their next Launches. */
export const handover = new Handover(
  () => fixture,
  (launch) => gateway.userData(launch),
)

/** Prepares namespace, gateway and images for the tests of a file. @param parts further parts of the gateway */
export function prepareAgents(parts: Partial<GatewayOptions> = {}): void {
  fixture = launchFixture("agent")
  beforeAll(async () => {
    gateway = await startGateway(fixture, {
      parts,
      before: (req, res, next) => {
        const forward = (): void => void handover.handler(req, res, next)
        return intercept === undefined ? forward() : intercept(req, res, forward)
      },
    })
    if (missing === undefined) images = await buildImages()
  })
  afterAll(async () => {
    // Left by tests that failed.
    for (const child of agents) child.kill("SIGKILL")
    await gateway.close()
    await images?.remove()
    await Promise.all(disks.map((disk) => rm(disk, { recursive: true, force: true })))
  })
}

/** Lets a handler see all messages before the gateway does. */
export function interceptBy(handler: RequestHandler): void {
  intercept = handler
}

export async function newDisk(): Promise<string> {
  const disk = await mkdtemp(join(tmpdir(), "berth-agent-"))
  disks.push(disk)
  return disk
}

export type Kind = "docker" | "process"

/** Starts a VM's agent in this process. */
export async function start(launch: StoredLaunch, options: Partial<AgentOptions> & { runtime: Kind }) {
  const dataDir = options.dataDir ?? (await newDisk())
  const power = new AbortController()
  const exit = runAgent({
    userData: gateway.userData(launch),
    logger: silentLogger,
    signal: power.signal,
    ...options,
    dataDir,
  })
  // The test awaits it, perhaps only after another failure.
  exit.catch(() => undefined)
  return { dataDir, exit, shutDown: () => power.abort() }
}

/** Starts a VM's agent as a process of its own, which can be killed. */
export async function startProcess(
  launch: StoredLaunch,
  runtime: Kind,
  dataDir: string,
  { node = [], args = [], env = {} }: { node?: string[]; args?: string[]; env?: NodeJS.ProcessEnv } = {},
): Promise<ChildProcess> {
  await writeFile(join(dataDir, "user-data.json"), gateway.userData(launch))
  const own = ["src/main.ts", "agent", "--runtime", runtime, "--data-dir", dataDir]
  const child = spawn(process.execPath, [...node, ...own, ...args], {
    stdio: ["ignore", "ignore", "ignore"],
    env: { ...process.env, ...env },
  })
  agents.push(child)
  return child
}

export async function kill(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const gone = once(child, "exit")
  child.kill("SIGKILL")
  await gone
}

export function shell(script: string, more: Partial<Run> = {}): Partial<Run> {
  return { image: images?.tools ?? "none", command: ["sh", "-c", script], ...more }
}

/** Shell command that waits for `pass`. */
export const WAIT = "until [ -e go ]; do sleep 0.1; done; rm -f go"

/** Lets the waiting container of a VM continue. */
export async function pass(launch: StoredLaunch, runtime: Kind, dataDir: string): Promise<void> {
  if (runtime === "process") return await writeFile(join(dataDir, "work", "go"), "")
  const container = (await containersOf(launch)).find(({ Labels }) => ATTEMPT_LABEL in Labels)
  const archive = pack()
  archive.entry({ name: "go" }, "")
  archive.finalize()
  await docker.getContainer(container?.Id ?? "").putArchive(await buffer(archive), { path: "/" })
}

/** Returns the system's clock, which a test can advance by one hour, the lifetime of these Launches. */
function lifetimeClock(): { clock: Clock; expire: () => void; advance: (seconds: number) => void } {
  const far = new Set<() => void>()
  let ahead = 0
  const clock: Clock = {
    ...systemClock,
    monotonic: () => systemClock.monotonic() + ahead,
    setTimer: (seconds, callback) => {
      if (seconds < 3000) return systemClock.setTimer(seconds, callback)
      far.add(callback)
      return () => far.delete(callback)
    },
  }
  const expire = (): void => {
    ahead += 3600
    for (const callback of far) callback()
  }
  const advance = (seconds: number): void => {
    ahead += seconds
  }
  return { clock, expire, advance }
}

/** Runs a VM to its end. */
export async function runVm(
  runtime: Kind,
  run: Partial<Run>,
  options: Partial<AgentOptions> & { spec?: Partial<Launch["spec"]> } = {},
): Promise<{ launch: StoredLaunch; exit: AgentExit; log: string; finish: Finish | undefined }> {
  const { spec, ...rest } = options
  const launch = await fixture.launch(run, spec)
  const exit = await (await start(launch, { runtime, ...rest })).exit
  const log = (await gateway.logOf(launch)).toString()
  expect(await containersOfIfAny(launch)).toEqual([])
  return { launch, exit, log, finish: (await fixture.agentOf(launch))?.finish }
}

/** Returns the result that an agent has left on its disk. */
async function finishOnDisk(dataDir: string): Promise<Finish | undefined> {
  return (JSON.parse(await readFile(join(dataDir, "state.json"), "utf8")) as { finish?: Finish }).finish
}

async function containersOfIfAny(launch: StoredLaunch) {
  return (await engineAnswers()) ? await containersOf(launch) : []
}

export async function logShows(launch: StoredLaunch, text: string): Promise<void> {
  await until(`the log shows ${text}`, async () => (await gateway.logOf(launch)).includes(text))
}

/** Declares the tests that an agent passes with each runtime, without those of `agentLongSuite`. */
export function agentSuite(runtime: Kind): void {
  it("runs a container to its end, and reports its log and result", async () => {
    // The two pipes keep their order only if one is read before the other is written.
    const script = `printf first; ${WAIT}; echo to-stderr >&2; ${WAIT}; echo $GREETING; printf 'last byte'`
    const launch = await fixture.launch(shell(script, { env: { GREETING: "grüß dich" } }))
    const vm = await start(launch, { runtime })
    for (const piece of ["first", "to-stderr\n"]) {
      await logShows(launch, piece)
      await pass(launch, runtime, vm.dataDir)
    }
    const exit = await vm.exit
    expect(exit).toMatchObject({ cause: "finished", finish: { reason: "Succeeded", exitCode: 0 } })
    expect((await gateway.logOf(launch)).toString()).toBe("firstto-stderr\ngrüß dich\nlast byte")
    const status = await fixture.agentOf(launch)
    expect(status).toMatchObject({ runtime, retryCount: 0, finish: exit.finish })
    expect(Date.parse(status?.startTime ?? "")).toBeLessThanOrEqual(Date.parse(exit.finish?.time ?? "") + 1000)
    expect(status?.lastExitCode).toBeUndefined()
    expect(await containersOfIfAny(launch)).toEqual([])
  })

  it("gives the container its own environment and no variable of the agent", async () => {
    const env = { "WITH.DOT": "1", MULTI: "a\nb" }
    const { log } = await runVm(runtime, { ...shell(""), command: ["env"], env })
    expect(log).toContain("WITH.DOT=1\n")
    expect(log).toContain("MULTI=a\nb\n")
    for (const name of Object.keys(process.env)) {
      if (!["PATH", "HOME", "PWD", "SHLVL", "HOSTNAME", "_", "OLDPWD"].includes(name)) {
        expect(log).not.toContain(`\n${name}=`)
      }
    }
  })

  it("retries a failing container in one VM, then reports its exit code", async () => {
    const { log, finish, launch } = await runVm(runtime, shell("echo try; exit 7", { maxRetries: 2 }))
    expect(finish).toMatchObject({ reason: "ContainerFailed", exitCode: 7, message: "exit code 7", lastLine: "try" })
    expect(log).toBe("try\n--- attempt 2 ---\ntry\n--- attempt 3 ---\ntry\n")
    expect(await fixture.agentOf(launch)).toMatchObject({ retryCount: 2, lastExitCode: 7 })
  })

  it("reports a command that can't be started", async () => {
    const { finish, log } = await runVm(runtime, { ...shell(""), command: ["/no/such/program"] })
    expect(finish).toMatchObject({ reason: "ContainerFailed", exitCode: 127 })
    expect(finish?.message).toMatch(/^exit code 127 \(command not found\)/)
    expect(finish?.message).toMatch(/; use a program that the image has, for the VM's architecture$/)
    expect(`${finish?.message} ${log}`).toMatch(/\/no\/such\/program.*(No such file|ENOENT)/)
  })

  it("stops the container after the Launch has ended, and sends its last output", async () => {
    const launch = await fixture.launch(
      shell("trap 'echo bye; exit 0' TERM; echo began; while true; do sleep 0.1; done"),
    )
    const { exit } = await start(launch, { runtime })
    await logShows(launch, "began")
    await fixture.end(launch)
    expect(await exit).toMatchObject({ cause: "finished", finish: { reason: "Stopped", exitCode: 0 } })
    expect((await gateway.logOf(launch)).toString()).toBe("began\nbye\n")
    expect((await fixture.agentOf(launch))?.finish?.reason).toBe("Stopped")
    expect(await containersOfIfAny(launch)).toEqual([])
  })

  it("delivers binary output to the byte", async () => {
    const launch = await fixture.launch(
      shell(`cat ${runtime === "docker" ? BUSYBOX : process.execPath} | head -c 2000000`),
    )
    await (await start(launch, { runtime })).exit
    const original = (await readFile(runtime === "docker" ? BUSYBOX : process.execPath)).subarray(0, 2_000_000)
    expect((await gateway.logOf(launch)).equals(original)).toBe(true)
  })

  it("keeps beginning and end of output that comes faster than the gateway takes it, and counts the rest", async () => {
    const { log, finish } = await runVm(runtime, shell("seq 1 100000"), { spoolBytes: 64_000 })
    expect(finish?.reason).toBe("Succeeded")
    const all = Array.from({ length: 100_000 }, (_, index) => `${index + 1}\n`).join("")
    expect(log.slice(0, 64_000)).toBe(all.slice(0, 64_000))
    expect(log.slice(-1000)).toBe(all.slice(-1000))
    const gap = new RegExp(`\n--- (\\d+) bytes of the log are missing here: ${limitCause(64_000)} ---\n`, "g")
    const missing = [...log.matchAll(gap)].reduce((sum, [, bytes]) => sum + Number(bytes), 0)
    expect(missing + log.replaceAll(gap, "").length).toBe(all.length)
  })

  it("continues a log of which the gateway has lost what the VM no longer holds", async () => {
    const zeros = "head -c 300000 /dev/zero | tr '\\0' 0"
    const launch = await fixture.launch(shell(`${zeros}; echo one; ${WAIT}; ${zeros}; echo two; ${WAIT}; echo done`))
    const { exit, dataDir } = await start(launch, { runtime, spoolBytes: 400_000 })
    await logShows(launch, "one")
    await pass(launch, runtime, dataDir)
    await logShows(launch, "two")
    await gateway.logs.remove({ namespace: launch.spec.job.namespace, uid: launch.spec.job.uid })
    await pass(launch, runtime, dataDir)
    await exit
    const all = ["one\n", "two\n"].map((end) => "0".repeat(300_000) + end).join("")
    const [, lost] =
      /^\n--- (\d+) bytes of the log are missing here/.exec((await gateway.logOf(launch)).toString()) ?? []
    expect(Number(lost)).toBeGreaterThanOrEqual(200_000)
    expect((await gateway.logOf(launch)).toString()).toBe(
      `${gapLine(Number(lost), LOST_BY_STORE)}${all.slice(Number(lost))}done\n`,
    )
  })

  it("continues during an outage of the façade and reports the result afterwards", async () => {
    const launch = await fixture.launch(shell(`echo began; ${WAIT}; echo done`))
    const { exit, dataDir } = await start(launch, { runtime })
    await logShows(launch, "began")
    await gateway.stop()
    await pass(launch, runtime, dataDir)
    await until("the container ends", async () => (await finishOnDisk(dataDir)) !== undefined)
    expect(await containersOfIfAny(launch)).toEqual([])
    expect((await fixture.agentOf(launch))?.finish).toBeUndefined()
    const outageEnd = Date.now()
    await gateway.restart()
    expect(await exit).toMatchObject({ cause: "finished", finish: { reason: "Succeeded" } })
    expect((await gateway.logOf(launch)).toString()).toBe("began\ndone\n")
    // The times are those of the output, not of the end of the outage.
    const stamped = (await gateway.logOf(launch, { timestamps: true })).toString()
    const [, began = "", done = ""] = /^(\S{24}) began\n(\S{24}) done\n$/.exec(stamped) ?? []
    expect(Date.parse(began)).toBeLessThanOrEqual(Date.parse(done))
    expect(Date.parse(done)).toBeLessThanOrEqual(outageEnd)
    expect((await fixture.agentOf(launch))?.finish?.reason).toBe("Succeeded")
  })

  it("waits for a gateway that is not up yet", async () => {
    const launch = await fixture.launch(shell("echo done"))
    await gateway.stop()
    const { exit, dataDir } = await start(launch, { runtime })
    await until("the agent has made its disk", () => existsSync(join(dataDir, "state.json")))
    await gateway.restart()
    expect(await exit).toMatchObject({ cause: "finished", finish: { reason: "Succeeded" } })
  })

  it("kills the container when the gateway rejects the agent during the run", async () => {
    const launch = await fixture.launch(
      shell("trap 'echo bye; exit 0' TERM; echo began; while true; do sleep 0.1; done"),
    )
    const { exit } = await start(launch, { runtime })
    await logShows(launch, "began")
    const { name, namespace = "" } = launch.metadata
    await fixture.client.patchStatus(LAUNCHES, { namespace, name }, { merge: { status: { phase: "terminated" } } })
    expect((await exit).cause).toBe("refused")
    expect(await containersOfIfAny(launch)).toEqual([])
    expect((await fixture.agentOf(launch))?.finish).toBeUndefined()
  })

  it("reports the finish although the gateway never accepts the log", async () => {
    intercept = (req, res, next) => (req.path.endsWith("/logs") ? void res.status(500).end() : next())
    try {
      const { finish } = await runVm(runtime, shell("echo unheard"), { flushSeconds: 1 })
      expect(finish?.reason).toBe("Succeeded")
    } finally {
      intercept = undefined
    }
  })

  it("powers off without a container when its registration is rejected", async () => {
    const launch = await fixture.launch(shell("echo never"))
    // Replaces the whole token: a part of it may already have this character in its place.
    const wrong = (token: string): string => "x".repeat(token.length)
    const userData = gateway.userData(launch).replace(/(?<="bootstrapToken": ")[^"]+/, wrong)
    expect(userData).toContain("xxxxxxxx")
    const { exit } = await start(launch, { runtime, userData })
    expect((await exit).cause).toBe("refused")
    expect(await fixture.agentOf(launch)).toBeUndefined()
  })

  it("powers off without a container when a secret is missing", async () => {
    const { exit, log, finish } = await runVm(
      runtime,
      shell("echo never", { secretEnv: { A: { secret: "b", key: "c" } } }),
    )
    expect(exit.cause).toBe("refused")
    expect(finish?.reason).toBe("SecretMissing")
    expect(log).toBe("")
  })

  it("fails the job with volumes instead of running it without them", async () => {
    const volumes = { data: { bucket: "b", mountPath: "/data" } }
    const { finish, log } = await runVm(runtime, shell("echo never", { volumes }))
    expect(finish).toMatchObject({ reason: "VolumeMountFailed", message: "this installation opens no buckets" })
    expect(log).toBe("")
  })

  it("stops the container and reports it when its VM is shut down", async () => {
    const launch = await fixture.launch(
      shell("trap 'echo bye; exit 3' TERM; echo began; while true; do sleep 0.1; done"),
    )
    const { exit, shutDown } = await start(launch, { runtime })
    await logShows(launch, "began")
    shutDown()
    expect((await exit).finish).toMatchObject({ reason: "Stopped", exitCode: 3, message: "the VM was shut down" })
    expect((await fixture.agentOf(launch))?.finish?.message).toBe("the VM was shut down")
    expect((await gateway.logOf(launch)).toString()).toBe("began\nbye\n")
  })

  it("ends a VM that never reaches the gateway, long before the end of its lifetime", async () => {
    const launch = await fixture.launch(shell("echo never"))
    const { clock, advance } = lifetimeClock()
    await gateway.stop()
    const later = setInterval(() => advance(1801), 100)
    try {
      const { exit } = await start(launch, { runtime, clock })
      expect((await exit).cause).toBe("unreached")
      expect(await containersOfIfAny(launch)).toEqual([])
    } finally {
      clearInterval(later)
      await gateway.restart()
    }
  })

  it("runs one container when several agents start on one disk", async () => {
    const launch = await fixture.launch(shell(`echo began; ${WAIT}; echo done`))
    const first = await start(launch, { runtime })
    await logShows(launch, "began")
    for (let more = 0; more < 3; more++) {
      await expect((await start(launch, { runtime, dataDir: first.dataDir })).exit).rejects.toThrow(AgentBusyError)
    }
    await pass(launch, runtime, first.dataDir)
    expect(await first.exit).toMatchObject({ cause: "finished", finish: { reason: "Succeeded" } })
    expect((await gateway.logOf(launch)).toString()).toBe("began\ndone\n")
  })

  it("powers off a second VM of the same Launch, and the first continues", async () => {
    const launch = await fixture.launch(shell(`echo began; ${WAIT}; echo done`))
    const first = await start(launch, { runtime })
    await logShows(launch, "began")
    const second = await start(launch, { runtime })
    expect((await second.exit).cause).toBe("refused")
    expect((await fixture.agentOf(launch))?.conflictTime).toBeDefined()
    await pass(launch, runtime, first.dataDir)
    expect(await first.exit).toMatchObject({ cause: "finished", finish: { reason: "Succeeded" } })
    expect((await gateway.logOf(launch)).toString()).toBe("began\ndone\n")
  })

  it("reports once a result that an earlier agent has left on the disk", async () => {
    const launch = await fixture.launch(shell(`echo began; ${WAIT}; echo done`))
    const dataDir = await newDisk()
    const first = await startProcess(launch, runtime, dataDir)
    await logShows(launch, "began")
    await gateway.stop()
    await pass(launch, runtime, dataDir)
    await until("the result is on the disk", async () => (await finishOnDisk(dataDir)) !== undefined)
    await kill(first)
    await gateway.restart()
    const { exit } = await start(launch, { runtime, dataDir })
    expect(await exit).toMatchObject({ cause: "finished", finish: { reason: "Succeeded" } })
    expect((await gateway.logOf(launch)).toString()).toBe("began\ndone\n")
    const reports = gateway.answered.length
    expect((await (await start(launch, { runtime, dataDir })).exit).cause).toBe("finished")
    expect(gateway.answered.length).toBe(reports)
  })
}

/** Declares the tests of `agentSuite` that take several seconds each. */
export function agentLongSuite(runtime: Kind): void {
  it("kills a container after its timeout, with SIGKILL if SIGTERM has no effect", async () => {
    const run = shell("trap '' TERM; echo began; while true; do sleep 1; done", { timeoutSeconds: 4, maxRetries: 5 })
    const { finish, log } = await runVm(runtime, run, { stopGraceSeconds: 1 })
    const message =
      "the job exceeded its timeout of 4 s; it ignored SIGTERM for 1 s and was killed; raise timeoutSeconds if it needs longer"
    expect(finish).toMatchObject({ reason: "DeadlineExceeded", exitCode: 137, message })
    expect(log).toBe("began\n")
  })

  it("counts the timeout over all attempts", async () => {
    const { finish, launch } = await runVm(runtime, shell("exit 1", { timeoutSeconds: 8, maxRetries: 100 }))
    const message = "the job exceeded its timeout of 8 s; raise timeoutSeconds if it needs longer"
    expect(finish).toMatchObject({ reason: "DeadlineExceeded", message })
    expect(finish?.lastLine).toBeUndefined()
    expect((await fixture.agentOf(launch))?.retryCount).toBeGreaterThan(0)
  })

  it("delivers 10 MB of output to the byte", async () => {
    const { log } = await runVm(runtime, shell("seq 1 1500000"))
    const expected = `${Array.from({ length: 1_500_000 }, (_, index) => index + 1).join("\n")}\n`
    expect(log.length).toBe(expected.length)
    expect(log === expected).toBe(true)
  })

  it("sends a long log in large pieces", async () => {
    let large = 0
    intercept = (req, _res, next) => {
      if (Number(req.get("content-length")) > 130_000) large++
      next()
    }
    try {
      expect((await runVm(runtime, shell("head -c 3000000 /dev/zero"))).log).toHaveLength(3_000_000)
      expect(large).toBeGreaterThan(0)
    } finally {
      intercept = undefined
    }
  })

  it("ignores errors that a proxy sends", async () => {
    const launch = await fixture.launch(shell("echo began; sleep 4; echo done"))
    const { exit } = await start(launch, { runtime })
    await logShows(launch, "began")
    const statuses = [401, 403, 404, 409, 410, 422, 502]
    let answered = 0
    intercept = (_req, res) => void res.status(statuses[answered++ % statuses.length] ?? 500).send("<html>")
    await until("the proxy has answered everything once", () => answered >= statuses.length)
    intercept = undefined
    expect(await exit).toMatchObject({ cause: "finished", finish: { reason: "Succeeded" } })
    expect((await gateway.logOf(launch)).toString()).toBe("began\ndone\n")
  })

  it("reports the result of a container that ended just before the shutdown of its VM", async () => {
    const launch = await fixture.launch(shell("echo began; sleep 1; echo done"))
    const { exit, shutDown } = await start(launch, { runtime })
    await logShows(launch, "began")
    // Blocks this process, so that it doesn't notice the container's end.
    execFileSync("sleep", ["3"])
    shutDown()
    expect((await exit).finish).toMatchObject({ reason: "Succeeded", exitCode: 0 })
    expect((await gateway.logOf(launch)).toString()).toBe("began\ndone\n")
  })

  it.each([
    [
      "ends everything at the end of its lifetime, without a gateway",
      {},
      "expired",
      "DeadlineExceeded",
      "the VM reached the end of its lifetime of 3600 s",
    ],
    [
      "ends a VM without a control plane before the job costs more than its limit",
      { budgetSeconds: 3400 },
      "budget",
      "BudgetExceeded",
      "the VM ended after 3400 s, before the job costs more than its maxCostUsd",
    ],
  ])("%s", async (_title, spec, cause, reason, why) => {
    const launch = await fixture.launch(shell("trap '' TERM; echo began; while true; do sleep 0.1; done"), spec)
    const { clock, expire } = lifetimeClock()
    const { exit } = await start(launch, { runtime, clock, stopGraceSeconds: 1 })
    await logShows(launch, "began")
    await gateway.stop()
    try {
      expire()
      const message = `${why}; the container ignored SIGTERM for 1 s and was killed`
      expect(await exit).toMatchObject({ cause, finish: { reason, exitCode: 137, message } })
      expect(await containersOfIfAny(launch)).toEqual([])
    } finally {
      await gateway.restart()
    }
  })
}
