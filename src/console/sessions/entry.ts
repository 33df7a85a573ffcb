import type { JobRecord } from "../../client/client.ts"
import { isEnded } from "../../client/jobs.ts"

/** Returns why no session can be opened into a job now; undefined if one can. Nothing else in the console decides that. */
export function whyClosed(job: Pick<JobRecord, "name" | "status" | "kept_until">): string | undefined {
  if (job.status === "running" || isKept(job)) return undefined
  const state = `The job ${job.name} is ${job.status}.`
  return isEnded(job)
    ? `${state} A session needs a running container: run the job again.`
    : `${state} A session needs a running container: this page changes when it runs.`
}

/** Returns true if the machine of a failed job is kept. Servers of an earlier version keep none. */
export function isKept({ status, kept_until: until }: Pick<JobRecord, "status" | "kept_until">): boolean {
  return status === "failed" && until != null
}
