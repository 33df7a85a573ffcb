/** How Launches are looked after. All durations are in seconds. */
export interface LaunchSettings {
  /** How long the record of a terminated Launch is kept, at least. */
  retentionSeconds: number
  /** After so long a terminate call that has shown no effect is made again. */
  terminateRetrySeconds: number
  /** How long after its lifetime a VM that should have ended itself is ended. */
  lifetimeSlackSeconds: number
  /** A state that passes sooner is not worth a write of its own. */
  settleSeconds: number
}

export const LAUNCH_DEFAULTS: LaunchSettings = {
  retentionSeconds: 3600,
  terminateRetrySeconds: 60,
  lifetimeSlackSeconds: 300,
  settleSeconds: 5,
}
