/** This process may no longer act on clouds: another one may be leading by now. */
export class NotLeaderError extends Error {
  override readonly name = "NotLeaderError"
}

/**
 * Checked right before each act that two leaders must not both do. A resourceVersion can't fence a cloud, so it is
 * the lease that is looked at. Throws NotLeaderError.
 */
export type Fence = () => void

/** The fence of a lease (`LeaderElector.isHeld`). */
export function fenceOf(lease: { isHeld(): boolean }): Fence {
  return () => {
    if (!lease.isHeld()) throw new NotLeaderError("the lease is not held any more: whoever leads now goes on")
  }
}
