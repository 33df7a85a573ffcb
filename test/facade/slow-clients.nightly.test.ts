import { createHash } from "node:crypto"
import { once } from "node:events"
import { readdir } from "node:fs/promises"
import { connect, type Socket } from "node:net"
import { join } from "node:path"
import { text } from "node:stream/consumers"
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest"
import type { LogRef } from "../../src/api/logs/store.ts"
import { MOST_UPLOADS } from "../../src/api/resources/uploads/routes.ts"
import { UPLOADS_FOLDER } from "../../src/api/uploads/store.ts"
import { BASE_DOMAIN, caller } from "../harness/caller.ts"
import { eventually } from "../harness/eventually.ts"
import { type Replica, startReplica } from "../harness/facade.ts"
import { applyJob, jobsOf, projectFixture } from "../harness/facade-project.ts"

/** Slow and broken clients: half-sent bodies and slow clients time out, and create no object. */
const fixture = projectFixture("facade-slow")
let replica: Replica
const call = caller(() => replica, fixture)
const open: Socket[] = []

/** Limits that are short, because tests wait for them. A pause of the machine must not exceed them. */
const LIMITS = {
  ...{ headersSeconds: 1.5, requestSeconds: 2.5, idleSeconds: 4, checkSeconds: 0.1, headers: 20 },
  // Connections of earlier requests must not count.
  keepAliveSeconds: 2,
}

/** Longest time of an upload: longer than that of other requests. */
const UPLOAD_SECONDS = 8

beforeAll(async () => {
  const settings = { defaultProject: fixture.project, uploadSeconds: UPLOAD_SECONDS }
  replica = await startReplica({ limits: LIMITS, settings })
})
afterEach(() => {
  for (const socket of open.splice(0)) socket.destroy()
})
afterAll(() => replica.close())

/** Opens a connection that sends the lines and then stops. */
function sent(...lines: string[]): Socket {
  const socket = connect({ port: replica.port, host: "127.0.0.1", allowHalfOpen: true })
  socket.on("error", () => undefined)
  open.push(socket)
  socket.write(lines.join("\r\n"))
  return socket
}

const head = (method: string, path: string): string[] => [
  `${method} ${path} HTTP/1.1`,
  `Host: ${fixture.project}.${BASE_DOMAIN}`,
  `X-Service-Api-Key: ${fixture.keys.admin}`,
]

/** Returns the server's response until it closes: a whole problem document, on a connection that is not used again. */
async function refusal(socket: Socket): Promise<{ status: number; problem: Record<string, unknown> }> {
  const answer = await text(socket)
  const [, status, headers = "", body = ""] =
    /^HTTP\/1.1 (\d{3}) [^\r]+\r\n([\s\S]*?)\r\n\r\n([\s\S]*)$/.exec(answer) ?? []
  if (status === undefined) throw new Error(`no answer: ${JSON.stringify(answer)}`)
  expect(headers).toMatch(/^Connection: close$/im)
  expect(headers).toMatch(/^Content-Type: application\/problem\+json; charset=utf-8$/im)
  const problem = JSON.parse(body) as Record<string, unknown>
  expect(problem).toMatchObject({ status: Number(status), instance: /^X-Request-Id: (.+)$/im.exec(headers)?.[1] })
  return { status: Number(status), problem }
}

/** Returns log lines that report an error of the façade itself. */
function ownFaults(): string[] {
  return replica
    .logged()
    .split("\n")
    .filter((line) => line !== "" && (JSON.parse(line) as { level: string | number }).level === "error")
}

