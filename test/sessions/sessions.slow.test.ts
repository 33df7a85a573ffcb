import { execFileSync } from "node:child_process"
import { createHash, randomBytes } from "node:crypto"
import { once } from "node:events"
import { connect as connectTcp, type Socket } from "node:net"
import { join } from "node:path"
import { afterAll, beforeAll, expect } from "vitest"
import { WebSocket } from "ws"
import { API_KEYS } from "../../src/core/resources.ts"
import { run, start } from "../cli/command.ts"
import { onTerminal } from "../cli/pty.ts"
import { kubeconfigPath } from "../control-plane.ts"
import { makeKey } from "../harness/api-keys.ts"
import { Balancer } from "../harness/balancer.ts"
import { containerRuntime } from "../harness/container-runtime.ts"
import { eventually } from "../harness/eventually.ts"
import { GATE_WAIT, Installation } from "../harness/installation.ts"
import { needing } from "../needing.ts"

const runtime = await containerRuntime()
const engineNeeded = needing(runtime.name === "docker" ? undefined : "no Docker engine answers")
const MAIN = join(import.meta.dirname, "..", "..", "scripts", "berth.mjs")

let berth: Installation
let environment: Record<string, string>

/** Submits a job that waits, and resolves when its container runs. */
async function runningJob(name: string, before = "true"): Promise<string> {
  await berth.submit(name, `${before}\n${GATE_WAIT}`)
  await berth.reached("running", name)
  return name
}

/** Opens a session by REST. */
async function open(job: string, body: object, key = berth.apiKey): Promise<Response> {
  return berth.fetch(`/jobs/${job}/sessions`, {
    method: "POST",
    body: JSON.stringify(body),
    headers: { "Content-Type": "application/json", "X-Service-Api-Key": key },
  })
}

interface Opened {
  session_id: string
  path: string
  token: string
}

/** Connects to a session. Resolves with the status of a refusal, or with the socket. */
async function connect(path: string, token: string, more: object = {}): Promise<WebSocket | number> {
  const protocols = ["v5.channel.k8s.io", `berth.session.${token}`]
  const socket = new WebSocket(berth.url.replace("http", "ws") + path, protocols, more)
  socket.on("error", () => undefined)
  return await new Promise((resolve) => {
    socket.once("open", () => resolve(socket))
    socket.once("unexpected-response", (_request, response) => resolve(response.statusCode ?? 0))
  })
}

async function statusOf(outcome: Promise<WebSocket | number>): Promise<number> {
  const found = await outcome
  if (typeof found === "number") return found
  found.terminate()
  return 101
}

async function sessionsOf(job: string): Promise<string[]> {
  const list = (await (await berth.fetch(`/jobs/${job}/sessions`)).json()) as { sessions: { session_id: string }[] }
  return list.sessions.map(({ session_id }) => session_id)
}

/** Sends a text to the echo server, and returns what comes back. The connection stays open. */
async function echo(port: number, sent: string): Promise<{ text: string; socket: Socket }> {
  const socket = connectTcp(port, "127.0.0.1")
  socket.write(sent)
  const closed = once(socket, "close").then(() => {
    throw new Error(`the connection was closed before it returned ${sent}`)
  })
  const [data] = (await Promise.race([once(socket, "data"), closed])) as [Buffer]
  closed.catch(() => undefined)
  return { text: data.toString(), socket }
}

