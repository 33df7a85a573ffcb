import { once } from "node:events"
import { type AddressInfo, createServer } from "node:net"
import { describe, expect, it } from "vitest"
import { signMessage } from "../../src/core/protocol/messages.ts"
import { eventually } from "../harness/eventually.ts"
import { accepted, agent, asAgent, asClient, challengeOf, openAt, prepareParties, replica, script } from "./parties.ts"

prepareParties("session-ends")

describe("a session", () => {
  it("ends with its person, also before the agent has joined", async () => {
    const session = await openAt(replica, agent.launch, script("cat"))
    const client = await accepted(asClient(replica, session))
    client.socket.close(1000)
    expect(await session.ended).toBe("its person has left")
    await eventually(() => expect(replica.hub.ofJob(agent.launch.spec.job.uid)).toEqual([]))
  })

  it("keeps no agent that proves itself after the end", async () => {
    const { launch, keys } = agent
    const session = await openAt(replica, launch, script("cat"))
    const end = await accepted(asAgent(replica, { launch, session }))
    const about = { launch: launch.metadata.name, session: session.facts.id, stream: 0 }
    const proof = await signMessage("session", { ...about, challenge: await challengeOf(end) }, keys.signing)
    session.end("over")
    end.socket.send(proof)
    expect(await end.closed).toEqual([1000, "over"])
  })

  it("ends with its command, when all of its output has been read", async () => {
    const session = await openAt(replica, agent.launch, script("echo first; echo last; exit 3"))
    const client = await accepted(asClient(replica, session))
    agent.sessions.join([session.facts.id])
    expect(await client.result()).toEqual({ exitCode: 3 })
    expect(client.output).toBe("first\nlast\n")
    expect(await session.ended).toBe("the command has ended")
  })

  it("outlives the connections of a port", async () => {
    const server = createServer((socket) => socket.end("hello"))
    server.listen(0, "127.0.0.1")
    await once(server, "listening")
    const session = await openAt(replica, agent.launch, { port: (server.address() as AddressInfo).port })
    agent.sessions.join([session.facts.id])
    for (let count = 0; count < 3; count++) {
      const client = await accepted(asClient(replica, session))
      await client.shows("hello")
      client.socket.close(1000)
      await client.closed
    }
    expect(replica.hub.get(session.facts.id)).toBe(session)
    session.end("over")
    expect(await session.ended).toBe("over")
    server.close()
  })
})
