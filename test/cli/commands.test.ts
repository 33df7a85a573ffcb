import { spawn } from "node:child_process"
import { once } from "node:events"
import { mkdtemp, rm, symlink, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { text } from "node:stream/consumers"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { usdText } from "../../src/cli/table.ts"
import { timestamp } from "../../src/core/apis/clock.ts"
import type { JobStatus } from "../../src/core/apis/job.ts"
import type { StoredJobArray } from "../../src/core/apis/jobarray.ts"
import { LABELS } from "../../src/core/apis/meta.ts"
import type { WebhookStatus } from "../../src/core/apis/webhook.ts"
import { claimsIn } from "../../src/core/protocol/machines.ts"
import { CONNECTIONS, JOB_ARRAYS, JOBS, LAUNCHES, PROJECTS, WEBHOOKS } from "../../src/core/resources.ts"
import { fixedOffers } from "../../src/market/catalogue/offers.ts"
import { ADVISED_OFFERS, measuredJob, measuredRuns } from "../console/sample.ts"
import { deleteKey, makeKey } from "../harness/api-keys.ts"
import { offerOf } from "../harness/builders.ts"
import { caller, created } from "../harness/caller.ts"
import { eventually } from "../harness/eventually.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { jobsOf, projectFixture, setStatus } from "../harness/facade-project.ts"
import { makeIdleVm } from "../harness/idle-vms.ts"
import { run, start } from "./command.ts"
import { type FaultyProxy, startFaultyProxy } from "./faulty-proxy.ts"

/** The commands against a real façade, behind a proxy that can fail. No operator runs: the tests write statuses. */
const fixture = projectFixture("cli-commands")
let replica: Replica
let proxy: FaultyProxy
let folder: string
const call = caller(() => replica, fixture)

beforeAll(async () => {
  replica = await startReplica({ settings: { defaultProject: fixture.project } })
  proxy = await startFaultyProxy(() => replica.port)
  folder = await mkdtemp(join(tmpdir(), "berth-cli-files-"))
})
afterAll(async () => {
  await proxy.close()
  await replica.close()
  await rm(folder, { recursive: true })
})

const environment = (key = fixture.keys.developer) => ({ BERTH_URL: proxy.url, BERTH_API_KEY: key })
const berth = (...argv: string[]) => run(argv, environment())
const berthWith = (input: string, ...argv: string[]) => run(argv, environment(), input)

/** Returns the length of the longest line. */
const widest = (text: string) => Math.max(...text.split("\n").map((line) => line.length))

const ended: JobStatus = { phase: "succeeded", exitCode: 0, completionTime: "2026-01-01T00:00:00Z" }

async function makeJob(body: object = {}): Promise<{ id: string; name: string }> {
  const { job_id, name } = await created(await call("/1/jobs", { body: { image: "a", ...body } }))
  return { id: job_id, name }
}

async function writeLog(id: string, text: string): Promise<void> {
  await replica.logStore.append({ job: { namespace: fixture.namespace, uid: id }, launch: 1 }, 0, Buffer.from(text))
}

it("every command has a help with examples", async () => {
  const names = (text: string) => [...text.matchAll(/^ {2}([a-z]+) .*$/gm)].map(([, name = ""]) => name)
  const commandsIn = (help: string) =>
    names(help.split("Commands:\n")[1]?.split("\n\n")[0] ?? "").filter((name) => name !== "help")
  /** Returns the flags that examples use and the command lacks. */
  const flagsOfExamples = (help: string) => {
    const [options = "", examples = ""] = help.split("Examples:\n")
    const own = [...examples.matchAll(/^ {2}(.*?) {2}/gm)].map(([, line = ""]) => line.split(" -- ")[0] ?? "")
    expect(own.length).toBeGreaterThan(0)
    return own.flatMap((line) => line.match(/ --?[a-z][-a-z]*/g) ?? []).filter((flag) => !options.includes(flag))
  }
  const look = async (path: string): Promise<string[]> => {
    const { code, out } = await berth(...path.split(" "), "--help")
    expect(code, path).toBe(0)
    const inner = commandsIn(out)
    if (inner.length === 0) expect(flagsOfExamples(out), path).toEqual([])
    return (await Promise.all(inner.map((name) => look(`${path} ${name}`)))).flat().concat(inner)
  }
  const { out } = await berth("--help")
  const found = (await Promise.all(commandsIn(out).map(look))).flat().concat(commandsIn(out))
  expect(found).toEqual(
    expect.arrayContaining(["run", "plan", "apply", "ps", "offers", "check", "pause", "rotate", "use"]),
  )
})

describe("run and plan", () => {
  it("plan shows what a job waits for, and ends with 4", async () => {
    const { code, out } = await berth("plan", "--image", "a", "--gpu", "H100")
    expect([code, out]).toEqual([4, expect.stringContaining("Would wait (NoConnection)")])
  })

  it("plan ends with 3 if nothing fits, and run submits nothing then", async () => {
    const before = (await jobsOf(fixture)).length
    expect((await berth("plan", "--image", "a", "--cpu", "9000")).code).toBe(3)
    expect((await berth("run", "--image", "a", "--cpu", "9000", "--detach", "--yes")).code).toBe(3)
    expect(await jobsOf(fixture)).toHaveLength(before)
  })

  it("run doesn't ask without a terminal: it names the flag, and submits nothing", async () => {
    const before = (await jobsOf(fixture)).length
    const { code, out, err } = await berth("run", "--image", "a", "--detach")
    expect([code, out]).toEqual([2, ""])
    expect(err).toContain("There is no terminal to ask: give --yes.")
    expect(await jobsOf(fixture)).toHaveLength(before)
  })

  it("run --idempotency-key submits once, a job or an array, and refuses another job for the key", async () => {
    const once = (key: string, ...more: string[]) =>
      berth("run", "--image", "a:1", "-d", "-y", "--idempotency-key", key, ...more)
    const [first, second] = [await once("job-once"), await once("job-once")]
    expect([first.code, second.code, second.out]).toEqual([0, 0, first.out])
    const [array, again] = [await once("array-once", "--array", "2"), await once("array-once", "--array", "2")]
    expect([array.code, again.code, again.out]).toEqual([0, 0, array.out])
    const named = ["--name", "named-once"]
    const [fresh, repeated] = [await once("named", ...named), await once("named", ...named)]
    expect([fresh.code, repeated.code, repeated.out]).toEqual([0, 0, "named-once\n"])
    expect((await once("other-key", ...named)).code).toBe(5)
    const other = await once("job-once", "--cpu", "2")
    expect([other.code, other.err]).toEqual([2, expect.stringContaining("was used with another body")])
    expect((await once("job-twice")).out).not.toBe(first.out)
  })

  it("run --detach prints only the name, and plan and progress go to standard error", async () => {
    const { code, out, err } = await berth(
      "run",
      "--image",
      "a:1",
      "--name",
      "detached",
      "-d",
      "-y",
      "--",
      "one",
      "two",
    )
    expect([code, out]).toEqual([0, "detached\n"])
    expect(err).toContain("Would wait")
    const [job] = (await jobsOf(fixture)).filter(({ metadata }) => metadata.name === "detached")
    expect(job?.spec).toMatchObject({ image: "a:1", args: ["one", "two"] })
  })

  it("run --detach --yes shows no plan: lines say what was submitted, what it waits for, and what it may cost", async () => {
    const { out, err } = await berth("run", "--image", "a", "--name", "quiet", "-d", "-y")
    expect(out).toBe("quiet\n")
    expect(err.trim().split("\n")).toEqual([
      expect.stringMatching(/^Would wait \(NoConnection\): /),
      expect.stringMatching(
        /^Warning: This job has no timeoutSeconds: it may run for 30 days and cost up to \$[\d.]+\. Set /,
      ),
      expect.stringMatching(/^Submitted quiet, for about \$[\d.]+\. Follow it: berth attach quiet$/),
    ])
  })

  it("rerun takes the flags of run: each replaces a part of the earlier job", async () => {
    await makeJob({ name: "earlier", image: "a:1", args: ["--epochs", "1"], resources: { cpu: 2 }, env: { A: "1" } })
    const dry = await berth("rerun", "earlier", "--gpu", "L4", "--dry-run", "--json")
    expect([dry.code, JSON.parse(dry.out)]).toEqual([4, expect.objectContaining({ dry_run: true })])
    const flags = ["--image", "a:2", "--cpu", "4", "-e", "B=2", "--timeout", "2h", "--name", "later", "-d", "-y"]
    expect(await berth("rerun", "earlier", ...flags, "--", "--epochs", "2")).toMatchObject({ code: 0, out: "later\n" })
    const job = (await jobsOf(fixture)).find(({ metadata }) => metadata.name === "later")
    expect(job?.spec).toMatchObject({
      ...{ image: "a:2", args: ["--epochs", "2"], env: { A: "1", B: "2" }, timeoutSeconds: 7200 },
      resources: { cpu: "4" },
    })
  })

  it("commands that read take the last job from here, and those that end something don't", async () => {
    const state = await mkdtemp(join(tmpdir(), "berth-state-"))
    const here = (...argv: string[]) => run(argv, { ...environment(), XDG_STATE_HOME: state })
    for (const argv of [["show"], ["logs"], ["wait"]]) {
      const { code, err } = await here(...argv)
      expect([code, err]).toEqual([2, expect.stringContaining("Nothing was submitted from here yet")])
    }
    await here("run", "--image", "a", "--name", "before", "-d", "-y")
    await here("run", "--image", "a", "--name", "newest", "-d", "-y")
    const { id } = JSON.parse((await here("show", "newest", "--json")).out)
    await writeLog(id, "its log\n")
    await setStatus(fixture, "newest", ended)
    await eventually(async () => expect((await here("show", "newest")).out).toContain("succeeded"))
    expect(await here("logs")).toMatchObject({ out: "its log\n", err: "The last job from here: newest\n" })
    expect(await here("attach")).toMatchObject({ code: 0, out: "its log\n" })
    expect((await here("wait")).out).toBe("newest succeeded\n")
    expect((await here("show")).out).toMatch(/^newest /)
    expect((await here("cancel")).code).toBe(2)
    expect((await here("rerun", "-d", "-y")).code).toBe(125)
    // Another project has its own.
    expect((await here("show", "--project", "another")).err).toContain("Nothing was submitted from here yet")
    await rm(state, { recursive: true })
  })

  it("--timestamps puts the stored times before the lines of a stored log, a followed one and an attached one", async () => {
    const { id, name } = await makeJob()
    const log = { job: { namespace: fixture.namespace, uid: id }, launch: 1 }
    const times = ["2026-11-24T10:00:00.500Z", "2026-11-24T10:07:00.000Z"] as const
    await replica.logStore.append(log, 0, Buffer.from("first\n"), [{ offset: 0, time: Date.parse(times[0]) }])
    expect((await berth("logs", name, "--timestamps")).out).toBe(`${times[0]} first\n`)
    const following = start(["logs", name, "-f", "--timestamps"], environment())
    await following.printed("first\n")
    await replica.logStore.append(log, 6, Buffer.from("\r1 %\r2 %"), [{ offset: 6, time: Date.parse(times[1]) }])
    await following.printed("2 %")
    await setStatus(fixture, name, ended)
    const out = `${times[0]} first\n${times[1]} \r1 %\r2 %\n`
    expect((await following.ended).out).toBe(out)
    expect(await berth("attach", name, "--timestamps")).toMatchObject({ code: 0, out })
    expect((await berth("logs", name, "--tail", "1", "--timestamps")).out).toBe(`${times[1]} \r1 %\r2 %\n`)
  })

  it("run --workdir uploads a folder once, and plan and a second run upload nothing", async () => {
    const code = await mkdtemp(join(tmpdir(), "berth-code-"))
    await writeFile(join(code, "train.py"), "print(1)\n")
    const args = ["--image", "a", "--workdir", `${code}:/srv/app`, "--tag", "workdir"]
    const puts = () => replica.logged().split('"method":"PUT"').length - 1
    expect((await berth("plan", ...args)).code).toBe(4)
    expect(puts()).toBe(0)
    const first = await berth("run", ...args, "-d", "-y")
    expect(first.err).toMatch(/Uploaded the workdir \(1 files, 0.0 MiB\)/)
    await eventually(() => expect(puts()).toBe(1))
    const second = await berth("run", ...args, "-d", "-y")
    expect(second.err).toContain("nothing was uploaded")
    expect([first.code, second.code]).toEqual([0, 0])
    const jobs = (await jobsOf(fixture)).filter(({ spec }) => spec.tags?.includes("workdir"))
    expect(jobs.map(({ spec }) => spec.workdir?.path)).toEqual(["/srv/app", "/srv/app"])
    expect(new Set(jobs.map(({ spec }) => spec.workdir?.sha256)).size).toBe(1)
    const again = await berth("rerun", jobs[0]?.metadata.name ?? "", "-d", "-y")
    expect(again.code).toBe(0)
    expect(puts()).toBe(1)
    await writeFile(join(code, "train.py"), "print(2)\n")
    expect((await berth("run", ...args, "-d", "-y")).err).toContain("Uploaded")
    await rm(code, { recursive: true })
  })

  it("run --workdir names a folder that is not there, or a link that leads out of it", async () => {
    const code = await mkdtemp(join(tmpdir(), "berth-code-"))
    await symlink("/usr/bin/python3", join(code, "python"))
    const args = ["--image", "a", "-d", "-y", "--workdir"]
    expect((await berth("run", ...args, code)).err).toContain("python is a link to /usr/bin/python3, outside")
    expect((await berth("run", ...args, join(code, "none"))).err).toContain("can't be read")
    await rm(code, { recursive: true })
  })

  it("run with a lost response creates one job", async () => {
    proxy.next("POST /1/jobs ", "lose the response")
    proxy.next(
      "POST /1/jobs",
      { status: 503, headers: { "retry-after": "0" } },
      "lose the response",
      "lose the response",
    )
    const { code } = await berth("run", "--image", "a", "--tag", "once", "-d", "-y")
    expect(code).toBe(0)
    expect((await jobsOf(fixture)).filter(({ spec }) => spec.tags?.includes("once"))).toHaveLength(1)
  })

  it.each<[string, JobStatus, number]>([
    ["0", ended, 0],
    ["7", { ...ended, phase: "failed", reason: "ContainerFailed", exitCode: 7 }, 7],
    ["137", { ...ended, phase: "failed", reason: "ContainerFailed", exitCode: 137 }, 137],
    ["124", { ...ended, phase: "failed", reason: "DeadlineExceeded", exitCode: 143 }, 124],
    ["125", { ...ended, phase: "failed", reason: "VMLost" }, 125],
  ])("attach ends with %s", async (_, status, code) => {
    const { id, name } = await makeJob()
    await writeLog(id, "the log\n")
    await setStatus(fixture, name, status)
    expect(await berth("attach", name)).toMatchObject({ code, out: "the log\n" })
  })

  it("attach and show end with the last line of a failed job, and with the end of its log", async () => {
    const { id, name } = await makeJob()
    const lines = Array.from({ length: 30 }, (_, index) => `line ${index + 1}`)
    await writeLog(id, `${lines.join("\n")}\n\x1b[31mValueError\x1b[0m: no data\n`)
    const failed = {
      ...ended,
      phase: "failed",
      reason: "ContainerFailed",
      message: "exit code 1",
      exitCode: 1,
    } as const
    await setStatus(fixture, name, { ...failed, startTime: "2026-01-01T00:00:00Z", lastLine: "ValueError: no data" })
    const why = "exit code 1: ValueError: no data"
    const tail = [...lines.slice(-19), "ValueError: no data"].map((line) => `  ${line}`).join("\n")
    const { err } = await berth("attach", name)
    expect(err).toContain(`The end of its log:\n${tail}\n${name}: failed, ${why}, ran for 0s`)
    const { out } = await berth("show", name)
    expect(out).toContain(`Message:  ${why}\n`)
    expect(out).toContain(`End of its log\n${tail}\n\n`)
    expect(JSON.parse((await berth("show", name, "--json")).out)).toMatchObject({
      error_message: why,
      message: "exit code 1",
    })
  })

  it("top prints what running jobs use, and one job's last minutes and peaks; show has the peaks of an ended one", async () => {
    const { id, name } = await makeJob()
    const placement = { offer: offerOf({ cpu: 8, memoryGib: 32 }), reason: "cheapest" }
    await setStatus(fixture, name, { phase: "running", placement, startTime: timestamp(new Date()) })
    const points = Array.from({ length: 3 }, (_, index) => ({
      ...{ time: Date.parse("2026-01-01T10:00:00Z") + index * 60_000, seconds: 60, cpu: index + 0.25 },
      ...{ memoryMib: 6400, gpu: 37.4, vramMib: 20_480, diskGib: 12 },
    }))
    await replica.usageStore.add({ namespace: fixture.namespace, uid: id }, 1, points)
    const { name: other } = await makeJob()
    await setStatus(fixture, other, { phase: "running", placement })
    const table = (await berth("top")).out
    expect(table).toMatch(/NAME +MACHINE +CPU +MEMORY GIB +GPU +VRAM GIB +SEEN +AGE +\$\/H/)
    expect(table).toMatch(new RegExp(`${name} +sim/\\S+ +2.3/8 +6.3/32 +37% +20 `))
    expect(table).toMatch(new RegExp(`${other} +sim/\\S+ {10}`))
    const { out } = await berth("top", name)
    expect(out).toContain("2.3 of 8 vCPUs (mean 1.3), 6.3 of 32 GiB memory, GPU 37.4 %, 20 GiB GPU memory, 12 GiB disk")
    expect(out).toMatch(/10:01 +1.3 +6.3 +37% +20 +12/)
    expect(JSON.parse((await berth("top", name, "--json")).out).points).toHaveLength(3)
    expect(JSON.parse((await berth("top", "--json")).out)).toContainEqual(
      expect.objectContaining({ name: other, usage: expect.objectContaining({ points: [], usage: null }) }),
    )
    expect((await berth("top", other)).out).toContain("No use is known.")
    const usage = { seconds: 180, cpuMean: 1.25, cpuPeak: 2.25, memoryPeakMib: 6400 }
    await setStatus(fixture, name, { ...ended, placement, usage })
    expect((await berth("show", name)).out).toContain("Used:     2.3 vCPUs (mean 1.3), 6.3 GiB memory\n")
  })

  it("attach --json prints the record on standard output, and the log on standard error", async () => {
    const { id, name } = await makeJob()
    await writeLog(id, "the log\n")
    await setStatus(fixture, name, { ...ended, phase: "failed", reason: "DeadlineExceeded", exitCode: 124 })
    const { out, err, code } = await berth("attach", name, "--json")
    expect(code).toBe(124)
    expect(JSON.parse(out)).toMatchObject({ name, reason: "DeadlineExceeded", exit_code: 124 })
    expect(err).toContain("the log\n")
  })

  it("Ctrl-C detaches: code 130, and the job runs on", async () => {
    const { id, name } = await makeJob()
    await writeLog(id, "first\n")
    const attached = start(["attach", name], environment())
    await attached.printed("first\n")
    attached.interrupt()
    const { code, err } = await attached.ended
    expect([code, err]).toEqual([130, expect.stringContaining(`Detached: ${name} runs on.`)])
    expect((await jobsOf(fixture)).find(({ metadata }) => metadata.name === name)?.spec.cancelled).not.toBe(true)
  })

  it("a signal that ends the command cancels the job with --cancel-on-exit", async () => {
    const { id, name } = await makeJob()
    await writeLog(id, "first\n")
    const attached = start(["attach", name, "--cancel-on-exit"], environment())
    await attached.printed("first\n")
    attached.interrupt()
    const { code, err } = await attached.ended
    expect([code, err]).toEqual([130, expect.stringContaining(`Cancelled ${name}, as --cancel-on-exit says.`)])
    expect((await jobsOf(fixture)).find(({ metadata }) => metadata.name === name)?.spec.cancelled).toBe(true)
  })

  it.each([
    ["SIGTERM", 143],
    ["SIGHUP", 129],
  ] as const)("%s says that the job runs on: code %d", async (signal, code) => {
    const { id, name } = await makeJob()
    await writeLog(id, "first\n")
    const main = join(import.meta.dirname, "..", "..", "src", "cli", "main.ts")
    const child = spawn(process.execPath, [main, "attach", name], { env: { ...process.env, ...environment() } })
    const err = text(child.stderr)
    await once(child.stdout, "data")
    child.kill(signal)
    const [ended] = (await once(child, "close")) as [number]
    expect([ended, await err]).toEqual([code, expect.stringContaining(`Detached: ${name} runs on.`)])
  })

  it("attached commands end with 125 for faults of their own", async () => {
    expect((await berth("attach", "unknown")).code).toBe(125)
    expect((await berth("run", "--image", "a")).code).toBe(125)
    expect((await berth("run", "--no-such-flag")).code).toBe(125)
    expect((await berth("run", "--image", "a", "--cpu", "9000", "--yes")).code).toBe(125)
  })

  it("rerun submits the job of a record with changes", async () => {
    const body = {
      name: "first",
      image: "a:2",
      command: ["x"],
      args: ["y"],
      env: { A: "1" },
      maxRetries: 1,
      labels: { l: "1" },
    }
    await makeJob({ ...body, resources: { cpu: 2, memory: "8Gi", gpu: "24Gi" } })
    const { code } = await berth(
      "rerun",
      "first",
      "--name",
      "second",
      "--set",
      "resources.gpu=L4",
      "--set",
      "env.A=2",
      "-d",
      "-y",
    )
    expect(code).toBe(0)
    const [second] = (await jobsOf(fixture)).filter(({ metadata }) => metadata.name === "second")
    const resources = { cpu: "2", memory: "8Gi", gpu: { model: "L4", count: 1 } }
    expect(second?.spec).toMatchObject({
      image: "a:2",
      command: ["x"],
      args: ["y"],
      env: { A: "2" },
      maxRetries: 1,
      resources,
    })
    expect(second?.spec.timeoutSeconds).toBeUndefined()
  })
})

describe("ps, show, logs, wait and cancel", () => {
  it("ps shows unfinished jobs, -a all, -q names, --json the records of the API", async () => {
    const done = await makeJob({ name: "ps-done", tags: ["ps"] })
    await setStatus(fixture, done.name, {
      ...ended,
      phase: "failed",
      reason: "ContainerFailed",
      exitCode: 3,
      cost: { actualUsd: 0.25 },
    })
    await makeJob({ name: "ps-waits", tags: ["ps"] })
    await setStatus(fixture, "ps-waits", { phase: "queued", reason: "NoConnection" })
    const shown = async (...argv: string[]) =>
      (await berth("ps", "--tag", "ps", ...argv)).out.replace(/ +\d+s$/gm, " AGE")
    expect(await shown()).toBe(
      "NAME      STATUS  WHY           MACHINE  $/H  COST  AGE\nps-waits  queued  NoConnection AGE\n",
    )
    expect(await shown("-a")).toBe(
      "NAME      STATUS  WHY           MACHINE  $/H   COST  AGE\nps-waits  queued  NoConnection AGE\nps-done   failed  exit code 3                 $0.25 AGE\n",
    )
    expect(await shown("-aq")).toBe("ps-waits\nps-done\n")
    const { jobs } = (await (await call("/1/jobs?tag=ps")).json()) as { jobs: object[] }
    expect(JSON.parse((await berth("ps", "-a", "--tag", "ps", "--json")).out)).toEqual(jobs)
    expect((await berth("ps", "-a", "--tag", "ps", "--limit", "1")).err).toContain("1 of 2 jobs; --limit 0 shows all.")
  })

  it("ps finds a part of the name, and sorts over all statuses", async () => {
    const [from, to] = ["2026-02-01T00:00:00Z", "2026-02-01T01:00:00Z"]
    const costs = { "by-part-c": 0.5, "by-part-a": 2, "by-part-d": undefined, "by-part-b": 1 }
    for (const [name, actualUsd] of Object.entries(costs)) {
      await makeJob({ name })
      if (actualUsd === undefined) continue
      const phase = name === "by-part-a" ? "running" : "succeeded"
      const hourly = { machineUsd: 1, diskUsd: 0, addressUsd: 0 }
      const times = { startTime: from, ...(phase === "succeeded" && { completionTime: to }) }
      await setStatus(fixture, name, { phase, cost: { hourly, actualUsd }, ...times })
    }
    const shown = async (...argv: string[]) =>
      (await berth("ps", "-q", "--name", "y-part", ...argv)).out
        .trim()
        .split("\n")
        .map((name) => name.slice(-1))
        .join("")
    await eventually(async () => expect(await shown("-a", "--status", "succeeded", "--sort", "name")).toBe("bc"))
    expect(await shown("-a", "--sort", "name")).toBe("abcd")
    // The unfinished ones are two lists, one for each status.
    expect(await shown("--sort", "cost")).toBe("ad")
    expect(await shown("-a", "--sort", "cost")).toBe("abcd")
    expect(await shown("-a", "--sort", "run_time")).toBe("abcd")
    expect(await shown("-a", "--sort", "created_at")).toBe("bdac")
    expect(await shown("-a", "--sort", "cost", "--limit", "2")).toBe("ab")
    for (const wrong of [
      ["--sort", "size"],
      ["-w", "--sort", "name"],
    ]) {
      const { code, err } = await berth("ps", ...wrong)
      expect(code).not.toBe(0)
      expect(err).toContain("--sort")
    }
  })

  it("ps gives a pipe all jobs, whatever their number", async () => {
    await Promise.all(Array.from({ length: 57 }, () => makeJob({ tags: ["many"] })))
    const listed = await berth("ps", "-a", "--tag", "many", "--json")
    expect([JSON.parse(listed.out).length, listed.err]).toEqual([57, ""])
    expect((await berth("ps", "-a", "-q", "--tag", "many")).out.trim().split("\n")).toHaveLength(57)
    const some = await berth("ps", "-a", "--tag", "many", "--limit", "5", "--json")
    expect([JSON.parse(some.out).length, some.err]).toEqual([5, expect.stringContaining("5 of 57 jobs")])
  })

  it("ps -w shows each change, ends included, and reads the list once", async () => {
    const lists = () => proxy.requests.filter((line) => line.startsWith("GET /1/jobs?")).length
    await makeJob({ name: "watched-1", tags: ["watched"] })
    const before = lists()
    const watching = start(["ps", "-w", "--tag", "watched"], environment())
    await watching.printed("watched-1")
    await makeJob({ name: "watched-2", tags: ["watched"] })
    await makeJob({ name: "not-watched" })
    await watching.printed("watched-2")
    await setStatus(fixture, "watched-1", { ...ended, phase: "failed", reason: "ContainerFailed", exitCode: 3 })
    await watching.printed("exit code 3")
    watching.interrupt()
    const { code, out } = await watching.ended
    expect([code, out]).toEqual([130, expect.not.stringContaining("not-watched")])
    // One for each status, at the beginning and after the reset of a new stream.
    expect(lists() - before).toBeLessThanOrEqual(6)
  })

  it.each([404, 429])("ps -w and wait work with an API that answers %d for its stream of events", async (status) => {
    const { name } = await makeJob({ tags: [`polled-${status}`] })
    for (let count = 0; count < 20; count++) proxy.next("GET /1/events", { status, headers: { "retry-after": "3600" } })
    const watching = start(["ps", "-w", "--tag", `polled-${status}`], environment())
    await watching.printed(name)
    const waiting = start(["wait", name], environment())
    await setStatus(fixture, name, ended)
    expect(await waiting.ended).toMatchObject({ code: 0, out: `${name} succeeded\n` })
    watching.interrupt()
    expect((await watching.ended).code).toBe(130)
    proxy.forget()
  })

  it("show prints the story, without control characters of others", async () => {
    const { name } = await makeJob({ command: ["evil", "\u001b[2J"] })
    const { code, out } = await berth("show", name)
    expect([code, out]).toEqual([0, expect.stringContaining(`${name}  queued`)])
    expect(out).toContain("evil \\u001b[2J")
    expect(out).not.toContain("\u001b")
  })

  it("a followed log that is cut continues with the next byte", async () => {
    const { id, name } = await makeJob()
    const lines = Array.from({ length: 2000 }, (_, line) => `line ${line}\n`).join("")
    await writeLog(id, lines)
    await setStatus(fixture, name, ended)
    proxy.next(`/jobs/${id}/logs`, { cutAfter: 100 }, { cutAfter: 5000 }, { cutAfter: 0 })
    const { code, out, err } = await berth("logs", name, "-f")
    expect(code).toBe(0)
    expect(out).toBe(lines)
    expect(err).toContain("The log's connection was cut")
    proxy.next(`/jobs/${id}/logs?follow=true&tail=1000`, { cutAfter: 100 })
    expect((await berth("logs", name, "-f", "--tail", "1000")).out).toBe(lines.slice(lines.indexOf("line 1000\n")))
  })

  it("a key that is deleted while a log is followed ends it with 6", async () => {
    const { id, name } = await makeJob()
    await writeLog(id, "first\n")
    const key = await makeKey(fixture.client, fixture.namespace, "viewer", { name: "short-lived" })
    const following = start(["logs", name, "-f"], environment(key))
    await following.printed("first\n")
    await deleteKey(fixture.client, { namespace: fixture.namespace, name: "short-lived" })
    const { code, err } = await following.ended
    expect([code, err]).toEqual([6, expect.stringContaining("berth login")])
  })

  it("wait ends with 0 when all are as wanted, 1 if one isn't, 124 when the time is over", async () => {
    const [good, bad, late] = await Promise.all([makeJob(), makeJob(), makeJob()])
    await setStatus(fixture, good.name, ended)
    await setStatus(fixture, bad.name, { ...ended, phase: "failed", reason: "ContainerFailed", exitCode: 1 })
    expect(await berth("wait", good.name, bad.name)).toMatchObject({
      code: 0,
      out: `${good.name} succeeded\n${bad.name} failed\n`,
    })
    expect((await berth("wait", good.name, bad.name, "--for", "succeeded")).code).toBe(1)
    expect((await berth("wait", late.name, "--timeout", "1s")).code).toBe(124)
    proxy.next("GET /1/events", { cutAfter: 0 })
    const waiting = start(["wait", late.name, late.id], environment())
    await setStatus(fixture, late.name, ended)
    expect(await waiting.ended).toMatchObject({ code: 0, out: `${late.name} succeeded\n` })
  })

  it("cancel by label counts and needs --yes; by name it doesn't ask", async () => {
    const names = await Promise.all([1, 2, 3].map(async () => (await makeJob({ labels: { sweep: "7" } })).name))
    const cancelled = async () =>
      (await jobsOf(fixture)).filter(({ metadata, spec }) => names.includes(metadata.name) && spec.cancelled).length
    const refused = await berth("cancel", "--label", "sweep=7")
    expect([refused.code, refused.err]).toEqual([2, expect.stringContaining("Cancel 3 jobs? There is no terminal")])
    expect(await cancelled()).toBe(0)
    expect((await berth("cancel", names[0] ?? "")).out).toBe(`${names[0]} cancelled\n`)
    expect((await berth("cancel", "--label", "sweep=7", "--yes")).code).toBe(0)
    expect(await cancelled()).toBe(3)
    expect((await berth("cancel", "--label", "sweep=8", "--yes")).code).toBe(7)
    expect((await berth("cancel")).code).toBe(2)
  })
})

describe("offers", () => {
  it("lists prices without a connection, and ends with 3 if nothing fits", async () => {
    const { code, out } = await berth("offers", "--gpu", "L4", "--region", "eu", "--limit", "3")
    expect(code).toBe(0)
    expect(out).toMatch(/^CLOUD +MACHINE +REGION +vCPU +MEM +GPU +USD\/H\n(.* 1×L4 .*\n){3}$/)
    expect((await berth("offers", "--cpu", "9000")).code).toBe(3)
  })
})

describe("smoke", () => {
  it("prints the report on standard output and the progress on standard error, and ends with 1", async () => {
    const { code, out, err } = await berth("smoke", "--cloud", "local", "--only", "cpu", "gpu")
    expect([code, out]).toEqual([1, expect.stringMatching(/^# Smoke test of Berth 0\.0\.0 on local\n/)])
    expect(out).toContain("| gpu | **not run** |")
    expect(err).toMatch(/^cpu: .*\ngpu: /m)
  })

  it("says which connection is missing, in the API's words if a request is rejected", async () => {
    expect(await berth("smoke", "--cloud", "gcp", "--yes")).toMatchObject({
      code: 1,
      err: expect.stringContaining("no connection of type gcp: create one"),
    })
    expect((await run(["smoke", "--cloud", "local"], environment("wrong"))).code).toBe(6)
    expect((await berth("smoke", "--cloud", "local", "--minutes", "0")).err).toContain("from 1 to 99")
  })
})

describe("cost and budget", () => {
  it("print what was spent, for people and for programs", async () => {
    const empty = await berth("cost")
    expect([empty.code, empty.out]).toEqual([0, ""])
    expect(empty.err).toMatch(/^\$0 from \d{4}-\d\d-01 until before /)
    expect((await berth("cost", "--by", "label:team", "--csv")).out).toBe("label:team,cost_usd\n")
    expect((await berth("cost", "--focus")).out).toMatch(/^AvailabilityZone,BilledCost,/)
    const report = JSON.parse((await berth("cost", "--month", "2026-02", "--by", "cloud", "--json")).out)
    expect(report).toMatchObject({ from: "2026-02-01", to: "2026-03-01", by: "cloud", total_usd: 0 })
    expect((await berth("cost", "--month", "2026-13")).code).toBe(2)
    expect((await berth("cost", "--by", "color")).err).toContain("must be one of day, cloud")
  })

  it("list idle machines and end them, by the name of a job or a launch, or all", async () => {
    const none = await berth("idle", "ls")
    expect([none.code, none.out, none.err]).toEqual([0, "", "No machine waits for a job.\n"])
    expect((await berth("idle", "end", "--all", "--yes")).code).toBe(0)
    const jobs = ["idle-a", "idle-b", "idle-c"]
    for (const name of jobs) await makeJob({ name })
    const launches = await Promise.all(
      jobs.map((name) => makeIdleVm(fixture.client, { namespace: fixture.namespace, name })),
    )
    try {
      const { code, out } = await berth("idle", "ls")
      expect(code).toBe(0)
      expect(out).toMatch(/^JOB +MACHINE +REGION +\$\/H +IDLE +UNTIL \(UTC\) +COST\n/)
      for (const name of jobs) expect(out).toMatch(new RegExp(`^${name} +sim/.* 00:15:00 +\\$`, "m"))
      expect((await berth("idle", "ls", "-q")).out.split("\n").toSorted()).toEqual(
        ["", ...launches.map(({ metadata }) => metadata.name)].toSorted(),
      )
      expect((await berth("idle", "end")).code).toBe(2)
      expect((await berth("idle", "end", "idle-a", "--all")).code).toBe(2)
      expect((await berth("idle", "end", "idle-a")).err).toContain("There is no terminal to ask: give --yes.")
      const viewer = await run(["idle", "end", "idle-a", "--yes"], environment(fixture.keys.viewer))
      expect([viewer.code === 0, viewer.err]).toEqual([false, expect.stringContaining("needs the role developer")])
      expect((await berth("idle", "end", "idle-a", "--yes")).err).toBe("The idle machine of idle-a is ended.\n")
      expect((await berth("idle", "end", launches[1]?.metadata.name ?? "", "--yes")).code).toBe(0)
      expect((await berth("idle", "end", "--all", "--yes")).err).toBe("The idle machine of idle-c is ended.\n")
      const gone = await berth("idle", "end", "idle-c", "--yes")
      expect([gone.code, gone.err]).toEqual([1, "berth: No machine of idle-c waits for a job.\n"])
    } finally {
      await Promise.all(launches.map(({ metadata }) => fixture.client.delete(LAUNCHES, metadata)))
    }
  })

  it("print advice with the change to make, and say from when on there is some", async () => {
    const none = await berth("advice")
    expect([none.code, none.out, none.err]).toEqual([
      0,
      "",
      "No advice: it needs three measured runs that succeeded.\n",
    ])
    expect((await berth("advice", "--json")).out).toBe("[]\n")
    const advised = await startReplica({
      settings: { defaultProject: fixture.project },
      market: { offers: fixedOffers(ADVISED_OFFERS), launchAccounts: { of: () => [{ cloud: "aws" }] } },
    })
    try {
      await measuredRuns({ fixture, call }, "advised-etl")
      for (const number of [1, 2, 3])
        await measuredJob({ fixture, call }, `advised-${number}`, { image: "fit", resources: { cpu: 4 } })
      const access = { BERTH_URL: `http://127.0.0.1:${advised.port}`, BERTH_API_KEY: fixture.keys.viewer }
      await eventually(async () => {
        const { code, out } = await run(["advice"], access)
        expect(code).toBe(0)
        expect(out).toBe(`\
KIND     NAME         RUNS  NOW         BETTER      SAVES/MONTH   %
cronjob  advised-etl     4  m7g.xlarge  t4g.medium        $4.00  74
image    fit             3  m7g.xlarge  t4g.medium        $3.00  74

advised-etl: peak 0.3 of 4 vCPUs and 2.7 of 15.5 GiB in 4 runs: with cpu 0.4 and memory 3.5Gi t4g.medium instead of
  m7g.xlarge, $0.045 instead of $0.17/h, about $4 a month. Peaks shorter than 5 s are unseen.
  In the cronjob's definition: resources: {cpu: 0.4, memory: 3.5Gi}

fit: peak 0.3 of 4 vCPUs in 3 runs: with cpu 0.4 t4g.medium instead of m7g.xlarge, $0.045 instead of $0.17/h, about $3
  a month. Peaks shorter than 5 s are unseen.
  berth rerun advised-3 --cpu 0.4 --memory 3.5Gi
`)
      })
      expect((await run(["advice", "-q"], access)).out).toBe("advised-etl\nfit\n")
      expect(JSON.parse((await run(["advice", "--json"], access)).out)).toHaveLength(2)
    } finally {
      await advised.close()
    }
  })

  it("show the caps, and set only what was given", async () => {
    const merge = { spec: { caps: { maxMonthlyUsd: 90, onExceeded: "cancel" as const } } }
    await fixture.client.patch(PROJECTS, { name: fixture.project }, { merge })
    await eventually(async () => {
      const { out } = await berth("budget", "show")
      expect(out).toMatch(/^LEVEL +MONTH +SPENT +RESERVED +LEFT +THEN .*\nproject +\$90.00 +\$0 +\$0 +\$90.00 +cancel /)
    })
    // Another flag would not help: an API key may not set caps.
    for (const flags of [[], ["--monthly", "a lot"], ["--monthly", "90"]])
      expect(await berth("budget", "set", ...flags)).toMatchObject({ code: 6, err: expect.stringContaining("API key") })
  })
})

describe("arrays", () => {
  const stored = async (name: string) =>
    (await fixture.client.get(JOB_ARRAYS, { namespace: fixture.namespace, name })) as StoredJobArray

  it("run --array creates one with the combinations, and prints its name", async () => {
    const flags = ["--array", "lr=0.1,0.01 seed=1..3", "--parallelism", "4", "--max-failed", "2"]
    const argv = ["run", "--image", "a", "--name", "sweep", ...flags, "--detach", "--yes", "--", "python", "train.py"]
    expect(await berth(...argv)).toMatchObject({ code: 0, out: "sweep\n" })
    expect((await stored("sweep")).spec).toMatchObject({
      ...{ matrix: { lr: ["0.1", "0.01"], seed: ["1", "2", "3"] }, parallelism: 4, maxFailed: 2 },
      jobDefinition: { image: "a", args: ["python", "train.py"] },
    })
    expect((await berth("array", "ls")).out).toMatch(/sweep +queued +6 /)
    expect((await berth("array", "show", "sweep")).out).toContain("seed:        1, 2, 3")
  })

  it("plan --array and run --array name the sum, and what it counts", async () => {
    const job = ["--image", "a", "--cpu", "2", "--max-cost", "3", "--timeout", "1h", "--region", "eu"]
    const argv = [...job, "--array", "30"]
    const { out } = await berth("plan", ...argv)
    const plan = JSON.parse((await berth("plan", ...argv, "--json")).out)
    const each = JSON.parse((await berth("plan", ...job, "--json")).out)
    expect(plan.estimated_cost).toBeCloseTo(30 * each.estimated_cost, 5)
    const usd = (amount: number) => usdText(amount).replaceAll("$", "\\$")
    expect(out).toMatch(
      new RegExp(`30 jobs: ${usd(plan.estimated_cost)} expected in total, ${usd(each.estimated_cost)} each\\.`),
    )
    expect(out).toContain("a retry costs more.")
    expect(out).toMatch(/At most 10 at the same time: \$[\d.]+ an hour\./)
    expect(out).toContain("At most $90.00 in total, $3.00 for each job.")
    expect(widest(out)).toBeLessThanOrEqual(120)
    const asked = await berth("run", ...argv)
    expect(asked.err).toContain(`Submit 30 jobs for about ${usdText(plan.estimated_cost)} in total, and wait?`)
    expect((await berth("plan", "--image", "a", "--parallelism", "3")).err).toContain("need --array")
    const inBoth = JSON.parse((await berth("plan", ...argv, "--region", "us", "--json")).out)
    expect([inBoth.size, inBoth.estimated_cost <= plan.estimated_cost]).toEqual([30, true])
  })

  it("show has the failed values, logs the lines of each index, and both take the last array", async () => {
    const environment = { BERTH_URL: proxy.url, BERTH_API_KEY: fixture.keys.developer, XDG_STATE_HOME: folder }
    const here = (...argv: string[]) => run(argv, environment)
    await here("run", "--image", "a", "--name", "grid", "--array", "lr=0.1,0.01 seed=1..3", "-d", "-y")
    const { uid } = (await stored("grid")).metadata
    const { client, namespace } = fixture
    for (const [index, exitCode] of [0, 9, 0, 137].entries()) {
      const labels = { [LABELS.arrayUid]: uid, [LABELS.arrayIndex]: String(index) }
      const metadata = { name: `grid-${index}`, namespace, labels }
      const job = await client.create(JOBS, { metadata, spec: { image: "a" } } as never)
      await writeLog(job.metadata.uid, `loss ${index}\nno newline`)
      const failed: JobStatus = { ...ended, phase: "failed", reason: "ContainerFailed", exitCode }
      await setStatus(fixture, `grid-${index}`, exitCode === 0 ? ended : failed)
    }
    const status = { phase: "running" as const, succeededIndexes: "0,2", failedIndexes: "1,3-4" }
    await client.replaceStatus(JOB_ARRAYS, { ...(await stored("grid")), status })
    await eventually(async () => {
      const { out } = await here("show", "grid")
      expect(out).toMatch(/^ +1 +lr=0.1 seed=2 +grid-1 +9 +ContainerFailed$/m)
      expect(out).toMatch(/^ +3 +lr=0.01 seed=1 +grid-3 +137 +ContainerFailed$/m)
      expect(out).toMatch(/^ +4 +lr=0.01 seed=2 +grid-4 +its job is deleted$/m)
    })
    const lines = [0, 1, 2, 3].flatMap((index) => [`[${index}] loss ${index}`, `[${index}] no newline`])
    expect((await here("logs", "grid")).out).toBe(`${lines.join("\n")}\n`)
    expect((await here("logs", "grid", "--tail", "1")).out.split("\n")).toHaveLength(5)
    for (const argv of [["show"], ["array", "show"], ["logs"]]) {
      const last = await here(...argv)
      expect([last.code, last.out]).toEqual([0, (await here(...argv, "grid")).out])
      expect(last.err).toContain("The last array from here: grid")
    }
    expect((await here("wait")).err).toContain("berth array wait grid")
  })

  it("cancel takes the name of an array, and asks", async () => {
    await berth("run", "--image", "a", "--name", "stopped", "--array", "2", "-d", "-y")
    const { name } = await makeJob()
    expect((await berth("cancel", "stopped")).err).toContain("2 of its 2 jobs have not ended")
    expect((await stored("stopped")).spec.cancelled).not.toBe(true)
    const { code, out, err } = await berth("cancel", "stopped", name, "none", "--yes")
    expect([code, out]).toEqual([7, `${name} cancelled\n`])
    expect(err).toContain("none: ")
    expect((await stored("stopped")).spec.cancelled).toBe(true)
  })

  it("retry, scale and cancel change it", async () => {
    await berth("run", "--image", "a", "--name", "steps", "--array", "5", "-d", "-y")
    expect((await berth("array", "retry", "steps")).err).toContain("No index of steps has failed.")
    const early = await berth("array", "retry", "steps", "--indexes", "1-2")
    expect([early.code, early.err]).toEqual([5, expect.stringContaining("have not failed or been cancelled: 1-2")])
    const failed = { ...(await stored("steps")), status: { phase: "running" as const, failedIndexes: "1-3" } }
    await fixture.client.replaceStatus(JOB_ARRAYS, failed)
    await eventually(async () => expect((await berth("array", "retry", "steps", "--indexes", "1-2")).code).toBe(0))
    expect((await berth("array", "retry", "steps", "--indexes", "7")).code).toBe(2)
    expect((await berth("array", "scale", "steps", "3")).code).toBe(0)
    expect((await berth("array", "cancel", "steps")).code).toBe(2)
    expect((await berth("array", "cancel", "steps", "--yes")).code).toBe(0)
    const { size, parallelism, retry, cancelled } = (await stored("steps")).spec
    const spec = { size: 5, parallelism: 3, retry: { number: 1, indexes: "1-2" }, cancelled: true }
    expect({ size, parallelism, retry, cancelled }).toEqual(spec)
    expect((await berth("array", "show", "none")).code).toBe(7)
  })

  it("ps --array lists the jobs of one, and --watch follows them", async () => {
    await berth("run", "--image", "a", "--name", "follows", "--array", "3", "-d", "-y")
    const { uid } = (await stored("follows")).metadata
    const { client, namespace } = fixture
    const submit = (index: number) => {
      const labels = { [LABELS.arrayUid]: uid, [LABELS.arrayIndex]: String(index) }
      const metadata = { name: `follows-${index}`, namespace, labels }
      return client.create(JOBS, { metadata, spec: { image: "a" } } as never)
    }
    await submit(0)
    await makeJob({ name: "follows-none" })
    await eventually(async () => {
      for (const array of ["follows", uid]) {
        expect((await berth("ps", "--array", array, "-q")).out).toBe("follows-0\n")
      }
    })
    const watching = start(["ps", "-aw", "--array", "follows"], environment())
    await watching.printed("follows-0")
    await submit(1)
    await watching.printed("follows-1")
    await makeJob({ name: "follows-nothing" })
    await setStatus(fixture, "follows-0", { ...ended, phase: "failed", reason: "ContainerFailed", exitCode: 9 })
    await watching.printed("exit code 9")
    watching.interrupt()
    expect(await watching.ended).toMatchObject({ code: 130, out: expect.not.stringContaining("follows-no") })
    expect((await berth("ps", "-w", "--array", "none-such")).code).toBe(7)
  })

  it("run without --detach follows it to its end", async () => {
    const following = berth("run", "--image", "a", "--name", "ends", "--array", "2", "--yes")
    const { client, namespace } = fixture
    await eventually(() => stored("ends"))
    const counts = { pending: 0, queued: 0, booting: 0, running: 0, succeeded: 1, failed: 1, cancelled: 0 }
    const status = { phase: "failed", counts, costUsd: 0.5, completionTime: "2026-05-01T10:00:00Z" }
    await client.patchStatus(JOB_ARRAYS, { namespace, name: "ends" }, { merge: { status } })
    const { code, err } = await following
    expect(err).toContain("ends: failed, 1 succeeded, 1 failed, cost $0.50")
    expect(code).toBe(1)
  })

  it("apply creates one, changes its parallelism, and rejects another definition", async () => {
    const array = (parallelism: number, image = "a") =>
      `name: applied-array\nsize: 3\nparallelism: ${parallelism}\njob_definition: { image: ${image} }\n`
    const apply = (text: string) => berthWith(text, "apply", "-y", "-f", "-")
    expect((await apply(array(2))).out).toBe("array/applied-array created\n")
    expect((await apply(array(2))).out).toBe("array/applied-array unchanged\n")
    expect((await apply(array(5))).out).toBe("array/applied-array configured\n")
    const { code, err } = await apply(array(5, "b"))
    expect([code, err]).toEqual([5, expect.stringContaining("job_definition.image")])
  })
})

describe("jobs and arrays that wait for others", () => {
  const specOf = async (name: string) => (await jobsOf(fixture)).find(({ metadata }) => metadata.name === name)?.spec
  const runAfter = (name: string, ...flags: string[]) =>
    berth("run", "--image", "a", "--name", name, "--after", ...flags, "-d", "-y")

  it("run and plan take --after, and say what the job would wait for", async () => {
    const { code, out, err } = await runAfter("o-train", "o-prepare,array/o-sweep:ended")
    expect([code, out]).toEqual([0, "o-train\n"])
    expect(err).toContain("Would wait (JobMissing): o-prepare, array/o-sweep are not there yet.")
    expect((await specOf("o-train"))?.after).toEqual([
      { job: "o-prepare", outcome: "succeeded" },
      { array: "o-sweep", outcome: "ended" },
    ])
    const plan = await berth("plan", "--image", "a", "--after", "o-train")
    expect([plan.code, plan.out]).toEqual([4, expect.stringContaining("Would wait (WaitsForJob): waits for o-train")])
    expect((await runAfter("o-bad", "o-train:done")).code).toBe(2)
    await setStatus(fixture, (await makeJob({ name: "o-failed" })).name, { phase: "failed" })
    const failing = await runAfter("o-never", "o-failed")
    expect([failing.code, failing.err]).toEqual([3, expect.stringMatching(/Would fail \(DependencyFailed\)/)])
    expect(failing.err).not.toContain("berth offers")
  })

  it("run --array lets the array as a whole wait, and apply finds the same order", async () => {
    const flags = ["--image", "a", "--array", "2", "--name", "o-array", "--after", "o-prepare"]
    expect((await berth("run", ...flags, "-d", "-y")).out).toBe("o-array\n")
    const array = await fixture.client.get(JOB_ARRAYS, { namespace: fixture.namespace, name: "o-array" })
    expect(array.spec.after).toEqual([{ job: "o-prepare", outcome: "succeeded" }])
    const apply = (names: string) =>
      berthWith(
        `name: o-array\nsize: 2\nafter: [${names}]\njob_definition: { image: a }\n---\nname: o-applied\nimage: a\nafter: [${names}]`,
        ...["apply", "-y", "-f", "-"],
      )
    expect((await apply("{ job: o-prepare }")).out).toBe("array/o-array unchanged\njob/o-applied created\n")
    expect((await apply("{ job: o-prepare }")).out).toBe("array/o-array unchanged\njob/o-applied unchanged\n")
    const other = await apply("{ job: o-prepare, outcome: ended }")
    expect([other.code, other.out]).toEqual([5, ""])
    expect(other.err).toContain("the array exists with other values of after")
    expect(other.err).toContain("the job exists with other values of after")
  })

  it("rerun waits for nothing, unless --after says so", async () => {
    await makeJob({ name: "o-first", after: [{ job: "o-prepare" }] })
    await berth("rerun", "o-first", "--name", "o-again", "-d", "-y")
    expect((await specOf("o-again"))?.after).toBeUndefined()
    await berth("rerun", "o-first", "--name", "o-later", "--after", "o-first", "-d", "-y")
    expect((await specOf("o-later"))?.after).toEqual([{ job: "o-first", outcome: "succeeded" }])
  })

  it("ps and array ls find what names a job, and show says both directions", async () => {
    await makeJob({ name: "s-prepare" })
    await makeJob({ name: "s-train", after: [{ job: "s-prepare" }, { array: "s-none", outcome: "ended" }] })
    const array = { name: "s-array", size: 1, job_definition: { image: "a" }, after: [{ job: "s-train" }] }
    await call("/1/arrays", { body: array })
    expect((await berth("ps", "-q", "--after", "s-prepare")).out).toBe("s-train\n")
    expect((await berth("ps", "-q", "--after", "array/s-none")).out).toBe("s-train\n")
    expect((await berth("array", "ls", "-q", "--after", "s-train")).out).toBe("s-array\n")
    expect((await berth("array", "ls", "--after", "s-array")).err).toContain("No array names s-array.")
    expect((await berth("__complete", "--", "run", "--after", "s-t")).out).toBe("s-train\n")
    expect((await berth("__complete", "--", "plan", "--after", "array/s-")).out).toBe("array/s-array\n")
    const ofJob = (await berth("show", "s-train")).out
    expect(ofJob).toContain("  After:    s-prepare (waits), array/s-none:ended (waits)\n")
    expect(ofJob).toContain("  Before:   array/s-array\n")
    expect((await berth("show", "s-prepare")).out).toContain("  Before:   s-train, array/s-array\n")
    expect((await berth("array", "show", "s-array")).out).toMatch(/ After: +s-train \(waits\)\n/)
    expect((await berth("show", "s-array")).out).not.toContain("Before:")
  })

  it("cancel --and-dependents counts first, asks, and cancels all", async () => {
    await makeJob({ name: "c-prepare" })
    await makeJob({ name: "c-train", after: [{ job: "c-prepare" }] })
    const array = { name: "c-array", size: 1, job_definition: { image: "a" }, after: [{ job: "c-train" }] }
    await call("/1/arrays", { body: array })
    await makeJob({ name: "c-last", after: [{ array: "c-array", outcome: "ended" }] })
    const asked = await berth("cancel", "c-prepare", "--and-dependents")
    expect(asked.code).toBe(2)
    expect(asked.err).toContain(
      "Cancel c-prepare and 3 dependents (c-train, array/c-array, c-last)? There is no terminal to ask: give --yes.",
    )
    expect((await specOf("c-prepare"))?.cancelled).toBe(false)
    const { code, out, err } = await berth("cancel", "c-prepare", "--and-dependents", "--yes")
    expect([code, out]).toEqual([0, "c-prepare cancelled\n"])
    expect(err).toContain("Also cancelled: 3 dependents (c-train, array/c-array, c-last).")
    for (const name of ["c-prepare", "c-train", "c-last"]) expect((await specOf(name))?.cancelled, name).toBe(true)
    const ref = { namespace: fixture.namespace, name: "c-array" }
    expect((await fixture.client.get(JOB_ARRAYS, ref)).spec.cancelled).toBe(true)
    // A job for which nothing waits needs no question.
    await makeJob({ name: "c-alone" })
    expect(await berth("cancel", "c-alone", "--and-dependents")).toMatchObject({ code: 0, out: "c-alone cancelled\n" })
  })

  it("cancel --and-dependents takes arrays, several names, and says what it could not cancel", async () => {
    const array = { name: "d-array", size: 1, job_definition: { image: "a" } }
    await call("/1/arrays", { body: array })
    await makeJob({ name: "d-report", after: [{ array: "d-array" }] })
    await setStatus(fixture, (await makeJob({ name: "d-ended" })).name, ended)
    expect((await berth("cancel", "--tag", "t", "--and-dependents")).code).toBe(2)
    expect((await berth("cancel", "d-nothing", "--and-dependents")).code).toBe(7)
    const { code, out, err } = await berth("cancel", "d-ended", "d-array", "d-report", "--and-dependents", "--yes")
    expect([code, out]).toEqual([5, "d-array cancelled\nd-report cancelled\n"])
    expect(err).toContain("d-ended: The job d-ended has already succeeded")
    expect((await specOf("d-report"))?.cancelled).toBe(true)
    await call("/1/arrays", { body: { ...array, name: "e-array" } })
    await makeJob({ name: "e-report", after: [{ array: "e-array" }] })
    const ofArray = await berth("array", "cancel", "e-array", "--and-dependents", "--yes")
    expect([ofArray.code, ofArray.err]).toEqual([
      0,
      expect.stringContaining("The array e-array is cancelled with 1 dependent (e-report)."),
    ])
    expect((await specOf("e-report"))?.cancelled).toBe(true)
  })
})

describe("apply", () => {
  it("creates, then finds nothing to change; a job that differs is a conflict", async () => {
    const file = join(folder, "objects.yaml")
    const job = (image: string) => `
apiVersion: berth.dev/v1alpha1
kind: Job
metadata: { name: applied }
spec: { image: ${image}, resources: { cpu: 500m }, env: { A: "1" }, region: [eu] }`
    const cron = (image: string) =>
      `---\nname: applied-cron\ncron_spec: "0 3 * * *"\njob_definition: { image: ${image} }\n`
    const apply = async (text: string) => {
      await writeFile(file, text)
      return berth("apply", "-y", "-f", file)
    }
    expect(await apply(`${job("a")}\n${cron("a")}`)).toMatchObject({
      code: 0,
      out: "job/applied created\ncronjob/applied-cron created\n",
    })
    expect((await apply(`${job("a")}\n${cron("a")}`)).out).toBe(
      "job/applied unchanged\ncronjob/applied-cron unchanged\n",
    )
    const { code, out, err } = await apply(`${job("b")}\n${cron("b")}`)
    expect([code, out]).toEqual([5, "cronjob/applied-cron configured\n"])
    expect(err).toContain("job/applied: the job exists with other values of image")
    expect(err).toContain("berth rerun applied")
  })

  it("finds nothing to change at a second time, whatever the file sets", async () => {
    const job =
      "{ image: a, terminationGraceSeconds: 30, maxPreemptions: 2, fallbackAfter: 1, provisioning: spotFirst, " +
      "retryRules: [{ exitCodes: [75, 100-119], action: newVm }, { reasons: [OutOfMemory], action: fail }], maxMemory: 8Gi, maxLostVms: 0, " +
      "resources: { gpu: null, memory: 2Gi }, secretEnv: { T: { secret: s, key: k } }, region: eu, timeoutSeconds: 600 }"
    const array = `name: twice-array\nmatrix: { b: ["2"], a: ["1"] }\njob_definition: ${job}`
    const text = `${job.replace("{ ", "{ name: twice, ")}\n---\n${array}\n---\nname: twice-cron\ncron_spec: "0 3 * * *"\njob_definition: ${job}\n`
    const names = ["job/twice", "array/twice-array", "cronjob/twice-cron"]
    const outcomes = (outcome: string) => names.map((name) => `${name} ${outcome}\n`).join("")
    expect(await berthWith(text, "apply", "-y", "-f", "-")).toMatchObject({ code: 0, out: outcomes("created") })
    expect(await berthWith(text, "apply", "-y", "-f", "-")).toMatchObject({ code: 0, out: outcomes("unchanged") })
  })

  it("refuses an object for the namespace of another project, and takes one for its own", async () => {
    const job = (namespace: string) =>
      `apiVersion: berth.dev/v1alpha1\nkind: Job\nmetadata: { name: placed, namespace: ${namespace} }\nspec: { image: a }`
    const { code, err } = await berthWith(job("elsewhere"), "apply", "-y", "-f", "-")
    expect([code, err]).toEqual([2, expect.stringContaining("job/placed is for the namespace elsewhere")])
    expect((await berth("show", "placed")).code).toBe(7)
    expect((await berthWith(job(fixture.namespace), "apply", "-y", "-f", "-")).out).toBe("job/placed created\n")
  })

  it("asks before it creates a job or an array, and doesn't ask without a terminal: it names the flag", async () => {
    const array = "name: asked-array\nsize: 2\njob_definition: { image: a, region: [eu], cloud: aws }"
    const { code, out, err } = await berthWith(`name: asked\nimage: a\n---\n${array}\n`, "apply", "-f", "-")
    expect([code, out]).toEqual([2, ""])
    expect(err).toMatch(/job\/asked:\n[\s\S]*array\/asked-array:\n[\s\S]*2 jobs: \$[.\d]+ expected in total/)
    expect(err).toContain("Create these 2? There is no terminal to ask: give --yes.")
    expect((await berth("show", "asked")).code).toBe(7)
    await makeJob({ name: "asked-before" })
    expect((await berthWith("name: asked-before\nimage: a\n", "apply", "-f", "-")).out).toBe(
      "job/asked-before unchanged\n",
    )
  })

  it("--dry-run continues after an error, says unchanged as apply does, and creates nothing", async () => {
    await makeJob({ name: "dry-same" })
    const array = "name: dry-array\nsize: 2\njob_definition: { image: a }"
    const text = `name: dry-same\nimage: b\n---\nname: dry-bad\nimage: a\nregion: mars\n---\n${array}\n---\nname: dry-same\nimage: a\n`
    const { code, out, err } = await berthWith(text, "apply", "-f", "-", "--dry-run")
    expect(code).toBe(2)
    expect(err).toContain("job/dry-same: the job exists with other values of image")
    expect(err).toContain('job/dry-bad: The job has one error:\n  region "mars" is unknown')
    expect(out).toMatch(
      /^array\/dry-array:\n[\s\S]*2 jobs: \$[.\d]+ expected in total[\s\S]*\njob\/dry-same unchanged\n$/,
    )
    expect((await call("/1/arrays/dry-array")).status).toBe(404)
  })

  it("--dry-run says of cronjobs, connections and webhooks what apply then does", async () => {
    const cron = (rest: string) => `name: foretold\ncron_spec: "@daily"\njob_definition: { image: a${rest} }`
    const bodies = [
      cron(", env: { A: b, C: d }, resources: { gpu: { model: L4 } }, region: [eu]"),
      cron(", env: { A: b }, resources: { gpu: { model: L4 } }, region: eu"),
      cron(", resources: { gpu: { model: L4, count: 1 } }"),
      cron(", resources: { gpu: { model: L4, count: 1 } }"),
      `${cron("")}\nconcurrency_policy: Forbid`,
      `${cron("")}\nconcurrency_policy: Forbid\nis_active: null`,
      "name: foretold\ntype: dockerhub\nusername: berth\ntoken: one",
      "name: foretold\ntype: dockerhub\nusername: berth\ntoken: one",
      "name: foretold\ntype: dockerhub\nusername: berth\ntoken: two",
      "name: foretold\nurl: https://hooks.example.com/\nevents: [job.failed]",
      "name: foretold\nurl: https://hooks.example.com/\nevents: [job.failed]",
      "name: foretold\nurl: https://hooks.example.com/\nevents: [job.failed, job.succeeded]",
    ]
    const outcomes: string[] = []
    for (const body of bodies) {
      const apply = (...flags: string[]) =>
        run(["apply", "-f", "-", ...flags], environment(fixture.keys.admin), `${body}\n`)
      const { code, out, err } = await apply("--dry-run")
      expect([code, err], body).toEqual([0, ""])
      expect(await apply("-y"), body).toMatchObject({ code: 0, out })
      outcomes.push(/ (\w+)\n$/.exec(out)?.[1] ?? out)
    }
    expect(outcomes.filter((_, index) => index < 6)).toEqual([
      "created",
      "configured",
      "configured",
      "unchanged",
      "configured",
      "unchanged",
    ])
    expect(outcomes.slice(6)).toEqual([
      ...["created", "unchanged", "configured"],
      ...["created", "unchanged", "configured"],
    ])
  })

  it("reports an error of REST in the words of the file", async () => {
    const cron = `apiVersion: berth.dev/v1alpha1\nkind: CronJob\nmetadata: { name: words }\nspec: { schedule: "@daily", jobDefinition: { image: a, region: [mars] } }`
    const { code, err } = await berthWith(cron, "apply", "-f", "-")
    expect([code, err]).toEqual([2, expect.stringMatching(/\n {2}spec\.jobDefinition\.region "mars" is unknown/)])
  })

  it("an error in one document changes nothing", async () => {
    const { code, err } = await berthWith("name: never\nimage: a\n---\nneither: that\n", "apply", "-y", "-f", "-")
    expect([code, err]).toEqual([2, expect.stringContaining("standard input, document 2 is not a job")])
    expect((await berth("show", "never")).code).toBe(7)
  })

  it("the API's errors name each field", async () => {
    const { code, err } = await berthWith("image: ''\nmaxRetries: -1\n", "apply", "-y", "-f", "-")
    expect(code).toBe(2)
    expect(err).toMatch(/\n {2}image must not be empty\n {2}maxRetries must be at least 0, not -1/)
  })
})

describe("machine", () => {
  const admin = (...argv: string[]) => run(argv, environment(fixture.keys.admin))

  it("join prints the one command for the host and until when it is valid, and --again another one", async () => {
    const made = await admin("machine", "join", "gpu-1", "--price", "0.2", "--region", "office", "--lease", "300")
    expect([made.code, made.err]).toEqual([0, expect.stringMatching(/once and before \d{4}-.*Z:\n/)])
    const tokenOf = (text: string) => claimsIn(/BERTH_JOIN_TOKEN='?([\w.-]+)/.exec(text)?.[1] ?? "")
    expect(made.out).toMatch(/^sudo docker run /m)
    expect(tokenOf(made.out)).toMatchObject({ name: "gpu-1", number: 1 })
    const again = await admin("machine", "join", "gpu-1", "--again", "--systemd")
    expect([again.code, again.out]).toEqual([0, expect.stringContaining("systemctl enable berth-machine")])
    expect(tokenOf(again.out)).toMatchObject({ name: "gpu-1", number: 2 })
    expect((await admin("machine", "join", "gpu-1", "--again", "--price", "1")).code).toBe(2)
    expect((await admin("machine", "join", "gpu-2", "--price", "cheap")).code).toBe(2)
    const { out } = await admin("machine", "join", "gpu-1", "--again", "--json")
    expect(JSON.parse(out)).toMatchObject({ name: "gpu-1", join: { token: expect.stringMatching(/^bmj1/) } })
  })

  it("ls, show, drain and remove", async () => {
    await admin("machine", "join", "gpu-3", "--price", "0.2")
    const list = await admin("machine", "ls")
    expect(list.out).toMatch(/gpu-3 +pending .* 0\.2/)
    expect((await admin("machine", "show", "gpu-3")).out).toContain("Host:      none has joined yet")
    expect((await admin("machine", "drain", "gpu-3")).err).toContain(
      "gets no job until berth machine drain gpu-3 --undo",
    )
    const isDrained = async () => JSON.parse((await admin("machine", "show", "gpu-3", "--json")).out).unschedulable
    expect(await isDrained()).toBe(true)
    await admin("machine", "drain", "gpu-3", "--undo")
    expect(await isDrained()).toBe(false)
    expect((await admin("machine", "remove", "gpu-3", "--yes")).code).toBe(0)
    expect((await admin("machine", "show", "gpu-3")).code).toBe(7)
  })
})

describe("webhook", () => {
  const admin = (...argv: string[]) => run(argv, environment(fixture.keys.admin))
  // Nothing listens there.
  const url = "http://127.0.0.1:2"

  it("add prints only the signing secret, ls the state, and test ends with 1 if nothing answers", async () => {
    const added = await admin(
      "webhook",
      "add",
      "build-bot",
      "--url",
      url,
      "--event",
      "job.failed",
      "--label",
      "team=ml",
    )
    expect([added.code, added.out]).toEqual([0, expect.stringMatching(/^whsec_[A-Za-z0-9+/=]+\n$/)])
    const list = await admin("webhook", "ls", "-o", "json")
    const listed = (JSON.parse(list.out) as { name: string }[]).find(({ name }) => name === "build-bot")
    expect(listed).toMatchObject({ events: ["job.failed"], labels: { team: "ml" }, url })
    const tested = await admin("webhook", "test", "build-bot")
    expect([tested.code, tested.out]).toEqual([1, ""])
    expect(tested.err).toContain("not accepted: the receiver refused the connection")
    expect((await admin("webhook", "deliveries", "build-bot")).code).toBe(0)
  })

  it("show prints the state and the deliveries, and its record to programs", async () => {
    await admin("webhook", "add", "shown-bot", "--url", url, "--tag", "nightly")
    const { client, namespace } = fixture
    const time = "2026-01-31T12:00:00Z"
    const delivery = { id: "1", type: "job.failed", subject: "jobs/train", time, attempts: 3, jobUid: "u" }
    const pending = [{ ...delivery, error: "the receiver answered 500" }]
    const status = { pending, pendingCount: 1, missedCount: 2, failingSince: time } as WebhookStatus
    await client.patchStatus(WEBHOOKS, { namespace, name: "shown-bot" }, { merge: { status } })
    await expect
      .poll(async () => (await admin("webhook", "show", "shown-bot")).out, { timeout: 10_000 })
      .toMatch(
        /Jobs with: nightly\n.*0 delivered, 1 pending, 2 missed\n[\s\S]*since 2026[\s\S]*jobs\/train .* answered 500/,
      )
    const { out } = await admin("webhook", "show", "shown-bot", "--json")
    expect(JSON.parse(out)).toMatchObject({ name: "shown-bot", pending_count: 1 })
    expect((await admin("webhook", "show", "missing")).code).toBe(7)
  })

  it("apply creates one without printing its secret, and changes what it sends", async () => {
    const apply = (events: string) =>
      run(
        ["apply", "-y", "-f", "-"],
        environment(fixture.keys.admin),
        `name: applied-bot\nurl: ${url}\nevents: [${events}]\n`,
      )
    const created = await apply("job.failed")
    expect([created.code, created.out]).toEqual([0, "webhook/applied-bot created\n"])
    expect(created.err).toContain("berth webhook rotate applied-bot prints a signing secret")
    expect(created.err).not.toContain("whsec_")
    expect((await apply("job.failed")).out).toBe("webhook/applied-bot unchanged\n")
    expect((await apply("job.*")).out).toBe("webhook/applied-bot configured\n")
    const { out } = await admin("webhook", "show", "applied-bot", "--json")
    expect(JSON.parse(out).events).toEqual(["job.*"])
  })

  it("rotate prints a new secret, and pause, enable and rm change the webhook", async () => {
    const { out: first } = await admin("webhook", "add", "other-bot", "--url", url)
    const { out: second } = await admin("webhook", "rotate", "other-bot")
    expect([second.startsWith("whsec_"), first === second]).toEqual([true, false])
    for (const [command, isActive] of [
      ["pause", false],
      ["enable", true],
    ] as const) {
      expect((await admin("webhook", command, "other-bot")).out).toBe("other-bot\n")
      const { out } = await admin("webhook", "ls", "--json")
      expect(JSON.parse(out).find(({ name }: { name: string }) => name === "other-bot").is_active).toBe(isActive)
    }
    expect((await admin("webhook", "rm", "other-bot", "--yes")).code).toBe(0)
    expect((await admin("webhook", "ls", "-q")).out).not.toContain("other-bot")
  })

  it("add --slack takes the address from standard input, and no command prints it", async () => {
    const address = "https://hooks.slack.com/services/T0/B0/hunter2"
    const argv = ["webhook", "add", "slack", "--slack", "--from-file", "-", "--json", "-v"]
    const outputs = [
      await run(argv, environment(fixture.keys.admin), address),
      await admin("webhook", "ls", "-o", "yaml"),
      await admin("webhook", "add", "wrong", "--slack", "--url", url),
    ]
    expect(outputs.map(({ code }) => code)).toEqual([0, 0, 2])
    for (const { out, err } of outputs) expect(out + err).not.toContain("hunter2")
  })
})

describe("no command", () => {
  it.each([
    ["run", "--image", "a", "--detach"],
    ["rerun", "asks", "--detach"],
    ["cancel", "--tag", "asks"],
    ["cron", "rm", "any"],
    ["array", "rm", "any"],
    ["connection", "rm", "any"],
    ["connection", "add", "aws", "any", "--access-key-id", "AKIA0"],
    ["webhook", "add", "any", "--slack"],
    ["webhook", "rm", "any"],
    ["key", "rm", "asks"],
  ])("asks without a terminal: %s %s", async (...argv) => {
    const { client, namespace } = fixture
    if (argv[0] !== "run") await berth("run", "--image", "a", "--name", "asks", "--tag", "asks", "-d", "-y")
    if (argv[0] === "key") await makeKey(client, namespace, "viewer", { name: "asks" })
    const { code, out, err } = await run(argv, environment(fixture.keys.admin))
    expect([code, out]).toEqual([2, ""])
    expect(err).toMatch(/there is no terminal to ask: give --/i)
  })

  it("prints a secret, or sends it anywhere but to its operation", async () => {
    const secret = "hunter2hunter2"
    const add = ["connection", "add", "aws", "silent", "--access-key-id", "AKIA0", "--from-file", "-", "-v", "--json"]
    const outputs = [
      await run(add, environment(fixture.keys.admin), secret),
      await run(
        ["connection", "rotate", "silent", "--access-key-id", "AKIA1", "--from-file", "-"],
        environment(fixture.keys.admin),
        secret,
      ),
      await run(["connection", "ls", "-o", "yaml"], environment(fixture.keys.admin)),
    ]
    expect(outputs.map(({ code }) => code)).toEqual([0, 0, 0])
    for (const { out, err } of outputs) expect(out + err).not.toContain(secret)
    expect(proxy.requests.join()).not.toContain(secret)
  })

  it("shows the prices of a connection in other words than its condition", async () => {
    const add = ["connection", "add", "aws", "priced", "--access-key-id", "AKIA0", "--from-file", "-"]
    expect((await run(add, environment(fixture.keys.admin), "hunter2hunter2")).code).toBe(0)
    const message = "AWS denies pricing:GetProducts; Berth uses the shipped spot prices of 2025-04-24"
    const { client, namespace } = fixture
    const stored = await client.get(CONNECTIONS, { namespace, name: "priced" })
    const condition = { type: "Prices", status: "False", reason: "Forbidden", message } as const
    const conditions = [{ ...condition, observedGeneration: 1, lastTransitionTime: timestamp(new Date()) }]
    await client.replaceStatus(CONNECTIONS, { ...stored, status: { conditions } })
    const shown = (...argv: string[]) => run(argv, environment(fixture.keys.admin))
    await eventually(async () => {
      const records = JSON.parse((await shown("connection", "ls", "--json")).out) as { name: string }[]
      expect(records.find(({ name }) => name === "priced")).toMatchObject({ conditions: [condition] })
    })
    expect((await shown("connection", "ls")).out).toMatch(/^priced +aws .* Forbidden /m)
    const { out, err } = await shown("check")
    expect(out + err).toContain(`priced (aws): ${message}`)
    expect(out + err).toMatch(/The prices of aws are .*on demand of 2025-04-24.*spot of 2025-04-24/)

    // `connection check` has the operator's answer, which this test gives.
    const ref = { namespace, name: "priced" }
    const checked = shown("connection", "check", "priced")
    await eventually(async () => {
      const request = (await client.get(CONNECTIONS, ref)).metadata.annotations?.["berth.dev/check-requested"]
      if (request === undefined) throw new Error("no request")
      const result = { reason: "Verified", message: "the credentials open aws 1", time: timestamp(new Date()) }
      const missing = ["ec2:RunInstances"]
      const vms = { status: "False" as const, reason: "PermissionsMissing", message: "AWS denies it", missing }
      const status = { lastCheck: { request, ...result }, capabilities: { vms } }
      await client.patchStatus(CONNECTIONS, ref, { merge: { status } })
    })
    expect(await checked).toMatchObject({
      code: 1,
      out: "Incomplete: the credentials open aws 1.\nMissing permissions: ec2:RunInstances.\nvms: PermissionsMissing, AWS denies it\n",
    })
  })

  it("prints a time without its zone", async () => {
    const cron = "name: zoned\ncron_spec: '0 3 * * *'\njob_definition: { image: a }\n"
    await berthWith(cron, "apply", "-y", "-f", "-")
    const { name } = await makeJob()
    await setStatus(fixture, name, ended)
    const commands = [["show", name], ["cron", "ls"], ["cron", "show", "zoned"], ["cron", "next", "zoned"], ["check"]]
    const outputs = await Promise.all(commands.map((argv) => run(argv, environment(fixture.keys.admin))))
    const times = outputs.flatMap(({ out, err }) => `${out}${err}`.match(/\d\d:\d\d(:\d\d)?(\.\d+)?\S?/g) ?? [])
    expect(times.length).toBeGreaterThan(8)
    for (const time of times) expect(time).toMatch(/Z$/)
  })
})

describe("failures of the API", () => {
  it.each([429, 503])("%d is waited out, for as long as Retry-After says", async (status) => {
    proxy.next("GET /1/jobs", { status, headers: { "retry-after": "1" } })
    const before = proxy.requests.length
    const { code, err } = await berth("ps", "--status", "running")
    expect([code, err]).toEqual([0, expect.stringContaining(`the API answered ${status}; trying again in 1 s`)])
    expect(proxy.requests.length - before).toBe(2)
  })

  it("a wait that is too long ends with 75, and says when to try again", async () => {
    proxy.next("GET /1/jobs", { status: 429, headers: { "retry-after": "3600" } })
    expect(await berth("ps", "--status", "running")).toMatchObject({
      code: 75,
      err: expect.stringContaining("Try again in 3600 s."),
    })
  })

  it("each command line, credential and name that is wrong has its exit code", async () => {
    expect((await berth("no-such-command")).code).toBe(2)
    expect((await berth("ps", "--no-such-flag")).code).toBe(2)
    expect((await run(["ps"], environment("wrong"))).code).toBe(6)
    expect((await run(["cancel", "any"], environment(fixture.keys.viewer))).code).toBe(6)
    expect((await berth("show", "unknown")).code).toBe(7)
    expect((await run(["ps"], { BERTH_URL: "http://127.0.0.1:1", BERTH_API_KEY: "k" })).code).toBe(75)
    expect((await run(["ps"], {})).code).toBe(2)
  })

  it("version prints the command's own without an API, and says why the API's is unknown", async () => {
    expect(await berth("version")).toMatchObject({
      code: 0,
      out: expect.stringMatching(/^berth 0\.0\.0, API \S+\n$/),
      err: "",
    })
    expect(await run(["version"], {})).toMatchObject({
      code: 0,
      out: "berth 0.0.0\n",
      err: expect.stringContaining("The API's version is unknown. There is no context."),
    })
    expect(await run(["version", "--json"], environment("wrong"))).toMatchObject({
      code: 0,
      out: expect.stringContaining('"api": null'),
      err: expect.stringContaining("The API's version is unknown. "),
    })
  })

  it("no command prints the key", async () => {
    const { developer } = fixture.keys
    const ended = await Promise.all([
      berth("ps", "-v"),
      berth("context", "show", "--json"),
      berth("show", "unknown", "-v"),
    ])
    for (const { out, err } of ended) expect(out + err).not.toContain(developer)
  })

  it("every request has an Idempotency-Key if it is a POST", () => {
    const posts = proxy.requests.filter((line) => line.startsWith("POST"))
    expect(posts.length).toBeGreaterThan(10)
    expect(proxy.keys).toHaveLength(posts.length)
  })
})
