/** Settings of the connection controller. All durations are in seconds. */
export interface ConnectionSettings {
  /** Timeout of one verification. */
  verifySeconds: number
  /** Interval between two verifications of credentials that work. Each connection's own differs by up to a quarter. */
  intervalSeconds: number
  /** Interval while the credentials work, but can't start VMs: their owner may be about to fix that. */
  unableIntervalSeconds: number
  /**
   * Delay after a rejection. It doubles with each further one, up to `intervalSeconds`: a provider may need a while to
   * accept a new key.
   */
  refusedRetrySeconds: number
  /** Delay after a failure to reach the provider. It doubles with each further one, up to the cap. */
  unreachableRetrySeconds: number
  unreachableRetryCapSeconds: number
  /** Time since the last success for which credentials count as verified while the provider is unreachable. */
  unreachableGraceSeconds: number
  /** Shortest time between a verification and one that a user asks for. */
  requestedPauseSeconds: number
}

export const CONNECTION_DEFAULTS: ConnectionSettings = {
  verifySeconds: 30,
  intervalSeconds: 3600,
  unableIntervalSeconds: 300,
  refusedRetrySeconds: 15,
  unreachableRetrySeconds: 10,
  unreachableRetryCapSeconds: 300,
  unreachableGraceSeconds: 6 * 3600,
  requestedPauseSeconds: 10,
}
