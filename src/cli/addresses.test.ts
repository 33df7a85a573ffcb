import { createServer, type RequestListener, type Server } from "node:http"
import type { AddressInfo } from "node:net"
import { afterEach, expect, test } from "vitest"
import { BerthClient, readBody } from "../client/client.ts"
import { toFailure } from "./exit.ts"

let server: Server | undefined

afterEach(() => void server?.close())

async function failureAt(
  scheme: string,
  listener: RequestListener,
  path = "",
): Promise<{ code: number; message: string }> {
  const { promise, resolve } = Promise.withResolvers<void>()
  server = createServer(listener).listen(0, "127.0.0.1", resolve)
  await promise
  const { port } = server.address() as AddressInfo
  const client = new BerthClient({
    baseUrl: `${scheme}://127.0.0.1:${port}${path}/1`,
    credential: async () => undefined,
  })
  const error = await readBody(client.api.GET("/offers", { params: { query: {} } })).catch((thrown: unknown) => thrown)
  const { code, message } = toFailure(error)
  return { code, message: message.replace(String(port), "PORT") }
}

test("a page in place of the API is named, with the mistake that leads there", async () => {
  const page: RequestListener = (_, response) => {
    response.setHeader("content-type", "text/html; charset=utf-8")
    response.end("<!doctype html><title>Berth</title>")
  }
  expect(await failureAt("http", page, "/console")).toEqual({
    code: 2,
    message:
      "http://127.0.0.1:PORT/console/1 answered with a page for browsers, and is no API of Berth. Use Berth's own address, without a path such as /console.",
  })
})

test("a server without TLS is named in one line", async () => {
  const { message } = await failureAt("https", (_, response) => response.end())
  expect(message).toBe(
    "https://127.0.0.1:PORT can't be reached: it does not answer by TLS; write http:// in the URL if it has none. `berth check` finds the cause.",
  )
})
