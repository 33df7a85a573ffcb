import { once } from "node:events"
import { mkdtemp, rm } from "node:fs/promises"
import { connect as dial, type Socket } from "node:net"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { text } from "node:stream/consumers"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { startFacade } from "../../src/api/main.ts"
import { connect } from "../../src/connect.ts"
import { ensureInstallation } from "../../src/core/identity/installation.ts"
import type { KubeClient } from "../../src/core/kube/client.ts"
import { SECRETS } from "../../src/core/kube/core.ts"
import type { Running } from "../../src/core/telemetry/program.ts"
import { kubeconfigPath, testNamespace } from "../control-plane.ts"
import { eventually } from "../harness/eventually.ts"
import { shippedOffers } from "../harness/facade.ts"
import { jobsOf, projectFixture } from "../harness/facade-project.ts"
import { silentLogger } from "../harness/silent-logger.ts"

/** Start of the program before an operator exists, and its end during requests. */
const fixture = projectFixture("facade-start")
const systemNamespace = testNamespace("facade-system")
let folder: string
let client: KubeClient

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "berth-facade-"))
  client = connect({ kubeconfig: kubeconfigPath() })
})
afterAll(async () => {
  await client.close()
  await rm(folder, { recursive: true, force: true })
})

function start(stop: AbortSignal): Promise<Running & { url: string }> {
  const options = { host: "127.0.0.1", port: 0, baseDomain: "berth.test", defaultProject: fixture.project }
  const market = { offers: shippedOffers(), ownAccounts: [], architectures: [], providers: {} }
  return startFacade(
    { ...options, systemNamespace, logsDir: folder },
    { client, clouds: ["aws"], logger: silentLogger, ...market },
    stop,
  )
}

describe("a façade that starts before the first operator", () => {
  it("listens and is live; is ready, and accepts agents, only after the installation exists", async () => {
    const stop = new AbortController()
    const { url, ended } = await start(stop.signal)
    const report = (): Promise<Response> => fetch(`${url}/agent/v1/launches/some-launch/report`, { method: "POST" })
    await eventually(async () => {
      const ready = await fetch(`${url}/readyz`)
      expect(ready.status).toBe(503)
      expect(await ready.text()).toMatch(/installation.*the operator has not created the Secret berth-installation yet/)
    })
    expect((await fetch(`${url}/livez`)).status).toBe(200)
    const early = await report()
    expect([early.status, early.headers.get("retry-after")]).toEqual([503, "2"])
    await ensureInstallation(client, systemNamespace)
    await eventually(async () => expect((await fetch(`${url}/readyz`)).status).toBe(200))
    expect((await report()).status).toBe(401)
    stop.abort()
    await ended
  })

  it("stops while it waits for the installation", async () => {
    await client.delete(SECRETS, { namespace: systemNamespace, name: "berth-installation" })
    const stop = new AbortController()
    const { ended } = await start(stop.signal)
    stop.abort()
    await expect(ended).resolves.toBeUndefined()
  })
})

describe("a façade that is stopped", () => {
  it("accepts no new connection, finishes pending requests, and then ends", async () => {
    const stop = new AbortController()
    const { url, ended } = await start(stop.signal)
    await eventually(async () => expect((await fetch(`${url}/1/jobs`, { headers: key() })).status).toBe(200))
    const port = Number(new URL(url).port)
    const socket = await dialed(port)
    const body = JSON.stringify({ image: "alpine", name: "under-way" })
    const headers = Object.entries({ ...key(), "Content-Type": "application/json", "Content-Length": body.length })
    const lines = headers.map(([name, value]) => `${name}: ${value}`)
    socket.write(["POST /1/jobs HTTP/1.1", "Host: 127.0.0.1", "Expect: 100-continue", ...lines, "", ""].join("\r\n"))
    // The server has the headers, because it asks for the rest.
    const [answer] = (await once(socket, "data")) as [Buffer]
    expect(answer.toString()).toMatch(/^HTTP\/1.1 100 Continue/)
    stop.abort()
    await eventually(() => expect(dialed(port).then((more) => more.destroy())).rejects.toThrow("ECONNREFUSED"))
    socket.write(body)
    expect(await text(socket)).toMatch(/^HTTP\/1.1 201 Created\r\n[\s\S]*Connection: close/i)
    await ended
    expect((await jobsOf(fixture)).map(({ metadata }) => metadata.name)).toEqual(["under-way"])
  })
})

function key(): Record<string, string> {
  return { "X-Service-Api-Key": fixture.keys.admin }
}

/** Resolves with a connection when it is open. */
async function dialed(port: number): Promise<Socket> {
  const socket = dial(port, "127.0.0.1")
  await once(socket, "connect")
  return socket
}
