import type { Clock } from "../apis/clock.ts"
import type { Logger } from "../apis/logger.ts"
import type { StoredOrganization } from "../apis/organization.ts"
import { ifFound, isConflict, isNotFound } from "../kube/errors.ts"
import type { Store } from "../kube/store.ts"
import { ORGANIZATIONS } from "../resources.ts"
import type { Memberships } from "./memberships.ts"
import type { TokenVerifier, User } from "./oidc.ts"
import type { CallerClient } from "./principal.ts"

export interface MemberEmailsOptions {
  /** Client of the ServiceAccount that may write Organizations. */
  client: Pick<CallerClient, "get" | "replace">
  memberships: Pick<Memberships, "of">
  organizations: Pick<Store<StoredOrganization>, "resourceVersion">
  clock: Clock
  logger: Logger
}

/** Time for which a person's address stays, seconds. Tokens of before and after a change may be valid together. */
const PAUSE_SECONDS = 600
/** Maximum number of people in memory. */
const MAX_PEOPLE = 10_000
/** Attempts to change an organization that other requests change at the same time. */
const ATTEMPTS = 3

interface Seen {
  email: string
  /** Time at which the address was first seen, monotonic seconds. */
  at: number
  /** Version of the cache whose organizations have been compared. */
  version: string
}

/** Writes the addresses of people into their memberships when they send a request. An admin invites an id only. */
export class MemberEmails {
  readonly #options: MemberEmailsOptions
  readonly #seen = new Map<string, Seen>()

  constructor(options: MemberEmailsOptions) {
    this.#options = options
  }

  /** Returns a verifier of tokens that also notes the address of each user. The verification does not wait for it. */
  noting(tokens: Pick<TokenVerifier, "verify">): Pick<TokenVerifier, "verify"> {
    const verify = async (token: string): Promise<User | undefined> => {
      const user = await tokens.verify(token)
      if (user !== undefined) void this.note(user)
      return user
    }
    return { verify }
  }

  /** Writes the address into the organizations that have another or none. Logs errors. */
  async note({ userId, email }: User): Promise<void> {
    const { memberships, logger } = this.#options
    if (email === undefined || !this.#isNew(userId, email)) return
    // Without the groups: a group's organization has no entry of the user.
    for (const { metadata, spec } of memberships.of({ userId })) {
      if (!isOther({ spec }, userId, email)) continue
      try {
        await this.#write(metadata.name, userId, email)
      } catch (err) {
        logger.warn({ err, organization: metadata.name }, "cannot write the email address of a member")
      }
    }
  }

  /** Returns true if the address has to be compared with the organizations in the cache. */
  #isNew(userId: string, email: string): boolean {
    const { clock, organizations } = this.#options
    const version = organizations.resourceVersion
    if (version === undefined) return false
    const now = clock.monotonic()
    const seen = this.#seen.get(userId)
    const isSame = seen?.email === email
    if (seen !== undefined && (isSame ? seen.version === version : now - seen.at < PAUSE_SECONDS)) return false
    if (this.#seen.size >= MAX_PEOPLE) this.#seen.clear()
    this.#seen.set(userId, { email, at: isSame ? seen.at : now, version })
    return true
  }

  async #write(name: string, userId: string, email: string): Promise<void> {
    const { client } = this.#options
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      const present = await ifFound(client.get(ORGANIZATIONS, { name }))
      if (present === undefined || !isOther(present, userId, email)) return
      const members = present.spec.members?.map((member) => (member.userId === userId ? { ...member, email } : member))
      try {
        await client.replace(ORGANIZATIONS, { ...present, spec: { ...present.spec, ...(members && { members }) } })
        return
      } catch (error) {
        if (!isConflict(error) && !isNotFound(error)) throw error
      }
    }
  }
}

/** Returns true if the user is a member with another address or none. */
function isOther({ spec: { members = [] } }: Pick<StoredOrganization, "spec">, userId: string, email: string): boolean {
  return members.some((member) => member.userId === userId && member.email !== email)
}
