import type { StoredJob } from "../../../core/apis/job.ts"
import { type HeartbeatTimes, type StoredLaunch, withHeartbeat } from "../../../core/apis/launch.ts"
import type { Store } from "../../../core/kube/store.ts"

/**
 * Returns the last heartbeat of a job's VMs; undefined if no agent has registered, or the records of the VMs are deleted.
 * An ended job has it in its status.
 */
export function lastHeartbeatIn(
  job: StoredJob,
  launches: Store<StoredLaunch>,
  heartbeats: HeartbeatTimes | undefined,
): string | undefined {
  const times = launches.byIndex("jobUid", job.metadata.uid).flatMap((launch) => {
    const agent = withHeartbeat(launch, heartbeats).status?.agent
    return agent === undefined ? [] : [agent.lastHeartbeatTime ?? agent.registrationTime]
  })
  // Times of Launches are in UTC with whole seconds, so their text sorts as they do.
  return times.sort().at(-1)
}
