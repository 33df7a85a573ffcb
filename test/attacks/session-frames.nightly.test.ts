import { once } from "node:events"
import { connect as connectTcp } from "node:net"
import { describe, expect, it } from "vitest"
import type { WebSocket } from "ws"
import type { Session } from "../../src/api/sessions/session.ts"
import { frameOf } from "../../src/core/apis/remote-command.ts"
import { signMessage } from "../../src/core/protocol/messages.ts"
import { eventually } from "../harness/eventually.ts"
import {
  accepted,
  agent,
  asAgent,
  asClient,
  challengeOf,
  clientPath,
  type End,
  openAt,
  prepareParties,
  replica,
  script,
} from "../sessions/parties.ts"

prepareParties("session-frames", { limits: { headersSeconds: 1, checkSeconds: 0.2 } })

/** Opens a session, and connects its person and its agent. */
async function joined(text: string): Promise<{ session: Session; client: End }> {
  const session = await openAt(replica, agent.launch, script(text))
  const client = await accepted(asClient(replica, session))
  agent.sessions.join([session.facts.id])
  return { session, client }
}

/** Opens a session whose agent is the test itself. */
async function joinedByHand(): Promise<{ session: Session; client: End; stream: End }> {
  const { launch, keys } = agent
  const session = await openAt(replica, launch, script("cat"))
  const client = await accepted(asClient(replica, session))
  const stream = await accepted(asAgent(replica, { launch, session, stream: 1 }))
  const about = { launch: launch.metadata.name, session: session.facts.id, stream: 1 }
  stream.socket.send(await signMessage("session", { ...about, challenge: await challengeOf(stream) }, keys.signing))
  client.type("joined")
  await stream.receives((all) => (all.length > 1 ? true : undefined))
  return { session, client, stream }
}

/** Writes bytes below the WebSocket, as no library would. */
function write(socket: WebSocket, bytes: Uint8Array): void {
  ;(socket as unknown as { _socket: { write: (bytes: Uint8Array) => void } })._socket.write(bytes)
}

/** Sends all messages in one packet. */
function inOnePacket(socket: WebSocket, messages: readonly (string | Uint8Array)[]): void {
  const { _socket } = socket as unknown as { _socket: { cork: () => void; uncork: () => void } }
  _socket.cork()
  for (const message of messages) socket.send(message)
  _socket.uncork()
}

const MALFORMED: Record<string, string | Uint8Array> = {
  "of no bytes": Buffer.alloc(0),
  "of a channel that does not exist": Buffer.from([99, 1, 2, 3]),
  "as text": "hello",
  "of no bytes, as text": "",
  "that ends a channel that does not exist": Buffer.from([255, 77]),
  "that ends no channel": Buffer.from([255]),
  "on the channel of output": frameOf("stdout", "not from the container"),
  "on the channel of errors": frameOf("stderr", "not from the container"),
  "on the channel of results": frameOf("status", '{"exitCode":0}'),
  "with a size that is no JSON": frameOf("resize", "{"),
  "with a size of no bytes": frameOf("resize", ""),
  "with a size that is null": frameOf("resize", "null"),
  "with a size that is no number": frameOf("resize", '{"columns":null,"rows":"NaN"}'),
  "with a huge size": frameOf("resize", '{"columns":1e308,"rows":99999999999}'),
  "with a negative size": frameOf("resize", '{"columns":-1,"rows":-1}'),
  "with a size of other names": frameOf("resize", '{"__proto__":{"columns":1},"Width":3}'),
}

