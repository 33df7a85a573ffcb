import { randomUUID } from "node:crypto"
import { type Clock, timestamp } from "../../core/apis/clock.ts"
import type { StoredJob } from "../../core/apis/job.ts"
import { isNotFound } from "../../core/kube/errors.ts"
import type { EventRecorder } from "../../core/kube/events.ts"
import type { SessionTarget } from "../../core/protocol/sessions.ts"
import type { Logger } from "../../core/telemetry/logger.ts"
import { timeOrAbort, untilRefused } from "../long-responses.ts"
import { endedNote, openedNote } from "./events.ts"
import type { SessionFacts, SessionLeases } from "./lease.ts"
import { CLOSES, Session } from "./session.ts"

/** Longest time of a session, seconds. */
export const SESSION_SECONDS = 3600

/** Time without a byte after which a session ends, seconds. */
export const IDLE_SECONDS = 900

const RENEW_SECONDS = 5

/** Interval at which this replica looks for sessions of replicas that have ended, seconds. */
const COLLECT_SECONDS = 60

export interface HubOptions {
  leases: SessionLeases
  /** Recorder of events about the jobs of sessions. */
  recorder: Pick<EventRecorder, "record">
  clock: Clock
  logger: Logger
}

export interface NewSession extends Omit<SessionFacts, "id" | "since" | "namespace" | "job"> {
  job: StoredJob
  target: SessionTarget
  /** Returns why the session may not go on; undefined if it may. It is called each second. */
  whyOver: () => Promise<string | undefined>
}

/** Sessions that this replica holds. */
export class SessionHub {
  readonly #options: HubOptions
  readonly #held = new Map<string, Session>()

  constructor(options: HubOptions) {
    this.#options = options
  }

  /** Returns a session that this replica holds. */
  get(id: string): Session | undefined {
    return this.#held.get(id)
  }

  /** Returns the ids of a Launch's sessions at all replicas. */
  idsOf(launch: string): string[] {
    const own = [...this.#held.values()].filter(({ facts }) => facts.launch === launch).map(({ facts }) => facts.id)
    const others = this.#options.leases.of("launch", launch).map(({ id }) => id)
    return [...new Set([...own, ...others])]
  }

  /** Returns the sessions of a job at all replicas. */
  ofJob(uid: string): SessionFacts[] {
    const own = [...this.#held.values()].map(({ facts }) => facts).filter(({ job }) => job === uid)
    const others = this.#options.leases.of("job", uid).filter(({ id }) => !this.#held.has(id))
    return [...own, ...others].sort((one, other) => (one.since < other.since ? -1 : 1))
  }

  /** Opens a session, and keeps it until it ends. */
  async open({ job, target, whyOver, ...about }: NewSession): Promise<Session> {
    const { leases, clock } = this.#options
    const { namespace = "", uid } = job.metadata
    const facts = { ...about, namespace, job: uid, id: randomUUID(), since: timestamp(clock.now()) }
    const session = new Session({ facts, target, clock })
    this.#held.set(facts.id, session)
    try {
      await leases.create(facts)
    } catch (error) {
      this.#held.delete(facts.id)
      throw error
    }
    void this.#keep(session, job, whyOver)
    return session
  }

  /** Ends a session at any replica. */
  async end(id: string, reason: string): Promise<void> {
    const own = this.#held.get(id)
    if (own !== undefined) own.end(reason)
    // Its replica sees that.
    else await this.#options.leases.delete(id)
  }

  /** Removes what ended replicas have left, until the signal is aborted. */
  async run(signal: AbortSignal): Promise<void> {
    const { leases, clock, logger } = this.#options
    while (!signal.aborted) {
      await timeOrAbort(COLLECT_SECONDS, clock, signal)
      for (const id of leases.abandoned()) {
        await leases.delete(id).catch((err: unknown) => logger.warn({ err }, "failed to delete the Lease of a session"))
      }
    }
  }

  /** Ends all sessions: this replica stops. */
  close(): void {
    for (const session of this.#held.values())
      session.end("this replica of Berth stops: open the session again", CLOSES.restart)
  }

  async #keep(session: Session, job: StoredJob, whyOver: NewSession["whyOver"]): Promise<void> {
    const { leases, clock, logger, recorder } = this.#options
    const { id, by, kind, launch } = session.facts
    const about = { session: id, by, job: job.metadata.name, launch, kind }
    const over = new AbortController()
    logger.info(about, "a session has begun")
    recorder.record(job, openedNote(session.facts))
    const began = clock.monotonic()
    leases.onDeleted(id, () => session.end("the session was ended by request"))
    void this.#recheck(session, whyOver, over.signal)
    void this.#watch(session, over.signal)
    const reason = await session.ended
    over.abort()
    this.#held.delete(id)
    const seconds = Math.round(clock.monotonic() - began)
    logger.info({ ...about, seconds, ...session.bytes, reason }, "a session has ended")
    recorder.record(job, endedNote(session.facts, { seconds, reason, ...session.bytes }))
    await leases.delete(id).catch((err: unknown) => logger.warn({ err }, "failed to delete the Lease of a session"))
  }

  /** Ends a session whose person has lost the right to it, or whose container is left. */
  async #recheck(session: Session, whyOver: NewSession["whyOver"], signal: AbortSignal): Promise<void> {
    let why: string | undefined
    const mayGoOn = async (): Promise<boolean> => {
      why = await whyOver()
      return why === undefined
    }
    await untilRefused(mayGoOn, this.#options.clock, signal)
    if (why !== undefined) session.end(why)
  }

  async #watch(session: Session, signal: AbortSignal): Promise<void> {
    const { leases, clock, logger } = this.#options
    const end = clock.monotonic() + SESSION_SECONDS
    while (!signal.aborted) {
      await timeOrAbort(RENEW_SECONDS, clock, signal)
      if (signal.aborted) return
      if (clock.monotonic() >= end) return session.end(`a session lasts at most ${SESSION_SECONDS / 60} min`)
      if (session.idleSeconds >= IDLE_SECONDS) return session.end(`nothing was sent for ${IDLE_SECONDS / 60} min`)
      try {
        await leases.renew(session.facts.id)
      } catch (err) {
        if (isNotFound(err)) return session.end("the session was ended by request")
        logger.warn({ err }, "failed to renew the Lease of a session; retrying")
      }
    }
  }
}
