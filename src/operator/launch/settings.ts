import type { CloudAccount } from "../../clouds/cloud.ts"

/** Settings of the launch controller. All durations are in seconds. */
export interface LaunchSettings {
  /** Minimum time for which the record of a terminated Launch is kept. */
  retentionSeconds: number
  /** Delay before a terminate call without effect is repeated. */
  terminateRetrySeconds: number
  /** Time that a VM has to end itself after its lifetime, before the controller terminates it. */
  lifetimeSlackSeconds: number
  /**
   * Age up to which a heartbeat outweighs a list without the VM. Must exceed the age that a written heartbeat of a
   * healthy VM can reach (api/gateway/heartbeats.ts).
   */
  recentHeartbeatSeconds: number
  /**
   * States that last shorter are not written. Must exceed the interval between two lists of an account; otherwise every
   * VM gets an extra write before it ends.
   */
  settleSeconds: number
  /** Minimum time between two writes of a launch error, whose text may change with each attempt. */
  launchErrorIntervalSeconds: number
  /** Age of a VM without an agent from which its console is read for the cause. */
  consoleSeconds: number
  /** Longest billed time after a finished agent's last message: the VM powers itself off. */
  powerOffSeconds: number
}

export const LAUNCH_DEFAULTS: LaunchSettings = {
  retentionSeconds: 3600,
  terminateRetrySeconds: 60,
  lifetimeSlackSeconds: 300,
  recentHeartbeatSeconds: 90,
  settleSeconds: 15,
  launchErrorIntervalSeconds: 60,
  consoleSeconds: 150,
  powerOffSeconds: 60,
}

/** Settings of the heartbeat timeout, after which a VM counts as lost. All durations are in seconds. */
export interface HeartbeatSettings {
  /** Age of an agent's last heartbeat from which its VM counts as lost. */
  timeoutSeconds: number
  /** The gateway counts as receiving if any heartbeat was written within this time. */
  receivingSeconds: number
  /** Highest share of the VMs with an agent (but at least one VM) that is evicted per `timeoutSeconds`. */
  evictionRate: number
}

export const HEARTBEAT_DEFAULTS: HeartbeatSettings = { timeoutSeconds: 600, receivingSeconds: 150, evictionRate: 0.1 }

/** Settings of the garbage collection of VMs. */
export interface GarbageCollectionSettings {
  /** Accounts to check besides those of all known Launches. */
  accounts?: () => readonly CloudAccount[]
  /** Seconds between two rounds. Default 300. */
  intervalSeconds?: number
  /** Seconds; younger VMs are kept. Default 300. */
  minAgeSeconds?: number
  /** VMs terminated per round, at most. Default 10. */
  maxPerRound?: number
}
