import { readFile } from "node:fs/promises"
import { afterAll, beforeAll, expect } from "vitest"
import type { StoredJob } from "../../src/core/apis/job.ts"
import { BUSYBOX, buildImage, docker } from "../agent/images.ts"
import { run, start } from "../cli/command.ts"
import { kubeconfigPath } from "../control-plane.ts"
import { containerRuntime } from "../harness/container-runtime.ts"
import { GATE_WAIT, Installation } from "../harness/installation.ts"
import { needing } from "../needing.ts"

const runtime = await containerRuntime()
const engineNeeded = needing(runtime.name === "docker" ? undefined : "no Docker engine answers")

/** Image with one static program and no shell. */
const DISTROLESS = "berth-test/distroless:debug"
const WAITS = ["/busybox-static", "sleep", "3600"]

let berth: Installation
let environment: Record<string, string>

const recordOf = async (job: string) =>
  (await (await berth.fetch(`/jobs/${job}`)).json()) as {
    status: string
    message: string
    vm_status: string
    kept_until: string | null
    accrued_cost: number
    actual_cost: number | null
  }

/** Submits a job whose container fails, and resolves when its VM is kept. */
async function keptJob(name: string, script: string, keepSeconds: number): Promise<StoredJob> {
  await berth.submit(name, script, { debug: { keepSeconds } })
  await berth.reached("failed", name)
  const job = berth.job(name)
  expect(job.status?.keptUntil, job.status?.message).toBeDefined()
  return job
}

const settled = (name: string) =>
  berth.untilJobs(
    `${name} settled`,
    () => berth.job(name).status?.settled === true && !berth.job(name).status?.keptUntil,
  )

/** Images and containers of a Launch on the engine. */
async function leftOf(launch: string): Promise<string[]> {
  const containers = await docker.listContainers({ all: true, filters: { label: [`berth.dev/launch=${launch}`] } })
  const images = await docker.listImages({ filters: { reference: [`berth-kept:${launch}`] } })
  return [...containers.flatMap(({ Names }) => Names), ...images.flatMap(({ RepoTags }) => RepoTags ?? [])]
}

engineNeeded.describe("a job's debugging", { timeout: 240_000 }, () => {
  beforeAll(async () => {
    const program = await readFile(BUSYBOX)
    await buildImage(DISTROLESS, { Dockerfile: "FROM scratch\nCOPY busybox-static /\n", "busybox-static": program })
    berth = await Installation.create({ name: "debug", kubeconfig: kubeconfigPath(), runtime, sessions: true })
    await berth.startOperator()
    environment = { BERTH_URL: berth.url, BERTH_API_KEY: berth.apiKey }
  })
  afterAll(async () => {
    await berth.close()
    await docker.getImage(DISTROLESS).remove({ force: true })
  })

  engineNeeded.it("keeps the VM of a failed job, and lets a person into a copy of its container", async () => {
    const job = await keptJob("fails", "echo evidence > /tmp/found; export A=1; exit 3", 3600)
    expect(job.status?.message).toMatch(
      /exit code 3; its VM is kept until \S+Z and costs up to \$\d+\.\d\d more: berth debug fails$/,
    )
    expect(await recordOf("fails")).toMatchObject({ status: "failed", vm_status: "running", actual_cost: null })
    const found = await run(["debug", "fails", "--", "cat", "/tmp/found"], environment)
    expect(found).toMatchObject({ code: 0, out: "evidence\n" })
    // Its files stay from one session to the next.
    await run(["debug", "fails", "--", "sh", "-c", "echo more >> /tmp/found"], environment)
    const again = await run(["debug", "fails", "--", "cat", "/tmp/found"], environment)
    expect(again).toMatchObject({ code: 0, out: "evidence\nmore\n" })
    const tools = await run(["debug", "fails", "--", "wc", "-l", "/tmp/found"], environment)
    expect(tools.out).toContain("2 /tmp/found")
    const [launch] = berth.launchesOf("fails")
    expect(await run(["debug", "fails", "--end"], environment)).toMatchObject({ code: 0 })
    await settled("fails")
    expect((await recordOf("fails")).actual_cost).toBeGreaterThan(0)
    expect(await leftOf(launch?.metadata.name ?? "")).toEqual([])
    const over = await run(["debug", "fails", "--end"], environment)
    expect(over.code).toBe(7)
    expect(over.err).toContain('The job "fails" keeps no VM')
  })

  engineNeeded.it("keeps no VM after a success, a cancellation, or beyond its budget", async () => {
    await berth.submit("succeeds", "true", { debug: { keepSeconds: 3600 } })
    await berth.submit("cancelled", GATE_WAIT, { debug: { keepSeconds: 3600 } })
    await berth.reached("running", "cancelled")
    await berth.fetch("/jobs/cancelled/cancel", { method: "POST" })
    await settled("succeeds")
    await settled("cancelled")
    expect(berth.job("cancelled").status).toMatchObject({ phase: "cancelled" })
  })

  engineNeeded.it("ends a kept VM by itself while no operator runs", async () => {
    await keptJob("alone", "exit 1", 15)
    const operators = berth.programs.filter(({ name, running }) => name === "operator" && running)
    for (const operator of operators) await berth.killOperator(operator)
    const [launch] = berth.launchesOf("alone")
    const name = launch?.metadata.name ?? ""
    await expect.poll(() => berth.runningOn([name]), { timeout: 60_000 }).toEqual([])
    await berth.startOperator()
    await settled("alone")
  })

  engineNeeded.it("offers tools beside a running container, and a shell where its image has none", async () => {
    await berth.submit("distroless", "", { image: DISTROLESS, command: WAITS, args: [] })
    await berth.reached("running", "distroless")
    const shell = await run(["exec", "distroless"], environment, "")
    expect(shell.code).toBeGreaterThanOrEqual(126)
    expect(shell.err).toContain("the container has no program sh")
    expect(shell.err).toContain("berth debug")
    const tools = await run(["debug", "distroless", "--", "sh", "-c", "ps; ls /proc/1/root; id -u"], environment)
    expect(tools.code, tools.err).toBe(0)
    expect(tools.out).toContain("/busybox-static sleep 3600")
    expect(tools.out).toMatch(/^busybox-static$/m)
    await berth.submit("distroless-fails", "", {
      image: DISTROLESS,
      command: ["/busybox-static", "false"],
      args: [],
      debug: { keepSeconds: 3600 },
    })
    await berth.reached("failed", "distroless-fails")
    const kept = await run(["debug", "distroless-fails"], environment, "ls /; exit 4\n")
    expect(kept.out).toMatch(/^busybox-static$/m)
    expect(kept.code).toBe(4)
    await run(["debug", "distroless-fails", "--end"], environment)
    await settled("distroless-fails")
  })

  engineNeeded.it("reaches a program that listens on 127.0.0.1 of its container", async () => {
    await berth.submit("local", "echo answer > /tmp/index.html; busybox httpd -f -p 127.0.0.1:7070 -h /tmp")
    await berth.reached("running", "local")
    const forward = start(["forward", "local", "0:7070"], environment)
    await forward.printed("is port 7070 of local")
    const port = Number(/127\.0\.0\.1:(\d+)/.exec(forward.out())?.[1])
    expect(await (await fetch(`http://127.0.0.1:${port}/`)).text()).toBe("answer\n")
    forward.interrupt()
    await forward.ended
  })
})
