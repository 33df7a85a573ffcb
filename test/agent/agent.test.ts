import { describe, expect, it } from "vitest"
import { processIdentity } from "../../src/agent/processes.ts"
import {
  agentSuite,
  containers,
  fixture,
  gateway,
  images,
  kill,
  logShows,
  newDisk,
  prepareAgents,
  runVm,
  shell,
  start,
  startProcess,
} from "./suite.ts"

prepareAgents()

describe("an agent with the process runtime", () => agentSuite("process"))

containers.it("an agent with the docker runtime runs a container to its end", async () => {
  const { log, finish } = await runVm("docker", { image: images?.distroless ?? "" })
  expect(finish?.reason).toBe("Succeeded")
  expect(log).toMatch(/^FROM scratch\n/)
})

describe("an agent that is killed", () => {
  it("ends its process, which no agent can adopt, and starts it again if a retry is left", async () => {
    const script = "if [ -e again ]; then exit 0; fi; touch again; sleep 300 & echo $! $$; wait"
    const launch = await fixture.launch(shell(script, { maxRetries: 1 }))
    const dataDir = await newDisk()
    const agent = await startProcess(launch, "process", dataDir)
    await logShows(launch, "\n")
    const processes = (await gateway.logOf(launch)).toString().trim().split(" ").map(Number)
    expect(processes.map(processIdentity)).toEqual([expect.any(String), expect.any(String)])
    await kill(agent)
    const { exit } = await start(launch, { runtime: "process", dataDir })
    expect((await exit).finish?.reason).toBe("Succeeded")
    expect(processes.map(processIdentity)).toEqual([undefined, undefined])
    expect(await fixture.agentOf(launch)).toMatchObject({ retryCount: 1, lastExitCode: 137 })
  })
})

describe("the process runtime", () => {
  it("rejects a job without a command and says what to do", async () => {
    const { finish } = await runVm("process", { image: "alpine" })
    expect(finish).toMatchObject({ reason: "ContainerFailed" })
    expect(finish?.message).toMatch(/no command, .*: Berth can't read the entrypoint of alpine/)
  })

  it("ends the whole process group together with its first process", async () => {
    const { log } = await runVm("process", shell("sleep 300 & echo $!; exit 0"))
    expect(processIdentity(Number.parseInt(log, 10))).toBeUndefined()
  })
})