describe("half-sent requests", () => {
  it("returns 408 for headers that don't end, and for headers that arrive in drops", async () => {
    expect(await refusal(sent(...head("GET", "/1/jobs")))).toMatchObject({ status: 408 })
    // One header only: more would exceed the limit before the timeout.
    const dripping = sent("GET /1/jobs HTTP/1.1", "X-Drops: ")
    const drops = setInterval(() => dripping.write("1"), 50)
    expect(await refusal(dripping)).toMatchObject({ status: 408 })
    clearInterval(drops)
  })

  it.each([
    ["of a known length", "Content-Length: 1000"],
    ["in chunks", "Transfer-Encoding: chunked"],
  ])("returns 408 for a body %s that doesn't end, and creates no job", async (_, framing) => {
    const chunk = framing.startsWith("Transfer") ? `13\r\n{"image": "alpine"}` : `{"image": "alpine"}`
    const socket = sent(...head("POST", "/1/jobs"), "Content-Type: application/json", framing, "", chunk)
    expect(await refusal(socket)).toMatchObject({ status: 408 })
    expect(await jobsOf(fixture)).toEqual([])
    expect(ownFaults()).toEqual([])
  })

  it("waits longer for an upload of an authenticated caller, and not for one of a stranger", async () => {
    const body = Buffer.from("a slow upload")
    const put = head("PUT", `/1/uploads/${createHash("sha256").update(body).digest("hex")}`)
    const lines = [
      "Content-Type: application/gzip",
      `Content-Length: ${body.byteLength}`,
      "",
      body.toString().slice(0, 5),
    ]
    const upload = sent(...put, "Connection: close", ...lines)
    const stranger = sent(...put.slice(0, 2), ...lines)
    const later = sent(...head("POST", "/1/jobs"), "Content-Type: application/json", "Content-Length: 9", "", "{")
    expect(await refusal(later)).toMatchObject({ status: 408 })
    expect(await text(stranger)).toMatch(/^HTTP\/1.1 401 /)
    upload.write(body.subarray(5))
    expect(await text(upload)).toMatch(/^HTTP\/1.1 201 /)
  })

  it("ends uploads that arrive in drops, of which one caller has a few, and keeps none of their bytes", async () => {
    const drops: NodeJS.Timeout[] = []
    const slow = Array.from({ length: MOST_UPLOADS }, (_, number) => {
      const put = head("PUT", `/1/uploads/${String(number).padStart(64, "0")}`)
      const socket = sent(...put, "Content-Type: application/gzip", "Content-Length: 100000", "", "")
      drops.push(setInterval(() => socket.write("x"), 50))
      return refusal(socket)
    })
    const parts = async () =>
      (await readdir(join(replica.folder, UPLOADS_FOLDER))).filter((name) => name.endsWith(".part"))
    await eventually(async () => expect(await parts()).toHaveLength(MOST_UPLOADS))
    const body = Buffer.from("an upload of another caller")
    const path = `/1/uploads/${createHash("sha256").update(body).digest("hex")}`
    const put = { method: "PUT", type: "application/gzip", body }
    expect((await call(path, { ...put, key: fixture.keys.admin })).status).toBe(429)
    expect((await call(path, { ...put, key: fixture.keys.developer })).status).toBe(201)
    for (const { status } of await Promise.all(slow)) expect(status).toBe(408)
    for (const drop of drops) clearInterval(drop)
    await eventually(async () => expect(await parts()).toEqual([]))
    expect((await call(path, { ...put, key: fixture.keys.admin })).status).toBe(200)
  })

  it("returns 408 for a body that arrives in drops, and creates no job", async () => {
    const lines = ["Content-Type: application/json", "Content-Length: 100000", "", ""]
    const dripping = sent(...head("POST", "/1/jobs"), ...lines)
    const drops = setInterval(() => dripping.write(" "), 50)
    expect(await refusal(dripping)).toMatchObject({ status: 408 })
    clearInterval(drops)
    expect(await jobsOf(fixture)).toEqual([])
  })

  it("creates no job from a truncated body, and logs no error of its own", async () => {
    const lines = ["Content-Type: application/json", "Content-Length: 1000", "X-Request-Id: broke-off", "", ""]
    const socket = sent(...head("POST", "/1/jobs"), ...lines, `{"image": "alpine"}`)
    // The server asks for more when it has the start of the body. It has read everything then.
    await eventually(() => expect(socket.writableLength).toBe(0))
    socket.destroy()
    await eventually(() => expect(replica.logged()).toContain("broke-off"))
    expect(await jobsOf(fixture)).toEqual([])
    expect(ownFaults()).toEqual([])
  })
})

