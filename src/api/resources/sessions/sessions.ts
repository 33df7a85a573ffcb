import { isTerminal, type StoredJob } from "../../../core/apis/job.ts"
import type { StoredLaunch } from "../../../core/apis/launch.ts"
import { MOST_SESSIONS } from "../../../core/apis/remote-command.ts"
import type { Principal } from "../../../core/identity/principal.ts"
import type { Ability } from "../../../core/protocol/protocol.ts"
import type { SessionTarget } from "../../../core/protocol/sessions.ts"
import { debugUntil } from "../../../core/reuse/reuse.ts"
import { isCurrent } from "../../gateway/report.ts"
import { invalidRequest, notFound, Problem } from "../../http/problem.ts"
import { kindText } from "../../sessions/events.ts"
import { IDLE_SECONDS, SESSION_SECONDS, type SessionHub } from "../../sessions/hub.ts"
import type { SessionFacts } from "../../sessions/lease.ts"
import type { PortSites } from "../../sessions/ports/sites.ts"
import type { JobNameOf } from "../jobs/launches.ts"
import type { SessionOpened, SessionRecord, SessionRequest } from "./schema.ts"

export interface SessionServices {
  /** Absent: this installation allows no sessions. */
  hub: SessionHub | undefined
  /** Absent: browsers reach no ports. */
  ports: PortSites | undefined
  launchesOf: (job: StoredJob) => StoredLaunch[]
  jobNameOf: JobNameOf
}

export interface Opening {
  principal: Principal
  isStillAuthenticated: () => Promise<boolean>
  /** Path of the job's sessions, as the request has it. */
  path: string
  /** Address at which the caller reaches Berth. */
  base: URL
}

/** Opens a session into the job's container. @throws Problem 400, 403, 409, 429 */
export async function openSession(
  job: StoredJob,
  request: SessionRequest,
  { hub, ports, launchesOf, jobNameOf }: SessionServices,
  { principal, isStillAuthenticated, path, base }: Opening,
): Promise<SessionOpened> {
  const target = targetOf(request)
  const open = requireHub(hub)
  const launch = requireRunning(job, launchesOf(job))
  const count = open.ofJob(job.metadata.uid).length
  if (count >= MOST_SESSIONS) throw tooMany(job.metadata.name, count)
  const whyOver = async (): Promise<string | undefined> => {
    const current = launchesOf(job).find(({ metadata }) => metadata.name === launch)
    if (jobNameOf(launch) === undefined) return "the job was deleted"
    if (current === undefined || !isEnterable(current)) return "the job's container has ended"
    if (!(await isStillAuthenticated())) return "the credentials are no longer valid, or their role is too low"
    return undefined
  }
  const kind = request.port ?? ("exec" as const)
  const site =
    target.port === undefined || ports === undefined ? undefined : { label: ports.newLabel(), port: target.port }
  const about = { job, launch, by: principal.publicId, kind, ...(site !== undefined && { label: site.label }) }
  const session = await open.open({ ...about, target, whyOver })
  const { facts, token } = session
  return {
    ...toSessionRecord(facts),
    path: `${path}/${facts.id}`,
    token: token.text,
    url: (site && ports?.open(session, site, base)) ?? null,
    idle_seconds: IDLE_SECONDS,
    max_seconds: SESSION_SECONDS,
  }
}

/** Ends a session of the job. @throws Problem 403, 404 */
export async function endSession(job: StoredJob, id: string, hub: SessionHub | undefined): Promise<void> {
  const open = requireHub(hub)
  if (!open.ofJob(job.metadata.uid).some((session) => session.id === id))
    throw notFound("The job has no such session, or it has ended.")
  await open.end(id, "the session was ended by request")
}

/** @throws Problem 403 if this installation allows no sessions */
export function requireHub(hub: SessionHub | undefined): SessionHub {
  if (hub !== undefined) return hub
  const detail =
    "This installation of Berth allows no sessions. An operator of the cluster allows them by facade.sessions.enabled (--sessions true)."
  throw new Problem({ type: "sessions-disabled", status: 403, detail })
}

export function toSessionRecord({ id, kind, by, since }: SessionFacts): SessionRecord {
  return { session_id: id, kind: kindText(kind), opened_by: by, opened_at: since }
}

/** @throws Problem 400 unless the body names a command or a port */
function targetOf({ command, tty = false, toolbox = false, columns, rows, port }: SessionRequest): SessionTarget {
  const error = (pointer: string, detail: string) => invalidRequest([{ pointer, detail }], "The session")
  if (command === undefined && port === undefined) throw error("", 'needs a command, such as ["sh"], or a port')
  if (command !== undefined && port !== undefined)
    throw error("/port", "is not allowed with a command: open two sessions")
  if (port !== undefined) {
    if (toolbox) throw error("/toolbox", "a port needs no toolbox: omit it")
    if (tty || columns !== undefined || rows !== undefined)
      throw error("/tty", "a port has no terminal: omit tty, columns and rows")
    return { port }
  }
  if ((columns === undefined) !== (rows === undefined)) throw error("/columns", "columns and rows come together")
  const size = columns === undefined || rows === undefined ? {} : { size: { columns, rows } }
  return { exec: { command: command ?? [], tty, ...(toolbox && { toolbox }), ...size } }
}

/** Returns true if people can enter the container of a Launch: it runs, or it failed and is kept. */
function isEnterable(launch: StoredLaunch): boolean {
  const runs = isCurrent(launch) && launch.status?.agent?.startTime !== undefined
  return runs || debugUntil(launch) !== undefined
}

/** Returns the name of the Launch in which the job's container runs, or is kept. @throws Problem 409 */
function requireRunning(job: StoredJob, launches: readonly StoredLaunch[]): string {
  const { name } = job.metadata
  const phase = job.status?.phase ?? "queued"
  const launch = launches.find(isEnterable)
  if (launch === undefined) {
    const remedy = isTerminal(phase)
      ? "A session needs a running container, or one that failed in a job with debug.keepSeconds."
      : "Wait until its container runs."
    throw new Problem({ type: "not-running", status: 409, detail: `The job ${name} is ${phase}. ${remedy}` })
  }
  const { version = "unknown", abilities = [] } = launch.status?.agent ?? {}
  if (!abilities.includes("sessions" satisfies Ability)) {
    const detail = `The agent of the job's VM (version ${version}) is older than this version of Berth, and knows no sessions. The next VM's can.`
    throw new Problem({ type: "agent-too-old", status: 409, detail })
  }
  return launch.metadata.name
}

function tooMany(name: string, count: number): Problem {
  const detail = `The job ${name} has ${count} of ${MOST_SESSIONS} sessions. End one: DELETE /jobs/{id}/sessions/{session_id}.`
  return new Problem({ type: "rate-limited", status: 429, detail, headers: { "Retry-After": "10" } })
}
