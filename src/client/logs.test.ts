import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { Agent, fetch as impatientFetch } from "undici"
import { afterEach, expect, test } from "vitest"
import { BerthClient } from "./client.ts"
import { readLog } from "./logs.ts"

const ended: (() => void)[] = []
const send = globalThis.fetch

afterEach(() => {
  globalThis.fetch = send
  for (const end of ended.splice(0)) end()
})

/** Serves the log of a job in two streams, of which the first breaks off. */
async function serveLog(breakOff: (socket: { destroy: () => void }) => void): Promise<BerthClient> {
  let streams = 0
  const server = createServer((request, response) => {
    if (!request.url?.includes("/logs"))
      return void response.end(JSON.stringify({ id: "j", status: streams > 1 ? "succeeded" : "running" }))
    streams++
    response.write("a")
    if (streams > 1) return void response.end("b")
    breakOff(response)
  })
  const { promise, resolve } = Promise.withResolvers<void>()
  server.listen(0, "127.0.0.1", resolve)
  ended.push(
    () => void server.closeAllConnections(),
    () => void server.close(),
  )
  await promise
  const baseUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}/1`
  return new BerthClient({ baseUrl, credential: async () => undefined })
}

async function read(client: BerthClient): Promise<{ log: string; reconnects: number }> {
  let log = ""
  let reconnects = 0
  for await (const piece of readLog(client, "j", { follow: true, onReconnect: () => reconnects++ }))
    log += new TextDecoder().decode(piece)
  return { log, reconnects }
}

test("a log that was cut continues, and says so", async () => {
  const client = await serveLog((socket) => setTimeout(() => socket.destroy(), 50))
  expect(await read(client)).toEqual({ log: "ab", reconnects: 1 })
})

test("a log that was silent for long continues without a word", async () => {
  const client = await serveLog(() => undefined)
  // Node.js' fetch gives up a body without bytes for 300 s. Here it does after a moment.
  const dispatcher = new Agent({ bodyTimeout: 100 })
  ended.push(() => void dispatcher.close())
  globalThis.fetch = async (input) => {
    const { body, status } = await impatientFetch((input as Request).url, { dispatcher })
    return new Response(body as unknown as ReadableStream, { status })
  }
  expect(await read(client)).toEqual({ log: "ab", reconnects: 0 })
})
