import { createHash, randomBytes } from "node:crypto"
import type Docker from "dockerode"
import { afterAll, beforeAll, expect } from "vitest"
import { DockerEntrance } from "../../src/agent/runtimes/docker-entrance.ts"
import type { Container } from "../../src/agent/runtimes/runtime.ts"
import type { Session } from "../../src/api/sessions/session.ts"
import { frameOf } from "../../src/core/apis/remote-command.ts"
import type { SessionTarget } from "../../src/core/protocol/sessions.ts"
import { buildImages, docker, missingForContainers, type TestImages } from "../agent/images.ts"
import { eventually } from "../harness/eventually.ts"
import { startGateway, type TestGateway } from "../harness/gateway.ts"
import { launchFixture } from "../harness/launches.ts"
import { needing } from "../needing.ts"
import { type Agent, accepted, asClient, closeAgent, type End, openAt, registeredAgent } from "./parties.ts"

const containers = needing(await missingForContainers())
const fixture = launchFixture("session-docker")
let images: TestImages
let replica: TestGateway
let agent: Agent
let container: Docker.Container

/** Runs a container that waits. */
async function waiting(image: string, command: Docker.ContainerCreateOptions): Promise<Docker.Container> {
  const created = await docker.createContainer({ Image: image, ...command })
  await created.start()
  return created
}

const NO_TOOLS = () => Promise.reject(new Error("no tools are needed"))

function enter(into: Docker.Container): () => void {
  return agent.sessions.admitTo({ entrance: new DockerEntrance(into, { toolbox: NO_TOOLS }) } as unknown as Container)
}

/** Opens a session, and connects its person and its agent. */
async function joined(exec: NonNullable<SessionTarget["exec"]>): Promise<{ session: Session; client: End }> {
  const session = await openAt(replica, agent.launch, { exec })
  const client = await accepted(asClient(replica, session))
  agent.sessions.join([session.facts.id])
  return { session, client }
}

function shell(script: string, tty = true): NonNullable<SessionTarget["exec"]> {
  return { command: ["sh", "-c", script], tty, ...(tty && { size: { columns: 80, rows: 24 } }) }
}

const lacks = (program: string) =>
  `the container has no program ${program}, or it can't be started. Without a shell in the image, \`berth debug\` has one`

const digest = (text: string) => createHash("sha256").update(text).digest("hex")

/** Sends a text in the pieces of a person's terminal, as fast as the other end takes them. */
async function paste({ socket }: End, text: string): Promise<void> {
  for (let start = 0; start < text.length; start += 4096)
    await new Promise((sent) => socket.send(frameOf("stdin", text.slice(start, start + 4096)), sent))
}

/** Commands that run in the container, but for the one that it was started with. */
async function commands(): Promise<string[]> {
  const { Processes } = (await container.top({ ps_args: "-eo pid,args" })) as { Processes: string[][] }
  return Processes.map((words) => words.slice(1).join(" ")).filter((command) => !command.includes("sleep 1000"))
}

/** One megabyte of lines that fit into a terminal's. */
const MEGABYTE = Array.from({ length: 16_384 }, () => `${randomBytes(31).toString("hex")}\n`).join("")

containers.describe("a session in a container", () => {
  beforeAll(async () => {
    images = await buildImages()
    replica = await startGateway(fixture)
    agent = await registeredAgent(replica, await fixture.launch({}))
    container = await waiting(images.tools, { Entrypoint: ["sleep", "1000"], Cmd: [], HostConfig: { Init: true } })
    enter(container)
  })
  afterAll(async () => {
    await closeAgent(agent)
    await container.remove({ force: true })
    await images.remove()
    await replica.close()
  })

  containers.it("gives the terminal the person's size, and the last one of many new ones", async () => {
    const until = (size: string) => `until [ "$(busybox stty size)" = "${size}" ]; do sleep 0.1; done; echo ${size}`
    const script = `${until("24 80")}; ${until("40 120")}; trap "exit 3" WINCH; echo set; while :; do sleep 0.1; done`
    const { client } = await joined(shell(script))
    await client.shows("24 80")
    for (let columns = 1; columns <= 120; columns++)
      client.socket.send(frameOf("resize", JSON.stringify({ columns, rows: 40 })))
    await client.shows("40 120")
    await client.shows("set")
    client.socket.send(frameOf("resize", '{"columns":1,"rows":10000}'))
    expect(await client.result()).toEqual({ exitCode: 3 })
  })

  containers.it("takes a paste of one megabyte, whole and in order, by a terminal", async () => {
    const { client } = await joined(shell("busybox stty -echo; echo ready; cat; echo end"))
    await client.shows("ready\r\n")
    await paste(client, MEGABYTE)
    client.type("\u0004")
    await client.shows("end\r\n")
    const pasted = client.output.replaceAll("\r\n", "\n").slice("ready\n".length, -"end\n".length)
    expect([pasted.length, digest(pasted)]).toEqual([MEGABYTE.length, digest(MEGABYTE)])
    expect(await client.result()).toEqual({ exitCode: 0 })
  })

  containers.it("takes one without a terminal", async () => {
    const { client } = await joined(shell("cat; echo end >&2", false))
    await paste(client, MEGABYTE)
    client.endInput()
    expect(await client.result()).toEqual({ exitCode: 0 })
    expect([client.output.length, digest(client.output)]).toEqual([MEGABYTE.length, digest(MEGABYTE)])
  })

  containers.it("is interrupted by Ctrl-C during a paste", async () => {
    const { client } = await joined(
      shell(
        'trap "echo interrupted" INT; busybox stty -echo; echo ready; cat >/dev/null; read rest; echo "then $rest"',
      ),
    )
    await client.shows("ready\r\n")
    await paste(client, MEGABYTE.slice(0, 300_000))
    client.type("\u0003")
    await client.shows("interrupted")
    client.type("typed\n")
    await client.shows("then typed")
    expect(await client.result()).toEqual({ exitCode: 0 })
  })

  containers.it("says which program an image without a shell lacks, and runs those that it has", async () => {
    const bare = await waiting(images.distroless, { Entrypoint: ["/cat"], Cmd: [], OpenStdin: true })
    const leave = enter(bare)
    const { client } = await joined({ command: ["sh"], tty: true })
    // Engines differ in 126 and 127.
    expect(await client.result()).toMatchObject({ error: lacks("sh") })
    const own = await joined({ command: ["/cat", "/greeting"], tty: false })
    expect(await own.client.result()).toEqual({ exitCode: 0 })
    expect(own.client.output).toContain("FROM scratch")
    const folder = await joined({ command: ["/"], tty: false })
    expect(await folder.client.result()).toMatchObject({ error: lacks("/") })
    leave()
    enter(container)
    await bare.remove({ force: true })
  })

  containers.it.each([
    ["without a terminal", false],
    ["with a terminal", true],
  ])("ends a shell %s whose person has left", async (_, tty) => {
    const { session, client } = await joined({ command: ["sh"], tty })
    client.type("echo here $((40 + 2))\n")
    await client.shows("here 42")
    expect(await commands()).toHaveLength(1)
    session.end("over")
    await client.closed
    await eventually(async () => expect(await commands()).toEqual([]), 20)
  })
})
