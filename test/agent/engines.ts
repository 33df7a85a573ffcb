import { once } from "node:events"
import { mkdtemp, rm } from "node:fs/promises"
import { createServer, type IncomingMessage, request, type ServerResponse } from "node:http"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { text } from "node:stream/consumers"

const ENGINE = "/var/run/docker.sock"

/** Proxy to the real engine that differs from it in some answers. */
export interface DifferentEngine {
  /** Path of its socket. */
  socket: string
  close(): Promise<void>
}

/** Starts a proxy to the real engine, or to another proxy. `answer` returns true for requests that it answers itself. */
export async function engineWith(
  answer: (req: IncomingMessage, res: ServerResponse) => boolean | Promise<boolean>,
  engine = ENGINE,
): Promise<DifferentEngine> {
  const folder = await mkdtemp(join(tmpdir(), "berth-engine-"))
  const socket = join(folder, "docker.sock")
  const server = createServer(async (req, res) => {
    if (!(await answer(req, res))) forward(engine, req, res)
  }).listen(socket)
  await once(server, "listening")
  const close = async (): Promise<void> => {
    server.closeAllConnections()
    server.close()
    await rm(folder, { recursive: true, force: true })
  }
  return { socket, close }
}

/** Starts a proxy to the real engine whose machine has this much memory, MiB. */
export function engineOfSize(mebibytes: number): Promise<DifferentEngine> {
  return engineWith(async (req, res) => {
    if (req.url?.endsWith("/info") !== true) return false
    const answered = await fetchInfo(req)
    res.setHeader("content-type", "application/json")
    res.end(JSON.stringify({ ...answered, MemTotal: mebibytes * 1024 * 1024 }))
    return true
  })
}

/** Body of a request for a container. */
export interface CreateRequest {
  Labels: Record<string, string>
  HostConfig: Record<string, unknown>
}

/** Starts a proxy to the real engine that takes requests for GPUs, and gives none. `created` has all such requests. */
export async function engineWithGpus(): Promise<DifferentEngine & { created: CreateRequest[] }> {
  const created: CreateRequest[] = []
  const engine = await engineWith(async (req, res) => {
    if (req.method !== "POST" || req.url?.includes("/containers/create") !== true) return false
    const body = JSON.parse(await text(req)) as CreateRequest
    created.push(structuredClone(body))
    delete body.HostConfig["DeviceRequests"]
    const sent = Buffer.from(JSON.stringify(body))
    const headers = { ...req.headers, "content-length": sent.byteLength }
    const asked = request({ socketPath: ENGINE, method: "POST", path: req.url, headers }).end(sent)
    const [answer] = (await once(asked, "response")) as [IncomingMessage]
    res.writeHead(answer.statusCode ?? 500, answer.headers)
    answer.pipe(res)
    return true
  })
  return { ...engine, created }
}

async function fetchInfo({ url: path, headers }: IncomingMessage): Promise<object> {
  const asked = request({ socketPath: ENGINE, path, headers }).end()
  const [answer] = (await once(asked, "response")) as [IncomingMessage]
  const pieces: Buffer[] = []
  for await (const piece of answer) pieces.push(piece as Buffer)
  return JSON.parse(Buffer.concat(pieces).toString()) as object
}

function forward(socketPath: string, req: IncomingMessage, res: ServerResponse): void {
  const { method, url: path, headers } = req
  const forwarded = request({ socketPath, method, path, headers }, (answer) => {
    res.writeHead(answer.statusCode ?? 500, answer.headers)
    // Output that comes later must not delay the answer's beginning.
    res.flushHeaders()
    answer.pipe(res)
  })
  forwarded.on("error", () => res.destroy())
  res.on("close", () => forwarded.destroy())
  req.pipe(forwarded)
}
