import type { Clock } from "../apis/clock.ts"
import { MinuteLimit } from "../http/limits.ts"
import { Problem } from "../http/problem.ts"

/** Maximum messages of one kind per Launch and minute. 600 pieces of log are 157 MB. */
const LAUNCH_MESSAGES_PER_MINUTE = 600

/** Cost of a message before its sender is known: a read of the Launch, or a check of the signature. */
export type Expense = "read" | "signature"

/** Budget for messages of unknown senders: a burst, and a rate per second. */
interface Budget {
  burst: number
  perSecond: number
}

/** One budget for all addresses with few failures, and one for all addresses with too many. */
type Budgets = Record<"ordinary" | "suspect", Budget>

/**
 * Budgets by expense. A signature costs about 0.2 ms of processor time: 250 are 5 % of the thread. 10,000 VMs of a
 * former version send at most 2,000. So do 400 addresses that send just too few forgeries to be suspect.
 */
const BUDGETS: Record<Expense, Budgets> = {
  read: { ordinary: { burst: 300, perSecond: 50 }, suspect: { burst: 5, perSecond: 5 } },
  signature: { ordinary: { burst: 2000, perSecond: 2000 }, suspect: { burst: 250, perSecond: 250 } },
}

/** Maximum number of archives that one Launch fetches in a minute. One is enough, unless connections break. */
const LAUNCH_WORKDIRS_PER_MINUTE = 6

/** Default of the MiB of working directories that a replica sends in a minute: 0.8 Gbit/s. */
export const WORKDIR_MIB_PER_MINUTE = 6000

/** Share of that limit which one project may use. */
const PROJECT_SHARE = 0.5

const MIB = 1024 * 1024

/** Delay before a sender should retry when the budget is empty, seconds. */
const RETRY_SECONDS = 1

/**
 * Limits the messages of agents and the cost of unknown senders, per replica. A Launch is charged only for messages
 * that its VM has proven to have sent, because others know its name. Other messages are charged to a budget that all
 * senders share. Addresses that send forgeries have the smaller part of it.
 */
export class MessageLimits {
  readonly #perLaunch = new MinuteLimit({
    name: "launch",
    perMinute: LAUNCH_MESSAGES_PER_MINUTE,
    subject: "Too many messages of this kind from this Launch",
  })
  readonly #workdirsPerLaunch = new MinuteLimit({
    name: "workdir",
    perMinute: LAUNCH_WORKDIRS_PER_MINUTE,
    subject: "Too many requests for the workdir from this Launch",
  })
  readonly #allowances: Record<Expense, Record<keyof Budgets, Allowance>>
  readonly #workdirs: Allowance
  readonly #workdirsOfProjects = new Map<string, Allowance>()
  readonly #workdirsOfProject: () => Allowance

  constructor(clock: Pick<Clock, "monotonic">, workdirMibPerMinute = WORKDIR_MIB_PER_MINUTE) {
    const workdirs = (share: number) =>
      new Allowance({ burst: workdirMibPerMinute * share, perSecond: (workdirMibPerMinute * share) / 60 }, clock)
    this.#workdirs = workdirs(1)
    this.#workdirsOfProject = () => workdirs(PROJECT_SHARE)
    const allowances = ({ ordinary, suspect }: Budgets) => ({
      ordinary: new Allowance(ordinary, clock),
      suspect: new Allowance(suspect, clock),
    })
    this.#allowances = { read: allowances(BUDGETS.read), signature: allowances(BUDGETS.signature) }
  }

  /** Charges a Launch for a message of its VM. @throws Problem 429 */
  async chargeLaunch(launch: string, kind: string): Promise<void> {
    const refusal = await this.#perLaunch.count(`${kind}/${launch}`)
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

  /** Charges the shared budget for a message of an unknown sender. @throws Problem 429 */
  chargeStranger(expense: Expense, isSuspect: boolean): void {
    if (this.#allowances[expense][isSuspect ? "suspect" : "ordinary"].take()) return
    const detail =
      "Too many messages arrive that do not carry the bootstrap token of their Launch: send this one again."
    const headers = { "Retry-After": String(RETRY_SECONDS) }
    throw new Problem({ type: "rate-limited", status: 429, detail, headers })
  }
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

  /** Takes a part, one by default. Returns false if too little is left. */
  take(amount = 1): boolean {
    if (this.secondsUntil(amount) > 0) return false
    this.#left -= amount
    return true
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
