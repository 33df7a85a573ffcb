import { once } from "node:events"
import { existsSync } from "node:fs"
import { readFile } from "node:fs/promises"
import { join } from "node:path"
import { beforeEach, describe, expect, it } from "vitest"
import { reusable } from "./handover.ts"
import { fixture, gateway, handover, newDisk, prepareAgents, shell, start, startProcess } from "./suite.ts"

prepareAgents()

beforeEach(() => {
  handover.onAsk = () => undefined
})

/** Changes of the disk from the stored finish on, in their order, as `CRASH_AT` names them. */
const CHANGES = [
  ["state.json 1", "the finish is stored"],
  ["rm 1", "the first file of the job is removed"],
  ["rm 2", "the next file of the job is removed"],
  ["state.json 2", "the VM is idle"],
  ["boot.json 1", "the VM is the next Launch's"],
  ["keys.json 1", "the next Launch has keys"],
  ["state.json 3", "the next Launch has a state"],
  ["state.json 4", "the next Launch has a runtime"],
  ["state.json 5", "the next Launch is registered"],
  ["state.json 6", "the next Launch has its order"],
] as const

const POINTS = CHANGES.flatMap(([change, what]) => [
  [`before ${change}`, what] as const,
  [`after ${change}`, what] as const,
])

/** Starts a VM with a job, and with another one that gets the VM after it. */
async function twoJobs() {
  const dataDir = await newDisk()
  const counts = await newDisk()
  const job = (name: string) => shell(`echo ${name}; echo run >> ${counts}/${name}`, { maxRetries: 2 })
  const first = await fixture.launch({ ...job("first"), ...reusable() })
  const second = await handover.successor(first, job("second"))
  const runs = async (name: string): Promise<number> =>
    (await readFile(join(counts, name), "utf8")).split("\n").length - 1
  return { dataDir, first, second, runs }
}

/** Expects that a new agent of the disk, with the VM's first user data, runs what is left to run, and only that. */
async function expectContinued({ dataDir, first, second, runs }: Awaited<ReturnType<typeof twoJobs>>): Promise<void> {
  // Otherwise the VM's script would take this for a VM on which no agent can run.
  expect(existsSync(join(dataDir, "keys.json"))).toBe(true)
  const { exit } = await start(first, { runtime: "process", dataDir })
  expect(await exit).toMatchObject({ launch: second.metadata.name, finish: { reason: "Succeeded" } })
  expect(await runs("first")).toBe(1)
  expect((await gateway.logOf(first)).toString()).toBe("first\n")
  expect((await gateway.logOf(second)).toString()).toContain("second\n")
  const [before, after] = await Promise.all([first, second].map((launch) => fixture.agentOf(launch)))
  expect(before).toMatchObject({ finish: { reason: "Succeeded" } })
  expect(after).toMatchObject({ finish: { reason: "Succeeded" } })
  expect(after?.signingKey).not.toBe(before?.signingKey)
  expect([before?.conflictTime, after?.conflictTime]).toEqual([undefined, undefined])
}

describe("an agent that is killed between two jobs continues with the right one", () => {
  it.each(POINTS)("%s: %s", async (point) => {
    const vm = await twoJobs()
    const preload = new URL("crash.ts", import.meta.url).pathname
    const agent = await startProcess(vm.first, "process", vm.dataDir, {
      ...{ node: ["--import", preload], env: { CRASH_AT: point } },
    })
    expect(await once(agent, "exit")).toEqual([null, "SIGKILL"])
    await expectContinued(vm)
  })

  it("it asks, so that the answer is lost", async () => {
    const vm = await twoJobs()
    const agent = await startProcess(vm.first, "process", vm.dataDir)
    const gone = once(agent, "exit")
    handover.onAsk = async ({ launch }) => {
      if (launch !== vm.first.metadata.name || agent.killed) return
      agent.kill("SIGKILL")
      await gone
    }
    expect(await gone).toEqual([null, "SIGKILL"])
    await expectContinued(vm)
  })
})
