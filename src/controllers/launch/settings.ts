/** How Launches are looked after. All durations are in seconds. */
export interface LaunchSettings {
  /** How long the record of a terminated Launch is kept, at least. */
  retentionSeconds: number
  /** After so long a terminate call that has shown no effect is made again. */
  terminateRetrySeconds: number
  /** How long after its lifetime a VM that should have ended itself is ended. */
  lifetimeSlackSeconds: number
  /**
   * A VM whose agent was heard within this time is not gone, whatever a list shows. Longer than the time between two
   * heartbeats that the gateway writes.
   */
  heardSeconds: number
  /**
   * A state that passes sooner is not worth a write of its own: longer than the time between two looks at an account, or
   * every VM that ends at once would be written down as ending first.
   */
  settleSeconds: number
  /** Between two writes of what attempts at a VM have met, which may say something else each time. */
  retellSeconds: number
  /** After its agent's last word a VM that has finished is billed no longer than this: it powers itself off. */
  powerOffSeconds: number
}

export const LAUNCH_DEFAULTS: LaunchSettings = {
  retentionSeconds: 3600,
  terminateRetrySeconds: 60,
  lifetimeSlackSeconds: 300,
  heardSeconds: 90,
  settleSeconds: 15,
  retellSeconds: 60,
  powerOffSeconds: 60,
}
