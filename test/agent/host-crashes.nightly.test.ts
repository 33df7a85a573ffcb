import { once } from "node:events"
import { readFile } from "node:fs/promises"
import { join } from "node:path"
import { expect, it } from "vitest"
import { filesOf, ownMachine, prepareHosts, startHost, startHostProcess } from "./hosts.ts"
import { fixture, gateway, newDisk, prepareAgents, shell } from "./suite.ts"

prepareAgents()
prepareHosts()

/** Changes of the disk from the order on, as `CRASH_AT` names them. */
const CHANGES = [
  ['host-state.json "order"', "the order is stored"],
  ['keys.json "launch"', "the run has keys"],
  ['state.json "runtime"', "the run has a runtime"],
  ['state.json "registered":true', "the run is registered"],
  ['state.json "limits"', "the run has its order"],
  ['state.json "finishStored":true', "the finish is stored"],
  ['host-state.json "hasEnded"', "only the clean-up is left"],
  ["output", "the output is removed"],
  ['state.json "idleTime"', "the clean-up is checked"],
  ["run", "the run's folder is removed"],
  ['host-state.json "freed"', "the host is free"],
] as const

const POINTS = CHANGES.flatMap(([change, what]) => [
  [`before ${change}`, what] as const,
  [`after ${change}`, what] as const,
])

it.each(POINTS)("a host that is killed %s (%s) runs its job once, and is free", async (point) => {
  const machine = await ownMachine()
  const [dataDir, counts] = [await newDisk(), join(await newDisk(), "runs")]
  const launch = await machine.launch(shell(`echo said; echo run >> ${counts}`, { maxRetries: 2 }))
  const preload = new URL("host-crash.ts", import.meta.url).pathname
  const agent = startHostProcess("process", dataDir, {
    ...{ token: await machine.token(), node: ["--import", preload], env: { CRASH_AT: point } },
  })
  expect(await once(agent, "exit")).toEqual([null, "SIGKILL"])
  const { stop, exit } = await startHost({ runtime: "process", dataDir })
  await machine.freed(launch)
  expect(await readFile(counts, "utf8")).toBe("run\n")
  expect((await gateway.logOf(launch)).toString()).toBe("said\n")
  const agentOf = await fixture.agentOf(launch)
  expect(agentOf).toMatchObject({ finish: { reason: "Succeeded" } })
  expect(agentOf?.conflictTime).toBeUndefined()
  expect(await filesOf({ dataDir })).toEqual(["host-state.json", "host.json"])
  stop()
  await exit
})
