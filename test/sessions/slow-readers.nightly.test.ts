import { once } from "node:events"
import { describe, expect, it } from "vitest"
import { systemClock } from "../../src/core/apis/clock.ts"
import { keepAlive } from "../../src/core/apis/keep-alive.ts"
import { accepted, agent, asClient, openAt, prepareParties, replica, script } from "./parties.ts"

prepareParties("session-readers")

/** Outputs, bytes: of some the last part waits in buffers when the command has ended, and the largest fits into none. */
const SIZES = [2, 4, 6, 8, 10, 12, 32].map((mib) => mib * 1024 * 1024)

describe("a session of a person who reads slowly", () => {
  it("gives them the whole output and its result, a minute after the command has ended", async () => {
    const beside = await accepted(asClient(replica, await openAt(replica, agent.launch, script("cat"))))
    const clients = await Promise.all(
      SIZES.map(async (bytes) => {
        const session = await openAt(replica, agent.launch, script(`head -c ${bytes} /dev/zero; exit 4`))
        const client = await accepted(asClient(replica, session))
        keepAlive(client.socket, systemClock)
        client.socket.pause()
        agent.sessions.join([session.facts.id])
        return { bytes, client }
      }),
    )
    // A ping comes every 20 s.
    for (let count = 0; count < 3; count++) await once(beside.socket, "ping")
    for (const { bytes, client } of clients) {
      client.socket.resume()
      expect([bytes, await client.result()]).toEqual([bytes, { exitCode: 4 }])
      expect(client.output).toHaveLength(bytes)
    }
    beside.socket.close()
  })
})
