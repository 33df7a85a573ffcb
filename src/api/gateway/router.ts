import { pipeline } from "node:stream/promises"
import express, {
  type ErrorRequestHandler,
  type Request,
  type RequestHandler,
  type Response,
  type Router,
} from "express"
import { OWNER_PATH } from "../../core/identity/gateway-owner.ts"
import { runIn } from "../../core/kube/flow.ts"
import { OUTPUT_PATH } from "../../core/protocol/output.ts"
import {
  ARCHIVE_CONTENT_TYPE,
  type HostMessageKind,
  JWS_CONTENT_TYPE,
  LOG_CHUNK_BYTES,
  LOG_MARKS,
  type MessageKind,
} from "../../core/protocol/protocol.ts"
import { notFound, Problem } from "../http/problem.ts"
import { FailureLimit } from "../http/rate-limits.ts"
import { bootFailureHandlers } from "./boot-failure.ts"
import { type AdmittedKind, Gateway, type GatewayOptions, type Message } from "./gateway.ts"
import { type HostMessage, Hosts, type HostsOptions } from "./hosts.ts"
import type { MachineRef } from "./machines.ts"
import { bearerTokenIn, LAUNCH_NAME, MESSAGE_BYTES } from "./messages.ts"
import { outputHandler } from "./output.ts"
import { ownerHandler, type ReadLeader } from "./owner.ts"
import { reportFault } from "./reports.ts"

/** Longest time of output in a body, such as `{"at":262143,"time":1767348000500},`, bytes. */
const MARK_BYTES = 36

/** Largest body with a piece of log and its times, bytes: base64 in JSON, encoded again as base64url. */
const LOGS_BYTES = Math.ceil((LOG_CHUNK_BYTES * 16) / 9 + (LOG_MARKS * MARK_BYTES * 4) / 3) + 4096

/** Answers to forged or invalid messages, and the maximum of them per address and minute. */
const FAILURES = { statuses: [400, 401, 404, 413, 415], perMinute: 300, failures: "unauthenticated messages" }

/**
 * Returns the agents' API, to be mounted at GATEWAY_PATH. It passes errors to the app as Problems, so `problemHandler`
 * must follow it. Limits count per replica.
 */
export function gatewayRouter(
  options: GatewayOptions & Pick<HostsOptions, "machines" | "whyForbidden"> & { readLeader: ReadLeader },
  gateway = new Gateway(options),
): Router {
  const failures = new FailureLimit(FAILURES)
  const router = express.Router({ caseSensitive: true })
  router.param("launch", (_req, _res, next, name: string) => {
    if (!LAUNCH_NAME.test(name)) return next(notFound("There is no Launch of this name."))
    runIn(gateway.flowOf(name), next)
  })
  const admit = (kind: AdmittedKind): RequestHandler => {
    return async (req, res, next) => {
      await gateway.admit(kind, launchOf(req), bearerToken(req))
      noteFromVm(res)
      next()
    }
  }
  const receive = (kind: MessageKind, bytes: number, act: (message: Message, res: Response) => Promise<void>) => {
    router.post(
      `/launches/:launch/${kind}`,
      answerFault,
      admit(kind),
      jwsBody(bytes),
      async (req: Request, res: Response) => {
        await act({ launch: launchOf(req), jws: typeof req.body === "string" ? req.body : "" }, res)
      },
    )
  }
  const take = (kind: MessageKind, bytes: number, act: (message: Message) => Promise<object>) =>
    receive(kind, bytes, async (message, res) => answer(res, await act(message)))
  take("register", MESSAGE_BYTES, (message) => gateway.register(message))
  take("report", MESSAGE_BYTES, (message) => gateway.report(message))
  take("logs", LOGS_BYTES, (message) => gateway.appendLogs(message))
  take("volumes", MESSAGE_BYTES, (message) => gateway.renewVolumes(message))
  receive("next", MESSAGE_BYTES, async (message, res) => {
    const hangUp = new AbortController()
    res.once("close", () => hangUp.abort())
    answer(res, await gateway.next(message, hangUp.signal))
  })
  receive("workdir", MESSAGE_BYTES, async (message, res) =>
    sendArchive(res, await gateway.openWorkdir(message), options.logger),
  )
  addHostRoutes(router, new Hosts(options))
  router.get(OUTPUT_PATH, outputHandler(options, bearerToken))
  router.get(OWNER_PATH, ownerHandler(options, options.readLeader, bearerToken))
  router.post("/launches/:launch/boot-failure", admit("boot-failure"), bootFailureHandlers(options))
  router.use((_req, _res, next) =>
    next(
      notFound(
        "Agents POST to launches/{launch}/register, report, logs, volumes, workdir or next; VMs to boot-failure; hosts to machines/{namespace}/{name}/join or beat.",
      ),
    ),
  )
  const countFailure: ErrorRequestHandler = async (error: unknown, req, res, next) => {
    next(isFromVm(res) ? error : await failures.answerTo(error, req))
  }
  router.use(countFailure)
  return router
}