engineNeeded.describe("sessions", () => {
  beforeAll(async () => {
    berth = await Installation.create({ name: "sessions", kubeconfig: kubeconfigPath(), runtime, sessions: true })
    await berth.startOperator()
    environment = { BERTH_URL: berth.url, BERTH_API_KEY: berth.apiKey }
    await runningJob("job")
  })
  afterAll(() => berth.close())

  engineNeeded.it("run a command, with its input, its output and its exit code", async () => {
    const echo = await run(["exec", "job", "--", "sh", "-c", "cat; echo problem >&2; exit 7"], environment, "hello")
    expect(echo).toMatchObject({ code: 7, out: "hello" })
    expect(echo.err).toContain("problem")
    // Every byte of what is larger than all buffers, and slower at the end.
    const bytes = randomBytes(3 * 1024 * 1024).toString("hex")
    const copied = await run(["exec", "job", "--", "sh", "-c", "sleep 1; cat"], environment, bytes)
    const digest = (text: string) => createHash("sha256").update(text).digest("hex")
    expect([copied.code, digest(copied.out)]).toEqual([0, digest(bytes)])
  })

  engineNeeded.it("say which program the image lacks", async () => {
    const missing = await run(["exec", "job", "--", "bash"], environment)
    expect(missing.code).toBeGreaterThanOrEqual(126)
    expect(missing.err).toContain("the container has no program bash, or it can't be started")
  })

  engineNeeded.it("give a terminal of the person's size, which follows theirs", async () => {
    const session = onTerminal(`stty rows 31 cols 97; tty; exec node ${MAIN} exec job`, environment)
    await session.shows("# ")
    session.type("stty size\n")
    await session.shows("31 97")
    // The person makes the window larger.
    const [window = ""] = /\/dev\/\S+/.exec(session.output()) ?? []
    execFileSync("stty", ["-F", window, "rows", "40", "cols", "111"])
    session.type('until [ "$(stty size)" = "40 111" ]; do sleep 0.1; done; echo lar""ger; exit 5\n')
    await session.shows("larger")
    expect((await session.ended).code).toBe(5)
  })

  engineNeeded.it(
    "reach a port through any replica, and go on after the one that held the session was killed",
    async () => {
      await runningJob("server", "nc -ll -p 8080 -e cat &")
      const { program, url } = await berth.startReplica()
      await using balancer = await Balancer.start([url])
      const forward = start(["forward", "server", "0:8080"], { ...environment, BERTH_URL: balancer.url })
      await forward.printed("is port 8080 of server")
      // The second replica holds the session. Connections come to both, and the agent's to the first one only.
      balancer.targets = [berth.url, url]
      const port = Number(/127\.0\.0\.1:(\d+)/.exec(forward.out())?.[1])
      const echoed = await Promise.all(Array.from({ length: 10 }, (_, index) => echo(port, `${index}`)))
      expect(echoed.map(({ text }) => text)).toEqual(Array.from({ length: 10 }, (_, index) => `${index}`))
      for (const { socket } of echoed.slice(1)) socket.destroy()
      expect(await sessionsOf("server")).toHaveLength(1)
      const broken = once(echoed[0]?.socket as Socket, "close")
      await program.kill()
      balancer.targets = [berth.url]
      await broken
      const again = await echo(port, "again")
      expect(again.text).toBe("again")
      again.socket.destroy()
      expect(forward.err()).toContain("The connection has ended")
      forward.interrupt()
      expect((await forward.ended).code).toBe(130)
    },
  )

  engineNeeded.it("end within seconds of their key, and by request", async () => {
    const key = await makeKey(berth.client, berth.namespace, "developer", { name: "short" })
    await eventually(async () => expect((await open("job", { command: ["sh"] }, key)).status).toBe(201))
    const { path, token } = (await (await open("job", { command: ["cat"] }, key)).json()) as Opened
    const socket = await connect(path, token)
    if (typeof socket === "number") throw new Error(`refused: ${socket}`)
    await berth.client.delete(API_KEYS, { namespace: berth.namespace, name: "short" })
    const [code, reason] = (await once(socket, "close")) as [number, Buffer]
    expect([code, reason.toString()]).toEqual([1008, "the credentials are no longer valid, or their role is too low"])
    const own = (await (await open("job", { command: ["cat"] })).json()) as Opened
    const other = await connect(own.path, own.token)
    if (typeof other === "number") throw new Error(`refused: ${other}`)
    const gone = once(other, "close")
    await berth.fetch(`/jobs/job/sessions/${own.session_id}`, { method: "DELETE" })
    expect(((await gone) as [number, Buffer])[1].toString()).toBe("the session was ended by request")
    await eventually(async () => expect(await sessionsOf("job")).toEqual([]))
  })

  engineNeeded.it("are for developers, with the session's own token, from the same origin", async () => {
    const viewer = await makeKey(berth.client, berth.namespace, "viewer", { name: "viewer" })
    await eventually(async () => expect((await open("job", { command: ["sh"] }, viewer)).status).toBe(403))
    const { path, token } = (await (await open("job", { port: 80 })).json()) as Opened
    const other = (await (await open("job", { port: 81 })).json()) as Opened
    expect(await statusOf(connect(path, ""))).toBe(401)
    expect(await statusOf(connect(path, other.token))).toBe(401)
    expect(await statusOf(connect(path, token, { headers: { Origin: "https://evil.example" } }))).toBe(403)
    expect(await statusOf(connect(path, token, { headers: { Origin: berth.url } }))).toBe(101)
    expect(await statusOf(connect(path.replace(/[0-9a-f]{12}$/, "000000000000"), token))).toBe(404)
    expect(await statusOf(connect("/1/jobs/job/logs", token))).toBe(404)
    for (const id of await sessionsOf("job")) await berth.fetch(`/jobs/job/sessions/${id}`, { method: "DELETE" })
  })

  engineNeeded.it("are at most 4 of a job, and none of one that does not run", async () => {
    const answers = []
    for (let count = 0; count < 5; count++) answers.push((await open("job", { port: 80 })).status)
    expect(answers).toEqual([201, 201, 201, 201, 429])
    for (const id of await sessionsOf("job")) await berth.fetch(`/jobs/job/sessions/${id}`, { method: "DELETE" })
    await berth.submit("brief", "true")
    await berth.reached("succeeded", "brief")
    // The façade's cache may not have the end yet.
    await eventually(async () => {
      const ended = await open("brief", { port: 80 })
      expect([ended.status, await ended.text()]).toEqual([409, expect.stringContaining("The job brief is succeeded")])
    })
    for (const body of [{}, { port: 80, command: ["sh"] }, { port: 80, tty: true }, { command: ["sh"], rows: 3 }])
      expect((await open("job", body)).status).toBe(400)
  })

  engineNeeded.it("take no agent's connection without its token and its signature, and no proof twice", async () => {
    const [launch] = berth.launchesOf("job")
    const { session_id } = (await (await open("job", { command: ["cat"] })).json()) as Opened
    const path = `/agent/v1/launches/${launch?.metadata.name}/sessions/${session_id}`
    expect(await statusOf(connect(path, ""))).toBe(401)
    expect(await statusOf(connect(path, "", { headers: { Authorization: "Bearer wrong" } }))).toBe(401)
    expect(await statusOf(connect(`${path}/streams/9`, "", { headers: { Authorization: "Bearer wrong" } }))).toBe(401)
    for (const id of await sessionsOf("job")) await berth.fetch(`/jobs/job/sessions/${id}`, { method: "DELETE" })
  })
})
