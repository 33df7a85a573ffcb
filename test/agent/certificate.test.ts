import { once } from "node:events"
import { createServer } from "node:https"
import type { AddressInfo } from "node:net"
import { expect, it, onTestFinished } from "vitest"
import { newCertificateAuthority } from "../../dev/controlplane/certificates.ts"
import { GatewayClient } from "../../src/agent/gateway-client.ts"
import { GatewayError } from "../../src/agent/gateway-connection.ts"
import { systemClock } from "../../src/core/apis/clock.ts"
import { generateAgentKeys } from "../../src/core/protocol/messages.ts"
import { until } from "../harness/eventually.ts"

it("an agent says that the gateway's certificate has expired, and reports to the renewed one without a restart", async () => {
  const authority = newCertificateAuthority("ours")
  const contextOf = (seconds: number) => {
    const { certificate, key } = authority.issue({ commonName: "gateway", hosts: ["127.0.0.1"], seconds })
    return { cert: certificate, key }
  }
  const server = createServer(contextOf(2), (request, response) => {
    request.resume()
    response.writeHead(200, { "content-type": "application/json", connection: "close" })
    response.end(JSON.stringify({ desired: "run", heartbeatSeconds: 15 }))
  })
  server.listen(0, "127.0.0.1")
  await once(server, "listening")
  onTestFinished(() => void server.close())
  const gatewayUrl = `https://127.0.0.1:${(server.address() as AddressInfo).port}`
  const config = { gatewayUrl, launch: "uid-1", token: "t", gatewayCa: authority.certificate, lifetimeSeconds: 600 }
  const client = new GatewayClient(config as never, await generateAgentKeys(), systemClock)
  onTestFinished(() => client.close())
  const report = () => client.report({ sequence: 1, attempt: 0, retryCount: 0 })

  expect(await report()).toMatchObject({ desired: "run" })
  const errors: unknown[] = []
  await until("the certificate has expired", async () => {
    await report().catch((error: unknown) => errors.push(error))
    return errors.length > 0
  })
  expect(errors[0]).toBeInstanceOf(GatewayError)
  expect(errors[0]).toMatchObject({ status: 0, message: expect.stringContaining("certificate has expired") })

  server.setSecureContext(contextOf(600))
  expect(await report()).toMatchObject({ desired: "run" })
})
