import type { StoredConnection } from "../apis/connection.ts"

/** "First" as people mean it: the oldest; those of one second by name. */
export function byAge(connections: readonly StoredConnection[]): StoredConnection[] {
  const key = ({ metadata }: StoredConnection) => `${metadata.creationTimestamp} ${metadata.name}`
  return [...connections].sort((a, b) => (key(a) < key(b) ? -1 : 1))
}

/**
 * Whether it may be better in a moment: TransientError and OutcomeUnknownError of the clouds, and our own time-out. By
 * name, as this folder knows no cloud.
 */
export function isTemporary(error: unknown): boolean {
  const temporary = ["TransientError", "OutcomeUnknownError", "TimeoutError", "AbortError", "KubeError"]
  return error instanceof Error && temporary.includes(error.name)
}