describe("requests that are too large or malformed", () => {
  it("returns 431 for more headers than it accepts, although the key is among them", async () => {
    const more = Array.from({ length: 19 }, (_, index) => `X-More-${index}: 1`)
    const socket = sent(...head("GET", "/1/jobs"), ...more, "", "")
    expect(await refusal(socket)).toMatchObject({ status: 431, problem: { detail: expect.stringContaining("20") } })
    const right = sent(...head("GET", "/1/jobs"), ...more.slice(2), "Connection: close", "", "")
    expect((await text(right)).split("\r\n")[0]).toBe("HTTP/1.1 200 OK")
  })

  it("returns 431 for headers that are too long", async () => {
    const socket = sent(...head("GET", "/1/jobs"), `X-Long: ${"x".repeat(17_000)}`, "", "")
    expect(await refusal(socket)).toMatchObject({ status: 431 })
  })

  it.each([
    ["text that is not HTTP", ["good morning", "", ""]],
    ["a control character in a header", ["GET /1/jobs HTTP/1.1", "Host: a", "X-Odd: \u0001", "", ""]],
    ["two lengths", ["POST /1/jobs HTTP/1.1", "Host: a", "Content-Length: 1", "Content-Length: 2", "", ""]],
    [
      "a length and chunks",
      ["POST /1/jobs HTTP/1.1", "Host: a", "Content-Length: 1", "Transfer-Encoding: chunked", "", ""],
    ],
  ])("returns 400 for %s", async (_, lines) => {
    expect(await refusal(sent(...lines))).toMatchObject({ status: 400, problem: { errors: [] } })
  })
})

describe("clients that don't read", () => {
  /** Creates a job with a log larger than all buffers on the way. */
  async function verbose(name: string): Promise<string> {
    const log = await logOf(name)
    const piece = Buffer.alloc(1024 * 1024, "x")
    for (let length = 0; length < 16 * piece.length; ) {
      length = (await replica.logStore.append(log, length, piece)).length
    }
    return name
  }

  // Without the façade, so that only the tests' connections are open.
  async function logOf(name: string): Promise<LogRef> {
    const { metadata } = await applyJob(fixture, name)
    return { job: { namespace: fixture.namespace, uid: metadata.uid }, launch: 1 }
  }

  it.each(["true", "false"])(
    "closes the connection of a client that doesn't read its log (follow=%s)",
    async (follow) => {
      const path = `/1/jobs/${await verbose(`verbose-${follow}`)}/logs?follow=${follow}`
      const socket = sent(...head("GET", path), "", "")
      await once(socket.pause(), "connect")
      await eventually(async () => expect(await replica.connections()).toBeGreaterThan(0))
      await eventually(async () => expect(await replica.connections()).toBe(0))
    },
  )

  it("keeps the connection of a client that follows a log which is silent for longer than the idle timeout", async () => {
    const log = await logOf("silent")
    const following = await call("/1/jobs/silent/logs?follow=true")
    // Another client has the same timeouts. When the façade closes that connection, they have passed.
    sent(...head("GET", `/1/jobs/${await verbose("verbose")}/logs`), "", "").pause()
    await eventually(async () => expect(await replica.connections()).toBe(2))
    await eventually(async () => expect(await replica.connections()).toBe(1))
    await replica.logStore.append(log, 0, Buffer.from("late"))
    const reader = following.body?.getReader()
    expect(Buffer.from((await reader?.read())?.value as Uint8Array).toString()).toBe("late")
    await reader?.cancel()
  })
})
