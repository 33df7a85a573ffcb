import type { StoredConnection } from "../../core/apis/connection.ts"

/** Reads the connections of a namespace. */
export interface ConnectionsReader {
  /** Returns the cached connections; undefined while the cache is not filled. */
  cached(namespace: string): readonly StoredConnection[] | undefined
  live(namespace: string): Promise<readonly StoredConnection[]>
}

/** Sorts connections by age, the oldest first. Those of the same second are sorted by name. */
export function byAge(connections: readonly StoredConnection[]): StoredConnection[] {
  const key = ({ metadata }: StoredConnection) => `${metadata.creationTimestamp} ${metadata.name}`
  return [...connections].sort((a, b) => (key(a) < key(b) ? -1 : 1))
}

/**
 * Returns true if a retry may succeed: for TransientError and OutcomeUnknownError of the clouds, KubeError, and our own
 * timeouts. It compares names, because this folder imports no cloud.
 */
export function isTemporary(error: unknown): boolean {
  const temporary = ["TransientError", "OutcomeUnknownError", "TimeoutError", "AbortError", "KubeError"]
  return error instanceof Error && temporary.includes(error.name)
}
