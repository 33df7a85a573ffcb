import { type Clock, secondsBetween } from "../../core/apis/clock.ts"
import { defined } from "../../core/apis/defined.ts"
import { isTerminal, type StoredJob } from "../../core/apis/job.ts"
import { isOver, type StoredLaunch } from "../../core/apis/launch.ts"
import { keyOf } from "../../core/apis/meta.ts"
import { bootSince } from "../../market/placement/outcome.ts"
import { ElapsedTimes } from "../elapsed.ts"
import { byNumber, type JobObservation } from "./facts.ts"

/** Measures the times that the deadlines of jobs depend on. */
export class JobTimes {
  /** Since the first start of each job's container. */
  readonly #run: ElapsedTimes
  /** Since the boot of each job's newest Launch, and since its agent registered. */
  readonly #boot: ElapsedTimes
  readonly #start: ElapsedTimes
  /** Since the creation of each job that waits for its first start. */
  readonly #queue: ElapsedTimes

  constructor(clock: Clock) {
    this.#run = new ElapsedTimes(clock)
    this.#boot = new ElapsedTimes(clock)
    this.#start = new ElapsedTimes(clock)
    this.#queue = new ElapsedTimes(clock)
  }

  /**
   * Returns the times of a job. The agent enforces the timeout first, so its reports say how long a container ran that had
   * started before this process.
   */
  of(
    job: StoredJob,
    launches: readonly StoredLaunch[],
  ): Pick<JobObservation, "runSeconds" | "bootSeconds" | "queueSeconds"> {
    const key = keyOf(job)
    if (isTerminal(job.status?.phase)) return {}
    const launch = byNumber(launches).at(-1)
    const agent = launch?.status?.agent
    const since = job.status?.startTime ?? agent?.startTime
    const isLive = launch !== undefined && !isOver(launch) && agent?.startTime !== undefined
    const beat = isLive ? agent.lastHeartbeatTime : undefined
    const reported = since === undefined || beat === undefined ? undefined : secondsBetween(since, beat)
    const runSeconds = this.#run.seconds(key, { id: job.metadata.uid, since, reported })
    // While the cloud does not answer, the calendar counts.
    const boot = launch?.status?.vm && bootSince(launch)
    const id = launch?.metadata.name
    const booted = id === undefined ? undefined : this.#boot.seconds(key, { id, since: boot })
    // Both are measured from the beginning. The agent's part counts once it has registered.
    const bootSeconds =
      (id === undefined ? undefined : this.#start.seconds(key, { id, since: agent?.registrationTime })) ?? booted
    const { uid, creationTimestamp } = job.metadata
    const isLimited = job.spec.maxQueueSeconds !== undefined && since === undefined
    const queueSeconds = isLimited ? this.#queue.seconds(key, { id: uid, since: creationTimestamp }) : undefined
    return defined({ runSeconds, bootSeconds, queueSeconds })
  }

  /** Forgets a job that has ended or is deleted. */
  forget(key: string): void {
    for (const times of [this.#run, this.#boot, this.#start, this.#queue]) times.forget(key)
  }
}
