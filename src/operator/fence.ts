import { LeadershipLostError } from "../core/kube/lease.ts"

/** Error of a process that may no longer act on clouds, because another one may lead. It stops all controllers. */
export class NotLeaderError extends LeadershipLostError {
  override readonly name = "NotLeaderError"
}

/**
 * Check right before each act that two leaders must not both do. It reads the lease, because a resourceVersion can't
 * fence a cloud. Throws NotLeaderError.
 */
export type Fence = () => void

/** Returns the fence of a lease (`LeaderElector.isHeld`). */
export function createFence(lease: { isHeld(): boolean }): Fence {
  return () => {
    if (!lease.isHeld()) throw new NotLeaderError("this replica no longer holds the lease; the next leader continues")
  }
}