describe("a session's messages", () => {
  it("reach no command and end nothing, if they are malformed", async () => {
    const { client } = await joined("cat")
    for (const [what, message] of Object.entries(MALFORMED)) {
      client.socket.send(message)
      client.type(`after one ${what}\n`)
      await client.shows(`after one ${what}\n`)
    }
    // One message in several fragments.
    client.socket.send(frameOf("stdin", "in "), { fin: false })
    client.socket.send("two ", { fin: false })
    client.socket.send("pieces\n")
    await client.shows("in two pieces\n")
    client.endInput()
    expect(await client.result()).toEqual({ exitCode: 0 })
    const said = Object.keys(MALFORMED).map((what) => `after one ${what}\n`)
    expect(client.output).toBe(`${said.join("")}in two pieces\n`)
  })

  it("end nothing, if an agent sends malformed ones", async () => {
    const { session, client, stream } = await joinedByHand()
    for (const message of Object.values(MALFORMED)) stream.socket.send(message)
    stream.socket.send(frameOf("stdout", "the end"))
    await client.shows("the end")
    session.end("over")
    expect(await client.closed).toEqual([1008, "over"])
  })

  it("end their own session only, if they are too large", async () => {
    const beside = await joined("cat")
    const byHand = await joinedByHand()
    const large = Buffer.alloc(1024 * 1024, frameOf("stdin", "a"))
    const { client } = await joined("cat")
    client.type("works")
    await client.shows("works")
    client.socket.send(large)
    expect((await client.closed)[0]).toBe(1009)
    byHand.stream.socket.send(large)
    expect((await byHand.stream.closed)[0]).toBe(1009)
    expect((await byHand.client.closed)[0]).toBe(1011)
    // A head that announces 100 MB, of which nothing follows.
    const announced = await joined("cat")
    write(announced.client.socket, Buffer.from("82ff0000000005f5e10000000000", "hex"))
    expect((await announced.client.closed)[0]).toBe(1009)
    // A message in fragments, without an end.
    const endless = await joined("cat")
    for (let count = 0; count < 5; count++) endless.client.socket.send(Buffer.alloc(60_000), { fin: false })
    expect((await endless.client.closed)[0]).toBe(1009)
    // No WebSocket at all.
    const broken = await joined("cat")
    write(broken.client.socket, Buffer.from("GET / HTTP/1.1\r\n\r\n"))
    expect((await broken.client.closed)[0]).toBe(1002)
    beside.client.type("lives on")
    await beside.client.shows("lives on")
    beside.session.end("over")
  })

  it("are not lost, if they follow a proof in the same packet", async () => {
    const { launch, keys } = agent
    const session = await openAt(replica, launch, script("cat"))
    const client = await accepted(asClient(replica, session))
    const stream = await accepted(asAgent(replica, { launch, session, stream: 1 }))
    const about = { launch: launch.metadata.name, session: session.facts.id, stream: 1 }
    const proof = await signMessage("session", { ...about, challenge: await challengeOf(stream) }, keys.signing)
    inOnePacket(stream.socket, [proof, frameOf("stdout", "first "), frameOf("stdout", "second")])
    await client.shows("second")
    expect(client.output).toBe("first second")
    session.end("over")
  })

  it("wait in bounded memory for an end that does not read", async () => {
    const { session, client, stream } = await joinedByHand()
    stream.socket.pause()
    const piece = frameOf("stdin", Buffer.alloc(64 * 1024))
    // More than the kernel takes. What the replica does not take stays with its sender.
    for (let count = 0; count < 1024; count++) client.socket.send(piece)
    let sent = -1
    await eventually(() => {
      const before = sent
      sent = session.bytes.sent
      expect(sent).toBe(before)
    })
    expect(client.socket.bufferedAmount).toBeGreaterThan(16 * 1024 * 1024)
    stream.socket.resume()
    await stream.receives((all) => (all.length >= 1024 + 2 ? true : undefined))
    session.end("over")
  })
})

describe("a server of sessions", () => {
  it("ends each of many connections without a proof, and takes only so many", async () => {
    const { launch } = agent
    const { session, client } = await joined("cat")
    const answers = await Promise.all(Array.from({ length: 700 }, () => asAgent(replica, { launch, session })))
    const open = answers.filter((each) => typeof each !== "number")
    expect(open.length).toBeLessThanOrEqual(600)
    expect(new Set(answers.filter((each) => typeof each === "number"))).toEqual(new Set([429]))
    client.type("lives on")
    await client.shows("lives on")
    for (const each of open) expect((await each.closed)[0]).toBe(1008)
    session.end("over")
    await client.closed
    await eventually(async () => expect(await replica.connections()).toBeLessThan(10))
  })

  it("answers an upgrade that never ends", async () => {
    const session = await openAt(replica, agent.launch, script("cat"))
    const { hostname, port } = new URL(replica.url)
    const socket = connectTcp({ host: hostname, port: Number(port) })
    socket.write(
      `GET ${clientPath(session)} HTTP/1.1\r\nHost: ${hostname}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n`,
    )
    const [answer] = (await once(socket, "data")) as [Buffer]
    expect(answer.toString()).toMatch(/^HTTP\/1.1 408 /)
    session.end("over")
  })
})
