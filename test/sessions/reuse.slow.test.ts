import { afterAll, beforeAll, expect } from "vitest"
import type { StoredLaunch } from "../../src/core/apis/launch.ts"
import { reusable } from "../agent/handover.ts"
import { joinedHost, prepareHosts } from "../agent/hosts.ts"
import { containersOf } from "../agent/images.ts"
import {
  containers,
  fixture,
  gateway,
  handover,
  logShows,
  pass,
  prepareAgents,
  shell,
  start,
  WAIT,
} from "../agent/suite.ts"
import { accepted, asClient, openAt, script } from "./parties.ts"

prepareAgents()
prepareHosts()

let offer: StoredLaunch["spec"]["offer"]
beforeAll(async () => {
  // A VM of its own, not a part of this machine.
  offer = { ...(await fixture.launch({})).spec.offer, cloud: "aws" }
})
afterAll(() => {
  handover.refusal = undefined
})

/** Lets a person run a command in the container of a Launch, which the agent learns of by its next report. */
async function enter(launch: StoredLaunch): Promise<void> {
  const session = await openAt(gateway, launch, script("echo entered"))
  const client = await accepted(asClient(gateway, session))
  expect(await client.result()).toEqual({ exitCode: 0 })
  expect(client.output).toBe("entered\n")
}

containers.describe("a VM whose container a person has entered", () => {
  // A VM without a session would be cleaned: its agent would remove all that this engine has.
  containers.it("takes no other job, and says why", async () => {
    const launch = await fixture.launch({ ...shell(`echo up; ${WAIT}`), ...reusable() }, { offer })
    const vm = await start(launch, { runtime: "docker" })
    await logShows(launch, "up")
    await enter(launch)
    await pass(launch, "docker", vm.dataDir)
    await handover.idle(launch)
    expect(handover.of(launch)[0]?.unfit).toBe("a person was in the container by a session")
    vm.shutDown()
    expect((await vm.exit).finish).toMatchObject({ reason: "Succeeded" })
  })

  containers.it("takes the next job if it is an own machine, without the first one's container", async () => {
    const { machine, stop, exit } = await joinedHost({ runtime: "docker" })
    const launch = await machine.launch(shell(`echo up; ${WAIT}`))
    await logShows(launch, "up")
    await enter(launch)
    await pass(launch, "docker", "")
    await machine.freed(launch)
    expect(await containersOf(launch)).toEqual([])
    const next = await machine.launch(shell("echo next"))
    await machine.freed(next)
    expect((await fixture.agentOf(next))?.finish).toMatchObject({ reason: "Succeeded" })
    stop()
    await exit
  })
})
