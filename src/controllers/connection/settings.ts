/** How connections are looked after. All durations are in seconds. */
export interface ConnectionSettings {
  /** How long a verification may take. */
  verifySeconds: number
  /** Between two verifications of credentials that work; each connection has a moment of its own within a quarter more or less. */
  intervalSeconds: number
  /** After a refusal; doubled with each further one in a row, up to the interval: providers take a while to know a new key. */
  refusedRetrySeconds: number
  /** After a failure to reach the provider; doubled with each further one in a row, up to the cap. */
  unreachableRetrySeconds: number
  unreachableRetryCapSeconds: number
  /** Credentials that worked count as working for so long while the provider can't be reached. */
  unreachableGraceSeconds: number
}

export const CONNECTION_DEFAULTS: ConnectionSettings = {
  verifySeconds: 30,
  intervalSeconds: 3600,
  refusedRetrySeconds: 15,
  unreachableRetrySeconds: 10,
  unreachableRetryCapSeconds: 300,
  unreachableGraceSeconds: 6 * 3600,
}
