import { once } from "node:events"
import { connect as connectTcp } from "node:net"
import { CompactSign } from "jose"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import type { Session } from "../../src/api/sessions/session.ts"
import { frameOf } from "../../src/core/apis/remote-command.ts"
import { publicKey, signMessage } from "../../src/core/protocol/messages.ts"
import type { SessionProof } from "../../src/core/protocol/sessions.ts"
import { eventually } from "../harness/eventually.ts"
import { startGateway } from "../harness/gateway.ts"
import {
  type Agent,
  accepted,
  agent,
  asAgent,
  asClient,
  challengeOf,
  clientPath,
  closeAgent,
  type End,
  fixture,
  knock,
  openAt,
  prepareParties,
  registeredAgent,
  replica,
  script,
} from "../sessions/parties.ts"

prepareParties("session-proofs")

/** Agent of another job of the same project, and one of another project. */
let neighbour: Agent
let stranger: Agent

beforeAll(async () => {
  const job = { namespace: "another-project", name: "job", uid: "0a6e2a36-5d3d-4a8e-8a55-6f63c3f0c2d1" }
  neighbour = await registeredAgent(replica, await fixture.launch({}))
  stranger = await registeredAgent(replica, await fixture.launch({}, { job }))
})
afterAll(async () => {
  for (const each of [neighbour, stranger]) await closeAgent(each)
})

/** Knowledge of an attacker, at best: the VM's bearer token, all messages so far, and keys of other agents. */
interface Known {
  proof: SessionProof
  session: Session
}

/** Returns the proof as its agent signs it. */
async function signed(proof: SessionProof, by = agent): Promise<string> {
  return await signMessage("session", proof, by.keys.signing)
}

/** Returns a JWS with this header and no true signature. */
function unsigned(header: object, content: object, signature: string): string {
  const encode = (part: object) => Buffer.from(JSON.stringify(part)).toString("base64url")
  return `${encode(header)}.${encode(content)}.${signature}`
}

/** Message that a legitimate agent has sent to another connection. */
const recorded = { proof: "", challenge: "" }

const FORGERIES: Record<string, (known: Known) => string | Promise<string>> = {
  "signed by an agent of the same project": ({ proof }) => signed(proof, neighbour),
  "of an agent of the same project, for its own VM": ({ proof }) =>
    signed({ ...proof, launch: neighbour.launch.metadata.name }, neighbour),
  "signed by an agent of another project": ({ proof }) => signed(proof, stranger),
  "for another session": ({ proof }) => signed({ ...proof, session: "00000000-0000-4000-8000-000000000000" }),
  "for another stream": ({ proof }) => signed({ ...proof, stream: 7 }),
  "for another VM": ({ proof }) => signed({ ...proof, launch: neighbour.launch.metadata.name }),
  "for an old challenge": ({ proof }) => signed({ ...proof, challenge: recorded.challenge }),
  "that was recorded": () => recorded.proof,
  "without its challenge": ({ proof: { challenge: _, ...rest } }) => signed(rest as SessionProof),
  "without a signature": ({ proof }) => unsigned({ alg: "none", typ: "berth-session" }, proof, ""),
  "with the algorithm none": ({ proof }) => unsigned({ alg: "none", typ: "berth-session" }, proof, "A".repeat(86)),
  "with a made-up signature": ({ proof }) => unsigned({ alg: "EdDSA", typ: "berth-session" }, proof, "A".repeat(86)),
  "signed with the public key as a secret": async ({ proof }) =>
    await new CompactSign(Buffer.from(JSON.stringify(proof)))
      .setProtectedHeader({ alg: "HS256", typ: "berth-session" })
      .sign(Buffer.from(publicKey(agent.keys.signing, "Ed25519"))),
  "with its own key in its header": async ({ proof }) => {
    const { kty, crv, x } = neighbour.keys.signing
    const [, content, signature] = (await signed(proof, neighbour)).split(".")
    const header = { alg: "EdDSA", typ: "berth-session", jwk: { kty, crv, x } }
    return `${Buffer.from(JSON.stringify(header)).toString("base64url")}.${content}.${signature}`
  },
  "signed as a message of another kind": ({ proof }) => signMessage("report", proof, agent.keys.signing),
  "that is a recorded report": ({ proof: { launch } }) =>
    signMessage("report", { launch, sequence: 1, attempt: 1, retryCount: 0 }, agent.keys.signing),
  "as plain JSON": ({ proof }) => JSON.stringify(proof),
  "of no bytes": () => "",
  "that is no text": () => "\u0000\u0001..\u00ff",
}

/** Opens an agent's connection, and answers its challenge with this. */
async function answer(of: Parameters<typeof asAgent>[1], forge: (known: Known) => string | Promise<string>) {
  const end = await accepted(asAgent(replica, of))
  const { launch, session, stream = 0 } = of
  const challenge = await challengeOf(end)
  const proof = { launch: launch.metadata.name, session: session.facts.id, stream, challenge }
  end.socket.send(await forge({ proof, session }))
  return { end, challenge }
}

