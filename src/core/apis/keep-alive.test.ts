import { once } from "node:events"
import { type AddressInfo, createServer } from "node:net"
import { afterEach, beforeEach, describe, expect, it } from "vitest"
import { WebSocket, WebSocketServer } from "ws"
import { ManualClock } from "../../../test/harness/manual-clock.ts"
import { keepAlive, PING_SECONDS } from "./keep-alive.ts"

let server: WebSocketServer
let [near, far]: WebSocket[] = []

beforeEach(async () => {
  server = new WebSocketServer({ port: 0, host: "127.0.0.1" })
  await once(server, "listening")
  const connected = once(server, "connection") as Promise<[WebSocket]>
  near = new WebSocket(`ws://127.0.0.1:${(server.address() as AddressInfo).port}`)
  await once(near, "open")
  ;[far] = await connected
})
afterEach(() => {
  for (const socket of [near, far]) socket?.terminate()
  server.close()
})

function ends(): { near: WebSocket; far: WebSocket } {
  if (near === undefined || far === undefined) throw new Error("not connected")
  return { near, far }
}

/** Lets an interval pass, and what both ends send then arrive. */
async function interval(clocks: readonly ManualClock[], arrives?: Promise<unknown>): Promise<void> {
  for (const clock of clocks) clock.advance(PING_SECONDS)
  await arrives
}

describe("keepAlive", () => {
  it("keeps a connection whose other end answers", async () => {
    const { near } = ends()
    const clock = new ManualClock()
    keepAlive(near, clock)
    for (let count = 0; count < 5; count++) await interval([clock], once(near, "pong"))
    expect(near.readyState).toBe(near.OPEN)
  })

  it("terminates one from which nothing comes", async () => {
    const { near, far } = ends()
    const clock = new ManualClock()
    far.pause()
    keepAlive(near, clock)
    await interval([clock])
    const closed = once(near, "close")
    await interval([clock])
    expect((await closed)[0]).toBe(1006)
  })

  it("keeps one whose other end is slow to read, and sends pings itself", async () => {
    const { near, far } = ends()
    const clocks = [new ManualClock(), new ManualClock()] as const
    keepAlive(near, clocks[0])
    keepAlive(far, clocks[1])
    far.pause()
    for (let count = 0; count < 5; count++) await interval(clocks, once(near, "ping"))
    expect([near.readyState, far.readyState]).toEqual([near.OPEN, far.OPEN])
  })

  it("keeps one that this end is slow to read", async () => {
    const { near, far } = ends()
    const clock = new ManualClock()
    keepAlive(near, clock)
    await interval([clock])
    near.pause()
    for (let count = 0; count < 5; count++) await interval([clock], once(far, "ping"))
    expect(near.readyState).toBe(near.OPEN)
    near.resume()
    await interval([clock], once(near, "pong"))
    expect(near.readyState).toBe(near.OPEN)
  })

  it("ends one that never opens, without an error of its own", async () => {
    const silent = createServer().listen(0, "127.0.0.1")
    await once(silent, "listening")
    const socket = new WebSocket(`ws://127.0.0.1:${(silent.address() as AddressInfo).port}`)
    const clock = new ManualClock()
    keepAlive(socket, clock)
    const failed = once(socket, "error")
    await interval([clock])
    await interval([clock])
    await failed
    expect(clock.timers).toBe(0)
    silent.close()
  })

  it("sets no timer for one that has ended", async () => {
    const { near } = ends()
    const clock = new ManualClock()
    keepAlive(near, clock)
    near.terminate()
    await once(near, "close")
    expect(clock.timers).toBe(0)
  })
})
