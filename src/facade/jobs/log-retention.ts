import type { StoredJob } from "../../apis/job.ts"
import { findOrCatchUp } from "../../identity/catch-up.ts"
import type { KubeClient } from "../../kube/client.ts"
import type { Logger } from "../../kube/logger.ts"
import type { JobRef, LogStore } from "../../logs/store.ts"
import { type Cache, JOBS } from "../caches.ts"

export interface LogRetentionOptions {
  client: Pick<KubeClient, "list">
  jobs: Cache<StoredJob>
  logStore: LogStore
  logger: Logger
}

/** Removes the logs of Jobs that are deleted, as they go. Returns how to end it. */
export function removeLogsOfDeletedJobs({ jobs, logStore, logger }: LogRetentionOptions): () => void {
  return jobs.onChange(({ old, current }) => {
    // A Job made anew under the same name has another uid, and the old one's log goes.
    if (old === undefined || old.metadata.uid === current?.metadata.uid) return
    remove(refOf(old), { logStore, logger })
  })
}

/** Removes the logs of Jobs that were deleted while no façade ran. Call it when the cache has synced. */
export async function removeOrphanedLogs({ client, jobs, logStore, logger }: LogRetentionOptions): Promise<void> {
  const cached = { client, resource: JOBS, store: jobs.store }
  for await (const ref of logStore.list()) {
    const job = await findOrCatchUp(cached, ref.namespace, () => jobs.store.getByUid(ref.uid))
    if (job === undefined) remove(ref, { logStore, logger })
  }
}

/** Not awaited: a failure is logged, and the next start of a façade finds what is left. */
function remove(ref: JobRef, { logStore, logger }: Pick<LogRetentionOptions, "logStore" | "logger">): void {
  logStore.remove(ref).catch((err: unknown) => logger.error({ err, job: ref }, "the log of a deleted job stays"))
}

function refOf({ metadata }: StoredJob): JobRef {
  return { namespace: metadata.namespace ?? "", uid: metadata.uid }
}
