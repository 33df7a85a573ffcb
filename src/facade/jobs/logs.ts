import { once } from "node:events"
import type { Router } from "express"
import { Query } from "../../http/query.ts"
import type { Principal } from "../../identity/principal.ts"
import { type Admission, type Call, endpoint, pathParameter } from "../endpoint.ts"
import type { Jobs } from "./jobs.ts"
import type { LogStreams } from "./log-stream.ts"

export interface LogRouteOptions {
  admission: Admission
  jobsOf: (principal: Principal) => Jobs
  logStreams: LogStreams
}

/** `GET /jobs/{id}/logs`: what the job's containers wrote, as plain text. */
export function logRoutes(router: Router, { admission, jobsOf, logStreams }: LogRouteOptions): void {
  const handle = (call: Call): Promise<void> => streamLog(call, jobsOf(call.principal), { admission, logStreams })
  endpoint(router, "/jobs/:id/logs", { GET: { role: "viewer", handle } }, admission)
}

async function streamLog(
  { req, res }: Call,
  jobs: Jobs,
  { admission, logStreams }: Omit<LogRouteOptions, "jobsOf">,
): Promise<void> {
  const query = new Query(req)
  const follow = query.boolean("follow") ?? false
  const tail = query.integer("tail", { minimum: 0, maximum: Number.MAX_SAFE_INTEGER })
  query.check()
  const job = await jobs.find(pathParameter(req, "id"))
  // A proxy that collects an answer before it passes it on would make a follow a surprise.
  res.set({ "Cache-Control": "no-store", "X-Accel-Buffering": "no" }).type("text/plain; charset=utf-8")
  if (req.method === "HEAD") {
    res.end()
    return
  }
  const gone = new AbortController()
  res.once("close", () => gone.abort())
  if (follow) res.flushHeaders()
  // A job may be silent for long; a client may not leave what is there unread for long.
  const idleMs = req.socket.timeout ?? 0
  if (follow) req.setTimeout(0)
  const mayGoOn = (): Promise<boolean> => admission.isStillAdmitted(req)
  for await (const piece of logStreams.open(job, { tail, follow, signal: gone.signal, mayGoOn })) {
    if (gone.signal.aborted) return
    if (res.write(piece)) continue
    req.setTimeout(idleMs)
    await drained(res, gone.signal)
    if (follow) req.setTimeout(0)
  }
  res.end()
}

/** Resolves when the client has read on, or is gone. */
async function drained(res: Call["res"], gone: AbortSignal): Promise<void> {
  await once(res, "drain", { signal: gone }).catch((error: unknown) => {
    if (!gone.aborted) throw error
  })
}
