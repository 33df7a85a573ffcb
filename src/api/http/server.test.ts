import { once } from "node:events"
import type { IncomingMessage } from "node:http"
import { type AddressInfo, connect } from "node:net"
import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"
import { expect, test } from "vitest"
import { createHttpServer } from "./server.ts"

setFlagsFromString("--expose-gc")
const collectGarbage = runInNewContext("gc") as () => void

test("the server releases the last request of a connection that waits for its next one", async () => {
  const requests: WeakRef<IncomingMessage>[] = []
  const server = createHttpServer((request, response) => {
    requests.push(new WeakRef(request))
    response.end("answered")
  })
  server.listen(0, "127.0.0.1")
  await once(server, "listening")
  const connection = connect((server.address() as AddressInfo).port, "127.0.0.1")
  const ask = async (): Promise<void> => {
    connection.write("GET / HTTP/1.1\r\nHost: berth.test\r\n\r\n")
    await once(connection, "data")
  }

  await ask()

  await expect
    .poll(() => {
      collectGarbage()
      return requests[0]?.deref()
    })
    .toBeUndefined()
  await ask()
  expect(requests).toHaveLength(2)

  connection.destroy()
  server.close()
  await once(server, "close")
})
