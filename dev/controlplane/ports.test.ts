import { once } from "node:events"
import { type AddressInfo, createServer } from "node:net"
import { expect, test } from "vitest"
import { freePort } from "./ports.ts"

test("each free port is given once", async () => {
  const ports = await Promise.all(Array.from({ length: 300 }, () => freePort()))
  expect(new Set(ports).size).toBe(ports.length)
})

test("the preferred port is given again and again while it is free, and else another one", async () => {
  const port = await freePort()
  expect([await freePort(port), await freePort(port)]).toEqual([port, port])
  const server = createServer().listen(port, "127.0.0.1")
  await once(server, "listening")
  expect((server.address() as AddressInfo).port).toBe(port)
  expect(await freePort(port)).not.toBe(port)
  server.close()
})
