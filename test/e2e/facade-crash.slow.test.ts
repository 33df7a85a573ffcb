import { readFile } from "node:fs/promises"
import { join } from "node:path"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { kubeconfigPath } from "../control-plane.ts"
import { containerRuntime } from "../harness/container-runtime.ts"
import { eventually } from "../harness/eventually.ts"
import { gate, Installation } from "../harness/installation.ts"

const SCRIPT = gate(
  "for i in $(seq 1 40); do echo line $i; sleep 0.1; done",
  "for i in $(seq 41 2000); do echo line $i; done",
)
const WHOLE_LOG = Array.from({ length: 2000 }, (_, i) => `line ${i + 1}\n`).join("")

let berth: Installation

beforeAll(async () => {
  const runtime = await containerRuntime()
  berth = await Installation.create({ name: "facade", kubeconfig: kubeconfigPath(), runtime })
  await berth.startOperator()
})
afterAll(() => berth?.close())

/** Follows the log of a job until it contains the text, or to the stream's end. */
async function follow(job: string, text?: string): Promise<string> {
  const response = await berth.fetch(`/jobs/${job}/logs?follow=true`)
  expect(response.status).toBe(200)
  let log = ""
  for await (const piece of response.body?.pipeThrough(new TextDecoderStream()) ?? []) {
    log += piece
    if (text !== undefined && log.includes(text)) break
  }
  return log
}

describe("SIGKILL of the façade", { timeout: 200_000 }, () => {
  it("leaves the container running; its result and every line of its log arrive in order", async () => {
    await berth.submit("talker", SCRIPT)
    await berth.untilJobs("talker started", () => berth.job("talker").status?.startTime !== undefined)
    expect(WHOLE_LOG.startsWith(await follow("talker", "line 5\n"))).toBe(true)
    const [first] = berth.programs
    const [launch = ""] = await berth.vms()
    const agent = await berth.agentPid(launch)
    await first?.kill()

    const second = await berth.startFacade()
    expect(WHOLE_LOG.startsWith(await follow("talker", "line 40\n"))).toBe(true)
    await second.kill()
    await berth.openGate(launch)
    await eventually(async () => {
      expect(await readFile(join(berth.vmsDir, launch, "agent.log"), "utf8")).toMatch(/the run has ended/)
    }, 60)
    expect(berth.job("talker").status?.phase).toBe("running")
    expect(await berth.agentPid(launch)).toBe(agent)

    await berth.startFacade()
    expect(await follow("talker")).toBe(WHOLE_LOG)
    await berth.reached("succeeded", "talker")
    await berth.allOver()
    expect(await berth.log("talker")).toBe(WHOLE_LOG)
    expect(berth.job("talker").status).toMatchObject({ exitCode: 0, launches: { count: 1 } })
    expect(await berth.vms()).toEqual([launch])
    expect(await berth.runningOn()).toEqual([])
  })
})
