import { timestamp } from "../../core/apis/clock.ts"
import { defined } from "../../core/apis/defined.ts"
import type { StoredLaunch } from "../../core/apis/launch.ts"
import { vmSince, whyNotTakeable } from "../../core/reuse/reuse.ts"
import { billedUntil, type OwnStatus, ownStatus } from "./decide.ts"

/** Next step of a Launch that takes over the idle VM of another one. Each names the status to write. */
export type Takeover =
  /** The predecessor hands over its VM: its status is written first, in the version that was read. */
  | { is: "possible"; predecessor: OwnStatus }
  /** The predecessor has handed over its VM to this Launch, which now has it. */
  | { is: "done"; own: OwnStatus }
  /** The VM is another one's, or has ended. There is no VM for this Launch, and there never will be. */
  | { is: "lost"; own: OwnStatus }

/**
 * Returns the next step of a takeover. The predecessor must be read live. Its `handedTo` is written once, in the version
 * that was read, so no two Launches can get its VM. Every later version excludes each earlier write. Pure.
 * @param predecessor undefined: it does not exist any more
 */
export function takeoverOf(launch: StoredLaunch, predecessor: StoredLaunch | undefined, now: Date): Takeover {
  if (predecessor?.status?.handedTo === launch.metadata.name) return { is: "done", own: takenStatus(predecessor) }
  const why = predecessor === undefined ? "its record is deleted" : whyNotTakeable(launch, predecessor, now)
  if (predecessor !== undefined && why === undefined) {
    return { is: "possible", predecessor: handedOverStatus(predecessor, launch.metadata.name, now) }
  }
  const message = `the idle VM of launch ${launch.spec.takesOver} was not taken over: ${why}`
  return { is: "lost", own: { phase: "terminated", message, costUsd: 0 } }
}

/** Returns the last status of a Launch that hands over its VM. Its bill ends now, without the cloud's minimum. */
function handedOverStatus(launch: StoredLaunch, handedTo: string, now: Date): OwnStatus {
  return {
    ...ownStatus(launch.status ?? {}),
    phase: "handedOver",
    message: `launch ${handedTo} has its VM now`,
    handedTo,
    ...billedUntil(launch, timestamp(now), { minimumBilledSeconds: 0 }),
  }
}

/** Returns the first status of a Launch that has taken over a VM. Its bill begins where that of its predecessor ended. */
function takenStatus(predecessor: StoredLaunch): OwnStatus {
  const { vm } = predecessor.status ?? {}
  return {
    phase: "created",
    message: `its VM is that of launch ${predecessor.metadata.name}, whose agent is about to register`,
    vm: {
      state: "booting",
      bootTime: vmSince(predecessor),
      ...defined({ id: vm?.id, ipAddress: vm?.ipAddress, createTime: vm?.terminationTime }),
    },
  }
}
