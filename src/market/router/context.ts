import type { Cooldown, LaunchAccount } from "./cooldown.ts"
import type { CostTerms } from "./cost.ts"

/** Room that the caps leave for a new VM, US dollars if not said otherwise. An absent field sets no limit. */
export interface Room {
  /** Number of GPUs. */
  gpus?: number
  hourlyUsd?: number
  /** For the job's expected cost. */
  monthlyUsd?: number
  /** For the most that the VM can cost. */
  strictUsd?: number
}

/** Facts that a placement depends on besides the job and the offers. */
export interface RouteContext<P extends LaunchAccount = LaunchAccount> extends CostTerms {
  launchAccounts: readonly P[]
  cooldowns: readonly Cooldown[]
  room: Room
  /** Limit of the job's own cost. An offer fits if `leastSeconds` on it cost no more. */
  budget?: { leftUsd: number; leastSeconds: number } | undefined
  now: Date
  /** Number of placements to return; default 5. */
  count?: number
}
