import { once } from "node:events"
import { mkdtemp, rm } from "node:fs/promises"
import { createServer, type IncomingMessage, request, type ServerResponse } from "node:http"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { text } from "node:stream/consumers"
import Docker from "dockerode"

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

/** Engine of a VM's own: it shows what was created through it, and nothing else of the real engine. */
export interface OwnEngine extends DifferentEngine {
  /** Client of its own. What it creates counts as the VM's. */
  docker: Docker
  /** Set it to let the removal of containers keep their volumes, as an engine does that ends in between. */
  keepsVolumes: boolean
  /** Called before a request. Returns true for those that it answers itself. */
  gate: (req: IncomingMessage, res: ServerResponse) => boolean | Promise<boolean>
}

/** Fields of the engine's answers that identify an object. */
interface Listed {
  Id?: string
  Name?: string
}

/** Starts such an engine. */
export async function ownEngine(): Promise<OwnEngine> {
  const own = new Set<string>()
  const real = new Docker({ socketPath: ENGINE })
  const created = async ({ Id = "", Name = "" }: Listed, isContainer: boolean): Promise<void> => {
    for (const name of [Id, Name]) if (name !== "") own.add(name)
    if (!isContainer) return
    const { Mounts } = await real.getContainer(Id).inspect()
    for (const { Name: volume } of Mounts) if (volume !== undefined) own.add(volume)
  }
  const create = async (req: IncomingMessage, isContainer: boolean): Promise<Answered> => {
    const answer = await exchange(req, req.url ?? "", await text(req))
    if (answer.status === 201) await created(answer.body as Listed, isContainer)
    return answer
  }
  const list = async (req: IncomingMessage, path: string): Promise<Answered> => {
    // Without this filter the engine waits for drivers that other suites have removed.
    const local = `/volumes?filters=${encodeURIComponent('{"driver":["local"]}')}`
    const answer = await exchange(req, path === "/volumes" ? local : (req.url ?? ""))
    const isOwn = ({ Id = "", Name = "" }: Listed): boolean => own.has(Id) || own.has(Name)
    if (Array.isArray(answer.body)) return { ...answer, body: (answer.body as Listed[]).filter(isOwn) }
    const { Volumes } = answer.body as { Volumes: Listed[] | null }
    return { ...answer, body: { Volumes: (Volumes ?? []).filter(isOwn) } }
  }
  const answerOf = async (req: IncomingMessage): Promise<Answered | undefined> => {
    const { pathname, search } = new URL(req.url ?? "", "http://engine")
    const path = pathname.replace(/^\/v[\d.]+/, "")
    const creates = /^\/(containers|volumes|networks)\/create$/.exec(path)?.[1]
    if (req.method === "POST" && creates !== undefined) return await create(req, creates === "containers")
    if (req.method === "DELETE" && view.keepsVolumes) {
      return await exchange(req, `${pathname}${search.replace(/v=(true|1)/, "v=false")}`)
    }
    const isList = req.method === "GET" && /^\/(containers\/json|volumes|networks)$/.test(path)
    return isList ? await list(req, path) : undefined
  }
  const engine = await engineWith(async (req, res) => {
    if (await view.gate(req, res)) return true
    const answer = await answerOf(req)
    if (answer === undefined) return false
    const { status, body } = answer
    res.writeHead(status, { "content-type": "application/json" }).end(body === undefined ? "" : JSON.stringify(body))
    return true
  })
  const docker = new Docker({ socketPath: engine.socket })
  const view: OwnEngine = { ...engine, docker, keepsVolumes: false, gate: () => false }
  return view
}

interface Answered {
  status: number
  body: unknown
}

/** Sends a request to the real engine. Returns the status and the JSON of its answer. */
async function exchange({ method, headers }: IncomingMessage, path: string, body = ""): Promise<Answered> {
  const sent = Buffer.from(body)
  const more = sent.byteLength === 0 ? {} : { "content-length": sent.byteLength }
  const asked = request({ socketPath: ENGINE, method, path, headers: { ...headers, ...more } }).end(sent)
  const [answer] = (await once(asked, "response")) as [IncomingMessage]
  const said = await text(answer)
  return { status: answer.statusCode ?? 500, body: said === "" ? undefined : JSON.parse(said) }
}
