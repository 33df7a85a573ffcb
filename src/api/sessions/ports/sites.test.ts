import { once } from "node:events"
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  request,
  type Server,
  type ServerResponse,
} from "node:http"
import { type AddressInfo, connect } from "node:net"
import { text } from "node:stream/consumers"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { WebSocket, WebSocketServer } from "ws"
import { silentLogger } from "../../../../test/harness/silent-logger.ts"
import { systemClock } from "../../../core/apis/clock.ts"
import { createHttpServer } from "../../http/server.ts"
import { Forwarder } from "../forward.ts"
import { Upgrades } from "../upgrades.ts"
import { PortSites } from "./sites.ts"

const DOMAIN = "ports.example.com"
const API = "the API"

/** First lines of answers that HTTP does not allow, by path. */
const BROKEN: Record<string, string> = {
  "/no-status": "HTTP/1.1 000 None",
  "/not-asked": "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other",
  "/no-http": "hello",
}

/** First lines of odd answers that can be passed on, by path. */
const ODD: Record<string, string> = {
  "/odd-words": "HTTP/1.1 200 O\u0001\u00ffK",
}

/** Answer to a request. */
interface Answer {
  status: number
  headers: IncomingHttpHeaders
  body: string
}

interface Sent {
  host: string
  path?: string
  method?: string
  headers?: Record<string, string>
  body?: string
}

/** Site that is open, and the browser that has entered it. */
interface Entered {
  host: string
  origin: string
  cookie: string
  end: (reason: string) => void
}