/** Adds the messages of the hosts that people have joined. */
function addHostRoutes(router: Router, hosts: Hosts): void {
  router.use("/machines/:namespace/:name", (req, _res, next) => {
    const machine = machineOf(req)
    if (!LAUNCH_NAME.test(machine.namespace) || !LAUNCH_NAME.test(machine.name))
      return next(notFound("There is no machine of this name."))
    runIn(hosts.flowOf(machine), next)
  })
  const receive = (kind: HostMessageKind, act: (message: HostMessage, hangUp: AbortSignal) => Promise<object>) => {
    const admit: RequestHandler = async (req, res, next) => {
      await hosts.admit(kind, { machine: machineOf(req), token: bearerToken(req) })
      noteFromVm(res)
      next()
    }
    router.post(
      `/machines/:namespace/:name/${kind}`,
      admit,
      jwsBody(MESSAGE_BYTES),
      async (req: Request, res: Response) => {
        const hangUp = new AbortController()
        res.once("close", () => hangUp.abort())
        const jws: string = typeof req.body === "string" ? req.body : ""
        answer(res, await act({ machine: machineOf(req), jws, token: bearerToken(req) }, hangUp.signal))
      },
    )
  }
  receive("join", (message) => hosts.join(message))
  receive("beat", (message, hangUp) => hosts.beat(message, hangUp))
}

/** Answers the error of a report that was read without Express (reports.ts). Its sender has sent the Launch's token. */
const answerFault: RequestHandler = (req, res, next) => {
  const fault = reportFault(req)
  if (fault === undefined) return next()
  noteFromVm(res)
  next(fault.error)
}

/** Notes that the sender has sent the Launch's token. Then neither its address nor the failures of others count. */
function noteFromVm(res: Response): void {
  res.locals["fromVm"] = true
}

function isFromVm(res: Response): boolean {
  return res.locals["fromVm"] === true
}

function answer(res: Response, body: object): void {
  res.set("Cache-Control", "no-store").json(body)
}

/**
 * Sends an archive as fast as the agent reads it. If it breaks off, the agent asks for the rest, because it knows the
 * size.
 */
async function sendArchive(
  res: Response,
  { bytes, pieces }: Awaited<ReturnType<Gateway["openWorkdir"]>>,
  logger: GatewayOptions["logger"],
): Promise<void> {
  res.set({ "Cache-Control": "no-store", "Content-Type": ARCHIVE_CONTENT_TYPE, "Content-Length": String(bytes) })
  res.flushHeaders()
  try {
    await pipeline(pieces, res)
  } catch (err) {
    logger.warn({ err }, "a workdir was not sent completely; its agent asks for the rest")
  }
}

/** Parses the body as text, after a check of its size. */
function jwsBody(bytes: number): RequestHandler[] {
  const isJws: RequestHandler = (req, _res, next) => {
    if (req.is(JWS_CONTENT_TYPE) !== false) return next()
    const detail = `Send a compact JWS as ${JWS_CONTENT_TYPE}.`
    next(new Problem({ type: "unsupported-media-type", status: 415, detail }))
  }
  return [isJws, express.text({ type: JWS_CONTENT_TYPE, limit: bytes, inflate: false })]
}

function launchOf(req: Request): string {
  return String(req.params["launch"])
}

function machineOf(req: Request): MachineRef {
  return { namespace: String(req.params["namespace"]), name: String(req.params["name"]) }
}

function bearerToken(req: Request): string | undefined {
  return bearerTokenIn(req.get("Authorization"))
}
