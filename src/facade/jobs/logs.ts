import { once } from "node:events"
import type { Response } from "express"
import type { StoredJob } from "../../apis/job.ts"
import type { Admitted } from "../../http/route.ts"
import type { LogStreams } from "./log-stream.ts"

/** Answers with the log of a job, as plain text. */
export async function streamLog(
  { req, res, isStillAdmitted }: Pick<Admitted<unknown>, "req" | "res" | "isStillAdmitted">,
  job: StoredJob,
  { follow, tail }: { follow: boolean; tail: number | undefined },
  logStreams: LogStreams,
): Promise<void> {
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
  for await (const piece of logStreams.open(job, { tail, follow, signal: gone.signal, mayGoOn: isStillAdmitted })) {
    if (gone.signal.aborted) return
    if (res.write(piece)) continue
    req.setTimeout(idleMs)
    await drained(res, gone.signal)
    if (follow) req.setTimeout(0)
  }
  res.end()
}

/** Resolves when the client has read on, or is gone. */
async function drained(res: Response, gone: AbortSignal): Promise<void> {
  await once(res, "drain", { signal: gone }).catch((error: unknown) => {
    if (!gone.aborted) throw error
  })
}
