import type { Request } from "express"
import type { Principal } from "../../../core/identity/principal.ts"
import { namedSchema, pageSchema } from "../../http/json-schema.ts"
import { paging } from "../../http/query.ts"
import { declareBody, json, noContent, type PathParameter, routeDeclarer } from "../../http/route.ts"
import type { Jobs } from "../jobs/jobs.ts"
import { type SessionOpened, SessionOpenedSchema, SessionRecordSchema, SessionRequestSchema } from "./schema.ts"
import { endSession, openSession, requireHub, type SessionServices, toSessionRecord } from "./sessions.ts"

export interface SessionRouteServices extends SessionServices {
  jobsOf: (principal: Principal) => Jobs
}

const EXAMPLE = {
  session_id: "0f6b3c1e-7d2a-4a52-9f6e-2f8f3f0a9c11",
  kind: "exec",
  opened_by: "k-5ea07726",
  opened_at: "2026-11-01T12:00:00Z",
}
const LIST = pageSchema("SessionList", "sessions", namedSchema("SessionRecord", SessionRecordSchema, EXAMPLE))
const OPENED = namedSchema("SessionOpened", SessionOpenedSchema, {
  ...EXAMPLE,
  path: "/1/jobs/train-4kzrd9wb/sessions/0f6b3c1e-7d2a-4a52-9f6e-2f8f3f0a9c11",
  token: "shown-once",
  url: null,
  idle_seconds: 900,
  max_seconds: 3600,
} satisfies SessionOpened)

const SESSION_ID: PathParameter = { description: "Id of the session.", example: EXAMPLE.session_id }

const route = routeDeclarer<Principal, SessionRouteServices>({ tag: "sessions" })

/**
 * Returns the address at which the caller reaches Berth: that of the page which asks, if there is one. It is right also
 * behind a proxy that ends TLS.
 */
function baseOf(req: Request): URL {
  const asked = new URL(`${req.protocol}://${req.host}`)
  const page = URL.parse(req.get("Origin") ?? "")
  return page?.host === asked.host ? page : asked
}

export const sessionRoutes = [
  route("POST /jobs/{id}/sessions", {
    id: "openSession",
    summary: "Open a session into the job's running or kept container: a command, or a TCP port.",
    role: "developer",
    body: declareBody("SessionRequest", SessionRequestSchema, {
      what: "The session",
      example: { command: ["sh"], tty: true, columns: 120, rows: 40 },
    }),
    problems: ["sessions-disabled", "not-running", "agent-too-old"],
    responses: { 201: json(OPENED, "Opened. Connect by a WebSocket to its path.") },
    handle: async ({ req, path, body, principal, isStillAuthenticated }, services) => {
      const job = await services.jobsOf(principal).find(path.id)
      const at = req.originalUrl.replace(/[?].*$/, "").replace(/\/+$/, "")
      return {
        body: await openSession(job, body, services, { principal, isStillAuthenticated, path: at, base: baseOf(req) }),
      }
    },
  }),
  route("GET /jobs/{id}/sessions", {
    id: "listSessions",
    summary: "List the open sessions of the job.",
    role: "viewer",
    query: paging(),
    problems: ["sessions-disabled"],
    responses: { 200: json(LIST, "A page of sessions, the oldest first.") },
    handle: async ({ path, query: { offset, limit }, principal }, { jobsOf, hub }) => {
      const job = await jobsOf(principal).find(path.id)
      const all = requireHub(hub).ofJob(job.metadata.uid).map(toSessionRecord)
      return { body: { sessions: all.slice(offset, offset + limit), total: all.length, limit, offset } }
    },
  }),
  route("DELETE /jobs/{id}/debug", {
    id: "endDebug",
    summary: "End the VM that is kept for sessions after the job has failed.",
    role: "developer",
    responses: { 204: noContent("Ended: the VM is terminated.") },
    handle: async ({ path, principal }, { jobsOf }) => {
      await jobsOf(principal).endDebug(path.id)
    },
  }),
  route("DELETE /jobs/{id}/sessions/{session_id}", {
    id: "endSession",
    summary: "End a session, and all that was started in it.",
    role: "developer",
    path: { session_id: SESSION_ID },
    problems: ["sessions-disabled"],
    responses: { 204: noContent("Ended.") },
    handle: async ({ path, principal }, { jobsOf, hub }) => {
      const job = await jobsOf(principal).find(path.id)
      await endSession(job, path.session_id, hub)
    },
  }),
]
