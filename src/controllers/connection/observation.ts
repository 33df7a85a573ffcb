import type { LaunchPermission } from "../../cloud/account.ts"
import type { CredentialsUnusable, FoundCredentials } from "./credentials.ts"

/** What came of asking a provider whether it takes credentials. Messages have nothing of them. */
export type Outcome =
  | { is: "verified"; account: string; launch?: LaunchPermission }
  | { is: "refused"; message: string }
  | { is: "unreachable"; message: string }
  /** This version knows no such provider. */
  | { is: "unsupported" }

/** The last time that this process asked. */
export interface Attempt {
  /** Of which credentials. */
  version: string
  time: Date
  outcome: Outcome
  /** Such outcomes in a row, this one counted. */
  count: number
  /** The last refusal of a launch that was known then. */
  refusedTime?: string
}

/** Everything that a decision on a Connection is made from, besides itself. */
export interface ConnectionObservation {
  credentials: FoundCredentials | CredentialsUnusable
  /** Whether they are sealed under a key that has been replaced. */
  isOutdated: boolean
  /** Absent before this process has asked about these very credentials. */
  attempt?: Attempt
  /** When a cloud last refused a launch because of the credentials (RFC 3339). */
  refusedTime?: string
  /** Where its Launches are, those of which there is a record. */
  regions: readonly string[]
}