describe("the port of a job as a site", () => {
  /** The job's program. */
  const job = createServer((req, res) => void answer(req, res))
  const replicas: { sites: PortSites; server: Server }[] = []
  const portOf = (server: Server): number => (server.address() as AddressInfo).port
  const closings: (() => void)[] = []
  /** Connections on which the program has had a request. */
  const used = new WeakSet<object>()
  /** Number of connections to the program. */
  let connections = 0

  beforeAll(async () => {
    const sockets = new WebSocketServer({ server: job })
    sockets.shouldHandle = ({ url }) => url === "/socket"
    sockets.on("connection", (socket, req) => {
      socket.send(JSON.stringify({ host: req.headers.host, origin: req.headers.origin, cookie: req.headers.cookie }))
      socket.on("message", (data, isBinary) => socket.send(data, { binary: isBinary }))
    })
    await once(job.listen(0, "127.0.0.1"), "listening")
    for (let count = 0; count < 2; count++) replicas.push(await startReplica())
  })
  afterAll(() => {
    for (const close of closings) close()
    for (const { server } of replicas) server.closeAllConnections()
    for (const { server } of replicas) server.close()
    job.closeAllConnections()
    job.close()
  })

  /** Starts a replica that knows the first one as the holder of all sessions. */
  async function startReplica() {
    const forwarder = new Forwarder()
    const leases = {
      holderOf: () => undefined,
      holderOfLabel: () => replicas[0] && `http://127.0.0.1:${portOf(replicas[0].server)}`,
    }
    const sites = new PortSites({ domain: DOMAIN, leases, forwarder })
    const server = createHttpServer((req, res) => (sites.has(req) ? sites.handle(req, res) : void res.end(API)))
    const hub = { get: () => undefined } as never
    new Upgrades({
      hub,
      leases,
      forwarder,
      ports: sites,
      gateway: () => undefined,
      clock: systemClock,
      logger: silentLogger,
    }).listenOn(server)
    await once(server.listen(0, "127.0.0.1"), "listening")
    closings.push(() => forwarder.close())
    return { sites, server }
  }

  /** Answers of the program by path. */
  const answers: Record<string, (req: IncomingMessage, res: ServerResponse) => void> = {
    "/redirect": (_req, res) => res.writeHead(302, { Location: `http://localhost:${portOf(job)}/next?a=b` }).end(),
    "/away": (_req, res) => res.writeHead(302, { Location: "https://elsewhere.example/" }).end(),
    "/cookies": (_req, res) => {
      const cookies = ["a=1; Domain=example.com; Path=/", "b=2; HttpOnly;domain=ports.example.com ; Secure"]
      res.writeHead(200, { "Set-Cookie": cookies, Connection: "X-Own", "X-Own": "hop" }).end()
    },
    "/events": (_req, res) => res.writeHead(200, { "Content-Type": "text/event-stream" }).write("data: 1\n\n"),
    "/silent": (_req, res) => res.writeHead(200, { "Content-Type": "text/event-stream" }).flushHeaders(),
    "/hang-up": (req) => req.socket.destroy(),
  }

  async function answer(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const { pathname } = new URL(req.url ?? "/", "http://job")
    const isUsed = used.has(req.socket)
    used.add(req.socket)
    const line = BROKEN[pathname] ?? ODD[pathname]
    if (pathname in answers) answers[pathname]?.(req, res)
    else if (line !== undefined) req.socket.end(`${line}\r\nContent-Length: 2\r\n\r\nok`)
    else if (pathname === "/stale" && isUsed) req.socket.destroy()
    else res.end(JSON.stringify({ headers: req.headers, method: req.method, url: req.url, body: await text(req) }))
  }

  function start({ host, path = "/", method = "GET", headers = {}, body }: Sent, replica = 0) {
    const sent = request({
      port: portOf(server(replica)),
      host: "127.0.0.1",
      method,
      path,
      agent: false,
      headers: { ...headers, host },
    })
    sent.end(body)
    return sent
  }

  function server(replica: number): Server {
    const found = replicas[replica]
    if (found === undefined) throw new Error(`there is no replica ${replica}`)
    return found.server
  }

  async function send(sent: Sent, replica = 0): Promise<Answer> {
    const [res] = (await once(start(sent, replica), "response")) as [IncomingMessage]
    return { status: res.statusCode ?? 0, headers: res.headers, body: await text(res) }
  }

  /** Opens a site, and enters it through a replica. */
  async function entered({ base = "http://berth.example.com", replica = 0 } = {}): Promise<Entered> {
    const { link, end } = open(base)
    const { host, origin, pathname, search } = new URL(link)
    const { status, headers } = await send({ host, path: pathname + search }, replica)
    expect([status, headers.location, headers["referrer-policy"]]).toEqual([303, "/", "no-referrer"])
    return { host, origin, end, cookie: String(headers["set-cookie"]?.[0]).split(";")[0] ?? "" }
  }

  function open(base = "http://berth.example.com") {
    const sites = replicas[0]?.sites
    if (sites === undefined) throw new Error("there is no replica")
    const { promise: ended, resolve: end } = Promise.withResolvers<string>()
    const session = {
      ended,
      connect: async () => {
        connections++
        return connect(portOf(job), "127.0.0.1")
      },
    }
    const link = sites.open(session, { label: sites.newLabel(), port: portOf(job) }, new URL(base))
    return { link, end }
  }

  /** Opens a WebSocket. Resolves with its first message and the echo of another one, or with the status of a refusal. */
  async function converse(
    { host, cookie, origin }: Partial<Entered> & { host: string },
    replica = 0,
    path = "/socket",
  ) {
    const headers = { host, ...(cookie !== undefined && { cookie }), ...(origin !== undefined && { origin }) }
    const socket = new WebSocket(`ws://127.0.0.1:${portOf(server(replica))}${path}`, { headers })
    const refused = Promise.withResolvers<number>()
    socket.on("error", () => refused.resolve(0))
    socket.once("unexpected-response", (_req, res) => refused.resolve(res.statusCode ?? 0))
    const greeting = once(socket, "message").then(([data]) => JSON.parse(String(data)) as object)
    const first = await Promise.race([greeting, refused.promise])
    if (typeof first === "number") return first
    socket.send("x".repeat(200_000))
    const [echo] = (await once(socket, "message")) as [Buffer]
    socket.terminate()
    return { ...first, echoed: echo.byteLength }
  }

  it("opens by a link that works once, and leaves its token in no address", async () => {
    const { link } = open()
    const { host, pathname, search } = new URL(link)
    expect(host).toMatch(/^[0-9a-f]{32}\.ports\.example\.com$/)
    expect((await send({ host, path: pathname + search, method: "HEAD" })).status).toBe(403)
    expect((await send({ host, path: `${pathname}?token=wrong` })).status).toBe(403)
    const first = await send({ host, path: pathname + search })
    expect(first.headers["set-cookie"]).toEqual([
      expect.stringMatching(/^berth-port=[\w-]{43}; Path=\/; HttpOnly; SameSite=Lax$/),
    ])
    const again = await send({ host, path: pathname + search })
    expect([again.status, again.headers["set-cookie"]]).toEqual([403, undefined])
    expect(again.body).toContain("A link to a port works once")
  })

  it("has a cookie that other hosts can't set, by TLS", async () => {
    const { link } = open("https://berth.example.com:8443")
    const { host, pathname, search, origin } = new URL(link)
    expect(origin).toMatch(/^https:.*:8443$/)
    const { headers } = await send({ host, path: pathname + search })
    expect(headers["set-cookie"]?.[0]).toMatch(/^__Host-berth-port=[\w-]{43}; Path=\/; HttpOnly; SameSite=Lax; Secure$/)
  })

  it("shows the program a browser at localhost, without what is Berth's", async () => {
    const { host, cookie, origin } = await entered()
    const headers = {
      cookie: `a=1; ${cookie}; b=2=3`,
      origin,
      referer: `${origin}/page?x=1`,
      authorization: "token of-the-job",
      "x-forwarded-host": "evil.example",
      "x-forwarded-for": "192.0.2.1",
      connection: "x-hop",
      "x-hop": "1",
    }
    const { body } = await send({ host, path: "/page?x=1", method: "POST", headers, body: "content" })
    const local = `localhost:${portOf(job)}`
    const seen = JSON.parse(body) as { headers: IncomingHttpHeaders }
    expect(seen).toMatchObject({ method: "POST", url: "/page?x=1", body: "content" })
    expect(seen.headers).toEqual({
      host: local,
      cookie: "a=1; b=2=3",
      origin: `http://${local}`,
      referer: `http://${local}/page?x=1`,
      authorization: "token of-the-job",
      connection: "keep-alive",
      "content-length": "7",
    })
  })

  it("keeps redirects on its host, and cookies to it", async () => {
    const { host, cookie, origin } = await entered()
    const location = async (path: string) => (await send({ host, path, headers: { cookie } })).headers.location
    expect(await location("/redirect")).toBe(`${origin}/next?a=b`)
    expect(await location("/away")).toBe("https://elsewhere.example/")
    const { headers } = await send({ host, path: "/cookies", headers: { cookie } })
    expect(headers["set-cookie"]).toEqual(["a=1; Path=/", "b=2; HttpOnly; Secure"])
    expect(headers).toMatchObject({ "referrer-policy": "same-origin" })
    expect(headers).not.toHaveProperty("x-own")
  })

  it.each([0, 1])("passes on events, large bodies and WebSockets through replica %i", async (replica) => {
    const site = await entered({ replica })
    const headers = { cookie: site.cookie }
    const events = start({ host: site.host, path: "/events", headers }, replica)
    const [stream] = (await once(events, "response")) as [IncomingMessage]
    expect(String((await once(stream, "data"))[0])).toBe("data: 1\n\n")
    events.destroy()
    // A stream begins before its first event.
    const silent = start({ host: site.host, path: "/silent", headers }, replica)
    await once(silent, "response")
    silent.destroy()
    const body = "y".repeat(3_000_000)
    const upload = { host: site.host, method: "DELETE", body, headers: { ...headers, "transfer-encoding": "chunked" } }
    expect(JSON.parse((await send(upload, replica)).body)).toMatchObject({ method: "DELETE", body })
    const local = `localhost:${portOf(job)}`
    expect(await converse(site, replica)).toEqual({ host: local, origin: `http://${local}`, echoed: 200_000 })
  })

  it.each(["/hang-up", ...Object.keys(BROKEN)])(
    "says in words that the program does not answer, at %s",
    async (path) => {
      const { host, cookie, origin } = await entered()
      const { status, body } = await send({ host, path, headers: { cookie } })
      expect([status, body]).toEqual([502, expect.stringContaining("the program has closed the connection")])
      expect([502, 400, 0]).toContain(await converse({ host, cookie, origin }, 0, path))
    },
  )

  it("uses a connection again for requests that change nothing, also after the program has closed it", async () => {
    const { host, cookie } = await entered()
    connections = 0
    const ask = (path: string, method = "GET") => send({ host, path, method, headers: { cookie } })
    const statuses = [await ask("/1"), await ask("/2"), await ask("/3")].map(({ status }) => status)
    expect([statuses, connections]).toEqual([[200, 200, 200], 1])
    const closed = once(job, "connection")
    job.closeIdleConnections()
    expect([(await ask("/4")).status, connections]).toEqual([200, 2])
    await closed
    expect([(await ask("/stale")).status, connections]).toEqual([200, 3])
    expect([(await ask("/stale", "POST")).status, connections]).toEqual([200, 4])
  })

  it("takes an answer whose status has other bytes than text", async () => {
    const { host, cookie } = await entered()
    expect(await send({ host, path: "/odd-words", headers: { cookie } })).toMatchObject({ status: 200, body: "ok" })
  })

  it("takes requests of the browser that has entered only", async () => {
    const [mine, other] = [await entered(), await entered()]
    expect((await send({ host: mine.host })).status).toBe(403)
    expect((await send({ host: mine.host, headers: { cookie: other.cookie } })).status).toBe(403)
    expect(await converse({ host: mine.host, origin: mine.origin })).toBe(403)
    expect(await converse({ host: mine.host, cookie: other.cookie })).toBe(403)
  })

  it.each([
    ["another job's page", { "sec-fetch-site": "same-site", "sec-fetch-mode": "cors", "sec-fetch-dest": "empty" }, 403],
    ["a frame", { "sec-fetch-site": "same-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe" }, 403],
    ["an image", { "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image" }, 403],
    ["a page of another origin", { origin: "https://evil.example" }, 403],
    ["a link", { "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document" }, 200],
    ["its own page", { "sec-fetch-site": "same-origin", "sec-fetch-mode": "cors", "sec-fetch-dest": "empty" }, 200],
  ])("takes a request of %s as what it is", async (_what, headers, status) => {
    const { host, cookie } = await entered()
    expect((await send({ host, headers: { ...headers, cookie } as Record<string, string> })).status).toBe(status)
  })

  it("takes no WebSocket and no form of another site", async () => {
    const { host, cookie } = await entered()
    expect(await converse({ host, cookie, origin: "http://other.ports.example.com" })).toBe(403)
    const form = { "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document", cookie }
    expect((await send({ host, method: "POST", headers: form })).status).toBe(403)
  })

  it.each([
    (label: string) => `${label}.${DOMAIN}`,
    (label: string) => `${label}.${DOMAIN}:8443`,
    (label: string) => `${label.toUpperCase()}.Ports.EXAMPLE.com`,
    (label: string) => `${label}.${DOMAIN}.`,
    (label: string) => `${label}.${DOMAIN}.:80`,
  ])("is found by any spelling of its host", async (spell) => {
    const { host, cookie } = await entered()
    const spelled = spell(host.split(".")[0] ?? "")
    expect((await send({ host: spelled, path: "/1/jobs", headers: { cookie } })).body).toContain('"url":"/1/jobs"')
  })

  it.each([DOMAIN, `${DOMAIN}.`, `x.${DOMAIN}`, `a.b.${DOMAIN}:80`, `X.${DOMAIN.toUpperCase()}.`])(
    "never leads from the host %s to the API",
    async (host) => {
      for (const path of ["/1/jobs", "/agent/v1/register", "/console/", "/.well-known/berth"]) {
        const { status, body } = await send({ host, path })
        expect([status, body]).toEqual([404, expect.stringContaining("No session is open at this address")])
      }
      expect(await converse({ host })).toBe(404)
    },
  )

  it("is not reached by a header that proxies set, or another request target", async () => {
    const { host, cookie } = await entered()
    for (const other of ["berth.example.com", `${DOMAIN}.evil.example`, `x${DOMAIN}`])
      expect((await send({ host: other, headers: { "x-forwarded-host": host, cookie } })).body).toBe(API)
    const forwarded = await send({ host, headers: { "x-forwarded-host": "berth.example.com", cookie } })
    expect(forwarded.body).toContain('"url":"/"')
    expect((await send({ host, path: "http://berth.example.com/1/jobs", headers: { cookie } })).status).toBe(400)
  })

  it("ends with its session, and says so", async () => {
    const { host, cookie, end } = await entered()
    const events = start({ host, path: "/events", headers: { cookie } })
    const [stream] = (await once(events, "response")) as [IncomingMessage]
    const broken = new Promise((resolve) => stream.once("error", resolve))
    end("by request")
    expect(await broken).toMatchObject({ code: "ECONNRESET" })
    for (const replica of [0, 1]) {
      const { status, body } = await send({ host, headers: { cookie } }, replica)
      expect([status, body]).toEqual([404, expect.stringContaining("Open the port once more")])
    }
  })
})
