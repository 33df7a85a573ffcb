import type { Clock } from "../apis/clock.ts"
import type { Logger } from "../apis/logger.ts"
import type { TokenVerifier, User } from "./oidc.ts"

export interface GroupsLogOptions {
  /** Returns true if an organization or project gives a role to a group. */
  hasGroupRoles: () => boolean
  clock: Clock
  logger: Logger
}

/** Time between two lines about one person, seconds. */
const PAUSE_SECONDS = 3600
/** Maximum number of people in memory. */
const MAX_PEOPLE = 10_000

/** Logs people whose groups Berth can't see, for the administrator: at most one line per person and hour. */
export class GroupsLog {
  readonly #options: GroupsLogOptions
  /** Times of the last lines by user id, monotonic seconds. */
  readonly #logged = new Map<string, number>()

  constructor(options: GroupsLogOptions) {
    this.#options = options
  }

  /** Returns a verifier of tokens that also logs tokens whose groups can't be read. */
  noting(tokens: Pick<TokenVerifier, "verify">): Pick<TokenVerifier, "verify"> {
    const verify = async (token: string): Promise<User | undefined> => {
      const user = await tokens.verify(token)
      if (user?.groupsTrouble?.isFault === true)
        this.#warn(user, "Berth can't see the groups of a person: see docs/people.md, Groups in tokens")
      return user
    }
    return { verify }
  }

  /** Logs a person without a role, whose token names no group although groups have roles. */
  noteWithoutRole(user: User): void {
    if (user.groupsTrouble === undefined || !this.#options.hasGroupRoles()) return
    this.#warn(user, "a person has no role, and the token names no group: see docs/people.md, Groups in tokens")
  }

  #warn({ userId, groupsTrouble }: User, message: string): void {
    const { clock, logger } = this.#options
    const now = clock.monotonic()
    const last = this.#logged.get(userId)
    if (last !== undefined && now - last < PAUSE_SECONDS) return
    if (this.#logged.size >= MAX_PEOPLE) this.#logged.clear()
    this.#logged.set(userId, now)
    logger.warn({ user: userId, reason: groupsTrouble?.reason }, message)
  }
}
