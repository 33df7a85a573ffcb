/**
 * Types of the problems that an operation can answer with, each with its statuses. An operation's own types follow from
 * its declaration (`collectProblemTypes`); the document's statuses follow from the types.
 */
export const PROBLEM_STATUSES = {
  "agent-too-old": [409],
  "already-ended": [409],
  "being-deleted": [409],
  "credentials-in-secret": [409],
  "credentials-unreadable": [409],
  forbidden: [403],
  "idempotency-key-reused": [422],
  "internal-error": [500],
  "invalid-request": [400],
  "last-owner": [409],
  "name-taken": [409],
  "not-failed": [409],
  "not-found": [404],
  "not-running": [409],
  "precondition-failed": [412],
  "project-limit": [403, 429],
  "rate-limited": [429],
  "run-in-progress": [409],
  "sessions-disabled": [403],
  "too-large": [413],
  unauthorized: [401],
  unavailable: [503],
  "unsupported-media-type": [415],
  "value-shown-once": [409],
  "vm-taken": [409],
} as const satisfies Readonly<Record<string, readonly number[]>>

export type ProblemType = keyof typeof PROBLEM_STATUSES

/**
 * Types of every operation. Authentication answers 404 to a user without a role, so that it doesn't show which projects
 * exist. The Kubernetes API may reject any request (403), or be unreachable (503).
 */
const ALWAYS: readonly ProblemType[] = [
  "forbidden",
  "internal-error",
  "invalid-request",
  "not-found",
  "rate-limited",
  "unauthorized",
  "unavailable",
]

/** Properties of a declaration from which problems follow. */
export interface Capabilities {
  /** True if the request has a body, which may be too large or of another media type. */
  readsBody: boolean
  /** True if the operation creates an object of a project: its name may be in use, and the project full or ending. */
  creates?: boolean | undefined
  idempotent?: boolean | undefined
  ifMatch?: boolean | undefined
  /** Types that follow from nothing else in the declaration. */
  problems?: readonly ProblemType[] | undefined
}

/** Returns the types of the problems that an operation can answer with. */
export function collectProblemTypes({ readsBody, creates, idempotent, ifMatch, problems = [] }: Capabilities) {
  const types: ProblemType[] = [...ALWAYS, ...problems]
  if (readsBody) types.push("too-large", "unsupported-media-type")
  if (creates) types.push("being-deleted", "name-taken", "project-limit")
  // A secret that is shown once can't answer a repeated request, whatever its body.
  if (idempotent && !problems.includes("value-shown-once")) types.push("idempotency-key-reused")
  if (ifMatch) types.push("precondition-failed")
  return new Set<string>(types)
}

/** Returns the statuses of the types, in ascending order. */
export function statusesOf(types: Iterable<string>): number[] {
  const statuses = [...types].flatMap((type) => [...PROBLEM_STATUSES[type as ProblemType]])
  return [...new Set(statuses)].toSorted((a, b) => a - b)
}