/** Lets the session's own agent in, and proves that its person reaches the container, once and alone. */
async function worksFor(session: Session, client: End): Promise<void> {
  const before = agent.entered()
  agent.sessions.join([session.facts.id])
  expect(await client.result()).toEqual({ exitCode: 0 })
  expect(client.output).toBe("in the container\n")
  expect(agent.entered()).toBe(before + 1)
  await session.ended
}

const TARGET = script("echo in the container")

describe("a session's connections", () => {
  it("accept no proof but that of the Launch's agent, for this connection", async () => {
    const { launch } = agent
    const earlier = await openAt(replica, launch, TARGET)
    const { end, challenge } = await answer({ launch, session: earlier }, async ({ proof }) => {
      recorded.proof = await signed(proof)
      return recorded.proof
    })
    recorded.challenge = challenge
    const session = await openAt(replica, launch, TARGET)
    const client = await accepted(asClient(replica, session))
    const of = [0, 1].map((stream) => ({ launch, session, stream }))
    for (const [what, forge] of Object.entries(FORGERIES))
      for (const connection of of) {
        const { end } = await answer(connection, forge)
        expect([what, ...(await end.closed)]).toEqual([what, 1008, "the proof is wrong"])
        // The challenge is all that it has received: no order, and no byte of the person.
        expect([what, end.received.length]).toEqual([what, 1])
      }
    // The same proof, sent again to the connection that it was for, changes nothing there.
    end.socket.send(recorded.proof)
    expect(client.received).toEqual([])
    await worksFor(session, client)
    earlier.end("over")
    expect((await end.closed)[0]).toBe(1000)
  })

  it("accept no proof that comes late", async () => {
    const { launch } = agent
    const session = await openAt(replica, launch, TARGET)
    const client = await accepted(asClient(replica, session))
    const end = await accepted(asAgent(replica, { launch, session }))
    expect(await end.closed).toEqual([1008, "the proof is wrong"])
    await worksFor(session, client)
  })

  it("are joined to the first of two agents' streams, and the second one sees nothing", async () => {
    const { launch } = agent
    const session = await openAt(replica, launch, TARGET)
    const client = await accepted(asClient(replica, session))
    const ends = await Promise.all([1, 1].map((stream) => accepted(asAgent(replica, { launch, session, stream }))))
    const [first, second] = ends as [End, End]
    const prove = async (end: End) => {
      const about = { launch: launch.metadata.name, session: session.facts.id, stream: 1 }
      end.socket.send(await signed({ ...about, challenge: await challengeOf(end) }))
    }
    await prove(first)
    client.type("for the first")
    await first.receives((all) => (all.length > 1 ? true : undefined))
    await prove(second)
    expect(await second.closed).toEqual([1008, "no client waits for this stream"])
    expect(second.received).toHaveLength(1)
    second.socket.send(frameOf("stdout", "from the second"))
    first.socket.send(frameOf("stdout", "from the first"))
    await client.shows("from the first")
    expect(client.output).toBe("from the first")
    session.end("over")
    expect(await client.closed).toEqual([1008, "over"])
  })

  it("exist only for streams that were ordered, and for the VM that the session is in", async () => {
    const { launch } = agent
    const session = await openAt(replica, launch, TARGET)
    const client = await accepted(asClient(replica, session))
    for (const stream of [2, 64, 999_999_999, 1e10, -1, 1.5])
      expect([stream, await asAgent(replica, { launch, session, stream })]).toEqual([stream, 404])
    expect(await asAgent(replica, { launch: neighbour.launch, session })).toBe(404)
    expect(await asAgent(replica, { launch: stranger.launch, session, stream: 1 })).toBe(404)
    await worksFor(session, client)
    expect(await asAgent(replica, { launch, session })).toBe(404)
  })

  it("obey no order of a wrong party", async () => {
    const { launch } = agent
    const session = await openAt(replica, launch, script("cat; echo in the container"))
    const client = await accepted(asClient(replica, session))
    const order = JSON.stringify({ stream: 2, target: script("echo stolen") })
    // An agent at its own connection, and the person at theirs.
    const { end } = await answer({ launch, session }, ({ proof }) => signed(proof))
    await end.receives((all) => (all.length > 1 ? true : undefined))
    end.socket.send(order)
    const before = agent.entered()
    agent.sessions.join([session.facts.id])
    client.socket.send(order)
    client.socket.send(Buffer.from(order))
    client.endInput()
    expect(await client.result()).toEqual({ exitCode: 0 })
    expect(client.output).toBe("in the container\n")
    expect(agent.entered()).toBe(before + 1)
    expect(await end.closed).toEqual([1000, ""])
  })

  it("open by no token but their own", async () => {
    const { launch } = agent
    const session = await openAt(replica, launch, TARGET)
    const [other, foreign] = await Promise.all([
      openAt(replica, launch, TARGET),
      openAt(replica, stranger.launch, TARGET),
    ])
    const ended = await openAt(replica, launch, TARGET)
    ended.end("over")
    await ended.ended
    const url = replica.url + clientPath(session)
    const bearer = replica.bootConfig(launch).bootstrapToken
    const headers = { Authorization: `Bearer ${bearer}` }
    expect(await knock(url, {})).toBe(401)
    expect(await knock(url, { headers })).toBe(401)
    for (const token of [
      other.token.text,
      foreign.token.text,
      ended.token.text,
      bearer,
      "",
      session.token.text.slice(1),
      `${session.token.text}A`,
    ])
      expect([token, await knock(url, { protocols: [`berth.session.${token || "x"}`] })]).toEqual([token, 401])
    expect(await asClient(replica, ended)).toBe(404)
    // A person's token at the agent's path.
    const agents = `${replica.url}/agent/v1/launches/${launch.metadata.name}/sessions/${session.facts.id}`
    for (const path of [agents, `${agents}/streams/1`])
      for (const authorization of [`Bearer ${session.token.text}`, "Bearer ", `Basic ${bearer}`, bearer])
        expect(await knock(path, { headers: { Authorization: authorization } })).toBe(401)
    const client = await accepted(asClient(replica, session))
    await worksFor(session, client)
    for (const each of [other, foreign]) each.end("over")
  })

  it("open to pages of Berth's own origin only", async () => {
    const session = await openAt(replica, agent.launch, { port: 80 })
    const { host, port } = new URL(replica.url)
    const others = [
      "https://evil.example",
      "null",
      "",
      `http://${host}.evil.example`,
      `http://evil.example/${host}`,
      `http://${host}@evil.example`,
      "http://127.0.0.1",
      `http://127.0.0.1:${Number(port) + 1}`,
      `http://localhost:${port}`,
      "file://",
      "http://",
    ]
    for (const Origin of others)
      expect([Origin, await asClient(replica, session, { headers: { Origin } })]).toEqual([Origin, 403])
    for (const Origin of [replica.url, replica.url.toUpperCase()])
      await accepted(asClient(replica, session, { headers: { Origin } }))
    // Proxies write a host in other ways.
    for (const Host of ["Berth.Example", "berth.example:443"])
      await accepted(asClient(replica, session, { headers: { Origin: "https://berth.example", Host } }))
    // An older version of HTTP needs no Host, which an origin could be compared with.
    const { hostname } = new URL(replica.url)
    const socket = connectTcp({ host: hostname, port: Number(port) })
    const head = [
      `GET ${clientPath(session)} HTTP/1.0`,
      ...["Connection: Upgrade", "Upgrade: websocket", "Origin: null", "Sec-WebSocket-Version: 13"],
      `Sec-WebSocket-Key: ${Buffer.alloc(16).toString("base64")}`,
      `Sec-WebSocket-Protocol: v5.channel.k8s.io, berth.session.${session.token.text}`,
    ]
    socket.write(`${head.join("\r\n")}\r\n\r\n`)
    const [answer] = (await once(socket, "data")) as [Buffer]
    expect(answer.toString()).toMatch(/^HTTP\/1.1 403 /)
    session.end("over")
  })

  it("are checked by the holder, also if they come to another replica", async () => {
    const { launch } = agent
    const other = await startGateway(fixture)
    const session = await openAt(replica, launch, TARGET)
    const { text: token } = session.token
    await eventually(() => expect(other.hub.idsOf(launch.metadata.name)).toContain(session.facts.id))
    const at = other.url + clientPath(session)
    expect(await knock(at, { protocols: [`berth.session.${token}A`] })).toBe(401)
    expect(await knock(at, { protocols: [`berth.session.${token}`], headers: { Origin: "null" } })).toBe(403)
    // A replica passes on no connection that says it was passed on.
    expect(await knock(at, { protocols: [`berth.session.${token}`], headers: { "berth-forwarded": "1" } })).toBe(404)
    const agents = `${other.url}/agent/v1/launches/${launch.metadata.name}/sessions/${session.facts.id}`
    expect(await knock(agents, { headers: { Authorization: `Bearer ${token}` } })).toBe(401)
    const client = await accepted(knock(at, { protocols: [`berth.session.${token}`] }))
    for (const forge of Object.values(FORGERIES)) {
      const end = await accepted(asAgent(other, { launch, session, stream: 1 }))
      const about = { launch: launch.metadata.name, session: session.facts.id, stream: 1 }
      const proof = { ...about, challenge: await challengeOf(end) }
      end.socket.send(await forge({ proof, session }))
      expect(await end.closed).toEqual([1008, "the proof is wrong"])
    }
    await worksFor(session, client)
    await other.close()
  })
})
