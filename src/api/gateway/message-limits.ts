import type { Clock } from "../../core/apis/clock.ts"
import { Problem } from "../http/problem.ts"
import { MinuteLimit } from "../http/rate-limits.ts"

/** Maximum messages of one kind per Launch and minute. 600 pieces of log are 157 MB. */
const LAUNCH_MESSAGES_PER_MINUTE = 600

/** Maximum messages of one kind per machine and minute. A host sends a handful. */
const MACHINE_MESSAGES_PER_MINUTE = 120

/** Maximum number of archives that one Launch fetches in a minute. One is enough, unless connections break. */
const LAUNCH_WORKDIRS_PER_MINUTE = 6

/** Default of the MiB of working directories that a replica sends in a minute: 0.8 Gbit/s. */
export const WORKDIR_MIB_PER_MINUTE = 6000

/** Share of that limit which one project may use. */
const PROJECT_SHARE = 0.5

const MIB = 1024 * 1024

/** Limits the messages of agents, per replica. */
export class MessageLimits {
  readonly #perLaunch = new MinuteLimit({
    name: "launch",
    perMinute: LAUNCH_MESSAGES_PER_MINUTE,
    subject: "Too many messages of this kind from this Launch",
  })
  readonly #perMachine = new MinuteLimit({
    name: "machine",
    perMinute: MACHINE_MESSAGES_PER_MINUTE,
    subject: "Too many messages of this kind from this machine",
  })
  readonly #workdirsPerLaunch = new MinuteLimit({
    name: "workdir",
    perMinute: LAUNCH_WORKDIRS_PER_MINUTE,
    subject: "Too many requests for the workdir from this Launch",
  })
  readonly #workdirs: Allowance
  readonly #workdirsOfProjects = new Map<string, Allowance>()
  readonly #workdirsOfProject: () => Allowance

  constructor(clock: Pick<Clock, "monotonic">, workdirMibPerMinute = WORKDIR_MIB_PER_MINUTE) {
    const workdirs = (share: number) =>
      new Allowance({ burst: workdirMibPerMinute * share, perSecond: (workdirMibPerMinute * share) / 60 }, clock)
    this.#workdirs = workdirs(1)
    this.#workdirsOfProject = () => workdirs(PROJECT_SHARE)
  }

  /** Charges a Launch for a message of its VM. @throws Problem 429 */
  async chargeLaunch(launch: string, kind: string): Promise<void> {
    const refusal = await this.#perLaunch.count(`${kind}/${launch}`)
    if (refusal !== undefined) throw refusal
  }

  /** Charges a machine for a message of its host. @throws Problem 429 */
  async chargeMachine(machine: string, kind: string): Promise<void> {
    const refusal = await this.#perMachine.count(`${kind}/${machine}`)
    if (refusal !== undefined) throw refusal
  }

  /** Charges a Launch, its project and this replica for the bytes of a working directory. @throws Problem 429 */
  async chargeWorkdir(launch: string, namespace: string, bytes: number): Promise<void> {
    const refusal = await this.#workdirsPerLaunch.count(launch)
    if (refusal !== undefined) throw refusal
    const ofProject = this.#workdirsOfProjects.get(namespace) ?? this.#workdirsOfProject()
    this.#workdirsOfProjects.set(namespace, ofProject)
    const mib = Math.ceil(bytes / MIB)
    const seconds = Math.max(ofProject.secondsUntil(mib), this.#workdirs.secondsUntil(mib))
    if (seconds > 0) {
      const detail = "This replica sends as many working directories as it may: send the message again."
      const headers = { "Retry-After": String(Math.ceil(seconds)) }
      throw new Problem({ type: "rate-limited", status: 429, detail, headers })
    }
    for (const allowance of [ofProject, this.#workdirs]) allowance.take(mib)
  }
}

/** Amount for a burst, and a rate per second. */
interface Budget {
  burst: number
  perSecond: number
}

/** Remainder of a budget. */
class Allowance {
  readonly #budget: Budget
  readonly #clock: Pick<Clock, "monotonic">
  #left: number
  #at: number

  constructor(budget: Budget, clock: Pick<Clock, "monotonic">) {
    this.#budget = budget
    this.#clock = clock
    this.#left = budget.burst
    this.#at = clock.monotonic()
  }

  /** Takes an amount. Check before that it can be taken. */
  take(amount: number): void {
    this.#left -= amount
  }

  /** Returns the seconds until the amount can be taken. Of a larger one than the burst, the burst must be left. */
  secondsUntil(amount: number): number {
    const now = this.#clock.monotonic()
    const { burst, perSecond } = this.#budget
    this.#left = Math.min(burst, this.#left + (now - this.#at) * perSecond)
    this.#at = now
    return Math.max(0, Math.min(amount, burst) - this.#left) / perSecond
  }
}
